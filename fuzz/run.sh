#!/usr/bin/env bash
# Fuzzes every target, two at a time, and prints a table of the results:
#
#   fuzz/run.sh SECONDS [TARGET...]
#
# Inputs: the committed corpora (fuzz/corpus/TARGET.tar.gz, unpacked by fuzz/unpack.sh) and the seeds made from
# tests/data. New inputs go to fuzz/work/corpus; fuzz/minimise.sh keeps those with new coverage. Logs: fuzz/work/logs.
# The table, in Markdown, goes to standard output and to fuzz/work/table.md. Needs a nightly toolchain and cargo-fuzz.
# Exit: 1 if anything was found.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${1:?usage: fuzz/run.sh SECONDS [TARGET..]}
shift
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(cargo fuzz list --fuzz-dir .)
jobs=${JOBS:-2}
host=$(rustc -vV | sed -n 's/^host: //p')
mkdir -p work/logs
./unpack.sh

cargo +nightly fuzz build --fuzz-dir . >&2
cargo run --quiet --example seeds -- work/data work/seeds >&2

# Small inputs, so that many are tried. An input that takes 30 s or allocates 256 MiB at once is a failure.
fuzz() { # TARGET
    local target=$1
    mkdir -p "work/corpus/$target" "work/seeds/$target" "work/committed/$target" "artifacts/$target"
    "target/$host/release/$target" "work/corpus/$target" "work/committed/$target" "work/seeds/$target" \
        -artifact_prefix="artifacts/$target/" -max_total_time="$seconds" -max_len=4096 -timeout=30 -rss_limit_mb=2048 \
        -malloc_limit_mb=256 -print_final_stats=1 -use_value_profile=1 >"work/logs/$target" 2>&1
}

failed=0
running=0
for target in "${targets[@]}"; do
    if [ "$running" = "$jobs" ]; then
        wait -n || failed=1
        running=$((running - 1))
    fi
    fuzz "$target" &
    running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
    wait -n || failed=1
    running=$((running - 1))
done
rm -rf /dev/shm/sharddb-fuzz-*

row() { # TARGET
    awk -v target="$1" -v committed="$(find "work/committed/$1" -type f | wc -l)" '
        /^stat::number_of_executed_units/ { units = $2 }
        /^stat::average_exec_per_sec/     { rate = $2 }
        / cov: / { for (i = 1; i < NF; i++) { if ($i == "cov:") cov = $(i + 1); if ($i == "ft:") ft = $(i + 1) } }
        /^SUMMARY: |deadly signal|panicked at/ { found = "yes" }
        END { printf "| `%s` | %d | %d | %d | %d | %d | %s |\n", target, units, rate, cov, ft, committed, found ? found : "no" }
    ' "work/logs/$1"
}

{
    echo '| target | inputs tried | a second | edges reached | features reached | inputs in the corpus | found anything |'
    echo '|---|---|---|---|---|---|---|'
    for target in "${targets[@]}"; do row "$target"; done
} | tee work/table.md
exit $failed
