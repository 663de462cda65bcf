//! Writes the key file of a generation, after all of its shards are written.
//!
//! The module `format::key_file` describes the bytes.

use std::path::Path;
use std::sync::Arc;

use crate::build::options::{BuildOptions, BuildPhase};
use crate::disk;
use crate::error::{Error, Result};
use crate::format::key_bounds::KeyBounds;
use crate::format::key_file::Tag;
use crate::format::layout::Layout;
use crate::format::manifest::{self, AuxiliaryRecord, ShardRecord};
use crate::format::spec::ShardingSpec;
use crate::ids::ShardNumber;
use crate::read::ordered::scan::{KeySink, ScanShards, scan};
use crate::read::shard::{KnownShard, MinishardCache, ReadOptions, Shard, ShardFiles, ShardReader};
use crate::read::sorted_keys::key_writer::KeyFileWriter;
use crate::read::sorted_keys::sorter::{KeySorter, SortBudget};
use crate::storage::{Cursor, Sink, StorageKind, WRITE_BLOCK, create_new};

/// The shards of a generation that is being written.
pub(super) struct WrittenShards<'a> {
    /// The directory of the generation, which gets the key file.
    pub(super) directory: &'a Path,
    /// The directory of the shards.
    pub(super) shards_directory: &'a Path,
    pub(super) spec: ShardingSpec,
    pub(super) layout: Layout,
    /// In ascending order.
    pub(super) shards: &'a [ShardRecord],
}

/// Reads the keys of the shards back, sorts them, and writes and syncs the key file.
///
/// Takes half of the memory of the options for the sort, which spills to `spill_dir` above it.
///
/// Errors: `Corrupt` if an index is damaged, or does not have the keys that its summary states; `Io`, `Cancelled`.
pub(super) fn write(written: &WrittenShards<'_>, spill_dir: &Path, options: &BuildOptions) -> Result<AuxiliaryRecord> {
    let keys = written.shards.iter().map(|shard| shard.keys).sum::<u64>();
    options.progress.begin(BuildPhase::Order, keys.saturating_mul(8));
    let budget = SortBudget { memory: options.memory_now() / 2, threads: options.threads, temp_dir: Some(spill_dir) };
    let sink = BuildSink { sorter: KeySorter::new(budget), options };
    let shards = ScanShards {
        spec: written.spec,
        numbers: written.shards.iter().map(|shard| shard.number).collect(),
        open: &|number| written.open(number),
    };
    let errors = scan(&shards, KeyBounds::ALL, options.threads, &sink)?;
    if let Some(error) = errors.into_iter().next() {
        return Err(error);
    }
    let path = written.directory.join(manifest::KEYS);
    let file = create_new(&path)?;
    let tag = Tag::of_shards(written.shards.iter().map(|shard| (shard.number, shard.keys, shard.crc32)));
    let to = Cursor::new(Sink::file(Arc::clone(&file), &path), 0, WRITE_BLOCK);
    let mut writer = KeyFileWriter::new(to.with_digest(), tag);
    sink.sorter.finish()?.try_for_each(|key| writer.push(key))?;
    if writer.keys() != keys {
        let message = format!("expected {keys} keys in the indexes of the new shards, found {}", writer.keys());
        return Err(Error::corrupt(message).at_path(written.directory));
    }
    let checksum = writer.finish()?;
    disk::sync_file(&file, &path).map_err(|error| Error::io("sync", &path, error))?;
    Ok(AuxiliaryRecord { name: manifest::KEYS.to_string(), checksum })
}

impl WrittenShards<'_> {
    /// Opens a shard for one pass, by positioned reads.
    fn open(&self, number: ShardNumber) -> Result<Option<Shard>> {
        let Ok(at) = self.shards.binary_search_by_key(&number, |shard| shard.number) else { return Ok(None) };
        let path = self.shards_directory.join(self.spec.shard_file_name(number));
        let files = ShardFiles::open(&path, StorageKind::Positioned)?;
        let known = KnownShard {
            shard_index_crc32: self.shards.get(at).map(|shard| shard.shard_index_crc32),
            ..KnownShard::default()
        };
        let cache = Arc::new(MinishardCache::new(0));
        let options = ReadOptions { max_index_bytes: u64::MAX, ..ReadOptions::default() }; // it was written just now
        Ok(Some(Shard::new(ShardReader::new(number, self.spec, Some(self.layout), files, options, cache, known))))
    }
}

/// Sorts the keys that the scan finds, and reports the progress of the build.
struct BuildSink<'a> {
    sorter: KeySorter<'a>,
    options: &'a BuildOptions,
}

impl KeySink for BuildSink<'_> {
    fn add(&self, keys: &[u64], read: u64) -> Result<()> {
        self.options.check_cancel()?;
        self.options.progress.add(read.saturating_mul(8));
        self.sorter.add(keys)
    }
}
