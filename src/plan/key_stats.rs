//! Statistics of pairs, gathered one pair at a time in bounded memory.

use std::fmt;
use std::ops::Range;

use super::bit_counts::BitCounts;
use super::sample::KeySample;

/// Keys are counted exactly by this many of their lowest bits.
const LOW_BITS: u32 = 16;

/// Keys are counted exactly by this many of their highest bits, from the highest one that any key has set.
const HIGH_BITS: u32 = 13;

/// An estimate of the distinct keys is used only if the pairs exceed it by more than this ratio, in percent. Smaller
/// differences are the error of the estimate.
const REPEATED_FROM: u64 = 105;

/// Statistics of the keys of pairs and of their stored bytes: everything that a [`Plan`](crate::plan::Plan) depends on.
///
/// They are a function of the multiset of pairs: any insertion order, and any split over threads that
/// [`merge`](KeyStats::merge) joins, gives an equal value. Exact are the numbers of pairs and bytes, the smallest and
/// the largest key, the bits in which keys differ, and the number of pairs with each pattern of the lowest 16 and of the
/// highest 13 bits. The rest is estimated from two samples of at most 24,576 keys: of single keys, and of aligned blocks
/// of 1024 numbers. Up to 24,576 distinct keys nothing is estimated.
///
/// Memory: under 768 KiB for any number of pairs.
///
/// ```
/// use sharddb::plan::KeyStats;
///
/// let (mut stats, mut odd) = (KeyStats::new(), KeyStats::new());
/// (0..1000).step_by(2).for_each(|key| stats.insert(key, 0, 100));
/// (1..1000).step_by(2).for_each(|key| odd.insert(key, 0, 100));
/// stats.merge(&odd);
/// assert_eq!(stats.pairs(), 1000);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyStats(KeyCounts);

impl KeyStats {
    /// Statistics of no pairs.
    pub fn new() -> KeyStats {
        KeyStats::default()
    }

    /// Counts a pair, given the stored lengths of its preamble (0 without a preamble) and of its value.
    ///
    /// A repeated key counts as another pair but as the same distinct key.
    ///
    /// Cost: amortized O(1), some tens of nanoseconds.
    #[inline]
    pub fn insert(&mut self, key: u64, preamble_len: u64, stored_value_len: u64) {
        self.0.insert(key, preamble_len, stored_value_len);
    }

    /// Adds the pairs of `other`, as if each had been inserted.
    ///
    /// Cost: a pass over the counts and the samples, independent of the number of pairs.
    pub fn merge(&mut self, other: &KeyStats) {
        self.0.merge(&other.0);
    }

    /// The number of pairs, including those of repeated keys.
    pub fn pairs(&self) -> u64 {
        self.0.pairs
    }
}

/// Returns what was counted.
pub fn counts_of(stats: &KeyStats) -> &KeyCounts {
    &stats.0
}

/// What [`KeyStats`] counts.
#[derive(Clone, PartialEq)]
pub struct KeyCounts {
    pairs: u64,
    value_bytes: u64,
    preamble_bytes: u64,
    bounds: Option<Bounds>,
    low_bits: BitCounts,
    high_bits: BitCounts,
    by_key: KeySample,
    by_block: KeySample,
}

/// Bounds of the keys, as numbers and bit by bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    smallest: u64,
    largest: u64,
    /// Bits that are set in every key.
    all: u64,
    /// Bits that are set in some key.
    any: u64,
}

impl Bounds {
    fn of(key: u64) -> Bounds {
        Bounds { smallest: key, largest: key, all: key, any: key }
    }

    #[inline]
    fn and(self, other: Bounds) -> Bounds {
        Bounds {
            smallest: self.smallest.min(other.smallest),
            largest: self.largest.max(other.largest),
            all: self.all & other.all,
            any: self.any | other.any,
        }
    }
}

impl KeyCounts {
    /// Log2 of the size of the blocks in [`block_sample`](KeyCounts::block_sample).
    pub const SAMPLE_BLOCK_BITS: u8 = 10;

    fn new() -> KeyCounts {
        KeyCounts {
            pairs: 0,
            value_bytes: 0,
            preamble_bytes: 0,
            bounds: None,
            low_bits: BitCounts::new(LOW_BITS),
            high_bits: BitCounts::new(HIGH_BITS),
            by_key: KeySample::new(0),
            by_block: KeySample::new(KeyCounts::SAMPLE_BLOCK_BITS),
        }
    }

    #[inline]
    fn insert(&mut self, key: u64, preamble_len: u64, stored_value_len: u64) {
        self.pairs = self.pairs.saturating_add(1);
        self.value_bytes = self.value_bytes.saturating_add(stored_value_len);
        self.preamble_bytes = self.preamble_bytes.saturating_add(preamble_len);
        let bounds = Bounds::of(key);
        self.bounds = Some(self.bounds.map_or(bounds, |known| known.and(bounds)));
        self.low_bits.insert(key);
        self.high_bits.insert_high(key);
        self.by_key.insert(key);
        self.by_block.insert(key);
    }

    fn merge(&mut self, other: &KeyCounts) {
        self.pairs = self.pairs.saturating_add(other.pairs);
        self.value_bytes = self.value_bytes.saturating_add(other.value_bytes);
        self.preamble_bytes = self.preamble_bytes.saturating_add(other.preamble_bytes);
        self.bounds = match (self.bounds, other.bounds) {
            (Some(left), Some(right)) => Some(left.and(right)),
            (left, right) => left.or(right),
        };
        self.low_bits.merge(&other.low_bits);
        self.high_bits.merge(&other.high_bits);
        self.by_key.merge(&other.by_key);
        self.by_block.merge(&other.by_block);
    }

    /// The number of pairs, including those of repeated keys.
    pub fn pairs(&self) -> u64 {
        self.pairs
    }

    /// The stored bytes of all values, without preambles.
    pub fn value_bytes(&self) -> u64 {
        self.value_bytes
    }

    /// The stored bytes of all preambles.
    pub fn preamble_bytes(&self) -> u64 {
        self.preamble_bytes
    }

    /// The smallest key; `None` without pairs.
    pub fn smallest_key(&self) -> Option<u64> {
        self.bounds.map(|bounds| bounds.smallest)
    }

    /// The largest key; `None` without pairs.
    pub fn largest_key(&self) -> Option<u64> {
        self.bounds.map(|bounds| bounds.largest)
    }

    /// The bits in which keys differ; 0 without pairs.
    pub fn varying_bits(&self) -> u64 {
        self.bounds.map_or(0, |bounds| bounds.any & !bounds.all)
    }

    /// The number of pairs with each pattern of the key bits `bits`, in ascending order of the pattern.
    ///
    /// Returns `None` unless all of the bits are counted: the lowest 16, or the highest 13 from the highest bit of the
    /// largest key. Patterns with a bit above that one may be left out, since no key has them.
    ///
    /// Cost: a pass over at most 65,536 counts.
    pub fn counts_by_bits(&self, bits: Range<u32>) -> Option<Vec<u64>> {
        if bits.end <= self.low_bits.bits().end {
            Some(self.low_bits.by_bits(&bits))
        } else if bits.start >= self.high_bits.bits().start {
            Some(self.high_bits.by_bits(&bits))
        } else {
            None
        }
    }

    /// A uniform sample of the distinct keys, ascending: all of them up to 24,576, more than 10,000 otherwise.
    ///
    /// Cost: sorts the sample.
    pub fn key_sample(&self) -> Vec<u64> {
        self.by_key.settled().keys
    }

    /// Every key of a uniform sample of aligned blocks of 1024 numbers, ascending: at most 24,576 keys.
    ///
    /// Cost: sorts the sample.
    pub fn block_sample(&self) -> Vec<u64> {
        self.by_block.settled().keys
    }

    /// The sample of keys, and the number of distinct keys: exact if the sample holds all of them or no keys are
    /// repeated, an estimate within about 5 % otherwise.
    pub(super) fn distinct_keys(&self) -> (Vec<u64>, u64) {
        let KeySample { level, keys: sample, .. } = self.by_key.settled();
        let sampled = sample.len() as u64;
        let estimate = sampled.saturating_mul(1_u64.checked_shl(level).unwrap_or(u64::MAX));
        let repeated = u128::from(self.pairs) * 100 > u128::from(estimate) * u128::from(REPEATED_FROM);
        let keys = if level == 0 || repeated { estimate } else { self.pairs };
        (sample, keys)
    }
}

impl Default for KeyCounts {
    fn default() -> KeyCounts {
        KeyCounts::new()
    }
}

impl Eq for KeyCounts {}

impl fmt::Debug for KeyCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyCounts")
            .field("pairs", &self.pairs)
            .field("value_bytes", &self.value_bytes)
            .field("preamble_bytes", &self.preamble_bytes)
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::HashFunction;
    use quickcheck::{QuickCheck, TestResult};

    fn stats(pairs: &[(u64, u64, u64)]) -> KeyCounts {
        let mut stats = KeyCounts::new();
        pairs.iter().for_each(|&(key, preamble, value)| stats.insert(key, preamble, value));
        stats
    }

    /// Many more pairs than the samples hold, some of them repeated, dense or spread by `seed`.
    fn pairs(seed: u64, dense: bool) -> Vec<(u64, u64, u64)> {
        let hash = |number: u64| HashFunction::MurmurHash3X86_128.hash(number ^ seed);
        let key = |number: u64| if dense { seed.wrapping_add(number) } else { hash(number) };
        (0..80_000).map(|number| (key(number % 70_000), hash(number) % 3, hash(number) >> 54)).collect()
    }

    #[test]
    fn any_order_and_any_split_give_equal_statistics() {
        fn holds(seed: u64, order: u64, split: usize, dense: bool) -> bool {
            let pairs = pairs(seed, dense);
            let mut shuffled = pairs.clone();
            shuffled.sort_by_key(|pair| HashFunction::MurmurHash3X86_128.hash(pair.0 ^ pair.2 ^ order));
            let (left, right) = shuffled.split_at(split % shuffled.len());
            let mut merged = stats(left);
            merged.merge(&stats(right));
            merged == stats(&pairs)
        }
        QuickCheck::new().tests(6).quickcheck(holds as fn(u64, u64, usize, bool) -> bool);
    }

    #[test]
    fn one_more_pair_gives_different_statistics() {
        fn holds(pairs: Vec<(u64, u32, u32)>, key: u64, value: u32) -> TestResult {
            let pairs: Vec<_> =
                pairs.into_iter().map(|(key, preamble, value)| (key, preamble.into(), value.into())).collect();
            let mut more = stats(&pairs);
            more.insert(key, 0, value.into());
            TestResult::from_bool(more != stats(&pairs))
        }
        QuickCheck::new().tests(20).quickcheck(holds as fn(Vec<(u64, u32, u32)>, u64, u32) -> TestResult);
    }

    #[test]
    fn counts_pairs_bytes_bounds_and_bits() {
        let stats = stats(&[(8, 0, 0), (24, 5, 1), (16, 0, 7), (8, 0, u64::MAX)]);
        assert_eq!((stats.pairs(), stats.preamble_bytes(), stats.value_bytes()), (4, 5, u64::MAX));
        assert_eq!((stats.smallest_key(), stats.largest_key()), (Some(8), Some(24)));
        assert_eq!(stats.varying_bits(), 0b11000);
        assert_eq!(stats.counts_by_bits(3..5), Some(vec![0, 2, 1, 1]));
        assert_eq!(stats.counts_by_bits(3..17).unwrap()[..4], [0, 2, 1, 1], "among the highest bits");
        assert_eq!((stats.key_sample(), stats.block_sample()), (vec![8, 16, 24], vec![8, 16, 24]));
    }

    #[test]
    fn bits_in_the_middle_of_large_keys_are_not_counted() {
        let stats = stats(&[(1, 0, 0), (1 << 40, 0, 0)]);
        let counted = [0..16, 0..17, 27..28, 28..29, 28..64].map(|bits| stats.counts_by_bits(bits).is_some());
        assert_eq!(counted, [true, false, false, true, true]);
    }

    #[test]
    fn memory_is_bounded() {
        let counts = (size_of::<u32>() << LOW_BITS) + (size_of::<u32>() << HIGH_BITS);
        let samples = 2 * crate::plan::sample::LIMIT * size_of::<u64>();
        assert!(size_of::<KeyCounts>() + counts + samples < 768 << 10);
    }

    #[test]
    fn no_pairs_have_no_bounds() {
        let none = KeyCounts::new();
        assert_eq!((none.smallest_key(), none.largest_key(), none.varying_bits()), (None, None, 0));
        let mut merged = none.clone();
        merged.merge(&none);
        assert_eq!(merged, none);
    }
}
