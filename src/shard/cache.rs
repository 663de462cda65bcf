//! The cache of minishard indexes that cannot be searched quickly where they lie, bounded in bytes.
//!
//! Decoded indexes (gzip, unordered, or not in memory) and checkpoints of large raw ones live here. A hit takes no
//! lock and writes nothing that another thread writes: the cache is a table of slots that are loaded through
//! `arc-swap`, a place in it is one of the few that the location leads to, and hits are counted by thread. Whoever
//! inserts takes a lock and evicts what a clock hand comes by.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::{ArcSwapOption, Guard};

use crate::format::minishard_index::{Checkpoints, DecodedIndex};
use crate::spec::Location;

/// The slots that a location leads to.
const WAYS: usize = 4;

/// There is a slot for so many bytes of the capacity: less than what most indexes take.
const BYTES_A_SLOT: u64 = 512;

/// Bounds of the number of slots.
const MIN_SLOTS: u64 = 256;
const MAX_SLOTS: u64 = 1 << 20;

/// What an entry takes beside its arrays: the heads of the allocations, its part of the table and of the queue.
const ENTRY_OVERHEAD: usize = 160;

/// What is kept of a minishard.
pub(crate) enum CachedIndex {
    Checkpoints(Checkpoints),
    /// With the end of the encoded index in the file, behind which the checks stand.
    Decoded(DecodedIndex, u64),
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

/// A hold of what is kept of a minishard, also when it is evicted meanwhile.
pub(crate) struct Cached(Guard<Option<Arc<Entry>>>);

impl Cached {
    /// `None` never: a hold is made of an entry.
    #[inline]
    pub(crate) fn index(&self) -> Option<&CachedIndex> {
        self.0.as_ref().map(|entry| &entry.index)
    }
}

/// A cache for all shards of a generation.
pub(crate) struct MinishardCache {
    /// Made at the first insertion.
    slots: OnceLock<Box<[ArcSwapOption<Entry>]>>,
    writer: Mutex<Writer>,
    /// In bytes; shared by the generations of a database, so that it can be changed while it is open.
    capacity: Arc<AtomicU64>,
    hits: Counter,
    misses: Counter,
}

struct Entry {
    location: Location,
    index: CachedIndex,
    recently_used: AtomicBool,
}

/// What insertion and eviction know.
#[derive(Default)]
struct Writer {
    /// The slots that are taken, in the order in which the clock hand comes by.
    hand: VecDeque<usize>,
    /// Held by all entries.
    bytes: usize,
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
            slots: OnceLock::new(),
            writer: Mutex::default(),
            capacity,
            hits: Counter::default(),
            misses: Counter::default(),
        }
    }

    /// A cache of its own capacity.
    pub(crate) fn with_capacity(bytes: u64) -> MinishardCache {
        MinishardCache::new(Arc::new(AtomicU64::new(bytes)))
    }

    #[inline]
    pub(crate) fn get(&self, location: Location) -> Option<Cached> {
        let found = self.find(location);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.add_one();
        found
    }

    #[inline]
    fn find(&self, location: Location) -> Option<Cached> {
        let slots = self.slots.get()?;
        ways(slots.len(), location).find_map(|slot| {
            let entry = slots.get(slot)?.load();
            let kept = entry.as_ref().filter(|entry| entry.location == location)?;
            // written only when it changes: a line that is only read stays with every processor
            if !kept.recently_used.load(Ordering::Relaxed) {
                kept.recently_used.store(true, Ordering::Relaxed);
            }
            Some(Cached(entry))
        })
    }

    /// Keeps an index, unless it alone exceeds the capacity; gives it back in any case.
    pub(crate) fn insert(&self, location: Location, index: CachedIndex) -> Cached {
        let size = index.size();
        let entry = Arc::new(Entry { location, index, recently_used: AtomicBool::new(false) });
        let capacity = self.capacity();
        if size <= capacity {
            let slots = self.slots.get_or_init(|| empty_slots(capacity));
            let mut writer = self.writer();
            writer.place(slots, entry.clone());
            writer.evict(slots, capacity);
        }
        Cached(Guard::from_inner(Some(entry)))
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
            hits: self.hits.sum(),
            misses: self.misses.sum(),
            bytes: self.writer().bytes as u64,
            capacity: self.capacity.load(Ordering::Relaxed),
        }
    }

    fn evict(&self, keep: usize) {
        if let Some(slots) = self.slots.get() {
            self.writer().evict(slots, keep);
        }
    }

    fn capacity(&self) -> usize {
        usize::try_from(self.capacity.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    /// Puts an entry into one of its slots: where it is already, else a free one, else one not used recently.
    fn place(&mut self, slots: &[ArcSwapOption<Entry>], entry: Arc<Entry>) {
        let rank = |slot: &usize| match slots.get(*slot).map(|slot| slot.load()).as_deref() {
            Some(Some(other)) if other.location == entry.location => 0,
            None | Some(None) => 1,
            Some(Some(other)) => 2 + u8::from(other.recently_used.load(Ordering::Relaxed)),
        };
        let place = ways(slots.len(), entry.location).min_by_key(rank);
        let Some((number, slot)) = place.and_then(|number| Some((number, slots.get(number)?))) else { return };
        self.bytes += entry.index.size();
        match slot.swap(Some(entry)) {
            Some(other) => self.bytes -= other.index.size(),
            None => self.hand.push_back(number),
        }
    }

    /// Evicts what was not used since the hand last came by, until at most `keep` bytes are left.
    fn evict(&mut self, slots: &[ArcSwapOption<Entry>], keep: usize) {
        while self.bytes > keep
            && let Some(number) = self.hand.pop_front()
        {
            let Some(slot) = slots.get(number) else { continue };
            match &*slot.load() {
                Some(entry) if entry.recently_used.swap(false, Ordering::Relaxed) => self.hand.push_back(number),
                Some(entry) => {
                    self.bytes -= entry.index.size();
                    slot.store(None);
                }
                None => {}
            }
        }
    }
}

fn empty_slots(capacity: usize) -> Box<[ArcSwapOption<Entry>]> {
    let slots = (capacity as u64 / BYTES_A_SLOT).clamp(MIN_SLOTS, MAX_SLOTS).next_power_of_two();
    (0..slots).map(|_| ArcSwapOption::empty()).collect()
}

/// The slots that a location leads to, of so many: side by side.
#[inline]
fn ways(slots: usize, location: Location) -> std::ops::Range<usize> {
    // any two odd constants without a pattern: the upper half of a product depends on all bits below it
    let mixed = location.shard.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ location.minishard.0;
    let mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
    let sets = (slots / WAYS).max(1) as u64;
    let first = usize::try_from(mixed % sets).unwrap_or(0) * WAYS;
    first..first + WAYS
}

/// A sum to which many threads add at once, each in a cache line of its own.
#[derive(Default)]
struct Counter([Stripe; STRIPES]);

/// Threads beyond it share.
const STRIPES: usize = 16;

#[derive(Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The stripe of this thread.
    static STRIPE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES;
}

impl Counter {
    #[inline]
    fn add_one(&self) {
        let stripe = STRIPE.try_with(|stripe| *stripe).unwrap_or(0);
        if let Some(Stripe(count)) = self.0.get(stripe) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::minishard_index::RawIndex;
    use crate::spec::{MinishardNumber, ShardNumber};

    fn index() -> CachedIndex {
        CachedIndex::Decoded(DecodedIndex::new(RawIndex::view(&[0; 24 * 10]).unwrap()), 0)
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
