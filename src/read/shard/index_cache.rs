//! A cache, bounded in bytes, of minishard indexes that cannot be searched efficiently in place.
//!
//! It contains sorted copies of indexes (those that are gzip, are read by positioned reads, or have more than 64 keys
//! that do not ascend) and checkpoints of other raw indexes of more than 64 keys. For positioned reads, it also contains
//! the places of the indexes that the minishard map does not have.
//!
//! The cache is a set-associative table of slots. A hit loads the few slots of its key through `arc-swap`, without
//! a lock. It writes to memory that other threads use only if the entry is not marked as recently used yet. Its counter
//! is striped over the threads. An insertion evicts entries by the clock algorithm, under a lock. It never waits for the
//! lock: a lookup whose index is not inserted has it all the same.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};

use crate::byte_range::{ByteRange, RelativeRange};
use crate::format::locks::{lock, try_lock};
use crate::format::minishard_index::{Checkpoints, SortedIndex};
use crate::format::minishard_table::BLOCK_BITS;
use crate::ids::MinishardNumber;

/// The number of slots of a key.
const WAYS: usize = 4;

/// The initial number of slots. The table grows when a new entry finds no free slot.
const FIRST_SLOTS: usize = 64;

/// The table grows only while it has at most this many slots per entry; it never has more than twice as many. A new entry
/// that finds no free slot in a larger table replaces another.
const MAX_SLOTS_PER_ENTRY: usize = 4;

/// The bytes of an entry in addition to its arrays: allocation headers, slots, and its position in the clock queue.
const ENTRY_OVERHEAD: usize = 256;

/// What is cached of a minishard index, with the range in the file of the encoded index from which it was made.
pub(crate) enum CachedPart {
    Checkpoints(Checkpoints, ByteRange),
    /// With the checks of the index and its values, which begin at the end of the range; empty if they were not read.
    Sorted(SortedIndex, ByteRange, Box<[u8]>),
    /// The stated ranges of the indexes of a block of minishards.
    Places(Box<[Option<RelativeRange>]>),
}

impl CachedPart {
    /// Returns the range of the encoded index in the file.
    pub(crate) fn range(&self) -> Option<ByteRange> {
        match self {
            Self::Checkpoints(_, range) | Self::Sorted(_, range, _) => Some(*range),
            Self::Places(_) => None,
        }
    }

    fn size(&self) -> usize {
        ENTRY_OVERHEAD
            + match self {
                Self::Checkpoints(checkpoints, _) => checkpoints.size(),
                Self::Sorted(index, _, checks) => index.size() + checks.len(),
                Self::Places(places) => size_of_val(&**places),
            }
    }
}

/// A handle to a cached index. Stays valid after eviction.
pub(crate) struct Cached(Guard<Option<Arc<Entry>>>);

impl Cached {
    /// Returns what is cached. Always `Some`, because handles are created only from entries.
    #[inline]
    pub(crate) fn part(&self) -> Option<&CachedPart> {
        self.0.as_ref().map(|entry| &entry.part)
    }
}

/// The key of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheKey {
    /// The open shard, numbered by [`MinishardCache::add_shard`]. Generations differ in the shards of a number, and have
    /// one cache.
    pub(crate) shard: u64,
    /// The first minishard of the block for places.
    pub(crate) minishard: MinishardNumber,
    /// Whether the entry has the places of a block, and not the index of a minishard.
    pub(crate) has_places: bool,
}

/// A cache for all shards of a database: those of the current generation, and those of older ones that are still in
/// use. Entries of closed shards are evicted like others that are not used.
pub(crate) struct MinishardCache {
    /// Replaced when it grows. Concurrent lookups may still use the old table, whose entries stay valid.
    slots: ArcSwap<Slots>,
    writer: Mutex<Writer>,
    /// In bytes.
    capacity: AtomicU64,
    /// The number of shards that were added.
    shards: AtomicU64,
    hits: Counter,
    misses: Counter,
}

/// The slots of a key are adjacent.
type Slots = Box<[ArcSwapOption<Entry>]>;

struct Entry {
    key: CacheKey,
    part: CachedPart,
    recently_used: AtomicBool,
}

/// The state of insertion and eviction.
#[derive(Default)]
struct Writer {
    /// The queue of the clock algorithm: the numbers of the occupied slots, in the order in which eviction visits them.
    clock: VecDeque<usize>,
    /// The bytes of all entries.
    bytes: usize,
}

/// Counters of the cache of minishard indexes; see [`Snapshot::stats`](crate::Snapshot::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Lookups that found their minishard index in the cache.
    pub hits: u64,
    /// Lookups that did not find it.
    pub misses: u64,
    /// Bytes of the current entries.
    pub bytes: u64,
    /// Upper bound on `bytes`.
    pub capacity: u64,
}

impl MinishardCache {
    /// Creates a cache of this capacity in bytes.
    pub(crate) fn new(capacity: u64) -> MinishardCache {
        MinishardCache {
            slots: ArcSwap::default(),
            writer: Mutex::default(),
            capacity: AtomicU64::new(capacity),
            shards: AtomicU64::new(0),
            hits: Counter::default(),
            misses: Counter::default(),
        }
    }

    /// Returns a number for an open shard.
    pub(crate) fn add_shard(&self) -> u64 {
        self.shards.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the entry of a key, and counts the access.
    #[inline]
    pub(crate) fn get(&self, key: CacheKey) -> Option<Cached> {
        let found = self.find(key);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.add_one();
        found
    }

    /// Returns the entry of a key.
    #[inline]
    pub(crate) fn find(&self, key: CacheKey) -> Option<Cached> {
        let slots = self.slots.load();
        ways(slots.len(), key).find_map(|slot| {
            let entry = slots.get(slot)?.load();
            let kept = entry.as_ref().filter(|entry| entry.key == key)?;
            // written only when it changes: a cache line that is only read stays shared among the cores
            if !kept.recently_used.load(Ordering::Relaxed) {
                kept.recently_used.store(true, Ordering::Relaxed);
            }
            Some(Cached(entry))
        })
    }

    /// Whether the capacity is enough for the places of a block, and for as much again.
    pub(crate) fn has_room_for_places(&self) -> bool {
        self.capacity() >= 2 * (size_of::<Option<RelativeRange>>() << BLOCK_BITS)
    }

    /// Inserts an entry, unless it alone exceeds the capacity, or another thread inserts one now. Returns a handle to it in
    /// any case.
    pub(crate) fn insert(&self, key: CacheKey, part: CachedPart) -> Cached {
        let size = part.size();
        let entry = Arc::new(Entry { key, part, recently_used: AtomicBool::new(false) });
        let capacity = self.capacity();
        let mut replaced = Vec::new(); // dropped after `writer`: arc-swap asks every thread about each slot
        if size <= capacity
            && let Some(mut writer) = try_lock(&self.writer)
        {
            writer.evict(&self.slots.load(), capacity - size); // before the insertion, so that the new entry stays
            while writer.should_grow(&self.slots.load(), key) {
                let grown = writer.grown(&self.slots.load());
                replaced.push(self.slots.swap(grown));
            }
            writer.place(&self.slots.load(), entry.clone());
        }
        Cached(Guard::from_inner(Some(entry)))
    }

    /// Changes the capacity, and evicts entries down to it.
    pub(crate) fn set_capacity(&self, bytes: u64) {
        self.capacity.store(bytes, Ordering::Relaxed);
        self.evict(self.capacity());
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
        let mut writer = self.writer(); // locked first, so that the table is not replaced meanwhile
        writer.evict(&self.slots.load(), keep);
    }

    fn capacity(&self) -> usize {
        usize::try_from(self.capacity.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        lock(&self.writer)
    }
}

impl Writer {
    /// Whether all slots of a key are occupied by other keys, and the table is below its maximum size.
    fn should_grow(&self, slots: &Slots, key: CacheKey) -> bool {
        let taken = |slot: &ArcSwapOption<Entry>| slot.load().as_ref().is_some_and(|it| it.key != key);
        slots.len() <= self.clock.len() * MAX_SLOTS_PER_ENTRY
            && ways(slots.len(), key).all(|slot| slots.get(slot).is_none_or(taken))
    }

    /// Creates a table with twice the slots and the same entries.
    fn grown(&mut self, slots: &Slots) -> Arc<Slots> {
        let mut more = vec![None; FIRST_SLOTS.max(slots.len() * 2)];
        let entries = self.clock.drain(..).filter_map(|slot| slots.get(slot)?.load_full());
        let mut clock = VecDeque::new();
        for entry in entries {
            // keys that shared their slots are divided between two sets of slots, so there is a free one
            let free = ways(more.len(), entry.key).find(|slot| more.get(*slot).is_some_and(Option::is_none));
            match free.and_then(|number| Some((number, more.get_mut(number)?))) {
                Some((number, slot)) => {
                    *slot = Some(entry);
                    clock.push_back(number);
                }
                None => self.bytes -= entry.part.size(),
            }
        }
        self.clock = clock;
        Arc::new(more.into_iter().map(ArcSwapOption::new).collect())
    }

    /// Stores an entry in one of its slots: that of the same key, else a free one, else one that was not used
    /// recently.
    fn place(&mut self, slots: &Slots, entry: Arc<Entry>) {
        let rank = |slot: &usize| match slots.get(*slot).map(|slot| slot.load()).as_deref() {
            Some(Some(other)) if other.key == entry.key => 0,
            None | Some(None) => 1,
            Some(Some(other)) => 2 + u8::from(other.recently_used.load(Ordering::Relaxed)),
        };
        let place = ways(slots.len(), entry.key).min_by_key(rank);
        let Some((number, slot)) = place.and_then(|number| Some((number, slots.get(number)?))) else { return };
        self.bytes += entry.part.size();
        match slot.swap(Some(entry)) {
            Some(other) => self.bytes -= other.part.size(),
            None => self.clock.push_back(number),
        }
    }

    /// Evicts entries until at most `keep` bytes are left. Spares an entry that was used since the last visit to it.
    fn evict(&mut self, slots: &Slots, keep: usize) {
        while self.bytes > keep
            && let Some(number) = self.clock.pop_front()
        {
            let Some(slot) = slots.get(number) else { continue };
            match &*slot.load() {
                Some(entry) if entry.recently_used.swap(false, Ordering::Relaxed) => self.clock.push_back(number),
                Some(entry) => {
                    self.bytes -= entry.part.size();
                    slot.store(None);
                }
                None => {}
            }
        }
    }
}

/// Returns the slots of a key in a table of `slots` slots.
#[inline]
fn ways(slots: usize, key: CacheKey) -> std::ops::Range<usize> {
    // two arbitrary odd constants; the upper half of the product depends on all lower bits
    let mixed = key.shard.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ key.minishard.get() ^ u64::from(key.has_places) << 63;
    let mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
    let sets = (slots / WAYS).max(1) as u64; // a power of two
    let first = usize::try_from(mixed & (sets - 1)).unwrap_or(0) * WAYS;
    first..first + WAYS
}

/// A counter that many threads increment, striped over cache lines to avoid contention.
#[derive(Default)]
struct Counter([Stripe; STRIPES]);

/// The number of stripes. With more threads, several share a stripe.
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
    use crate::format::minishard_index::IndexView;
    use crate::ids::minishard_number;

    fn index() -> CachedPart {
        index_at(0)
    }

    fn index_at(start: u64) -> CachedPart {
        let index = SortedIndex::new(IndexView::view(&[0; 24 * 10]).unwrap());
        CachedPart::Sorted(index, ByteRange { start, end: start + 240 }, Box::default())
    }

    fn key(minishard: u64) -> CacheKey {
        CacheKey { shard: 0, minishard: minishard_number(minishard), has_places: false }
    }

    #[test]
    fn stays_within_its_capacity_and_counts() {
        let cache = MinishardCache::new(32 << 10);
        for minishard in 0..1000 {
            assert!(cache.get(key(minishard)).is_none());
            cache.insert(key(minishard), index());
            assert!(cache.get(key(minishard)).is_some());
            assert!(cache.stats().bytes <= 32 << 10);
        }
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses), (1000, 1000));
        assert!(stats.bytes > 31 << 10, "it holds about as much as it may");
        cache.set_capacity(0);
        assert_eq!(cache.stats().bytes, 0);
        cache.insert(key(0), index());
        assert_eq!(cache.stats().bytes, 0, "what alone exceeds it is not kept");
    }

    #[test]
    fn the_same_minishard_twice_is_counted_once() {
        let cache = MinishardCache::new(1 << 20);
        cache.insert(key(1), index());
        let bytes = cache.stats().bytes;
        cache.insert(key(1), index());
        assert_eq!(cache.stats().bytes, bytes);
    }

    #[test]
    fn growth_keeps_all_entries() {
        let cache = MinishardCache::new(1 << 30);
        let size = index().size() as u64;
        for minishard in 0..10_000 {
            cache.insert(key(minishard), index_at(minishard));
        }
        let kept = (0..10_000).filter(|minishard| cache.get(key(*minishard)).is_some()).count() as u64;
        assert_eq!(cache.stats().bytes, kept * size);
        // a key is displaced only if four others have its slots
        assert!(kept > 9_800, "{kept} of 10,000 entries are left");
    }

    /// Threads that look up and insert entries that others evict get the entry of their key, and the cache stays
    /// within its capacity.
    #[test]
    fn many_threads_on_a_small_cache() {
        const GETS: u64 = 20_000;
        let (cache, capacity) = (MinishardCache::new(16 << 10), 16 << 10);
        let run = |seed: u64| {
            let mut state = seed;
            for _ in 0..GETS {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let number = (state >> 33) % 100; // the cache has room for about 30
                let found = cache.get(key(number));
                let cached = found.unwrap_or_else(|| cache.insert(key(number), index_at(number)));
                assert!(cached.part().and_then(CachedPart::range).is_some_and(|range| range.start == number));
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
