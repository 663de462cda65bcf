#!/usr/bin/env bash
# Installs what the check of the page needs, into this directory: Chromium (apt, needs root), playwright-core and axe-core
# (npm). What is installed already is kept.
set -euo pipefail
cd "$(dirname "$0")"

if ! command -v chromium >/dev/null; then
    as_root=$([ "$(id -u)" = 0 ] || echo sudo)
    $as_root apt-get update -qq
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-liberation >/dev/null
fi
[ -d node_modules/axe-core ] || npm install --silent --ignore-scripts --no-audit --no-fund --no-package-lock
