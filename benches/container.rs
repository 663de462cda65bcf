//! The same chunks of 16^3 bytes as a Zarr array in shards and as a store, both mapped and warm, read in random order.

mod common;

use std::path::Path;

use criterion::{Criterion, Throughput};
use sharddb::{BulkLoader, Result, ShardDb};
use sharddb_container::zarr::{ZarrArray, ZarrMetadata, ZarrWriter};
use sharddb_container::{Container, ContainerOptions, Form};

use common::{Scratch, head, scramble};

/// Chunks along each axis of the array, and of a shard.
const GRID: u64 = 24;
const SHARD: u64 = 8;
const CHUNKS: u64 = GRID * GRID * GRID;
const CHUNK_LEN: usize = 16 * 16 * 16;

fn main() -> Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    let scratch = Scratch::new("container");
    let (array, store) = (scratch.path().join("array.zarr"), scratch.path().join("store"));
    write_both(&array, &store)?;

    let mut options = ContainerOptions::new();
    // SAFETY: only this benchmark uses the files, and it does not edit them while they are mapped.
    #[expect(unsafe_code, reason = "mapping is the caller's promise to leave the files alone")]
    let (array, db) = unsafe { (ZarrArray::open_with(&array, options.map())?, ShardDb::open_mapped(&store)?) };
    let snapshot = db.snapshot();
    let mut keys: Vec<u64> = (0..CHUNKS).collect();
    keys.sort_by_key(|key| scramble(*key));
    let expected = keys.iter().fold(0u64, |sum, key| sum.wrapping_add(scramble(*key)));

    let mut group = criterion.benchmark_group("container");
    group.throughput(Throughput::Elements(CHUNKS));
    let containers: [(&str, &dyn Container); 2] = [("store", &snapshot), ("zarr", &array)];
    for (name, container) in containers {
        group.bench_function(format!("get, {name}"), |bencher| {
            bencher.iter(|| assert_eq!(sum(container, &keys).ok(), Some(expected)));
        });
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}

fn sum(container: &dyn Container, keys: &[u64]) -> Result<u64> {
    keys.iter().try_fold(0u64, |sum, key| {
        let chunk = container.get(*key, Form::Encoded)?;
        Ok(sum.wrapping_add(chunk.as_deref().map_or(0, head)))
    })
}

fn write_both(array: &Path, store: &Path) -> Result<()> {
    let metadata = ZarrMetadata::from_json(&format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": [{0}, {0}, {0}], "data_type": "uint8", "fill_value": 0,
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [16, 16, 16]}}}},
            "chunk_key_encoding": "default", "codecs": ["bytes"]}}"#,
        GRID * 16
    ))?;
    let writer = ZarrWriter::create(array, &metadata.sharded(&[SHARD * 16; 3], None)?)?;
    let mut loader = BulkLoader::create(store)?;
    let mut by_shard: Vec<(u64, u64)> = (0..CHUNKS).filter_map(|key| Some((writer.shard_of(key)?, key))).collect();
    by_shard.sort_unstable();
    for keys in by_shard.chunk_by(|left, right| left.0 == right.0) {
        let Some((number, _)) = keys.first() else { continue };
        let mut shard = writer.shard(*number)?;
        for (_, key) in keys {
            let mut chunk = vec![0x5a; CHUNK_LEN];
            chunk[..8].copy_from_slice(&scramble(*key).to_le_bytes());
            shard.put(*key, &chunk)?;
            loader.insert(*key, &chunk)?;
        }
        shard.finish()?;
    }
    writer.finish()?;
    loader.finish().map(drop)
}
