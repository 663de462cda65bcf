//! Estimates how unevenly the identity hash fills shards.
//!
//! Identity selects the shard by consecutive bits of the key, so the keys themselves decide how full the shards are. The
//! estimate uses the first of these sources that applies, from exact to approximate:
//!
//! 1. All distinct keys are in the sample, or the shard bits are counted: count.
//! 2. The keys are consecutive numbers, or consecutive multiples of a power of two: compute.
//! 3. Shards hold many sampled keys each: scale the counts of the sample up.
//! 4. Shards are no larger than the blocks of the block sample: count those, extrapolate the largest.
//! 5. Otherwise: treat the keys as clumps that fall into shards at random.
//!
//! Planned builds depend on the estimate, so a change of the arithmetic changes their bytes.

use std::ops::Range;

use super::bit_counts::mask;
use super::key_stats::KeyCounts;
use super::poisson;

/// Source 3 applies from this many sampled keys per shard.
const MANY: f64 = 16.0;

/// A largest count that at least one in this many shards has is a limit of the data, not the tail of a distribution.
const SHARED_TOP: usize = 50;

/// What the choice asks about the keys, computed once.
pub(super) struct KeyFacts<'a> {
    stats: &'a KeyCounts,
    /// The number of distinct keys.
    pub(super) distinct: u64,
    /// `None` without pairs.
    pub(super) steps: Option<Steps>,
    sample: Vec<u64>,
}

/// The range of the keys, as multiples of a power of two.
#[derive(Clone, Copy)]
pub(super) struct Steps {
    /// Log2 of the step: the number of lowest bits in which all keys agree.
    pub(super) bits: u32,
    /// The smallest key, in steps.
    pub(super) first: u64,
    /// The largest key, in steps.
    pub(super) last: u64,
}

impl<'a> KeyFacts<'a> {
    pub(super) fn new(stats: &'a KeyCounts) -> KeyFacts<'a> {
        let (sample, distinct) = stats.distinct_keys();
        let bits = stats.varying_bits().trailing_zeros();
        let in_steps = |key: u64| key.checked_shr(bits).unwrap_or(0);
        let bounds = stats.smallest_key().zip(stats.largest_key());
        let steps = bounds.map(|(first, last)| Steps { bits, first: in_steps(first), last: in_steps(last) });
        KeyFacts { stats, distinct, steps, sample }
    }

    /// The number of keys in the largest shard divided by the mean over shards with keys, where the key bits `bits`
    /// select the shard.
    ///
    /// `bits` must end with the span of the keys, so that a shard is one aligned range of numbers (or two if the
    /// range of the keys is not aligned).
    pub(super) fn skew(&self, bits: &Range<u32>) -> f64 {
        if bits.is_empty() {
            return 1.0;
        }
        if self.sample.len() as u64 == self.distinct {
            return ShardCounts::of(&self.sample, bits).map_or(1.0, |counts| counts.skew());
        }
        if let Some(counts) = self.stats.counts_by_bits(bits.clone()) {
            let distinct = self.distinct as f64 / self.stats.pairs() as f64; // repeated keys are assumed everywhere
            let counts = counts.into_iter().map(|count| count as f64 * distinct).collect();
            return ShardCounts::new(counts).map_or(1.0, |counts| counts.skew());
        }
        self.of_consecutive_keys(bits)
            .or_else(|| self.of_large_shards(bits))
            .or_else(|| self.of_small_shards(bits))
            .unwrap_or_else(|| self.of_clumps(bits))
    }

    /// The number of patterns of `bits` among the keys, from the bits in which they differ.
    fn patterns(&self, bits: &Range<u32>) -> f64 {
        f64::from((self.stats.varying_bits() & mask(bits)).count_ones()).exp2()
    }

    /// If the keys are all multiples of a power of two between the smallest and the largest: they go round by round
    /// through the shards, so each has the keys of all whole rounds, and some have up to one turn more.
    fn of_consecutive_keys(&self, bits: &Range<u32>) -> Option<f64> {
        let Steps { bits: step_bits, first, last } = self.steps?;
        if (last - first).checked_add(1) != Some(self.distinct) || self.distinct != self.stats.pairs() {
            return None;
        }
        let (from, to) = (bits.start.saturating_sub(step_bits), bits.end.saturating_sub(step_bits));
        let shifted = |number: u64, by: u32| number.checked_shr(by).unwrap_or(0);
        let shards = f64::from(to - from).exp2();
        let per_turn = f64::from(from).exp2();
        let in_all = shifted(self.distinct, to) as f64 * per_turn;
        let more = (self.distinct as f64 - in_all * shards).min(per_turn);
        let touched = (shifted(last, from) - shifted(first, from) + 1) as f64;
        let shards_with_keys = if in_all > 0.0 { shards } else { touched.min(shards) };
        Some((in_all + more) / (self.distinct as f64 / shards_with_keys))
    }

    /// If every shard holds many sampled keys: their counts, with the variance of sampling taken off.
    fn of_large_shards(&self, bits: &Range<u32>) -> Option<f64> {
        let counts = ShardCounts::of(&self.sample, bits)?;
        if (self.sample.len() as f64) < MANY * counts.shards() {
            return None;
        }
        let mean = self.distinct as f64 / counts.shards();
        let sampled = counts.mean * counts.shards() / self.distinct as f64;
        let by_sampling = counts.mean * (1.0 - sampled);
        let largest = if counts.variance <= by_sampling * (1.0 + 2.0 * (2.0 / counts.shards()).sqrt()) {
            mean + (poisson::largest_of(counts.shards(), mean) - mean)
        } else {
            let by_shards = (1.0 - by_sampling / counts.variance).sqrt();
            mean + (counts.largest - counts.mean) / sampled * by_shards
        };
        Some(largest.round() / mean)
    }

    /// If shards are no larger than the sampled blocks: the counts of the sampled shards. The largest of all shards
    /// exceeds the largest sampled one by as much as for Poisson numbers of their variance.
    fn of_small_shards(&self, bits: &Range<u32>) -> Option<f64> {
        if bits.start > KeyCounts::SAMPLE_BLOCK_BITS.into() {
            return None;
        }
        let counts = ShardCounts::of(&self.stats.block_sample(), bits)?;
        let unit = counts.variance / counts.mean;
        let further = if counts.top_is_shared() || unit <= f64::EPSILON {
            0.0
        } else {
            let shards = (self.distinct as f64 / counts.mean).max(counts.shards());
            let largest_of = |many| unit * poisson::largest_of(many, counts.mean / unit);
            (largest_of(shards) - largest_of(counts.shards())).max(0.0)
        };
        let capacity = self.patterns(&(0..bits.start));
        Some((counts.largest + further.round()).min(capacity).max(counts.largest) / counts.mean)
    }

    /// As if the keys fell into shards at random, in clumps as large as the sample shows.
    fn of_clumps(&self, bits: &Range<u32>) -> f64 {
        let (keys, shards) = (self.distinct as f64, self.patterns(bits));
        let expected = keys / shards;
        let clump = (self.in_shard_of_a_key(bits) - expected).clamp(f64::EPSILON, keys);
        let clumps = expected / clump;
        let shards_with_keys = (shards * -(-clumps).exp_m1()).clamp(1.0, keys);
        let mean = keys / shards_with_keys;
        let others = 1.0 - 1.0 / shards; // the total is fixed
        let largest = expected + (clump * poisson::largest_of(shards, clumps) - expected) * others.sqrt();
        largest.max(mean).ceil().min(keys) / mean
    }

    /// The mean over keys of the number of keys in the same shard, from how often two sampled keys share one.
    fn in_shard_of_a_key(&self, bits: &Range<u32>) -> f64 {
        let sampled = self.sample.len() as f64;
        let shared: f64 = counts_by_shard(&self.sample, bits).iter().map(|count| count * (count - 1.0)).sum();
        1.0 + (self.distinct as f64 - 1.0) * shared / (sampled * (sampled - 1.0)).max(1.0)
    }
}

fn counts_by_shard(keys: &[u64], bits: &Range<u32>) -> Vec<f64> {
    let mut shards: Vec<u64> = keys.iter().map(|key| key & mask(bits)).collect();
    shards.sort_unstable();
    shards.chunk_by(|a, b| a == b).map(|shard| shard.len() as f64).collect()
}

/// The numbers of keys of the shards with keys, and their moments.
struct ShardCounts {
    ascending: Vec<f64>,
    mean: f64,
    variance: f64,
    largest: f64,
}

impl ShardCounts {
    fn of(keys: &[u64], bits: &Range<u32>) -> Option<ShardCounts> {
        ShardCounts::new(counts_by_shard(keys, bits))
    }

    fn new(mut counts: Vec<f64>) -> Option<ShardCounts> {
        counts.retain(|count| *count > 0.0);
        counts.sort_unstable_by(f64::total_cmp); // float sums depend on the order
        let largest = *counts.last()?;
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        Some(ShardCounts { ascending: counts, mean, variance, largest })
    }

    fn shards(&self) -> f64 {
        self.ascending.len() as f64
    }

    fn skew(&self) -> f64 {
        self.largest / self.mean
    }

    fn top_is_shared(&self) -> bool {
        let at_top = self.ascending.iter().rev().take_while(|count| **count == self.largest).count();
        at_top * SHARED_TOP >= self.ascending.len()
    }
}
