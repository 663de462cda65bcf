//! A bounded sample of keys that does not depend on insertion order.
//!
//! Each key has a depth: the number of leading zeros of the hash of its block, an aligned range of `2^block_bits`
//! numbers. At level `l` the sample is every key of depth `l` or more. When that exceeds the capacity, the level rises,
//! which drops about half of the blocks. The final level is the lowest at which the distinct keys fit, so the sample is
//! a function of the set of keys: insertion order, repeated keys and the split over threads have no influence.
//!
//! Blocks of one number give a uniform sample of the keys. Larger blocks keep neighbouring keys together, which shows
//! how full short ranges of numbers are.

use crate::format::hash::HashFunction;

/// The largest number of distinct keys in a settled sample.
const CAPACITY: usize = 24 << 10;

/// The largest number of keys in memory. The slack makes sorting rare.
pub(super) const LIMIT: usize = CAPACITY + CAPACITY / 8;

#[derive(Clone, Debug)]
pub(super) struct KeySample {
    block_bits: u8,
    pub(super) level: u32,
    pub(super) keys: Vec<u64>, // every key of depth `level` or more; unordered, possibly repeated
}

impl KeySample {
    /// A sample of aligned blocks of `2^block_bits` numbers.
    pub(super) fn new(block_bits: u8) -> KeySample {
        KeySample { block_bits, level: 0, keys: Vec::new() }
    }

    #[inline]
    fn depth(&self, key: u64) -> u32 {
        HashFunction::MurmurHash3X86_128.hash(key >> self.block_bits).leading_zeros()
    }

    #[inline]
    pub(super) fn insert(&mut self, key: u64) {
        if self.depth(key) >= self.level {
            self.admit(key);
        }
    }

    #[inline(never)]
    fn admit(&mut self, key: u64) {
        let len = self.keys.len();
        if len == LIMIT {
            self.settle();
            return self.insert(key);
        }
        if len == self.keys.capacity() {
            self.keys.reserve_exact(len.clamp(64, LIMIT - len)); // doubles, but stays within the limit
        }
        self.keys.push(key);
    }

    pub(super) fn merge(&mut self, other: &KeySample) {
        if other.level > self.level {
            self.raise(other.level);
        }
        for &key in &other.keys {
            self.insert(key);
        }
    }

    fn settle(&mut self) {
        self.keys.sort_unstable();
        self.keys.dedup();
        while self.keys.len() > CAPACITY {
            self.raise(self.level + 1);
        }
    }

    fn raise(&mut self, level: u32) {
        let mut keys = std::mem::take(&mut self.keys);
        keys.retain(|key| self.depth(*key) >= level);
        (self.keys, self.level) = (keys, level);
    }

    /// The sample with distinct keys in ascending order. Sorts a copy of at most 27,648 keys.
    pub(super) fn settled(&self) -> KeySample {
        let mut settled = self.clone();
        settled.settle();
        settled
    }
}

impl PartialEq for KeySample {
    fn eq(&self, other: &KeySample) -> bool {
        let (one, other) = (self.settled(), other.settled());
        (one.level, one.keys) == (other.level, other.keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn murmur(number: u64) -> u64 {
        HashFunction::MurmurHash3X86_128.hash(number)
    }

    fn sample(block_bits: u8, keys: impl IntoIterator<Item = u64>) -> KeySample {
        let mut sample = KeySample::new(block_bits);
        keys.into_iter().for_each(|key| sample.insert(key));
        sample.settled()
    }

    #[test]
    fn holds_the_keys_of_the_lowest_level_that_fits() {
        for (count, block_bits) in [(1_000, 0), (24 << 10, 0), (100_000, 0), (100_000, 10)] {
            for keys in [(0..count).collect::<Vec<u64>>(), (0..count).map(murmur).collect()] {
                let found = sample(block_bits, keys.iter().copied());
                let depth = |key| murmur(key >> block_bits).leading_zeros();
                let at = |level| keys.iter().filter(|key| depth(**key) >= level).count();
                assert_eq!(found.keys.len(), at(found.level));
                assert!(found.keys.len() <= CAPACITY);
                assert!(found.level == 0 || at(found.level - 1) > CAPACITY);
            }
        }
    }

    #[test]
    fn repeated_keys_do_not_count() {
        let twice = (0..20_000).chain((0..20_000).rev());
        assert_eq!(sample(0, twice), sample(0, 0..20_000));
        let often = std::iter::repeat_n(7, 100_000).chain(0..100_000);
        assert_eq!(sample(0, often), sample(0, 0..100_000));
    }

    #[test]
    fn keeps_blocks_whole() {
        let found = sample(10, 0..200_000);
        let blocks: Vec<_> = found.keys.chunk_by(|a, b| a >> 10 == b >> 10).collect();
        assert!(blocks.len() > 4 && blocks.iter().all(|block| block.len() == 1024 || block[0] >> 10 == 200_000 >> 10));
    }
}
