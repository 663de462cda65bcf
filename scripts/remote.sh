#!/usr/bin/env bash
# Publishes to servers on loopback that speak the protocols of object stores, and reads from them and from static web servers:
# with the command, TensorStore and CloudVolume. Compares the numbers of requests.
#
# usage: scripts/remote.sh [--emulators]
#
# The server speaks S3 (moto); with --emulators others also speak Azure's protocol (azurite, which is installed by npm) and
# Google's. The command is the development build with all features, as the tests have it.
#
# SHARDDB_REMOTE_VENV   the Python environment with scripts/requirements-remote.txt; created if missing (default: below
#                       target/)
#
# The last line is `N passed, N failed`. Exit: 0 if nothing failed, 1 if something failed, 2 for other arguments.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
venv=${SHARDDB_REMOTE_VENV:-$target/remote-venv}

emulators=()
case $#:${1-} in
    0:) ;;
    1:--emulators) emulators=("$target/azurite") ;;
    *)
        sed -n '5s/^# //p' "$0" >&2
        exit 2
        ;;
esac

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement scripts/requirements-remote.txt; then
    echo "expected moto, TensorStore and CloudVolume in $venv, but they could not be installed (see above)." >&2
    echo "Needs python3 with venv, and PyPI; or an environment that has scripts/requirements-remote.txt, in SHARDDB_REMOTE_VENV." >&2
    exit 1
fi

for azurite in "${emulators[@]}"; do
    mkdir -p "$azurite"
    [ -f "$azurite/node_modules/azurite/dist/src/blob/main.js" ] ||
        npm install --prefix "$azurite" --silent --ignore-scripts --no-audit --no-fund azurite@3.35.0
done

cargo test --quiet --workspace --all-features --no-run
export PYTHONUNBUFFERED=1
timeout --kill-after=10 1500 "$venv/bin/python" scripts/check_remote.py "$target/debug/sharddb" "${emulators[@]}"
