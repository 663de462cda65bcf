//! A cache of blocks with a budget in bytes, and the reads of blocks that are under way.
//!
//! One lock covers both, so that a block is in the cache, or is being read, or is read by the caller that finds neither. A
//! read belongs to the callers that wait for it: the cache forgets it when they have ended, and no caller waits for another.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use sharddb_format::internal::locks::lock;

/// Bytes of memory that an entry takes besides its block.
const ENTRY_BYTES: u64 = 256;

/// The cache: blocks `V` and reads `R` by their keys.
pub(crate) struct BlockCache<K, V, R>(Mutex<Blocks<K, V, R>>);

/// The content of a cache.
pub(crate) struct Blocks<K, V, R> {
    budget: u64,
    entries: HashMap<K, Entry<V>>,
    /// The keys of `entries` by their last use, oldest first.
    by_use: BTreeMap<u64, K>,
    uses: u64,
    bytes: u64,
    reads: HashMap<K, Weak<R>>,
}

struct Entry<V> {
    block: V,
    bytes: u64,
    last_use: u64,
}

impl<K: Eq + Hash + Copy, V: Clone, R> BlockCache<K, V, R> {
    pub(crate) fn new(budget: u64) -> BlockCache<K, V, R> {
        let (entries, by_use, reads) = (HashMap::new(), BTreeMap::new(), HashMap::new());
        BlockCache(Mutex::new(Blocks { budget, entries, by_use, uses: 0, bytes: 0, reads }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Blocks<K, V, R>> {
        lock(&self.0)
    }
}

impl<K: Eq + Hash + Copy, V: Clone, R> Blocks<K, V, R> {
    /// Returns a block that is in the cache.
    pub(crate) fn get(&mut self, key: K) -> Option<V> {
        let entry = self.entries.get_mut(&key)?;
        self.by_use.remove(&entry.last_use);
        self.uses += 1;
        entry.last_use = self.uses;
        self.by_use.insert(self.uses, key);
        Some(entry.block.clone())
    }

    /// Inserts a block, and evicts those whose last use is longest ago. A block above the budget is not kept.
    pub(crate) fn insert(&mut self, key: K, block: V, bytes: u64) {
        let bytes = bytes.saturating_add(ENTRY_BYTES);
        if bytes > self.budget {
            return;
        }
        self.remove(key);
        while self.bytes > self.budget - bytes
            && let Some((_, oldest)) = self.by_use.first_key_value()
        {
            let oldest = *oldest;
            self.remove(oldest);
        }
        self.uses += 1;
        self.by_use.insert(self.uses, key);
        self.entries.insert(key, Entry { block, bytes, last_use: self.uses });
        self.bytes += bytes;
    }

    /// Removes a block that was found to be damaged.
    pub(crate) fn remove(&mut self, key: K) {
        if let Some(entry) = self.entries.remove(&key) {
            self.by_use.remove(&entry.last_use);
            self.bytes -= entry.bytes;
        }
    }

    /// Returns the bytes that the blocks in the cache take.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the read of a block that is under way: that a caller waits for.
    pub(crate) fn read_of(&self, key: K) -> Option<Arc<R>> {
        self.reads.get(&key)?.upgrade()
    }

    /// Makes `read` the one that [`read_of`](Self::read_of) returns for these blocks. Forgets those that nobody waits for.
    pub(crate) fn begin(&mut self, reads: impl IntoIterator<Item = (K, Weak<R>)>) {
        self.reads.retain(|_, read| read.strong_count() > 0);
        self.reads.extend(reads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 1000;

    fn cache(blocks: u64) -> BlockCache<u32, &'static str, ()> {
        BlockCache::new(blocks * (BLOCK + ENTRY_BYTES))
    }

    #[test]
    fn evicts_the_block_whose_last_use_is_longest_ago() {
        let cache = cache(2);
        let mut blocks = cache.lock();
        blocks.insert(1, "one", BLOCK);
        blocks.insert(2, "two", BLOCK);
        assert_eq!(blocks.get(1), Some("one"));
        blocks.insert(3, "three", BLOCK);
        assert_eq!([blocks.get(1), blocks.get(2), blocks.get(3)], [Some("one"), None, Some("three")]);
        assert_eq!(blocks.bytes(), 2 * (BLOCK + ENTRY_BYTES));
        blocks.remove(1);
        assert_eq!((blocks.get(1), blocks.bytes()), (None, BLOCK + ENTRY_BYTES));
    }

    #[test]
    fn a_block_above_the_budget_is_not_kept_and_evicts_nothing() {
        let cache = cache(2);
        let mut blocks = cache.lock();
        blocks.insert(1, "one", BLOCK);
        blocks.insert(2, "large", 3 * BLOCK);
        assert_eq!([blocks.get(1), blocks.get(2)], [Some("one"), None]);
        blocks.insert(2, "two", BLOCK);
        assert_eq!(blocks.get(2), Some("two"));
    }

    #[test]
    fn a_read_is_found_as_long_as_a_caller_has_it() {
        let cache = cache(1);
        let mut blocks = cache.lock();
        let (one, two) = (Arc::new(()), Arc::new(()));
        blocks.begin([(1, Arc::downgrade(&one)), (2, Arc::downgrade(&two))]);
        assert!(blocks.read_of(1).is_some_and(|read| Arc::ptr_eq(&read, &one)));
        drop(one);
        assert!(blocks.read_of(1).is_none() && blocks.read_of(2).is_some());
        blocks.begin([(3, Arc::downgrade(&two))]);
        assert_eq!(blocks.reads.len(), 2);
    }
}
