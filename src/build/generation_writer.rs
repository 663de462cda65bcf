//! Writes the files of a generation from pairs in storage order: shards, minishard table, `info`, manifest.

use std::path::Path;

use crate::build::key_file::{self, WrittenShards};
use crate::build::merged_pairs::MergedPairs;
use crate::build::options::{BuildOptions, BuildPhase, OnDuplicate};
use crate::build::shard_file::ShardSummary;
use crate::build::shards::{ShardIndexLimit, ShardsJob, Written};
use crate::build::sorter::Sorted;
use crate::build::{Candidate, Pairs, minishard_table};
use crate::error::Result;
use crate::format::checksum::Checksum;
use crate::format::layout::Layout;
use crate::format::manifest::{AuxiliaryRecord, Manifest, ShardRecord};
use crate::format::spec::ShardingSpec;
use crate::store::PendingGeneration;

/// A generation that is being written.
pub(crate) struct GenerationWriter<'a> {
    pub(crate) options: &'a BuildOptions,
    pub(crate) pending: PendingGeneration,
    pub(crate) spec: ShardingSpec,
    pub(crate) layout: Layout,
}

/// The shards of a generation and their totals.
#[derive(Default)]
pub(crate) struct Contents {
    /// The shards in ascending order.
    pub(crate) shards: Vec<ShardRecord>,
    pub(crate) value_bytes: u64,
    /// The number of pairs that were dropped because of a duplicate key.
    pub(crate) dropped: u64,
}

/// Where and how shards are written.
pub(crate) struct ShardsTarget<'a> {
    pub(crate) options: &'a BuildOptions,
    /// The directory of the shards.
    pub(crate) directory: &'a Path,
    pub(crate) spill_dir: &'a Path,
    pub(crate) spec: ShardingSpec,
    pub(crate) layout: Layout,
}

impl ShardsTarget<'_> {
    /// Writes and syncs the shards of all pairs, combined by the merge function if the options have one.
    ///
    /// `stored_bytes` is the number of their bytes; `memory` is that for the headers of minishards, in bytes.
    fn write(&self, pairs: &dyn Pairs, stored_bytes: u64, threads: usize, memory: usize) -> Result<Written> {
        self.options.progress.begin(BuildPhase::Write, stored_bytes);
        let job = ShardsJob {
            directory: self.directory,
            spill_dir: self.spill_dir,
            spec: self.spec,
            layout: self.layout,
            options: self.options,
            shard_indexes: ShardIndexLimit::new(self.options, stored_bytes),
            threads,
            memory,
        };
        match &self.options.on_duplicate {
            OnDuplicate::Merge(function) => job.write(&MergedPairs {
                pairs,
                function,
                data_encoding: self.spec.data_encoding(),
                spill_dir: self.spill_dir,
            }),
            _ => job.write(pairs),
        }
    }

    /// Writes and syncs the shards of sorted pairs, and closes the spill files.
    pub(crate) fn write_sorted(&self, mut sorted: Sorted) -> Result<Contents> {
        let (stored_bytes, memory) = (sorted.totals.stored_bytes, sorted.memory_of_minishards());
        let written = {
            let (pairs, threads) = sorted.open()?;
            self.write(&*pairs, stored_bytes, threads, memory)?
        };
        Ok(Contents::of(&written, sorted.dropped))
    }
}

impl GenerationWriter<'_> {
    fn target(&self) -> ShardsTarget<'_> {
        ShardsTarget {
            options: self.options,
            directory: self.pending.shards_path(),
            spill_dir: self.pending.spill_dir(),
            spec: self.spec,
            layout: self.layout,
        }
    }

    /// Writes and syncs the shards of all pairs, like [`ShardsTarget::write`].
    pub(crate) fn write_shards(
        &self,
        pairs: &dyn Pairs,
        stored_bytes: u64,
        threads: usize,
        memory: usize,
    ) -> Result<Written> {
        self.target().write(pairs, stored_bytes, threads, memory)
    }

    /// Writes all files of the generation from sorted pairs.
    pub(crate) fn write_sorted(self, sorted: Sorted) -> Result<Candidate> {
        let contents = self.target().write_sorted(sorted)?; // its spill files are closed, so their directory can go
        self.complete(contents)
    }

    /// Completes the generation, whose shards are written and synced.
    pub(crate) fn complete(self, contents: Contents) -> Result<Candidate> {
        let Contents { shards, value_bytes, dropped } = contents;
        let keys = self.options.ordered.then(|| self.write_key_file(&shards)).transpose()?;
        self.options.progress.begin(BuildPhase::Publish, 0);
        let info = self.options.compose_info(&self.spec, &self.layout)?;
        let of_info = Checksum::of(info.as_bytes());
        let table = minishard_table::write(self.pending.path(), self.pending.shards_path(), self.spec, &shards)?;
        let manifest = Manifest {
            sharding: self.spec,
            nested: self.pending.nested().cloned(),
            info_crc32: of_info.crc32,
            info_digest: of_info.digest,
            layout: self.layout,
            keys: shards.iter().map(|shard| shard.keys).sum(),
            value_bytes,
            auxiliary: table.into_iter().chain(keys).collect(),
            shards,
        };
        let generation = self.pending.complete(info.as_bytes(), &manifest)?;
        Ok(Candidate::new(generation, &manifest, dropped, self.options.durable))
    }

    fn write_key_file(&self, shards: &[ShardRecord]) -> Result<AuxiliaryRecord> {
        let written = WrittenShards {
            directory: self.pending.path(),
            shards_directory: self.pending.shards_path(),
            spec: self.spec,
            layout: self.layout,
            shards,
        };
        key_file::write(&written, self.pending.spill_dir(), self.options)
    }
}

impl Contents {
    /// Returns the contents of a generation of which all shards were written.
    pub(crate) fn of(written: &Written, dropped_before: u64) -> Contents {
        Contents {
            shards: written.shards.iter().map(record_of).collect(),
            value_bytes: written.shards.iter().map(|shard| shard.value_bytes).sum(),
            dropped: dropped_before + written.dropped,
        }
    }
}

/// Returns the record of a written shard in the manifest.
fn record_of(shard: &ShardSummary) -> ShardRecord {
    let ShardSummary { number, bytes, keys, crc32, shard_index_crc32, digest, .. } = *shard;
    ShardRecord { number, bytes, keys, crc32, shard_index_crc32, digest: Some(digest) }
}
