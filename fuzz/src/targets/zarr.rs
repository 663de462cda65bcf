//! Arbitrary text as `zarr.json` and arbitrary bytes as the first shards: every call returns, what verifies is
//! readable, and a chunk is the range that a naive reader finds in the index.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::container;
use crate::naive_zarr::{self, Sharding};
use sharddb::ErrorKind;
use sharddb_container::zarr::{ZarrArray, ZarrMetadata};
use sharddb_container::{Container, Form};

/// The bit of an input's first byte that loads all files into memory.
const IN_MEMORY: u8 = 1;

fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| crate::scratch::directory("zarr"))
}

/// Writes the metadata, and the shards with the lowest numbers.
fn write_array(text: &str, metadata: &ZarrMetadata, shards: &[&[u8]]) {
    let _ = fs::remove_dir_all(root());
    fs::create_dir_all(root()).unwrap();
    fs::write(root().join("zarr.json"), text).unwrap();
    let grid = naive_zarr::cells(metadata.shape(), metadata.shard_shape());
    for (number, bytes) in (0..).zip(shards) {
        let Some(position) = naive_zarr::position(&grid, number) else { return };
        let Some(path) = naive_zarr::path(text, &position) else { return };
        let path = root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// Asserts that every chunk has the bytes that the index names, for indexes that the naive reader supports.
fn agrees_with_naive(array: &ZarrArray, sharding: &Sharding, shards: &[&[u8]]) {
    let metadata = array.metadata();
    let grid = metadata.chunk_grid();
    for key in 0..naive_zarr::count(&grid).min(256) {
        let position = naive_zarr::position(&grid, key).expect("a key of the grid");
        let (shard, entry) = naive_zarr::place(metadata, &position);
        let Some(bytes) = shards.get(shard as usize) else { continue };
        let expected = sharding.chunk(bytes, entry);
        match array.get(key, Form::Encoded) {
            Ok(None) => assert_eq!(expected, Ok(None), "key {key} is not there"),
            Ok(Some(found)) => assert_eq!(expected, Ok(Some(&found[..])), "key {key}"),
            Err(error) => {
                let may_be_odd = sharding.crc32c || sharding.fixed_len;
                assert!(may_be_odd || expected.is_err(), "key {key}: {error}");
            }
        }
    }
}

/// Runs the target on an input.
pub fn run(input: &[u8]) {
    let Some((how, files)) = input.split_first() else { return };
    let files = container::split(files);
    let Some((text, shards)) = files.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let metadata = match ZarrMetadata::from_json(text) {
        Ok(metadata) => metadata,
        Err(error) => {
            let is_refused = matches!(error.kind(), ErrorKind::InvalidSpec | ErrorKind::Unsupported);
            let is_group = error.kind() == ErrorKind::InvalidInput && text.contains("group");
            return assert!(is_refused || is_group, "{error}");
        }
    };
    let grid = naive_zarr::cells(metadata.shape(), metadata.shard_shape());
    let shards = &shards[..shards.len().min(naive_zarr::count(&grid) as usize)];
    write_array(text, &metadata, shards);
    let array = ZarrArray::open_with(root(), &container::options(how & IN_MEMORY != 0)).expect("valid metadata");
    container::agrees(&array);
    if let Some(sharding) = Sharding::of(text) {
        agrees_with_naive(&array, &sharding, shards);
    }
}
