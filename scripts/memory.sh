#!/usr/bin/env bash
# Builds stores larger than the loader's memory budget, and verifies every byte of each.
# A build fails if it takes more than its budget plus 64 MiB. --full: the sizes of docs/benchmarks.md (minutes,
# 15 GB of disk).
# The command and the example are release builds with all features.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
cargo build --release --quiet --package sharddb-cli --all-features
cargo build --release --quiet --package sharddb-examples --example bulk_load
store=$target/memory
passed=0
trap 'rm -rf "$store"' EXIT

#   keys value_bytes memory_mib order spec
few="
2000000 100 32 random planned
2000000 100 32 random murmur
2000000 8 16 random one-minishard
2000000 8 16 random gzip
1 300000000 32 random murmur
3000000 8 16 reversed one-shard
3000000 8 16 same planned
"
full="
20000000 100 256 random planned
20000000 100 256 random murmur
100000000 8 64 random planned
5000000 8 64 random one-minishard
5000000 8 64 random gzip
1 1073741824 64 random murmur
10000000 8 64 random one-shard
10000000 8 64 sorted planned
10000000 8 64 reversed planned
10000000 8 64 same planned
"

# Runs a program, which is killed after an hour; what it printed is above.
limited() {
  local code=0
  timeout --kill-after=10 3600 "$@" || code=$?
  [ "$code" = 0 ] || echo "exit code $code (124: killed after an hour): $*" >&2
  return "$code"
}

cases=$few
[ "${1:-}" = --full ] && cases=$full
while read -r case; do
  [ -n "$case" ] || continue
  rm -rf "$store"
  echo "== $case"
  # shellcheck disable=SC2086
  limited "$target/release/examples/bulk_load" "$store" $case
  limited "$target/release/sharddb" verify "$store" --level data
  passed=$((passed + 1))
done <<<"$cases"
echo "$passed passed, 0 failed"
