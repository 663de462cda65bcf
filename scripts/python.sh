#!/usr/bin/env bash
# Builds the Python package and checks it: lints, the wheel, the tests in python/tests with the installed wheel (also the
# Python lines of its README), the types and the stubs.
#
# usage: scripts/python.sh [--installs]
#
# --installs builds a release wheel, runs the tests of the command with that of the package, and installs in clean environments: the
# wheel without Rust, the sources as the README says, and the source distribution. Otherwise the wheel is a development build,
# which takes a third of the time.
#
# SHARDDB_PYTHON_VENV   the Python environment for the tests; created if missing (default: below target/)
#
# The last line is `N passed, N failed`. Exit: 0 if everything passed, 1 if something failed, 2 for other arguments.
set -euo pipefail
cd "$(dirname "$0")/.."

case $#:${1-} in
    0:) profile=dev ;;
    1:--installs) profile=release ;;
    *)
        sed -n '5s/^# //p' "$0" >&2
        exit 2
        ;;
esac

root=$PWD
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
target=$(cd "$target" && pwd)
venv=${SHARDDB_PYTHON_VENV:-$target/python-venv}
work=$target/python-check
export CARGO_TARGET_DIR=$target/python
rm -rf "$work"
mkdir -p "$work/wheels"

passed=0
failed=0

check() { # NAME COMMAND..
    local name=$1
    shift
    printf '\n-- %s\n' "$name"
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name"
    fi
}

# Runs a program, which is killed after 20 minutes; what it printed is above.
limited() {
    local code=0
    timeout --kill-after=10 1200 "$@" || code=$?
    [ "$code" != 124 ] || echo "killed after 1200 s: $*"
    return "$code"
}

environment() {
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv" || return
    # pip downloads only what is missing
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement scripts/requirements-python.txt
}

lints() {
    cargo fmt --manifest-path python/Cargo.toml --check &&
        PYO3_PYTHON=$venv/bin/python limited cargo clippy --manifest-path python/Cargo.toml --locked -- -D warnings
}

wheel() {
    limited "$venv/bin/maturin" build --profile "$profile" --locked --manifest-path python/Cargo.toml --out "$work/wheels" &&
        ls "$work"/wheels/sharddb-*-abi3-*.whl &&
        "$venv/bin/python" -m pip install --quiet --force-reinstall --no-deps "$work"/wheels/*.whl
}

# pytest counts its tests; its own success is one more check. Elsewhere than in python/, where `import sharddb` finds the
# sources without the extension.
tests() {
    local log=$work/pytest.log status=0
    (cd "$work" && limited "$venv/bin/pytest" -c "$root/python/pyproject.toml" -q --durations 5 -p no:cacheprovider \
        "$root/python/tests") 2>&1 | tee "$log" || status=1
    passed=$((passed + $(count passed "$log")))
    failed=$((failed + $(count failed "$log") + $(count errors "$log") + $(count error "$log")))
    return $status
}

# The number before a word in the last line of pytest.
count() { # WORD LOG
    tail -n 1 "$2" | awk -v word="$1" '{ for (i = 2; i <= NF; i++) if ($i == word || $i == word ",") n = $(i - 1) } END { print n + 0 }'
}

types() {
    (cd python && limited "$venv/bin/mypy" --cache-dir "$work/mypy" sharddb tests)
}

pyright() {
    (cd python && PYRIGHT_PYTHON_IGNORE_WARNINGS=1 limited "$venv/bin/pyright" --pythonpath "$venv/bin/python")
}

# Of the installed package, not of the sources.
stubs() {
    (cd "$work" && limited "$venv/bin/python" -m mypy.stubtest sharddb --mypy-config-file "$root/python/pyproject.toml" \
        --allowlist "$root/python/tests/stubtest-allowlist.txt")
}

# Without Rust: the path has no cargo.
clean_wheel() {
    python3 -m venv "$work/clean" &&
        export_path "$work/clean/bin" "$work/clean/bin/python" -m pip install --quiet "$work"/wheels/*.whl &&
        export_path "$work/clean/bin" "$work/clean/bin/python" -m doctest "$root/python/README.md"
}

export_path() { # PATH COMMAND..
    (
        cd "$(mktemp -d "$work/empty.XXXX")"
        timeout=$(type -P timeout)
        PATH=$1
        if command -v cargo rustc; then
            echo 'expected a path without Rust'
            exit 1
        fi
        shift
        "$timeout" --kill-after=10 1200 "$@"
    )
}

clean_sources() { # SOURCES
    python3 -m venv --clear "$work/sources" &&
        limited "$work/sources/bin/python" -m pip install --quiet "$1" &&
        (cd "$(mktemp -d "$work/empty.XXXX")" && limited "$work/sources/bin/python" -m doctest "$root/python/README.md")
}

# Elsewhere, since the distribution is to hold all that it needs.
clean_distribution() {
    "$venv/bin/maturin" sdist --manifest-path python/Cargo.toml --out "$work/distribution" &&
        clean_sources "$work"/distribution/*.tar.gz
}

# Signals, pipes, exit codes and messages are those of the binary.
command_of_the_package() {
    CARGO_TARGET_DIR=$target SHARDDB=$venv/bin/sharddb limited cargo nextest run --package sharddb-cli --all-features --test it
}

check environment environment
check lints lints
check wheel wheel
check tests tests
check types types
check pyright pyright
check stubs stubs
if [ "$profile" = release ]; then
    check 'the wheel without Rust' clean_wheel
    check 'the sources' clean_sources ./python
    check 'the source distribution' clean_distribution
    check 'the command' command_of_the_package
fi
printf '\n%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
