//! The reduce step: the shards of one part, from its sections of all spills.

use std::path::Path;

use super::part_receipt::{PartContent, PartOptions, PartReceipt};
use super::spill_reader::Spill;
use super::spill_set::SpillSet;
use crate::build::{BuildOptions, BuildPhase, OnDuplicate, ShardsTarget, Sorter};
use crate::disk;
use crate::error::{Error, Result};
use crate::ids::ShardNumber;
use crate::store::PartsDir;

/// Maximum number of threads of a part, to bound its open files.
const MAX_THREADS: usize = 6;

/// Maximum number of files that a part has open: 16 shards that wait for their sync, those of each thread, the runs of
/// a merge, a spill or the file of large pairs, and a directory.
const MAX_OPEN_FILES: usize = 64;

const WAITING_SHARDS: usize = 16;

/// A thread has open the shard that it writes, and up to five temporary files: headers and rows of a minishard that is
/// too large for memory, and three queues of a merge function.
const FILES_PER_THREAD: usize = 6;

const OTHER_FILES: usize = 2;

const _: () = assert!(WAITING_SHARDS + MAX_THREADS * FILES_PER_THREAD + OTHER_FILES + 2 <= MAX_OPEN_FILES);

impl SpillSet {
    /// Writes and syncs the shards of a part, in the directory `part-<number>-<digest>` of `out`. For
    /// [`publish`](SpillSet::publish), `out` must be the [`job_directory`](super::job_directory) of the store.
    ///
    /// The pairs of a key have the order of their tasks and, within a task, of their insertion: the policy for
    /// duplicates and a merge function see them in this order. The shards are those of a build of all pairs in this
    /// order with the same options.
    ///
    /// If `out` has an equal part, from another attempt, that is the result. A part of one attempt is never mixed with
    /// that of another.
    ///
    /// Of the options, those of memory, threads (at most 6), temporary directory, duplicates, checks, alignment, sparse
    /// shards, progress, cancellation and durability apply. Opens at most 64 files. Cost: reads the section tables of
    /// all spills and the sections of this part, once.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for another number of a part or too little memory; `NotFound` for a missing spill; `Corrupt` for
    /// a spill that is damaged or not that of its receipt, with its file; those of [`BulkLoader`](crate::BulkLoader).
    /// Nothing is left in `out` then.
    pub fn build_part(&self, part: u64, out: impl AsRef<Path>, options: &BuildOptions) -> Result<PartReceipt> {
        options.check_memory()?;
        self.plan.shards(part)?;
        let mut options = options.clone();
        options.spec(*self.plan.spec());
        options.threads = options.threads.min(MAX_THREADS);
        options.max_open_runs = MAX_OPEN_FILES - WAITING_SHARDS - OTHER_FILES - options.threads * FILES_PER_THREAD;
        disk::with_syncs_if(options.durable, || self.write_part(part, out.as_ref(), &options))
    }

    fn write_part(&self, part: u64, out: &Path, options: &BuildOptions) -> Result<PartReceipt> {
        let new = PartsDir::create(out)?.begin_part(options.temp_dir.as_deref())?;
        let mut sorter = Sorter::of_build(options, new.spill_dir())?; // dropped before `new` removes its spill files
        options.progress.begin(BuildPhase::Insert, 0);
        for receipt in &self.receipts {
            Spill::open(&self.directory, receipt)?.read_part(part, &mut sorter)?;
        }
        let spec = *self.plan.spec();
        // a prefix anywhere decides the layout of all shards
        let layout = options.layout(self.receipts.iter().any(|receipt| receipt.prefixes > 0));
        let target = ShardsTarget { options, directory: new.path(), spill_dir: new.spill_dir(), spec, layout };
        let contents = target.write_sorted(sorter.sort()?)?;
        let receipt = PartReceipt::new(PartContent {
            plan: self.plan.digest(),
            spills: self.digest,
            part,
            options: PartOptions::new(name_of(&options.on_duplicate), layout),
            value_bytes: contents.value_bytes,
            dropped: contents.dropped,
            shards: contents.shards,
        });
        self.check_shards(&receipt)?;
        let of_shard = |number: ShardNumber| spec.shard_file_name(number);
        let files: Vec<_> =
            receipt.content().shards.iter().map(|shard| (of_shard(shard.number), shard.bytes)).collect();
        new.install(&receipt.directory_name(), &files)?;
        Ok(receipt)
    }

    /// Checks that a part has only its own shards, in ascending order.
    ///
    /// Errors: `InvalidInput` for another shard.
    pub(super) fn check_shards(&self, receipt: &PartReceipt) -> Result<()> {
        let range = self.plan.shards(receipt.part())?;
        let shards = &receipt.content().shards;
        if let Some(other) = shards.iter().find(|shard| !range.contains(&shard.number)) {
            let message = format!(
                "expected shards {} to {} in part {}, found another",
                range.start(),
                range.end(),
                receipt.part()
            );
            return Err(Error::invalid_input(message).at_shard(other.number));
        }
        match shards.is_sorted_by(|one, next| one.number < next.number) {
            true => Ok(()),
            false => Err(Error::invalid_input(format!("expected ascending shards in part {}", receipt.part()))),
        }
    }
}

/// Returns the name of a policy in receipts. Merge functions have one name, since they cannot be compared.
fn name_of(on_duplicate: &OnDuplicate) -> &'static str {
    match on_duplicate {
        OnDuplicate::Error => "error",
        OnDuplicate::KeepFirst => "first",
        OnDuplicate::KeepLast => "last",
        OnDuplicate::Merge(_) => "merge",
    }
}
