//! Verification: checks every file, index, key and value of a generation against the format and the manifest.
//!
//! ```text
//! level       what is verified                                                  modules
//! structure   the directory, the shard indexes                                  directory, shard
//! index       minishard indexes, the hash of every key, overlaps and gaps       minishard, extents, gaps
//! data        values, checks, prefixes, padding, the CRC-32 of files            shard, minishard, gaps
//! ```
//!
//! Every violation becomes a [`Finding`], and the walk continues after it. Nothing is repaired here; see
//! [`salvage`](crate::salvage).

mod directory;
mod extents;
mod finding;
mod gaps;
mod minishard;
mod report;
mod shard;
mod window;

pub use finding::{Finding, FindingKind, Severity};
pub use report::VerifyReport;

use crate::error::{Error, ErrorKind, Result};
use crate::read::generation::Generation;
use crate::read::shard::Pass;
use crate::read::snapshot::Snapshot;
use crate::verify::directory::Listing;
use crate::verify::shard::ShardVerifier;

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
    /// The presence and lengths of files, every entry of the shard indexes, and the CRC-32 of auxiliary files.
    ///
    /// Cost: opens every shard; reads the shard indexes (16 bytes per minishard) and the file `minishards` (about 2 bytes
    /// per minishard).
    Structure,
    /// With a manifest the CRC-32 of every shard index; every minishard index and its stored CRC-32, that every key hashes
    /// to its minishard, and every byte range.
    ///
    /// Cost: reads all indexes.
    Index,
    /// Values, and the checks, prefixes and padding of native shards. With a manifest also the CRC-32 of every shard file,
    /// which covers every byte.
    ///
    /// Cost: with a manifest, reads every file once sequentially for its CRC-32; then reads its indexes and values, in
    /// storage order.
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
    /// (the obsolete pair: a note). A snapshot that was [loaded](crate::ShardDb::load) verifies its copy in memory.
    ///
    /// Memory: one minishard index, and 32 bytes per key of one shard (48 with checked prefixes), with spare capacity; with
    /// gzip or positioned reads also one value and some blocks.
    ///
    /// Time and memory are linear in the length of the files, whatever their indexes state. Of a shard of L bytes, at most
    /// 2 L bytes of minishard indexes are read (4 L with checked prefixes), at most 64 L bytes of values and prefixes, and at
    /// most L + 2^19 keys are kept. Only shards whose ranges overlap, or with many empty values, exceed this; what is left
    /// out is a finding. Holes of sparse files are skipped.
    ///
    /// # Errors
    ///
    /// `Io` if the directory cannot be listed; `GenerationGone` if it is removed before a shard is opened. Anything else that is wrong,
    /// including a file that cannot be read, is a finding.
    ///
    /// ```no_run
    /// # fn main() -> sharddb::Result<()> {
    /// use sharddb::VerifyLevel;
    ///
    /// let report = sharddb::ShardDb::open_pread("store")?.snapshot().verify(VerifyLevel::Data)?;
    /// for finding in report.findings() {
    ///     eprintln!("{finding}");
    /// }
    /// assert!(report.is_clean());
    /// # Ok(()) }
    /// ```
    pub fn verify(&self, level: VerifyLevel) -> Result<VerifyReport> {
        self.verify_with(level, |_, _| {})
    }

    /// Like [`verify`](Snapshot::verify), and calls `progress` after every step with the bytes done and the total.
    ///
    /// The bytes done never decrease, the total is constant, and at the end they are equal. A file that is read twice
    /// counts twice.
    ///
    /// # Errors
    ///
    /// Those of [`verify`](Snapshot::verify).
    pub fn verify_with(&self, level: VerifyLevel, mut progress: impl FnMut(u64, u64)) -> Result<VerifyReport> {
        verify(&self.generation, level, &mut progress)
    }
}

fn verify(generation: &Generation, level: VerifyLevel, callback: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
    let mut report = VerifyReport::new(level);
    let listing = Listing::read(generation)?;
    listing.verify(generation, &mut report);
    let passes = if level == VerifyLevel::Data && generation.manifest().is_some() { 2 } else { 1 };
    let lengths = generation.shard_numbers().map(|number| passes * listing.shard_len(number));
    let mut progress = Progress { total: lengths.sum(), done: 0, until: 0, callback };
    for number in generation.shard_numbers() {
        progress.begin(passes * listing.shard_len(number));
        // a handle of its own: reads the file as it is now, and leaves the read-ahead of lookups alone
        match generation.open_shard_apart(number) {
            Ok(Some(shard)) => {
                let _pass = Pass::new(&shard);
                let data = listing.data_file(generation, shard.reader());
                let mut advance = |bytes| progress.advance(bytes);
                ShardVerifier::new(generation, shard.reader(), data, &mut report, &mut advance).verify();
            }
            Ok(None) => return Err(Error::internal("a listed shard has no file").at_shard(number)),
            Err(error) if error.kind() == ErrorKind::GenerationGone => return Err(error),
            Err(error) => report.add(listing.kind_of_open_error(generation, number, &error), error),
        }
        progress.finish();
    }
    verify_value_bytes(generation, &mut report);
    Ok(report)
}

/// Compares the total length of values with the manifest, if no error was found: a bad index would make the sum wrong.
fn verify_value_bytes(generation: &Generation, report: &mut VerifyReport) {
    let Some(manifest) = generation.manifest() else { return };
    if report.level >= VerifyLevel::Index && report.is_clean() && report.value_bytes != manifest.value_bytes {
        let (stated, found) = (manifest.value_bytes, report.value_bytes);
        let message = format!("expected {stated} bytes of values as the manifest says, found {found}");
        report.add(FindingKind::WrongCount, Error::corrupt(message).at_path(generation.directory()));
    }
}

/// The progress of the walk over all shards.
struct Progress<'a> {
    total: u64,
    done: u64,
    /// The value of `done` at the end of the current shard.
    until: u64,
    callback: &'a mut dyn FnMut(u64, u64),
}

impl Progress<'_> {
    fn begin(&mut self, bytes: u64) {
        self.until = self.done + bytes;
    }

    fn advance(&mut self, bytes: u64) {
        self.done = self.done.saturating_add(bytes).min(self.until);
        (self.callback)(self.done, self.total);
    }

    fn finish(&mut self) {
        self.advance(self.until - self.done);
    }
}
