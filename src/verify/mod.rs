//! Verification: checks every file, index, key and value of a generation against the format and the manifest.
//!
//! Every violation becomes a [`Finding`], and the walk continues after it. Nothing is repaired here; see
//! [`salvage`](crate::salvage).

// level       what is verified                                                  modules
// structure   the directory, the shard indexes                                  directory, shard
// index       minishard indexes, the hash of every key, overlaps and gaps       minishard, misplaced, extents, gaps
//             the key file                                                      key_sum
// data        values, checks, preambles, padding, the CRC-32 of files            shard, minishard, gaps
//             the fragments before manifests of meshes                          mod

mod directory;
mod extents;
mod finding;
mod gaps;
mod key_sum;
mod minishard;
mod misplaced;
pub(crate) mod options;
mod range_state;
pub(crate) mod report;
mod shard;
mod team;

pub use finding::{Finding, FindingKind, Severity};
pub use options::VerifyOptions;
pub use report::VerifyReport;

use crate::error::{Error, ErrorKind, Result};
use crate::format::{manifest, multilod};
use crate::read::generation::Generation;
use crate::read::snapshot::Snapshot;
use crate::read::sorted_keys::key_file::KeyFile;
use crate::threads;
use crate::threads::progress::{Phase, Progress};
use crate::verify::directory::Listing;
use crate::verify::key_sum::KeySum;
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
    /// Values, and the checks, preambles and padding of native shards; that manifests of multi-resolution meshes have their
    /// fragments before them. With a manifest also the CRC-32 of every shard file, which covers all of its bytes.
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
    /// Memory: for each thread one minishard index and, with gzip or positioned reads, one value and some blocks. In addition 32
    /// bytes per key, with spare capacity, of one shard at a time in which the byte ranges of indexes and values overlap, empty
    /// values share an offset, or other bytes lie between: that shard is verified a second time, to name each.
    ///
    /// Time and memory are linear in the length of the files, whatever their indexes state. In a shard of L bytes,
    /// verification reads at most 2 L bytes of minishard indexes and at most 64 L bytes of values and preambles, and
    /// keeps at most L + 2^19 keys and minishards, and of a foreign data set of multi-resolution meshes all positions, 16
    /// bytes per key. Only shards whose ranges overlap, or with many empty values, would need more; the rest is then left
    /// out and reported as a finding. These bounds hold twice: a shard whose ranges of minishards exceed them is verified again
    /// as a whole. Holes of sparse files are skipped.
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
        self.verify_with(level, &VerifyOptions::new())
    }

    /// Like [`verify`](Snapshot::verify), with options.
    ///
    /// # Errors
    ///
    /// Those of [`verify`](Snapshot::verify); `Cancelled`.
    pub fn verify_with(&self, level: VerifyLevel, options: &VerifyOptions) -> Result<VerifyReport> {
        let (threads, progress) = (threads::count(options.threads), &options.progress);
        let generation = &*self.generation;
        let mut report = VerifyReport::new(level);
        let listing = Listing::read(generation)?;
        let shards = || generation.shard_numbers();
        progress.begin(Phase::Verify, shards().map(|number| listing.bytes_to_verify(generation, number, level)).sum());
        listing.verify(generation, &mut report);
        verify_shards(generation, &listing, threads, &mut report, progress)?;
        verify_total_value_bytes(generation, &mut report);
        verify_key_file(generation, &mut report);
        let file_bytes = shards().map(|number| listing.shard_len(number)).fold(0, u64::saturating_add);
        verify_fragments(self, file_bytes, &mut report, progress)?;
        progress.check()?;
        Ok(report)
    }
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

/// Compares the keys of the key file with those of the shards, which the report has summed. If some of those are unknown,
/// because an index is damaged, verifies only that the key file can be read.
fn verify_key_file(generation: &Generation, report: &mut VerifyReport) {
    if report.level < VerifyLevel::Index {
        return;
    }
    let Some(opened) = generation.open_key_file_apart() else { return };
    let path = generation.directory().join(manifest::KEYS);
    let is_reported = |kind| report.findings().iter().any(|it| it.kind() == kind && it.path() == Some(&*path));
    match opened.and_then(|file| sum_of_ascending(&file)) {
        Ok(Some(keys)) if keys == report.key_sum => {}
        Ok(_) if !report.is_clean() => {}
        Ok(_) => {
            let message = "expected the key file to have the keys of the shards in ascending order, found others: ordered \
                           reads return wrong results; build the generation again";
            report.add(FindingKind::KeyFile, Error::corrupt(message).at_path(&path));
        }
        // the checksum of the file does not match either, unless a wrong file was written
        Err(_) if is_reported(FindingKind::AuxiliaryFile) => {}
        Err(error) => report.add(FindingKind::AuxiliaryFile, error.at_path(&path)),
    }
}

/// Returns the sum of the keys; `None` if they do not ascend.
fn sum_of_ascending(file: &KeyFile) -> Result<Option<KeySum>> {
    let (mut sum, mut next, mut ascends) = (KeySum::default(), 0, true);
    file.for_each(|key| {
        ascends &= u128::from(key) >= next;
        next = u128::from(key) + 1;
        sum.add(key);
    })?;
    Ok(ascends.then_some(sum))
}

/// Reads all manifests, if the values are some, and no damage was found: a bad index would make the places of fragments
/// wrong. `file_bytes` is the length of all shards; values that overlap may be longer, and are not read again.
///
/// Errors: `Cancelled`.
fn verify_fragments(
    snapshot: &Snapshot,
    file_bytes: u64,
    report: &mut VerifyReport,
    progress: &Progress,
) -> Result<()> {
    let is_read_again = report.level == VerifyLevel::Data && report.is_clean() && report.value_bytes <= file_bytes;
    if !is_read_again || !matches!(snapshot.info(), Ok(Some(info)) if multilod::is_stated_by(&info)) {
        return Ok(());
    }
    let mut pairs = snapshot.pairs();
    while let Some(checked) = pairs.check_next(multilod::check_fragments) {
        progress.check()?;
        match checked {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                report.add(FindingKind::MissingFragments, error.with_kind(ErrorKind::Corrupt));
            }
            Err(error) => report.add(FindingKind::UnreadableShard, error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::common::TempDir;
    use crate::format::key_file::{DirectoryBuilder, Group, Shape, Tag, Tail, encode_block};
    use crate::verify::finding::Finding;
    use crate::{BuildOptions, OpenOptions};

    /// Replaces the key file of the store by one with the right tag and other blocks.
    fn replace(store: &Path, blocks: &[Vec<u64>]) {
        let db = OpenOptions::new().open(store).unwrap();
        let snapshot = db.snapshot();
        let shards = &snapshot.generation.manifest().unwrap().shards;
        let tag = Tag::of_shards(shards);
        let (mut bytes, mut directory) = (Vec::new(), DirectoryBuilder::default());
        for (number, keys) in (0..).zip(blocks) {
            let block = encode_block(tag, number, keys);
            directory.push(keys[0], block.len()).unwrap();
            bytes.extend(block);
        }
        let group = Group { first_key: blocks[0][0], directory: bytes.len() as u64 };
        bytes.extend(directory.take(tag, 0).unwrap().1);
        let keys = blocks.iter().map(Vec::len).sum::<usize>() as u64;
        bytes.extend(Tail { shape: Shape { keys }, tag, groups: [group].into() }.to_bytes());
        let path = snapshot.directory().join(manifest::KEYS);
        std::fs::remove_file(&path).unwrap(); // it is read-only
        std::fs::write(path, bytes).unwrap();
    }

    fn kinds(store: &Path, level: VerifyLevel) -> Vec<FindingKind> {
        let report = OpenOptions::new().open(store).unwrap().snapshot().verify(level).unwrap();
        report.findings().iter().map(Finding::kind).collect()
    }

    /// Every checksum of the file matches, and its keys are not those of the shards. It has the length of the right file,
    /// so that it is used: only the comparison finds it, and the CRC-32 in the manifest.
    #[test]
    fn a_key_file_with_other_keys_is_found() {
        let store = TempDir::new();
        let mut loader = BuildOptions::new().ordered(true).durable(false).create(store.path()).unwrap();
        (0..1500u64).for_each(|key| loader.insert(2 * key, b"").unwrap());
        loader.finish().unwrap();
        let right: Vec<u64> = (0..1500).map(|key| 2 * key).collect();
        let in_blocks = |keys: &[u64]| keys.chunks(1024).map(<[u64]>::to_vec).collect::<Vec<_>>();

        replace(store.path(), &in_blocks(&right));
        assert_eq!(kinds(store.path(), VerifyLevel::Data), []);

        let shifted: Vec<u64> = right.iter().map(|key| key + 1).collect();
        replace(store.path(), &in_blocks(&shifted));
        let both = [FindingKind::AuxiliaryFile, FindingKind::KeyFile];
        assert_eq!(kinds(store.path(), VerifyLevel::Structure), both[..1]);
        assert_eq!(kinds(store.path(), VerifyLevel::Index), both);
        let snapshot = OpenOptions::new().open(store.path()).unwrap().snapshot();
        assert!(snapshot.is_ordered());
        let errors = snapshot.range(..10).map(|pair| pair.unwrap_err().key()).collect::<Vec<_>>();
        assert_eq!(errors, [1, 3, 5, 7, 9].map(Some), "a pair is never invented");

        // blocks that overlap: the second begins before the first ends
        let overlapping = [(0..1024).map(|key| 2 * key).collect(), (0..476).map(|key| 2000 + 2 * key).collect()];
        replace(store.path(), &overlapping);
        assert_eq!(kinds(store.path(), VerifyLevel::Data), both);
        let keys: Vec<u64> = snapshot_keys(store.path());
        assert!(keys.is_sorted_by(|one, next| one < next), "never out of order");
    }

    fn snapshot_keys(store: &Path) -> Vec<u64> {
        let snapshot = OpenOptions::new().open(store).unwrap().snapshot();
        snapshot.key_range(..).map(Result::unwrap).collect()
    }
}
