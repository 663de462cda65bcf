//! Samples of keys that do not depend on the order in which the keys came.
//!
//! A [`Rule`] gives every key a depth; at level `l` the sample is all keys of depth `l` or more. When they are
//! too many, the level rises. The level, and with it the sample, is a function of the *set* of keys alone: it
//! is the lowest level at which the distinct keys fit. So any order, any repetition and any split over threads
//! gives the same sample.
//!
//! What counts for a planner is which keys stay *together*. A plain random sample says little about minishards
//! of six keys when it keeps one key in a hundred; one that keeps a hundredth of the minishards, each of them
//! whole, says nearly all. Hence three rules.

use std::marker::PhantomData;

use crate::format::hash::HashFunction;

/// Which keys a sample gives up first.
pub(super) trait Rule {
    /// The most distinct keys that a sample holds when settled.
    const CAPACITY: usize;

    /// The key stays up to this level; each level keeps about half of the one before.
    fn depth(key: u64) -> u32;
}

/// Each key on its own: a uniform sample of the distinct keys.
#[derive(Clone, Debug)]
pub(super) enum ByKey {}

impl Rule for ByKey {
    const CAPACITY: usize = 24 << 10;

    #[inline]
    fn depth(key: u64) -> u32 {
        murmur(key).leading_zeros()
    }
}

/// Aligned blocks of `2^BITS` numbers, whole: what shares a minishard under a preshift stays together.
#[derive(Clone, Debug)]
pub(super) enum ByBlock {}

impl ByBlock {
    pub(super) const BITS: u8 = 10;
}

impl Rule for ByBlock {
    const CAPACITY: usize = 24 << 10;

    #[inline]
    fn depth(key: u64) -> u32 {
        murmur(key >> Self::BITS).leading_zeros()
    }
}

/// Keys with equal low bits, whole: what shares a minishard under identity stays together.
///
/// For each pattern of the lowest `STRATA_BITS` bits the sample follows one random path through the bits above,
/// one bit a level. So at level `l` it holds all keys that agree with one of the paths in
/// `STRATA_BITS + l` bits.
#[derive(Clone, Debug)]
pub(super) enum ByLowBits {}

impl ByLowBits {
    const STRATA_BITS: u8 = 9;

    /// The keys that share this many low bits are in or out together.
    pub(super) fn shared_bits(level: u32) -> u32 {
        u32::from(Self::STRATA_BITS) + level
    }
}

impl Rule for ByLowBits {
    const CAPACITY: usize = 32 << 10;

    #[inline]
    fn depth(key: u64) -> u32 {
        (mix_upwards(key) >> Self::STRATA_BITS).trailing_zeros()
    }
}

#[inline]
fn murmur(number: u64) -> u64 {
    HashFunction::MurmurHash3X86_128.hash(number)
}

/// A bijection in which a bit of the result depends on no higher bit of `number`: wrapping products and left
/// shifts only carry upwards. Bit `b` is bit `b` of the number or its complement, as the bits below decide.
#[inline]
fn mix_upwards(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mixed = (mixed ^ (mixed << 7)).wrapping_mul(0xa5a3_5625_e5b1_9a6b);
    (mixed ^ (mixed << 13)).wrapping_mul(0x9e6d_62d0_6f6a_9a9b)
}

/// The keys that a rule keeps.
#[derive(Clone, Debug)]
pub(super) struct Sample<R> {
    level: u32,
    keys: Vec<u64>, // all of depth `level` or more; unordered, repetitions not yet removed
    rule: PhantomData<R>,
}

/// The content of a [`Sample`]: distinct keys in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settled {
    pub(super) level: u32,
    pub(super) keys: Vec<u64>,
}

impl<R: Rule> Sample<R> {
    /// Keys in memory at most: the slack makes the sorting of a settlement rare.
    pub(super) const LIMIT: usize = R::CAPACITY + R::CAPACITY / 8;

    pub(super) fn new() -> Sample<R> {
        Sample { level: 0, keys: Vec::new(), rule: PhantomData }
    }

    #[inline]
    pub(super) fn insert(&mut self, key: u64) {
        if R::depth(key) >= self.level {
            self.admit(key);
        }
    }

    #[inline(never)]
    fn admit(&mut self, key: u64) {
        let len = self.keys.len();
        if len == Self::LIMIT {
            self.settle();
            return self.insert(key);
        }
        if len == self.keys.capacity() {
            self.keys.reserve_exact(len.clamp(64, Self::LIMIT - len)); // doubling, but never past the limit
        }
        self.keys.push(key);
    }

    pub(super) fn merge(&mut self, other: &Sample<R>) {
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
        while self.keys.len() > R::CAPACITY {
            self.raise(self.level + 1);
        }
    }

    fn raise(&mut self, level: u32) {
        self.level = level;
        self.keys.retain(|key| R::depth(*key) >= level);
    }

    pub(super) fn settled(&self) -> Settled {
        let mut settled = Sample::<R> { level: self.level, keys: self.keys.clone(), rule: PhantomData };
        settled.settle();
        Settled { level: settled.level, keys: settled.keys }
    }
}

impl<R: Rule> PartialEq for Sample<R> {
    fn eq(&self, other: &Sample<R>) -> bool {
        self.settled() == other.settled()
    }
}

impl Settled {
    /// The keys with aligned blocks of `2^block_bits` numbers together, the blocks in random order: any front of
    /// it is a smaller sample of such blocks.
    pub(super) fn in_random_order(&self, block_bits: u8) -> Vec<u64> {
        let mut keys = self.keys.clone();
        keys.sort_by_cached_key(|key| (murmur(key.checked_shr(block_bits.into()).unwrap_or(0)), *key));
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample<R: Rule>(keys: impl IntoIterator<Item = u64>) -> Settled {
        let mut sample = Sample::<R>::new();
        keys.into_iter().for_each(|key| sample.insert(key));
        sample.settled()
    }

    fn is_the_set_at_its_lowest_level<R: Rule>(keys: &[u64]) {
        let found = sample::<R>(keys.iter().copied());
        let at = |level| keys.iter().filter(|key| R::depth(**key) >= level).count();
        assert_eq!(found.keys.len(), at(found.level));
        assert!(found.keys.len() <= R::CAPACITY);
        assert!(found.level == 0 || at(found.level - 1) > R::CAPACITY);
    }

    #[test]
    fn holds_the_keys_of_the_lowest_level_that_fits() {
        for count in [1_000, 24 << 10, 100_000] {
            let dense: Vec<u64> = (0..count).collect();
            let spread: Vec<u64> = (0..count).map(murmur).collect();
            for keys in [dense, spread] {
                is_the_set_at_its_lowest_level::<ByKey>(&keys);
                is_the_set_at_its_lowest_level::<ByBlock>(&keys);
                is_the_set_at_its_lowest_level::<ByLowBits>(&keys);
            }
        }
    }

    #[test]
    fn repetitions_do_not_count() {
        let twice = (0..20_000).chain((0..20_000).rev());
        assert_eq!(sample::<ByKey>(twice), sample::<ByKey>(0..20_000));
        let often = std::iter::repeat_n(7, 100_000).chain(0..100_000);
        assert_eq!(sample::<ByKey>(often), sample::<ByKey>(0..100_000));
    }

    #[test]
    fn keeps_whole_blocks() {
        let keys: Vec<u64> = (0..200_000).collect();
        let found = sample::<ByBlock>(keys.iter().copied());
        for block in found.keys.chunk_by(|a, b| a >> ByBlock::BITS == b >> ByBlock::BITS) {
            let inside = |key: &&u64| **key >> ByBlock::BITS == block[0] >> ByBlock::BITS;
            assert_eq!(block.len(), keys.iter().filter(inside).count());
        }
    }

    #[test]
    fn keeps_whole_classes_of_low_bits_and_one_of_each_stratum() {
        let keys: Vec<u64> = (0..1 << 20).collect();
        let found = sample::<ByLowBits>(keys);
        let shared = ByLowBits::shared_bits(found.level);
        let mut classes: Vec<u64> = found.keys.iter().map(|key| key & ((1 << shared) - 1)).collect();
        classes.sort_unstable();
        classes.dedup();
        assert_eq!(classes.len(), 1 << ByLowBits::STRATA_BITS);
        assert_eq!(found.keys.len(), classes.len() << (20 - shared), "every key of each class");
        classes.dedup_by_key(|class| *class & ((1 << ByLowBits::STRATA_BITS) - 1));
        assert_eq!(classes.len(), 1 << ByLowBits::STRATA_BITS, "all strata");
    }
}
