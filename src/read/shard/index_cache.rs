//! The cache of minishard indexes that cannot be searched quickly where they lie, bounded in bytes.
//!
//! Decoded indexes (gzip, unordered, or not in memory) and checkpoints of large raw ones live here. A hit takes no
//! lock and writes nothing that another thread writes: the cache is a table of slots that are loaded through
//! `arc-swap`, a place in it is one of the few that the location leads to, and hits are counted by thread. Whoever
//! inserts takes a lock and evicts what a clock hand comes by.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};

use crate::format::minishard_index::{Checkpoints, DecodedIndex};
use crate::ids::Location;

/// The slots that a location leads to.
const WAYS: usize = 4;

/// The number of slots to begin with; it grows when an entry finds none free.
const FIRST_SLOTS: usize = 64;

/// More slots an entry there are not: then one takes the place of another.
const MAX_SLOTS_AN_ENTRY: usize = 16;

/// What an entry takes beside its arrays: the heads of the allocations, their slots and their place in the queue.
const ENTRY_OVERHEAD: usize = 256;

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
    /// Replaced as a whole when it grows; who still looks into the one before finds what was there.
    slots: ArcSwap<Slots>,
    writer: Mutex<Writer>,
    /// In bytes; shared by the generations of a database, so that it can be changed while it is open.
    capacity: Arc<AtomicU64>,
    hits: Counter,
    misses: Counter,
}

/// Those that a location leads to lie side by side.
type Slots = Box<[ArcSwapOption<Entry>]>;

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
#[non_exhaustive]
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
            slots: ArcSwap::default(),
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
        let slots = self.slots.load();
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
            let mut writer = self.writer();
            writer.evict(&self.slots.load(), capacity - size); // before, so that the new one is not the one that goes
            while writer.should_grow(&self.slots.load(), location) {
                self.slots.store(writer.grown(&self.slots.load()));
            }
            writer.place(&self.slots.load(), entry.clone());
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
        let mut writer = self.writer(); // first: the slots may not be replaced meanwhile
        writer.evict(&self.slots.load(), keep);
    }

    fn capacity(&self) -> usize {
        usize::try_from(self.capacity.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    /// Whether all slots of a location are taken by others, and the table is not sparse already.
    fn should_grow(&self, slots: &Slots, location: Location) -> bool {
        let taken = |slot: &ArcSwapOption<Entry>| slot.load().as_ref().is_some_and(|it| it.location != location);
        slots.len() <= self.hand.len() * MAX_SLOTS_AN_ENTRY
            && ways(slots.len(), location).all(|slot| slots.get(slot).is_none_or(taken))
    }

    /// Twice the slots, with their entries.
    fn grown(&mut self, slots: &Slots) -> Arc<Slots> {
        let more = (0..FIRST_SLOTS.max(slots.len() * 2)).map(|_| ArcSwapOption::empty()).collect();
        let entries: Vec<_> =
            self.hand.drain(..).filter_map(|slot| slots.get(slot)).filter_map(|slot| slot.load_full()).collect();
        self.bytes = 0;
        entries.into_iter().for_each(|entry| self.place(&more, entry));
        Arc::new(more)
    }

    /// Puts an entry into one of its slots: where it is already, else a free one, else one not used recently.
    fn place(&mut self, slots: &Slots, entry: Arc<Entry>) {
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
    fn evict(&mut self, slots: &Slots, keep: usize) {
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

/// The slots that a location leads to, of so many: side by side.
#[inline]
fn ways(slots: usize, location: Location) -> std::ops::Range<usize> {
    // any two odd constants without a pattern: the upper half of a product depends on all bits below it
    let mixed = location.shard.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ location.minishard.0;
    let mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
    let sets = (slots / WAYS).max(1) as u64; // a power of two
    let first = usize::try_from(mixed & (sets - 1)).unwrap_or(0) * WAYS;
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
    use crate::ids::{MinishardNumber, ShardNumber};

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

    /// Threads that look up and insert what the others evict get what belongs to the location, and the cache stays
    /// within its capacity.
    #[test]
    fn many_threads_on_a_small_cache() {
        const GETS: u64 = 20_000;
        let (cache, capacity) = (MinishardCache::with_capacity(16 << 10), 16 << 10);
        let run = |seed: u64| {
            let mut state = seed;
            for _ in 0..GETS {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let number = (state >> 33) % 100; // of which the cache has room for some 30
                let cached = cache.get(location(number)).unwrap_or_else(|| {
                    let CachedIndex::Decoded(index, _) = index() else { unreachable!() };
                    cache.insert(location(number), CachedIndex::Decoded(index, number))
                });
                assert!(matches!(cached.index(), Some(CachedIndex::Decoded(_, end)) if *end == number));
                assert!(cache.stats().bytes <= capacity);
            }
        };
        let run = &run;
        std::thread::scope(|scope| (1..=8).for_each(|seed| drop(scope.spawn(move || run(seed)))));
        let stats = cache.stats();
        assert_eq!(stats.hits + stats.misses, 8 * GETS);
        assert!(stats.hits > 0 && stats.bytes > capacity / 2, "it is used: {stats:?}");
    }
}
