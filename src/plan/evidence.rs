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

use std::collections::HashSet;

use super::bit_field::{BitField, low_bits};
use super::key_stats::{Bounds, KeyStats};
use super::occupancy::{AllCells, Occupancy, count};
use super::prediction::round;
use super::run::Run;
use super::sample::{ByBlock, ByLowBits, Settled};
use crate::format::hash::HashFunction;
use crate::format::spec::ShardingSpec;

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
        let cells = f64::from(cell.bits(spec)).exp2();
        match spec.preshift_bits() {
            0 => Occupancy::scattered(self.keys as f64, cells, 1.0),
            bits if bits <= ByBlock::BITS => self.of_blocks(bits, cells),
            bits => self.of_large_cells(spec, cell).unwrap_or_else(|| self.of_blocks(bits, cells)),
        }
    }

    fn under_identity(&self, spec: &ShardingSpec, cell: Cell) -> Occupancy {
        let Some(bounds) = self.stats.bounds() else {
            return Occupancy::scattered(self.keys as f64, f64::from(cell.bits(spec)).exp2(), 1.0);
        };
        let field = cell.selected_by(spec);
        if let Some(counts) = self.counted(field) {
            return Occupancy::counted(counts);
        }
        if let Some(run) = self.run() {
            return run.occupancy(field);
        }
        self.of_large_cells(spec, cell)
            .or_else(|| self.of_whole_classes(field, bounds))
            .or_else(|| self.of_whole_blocks(field, bounds))
            .unwrap_or_else(|| self.of_any(field, bounds))
    }

    /// The keys of every pattern of a field that lies within the counted bits.
    fn counted(&self, field: BitField) -> Option<Vec<f64>> {
        let (low, high) = (self.stats.low_bits(), self.stats.high_bits());
        if field.to <= low.to() {
            Some(self.distinct_of(low.by_field(field.mask())))
        } else if field.from >= high.from() {
            Some(self.distinct_of(high.by_field(field.mask())))
        } else {
            None
        }
    }

    /// From pairs to distinct keys: repetitions are taken to be everywhere alike.
    fn distinct_of(&self, mut counts: Vec<f64>) -> Vec<f64> {
        let distinct = self.keys as f64 / self.stats.pairs() as f64;
        counts.iter_mut().for_each(|count| *count *= distinct);
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
        let cells = field.patterns(bounds.varying());
        let all = AllCells {
            keys: self.keys as f64,
            cells,
            looked_at: Some(cells / f64::from(self.by_low_bits.level).exp2()),
            capacity: BitField { from: 0, to: u64::BITS }.patterns(bounds.varying() & !field.mask()),
            alike: if field.from == 0 { self.length_of_runs() } else { 1.0 },
        };
        Occupancy::of_some_cells(counts, all)
    }

    fn of_whole_blocks(&self, field: BitField, bounds: Bounds) -> Option<Occupancy> {
        if field.from > ByBlock::BITS.into() || bounds.span() > low_bits(field.to) {
            return None; // too large for the sample, or several blocks in a cell
        }
        let counts = count(self.by_block.keys.iter().map(|key| key & field.mask()));
        let all = AllCells {
            keys: self.keys as f64,
            cells: field.patterns(bounds.varying()),
            looked_at: None,
            capacity: BitField { from: 0, to: field.from }.patterns(bounds.varying()),
            alike: 1.0,
        };
        Occupancy::of_some_cells(counts, all)
    }

    /// Any field: the weakest evidence.
    fn of_any(&self, field: BitField, bounds: Bounds) -> Occupancy {
        let (keys, cells) = (self.keys as f64, field.patterns(bounds.varying()));
        match u8::try_from(field.from) {
            _ if field.from <= bounds.varying().trailing_zeros() => {
                Occupancy::scattered(keys, cells, self.dispersion(field, bounds))
            }
            Ok(bits) if bits <= ByBlock::BITS => self.of_blocks(bits, cells),
            _ => Occupancy::scattered(keys, cells, self.alike(|key| key & field.mask()) - keys / cells),
        }
    }

    /// Variance over mean of the cells of a field that begins in the counted low bits and ends beyond.
    ///
    /// Known where the counted bits end. What uneven cells have beyond chance halves with every bit more, as the
    /// cells do.
    fn dispersion(&self, field: BitField, bounds: Bounds) -> f64 {
        let low = self.stats.low_bits();
        let within = BitField { from: field.from.min(low.to()), to: low.to() };
        let cells = within.patterns(bounds.varying());
        let mean = self.keys as f64 / cells;
        let counts = self.distinct_of(low.by_field(within.mask()));
        let square_sum: f64 = counts.iter().map(|count| count * count).sum();
        let found = (square_sum / cells - mean * mean).max(0.0) / mean;
        let chance = found.min(1.0);
        chance + (found - chance) * cells / field.patterns(bounds.varying())
    }

    /// Aligned blocks of `2^bits` numbers, each thrown at random into one of the cells.
    fn of_blocks(&self, bits: u8, cells: f64) -> Occupancy {
        let block = |key: u64| key.checked_shr(bits.into()).unwrap_or(0);
        if bits > ByBlock::BITS {
            return Occupancy::scattered(self.keys as f64, cells, self.alike(block));
        }
        Occupancy::of_blocks(count(self.by_block.keys.iter().map(|key| block(*key))), self.keys as f64, cells)
    }

    /// The keys with the same pattern as a key, on average over the keys: from how often sampled keys meet.
    fn alike(&self, pattern: impl Fn(u64) -> u64) -> f64 {
        let sampled = self.by_key.keys.len() as f64;
        let counts = count(self.by_key.keys.iter().map(|key| pattern(*key)));
        let meetings: f64 = counts.iter().map(|count| count * (count - 1.0)).sum();
        1.0 + (self.keys as f64 - 1.0) * meetings / (sampled * (sampled - 1.0)).max(1.0)
    }

    /// How many consecutive numbers are keys, on average.
    fn length_of_runs(&self) -> f64 {
        let keys = &self.by_block.keys;
        let runs = keys.chunk_by(|a, b| a.checked_add(1) == Some(*b)).count();
        keys.len().max(1) as f64 / runs.max(1) as f64
    }

    fn has_all_keys(&self) -> bool {
        self.by_key.keys.len() as u64 == self.keys
    }

    /// Ids as a minishard with about this many keys would hold them, ascending.
    pub(super) fn ids_of_a_minishard(&self, spec: &ShardingSpec, keys: usize) -> Vec<u64> {
        let field = Cell::Minishard.selected_by(spec);
        let mut ids: Vec<u64> = match (spec.hash_function(), self.stats.bounds(), self.run()) {
            (_, None, _) => (0..keys as u64).map(|number| HashFunction::MurmurHash3X86_128.hash(number)).collect(),
            (HashFunction::MurmurHash3X86_128, ..) => self.ids_of_blocks(spec.preshift_bits()).take(keys).collect(),
            (HashFunction::Identity, _, Some(run)) => run.ids(field).take(keys).collect(),
            (HashFunction::Identity, Some(bounds), None) if bounds.span() <= low_bits(field.to) => {
                self.ids_of_blocks(ByBlock::BITS).take(keys).collect() // as many small ones as fill one
            }
            (HashFunction::Identity, ..) => self.ids_above(field).take(keys).collect(),
        };
        ids.sort_unstable();
        ids
    }

    /// The keys of aligned blocks of `2^bits` numbers, the blocks in random order.
    fn ids_of_blocks(&self, bits: u8) -> impl Iterator<Item = u64> {
        let sample = if bits == 0 { &self.by_key } else { &self.by_block };
        sample.in_random_order(bits.min(ByBlock::BITS)).into_iter()
    }

    /// Keys that agree in a field: all sorts of bits above it, and below it a run of as many as are keys there.
    fn ids_above(&self, field: BitField) -> impl Iterator<Item = u64> {
        let together = match u8::try_from(field.from) {
            Ok(bits) if bits <= ByBlock::BITS => {
                Occupancy::counted(count(self.by_block.keys.iter().map(|key| key >> bits))).of_a_key
            }
            _ => self.alike(|key| key.checked_shr(field.from).unwrap_or(0)),
        };
        let together = round(together).max(1);
        let above = move |key: u64| key & !low_bits(field.to);
        let below = move |key: u64| (key & low_bits(field.from)).min(low_bits(field.from).saturating_sub(together - 1));
        let mut seen = HashSet::new();
        let keys = self.by_key.in_random_order(0).into_iter().filter(move |key| seen.insert(above(*key)));
        keys.flat_map(move |key| (0..together).map(move |i| above(key) | (below(key) + i)))
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
