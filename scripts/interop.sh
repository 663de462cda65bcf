#!/usr/bin/env bash
# Writes data sets with ShardDb for TensorStore and CloudVolume to read, then arrays for zarr-python and TensorStore,
# then arrays, tables and files for bcolz and bloscpack. Builds skeletons with the command for CloudVolume to read, and
# updates, copies, merges and reshards foreign ones for both; and volumes. Serves a data set by HTTP to both.
#
# SHARDDB_VENV          the Python environment with both readers; created if missing (default: below target/)
# SHARDDB_BCOLZ_VENV    the Python environment with bcolz and bloscpack; likewise
# SHARDDB_INTEROP_DIR   where the data sets go, in directories precomputed, zarr and bcolz (default: below target/)
#
# Each part ends with a line `N passed, N failed`. Exit: 0 if everything was read as written, else 1.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
venv=${SHARDDB_VENV:-$target/interop-venv}
bcolz_venv=${SHARDDB_BCOLZ_VENV:-$target/bcolz-venv}
sets=${SHARDDB_INTEROP_DIR:-$target/interop}

readers_are_there() {
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    # pip downloads only what is missing
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement scripts/requirements.txt
}

if ! readers_are_there; then
    echo "expected TensorStore, CloudVolume and zarr-python in $venv, but they could not be installed (see above)." >&2
    echo "Needs python3 with venv, and PyPI; or an environment that has scripts/requirements.txt, in SHARDDB_VENV." >&2
    exit 1
fi

# bcolz and bloscpack need an environment of their own
[ -x "$bcolz_venv/bin/python" ] || python3 -m venv "$bcolz_venv"
"$bcolz_venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement scripts/requirements-bcolz.txt

mkdir -p "$sets"
sets=$(cd "$sets" && pwd)
SHARDDB_INTEROP_DIR=$sets cargo test --workspace --test it -- --ignored interop::
"$venv/bin/python" scripts/check_readable.py --self-test "$sets/precomputed"
"$venv/bin/python" scripts/check_zarr.py --self-test "$sets/zarr"
"$bcolz_venv/bin/python" scripts/check_bcolz.py --self-test "$sets/bcolz"
cargo build --release --quiet --package sharddb-cli
"$venv/bin/python" scripts/check_skeletons.py "$target/release/sharddb"
"$venv/bin/python" scripts/check_living.py "$target/release/sharddb"
"$venv/bin/python" scripts/check_volumes.py "$target/release/sharddb"
"$venv/bin/python" scripts/check_served.py "$target/release/sharddb"
