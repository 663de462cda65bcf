#!/usr/bin/env bash
# Writes data sets with ShardDb for TensorStore and CloudVolume to read, then arrays for zarr-python and TensorStore,
# then arrays, tables and files for bcolz and bloscpack. Builds skeletons with the command for CloudVolume to read, and
# updates, copies, merges and reshards foreign ones for both; and volumes. Serves a data set by HTTP to both. Uses the
# development build of the tests.
#
# SHARDDB               the command; default: its release build with all features
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

# Runs a program, which is killed after 15 minutes; what it printed is above.
limited() {
    local code=0
    timeout --kill-after=10 900 "$@" || code=$?
    [ "$code" = 0 ] || echo "exit code $code (124: killed after 900 s): $*" >&2
    return "$code"
}

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
cargo test --workspace --all-features --no-run
export SHARDDB_INTEROP_DIR=$sets PYTHONUNBUFFERED=1
limited cargo test --workspace --all-features --test it -- --ignored interop::
limited "$venv/bin/python" scripts/check_readable.py --self-test "$sets/precomputed"
mkdir -p "$sets/store-v1-digests"
tar --extract --gzip --file tests/data/store-v1-digests.tar.gz --directory "$sets/store-v1-digests"
mapfile -t generations < <(find "$sets/store-v1-digests" "$sets/precomputed" -name manifest.json -printf '%h\n')
limited "$venv/bin/python" scripts/check_digests.py "${generations[@]}"
limited "$venv/bin/python" scripts/check_zarr.py --self-test "$sets/zarr"
limited "$bcolz_venv/bin/python" scripts/check_bcolz.py --self-test "$sets/bcolz"
if [ -z "${SHARDDB-}" ]; then
    cargo build --release --quiet --package sharddb-cli --all-features
    SHARDDB=$target/release/sharddb
fi
for check in skeletons living volumes served; do
    limited "$venv/bin/python" "scripts/check_$check.py" "$SHARDDB"
done
