//! Walks over pairs in key order, which differs from the storage order.

use std::iter::FusedIterator;
use std::ops::RangeBounds;

use crate::error::{Error, Result};
use crate::read::shard::{Shard, Value};
use crate::read::snapshot::Snapshot;

impl Snapshot {
    /// Iterates over the pairs whose keys are in `range`, in ascending order of keys.
    ///
    /// A bad entry, minishard or shard is one `Err`, before all pairs. A bad value is an `Err` of
    /// [`RangeEntry::value`]. A key that is stored twice is returned once, with the value that [`get`](Snapshot::get)
    /// returns. A key that is stored in the wrong minishard is skipped.
    ///
    /// Cost: this call reads all indexes, since keys are placed by their hash, and keeps 8 bytes per key of the range.
    /// The iterator then looks keys up one by one.
    pub fn range(&self, range: impl RangeBounds<u64>) -> Range {
        let (mut keys, mut errors) = (Vec::new(), Vec::new());
        for key in self.keys() {
            match key {
                Ok(key) if range.contains(&key) => keys.push(key),
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        keys.sort_unstable();
        keys.dedup();
        Range { snapshot: self.clone(), errors: errors.into_iter(), keys: keys.into_iter() }
    }
}

/// An iterator over pairs in ascending order of keys; see [`Snapshot::range`].
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let snapshot = sharddb::ShardDb::open_pread("store")?.snapshot();
/// for pair in snapshot.range(100..200) {
///     let pair = pair?;
///     println!("{} has {} bytes", pair.key(), pair.value()?.len());
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Range {
    snapshot: Snapshot,
    errors: std::vec::IntoIter<Error>,
    keys: std::vec::IntoIter<u64>,
}

impl Iterator for Range {
    type Item = Result<RangeEntry>;

    fn next(&mut self) -> Option<Result<RangeEntry>> {
        if let Some(error) = self.errors.next() {
            return Some(Err(error));
        }
        loop {
            let key = self.keys.next()?;
            match self.snapshot.generation.find(key) {
                Ok(Some(found)) => return Some(Ok(RangeEntry { key, shard: found.shard.clone() })),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl FusedIterator for Range {}

/// A pair of a [`Range`]. Its value is read by [`value`](RangeEntry::value).
#[derive(Debug)]
pub struct RangeEntry {
    key: u64,
    shard: Shard,
}

impl RangeEntry {
    /// Returns the key.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Returns the value, as [`Snapshot::get`] does. Cost: a lookup.
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::get`].
    pub fn value(&self) -> Result<Value<'_>> {
        let value = self.shard.get(self.key)?;
        value.ok_or_else(|| Error::corrupt("expected the key in its index, as before, but found none").at_key(self.key))
    }
}
