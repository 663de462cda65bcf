//! Partitioned builds: a generation that is built by many processes on many hosts, with bytes of a single build.
//!
//! The user chooses the scheduler: a shell, make, Slurm, LSF, a queue. The library provides four steps, which share
//! files in a directory of the store, and texts of one line: the plan and the receipts.
//!
//! ```text
//! plan      PartPlan              a specification, and a range of shards for each of P parts        once
//! map       SpillWriter           pairs of a task -> one file, divided by part; a receipt           per task
//! reduce    SpillSet::build_part  one part of all spills -> its shards; a receipt                   per part
//! publish   SpillSet::publish     all parts -> a generation, which becomes current                  once
//! ```
//!
//! Each pair is written twice and read once besides the input: into a spill, from it, into a shard. A part opens one
//! file per task, so opens and reads are linear in the number of tasks.
//!
//! # Retries
//!
//! A step may be killed, repeated, or run twice at the same time. Files get their final names when they are complete
//! and synced, and these names contain digests of their content. The driver keeps one receipt per task and passes the
//! same receipts to all parts, and it keeps one receipt per part. Attempts cannot mix: a receipt names the exact file of
//! one attempt. A spill has 16 random bytes, so the receipts show whether a step is a retry or another run: the same
//! receipts are a retry, and a run that spills again is another one, also with the same input.
//!
//! | failure | effect |
//! |---|---|
//! | a task or a part is killed | a temporary file, which [`clean`] removes; run it again |
//! | a task runs twice | two files, and the receipts decide |
//! | a part runs twice | one directory if the spills are the same; else two, and the receipts decide |
//! | a receipt is lost, doubled, or of another plan | `InvalidInput`, nothing is published |
//! | a spill or a part is lost or damaged | `NotFound` or `Corrupt` with the file, nothing is published |
//! | the publication is killed | the old or the new generation is current; publish again |
//! | it is killed, and its generation is rolled back | publishing again is `Superseded`; it does not become current again |
//!
//! # Files
//!
//! The directory of a job is `parts-<job>` in the store ([`job_directory`]). It needs a file system that all hosts
//! share; `Bucket::put_spill` and its neighbours of the crate `sharddb-remote` use a bucket instead. Spills may be in
//! another directory. After the publication, the files that the receipts name are removed; the rest is for [`clean`]:
//! output of attempts without a receipt in use, temporary files, and the mark by which a repeated publication finds
//! its result.
//!
//! # Limits
//!
//! - All pairs of a key are in one part. Parts by the identity hash are cut by a sample, and otherwise have about equal
//!   numbers of keys: a part with very large values is larger.
//! - The memory of a part does not depend on its size; a part that exceeds it spills to
//!   [`BuildOptions::temp_dir`](crate::BuildOptions::temp_dir), which should be a local disk.
//! - Digests and checksums detect accidents, not tampering.
//!
//! [`SpillSet`] has an example of all steps.

pub(crate) mod build_part;
#[cfg(test)]
mod job_model;
pub(crate) mod members;
pub(crate) mod part_receipt;
pub(crate) mod parts_dir;
mod plan;
pub(crate) mod publish;
#[cfg(test)]
mod read_faults;
pub(crate) mod spill_format;
pub(crate) mod spill_reader;
pub(crate) mod spill_receipt;
mod spill_set;
mod spill_writer;
#[cfg(test)]
pub(crate) mod tests;

pub use part_receipt::PartReceipt;
pub use parts_dir::{Cleaned, clean, job_directory};
pub use plan::PartPlan;
pub use spill_receipt::SpillReceipt;
pub use spill_set::SpillSet;
pub use spill_writer::SpillWriter;
