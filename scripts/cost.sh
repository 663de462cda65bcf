#!/usr/bin/env bash
# The cost model for hostile inputs (fuzz/examples/cost.rs): families of inputs at two sizes, by counted instructions
# and peak memory, then the memory of every committed corpus, seed and broken data set. Needs perf with permission to
# count instructions, or valgrind, which is installed by apt if possible. Takes minutes. Exit: 1 if anything failed.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

may_count() { perf stat -x, -e instructions:u -- true 2>&1 | grep -q '^[0-9]'; }
if ! may_count && ! command -v valgrind >/dev/null; then
    as_root=$([ "$(id -u)" = 0 ] || echo sudo)
    $as_root apt-get update -qq && $as_root apt-get install -qq -y valgrind >/dev/null
fi

cargo build --release --quiet --example cost --example seeds
target=${CARGO_TARGET_DIR:-target}/release/examples
./unpack.sh
"$target/seeds" work/data work/seeds

failed=0
"$target/cost" model || failed=1
"$target/cost" files work/data work/committed work/seeds || failed=1
exit "$failed"
