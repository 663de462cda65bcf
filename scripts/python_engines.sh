#!/usr/bin/env bash
# Runs the partitioned builds on Ray and Spark in python/examples, in a Python environment of their own with the wheel that
# scripts/python.sh built. An engine that cannot be installed here is skipped: Spark needs Java.
#
# The last line is `N passed, N failed`. Exit: 0 if what ran passed, else 1.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
venv=$target/engines-venv
wheels=("$target"/python-check/wheels/sharddb-*.whl)
[ -f "${wheels[0]}" ] || { echo 'expected a wheel: run scripts/python.sh first' >&2 && exit 1; }

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
install --force-reinstall --no-deps "${wheels[@]}"
install numpy==2.4.6 pyarrow==26.0.1

passed=0
failed=0

example() { # NAME PACKAGE..
    local name=$1
    shift
    if ! install "$@"; then
        echo "$name: skipped, $* cannot be installed"
    elif timeout 900 "$venv/bin/python" "python/examples/${name}_build.py" 2>"$target/$name.log"; then
        passed=$((passed + 1))
    else
        tail -n 50 "$target/$name.log"
        failed=$((failed + 1))
    fi
}

example ray 'ray[data]==2.60.0'
if command -v java >/dev/null; then example spark pyspark==4.3.0; else echo 'spark: skipped, there is no Java'; fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
