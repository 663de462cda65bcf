//! How keys fill minishards and shards under a specification, from their statistics.
//!
//! Under murmur without preshift keys are placed at random and their number is enough. Under identity the keys
//! themselves decide. The estimate uses the first of these sources that applies, from exact to approximate:
//!
//! 1. All distinct keys are in the sample, or the bits that select the cell are counted: count.
//! 2. The keys are consecutive numbers, or consecutive multiples of a power of two: compute.
//! 3. Cells hold many sampled keys each: scale the counts of the sample up.
//! 4. Cells are no larger than the blocks of the block sample: count those.
//! 5. Otherwise: blocks of the sample, or clumps of keys, that fall into cells at random.
//!
//! These are the specifications that the library chooses, with any number of minishard bits; a preshift under murmur is
//! not considered.

use std::collections::HashSet;

use sharddb::ShardingSpec;
use sharddb::internal::{KeyCounts, counts_of};
use sharddb::plan::KeyStats;
use sharddb::spec::HashFunction;

use super::occupancy::{Occupancy, count, round};

/// Source 3 applies from this many sampled keys per cell.
const MANY: f64 = 16.0;

/// Statistics of keys, prepared for estimates.
pub(super) struct Evidence<'a> {
    stats: &'a KeyCounts,
    /// The number of distinct keys.
    pub(super) keys: u64,
    by_key: Vec<u64>,
    by_block: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellKind {
    Minishard,
    Shard,
}

impl CellKind {
    fn bits(self, spec: &ShardingSpec) -> u8 {
        match self {
            CellKind::Minishard => spec.minishard_bits() + spec.shard_bits(),
            CellKind::Shard => spec.shard_bits(),
        }
    }

    /// The minishard or shard of a key. Distinct for distinct cells of one kind.
    fn of(self, spec: &ShardingSpec, key: u64) -> (u64, u64) {
        let location = spec.route(key);
        match self {
            CellKind::Minishard => (location.shard.get(), location.minishard.get()),
            CellKind::Shard => (location.shard.get(), 0),
        }
    }

    /// The bits of a key that select its cell under identity.
    fn field(self, spec: &ShardingSpec) -> BitField {
        let above_preshift = match self {
            CellKind::Minishard => 0,
            CellKind::Shard => spec.minishard_bits(),
        };
        let from = u32::from(spec.preshift_bits() + above_preshift).min(u64::BITS);
        BitField { from, to: (from + u32::from(self.bits(spec))).min(u64::BITS) }
    }
}

impl<'a> Evidence<'a> {
    /// `keys` is the number of distinct keys. `stats` may be empty if nothing else is known.
    pub(super) fn new(stats: &'a KeyStats, keys: u64) -> Evidence<'a> {
        let stats = counts_of(stats);
        Evidence { stats, keys, by_key: stats.key_sample(), by_block: stats.block_sample() }
    }

    pub(super) fn occupancy(&self, spec: &ShardingSpec, cell: CellKind) -> Occupancy {
        if self.keys == 0 {
            Occupancy::default()
        } else if cell.bits(spec) == 0 {
            Occupancy::one_cell(self.keys as f64)
        } else if self.by_key.len() as u64 == self.keys {
            Occupancy::counted(count(self.by_key.iter().map(|key| cell.of(spec, *key))))
        } else {
            match spec.hash_function() {
                HashFunction::Identity => self.under_identity(cell.field(spec)),
                HashFunction::MurmurHash3X86_128 => {
                    Occupancy::scattered(self.keys as f64, f64::from(cell.bits(spec)).exp2(), 1.0)
                }
            }
        }
    }

    fn under_identity(&self, field: BitField) -> Occupancy {
        if let Some(counts) = self.stats.counts_by_bits(field.from..field.to) {
            return Occupancy::counted(self.distinct_of(counts));
        }
        if let Some(run) = self.run() {
            return run.occupancy(field);
        }
        self.of_large_cells(field).or_else(|| self.of_whole_blocks(field)).unwrap_or_else(|| self.of_any(field))
    }

    /// From numbers of pairs to numbers of distinct keys: repeated keys are assumed everywhere.
    fn distinct_of(&self, counts: Vec<u64>) -> Vec<f64> {
        let distinct = self.keys as f64 / self.stats.pairs() as f64;
        counts.into_iter().map(|count| count as f64 * distinct).collect()
    }

    /// The keys as one run, if no number or multiple between the smallest and the largest key is missing.
    fn run(&self) -> Option<KeyRun> {
        let step_bits = self.stats.varying_bits().trailing_zeros();
        let first = self.stats.smallest_key()?.checked_shr(step_bits)?;
        let last = self.stats.largest_key()?.checked_shr(step_bits)?;
        let is_full = (last - first).checked_add(1) == Some(self.keys) && self.keys == self.stats.pairs();
        is_full.then_some(KeyRun { first, keys: self.keys, step_bits })
    }

    fn of_large_cells(&self, field: BitField) -> Option<Occupancy> {
        let counts = count(self.by_key.iter().map(|key| key & field.mask()));
        let are_large = self.by_key.len() as f64 >= MANY * counts.len() as f64;
        if are_large { Occupancy::of_some_keys(counts, self.keys as f64) } else { None }
    }

    fn of_whole_blocks(&self, field: BitField) -> Option<Occupancy> {
        if field.from > KeyCounts::SAMPLE_BLOCK_BITS.into() || !self.fits_once(field) {
            return None;
        }
        let counts = count(self.by_block.iter().map(|key| key & field.mask()));
        let capacity = BitField { from: 0, to: field.from }.patterns(self.stats.varying_bits());
        Occupancy::of_some_cells(counts, self.keys as f64, capacity)
    }

    fn of_any(&self, field: BitField) -> Occupancy {
        let (keys, cells) = (self.keys as f64, field.patterns(self.stats.varying_bits()));
        if field.from <= KeyCounts::SAMPLE_BLOCK_BITS.into() {
            return Occupancy::of_blocks(count(self.by_block.iter().map(|key| key >> field.from)), keys, cells);
        }
        Occupancy::scattered(keys, cells, self.in_cell_of_a_key(|key| key & field.mask()) - keys / cells)
    }

    /// Whether the field ends with the span of the keys, so that a cell is one range of numbers.
    fn fits_once(&self, field: BitField) -> bool {
        let bounds = self.stats.smallest_key().zip(self.stats.largest_key());
        bounds.is_some_and(|(smallest, largest)| largest - smallest <= low_bits(field.to))
    }

    /// The mean over keys of the number of keys in the same cell, from how often two sampled keys share one.
    fn in_cell_of_a_key(&self, cell: impl Fn(u64) -> u64) -> f64 {
        let sampled = self.by_key.len() as f64;
        let counts = count(self.by_key.iter().map(|key| cell(*key)));
        let shared: f64 = counts.iter().map(|count| count * (count - 1.0)).sum();
        1.0 + (self.keys as f64 - 1.0) * shared / (sampled * (sampled - 1.0)).max(1.0)
    }

    /// Keys like those of a minishard with about `keys` keys, ascending.
    pub(super) fn ids_of_a_minishard(&self, spec: &ShardingSpec, keys: usize) -> Vec<u64> {
        let field = CellKind::Minishard.field(spec);
        let mut ids: Vec<u64> = match (spec.hash_function(), self.run()) {
            _ if self.stats.pairs() == 0 => {
                (0..keys as u64).map(|number| HashFunction::MurmurHash3X86_128.hash(number)).collect()
            }
            (HashFunction::MurmurHash3X86_128, _) => in_random_order(&self.by_key, 0).take(keys).collect(),
            (HashFunction::Identity, Some(run)) => run.ids(field).take(keys).collect(),
            (HashFunction::Identity, None) if self.fits_once(field) => {
                in_random_order(&self.by_block, KeyCounts::SAMPLE_BLOCK_BITS).take(keys).collect()
            }
            (HashFunction::Identity, None) => self.ids_around(field).take(keys).collect(),
        };
        ids.sort_unstable();
        ids
    }

    /// Keys that agree in a field: any bits of sampled keys above it; below it runs as long as there are keys.
    fn ids_around(&self, field: BitField) -> impl Iterator<Item = u64> {
        let block = |key: u64| key.checked_shr(field.from).unwrap_or(0);
        let run_len = if field.from <= KeyCounts::SAMPLE_BLOCK_BITS.into() {
            Occupancy::counted(count(self.by_block.iter().map(|key| block(*key)))).of_a_key
        } else {
            self.in_cell_of_a_key(block)
        };
        let run_len = round(run_len).max(1);
        let above = move |key: u64| key & !low_bits(field.to);
        let below = move |key: u64| (key & low_bits(field.from)).min(low_bits(field.from).saturating_sub(run_len - 1));
        let mut seen = HashSet::new();
        let keys = in_random_order(&self.by_key, 0).filter(move |key| seen.insert(above(*key)));
        keys.flat_map(move |key| (0..run_len).map(move |i| above(key) | (below(key) + i)))
    }
}

/// Keys with each aligned block of `2^block_bits` numbers together, the blocks in random order.
fn in_random_order(keys: &[u64], block_bits: u8) -> impl Iterator<Item = u64> + use<> {
    let mut keys = keys.to_vec();
    let hash = |key: u64| HashFunction::MurmurHash3X86_128.hash(key.checked_shr(block_bits.into()).unwrap_or(0));
    keys.sort_by_cached_key(|key| (hash(*key), *key));
    keys.into_iter()
}

/// The keys `(first + i) * 2^step_bits` for `i` below `keys`, plus a constant below `2^step_bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyRun {
    first: u64,
    keys: u64,
    step_bits: u32,
}

impl KeyRun {
    /// How the run fills the patterns of a field: some rounds through all of them, then one more through a part.
    fn occupancy(self, field: BitField) -> Occupancy {
        let from = field.from.saturating_sub(self.step_bits);
        let to = field.to.saturating_sub(self.step_bits);
        let shifted = |number: u64, by: u32| number.checked_shr(by).unwrap_or(0);
        let keys = self.keys as f64;
        let cells = f64::from(to - from).exp2();
        let per_round = f64::from(from).exp2(); // in each cell
        let in_all = shifted(self.keys, to) as f64 * per_round;
        let rest = keys - in_all * cells;
        let once_more = (rest / per_round).ceil().min(cells);
        let touched = (shifted(self.first + (self.keys - 1), from) - shifted(self.first, from) + 1) as f64;
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

    /// Keys that agree in a field: runs of the bits below it, one round of the field apart.
    fn ids(self, field: BitField) -> impl Iterator<Item = u64> {
        let from = field.from.saturating_sub(self.step_bits).min(u64::BITS - 1);
        let to = field.to.saturating_sub(self.step_bits);
        let number = move |i: u64| i & low_bits(from) | (i >> from).checked_shl(to).unwrap_or(0);
        (0..self.keys).map(move |i| number(i).checked_shl(self.step_bits).unwrap_or(0))
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

    /// The number of patterns of the field if only the bits `varying` vary.
    fn patterns(self, varying: u64) -> f64 {
        f64::from((varying & self.mask()).count_ones()).exp2()
    }
}

/// A number with its lowest `bits` bits set.
fn low_bits(bits: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS.saturating_sub(bits)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For runs that fill no round, some, and all of a field.
    #[test]
    fn occupancy_equals_the_counted_one() {
        for (first, keys, step_bits) in [(0, 1000, 0), (1 << 20, 4096, 0), (0, 65_536, 3), (512, 600, 10), (0, 7, 0)] {
            let run = KeyRun { first, keys, step_bits };
            for (from, to) in [(0, 4), (0, 9), (2, 9), (3, 20), (5, 64), (12, 15), (0, 64), (63, 64)] {
                let field = BitField { from, to };
                let all = (first..first + keys).map(|number| (number << step_bits) & field.mask());
                let (found, counted) = (run.occupancy(field), Occupancy::counted(count(all)));
                assert_eq!(
                    (found.cells, found.mean, found.largest),
                    (counted.cells, counted.mean, counted.largest),
                    "{run:?} {field:?}"
                );
                let medians = (found.median - counted.median).abs();
                assert!(medians <= f64::from(from.saturating_sub(step_bits)).exp2(), "{run:?} {field:?}");
            }
        }
    }

    #[test]
    fn ids_of_a_cell_agree_in_the_field() {
        let run = KeyRun { first: 0, keys: 1 << 20, step_bits: 4 };
        let field = BitField { from: 6, to: 12 };
        let ids: Vec<u64> = run.ids(field).take(10).collect();
        assert_eq!(ids, [0, 16, 32, 48, 4096, 4112, 4128, 4144, 8192, 8208]);
    }

    #[test]
    fn masks_range_from_no_bit_to_all_bits() {
        let mask = |from, to| BitField { from, to }.mask();
        assert_eq!((mask(0, 0), mask(2, 5), mask(0, 64), mask(63, 64), mask(64, 64)), (0, 0b11100, !0, 1 << 63, 0));
    }

    #[test]
    fn constant_bits_add_no_patterns() {
        let field = BitField { from: 2, to: 5 };
        assert_eq!((field.patterns(!0), field.patterns(0b01111), field.patterns(0b00011)), (8.0, 4.0, 1.0));
    }
}
