//! The cache of minishard indexes that cannot be searched quickly where they lie, bounded in bytes.
//!
//! Decoded indexes (gzip, unordered, or not in memory) and checkpoints of large raw ones live here. It is split into
//! segments so that threads seldom meet; each is swept by a clock hand. The capacity is that of all segments together.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::format::minishard_index::{Checkpoints, DecodedIndex};
use crate::hash::HashFunction;
use crate::spec::Location;

const SEGMENTS: usize = 16;

/// What an entry takes beside its arrays: the map's slot, the queue's slot, the heads of the allocations.
const ENTRY_OVERHEAD: usize = 160;

/// What is kept of a minishard.
#[derive(Clone)]
pub(crate) enum CachedIndex {
    Checkpoints(Arc<Checkpoints>),
    /// With the end of the encoded index in the file, behind which the checks stand.
    Decoded(Arc<DecodedIndex>, u64),
}

impl CachedIndex {
    fn size(&self) -> usize {
        ENTRY_OVERHEAD
            + match self {
                Self::Checkpoints(checkpoints) => checkpoints.size(),
                Self::Decoded(index, _) => index.size(),
            }
    }
}

/// A cache for all shards of a generation.
pub(crate) struct MinishardCache {
    segments: [RwLock<Segment>; SEGMENTS],
    /// Held by all segments.
    bytes: AtomicUsize,
    /// In bytes; shared by the generations of a database, so that it can be changed while it is open.
    capacity: Arc<AtomicU64>,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Default)]
struct Segment {
    entries: HashMap<Location, CacheEntry>,
    hand: VecDeque<Location>,
}

struct CacheEntry {
    index: CachedIndex,
    recently_used: AtomicBool,
}

/// What the cache of minishard indexes did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups that found their minishard index decoded.
    pub hits: u64,
    /// Lookups that had to decode it.
    pub misses: u64,
    /// Bytes held now.
    pub bytes: u64,
    /// Bytes that may be held.
    pub capacity: u64,
}

impl MinishardCache {
    pub(crate) fn new(capacity: Arc<AtomicU64>) -> MinishardCache {
        MinishardCache {
            segments: Default::default(),
            bytes: AtomicUsize::new(0),
            capacity,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// A cache of its own capacity.
    pub(crate) fn with_capacity(bytes: u64) -> MinishardCache {
        MinishardCache::new(Arc::new(AtomicU64::new(bytes)))
    }

    pub(crate) fn get(&self, location: Location) -> Option<CachedIndex> {
        let segment = self.read(location);
        let entry = segment.entries.get(&location);
        let counter = if entry.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        let entry = entry?;
        if !entry.recently_used.load(Ordering::Relaxed) {
            entry.recently_used.store(true, Ordering::Relaxed);
        }
        Some(entry.index.clone())
    }

    /// Keeps an index, unless it alone exceeds the capacity.
    pub(crate) fn insert(&self, location: Location, index: CachedIndex) {
        let size = index.size();
        if size > self.capacity() {
            return;
        }
        self.evict(self.capacity() - size);
        let mut segment = self.write(location);
        let entry = CacheEntry { index, recently_used: AtomicBool::new(false) };
        self.bytes.fetch_add(size, Ordering::Relaxed);
        match segment.entries.insert(location, entry) {
            Some(raced) => drop(self.bytes.fetch_sub(raced.index.size(), Ordering::Relaxed)),
            None => segment.hand.push_back(location),
        }
    }

    /// Brings the content below the capacity, after that was lowered.
    pub(crate) fn shrink(&self) {
        self.evict(self.capacity());
    }

    /// Drops the content.
    pub(crate) fn clear(&self) {
        self.evict(0);
    }

    pub(crate) fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed) as u64,
            capacity: self.capacity.load(Ordering::Relaxed),
        }
    }

    fn capacity(&self) -> usize {
        usize::try_from(self.capacity.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Evicts from one segment after another until at most `keep` bytes are left.
    fn evict(&self, keep: usize) {
        while self.bytes.load(Ordering::Relaxed) > keep {
            let mut freed = 0;
            for segment in &self.segments {
                if self.bytes.load(Ordering::Relaxed) > keep {
                    let size = segment.write().unwrap_or_else(PoisonError::into_inner).evict_one();
                    self.bytes.fetch_sub(size, Ordering::Relaxed);
                    freed += size;
                }
            }
            if freed == 0 {
                break; // what is left is being inserted by others right now
            }
        }
    }

    fn read(&self, location: Location) -> RwLockReadGuard<'_, Segment> {
        self.segment(location).read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, location: Location) -> RwLockWriteGuard<'_, Segment> {
        self.segment(location).write().unwrap_or_else(PoisonError::into_inner)
    }

    #[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "reduced modulo the length")]
    fn segment(&self, location: Location) -> &RwLock<Segment> {
        let mixed = HashFunction::MurmurHash3X86_128.hash(location.shard.0 ^ location.minishard.0.rotate_left(32));
        &self.segments[mixed as usize % SEGMENTS]
    }
}

impl Segment {
    /// Evicts the first entry that was not used since the hand last came by; its size.
    fn evict_one(&mut self) -> usize {
        while let Some(location) = self.hand.pop_front() {
            let spared =
                self.entries.get(&location).is_some_and(|entry| entry.recently_used.swap(false, Ordering::Relaxed));
            if spared {
                self.hand.push_back(location);
            } else if let Some(entry) = self.entries.remove(&location) {
                return entry.index.size();
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::minishard_index::RawIndex;
    use crate::spec::{MinishardNumber, ShardNumber};

    fn index() -> CachedIndex {
        CachedIndex::Decoded(Arc::new(DecodedIndex::new(RawIndex::view(&[0; 24 * 10]).unwrap())), 0)
    }

    fn location(minishard: u64) -> Location {
        Location { shard: ShardNumber(0), minishard: MinishardNumber(minishard) }
    }

    #[test]
    fn stays_within_its_capacity_and_counts() {
        let capacity = Arc::new(AtomicU64::new(32 << 10));
        let cache = MinishardCache::new(capacity.clone());
        for minishard in 0..1000 {
            assert!(cache.get(location(minishard)).is_none());
            cache.insert(location(minishard), index());
            assert!(cache.get(location(minishard)).is_some());
            assert!(cache.stats().bytes <= 32 << 10);
        }
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses), (1000, 1000));
        assert!(stats.bytes > 31 << 10, "it holds about as much as it may");
        capacity.store(0, Ordering::Relaxed);
        cache.shrink();
        assert_eq!(cache.stats().bytes, 0);
        cache.insert(location(0), index());
        assert_eq!(cache.stats().bytes, 0, "what alone exceeds it is not kept");
    }

    #[test]
    fn the_same_minishard_twice_is_counted_once() {
        let cache = MinishardCache::with_capacity(1 << 20);
        cache.insert(location(1), index());
        let bytes = cache.stats().bytes;
        cache.insert(location(1), index());
        assert_eq!(cache.stats().bytes, bytes);
    }
}
