#!/usr/bin/env bash
# Measures gets in shards that CloudVolume wrote with gzip indexes, by TensorStore and by ShardDb, and prints the ratio.
#
# usage: scripts/foreign.sh
#
# SHARDDB_VENV    the Python environment with both; created if missing (default: below target/)
#
# A benchmark, for an idle machine. Both programs compare every value that they read.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
venv=${SHARDDB_VENV:-$target/interop-venv}
set=$target/foreign

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement scripts/requirements.txt
cargo build --release --quiet --package sharddb-examples --example foreign_gets

if [ ! -e "$set/info" ]; then
    rm -rf "$set"
    "$venv/bin/python" scripts/foreign.py write "$set"
fi

tensorstore=$("$venv/bin/python" scripts/foreign.py read "$set")
echo "TensorStore, cache and mapped files   1 thread    $tensorstore ns per get"
for threads in 1 2; do
    ours=$("$target/release/examples/foreign_gets" "$set" $threads)
    ratio=$(awk "BEGIN { printf \"%.0f\", $tensorstore / $ours }")
    echo "ShardDb, default options              $threads thread(s) $ours ns per get and thread, $ratio times as fast"
done
