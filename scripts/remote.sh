#!/usr/bin/env bash
# Runs the tests of the feature `remote`, which have servers of their own. Then publishes to servers on loopback that speak the
# protocols of S3 (moto), Azure (azurite) and Google, and reads from them and from static web servers: with the command,
# TensorStore and CloudVolume. Compares the numbers of requests.
#
# SHARDDB_REMOTE_VENV   the Python environment with scripts/requirements-remote.txt; created if missing (default: below
#                       target/)
#
# The last line is `N passed, N failed`. Exit: 0 if nothing failed, else 1.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
venv=${SHARDDB_REMOTE_VENV:-$target/remote-venv}
rm -f "$target/sharddb-remote" # so that what runs later does not use an old one

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement scripts/requirements-remote.txt; then
    echo "expected moto, TensorStore and CloudVolume in $venv, but they could not be installed (see above)." >&2
    echo "Needs python3 with venv, and PyPI; or an environment that has scripts/requirements-remote.txt, in SHARDDB_REMOTE_VENV." >&2
    exit 1
fi

cargo test --quiet --package sharddb --features remote --lib -- remote::
cargo test --quiet --package sharddb --features remote --doc -- remote::
cargo test --quiet --package sharddb-cli --features remote --test it -- remote::
cargo build --quiet --package sharddb-cli --features remote
cp "$target/debug/sharddb" "$target/sharddb-remote" # another build may replace the first
azurite=$target/azurite
mkdir -p "$azurite"
[ -f "$azurite/node_modules/azurite/dist/src/blob/main.js" ] ||
    npm install --prefix "$azurite" --silent --ignore-scripts --no-audit --no-fund azurite@3.35.0
"$venv/bin/python" scripts/check_remote.py "$target/sharddb-remote" "$azurite"
