//! A written array is read back unchanged, chunks copied between files keep every byte, and a replacement is visible
//! completely or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cancelled;
use crate::common::{TempDir, data, json, sets, shuffled, xorshift};
use sharddb::{ErrorKind, Progress, VerifyLevel};
use sharddb_container::zarr::{
    IndexLocation, ShardUpdate, UpdateStrategy, ZarrArray, ZarrMetadata, ZarrShardWriter, ZarrWriter, copy,
};
use sharddb_container::{Container, Form};

fn array(path: &str) -> ZarrArray {
    ZarrArray::open(data(path)).unwrap()
}

fn chunks(array: &ZarrArray) -> BTreeMap<u64, Vec<u8>> {
    let key = |key: sharddb::Result<u64>| key.unwrap();
    array.keys().map(key).map(|key| (key, array.get(key, Form::Encoded).unwrap().unwrap().to_vec())).collect()
}

/// The content of every file below a directory, by its path.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn descend(directory: &Path, root: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                descend(&path, root, files)
            } else {
                drop(files.insert(path.strip_prefix(root).unwrap().to_path_buf(), fs::read(&path).unwrap()))
            }
        }
    }
    let mut found = BTreeMap::new();
    descend(directory, directory, &mut found);
    found
}

// ---- packing ----

/// Copies an array, and compares every file with the one that another program wrote.
#[track_caller]
fn assert_copied(source: &str, metadata: &ZarrMetadata, expected: &str) {
    let scratch = TempDir::new();
    let target = scratch.path().join("copy.zarr");
    copy(&array(source), &target, metadata, &Progress::new()).unwrap();
    let (mut found, mut wanted) = (files(&target), files(&data(expected)));
    let [found_json, wanted_json] =
        [&mut found, &mut wanted].map(|files| files.remove(Path::new("zarr.json")).unwrap());
    let parsed = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
    assert_eq!(parsed(&found_json), parsed(&wanted_json));
    assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    assert!(found == wanted, "the same bytes in every file");
}

#[test]
fn packing_resharding_and_unpacking_give_the_files_that_others_write() {
    let plain = array("zarr/unsharded.zarr").metadata().clone();
    let packed = plain.sharded(&[32, 64, 64], Some(IndexLocation::End)).unwrap();
    let resharded = packed.sharded(&[16, 32, 64], Some(IndexLocation::Start)).unwrap();
    assert_copied("zarr/unsharded.zarr", &packed, "zarr_pack/packed.zarr");
    assert_copied("zarr_pack/packed.zarr", &resharded, "zarr_pack/resharded.zarr");
    assert_copied("zarr/unsharded.zarr", &resharded, "zarr_pack/resharded.zarr");
    assert_copied("zarr_pack/packed.zarr", &packed.unsharded().unwrap(), "zarr/unsharded.zarr");
    assert_copied("zarr_pack/resharded.zarr", &packed, "zarr_pack/packed.zarr");
}

#[test]
fn every_array_survives_every_way_of_packing() {
    for directory in sets("zarr/arrays") {
        let source = ZarrArray::open(&directory).unwrap();
        let metadata = source.metadata();
        let doubled: Vec<u64> = metadata.chunk_shape().iter().map(|len| len * 2).collect();
        let nested = metadata.to_json().matches("sharding_indexed").count() > 1;
        let unsharded = metadata.unsharded();
        assert_eq!(unsharded.as_ref().err().map(|error| error.kind()), nested.then_some(ErrorKind::Unsupported));
        let sharded =
            [IndexLocation::Start, IndexLocation::End].map(|at| metadata.sharded(&doubled, Some(at)).unwrap());
        for way in unsharded.into_iter().chain(sharded) {
            let scratch = TempDir::new();
            let target = scratch.path().join("copy");
            let copied = copy(&source, &target, &way, &Progress::new()).unwrap();
            let copy = ZarrArray::open(&target).unwrap();
            assert_eq!(chunks(&copy), chunks(&source), "{}", directory.display());
            assert_eq!(copied as usize, chunks(&source).len());
            for key in chunks(&source).into_keys() {
                let decoded = |array: &ZarrArray| array.get(key, Form::Decoded).unwrap().unwrap().to_vec();
                assert_eq!(decoded(&copy), decoded(&source), "{} {key}", directory.display());
            }
            let report = copy.verify(VerifyLevel::Data).unwrap();
            assert!(report.is_clean() && report.notes() == 0, "{:?}", report.findings());
        }
    }
}

#[test]
fn a_copy_that_ends_early_leaves_nothing() {
    let scratch = TempDir::new();
    let target = scratch.path().join("copy.zarr");
    let source = array("zarr/unsharded.zarr");
    let packed = source.metadata().sharded(&[32, 64, 64], None).unwrap();
    assert_eq!(copy(&source, &target, &packed, &cancelled()).unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(files(scratch.path()).len(), 0);

    fs::write(&target, "in the way").unwrap();
    assert_eq!(copy(&source, &target, &packed, &Progress::new()).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(fs::read(&target).unwrap(), b"in the way");
}

#[test]
fn chunks_of_another_shape_or_other_codecs_are_not_the_same() {
    let scratch = TempDir::new();
    let source = array("zarr/unsharded.zarr");
    let text = source.metadata().to_json();
    for (from, to) in
        [("[8, 16, 16]", "[8, 16, 32]"), ("\"zstd\"", "\"gzip\""), ("\"fill_value\": 0", "\"fill_value\": 1")]
    {
        let compact = serde_json::to_string(&serde_json::from_str::<serde_json::Value>(text).unwrap()).unwrap();
        let (from, to) = (from.replace(", ", ",").replace(": ", ":"), to.replace(", ", ",").replace(": ", ":"));
        assert!(compact.contains(&from), "{from}");
        let other = ZarrMetadata::from_json(&compact.replace(&from, &to)).unwrap();
        let error = copy(&source, scratch.path().join("x"), &other, &Progress::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{to}");
    }
}

// ---- one shard ----

/// A (z, y, x) array of 16 bits: slices of 6 x 10, in shards of 4 x 4 x 8.
fn stack(chunk: [u64; 3], codecs: &str, location: &str) -> ZarrMetadata {
    ZarrMetadata::from_json(&format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": [7, 6, 10], "data_type": "uint16", "fill_value": 258,
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [4, 4, 8]}}}},
            "chunk_key_encoding": {{"name": "default"}},
            "codecs": [{{"name": "sharding_indexed", "configuration": {{
                "chunk_shape": {chunk:?}, "codecs": {codecs}, "index_location": "{location}",
                "index_codecs": [{{"name": "bytes", "configuration": {{"endian": "little"}}}}, {{"name": "crc32c"}}]
            }}}}]}}"#
    ))
    .unwrap()
}

const LITTLE: &str = r#"[{"name": "bytes", "configuration": {"endian": "little"}}]"#;
const BIG: &str = r#"[{"name": "bytes", "configuration": {"endian": "big"}}]"#;

fn element(z: u64, y: u64, x: u64) -> [u8; 2] {
    ((z * 100 + y * 10 + x) as u16 + 1000).to_le_bytes()
}

/// The elements of a part of the stack, in C order.
fn part(origin: [u64; 3], shape: [u64; 3]) -> Vec<u8> {
    let mut elements = Vec::new();
    for z in 0..shape[0] {
        for y in 0..shape[1] {
            for x in 0..shape[2] {
                elements.extend(element(origin[0] + z, origin[1] + y, origin[2] + x));
            }
        }
    }
    elements
}

/// Asserts every element inside the array, chunk by chunk.
fn assert_is_stack(array: &ZarrArray, slices: u64) {
    let chunk = array.metadata().chunk_shape().to_vec();
    for key in 0..array.metadata().chunk_grid().iter().product() {
        let cell = array.key_space().position_of(key).unwrap();
        let Some(elements) = array.get(key, Form::Decoded).unwrap() else {
            assert!(cell[0] * chunk[0] >= slices, "chunk {cell:?}");
            continue;
        };
        let mut elements = elements.chunks_exact(2);
        for z in 0..chunk[0] {
            for y in 0..chunk[1] {
                for x in 0..chunk[2] {
                    let at = [cell[0] * chunk[0] + z, cell[1] * chunk[1] + y, cell[2] * chunk[2] + x];
                    let within = at[0] < slices && at[1] < 6 && at[2] < 10;
                    let expected = if within { element(at[0], at[1], at[2]) } else { 258u16.to_le_bytes() };
                    assert_eq!(elements.next().unwrap(), expected, "{at:?}");
                }
            }
        }
    }
    assert!(array.verify(VerifyLevel::Data).unwrap().is_clean());
}

#[test]
fn a_stack_is_written_slice_by_slice_where_chunks_are_plain() {
    for (chunk, codecs) in [([4, 4, 8], LITTLE), ([2, 4, 4], BIG), ([1, 2, 2], LITTLE), ([4, 1, 8], LITTLE)] {
        for location in ["start", "end"] {
            let scratch = TempDir::new();
            let path = scratch.path().join("stack.zarr");
            let writer = ZarrWriter::create(&path, &stack(chunk, codecs, location)).unwrap();
            for (first_z, slabs) in [(0, 4), (4, 3)] {
                // one row of shards is open, 2 x 2 of them
                let mut shards: Vec<_> = (0..4).map(|at| writer.shard(first_z / 4 * 4 + at).unwrap()).collect();
                for z in first_z..first_z + slabs {
                    for (at, shard) in shards.iter_mut().enumerate() {
                        let (y, x) = (at as u64 / 2 * 4, at as u64 % 2 * 8);
                        let (origin, shape) = ([z, y, x], [1, (6 - y).min(4), (10 - x).min(8)]);
                        shard.write_part(&origin, &shape, &part(origin, shape)).unwrap();
                    }
                }
                shards.into_iter().for_each(|shard| shard.finish().unwrap());
            }
            writer.finish().unwrap();
            assert_is_stack(&ZarrArray::open(&path).unwrap(), 7);
        }
    }
}

#[test]
fn a_stack_of_compressed_slices_grows_slice_by_slice() {
    for strategy in UpdateStrategy::ALL {
        for (codec, location) in [("gzip", "end"), ("zstd", "start"), ("crc32c", "end"), ("blosc", "end")] {
            let codecs = LITTLE.replace(']', &format!(r#", {{"name": "{codec}"}}]"#));
            let scratch = TempDir::new();
            let path = scratch.path().join("stack.zarr");
            let metadata = stack([1, 4, 8], &codecs, location);
            ZarrWriter::create(&path, &metadata).unwrap().finish().unwrap();
            let mut before = Vec::new();
            for z in 0..7u64 {
                let array = ZarrArray::open(&path).unwrap();
                for shard in z / 4 * 4..z / 4 * 4 + 4 {
                    let mut update = ShardUpdate::new(&array, shard);
                    let (y, x) = (shard % 4 / 2, shard % 2);
                    let key = (z * 2 + y) * 2 + x;
                    let mut elements = Vec::new();
                    for at in 0..32 {
                        let at = [z, y * 4 + at / 8, x * 8 + at % 8];
                        let within = at[1] < 6 && at[2] < 10;
                        elements.extend(if within { element(at[0], at[1], at[2]) } else { 258u16.to_le_bytes() });
                    }
                    update.put(key, &metadata.encode_chunk(&elements).unwrap()).unwrap();
                    update.finish(strategy).unwrap();
                }
                // the array is complete after every slice
                assert_is_stack(&ZarrArray::open(&path).unwrap(), z + 1);
                let shard = fs::read(path.join("c/0/0/0")).unwrap();
                if strategy == UpdateStrategy::Appended && location == "end" {
                    assert!(shard.starts_with(&before), "what was written stays as it is");
                }
                before = shard;
            }
        }
    }
}

#[test]
fn a_part_must_fit_and_chunks_must_be_plain() {
    let scratch = TempDir::new();
    let mut shard = ZarrShardWriter::create(scratch.path(), &stack([2, 2, 4], LITTLE, "end"), 0).unwrap();
    let refused: [([u64; 3], [u64; 3], usize); 5] = [
        ([4, 0, 0], [1, 4, 8], 64),              // of another shard
        ([0, 0, 0], [1, 4, 9], 72),              // reaches into the next shard
        ([0, 0, 0], [1, 4, 8], 63),              // too few bytes
        ([u64::MAX, 0, 0], [2, 1, 1], 4),        // origin + shape overflows
        ([0, 0, 0], [u64::MAX, u64::MAX, 1], 0), // the product of the shape overflows
    ];
    for (origin, shape, len) in refused {
        let error = shard.write_part(&origin, &shape, &vec![0; len]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{origin:?} {shape:?}");
    }
    let gzip = LITTLE.replace(']', r#", "gzip"]"#);
    let mut shard = ZarrShardWriter::create(scratch.path(), &stack([2, 2, 4], &gzip, "end"), 0).unwrap();
    let error = shard.write_part(&[0, 0, 0], &[1, 4, 8], &[0; 64]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_shard_takes_every_chunk_once_and_no_other() {
    let scratch = TempDir::new();
    let metadata = stack([2, 2, 4], LITTLE, "end"); // the grid is 4 x 3 x 3
    let mut shard = ZarrShardWriter::create(scratch.path(), &metadata, 0).unwrap();
    shard.put(4, &[1; 32]).unwrap();
    assert_eq!(shard.put(4, &[2; 32]).unwrap_err().kind(), ErrorKind::DuplicateKey);
    assert_eq!(shard.put(2, &[1; 32]).unwrap_err().kind(), ErrorKind::OutOfOrder, "of shard 1");
    assert_eq!(shard.put(36, &[1; 32]).unwrap_err().kind(), ErrorKind::InvalidInput, "no such chunk");
    assert_eq!(shard.put(0, &[1; 31]).unwrap_err().kind(), ErrorKind::InvalidInput, "plain chunks have 32 bytes");
    assert_eq!(shard.put(0, &[]).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(ZarrShardWriter::create(scratch.path(), &metadata, 8).err().unwrap().kind(), ErrorKind::InvalidInput);
    drop(shard);
    assert_eq!(files(scratch.path()).len(), 0, "dropped, nothing is left");
}

#[test]
fn a_shard_without_chunks_has_no_file() {
    let scratch = TempDir::new();
    let metadata = stack([2, 2, 4], LITTLE, "start");
    fs::write(scratch.path().join("zarr.json"), metadata.to_json()).unwrap();
    let mut shard = ZarrShardWriter::create(scratch.path(), &metadata, 0).unwrap();
    shard.put(0, &[1; 32]).unwrap();
    shard.finish().unwrap();
    assert!(scratch.path().join("c/0/0/0").exists());
    ZarrShardWriter::create(scratch.path(), &metadata, 0).unwrap().finish().unwrap();
    assert!(!scratch.path().join("c/0/0/0").exists());
}

// ---- updates ----

/// Random changes compared with a map, under every strategy.
#[test]
fn updates_agree_with_a_model() {
    let gzip = LITTLE.replace(']', r#", "gzip"]"#);
    for (codecs, location) in [(LITTLE, "end"), (LITTLE, "start"), (gzip.as_str(), "end"), (gzip.as_str(), "start")] {
        let metadata = stack([1, 2, 4], codecs, location); // the grid is 7 x 3 x 3, shard 0 has 4 x 2 x 2 of it
        let keys: Vec<u64> = (0..4).flat_map(|z| [0, 1, 3, 4].map(|at| z * 9 + at)).collect();
        for strategy in UpdateStrategy::ALL {
            let mut random = xorshift(strategy as u64 + 1);
            let scratch = TempDir::new();
            fs::write(scratch.path().join("zarr.json"), metadata.to_json()).unwrap();
            let mut model = BTreeMap::new();
            for round in 0..30 {
                let array = ZarrArray::open(scratch.path()).unwrap();
                let mut update = ShardUpdate::new(&array, 0);
                for key in shuffled(keys.clone(), random()).into_iter().take((random() % 5) as usize) {
                    if random().is_multiple_of(4) {
                        update.remove(key).unwrap();
                        model.remove(&key);
                    } else {
                        let noisy = random() % 16;
                        let elements: Vec<u8> = (0..16).map(|at| if at < noisy { random() as u8 } else { 0 }).collect();
                        let encoded = metadata.encode_chunk(&elements).unwrap();
                        update.put(key, &encoded).unwrap();
                        model.insert(key, encoded);
                    }
                }
                update.finish(strategy).unwrap();
                let after = ZarrArray::open(scratch.path()).unwrap();
                assert_eq!(chunks(&after), model, "{strategy:?} {location} round {round}");
                assert!(after.verify(VerifyLevel::Data).unwrap().is_clean());
                assert_eq!(scratch.path().join("c/0/0/0").exists(), !model.is_empty());
            }
        }
    }
}

#[test]
fn each_strategy_lays_the_file_as_it_says() {
    let update = |strategy, chunk: &[u8]| {
        let scratch = TempDir::new();
        let metadata = stack([1, 4, 8], &LITTLE.replace(']', r#", "gzip"]"#), "end");
        fs::write(scratch.path().join("zarr.json"), metadata.to_json()).unwrap();
        let mut shard = ZarrShardWriter::create(scratch.path(), &metadata, 0).unwrap();
        for key in [4, 0, 8] {
            shard.put(key, &[key as u8; 10]).unwrap();
        }
        shard.finish().unwrap();
        let array = ZarrArray::open(scratch.path()).unwrap();
        let mut update = ShardUpdate::new(&array, 0);
        update.put(0, chunk).unwrap();
        update.finish(strategy).unwrap();
        let array = ZarrArray::open(scratch.path()).unwrap();
        let places = [0, 4, 8].map(|key| array.locate(key).unwrap().unwrap().range.start);
        (places, fs::metadata(scratch.path().join("c/0/0/0")).unwrap().len())
    };
    const INDEX: u64 = 4 * 16 + 4;
    // chunks 4, 0, 8 are stored in this order, 10 bytes each
    assert_eq!(update(UpdateStrategy::Patched, &[7; 10]), ([10, 0, 20], 30 + INDEX), "in its place");
    assert_eq!(update(UpdateStrategy::Patched, &[7; 3]), ([10, 0, 20], 30 + INDEX), "in its place, followed by a gap");
    assert_eq!(update(UpdateStrategy::Patched, &[7; 11]), ([30, 0, 20], 41 + INDEX), "after all others");
    assert_eq!(
        update(UpdateStrategy::Appended, &[7; 3]),
        ([30 + INDEX, 0, 20], 33 + 2 * INDEX),
        "behind the old index"
    );
    assert_eq!(update(UpdateStrategy::Rewritten, &[7; 3]), ([0, 3, 13], 23 + INDEX), "in order");
}

#[test]
fn a_patched_chunk_does_not_write_over_one_that_shares_its_bytes() {
    let scratch = TempDir::new();
    for (path, bytes) in files(&data("zarr/arrays/hm_shared_extents.zarr")) {
        let path = scratch.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let array = ZarrArray::open(scratch.path()).unwrap();
    let mut expected = chunks(&array);
    for key in [0, 1, 3, 4] {
        let mut update = ShardUpdate::new(&array, 0);
        let chunk = vec![key as u8; 16 * 16 * 4];
        update.put(key, &chunk).unwrap();
        update.finish(UpdateStrategy::Patched).unwrap();
        expected.insert(key, chunk);
        assert_eq!(chunks(&ZarrArray::open(scratch.path()).unwrap()), expected, "{key}");
    }
}

#[test]
fn a_broken_shard_is_not_updated() {
    let scratch = TempDir::new();
    let broken = files(&data("zarr/negative/neg_sum_overflows.zarr"));
    for (path, bytes) in &broken {
        let path = scratch.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let array = ZarrArray::open(scratch.path()).unwrap();
    for strategy in UpdateStrategy::ALL {
        let mut update = ShardUpdate::new(&array, 0);
        update.put(1, &[7; 64]).unwrap();
        assert_eq!(update.finish(strategy).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(files(scratch.path()), broken);
    }
}

#[test]
fn what_was_encoded_decodes_to_the_same_in_every_codec() {
    for directory in sets("zarr/arrays") {
        let array = ZarrArray::open(&directory).unwrap();
        let codecs = json(&directory.join("zarr.json"))["codecs"].to_string();
        if codecs.matches("sharding_indexed").count() > 1 {
            continue; // nested
        }
        let scratch = TempDir::new();
        fs::write(scratch.path().join("zarr.json"), array.metadata().to_json()).unwrap();
        for key in chunks(&array).into_keys() {
            let decoded = array.get(key, Form::Decoded).unwrap().unwrap();
            let encoded = array.metadata().encode_chunk(&decoded).unwrap();
            let copy = ZarrArray::open(scratch.path()).unwrap();
            let shard = ZarrWriter::create(scratch.path().join("x"), array.metadata()).unwrap().shard_of(key).unwrap();
            let mut update = ShardUpdate::new(&copy, shard);
            update.put(key, &encoded).unwrap();
            update.finish(UpdateStrategy::Appended).unwrap();
            let copy = ZarrArray::open(scratch.path()).unwrap();
            assert_eq!(copy.get(key, Form::Decoded).unwrap().unwrap(), decoded, "{} {key}", directory.display());
        }
    }
}
