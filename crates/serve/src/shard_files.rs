//! The files of the shards of a snapshot: from its manifest or, without one, from the directory.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};

use serde::Deserialize;
use serde::de::IgnoredAny;
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
        if snapshot.key_count().is_none() {
            return of_directory(snapshot);
        }
        of_manifest(BufReader::new(File::open(snapshot.directory().join("manifest.json"))?), snapshot)
    }
}

/// What is read of a manifest.
#[derive(Deserialize)]
struct Manifest {
    /// `[number, bytes, keys, crc32, crc32 of the shard index]`
    shards: Vec<(u64, u64, u64, IgnoredAny, IgnoredAny)>,
}

/// Reads the records of a manifest that the library accepted.
fn of_manifest(manifest: impl Read, snapshot: &Snapshot) -> io::Result<Vec<ShardFile>> {
    let file = |(number, bytes, keys, ..): (u64, u64, u64, IgnoredAny, IgnoredAny)| {
        let number = snapshot.spec().shard(number)?;
        Some(ShardFile { number, name: snapshot.spec().shard_file_name(number), bytes, keys: Some(keys) })
    };
    let Manifest { shards } = serde_json::from_reader(manifest)?;
    Ok(shards.into_iter().filter_map(file).collect())
}

fn of_directory(snapshot: &Snapshot) -> io::Result<Vec<ShardFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(snapshot.shards_directory())? {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().map(str::to_string) else { continue };
        let number = name.strip_suffix(".shard").and_then(|stem| u64::from_str_radix(stem, 16).ok());
        let number = number.and_then(|number| snapshot.spec().shard(number));
        let Some(number) = number.filter(|number| snapshot.spec().shard_file_name(*number) == name) else { continue };
        let bytes = fs::metadata(entry.path()).map_or(0, |metadata| metadata.len());
        files.push(ShardFile { number, name, bytes, keys: None });
    }
    files.sort_by_key(|file| file.number);
    Ok(files)
}
