//! Writes the key file of a generation, after all of its shards are written.
//!
//! The module `format::key_file` describes the bytes.

use std::path::Path;
use std::sync::Arc;

use crate::bytes::{Cursor, Sink, StorageKind, WRITE_BLOCK, create_new};
use crate::error::{Error, Result};
use crate::format::key_bounds::KeyBounds;
use crate::format::key_file::Tag;
use crate::format::manifest::{self, AuxiliaryRecord, ShardRecord};
use crate::fs::disk;
use crate::ids::ShardNumber;
use crate::read::ordered::scan::{ScanShards, scan};
use crate::read::shard::{KnownShard, MinishardCache, ReadOptions, Shard, ShardFiles, ShardReader};
use crate::read::sorted_keys::key_writer::KeyFileWriter;
use crate::read::sorted_keys::sorter::{KeySorter, SortBudget};
use crate::threads::progress::Phase;
use crate::write::shards::ShardsTarget;

/// Reads the keys of the shards back, sorts them, and writes and syncs the key file.
///
/// The file is in `directory`, that of the generation. The shards are in ascending order. Takes half of the memory of the
/// options for the sort, which spills above it.
///
/// Errors: `Corrupt` if an index is damaged, or does not have the keys that its summary states; `Io`, `Cancelled`.
pub(super) fn write(directory: &Path, target: &ShardsTarget<'_>, shards: &[ShardRecord]) -> Result<AuxiliaryRecord> {
    let ShardsTarget { options, spill_dir, .. } = *target;
    let keys = shards.iter().map(|shard| shard.keys).sum::<u64>();
    options.progress.begin(Phase::Order, keys.saturating_mul(8));
    let threads = options.thread_count();
    let budget = SortBudget { memory: options.memory_now() / 2, threads, temp_dir: Some(spill_dir) };
    let sorter = KeySorter::new(budget);
    let to_scan = ScanShards {
        spec: target.spec,
        numbers: shards.iter().map(|shard| shard.number).collect(),
        open: &|number| open(target, shards, number),
    };
    let errors = scan(&to_scan, KeyBounds::ALL, threads, &|keys, read| {
        options.progress.check()?;
        options.progress.add(read.saturating_mul(8));
        sorter.add(keys)
    })?;
    if let Some(error) = errors.into_iter().next() {
        return Err(error);
    }
    let path = directory.join(manifest::KEYS);
    let file = create_new(&path)?;
    let tag = Tag::of_shards(shards);
    let to = Cursor::new(Sink::file(Arc::clone(&file), &path), 0, WRITE_BLOCK);
    let mut writer = KeyFileWriter::new(to.with_digest(), tag);
    sorter.finish()?.try_for_each(|key| writer.push(key))?;
    if writer.keys() != keys {
        let message = format!("expected {keys} keys in the indexes of the new shards, found {}", writer.keys());
        return Err(Error::corrupt(message).at_path(directory));
    }
    let checksum = writer.finish()?;
    disk::sync_file(&file, &path).map_err(|error| Error::io("sync", &path, error))?;
    Ok(AuxiliaryRecord { name: manifest::KEYS.to_string(), checksum })
}

/// Opens a shard that was written for one pass, by positioned reads.
fn open(target: &ShardsTarget<'_>, shards: &[ShardRecord], number: ShardNumber) -> Result<Option<Shard>> {
    let Ok(at) = shards.binary_search_by_key(&number, |shard| shard.number) else { return Ok(None) };
    let path = target.directory.join(target.spec.shard_file_name(number));
    let files = ShardFiles::open(&path, StorageKind::Positioned)?;
    let known =
        KnownShard { shard_index_crc32: shards.get(at).map(|shard| shard.shard_index_crc32), ..KnownShard::default() };
    let cache = Arc::new(MinishardCache::new(0));
    let options = ReadOptions { max_index_bytes: u64::MAX, ..ReadOptions::default() }; // it was written just now
    Ok(Some(Shard::new(ShardReader::new(number, target.spec, Some(target.layout), files, options, cache, known))))
}
