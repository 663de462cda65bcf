#!/usr/bin/env bash
# Installs what the Neuroglancer check needs, into this directory: Chromium (apt, needs root), the Neuroglancer client
# (PyPI) and playwright-core (npm). What is installed already is kept.
#
#   setup.sh [--dataset]
#
# --dataset also makes the data set anew, in ./dataset, with cloud-volume (PyPI). tests/data/neuroglancer has the same bytes.
set -euo pipefail
cd "$(dirname "$0")"
NG_VERSION=${NG_VERSION:-2.41.2}

if ! command -v chromium >/dev/null; then
    as_root=$([ "$(id -u)" = 0 ] || echo sudo)
    $as_root apt-get update -qq
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-liberation >/dev/null
fi

# The wheel contains the built client. The npm package cannot be installed without git: one dependency is a git URL.
if [ ! -f client/index.html ] || [ "$(cat client/VERSION 2>/dev/null)" != "$NG_VERSION" ]; then
    rm -rf client client.tmp
    mkdir client.tmp
    python3 -m pip download -q --no-deps --only-binary=:all: -d client.tmp "neuroglancer==$NG_VERSION"
    python3 - <<'END'
import glob, os, zipfile
wheel = zipfile.ZipFile(glob.glob("client.tmp/*.whl")[0])
prefix = "neuroglancer/static/client/"
os.makedirs("client")
for name in wheel.namelist():
    if name.startswith(prefix) and not name.endswith((".map", "/")):
        open("client/" + name[len(prefix):], "wb").write(wheel.read(name))
END
    echo "$NG_VERSION" >client/VERSION
    rm -rf client.tmp
fi

[ -d node_modules/playwright-core ] || npm install --silent --ignore-scripts --no-audit --no-fund --no-package-lock

if [ "${1:-}" = --dataset ] && [ ! -f dataset/ng_expect.json ]; then
    [ -x venv/bin/python ] || python3 -m venv venv
    venv/bin/pip install -q cloud-volume==12.15.2 DracoPy numpy
    venv/bin/python make_dataset.py dataset
fi
echo "ready: node run_ng_check.mjs DATASET"
