//! The files of the shards of a snapshot: from its manifest or, without one, from the directory.

use std::fs;
use std::io;

use serde_json::Value;
use sharddb::Snapshot;
use sharddb::spec::ShardNumber;

/// The file of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShardFile {
    pub(crate) number: ShardNumber,
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// As the manifest states it.
    pub(crate) keys: Option<u64>,
}

impl ShardFile {
    /// Lists the shards of a snapshot in ascending order.
    ///
    /// Errors: those of reading the manifest, or without one the directory.
    pub(crate) fn list(snapshot: &Snapshot) -> io::Result<Vec<ShardFile>> {
        if snapshot.len().is_none() {
            return of_directory(snapshot);
        }
        let manifest = fs::read_to_string(snapshot.directory().join("manifest.json"))?;
        of_manifest(&manifest, snapshot).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Reads the records `[number, bytes, keys, crc32, crc32 of the shard index]` of a manifest that the library accepted.
fn of_manifest(manifest: &str, snapshot: &Snapshot) -> Option<Vec<ShardFile>> {
    let manifest: Value = serde_json::from_str(manifest).ok()?;
    let file = |record: &Value| {
        let [number, bytes, keys] = [0, 1, 2].map(|at| record.get(at).and_then(Value::as_u64));
        let number = ShardNumber(number?);
        Some(ShardFile { number, name: snapshot.spec().shard_file_name(number), bytes: bytes?, keys: Some(keys?) })
    };
    manifest.get("shards")?.as_array()?.iter().map(file).collect()
}

fn of_directory(snapshot: &Snapshot) -> io::Result<Vec<ShardFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(snapshot.shards_directory())? {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().map(str::to_string) else { continue };
        let number = name.strip_suffix(".shard").and_then(|stem| u64::from_str_radix(stem, 16).ok()).map(ShardNumber);
        let Some(number) = number.filter(|number| snapshot.spec().shard_file_name(*number) == name) else { continue };
        let bytes = fs::metadata(entry.path()).map_or(0, |metadata| metadata.len());
        files.push(ShardFile { number, name, bytes, keys: None });
    }
    files.sort_by_key(|file| file.number);
    Ok(files)
}
