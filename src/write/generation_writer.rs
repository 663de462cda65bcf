//! Writes the files of a generation from pairs in storage order: shards, minishard table, `info`, manifest.

use crate::error::Result;
use crate::format::checksum::Checksum;
use crate::format::layout::Layout;
use crate::format::manifest::Manifest;
use crate::format::spec::ShardingSpec;
use crate::store::PendingGeneration;
use crate::threads::progress::Phase;
use crate::write::options::BuildOptions;
use crate::write::shards::{ShardsTarget, Written};
use crate::write::sorter::Sorted;
use crate::write::{Candidate, Pairs, key_file, minishard_table};

/// A generation that is being written.
pub(crate) struct GenerationWriter<'a> {
    pub(crate) options: &'a BuildOptions,
    pub(crate) pending: PendingGeneration,
    pub(crate) spec: ShardingSpec,
    pub(crate) layout: Layout,
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
        let written = self.target().write_sorted(sorted)?; // its spill files are closed, so their directory can go
        self.complete(written)
    }

    /// Completes the generation, whose shards are written and synced.
    pub(crate) fn complete(self, written: Written) -> Result<Candidate> {
        let Written { shards, value_bytes, dropped } = written;
        let key_file = || key_file::write(self.pending.path(), &self.target(), &shards);
        let keys = self.options.ordered.then(key_file).transpose()?;
        self.options.progress.begin(Phase::Publish, 0);
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
        Ok(Candidate::new(generation, &manifest, dropped, self.options))
    }
}
