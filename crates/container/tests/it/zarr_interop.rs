//! Writes arrays and volumes in every way, to be read by zarr-python and TensorStore. `scripts/interop.sh` runs this
//! module, and `scripts/check_zarr.py` compares.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{data, name, new_directory, sets};
use serde_json::json;
use sharddb::Progress;
use sharddb_container::zarr::{
    IndexLocation, PrecomputedOptions, ShardUpdate, UpdateStrategy, ZarrArray, ZarrMetadata, ZarrWriter, copy, rechunk,
};

/// The directory of the data sets for other readers, newly created.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        Place(new_directory("zarr"))
    }

    /// The directory of a set; `what` says how it is checked.
    fn set(&self, name: &str, what: serde_json::Value) -> PathBuf {
        let directory = self.0.join(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("check.json"), what.to_string()).unwrap();
        directory.join("set")
    }
}

#[test]
#[ignore = "for scripts/interop.sh"]
fn writes_data_sets_for_other_readers() {
    let place = Place::new();
    for directory in sets("zarr/arrays") {
        repacked(&place, &directory);
    }
    for volume in sets("zarr/precomputed") {
        let source = data(&format!("zarr/arrays/{}.zarr", name(&volume)));
        let what = json!({"kind": "volume", "like": source.to_str().unwrap()});
        let target = place.set(&format!("volume-{}", name(&volume)), what);
        let mut options = PrecomputedOptions::new();
        options.resolution([8.0, 8.0, 40.0]);
        options.convert(&ZarrArray::open(&source).unwrap(), "zyx", target).unwrap();
    }
    for location in ["start", "end"] {
        for endian in ["little", "big"] {
            by_parts(&place, location, endian);
        }
        for codec in ["crc32c", "gzip", "zstd", "blosc"] {
            for strategy in UpdateStrategy::ALL {
                by_updates(&place, location, codec, strategy);
            }
        }
    }
}

/// The same chunks in other files, and rechunked copies.
fn repacked(place: &Place, directory: &Path) {
    let source = ZarrArray::open(directory).unwrap();
    let metadata = source.metadata();
    let doubled: Vec<u64> = metadata.chunk_shape().iter().map(|len| len * 2).collect();
    // slices along the first axis
    let first: Vec<u64> = doubled.iter().enumerate().map(|(axis, len)| if axis == 0 { 1 } else { *len }).collect();
    let ways = [
        ("unpacked", metadata.unsharded()),
        ("start", metadata.sharded(&doubled, Some(IndexLocation::Start))),
        ("end", metadata.sharded(&doubled, Some(IndexLocation::End))),
    ];
    for (way, metadata) in ways {
        let Ok(metadata) = metadata else { continue }; // nested
        let what = json!({"kind": "array", "like": directory.to_str().unwrap()});
        let target = place.set(&format!("{way}-{}", name(directory)), what);
        copy(&source, target, &metadata, &Progress::new()).unwrap();
    }
    let odd: Vec<u64> = metadata.chunk_shape().iter().map(|len| len + 3).collect();
    for (way, chunk, shard) in
        [("cut-odd", &odd, &odd), ("cut-larger", &doubled, &doubled), ("cut-first", &first, &doubled)]
    {
        let Ok(metadata) = metadata.rechunked(chunk, shard, None) else { continue }; // nested
        let what = json!({"kind": "array", "like": directory.to_str().unwrap()});
        let target = place.set(&format!("{way}-{}", name(directory)), what);
        rechunk(&source, target, &metadata, &Progress::new()).unwrap();
    }
}

const SHAPE: [u64; 3] = [7, 6, 10];

fn stack(chunk: [u64; 3], codecs: &str, location: &str) -> ZarrMetadata {
    ZarrMetadata::from_json(&format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": {SHAPE:?}, "data_type": "uint16", "fill_value": 258,
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [4, 4, 8]}}}},
            "chunk_key_encoding": {{"name": "default", "configuration": {{"separator": "."}}}}, "attributes": {{}},
            "codecs": [{{"name": "sharding_indexed", "configuration": {{
                "chunk_shape": {chunk:?}, "codecs": [{codecs}], "index_location": "{location}",
                "index_codecs": [{{"name": "bytes", "configuration": {{"endian": "little"}}}}, {{"name": "crc32c"}}]
            }}}}]}}"#
    ))
    .unwrap()
}

/// The value that `check_zarr.py` expects at a position.
fn element(at: [u64; 3]) -> [u8; 2] {
    ((at[0] * 100 + at[1] * 10 + at[2]) as u16 + 1000).to_le_bytes()
}

/// The elements of a box, with fill values outside of the array.
fn elements(origin: [u64; 3], shape: [u64; 3]) -> Vec<u8> {
    let mut elements = Vec::new();
    for number in 0..shape.iter().product() {
        let at = [
            origin[0] + number / (shape[1] * shape[2]),
            origin[1] + number / shape[2] % shape[1],
            origin[2] + number % shape[2],
        ];
        let within = at.iter().zip(SHAPE).all(|(at, len)| *at < len);
        elements.extend(if within { element(at) } else { 258u16.to_le_bytes() });
    }
    elements
}

/// Slice by slice, into chunks of several slices.
fn by_parts(place: &Place, location: &str, endian: &str) {
    let codecs = format!(r#"{{"name": "bytes", "configuration": {{"endian": "{endian}"}}}}"#);
    let target = place.set(&format!("parts-{location}-{endian}"), json!({"kind": "stack"}));
    let writer = ZarrWriter::create(target, &stack([2, 4, 4], &codecs, location)).unwrap();
    for slab in [0, 4] {
        let mut shards: Vec<_> = (0..4).map(|at| writer.shard(slab + at).unwrap()).collect();
        for z in slab..(slab + 4).min(SHAPE[0]) {
            for (shard, [y, x]) in shards.iter_mut().zip([[0, 0], [0, 8], [4, 0], [4, 8]]) {
                let (origin, shape) = ([z, y, x], [1, (SHAPE[1] - y).min(4), (SHAPE[2] - x).min(8)]);
                shard.write_part(&origin, &shape, &elements(origin, shape)).unwrap();
            }
        }
        shards.into_iter().for_each(|shard| shard.finish().unwrap());
    }
    writer.finish().unwrap();
}

/// Slice by slice, into chunks of one slice, each written twice.
fn by_updates(place: &Place, location: &str, codec: &str, strategy: UpdateStrategy) {
    let configuration = match codec {
        "gzip" => r#", "configuration": {"level": 1}"#,
        "zstd" => r#", "configuration": {"level": 0, "checksum": false}"#,
        "blosc" => {
            r#", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 2, "blocksize": 0}"#
        }
        _ => "",
    };
    let codecs = format!(
        r#"{{"name": "bytes", "configuration": {{"endian": "little"}}}}, {{"name": "{codec}"{configuration}}}"#
    );
    let metadata = stack([1, 4, 8], &codecs, location);
    let target = place.set(&format!("updates-{location}-{codec}-{}", strategy.as_str()), json!({"kind": "stack"}));
    ZarrWriter::create(&target, &metadata).unwrap().finish().unwrap();
    for z in 0..SHAPE[0] {
        for cell in [[z, 0, 0], [z, 0, 1], [z, 1, 0], [z, 1, 1]] {
            let key = (cell[0] * 2 + cell[1]) * 2 + cell[2];
            let chunk = elements([z, cell[1] * 4, cell[2] * 8], [1, 4, 8]);
            for chunk in [vec![7; chunk.len()], chunk] {
                let array = ZarrArray::open(&target).unwrap();
                let mut update = ShardUpdate::new(&array, metadata.shard_of(key).unwrap());
                update.put(key, &metadata.encode_chunk(&chunk).unwrap()).unwrap();
                update.finish(strategy).unwrap();
            }
        }
    }
}
