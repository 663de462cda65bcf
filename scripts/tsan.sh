#!/usr/bin/env bash
# Runs the stress tests under ThreadSanitizer: readers in threads and processes while generations are published,
# broken, rolled back and collected.
#
#   scripts/tsan.sh [PROGRAM [FILTER]]        default: concurrency, then it refresh::
#
# Needs a nightly toolchain with the component rust-src ($TSAN_TOOLCHAIN, default nightly; rustup component add
# rust-src). This library, its dependencies, the tests and the standard library are instrumented; the latter is built
# for it. The prebuilt standard library causes false reports: a contended lock is taken inside of it, unseen, and the
# last drop of an Arc synchronises by a fence, which ThreadSanitizer does not understand. The kernel is never
# instrumented, so file locks and maps do not order anything for it. Exit: 0 without a report, 2 if it cannot run.
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
