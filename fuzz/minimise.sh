#!/usr/bin/env bash
# Replaces the committed corpora by the smallest ones that reach as much as they and all that runs have found do:
#
#   fuzz/minimise.sh [TARGET..]
#
# Run fuzz/run.sh before. Inputs above 1 KiB are left out: the corpora are there to begin from, not to keep everything.
set -euo pipefail
cd "$(dirname "$0")"

targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(cargo fuzz list --fuzz-dir .)
host=$(rustc -vV | sed -n 's/^host: //p')
for target in "${targets[@]}"; do
    mkdir -p "work/corpus/$target" "work/seeds/$target" "corpus/$target"
    rm -rf "work/minimised/$target"
    mkdir -p "work/minimised/$target"
    "target/$host/release/$target" -merge=1 -max_len=1024 "work/minimised/$target" \
        "corpus/$target" "work/seeds/$target" "work/corpus/$target" >"work/logs/$target.merge" 2>&1
    rm -rf "corpus/$target"
    mv "work/minimised/$target" "corpus/$target"
    printf '%s: %d inputs, %s\n' "$target" "$(find "corpus/$target" -type f | wc -l)" "$(du -sh "corpus/$target" | cut -f 1)"
done
rm -rf /dev/shm/sharddb-fuzz-*
