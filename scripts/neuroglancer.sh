#!/usr/bin/env bash
# Rebuilds a sharded data set with ShardDb and checks in a browser that Neuroglancer draws it.
#
# usage: scripts/neuroglancer.sh DATASET CHECK_DIR
#
# DATASET     a precomputed data set with its expectations (ng_expect.json): tests/data/neuroglancer
# CHECK_DIR   a copy of ngcheck/ in which setup.sh has run
#
# SHARDDB     the command; default: its release build with all features
#
# Neuroglancer draws, from a server of the check, the data set unchanged, rebuilt with the same specifications, and with
# stores of its skeletons and meshes, built as the README says; and from `sharddb serve`, the data set unchanged and rebuilt
# with the specifications that the profiles remote and local plan: its files, and one URL per object. A damaged copy must not be
# drawn, because a chunk of it cannot be loaded. The last line is `N passed, N failed`. Exit: 0 if none failed, else 1.
set -euo pipefail
if [ $# -ne 2 ]; then
    sed -n '4,7s/^# //p' "$0" >&2
    exit 2
fi
dataset=$(cd "$1" && pwd) check=$(cd "$2" && pwd)
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
if [ -z "${SHARDDB-}" ]; then
    cargo build --quiet --release --package sharddb-cli --all-features
    SHARDDB=$target/release/sharddb
fi
work=$(mktemp -d "$target/neuroglancer.XXXXXX")
trap 'rm -rf "$work"' EXIT

passed=0 failed=0
count() { # COMMAND..
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}
draw() { # NAME DATASET|OPTION..
    local code=0
    echo "== $1"
    timeout --kill-after=10 1200 node "$check/run_ng_check.mjs" "${@:2}" --out "$work/shots-$1" || code=$?
    [ "$code" -lt 124 ] || echo "killed after 1200 s"
    return "$code"
}
# Draws the files that `sharddb serve` serves, then the objects of the same data set.
draw_served() { # NAME DATASET
    draw "$1-served" --server "$sharddb serve $2 --quiet" &&
        draw "$1-objects" --server "$sharddb serve $2 --quiet" --objects --unsharded-ok
}
does_not_draw() {
    local code=0
    draw "$@" >"$work/log" 2>&1 || code=$?
    sed 's/^/    expected: /' "$work/log"
    [ "$code" = 1 ] && grep -q 'client says: Error retrieving chunk' "$work/log" # 2: could not run
}
rebuild() { # NAME [OPTION..]
    scripts/rebuild_sharded.py --sharddb "$sharddb" "${@:2}" "$dataset" "$work/$1"
}

sharddb=$(realpath "$SHARDDB")
count draw original "$dataset"
count draw_served original "$dataset"
rebuild same-specification
count draw same-specification "$work/same-specification"
for profile in remote local; do
    rebuild "$profile" --profile "$profile"
    count draw_served "$profile" "$work/$profile"
done

# skeletons of which only the values are given, with a radius and a type for each vertex: the command writes the info
"$sharddb" export "$dataset/seg/skeletons" --format dir --output "$work/byfile"
for file in "$work"/byfile/*; do
    head -c $((5 * $(od -An -tu4 -N4 "$file"))) /dev/zero >>"$file"
done
cp -r "$dataset" "$work/described"
seg=$work/described/seg
rm -r "$seg/skeletons" "$seg/mesh"
"$sharddb" build "$seg/skeletons" --input "$work/byfile" --kind skeletons --profile remote
# as the README says: stores, and current generations in the info of the layer
"$sharddb" export "$dataset/seg/mesh" --format dir --output "$work/meshes"
python3 - "$dataset/seg" "$work/meshes" "$seg" <<'END'
import json, sys
dataset, meshes, seg = sys.argv[1:]
info = json.load(open(f"{dataset}/mesh/info"))
del info["sharding"]
json.dump(info, open(f"{meshes}/info", "w"))
layer = json.load(open(f"{dataset}/info")) | {"skeletons": "skeletons/current", "mesh": "mesh/current"}
json.dump(layer, open(f"{seg}/info", "w"))
END
"$sharddb" build "$seg/mesh" --input "$work/meshes" --info "$work/meshes/info" --kind multires-mesh --profile remote
count draw described "$work/described" --scene skeletons --scene mesh
count draw described-served --server "$sharddb serve $work/described --quiet" --scene skeletons --scene mesh

shard=$work/local/image/s0/0.shard
chmod u+w "$shard"
truncate --size 4096 "$shard"
count does_not_draw damaged "$work/local" --scene image

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
