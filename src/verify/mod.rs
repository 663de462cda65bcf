//! Verification: checks every file, index, key and value of a generation against the format and the manifest.
//!
//! ```text
//! level       what is verified                                                  modules
//! structure   the directory, the shard indexes                                  directory, shard
//! index       minishard indexes, the hash of every key, overlaps and gaps       minishard, misplaced, extents, gaps
//!             the key file                                                      key_file, key_sum
//! data        values, checks, preambles, padding, the CRC-32 of files            shard, minishard, gaps
//! ```
//!
//! `team` does this for all shards, on one or several threads.
//!
//! Every violation becomes a [`Finding`], and the walk continues after it. Nothing is repaired here; see
//! [`salvage`](crate::salvage).

mod directory;
mod extents;
mod finding;
mod gaps;
mod key_file;
mod key_sum;
mod minishard;
mod misplaced;
mod range_state;
mod report;
mod shard;
mod team;
mod window;

use std::num::NonZero;

pub use finding::{Finding, FindingKind, Severity};
pub use report::VerifyReport;

use crate::error::{Error, Result};
use crate::read::generation::Generation;
use crate::read::snapshot::Snapshot;
use crate::threads::progress::{Phase, Progress};
use crate::verify::directory::Listing;
use crate::verify::team::verify_shards;

/// How much [`Snapshot::verify`] checks. Each level includes those before it.
///
/// ```
/// use sharddb::VerifyLevel;
///
/// assert!(VerifyLevel::Structure < VerifyLevel::Data);
/// assert_eq!(VerifyLevel::Index.as_str(), "index");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum VerifyLevel {
    /// The presence and lengths of files, and every entry of the shard indexes. With a manifest also the manifest
    /// itself, `lease`, and the CRC-32 of `info` and of auxiliary files.
    ///
    /// Cost: opens every shard; reads the shard indexes (16 bytes per minishard) and the auxiliary files `minishards`
    /// (about 2 bytes per minishard) and `keys`.
    Structure,
    /// Every minishard index and, in a data set with checks, its check; that every key hashes to its minishard; every
    /// byte range. With a manifest also the CRC-32 of every shard index, and that the key file, if there is one, has
    /// the keys of the shards.
    ///
    /// Cost: reads all indexes.
    Index,
    /// Values, and the checks, preambles and padding of native shards. With a manifest also the CRC-32 of every shard file,
    /// which covers all of its bytes.
    ///
    /// Cost: reads the indexes and values of every shard, in storage order. With a manifest, before that also reads the
    /// whole shard file sequentially.
    Data,
}

impl VerifyLevel {
    /// Returns the level as one lowercase word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Structure => "structure",
            Self::Index => "index",
            Self::Data => "data",
        }
    }
}

impl Snapshot {
    /// Verifies the generation up to a level and reports what is wrong, unusual or worth knowing.
    ///
    /// In a generation with a manifest, [`VerifyLevel::Data`] finds every changed byte of every file. A foreign data
    /// set is verified against the format; data that ShardDb reads correctly but some other readers refuse is a warning
    /// (the obsolete pair: a note). A snapshot that was [loaded](crate::ShardDb::load) verifies its copy of the shards
    /// in memory, and the directory as it is on disk now. A database [from pairs](crate::ShardDb::from_pairs) has no
    /// directory, and its one shard is verified.
    ///
    /// Memory: one minishard index, and 32 bytes per key of one shard, with spare capacity; with gzip or positioned reads
    /// also one value and some blocks.
    ///
    /// Time and memory are linear in the length of the files, whatever their indexes state. In a shard of L bytes,
    /// verification reads at most 2 L bytes of minishard indexes and at most 64 L bytes of values and preambles, and
    /// keeps at most L + 2^19 keys and minishards. Only shards whose ranges overlap, or with many empty values, would
    /// need more; the rest is then left out and reported as a finding. Holes of sparse files are skipped.
    ///
    /// # Errors
    ///
    /// `Io` if the directory cannot be listed; `GenerationGone` if the generation was removed, or is removed before all
    /// shards are opened. Any other defect, including a file that cannot be read, is a finding.
    ///
    /// ```no_run
    /// # fn main() -> sharddb::Result<()> {
    /// use sharddb::VerifyLevel;
    ///
    /// let report = sharddb::ShardDb::open("store")?.snapshot().verify(VerifyLevel::Data)?;
    /// for finding in report.findings() {
    ///     eprintln!("{finding}");
    /// }
    /// assert!(report.is_clean());
    /// # Ok(()) }
    /// ```
    pub fn verify(&self, level: VerifyLevel) -> Result<VerifyReport> {
        verify(&self.generation, level, NonZero::<usize>::MIN, &Progress::new())
    }

    /// Like [`verify`](Snapshot::verify), on up to `threads` threads. The report is the same, with the findings in the same
    /// order. Large shards are divided by minishards, so one shard is enough for all threads.
    ///
    /// `progress` counts the bytes of the shards that were read; a shard that is read twice counts twice, and other files
    /// do not count. If the process cannot start more threads, fewer are used.
    ///
    /// Memory: that of [`verify`](Snapshot::verify) for each thread: 32 bytes per key of the shards that are verified at
    /// the same time, which are one or two if they are large, and one minishard index, value and some blocks per thread.
    /// The bounds for hostile shards hold twice: a shard whose ranges exceed them is verified again as a whole.
    ///
    /// # Errors
    ///
    /// Those of [`verify`](Snapshot::verify); `Cancelled`.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use sharddb::{Progress, VerifyLevel};
    ///
    /// let snapshot = sharddb::ShardDb::open("store")?.snapshot();
    /// let progress = Progress::new(); // a clone of it shows another thread how far this is
    /// let report = snapshot.verify_with(VerifyLevel::Data, std::thread::available_parallelism()?, &progress)?;
    /// assert!(report.is_clean());
    /// # Ok(()) }
    /// ```
    pub fn verify_with(
        &self,
        level: VerifyLevel,
        threads: NonZero<usize>,
        progress: &Progress,
    ) -> Result<VerifyReport> {
        verify(&self.generation, level, threads, progress)
    }
}

fn verify(
    generation: &Generation,
    level: VerifyLevel,
    threads: NonZero<usize>,
    progress: &Progress,
) -> Result<VerifyReport> {
    let mut report = VerifyReport::new(level);
    let listing = Listing::read(generation)?;
    let shards = generation.shard_numbers();
    progress.begin(Phase::Verify, shards.map(|number| listing.bytes_to_verify(generation, number, level)).sum());
    listing.verify(generation, &mut report);
    verify_shards(generation, &listing, threads, &mut report, progress)?;
    verify_total_value_bytes(generation, &mut report);
    key_file::verify(generation, &mut report);
    progress.check()?;
    Ok(report)
}

/// Compares the total length of values with the manifest, unless there are errors: a bad index would make the total
/// wrong.
fn verify_total_value_bytes(generation: &Generation, report: &mut VerifyReport) {
    let Some(manifest) = generation.manifest() else { return };
    if report.level >= VerifyLevel::Index && report.is_clean() && report.value_bytes != manifest.value_bytes {
        let (stated, found) = (manifest.value_bytes, report.value_bytes);
        let message = format!("expected {stated} bytes of values as the manifest says, found {found}");
        report.add(FindingKind::WrongCount, Error::corrupt(message).at_path(generation.directory()));
    }
}
