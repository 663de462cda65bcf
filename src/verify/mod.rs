//! Whether a generation is what the format's text and its manifest say: every file, index, key and value.
//!
//! ```text
//! structure   the directory, the shard indexes                                    directory, shard
//! index       minishard indexes, the place of every key, who names which bytes    minishard, extents
//! data        values, checks, prefixes, padding, whole files                      shard, minishard, extents
//! ```
//!
//! What is wrong becomes a [`Finding`], and the walk goes on behind it. Nothing is repaired here.

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

/// How much [`Snapshot::verify`] looks at; each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum VerifyLevel {
    /// The files that are there, their lengths, every entry of the shard indexes, and the CRC-32 of auxiliary files.
    ///
    /// Cost: opens every shard and reads 16 bytes for each of its minishards; of the minishard table some 2 bytes each.
    Structure,
    /// Every minishard index, the place of every key, and every byte range.
    ///
    /// Cost: reads all indexes.
    Index,
    /// Every byte: values, checks, prefixes, padding, and with a manifest the CRC-32 of every file.
    ///
    /// Cost: reads every file front to back once for its CRC-32, then its indexes and values, in storage order.
    Data,
}

impl VerifyLevel {
    /// The level as one lowercase word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Structure => "structure",
            Self::Index => "index",
            Self::Data => "data",
        }
    }
}

impl Snapshot {
    /// Looks at everything up to a level and reports what is wrong, odd or worth knowing.
    ///
    /// In a generation with a manifest, [`VerifyLevel::Data`] finds every changed byte of every file. In a data set of
    /// others the rules of the format's text hold, and what only stumbles some readers is a warning. A snapshot that was
    /// [loaded](crate::ShardDb::load) looks at its copy in memory.
    ///
    /// Memory: one minishard index, and 32 bytes for each key of one shard (48 in a data set with prefixes); with gzip or
    /// positioned reads also one value, and some blocks.
    ///
    /// Time and memory are linear in the length of the files, whatever their indexes state. Of each shard, minishard indexes
    /// are read up to twice its length, values up to 64 times its length, and keys are kept up to one per byte and 2^19;
    /// what is beyond shares bytes with others, is not looked at, and is a finding. Holes of sparse files are skipped.
    ///
    /// Errors: `Io` if the directory cannot be listed, `GenerationGone`. Whatever else is wrong, also a file that
    /// cannot be read, is a finding.
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

    /// Like [`verify`](Snapshot::verify); tells `progress` after every step how many bytes are done, and of how many.
    ///
    /// Neither figure ever falls, the second stays as it is, and in the end they are equal. A file that is read twice
    /// counts twice.
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
        match generation.open_shard_apart(number) {
            Ok(Some(shard)) => {
                let _pass = Pass::new(&shard);
                let data = listing.data_file(generation, shard.reader());
                let mut advance = |bytes| progress.advance(bytes);
                ShardVerifier::new(generation, shard.reader(), data, &mut report, &mut advance).verify();
            }
            Ok(None) => {} // has no file, so it is not among the numbers
            Err(error) if error.kind() == ErrorKind::GenerationGone => return Err(error),
            Err(error) => report.add(listing.kind_of_open_error(number, &error), error),
        }
        progress.finish();
    }
    verify_value_bytes(generation, &mut report);
    Ok(report)
}

/// The total is compared where it can be: with all indexes whole.
fn verify_value_bytes(generation: &Generation, report: &mut VerifyReport) {
    let Some(manifest) = generation.manifest() else { return };
    if report.level >= VerifyLevel::Index && report.is_clean() && report.value_bytes != manifest.value_bytes {
        let (stated, found) = (manifest.value_bytes, report.value_bytes);
        let message = format!("expected {stated} bytes of values as the manifest says, found {found}");
        report.add(FindingKind::WrongCount, Error::corrupt(message).at_path(generation.directory()));
    }
}

/// How far the walk has come.
struct Progress<'a> {
    total: u64,
    done: u64,
    /// Where the shard at hand ends.
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
