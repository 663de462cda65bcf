#!/usr/bin/env bash
# Runs the check on damaged data sets and faulty servers, and on harmless variants that it must accept. Takes minutes.
#
#   matrix.sh [DATASET] > matrix.txt        default: ../tests/data/neuroglancer
#
# ONLY=REGEX selects cases by name. PY is a Python with cloud-volume, for the cases `facade*` (default: python3).
# Each case prints its expected and its actual exit code, and SURPRISE if they differ. Exit: 0 if none differs, else 1.
set -uo pipefail
cd "$(dirname "$0")" || exit 2

dataset=${1:-../tests/data/neuroglancer}
python=${PY:-python3}
scenes="--scene image --scene skeletons --scene mesh --scene ann-by-id"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
surprises=0

one() { # EXPECTED-EXIT NAME ARGUMENT..
    local expected=$1 name=$2 code=0 verdict=as-expected limit=()
    shift 2
    [ "$expected" = 0 ] || limit=(--timeout 8) # what is never drawn would be waited for
    [[ $name =~ ${ONLY:-.} ]] || return 0
    # shellcheck disable=SC2086
    node run_ng_check.mjs "$@" $scenes "${limit[@]}" --out "out/neg/$name" >"$work/out" 2>"$work/err" || code=$?
    if [ "$code" != "$expected" ]; then
        verdict=SURPRISE
        surprises=$((surprises + 1))
    fi
    echo "== $name (expected exit $expected, got $code) $verdict"
    cat "$work/out"
    grep -E '^(ok|FAIL)' "$work/err" | awk '{printf "  %s=%s", $2, $1} END {print ""}'
    grep -E 'client says|never ready|chunks failed|error:' "$work/err" |
        sed -E 's/^ */    /; s/[0-9]{4,}/N/g' | sort | uniq -c | sort -rn | head -8 | cut -c1-330
    if [ "$code" = 2 ]; then tail -3 "$work/err"; fi
}

for kind in zero flip-data flip-index wild-offsets backwards trunc delete delete-one info-hash info-preshift info-bits \
    info-encoding; do
    "$python" corrupt.py "$kind" "$dataset" "$work/damaged" >/dev/null && one 1 "corrupt-$kind" "$work/damaged"
done
for fault in no-cors no-range shard-404 shard-403 shard-500 short liar gzip-range; do
    one 1 "fault-$fault" "$dataset" --fault "$fault"
done
for fault in no-expose no-content-range star-total no-head no-options gzip-info chunked slow shard-503-once; do
    one 0 "fault-$fault" "$dataset" --fault "$fault"
done
one 0 facade --server "$python facade_server.py $dataset" --unsharded-ok
FACADE_BUG=next one 1 facade-wrong-object --server "$python facade_server.py $dataset" --unsharded-ok
[ "$surprises" = 0 ]
