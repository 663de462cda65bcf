#!/usr/bin/env bash
# Proves that the targets find bugs: in a copy of the sources, one check is removed at a time, and its target must find
# the bug within a minute:
#
#   fuzz/planted.sh [TARGET...]
#
# The copy is fuzz/work/planted/tree; fuzz/run.sh rebuilds the original targets. Exit: 1 if a bug was not found or can
# no longer be planted.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=60
copy=$PWD/fuzz/work/planted/tree
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=$PWD/fuzz/target # it already has the dependencies
wanted=" ${*:-} "

rm -rf "$copy"
mkdir -p "$copy"
git ls-files -z -- ':!tests/data' ':!tests/it' ':!crates/container/tests' ':!docs' ':!fuzz/corpus' | xargs -0 cp --parents -t "$copy"
fuzz/unpack.sh
cargo run --quiet --manifest-path fuzz/Cargo.toml --example seeds -- fuzz/work/data fuzz/work/seeds

passed=0
failed=0

plant() { # TARGET FILE WHAT-IS-THERE WHAT-IS-PUT: the bug is in the difference
    local target=$1 file=$2 from=$3 to=$4 sound begun
    [ "$wanted" = '  ' ] || [[ $wanted == *" $target "* ]] || return 0
    sound=$(<"$copy/$file")
    if [[ $sound != *"$from"* ]]; then
        echo "$target: expected to find this in $file, plant the bug anew: $from"
        failed=$((failed + 1))
        return 0
    fi
    printf '%s\n' "${sound/"$from"/"$to"}" >"$copy/$file"
    (cd "$copy/fuzz" && cargo +nightly fuzz build --fuzz-dir . "$target" 2>"../../$target.build")
    mkdir -p "fuzz/work/committed/$target" "fuzz/work/seeds/$target" "fuzz/work/planted/found"
    begun=$SECONDS
    if "$CARGO_TARGET_DIR/$host/release/$target" "$(mktemp -d -p fuzz/work/planted)" "fuzz/work/committed/$target" \
        "fuzz/work/seeds/$target" -artifact_prefix=fuzz/work/planted/found/ -max_total_time=$seconds -max_len=4096 \
        -timeout=30 -use_value_profile=1 >"fuzz/work/planted/$target.log" 2>&1; then
        echo "$target: NOT FOUND within $seconds s: $file without \`$from\`"
        failed=$((failed + 1))
    else
        echo "$target: found after $((SECONDS - begun)) s: $file without \`$from\`"
        passed=$((passed + 1))
    fi
    printf '%s\n' "$sound" >"$copy/$file"
}

plant spec_json crates/format/src/spec.rs '64 - minishard_bits)?' '64)?'
plant info_json crates/format/src/info.rs 'name.filter(below)' 'name.filter(|name| below(name) || true)'
plant shard_index crates/format/src/byte_range.rs 'start <= end && end <= file_len' 'start <= end'
plant minishard_index crates/format/src/minishard_index.rs 'if bytes.len().is_multiple_of(24)' 'if true'
plant minishard_index crates/format/src/minishard_index.rs 'numbers.or_of_all() < 1 << 58' 'true'
plant whole_shard crates/format/src/byte_range.rs 'start <= end && end <= file_len' 'end <= file_len'
plant differential crates/format/src/byte_range.rs 'self.start <= self.end && i64' 'i64'
plant directory crates/format/src/minishard_table.rs 'if place.crc32(stated) != u32::from_le_bytes(*crc32) {' 'if false {'
plant directory crates/format/src/manifest.rs 'if found != expected.as_bytes() {' 'if found.len() != expected.len() {'
plant directory crates/format/src/key_file.rs 'Some(stated) if stated == found => Ok(()),' 'Some(_) => Ok(()),'
plant loader src/write/shard_file.rs 'u64::from(self.after_empty && empty' 'u64::from(false && empty'
plant loader src/write/memory_pairs.rs 'let batch = self.pairs.number_of(entry.source)?;' \
    'let batch = if header.large.is_some() { u64::MAX } else { self.pairs.number_of(entry.source)? };'
plant inputs cli/src/input/binary.rs 'if found < expected {' 'if false {'
plant zarr crates/container/src/zarr/shard_index.rs 'if end <= shard_len && self.nbytes > 0' 'if self.nbytes > 0'
plant bcolz crates/container/src/bcolz/array.rs 'if found == expected || may_be_longer {' 'if found <= expected || may_be_longer {'
plant blosc crates/container/src/blosc/mod.rs 'if u64::from(header.nbytes()) > max_bytes {' 'if u64::from(header.nbytes()) / 2 > max_bytes {'

rm -rf /dev/shm/sharddb-fuzz-*
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
