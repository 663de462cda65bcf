#!/usr/bin/env bash
# Builds stores, serves them with `sharddb serve`, and checks its page in headless Chromium.
#
# usage: scripts/page.sh CHECK_DIR [OPTION..]
#
# CHECK_DIR   pagecheck/ or a copy of it, in which setup.sh has run
# OPTION      of check.mjs: --out DIR, --pictures DIR, --only WORD, -v
#
# SHARDDB     the command; default: its release build with all features
#
# Also runs the tests of the page's decoders. The last line is `N passed, N failed`. Exit: 0 if none failed, 1 if one failed,
# 2 if the checks could not run.
set -euo pipefail
if [ $# -lt 1 ]; then
    sed -n '4,7s/^# //p' "$0" >&2
    exit 2
fi
check=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
if [ -z "${SHARDDB-}" ]; then
    cargo build --quiet --release --package sharddb-cli --all-features
    SHARDDB=$target/release/sharddb
fi
sharddb=$(realpath "$SHARDDB")
work=$(realpath "$(mktemp -d "$target/page.XXXXXX")")
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
data=$work/data
mkdir -p "$data"

# Runs a program, which is killed after the given number of seconds; what it printed is above.
limited() { # SECONDS COMMAND..
    local code=0
    timeout --kill-after=10 "$@" || code=$?
    [ "$code" = 0 ] || echo "exit code $code (124: killed after $1 s): ${*:2}" >&2
    return "$code"
}

arrays=$work/arrays
mkdir "$arrays"
for set in bcolz zarr; do
    mkdir "$arrays/$set"
    tar --extract --gzip --file "crates/container/tests/data/$set.tar.gz" --directory "$arrays/$set"
done

ROOT=$PWD ARRAYS=$arrays limited 300 node --test --test-reporter=spec "$check/decoders.test.mjs"

build() { # STORE OPTION..
    limited 300 "$sharddb" build "$@" --quiet
}
sharding='{"@type": "neuroglancer_uint64_sharded_v1", "hash": "murmurhash3_x86_128", "preshift_bits": 0, "minishard_bits": 4, "shard_bits": 6}'

# two generations: the first has 4,000 cities, one of them with another value
head -n 4000 examples/geonames-cities.ndjson | sed 's/^{"key":53654,.*/{"key":53654,"value":{"name":"as it was"}}/' >"$work/first.ndjson"
build "$data/cities" --input "$work/first.ndjson" --sharding "$sharding"
build "$data/cities" --input examples/geonames-cities.ndjson --sharding "$sharding"

node "$check/values.mjs" "$work/values"
build "$data/pictures" --input "$work/values/pictures"
build "$data/meshes" --input "$work/values/meshes" --kind mesh
mkdir "$data/odd #1 100% é"
build "$data/odd #1 100% é/x" --input "$work/values/pictures"
build "$data/empty" --input /dev/null --format ndjson
cp -r tests/data/neuroglancer "$data/fly"
cp -r "$arrays/zarr/unsharded.zarr" "$data/array.zarr"
cp -r "$arrays/zarr/arrays/rs_2d_f32_blosc.zarr" "$data/plane.zarr"
cp -r "$arrays/bcolz/bz_f4_bigendian" "$data/column"
cp -r "$arrays/bcolz/bz_S5" "$data/words"

# a value of 34 MB that is stored in few bytes
mkdir "$work/large"
head -c 34000000 /dev/zero >"$work/large/7"
build "$data/large" --input "$work/large" --sharding "${sharding%\}}, \"data_encoding\": \"gzip\"}"

# 16 minishards with 5 to 30 keys: check.mjs has the same numbers
minishard=0
for keys in 5 6 6 7 9 9 9 12 15 20 20 22 25 29 30 30; do
    seq -f '{"key": %.0f, "text": "x"}' "$minishard" 16 $((minishard + 16 * (keys - 1)))
    minishard=$((minishard + 1))
done >"$work/sparse.ndjson"
build "$data/sparse" --input "$work/sparse.ndjson" --sharding \
    '{"@type": "neuroglancer_uint64_sharded_v1", "hash": "identity", "preshift_bits": 0, "minishard_bits": 4, "shard_bits": 0}'

# one byte of a value is changed
build "$data/damaged" --input examples/geonames-cities.ndjson
location=$(limited 300 "$sharddb" locate "$data/damaged" 53654)
file=$(sed 's/.*"file":"\([^"]*\)".*/\1/' <<<"$location") offset=$(sed 's/.*"offset":\([0-9]*\).*/\1/' <<<"$location")
chmod u+w "$file"
printf '\377' | dd of="$file" bs=1 seek="$offset" conv=notrunc status=none

# a store whose current generation has no manifest
build "$data/unreadable" --input examples/geonames-cities.ndjson
chmod u+w "$data"/unreadable/gen-*
echo '{}' >"$work/manifest.json"
cp -f "$work/manifest.json" "$data"/unreadable/gen-*/manifest.json

limited 1800 node "$check/check.mjs" --sharddb "$sharddb" --data "$data" --root "$PWD" "$@"
