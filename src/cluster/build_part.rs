//! The reduce step: the shards of one part, from its sections of all spills.

use std::path::Path;

use super::part_receipt::{PartContent, PartOptions, PartReceipt};
use super::parts_dir::{NewPart, PartsDir};
use super::spill_reader::Spill;
use super::spill_set::SpillSet;
use crate::error::{Error, Result};
use crate::fs::disk;
use crate::threads::progress::Phase;
use crate::write::{BuildOptions, OnDuplicate, ShardsTarget, Sorter};

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
        let mut build = PartBuild::begin(self, part, out.as_ref(), options)?;
        self.receipts.iter().try_for_each(|receipt| build.read(&Spill::open(&self.directory, receipt)?))?;
        build.finish()
    }

    /// Checks that a part has only its own shards, in ascending order.
    ///
    /// Errors: `InvalidInput` for another shard.
    pub(super) fn check_shards(&self, receipt: &PartReceipt) -> Result<()> {
        let range = self.plan.shards(receipt.part())?;
        let shards = &receipt.content.shards;
        if let Some(other) = shards.iter().find(|shard| !range.contains(&shard.number)) {
            let message = format!(
                "expected shards {} to {} in part {}, found another",
                range.start(),
                range.end(),
                receipt.part()
            );
            return Err(Error::invalid_input(message).at_shard(other.number));
        }
        if shards.is_sorted_by(|one, next| one.number < next.number) {
            Ok(())
        } else {
            Err(Error::invalid_input(format!("expected ascending shards in part {}", receipt.part())))
        }
    }
}

/// A part that is being built: reads the spills, in the order of their receipts, and then writes the shards. Dropping it
/// removes its files.
#[allow(missing_debug_implementations, reason = "hidden; nobody prints a sorter")]
pub struct PartBuild<'a> {
    spills: &'a SpillSet,
    part: u64,
    options: BuildOptions,
    sorter: Sorter, // dropped before `new` removes its spill files
    new: NewPart,
}

impl<'a> PartBuild<'a> {
    /// Errors: `InvalidInput` for another number of a part or too little memory; `Io`.
    pub fn begin(spills: &'a SpillSet, part: u64, out: &Path, options: &BuildOptions) -> Result<PartBuild<'a>> {
        let mut options = options.starting()?;
        spills.plan.shards(part)?;
        options.spec(*spills.plan.spec());
        let threads = options.thread_count().min(MAX_THREADS);
        options.threads(threads);
        options.max_open_runs = MAX_OPEN_FILES - WAITING_SHARDS - OTHER_FILES - threads * FILES_PER_THREAD;
        let begin = || PartsDir::create(out)?.begin_part(options.temp_dir.as_deref());
        let new = disk::with_syncs_if(options.durable, begin)?;
        let sorter = Sorter::of_build(&options, new.spill_dir())?;
        options.progress.begin(Phase::Insert, 0);
        Ok(PartBuild { spills, part, options, sorter, new })
    }

    /// Adds the sections that the next spill has of this part.
    pub fn read(&mut self, spill: &Spill) -> Result<()> {
        disk::with_syncs_if(self.options.durable, || spill.read_part(self.part, &mut self.sorter))
    }

    /// Writes and syncs the shards of all spills, which were read, and gives the part its name.
    pub fn finish(self) -> Result<PartReceipt> {
        disk::with_syncs_if(self.options.durable, || self.write())
    }

    fn write(self) -> Result<PartReceipt> {
        let PartBuild { spills, part, options, sorter, new } = self;
        let spec = *spills.plan.spec();
        // a preamble anywhere decides the layout of all shards
        let layout = options.layout(spills.receipts.iter().any(|receipt| receipt.preambles > 0));
        let target =
            ShardsTarget { options: &options, directory: new.path(), spill_dir: new.spill_dir(), spec, layout };
        let written = target.write_sorted(sorter.sort()?)?;
        let receipt = PartReceipt::new(PartContent {
            plan: spills.plan.digest(),
            spills: spills.digest,
            part,
            options: PartOptions::new(name_of(&options.on_duplicate), layout),
            value_bytes: written.value_bytes,
            dropped: written.dropped,
            shards: written.shards,
        });
        spills.check_shards(&receipt)?;
        let files: Vec<_> = receipt.content.shards.iter().map(|shard| spec.shard_file_name(shard.number)).collect();
        new.install(&receipt.directory_name(), &files)?;
        Ok(receipt)
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
