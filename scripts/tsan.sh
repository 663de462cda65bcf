#!/usr/bin/env bash
# Runs the stress tests under ThreadSanitizer: readers in threads and processes while generations are published,
# broken, rolled back and collected.
#
#   scripts/tsan.sh [TEST..]        default: concurrency refresh
#
# Needs a nightly toolchain. Instrumented are this library, the crates it stands on, the tests, and with the component
# rust-src the standard library too. Without it (the script says which) only the parts of std that are inlined into other
# crates are, among them the fast paths of locks and channels; and as the last drop of an Arc then synchronises by a fence, which
# ThreadSanitizer does not understand, reports with such a drop in them are suppressed. The kernel and C code are
# never instrumented: file locks and maps order nothing in its eyes. Any report fails the run.
set -euo pipefail
cd "$(dirname "$0")/.."

toolchain=${TSAN_TOOLCHAIN:-nightly}
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(concurrency refresh)
target=$(rustc "+$toolchain" -vV | sed -n 's/^host: //p')

work=$(realpath -m "${CARGO_TARGET_DIR:-target}/tsan")
options='halt_on_error=1 second_deadlock_stack=1'
flags='-Zsanitizer=thread'
build=()
if [ -d "$(rustc "+$toolchain" --print sysroot)/lib/rustlib/src/rust/library" ]; then
    echo 'instrumented: the library, its dependencies, the tests, std (built from rust-src)'
    build=(-Zbuild-std)
else
    echo 'instrumented: the library, its dependencies, the tests; not std, for rust-src is not installed'
    flags+=' -Cunsafe-allow-abi-mismatch=sanitizer'
    mkdir -p "$work"
    printf 'race:drop_slow\nrace:std::sync::mp\n' >"$work/suppressions"
    options+=" suppressions=$work/suppressions"
fi

RUSTFLAGS=$flags RUSTDOCFLAGS=$flags TSAN_OPTIONS=$options \
    cargo "+$toolchain" test --target-dir "$work" --target "$target" "${build[@]}" \
    --package sharddb "${tests[@]/#/--test=}"
