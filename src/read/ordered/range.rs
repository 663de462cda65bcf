//! The iterator over the pairs of a range.

use std::fmt;
use std::iter::FusedIterator;

use crate::error::{Error, Result};
use crate::ids::Location;
use crate::read::ordered::key_range::KeyRange;
use crate::read::shard::{FoundKey, Shard, Value};
use crate::read::snapshot::Snapshot;

/// An iterator over the pairs of a range in ascending order of keys, from both ends; see [`Snapshot::range`].
///
/// ```
/// # let store = std::env::temp_dir().join(format!("sharddb-range-doc-{}", std::process::id()));
/// # let mut loader = sharddb::BulkLoader::create(&store)?;
/// # for key in 100..200 { loader.insert(key, b"value")?; }
/// # loader.finish()?;
/// let snapshot = sharddb::ShardDb::open(&store)?.snapshot();
/// for pair in snapshot.range(120..130).rev() {
///     let pair = pair?;
///     println!("{} has {} bytes", pair.key(), pair.value()?.len());
/// }
/// # std::fs::remove_dir_all(&store).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Debug)]
pub struct Range {
    keys: KeyRange,
}

impl Range {
    pub(super) fn new(keys: KeyRange) -> Range {
        Range { keys }
    }

    /// Returns the number of pairs that are left, in O(1). Errors do not count.
    pub fn remaining(&self) -> u64 {
        self.keys.remaining()
    }

    /// Moves the front to the first pair whose key is at least `key`, like [`KeyRange::seek`].
    pub fn seek(&mut self, key: u64) {
        self.keys.seek(key);
    }

    /// Moves the back to the last pair whose key is at most `key`, like [`KeyRange::seek_back`].
    pub fn seek_back(&mut self, key: u64) {
        self.keys.seek_back(key);
    }

    fn entry(&self, key: Option<Result<u64>>) -> Option<Result<RangeEntry>> {
        Some(key?.and_then(|key| RangeEntry::find(&self.keys.snapshot, key)))
    }
}

impl Iterator for Range {
    type Item = Result<RangeEntry>;

    fn next(&mut self) -> Option<Result<RangeEntry>> {
        let key = self.keys.next();
        self.entry(key)
    }

    fn nth(&mut self, skipped: usize) -> Option<Result<RangeEntry>> {
        let key = self.keys.nth(skipped);
        self.entry(key)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.keys.size_hint()
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Result<RangeEntry>> {
        let key = self.keys.next_back();
        self.entry(key)
    }

    fn nth_back(&mut self, skipped: usize) -> Option<Result<RangeEntry>> {
        let key = self.keys.nth_back(skipped);
        self.entry(key)
    }
}

impl FusedIterator for Range {}

/// A pair of a [`Range`]. The key is known; the value is read on demand. Keeps its shard open.
#[derive(Clone)]
pub struct RangeEntry {
    shard: Shard,
    found: FoundKey,
}

impl RangeEntry {
    /// Finds the pair of a key that is in an index or in the key file.
    pub(super) fn find(snapshot: &Snapshot, key: u64) -> Result<RangeEntry> {
        let Some(found) = snapshot.generation.find(key)? else {
            let message = "expected a key of the range in its minishard, found none there: the index or the key file is \
                           damaged; run `sharddb verify`";
            return Err(Error::corrupt(message).at_path(snapshot.directory()).at_key(key));
        };
        Ok(RangeEntry { shard: found.shard.clone(), found: found.key })
    }

    /// Returns the key.
    pub fn key(&self) -> u64 {
        self.found.row.id
    }

    /// Returns the shard and the minishard in which the pair is stored.
    pub fn location(&self) -> Location {
        Location { shard: self.shard.number(), minishard: self.found.minishard }
    }

    /// Returns the value, as [`Snapshot::get`] does.
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::get`].
    pub fn value(&self) -> Result<Value<'_>> {
        self.shard.reader().value(&self.found)
    }

    /// Returns the bytes between the value and the previous range that an index names, like
    /// [`Entry::preamble`](crate::shard::Entry::preamble).
    ///
    /// # Errors
    ///
    /// Those of [`value`](RangeEntry::value).
    pub fn preamble(&self) -> Result<Value<'_>> {
        self.shard.reader().located_preamble(&self.found)
    }
}

impl fmt::Debug for RangeEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeEntry").field("key", &self.key()).finish_non_exhaustive()
    }
}
