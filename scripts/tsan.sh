#!/usr/bin/env bash
# Runs the stress tests under ThreadSanitizer: readers in threads and processes while generations are published,
# broken, rolled back and collected.
#
#   scripts/tsan.sh [PROGRAM [FILTER]]        default: concurrency, then it refresh::
#
# Needs a nightly toolchain with the component rust-src ($TSAN_TOOLCHAIN, default nightly; rustup component add rust-src).
# Instrumented are this library, the crates it stands on, the tests, and the standard library, which is built for it.
# With a standard library as it comes there are nothing but false reports: a contended lock is taken inside of it, unseen, and
# the last drop of an Arc synchronises by a fence, which ThreadSanitizer does not understand. The kernel is never
# instrumented: file locks and maps order nothing in its eyes. Exit: 0 without a report, 2 where it cannot run.
set -euo pipefail
cd "$(dirname "$0")/.."

toolchain=${TSAN_TOOLCHAIN:-nightly}

if [ ! -d "$(rustc "+$toolchain" --print sysroot)/lib/rustlib/src/rust/library" ]; then
    echo "expected the component rust-src in the toolchain $toolchain, found none" >&2
    exit 2
fi
target=$(rustc "+$toolchain" -vV | sed -n 's/^host: //p')

run() { # PROGRAM [FILTER]
    RUSTFLAGS=-Zsanitizer=thread RUSTDOCFLAGS=-Zsanitizer=thread TSAN_OPTIONS='halt_on_error=1 second_deadlock_stack=1' \
        cargo "+$toolchain" test -Zbuild-std --target "$target" --target-dir "${CARGO_TARGET_DIR:-target}/tsan" \
        --package sharddb --test "$1" -- "${@:2}"
}

if [ $# -gt 0 ]; then
    run "$@"
else
    run concurrency
    run it refresh::
fi
