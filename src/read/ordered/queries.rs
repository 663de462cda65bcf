//! Ordered reads of a snapshot: ranges, the first and the last pair, counts, ranks.

use std::ops::RangeBounds;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::format::key_bounds::KeyBounds;
use crate::format::locks::{into_inner, lock};
use crate::read::ordered::key_range::KeyRange;
use crate::read::ordered::options::RangeOptions;
use crate::read::ordered::range::{Range, RangeEntry};
use crate::read::ordered::scan::{KeySink, scan_generation};
use crate::read::snapshot::Snapshot;

impl Snapshot {
    /// Iterates over the pairs whose keys are in `range`, in ascending order of keys, from both ends.
    ///
    /// The keys are those of [`key_range`](Snapshot::key_range), at the same cost, and each pair is a lookup. A bad value is
    /// an `Err` of [`RangeEntry::value`](crate::read::RangeEntry::value).
    pub fn range(&self, range: impl RangeBounds<u64>) -> Range {
        self.range_with(range, &RangeOptions::new())
    }

    /// Like [`range`](Snapshot::range), with options.
    pub fn range_with(&self, range: impl RangeBounds<u64>, options: &RangeOptions) -> Range {
        Range::new(self.key_range_with(range, options))
    }

    /// Iterates over the keys in `range`, in ascending order, from both ends, with [`seek`](KeyRange::seek).
    ///
    /// Each key is returned once, also if it is stored twice. A key that is stored in the wrong minishard is skipped,
    /// because lookups do not find it. A bad entry, minishard or shard is one `Err` before all keys; after 1,000 of them one
    /// more states the number of the others.
    ///
    /// Cost:
    ///
    /// - With a key file ([`is_ordered`](Snapshot::is_ordered)): O(log n) for this call. The iterator then reads one block
    ///   per 1,024 keys. Each block is verified. If one is damaged, the keys are read from the indexes instead.
    /// - With the identity hash and a narrow range, which at most 4,096 minishards can hold: this call reads the indexes of
    ///   those minishards, like lookups.
    /// - Otherwise this call reads all indexes, or with the identity hash all that can hold a key of the range, on all
    ///   cores, and sorts the keys in 8 to 16 bytes of memory per key of the range, at most 1 GiB. Above that it sorts by
    ///   temporary files. [`RangeOptions`](crate::read::RangeOptions) sets another limit.
    pub fn key_range(&self, range: impl RangeBounds<u64>) -> KeyRange {
        self.key_range_with(range, &RangeOptions::new())
    }

    /// Like [`key_range`](Snapshot::key_range), with options.
    pub fn key_range_with(&self, range: impl RangeBounds<u64>, options: &RangeOptions) -> KeyRange {
        KeyRange::new(self, &range, options)
    }

    /// Returns whether the generation has a key file, which makes ordered reads O(log n), under any hash.
    ///
    /// False also if the file is damaged so that it cannot be opened.
    pub fn is_ordered(&self) -> bool {
        self.generation.key_file().is_some()
    }

    /// Returns the pair with the smallest key; `None` if there are no pairs.
    ///
    /// Cost: O(log n) with a key file, otherwise reads all indexes.
    ///
    /// # Errors
    ///
    /// That of the first bad entry, minishard or shard, which may have the smallest key.
    pub fn first(&self) -> Result<Option<RangeEntry>> {
        self.end_pair(|keys| keys.next(), |(first, _)| first)
    }

    /// Returns the pair with the largest key; `None` if there are no pairs.
    ///
    /// Cost and errors: those of [`first`](Snapshot::first).
    ///
    /// # Errors
    ///
    /// That of the first bad entry, minishard or shard, which may have the largest key.
    pub fn last(&self) -> Result<Option<RangeEntry>> {
        self.end_pair(|keys| keys.next_back(), |(_, last)| last)
    }

    fn end_pair(
        &self,
        of_keys: impl Fn(&mut KeyRange) -> Option<Result<u64>>,
        of_ends: impl Fn((u64, u64)) -> u64,
    ) -> Result<Option<RangeEntry>> {
        let key = if self.is_ordered() {
            of_keys(&mut self.key_range(..)).transpose()?
        } else {
            let ends = Mutex::new(None);
            self.scan_all(KeyBounds::ALL, &|keys, _| {
                if let (Some(first), Some(last)) = (keys.iter().min(), keys.iter().max()) {
                    let mut ends = lock(&ends);
                    let (low, high) = ends.unwrap_or((*first, *last));
                    *ends = Some((low.min(*first), high.max(*last)));
                }
                Ok(())
            })?;
            into_inner(ends).map(of_ends)
        };
        key.map(|key| RangeEntry::find(self, key)).transpose()
    }

    /// Returns the number of keys in `range`.
    ///
    /// Cost: that of [`key_range`](Snapshot::key_range), without memory for keys.
    ///
    /// # Errors
    ///
    /// That of the first bad entry, minishard or shard of those that can hold a key of the range.
    pub fn count_range(&self, range: impl RangeBounds<u64>) -> Result<u64> {
        let Some(bounds) = KeyBounds::new(&range) else { return Ok(0) };
        if let Some(numbers) = self.generation.key_file().and_then(|file| file.numbers(bounds).ok()) {
            return Ok(numbers.end - numbers.start);
        }
        let count = AtomicU64::new(0);
        self.scan_all(bounds, &|keys, _| {
            count.fetch_add(keys.len() as u64, Ordering::Relaxed);
            Ok(())
        })?;
        Ok(count.into_inner())
    }

    /// Returns the rank of a key: the number of keys below it. The key may be absent.
    ///
    /// Cost: that of [`count_range`](Snapshot::count_range).
    ///
    /// # Errors
    ///
    /// Those of [`count_range`](Snapshot::count_range).
    pub fn rank(&self, key: u64) -> Result<u64> {
        self.count_range(..key)
    }

    /// Returns the key with this rank, 0 for the smallest key; `None` if there are at most `rank` keys.
    ///
    /// Cost: O(log n) with a key file ([`is_ordered`](Snapshot::is_ordered)); otherwise sorts all keys, so a program that
    /// selects several should keep a [`key_range`](Snapshot::key_range) and use `nth`.
    ///
    /// # Errors
    ///
    /// That of the first bad entry, minishard or shard.
    pub fn select(&self, rank: u64) -> Result<Option<u64>> {
        match usize::try_from(rank) {
            Ok(rank) => self.key_range(..).nth(rank).transpose(),
            Err(_) => Ok(None), // more keys than an address space has bytes
        }
    }

    /// Passes the keys of a range to `sink`.
    ///
    /// Errors: the first one that the scan met.
    fn scan_all(&self, bounds: KeyBounds, sink: &KeySink<'_>) -> Result<()> {
        match scan_generation(&self.generation, bounds, 0, sink)?.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}
