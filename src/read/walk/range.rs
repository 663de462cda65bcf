//! Pairs by ascending key, which is not the order in which they are stored.

use std::iter::FusedIterator;
use std::ops::RangeBounds;

use crate::error::{Error, Result};
use crate::read::shard::{Shard, Value};
use crate::read::snapshot::Snapshot;

impl Snapshot {
    /// The pairs whose keys lie in `range`, by ascending key.
    ///
    /// Keys are placed by their hash, so all indexes are read first. Cost: that, and 8 bytes of memory for each key in
    /// the range; values are then looked up one by one. Of an id that is stored twice the pair that
    /// [`get`](Snapshot::get) finds is given, once; an id that is stored where its hash does not lead is left out.
    ///
    /// Errors: a bad shard or minishard is one `Err`, before the pairs; a bad value is one in its place.
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

/// Pairs by ascending key; see [`Snapshot::range`].
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

/// A pair of a [`Range`].
#[derive(Debug)]
pub struct RangeEntry {
    key: u64,
    shard: Shard,
}

impl RangeEntry {
    /// The key.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// The value, as [`Snapshot::get`] gives it.
    pub fn value(&self) -> Result<Value<'_>> {
        let value = self.shard.get(self.key)?;
        value.ok_or_else(|| Error::corrupt("expected a value that was there a moment ago, found none").at_key(self.key))
    }
}
