#!/usr/bin/env bash
# Replaces the committed corpora with the smallest ones that have the coverage of the old ones and of all runs:
#
#   fuzz/minimise.sh [TARGET...]
#
# Run fuzz/run.sh first. Inputs above 1 KiB are left out: a corpus is the start of a run, not a record of all inputs.
# Each corpus is one archive, fuzz/corpus/TARGET.tar.gz. Equal inputs make equal archives (scripts/pack.sh).
set -euo pipefail
cd "$(dirname "$0")"

targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(cargo fuzz list --fuzz-dir .)
./unpack.sh
host=$(rustc -vV | sed -n 's/^host: //p')
for target in "${targets[@]}"; do
    mkdir -p "work/corpus/$target" "work/seeds/$target" "work/committed/$target"
    rm -rf "work/minimised/$target"
    mkdir -p "work/minimised/$target"
    "target/$host/release/$target" -merge=1 -max_len=1024 "work/minimised/$target" \
        "work/committed/$target" "work/seeds/$target" "work/corpus/$target" >"work/logs/$target.merge" 2>&1
    ../scripts/pack.sh "work/minimised/$target" "corpus/$target.tar.gz"
    printf '%s: %d inputs, %s\n' "$target" "$(find "work/minimised/$target" -type f | wc -l)" \
        "$(du -h --apparent-size "corpus/$target.tar.gz" | cut -f 1)"
done
rm -rf /dev/shm/sharddb-fuzz-*
