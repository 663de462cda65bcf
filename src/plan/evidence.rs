//! What the statistics tell about a specification: how the keys would fill its minishards and shards.
//!
//! Under murmur without preshift keys scatter at random and their number says it all. Under identity, and under
//! any preshift, the keys themselves decide, and the best evidence depends on which bits select the cell. From
//! certain to likely:
//!
//! 1. all distinct keys are at hand, or the cell is selected by bits that were counted: count;
//! 2. the keys are one run of numbers (a run of multiples of a power of two): compute;
//! 3. the cells are so large that each holds many keys of the sample: scale that up;
//! 4. a sample holds some of the cells whole: count those;
//! 5. else: clumps of keys that fall at random, the clumps as large as a sample shows them.

use super::key_stats::{Bounds, COUNTED_BITS, KeyStats};
use super::occupancy::{Occupancy, count};
use super::sample::{ByBlock, ByLowBits, Settled};
use crate::hash::HashFunction;
use crate::spec::ShardingSpec;

/// A cell that holds so many sampled keys is known from them.
const MANY: f64 = 16.0;

/// Pairs this many percent above the distinct keys are repetitions, less is the error of the estimate.
const REPETITIONS_FROM: u64 = 105;

/// Statistics made ready for questions.
pub(super) struct Evidence<'a> {
    pub(super) stats: &'a KeyStats,
    /// Distinct keys: exact up to the capacity of a sample, and when no keys repeat.
    pub(super) keys: u64,
    by_key: Settled,
    by_block: Settled,
    by_low_bits: Settled,
}

/// What a cell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Minishard,
    Shard,
}

impl Cell {
    fn bits(self, spec: &ShardingSpec) -> u8 {
        match self {
            Cell::Minishard => spec.minishard_bits() + spec.shard_bits(),
            Cell::Shard => spec.shard_bits(),
        }
    }

    fn of(self, spec: &ShardingSpec, key: u64) -> u64 {
        match self {
            Cell::Minishard => spec.place(key),
            Cell::Shard => spec.locate(key).shard.0,
        }
    }

    /// The bits of a key that select its cell under identity.
    fn selected_by(self, spec: &ShardingSpec) -> BitField {
        let above_preshift = match self {
            Cell::Minishard => 0,
            Cell::Shard => spec.minishard_bits(),
        };
        let from = u32::from(spec.preshift_bits() + above_preshift).min(u64::BITS);
        BitField { from, to: (from + u32::from(self.bits(spec))).min(u64::BITS) }
    }
}

/// The bits `from..to` of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BitField {
    from: u32,
    to: u32,
}

impl BitField {
    fn mask(self) -> u64 {
        low_bits(self.to) & !low_bits(self.from)
    }

    /// How many patterns there can be if only these bits vary.
    fn patterns(self, varying: u64) -> f64 {
        f64::from((varying & self.mask()).count_ones()).exp2()
    }
}

/// The keys `(first + i) * 2^step_bits` for `i` from 0 to `keys`, with constant bits below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u64,
    keys: u64,
    step_bits: u32,
}

impl<'a> Evidence<'a> {
    pub(super) fn new(stats: &'a KeyStats) -> Evidence<'a> {
        let by_key = stats.by_key().settled();
        Evidence {
            stats,
            keys: distinct(stats.pairs(), &by_key),
            by_key,
            by_block: stats.by_block().settled(),
            by_low_bits: stats.by_low_bits().settled(),
        }
    }

    /// How the keys would fill minishards or shards.
    pub(super) fn occupancy(&self, spec: &ShardingSpec, cell: Cell) -> Occupancy {
        if self.keys == 0 {
            Occupancy::default()
        } else if cell.bits(spec) == 0 {
            Occupancy::one_cell(self.keys as f64)
        } else if self.has_all_keys() {
            Occupancy::counted(count(self.by_key.keys.iter().map(|key| cell.of(spec, *key))))
        } else {
            match spec.hash_function() {
                HashFunction::Identity => self.under_identity(spec, cell),
                HashFunction::MurmurHash3X86_128 => self.under_murmur(spec, cell),
            }
        }
    }

    fn under_murmur(&self, spec: &ShardingSpec, cell: Cell) -> Occupancy {
        let at_random = |clump| Occupancy::scattered(self.keys as f64, f64::from(cell.bits(spec)).exp2(), clump);
        match spec.preshift_bits() {
            0 => at_random(1.0),
            bits => self.of_large_cells(spec, cell).unwrap_or_else(|| at_random(self.block_of_a_key(bits))),
        }
    }

    fn under_identity(&self, spec: &ShardingSpec, cell: Cell) -> Occupancy {
        let Some(bounds) = self.stats.bounds() else {
            return Occupancy::scattered(self.keys as f64, f64::from(cell.bits(spec)).exp2(), 1.0);
        };
        let field = cell.selected_by(spec);
        if field.to <= u32::from(COUNTED_BITS) {
            return Occupancy::counted(self.counted(field));
        }
        if let Some(run) = self.run() {
            return run.occupancy(field);
        }
        self.of_large_cells(spec, cell)
            .or_else(|| self.of_whole_classes(field, bounds))
            .or_else(|| self.of_whole_blocks(field, bounds))
            .unwrap_or_else(|| self.of_clumps(field, bounds))
    }

    /// The keys of every pattern of a field within the counted bits, exactly.
    fn counted(&self, field: BitField) -> Vec<f64> {
        let patterns = 1_usize << field.to.saturating_sub(field.from);
        let distinct = self.keys as f64 / self.stats.pairs() as f64;
        let mut counts = vec![0.0; patterns];
        for (low_bits, pairs) in self.stats.low_bits().iter().enumerate() {
            if let Some(count) = counts.get_mut((low_bits >> field.from) & (patterns - 1)) {
                *count += f64::from(*pairs) * distinct;
            }
        }
        counts
    }

    /// The keys as one run, if that is what they are: as many as there is room for between smallest and largest.
    fn run(&self) -> Option<Run> {
        let bounds = self.stats.bounds()?;
        let step_bits = bounds.varying().trailing_zeros();
        let first = bounds.smallest.checked_shr(step_bits)?;
        let last = bounds.largest.checked_shr(step_bits)?;
        let is_full = (last - first).checked_add(1) == Some(self.keys) && self.keys == self.stats.pairs();
        is_full.then_some(Run { first, keys: self.keys, step_bits })
    }

    fn of_large_cells(&self, spec: &ShardingSpec, cell: Cell) -> Option<Occupancy> {
        let counts = count(self.by_key.keys.iter().map(|key| cell.of(spec, *key)));
        let are_large = self.by_key.keys.len() as f64 >= MANY * counts.len() as f64;
        if are_large { Occupancy::of_some_keys(counts, self.keys as f64) } else { None }
    }

    fn of_whole_classes(&self, field: BitField, bounds: Bounds) -> Option<Occupancy> {
        let bits_below_matter = field.from > bounds.varying().trailing_zeros();
        if bits_below_matter || field.to < ByLowBits::shared_bits(self.by_low_bits.level) {
            return None;
        }
        let counts = count(self.by_low_bits.keys.iter().map(|key| key & field.mask()));
        let capacity = BitField { from: 0, to: u64::BITS }.patterns(bounds.varying() & !field.mask());
        Occupancy::of_some_cells(counts, self.keys as f64, capacity)
    }

    fn of_whole_blocks(&self, field: BitField, bounds: Bounds) -> Option<Occupancy> {
        let span = bounds.largest - bounds.smallest;
        if field.from > ByBlock::BITS.into() || span > low_bits(field.to) {
            return None; // too large for the sample, or several blocks in a cell
        }
        let counts = count(self.by_block.keys.iter().map(|key| key & field.mask()));
        let capacity = BitField { from: 0, to: field.from }.patterns(bounds.varying());
        Occupancy::of_some_cells(counts, self.keys as f64, capacity)
    }

    fn of_clumps(&self, field: BitField, bounds: Bounds) -> Occupancy {
        let (keys, cells) = (self.keys as f64, field.patterns(bounds.varying()));
        let clump = match u8::try_from(field.from) {
            _ if field.from <= bounds.varying().trailing_zeros() => self.dispersion(field, bounds),
            Ok(bits) if bits <= ByBlock::BITS => self.block_of_a_key(bits),
            _ => self.pattern_of_a_key(|key| key & field.mask()) - keys / cells,
        };
        Occupancy::scattered(keys, cells, clump)
    }

    /// Variance over mean of the cells of a field that begins in the counted bits and ends beyond.
    ///
    /// Known where the counted bits end. What uneven cells have beyond chance halves with every bit more, as the
    /// cells do.
    fn dispersion(&self, field: BitField, bounds: Bounds) -> f64 {
        let counted = u32::from(COUNTED_BITS);
        let within = BitField { from: field.from.min(counted), to: counted };
        let cells = within.patterns(bounds.varying());
        let mean = self.keys as f64 / cells;
        let square_sum: f64 = self.counted(within).iter().map(|count| count * count).sum();
        let found = (square_sum / cells - mean * mean).max(0.0) / mean;
        let chance = found.min(1.0);
        chance + (found - chance) * cells / field.patterns(bounds.varying())
    }

    /// The keys in the aligned block of `2^bits` numbers around a key, on average over the keys.
    fn block_of_a_key(&self, bits: u8) -> f64 {
        let block = |key: u64| key.checked_shr(bits.into()).unwrap_or(0);
        if bits > ByBlock::BITS {
            return self.pattern_of_a_key(block);
        }
        Occupancy::counted(count(self.by_block.keys.iter().map(|key| block(*key)))).of_a_key.max(1.0)
    }

    /// The keys with the same pattern as a key, on average over the keys: from how often sampled keys meet.
    fn pattern_of_a_key(&self, pattern: impl Fn(u64) -> u64) -> f64 {
        let sampled = self.by_key.keys.len() as f64;
        let counts = count(self.by_key.keys.iter().map(|key| pattern(*key)));
        let meetings: f64 = counts.iter().map(|count| count * (count - 1.0)).sum();
        1.0 + (self.keys as f64 - 1.0) * meetings / (sampled * (sampled - 1.0)).max(1.0)
    }

    fn has_all_keys(&self) -> bool {
        self.by_key.keys.len() as u64 == self.keys
    }

    /// Ids as a minishard with about this many keys would hold them, ascending.
    pub(super) fn ids_of_a_minishard(&self, spec: &ShardingSpec, keys: usize) -> Vec<u64> {
        let is_murmur = spec.hash_function() == HashFunction::MurmurHash3X86_128;
        let selected = Cell::Minishard.selected_by(spec);
        let mut ids = if self.by_key.keys.is_empty() {
            (0..keys as u64).map(|number| HashFunction::MurmurHash3X86_128.hash(number)).collect()
        } else if spec.preshift_bits() > 0 {
            let together = if is_murmur { spec.preshift_bits().min(ByBlock::BITS) } else { ByBlock::BITS };
            first_distinct(self.by_block.in_random_order(together), keys)
        } else if is_murmur {
            first_distinct(self.by_key.in_random_order(0), keys)
        } else {
            // the ids of a minishard agree in the bits that select it
            let above = self.by_key.in_random_order(0).into_iter().map(|key| key & !selected.mask());
            first_distinct(above, keys)
        };
        ids.sort_unstable();
        ids
    }
}

impl Run {
    /// How the run fills the patterns of a field: whole rounds through all of them, then some once more.
    fn occupancy(self, field: BitField) -> Occupancy {
        let from = field.from.saturating_sub(self.step_bits);
        let to = field.to.saturating_sub(self.step_bits);
        let whole = |shift: u32, number: u64| number.checked_shr(shift).unwrap_or(0);
        let keys = self.keys as f64;
        let cells = f64::from(to - from).exp2();
        let per_round = f64::from(from).exp2(); // in each cell
        let in_all = whole(to, self.keys) as f64 * per_round;
        let rest = keys - in_all * cells;
        let once_more = (rest / per_round).ceil().min(cells);
        let touched = (whole(from, self.first + (self.keys - 1)) - whole(from, self.first) + 1) as f64;
        let more = rest.min(per_round);
        let with_keys = if in_all > 0.0 { cells } else { touched.min(cells) };
        let most_have_more = once_more * 2.0 > with_keys;
        let excess = once_more / with_keys;
        Occupancy {
            cells: with_keys,
            mean: keys / with_keys,
            median: in_all + if most_have_more { more } else { 0.0 },
            largest: in_all + more,
            of_a_key: in_all + more * excess,
        }
    }
}

/// Distinct keys among the pairs, as the sample shows them.
fn distinct(pairs: u64, by_key: &Settled) -> u64 {
    let sampled = by_key.keys.len() as u64;
    let estimate = sampled.saturating_mul(1_u64.checked_shl(by_key.level).unwrap_or(u64::MAX));
    let repeats = u128::from(pairs) * 100 > u128::from(estimate) * u128::from(REPETITIONS_FROM);
    match by_key.level {
        0 if sampled > 0 => sampled,
        0 => pairs, // nothing is known about the keys
        _ if repeats => estimate,
        _ => pairs,
    }
}

/// The first distinct numbers.
fn first_distinct(numbers: impl IntoIterator<Item = u64>, most: usize) -> Vec<u64> {
    let mut seen = std::collections::HashSet::new();
    numbers.into_iter().filter(|number| seen.insert(*number)).take(most).collect()
}

/// A number with its `bits` lowest bits set.
fn low_bits(bits: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS.saturating_sub(bits)).unwrap_or(0)
}
