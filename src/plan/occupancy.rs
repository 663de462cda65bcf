//! How keys fill cells, a cell being a minishard or a shard.
//!
//! One type for every way to know: by counting, by counting some of the cells, by counting some of the keys, or
//! by the law of random placement.

use std::collections::HashMap;
use std::f64::consts::LN_2;
use std::hash::Hash;

use super::poisson;
use super::prediction::round;

/// A top that one in so many cells shares is a limit of the data, not the tail of a distribution.
const SHARED_TOP: usize = 50;

/// Panjer's recursion is left to cells of few blocks (or its first term vanishes) and few keys.
const MOST_BLOCKS: f64 = 500.0;
const MOST_TERMS: f64 = 16_384.0;

/// What is known of all cells where only some are counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct AllCells {
    /// The keys in all of them.
    pub(super) keys: f64,
    /// Those that can have keys.
    pub(super) cells: f64,
    /// Those among them that were looked at, with keys or without; `None` if that is not known.
    pub(super) looked_at: Option<f64>,
    /// No cell can hold more keys.
    pub(super) capacity: f64,
    /// The cells come in stretches of so many with nearly the same keys.
    pub(super) alike: f64,
}

impl AllCells {
    /// The number of stretches that could be the largest: of the keys that a cell holds, any one ends a stretch.
    fn stretches(self, largest: f64) -> f64 {
        self.cells * (largest / self.alike).min(1.0)
    }
}

/// How many cells hold keys, and how many keys they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Occupancy {
    /// Cells with keys.
    pub(super) cells: f64,
    /// Keys in a cell with keys.
    pub(super) mean: f64,
    pub(super) median: f64,
    pub(super) largest: f64,
    /// Keys in the cell of a key: full cells weigh more.
    pub(super) of_a_key: f64,
}

impl Occupancy {
    /// All keys in one cell.
    pub(super) fn one_cell(keys: f64) -> Occupancy {
        Occupancy { cells: 1.0, mean: keys, median: keys, largest: keys, of_a_key: keys }
    }

    /// Every cell with keys was counted.
    pub(super) fn counted(counts: Vec<f64>) -> Occupancy {
        let Some(counts) = Counts::new(counts) else { return Occupancy::default() };
        Occupancy {
            cells: counts.cells(),
            mean: counts.mean,
            median: counts.median,
            largest: counts.largest,
            of_a_key: counts.of_a_key(),
        }
    }

    /// Some of the cells were counted in full.
    ///
    /// If they scatter like random ones, they are taken for that. The largest of all is further out than the
    /// largest of some, by as much as it would be if the counts were Poisson numbers with their variance.
    pub(super) fn of_some_cells(counts: Vec<f64>, all: AllCells) -> Option<Occupancy> {
        let counts = Counts::new(counts)?;
        let unit = counts.variance / counts.mean;
        if all.looked_at.is_some_and(|cells| counts.scatter_at_random(cells)) {
            let at_random = Occupancy::scattered(all.keys, all.cells, 1.0);
            let largest = poisson::largest_of(all.stretches(at_random.largest), all.keys / all.cells);
            return Some(Occupancy { largest: largest.min(all.capacity).max(counts.largest), ..at_random });
        }
        let cells = (all.keys / counts.mean).max(counts.cells());
        let further = match counts.top_is_shared() || unit <= f64::EPSILON {
            true => 0.0,
            false => {
                let largest_of = |many| unit * poisson::largest_of(many, counts.mean / unit);
                let stretches = AllCells { cells, ..all }.stretches(counts.largest);
                (largest_of(stretches) - largest_of(counts.cells())).max(0.0)
            }
        };
        Some(Occupancy {
            cells,
            mean: counts.mean,
            median: counts.median,
            largest: (counts.largest + further.round()).min(all.capacity).max(counts.largest),
            of_a_key: counts.of_a_key(),
        })
    }

    /// Some of the `keys` were counted in every cell.
    ///
    /// The counts scatter more than the cells do: by the luck of the draw. What remains after its variance is
    /// taken off is put down to the cells, unless luck may well have varied that much itself.
    pub(super) fn of_some_keys(counts: Vec<f64>, keys: f64) -> Option<Occupancy> {
        let counts = Counts::new(counts)?;
        let drawn = counts.mean * counts.cells() / keys;
        let luck = counts.mean * (1.0 - drawn);
        let may_be_luck = counts.variance <= luck * (1.0 + 2.0 * (2.0 / counts.cells()).sqrt());
        let kept = if may_be_luck { 0.0 } else { (1.0 - luck / counts.variance).sqrt() };
        let mean = keys / counts.cells();
        let chance = if may_be_luck { poisson::largest_of(counts.cells(), mean) - mean } else { 0.0 };
        let in_full = |count: f64| mean + (count - counts.mean) / drawn * kept;
        Some(Occupancy {
            cells: counts.cells(),
            mean,
            median: in_full(counts.median).round(),
            largest: (in_full(counts.largest) + chance).round(),
            of_a_key: mean + (counts.of_a_key() - counts.mean) / drawn * kept * kept,
        })
    }

    /// `keys` are thrown at random into `cells`, in clumps of `unit` keys that stay together.
    pub(super) fn scattered(keys: f64, cells: f64, unit: f64) -> Occupancy {
        if keys <= 0.0 {
            return Occupancy::default();
        }
        let unit = unit.clamp(f64::EPSILON, keys); // 0: evenly spread
        let expected = keys / cells;
        let clumps = expected / unit;
        let with_keys = (cells * -(-clumps).exp_m1()).clamp(1.0, keys);
        let others = 1.0 - 1.0 / cells; // the total is fixed: with one cell nothing is left to chance
        let largest = expected + (unit * poisson::largest_of(cells, clumps) - expected) * others.sqrt();
        let mean = keys / with_keys;
        Occupancy {
            cells: with_keys,
            mean,
            median: if cells > 1.0 { (unit * poisson::median_above_zero(clumps)).round() } else { keys },
            largest: largest.max(mean).ceil().min(keys),
            of_a_key: expected + unit * others,
        }
    }

    /// `keys` lie in blocks like those of which the keys were counted, and the blocks are thrown at random into
    /// `cells`.
    ///
    /// Exact by Panjer's recursion for the sum of a Poisson number of random numbers, or, where that would be
    /// long, with all blocks as large as that of an average key.
    pub(super) fn of_blocks(blocks: Vec<f64>, keys: f64, cells: f64) -> Occupancy {
        let Some(blocks) = Counts::new(blocks) else { return Occupancy::scattered(keys, cells, 1.0) };
        let blocks_per_cell = keys / blocks.mean / cells;
        let deviation = (blocks_per_cell * blocks.mean * blocks.of_a_key()).sqrt();
        let end = (keys / cells + 12.0 * (deviation + blocks.largest)).ceil();
        if blocks.largest == 1.0 || blocks_per_cell > MOST_BLOCKS || end > MOST_TERMS {
            return Occupancy::scattered(keys, cells, blocks.of_a_key());
        }
        let sizes = blocks.shares();
        let mut probabilities = vec![(-blocks_per_cell).exp()];
        while (probabilities.len() as f64) < end {
            let keys_here = probabilities.len();
            let term = |(size, share): &(usize, f64)| {
                let before = keys_here.checked_sub(*size).and_then(|before| probabilities.get(before));
                *size as f64 * share * before.unwrap_or(&0.0)
            };
            let sum: f64 = sizes.iter().map(term).sum();
            probabilities.push(blocks_per_cell / keys_here as f64 * sum);
        }
        let with_keys = (cells * -(-blocks_per_cell).exp_m1()).clamp(1.0, keys);
        let others = 1.0 - 1.0 / cells;
        Occupancy {
            cells: with_keys,
            mean: keys / with_keys,
            median: median_above_zero(&probabilities),
            largest: largest_of(cells, &probabilities).max(keys / with_keys).min(keys),
            of_a_key: keys / cells + blocks.of_a_key() * others,
        }
    }

    /// The largest cell, in multiples of the mean.
    pub(super) fn skew(self) -> f64 {
        if self.mean > 0.0 { self.largest / self.mean } else { 1.0 }
    }
}

/// The median of a number above zero, given the probabilities of all numbers.
fn median_above_zero(probabilities: &[f64]) -> f64 {
    let half = probabilities.iter().skip(1).sum::<f64>() / 2.0;
    let mut up_to = 0.0;
    let below = probabilities.iter().skip(1).take_while(|probability| {
        up_to += **probability;
        up_to < half
    });
    below.count() as f64 + 1.0
}

/// The median of the largest of `many` numbers, given the probabilities of one.
fn largest_of(many: f64, probabilities: &[f64]) -> f64 {
    let mut at_least = 0.0;
    let beyond = probabilities.iter().rev().take_while(|probability| {
        at_least += **probability;
        at_least <= LN_2 / many
    });
    probabilities.len().saturating_sub(1 + beyond.count()) as f64
}

/// How often each cell occurs.
pub(super) fn count<T: Hash + Eq>(cells: impl Iterator<Item = T>) -> Vec<f64> {
    let mut counts: HashMap<T, f64> = HashMap::new();
    cells.for_each(|cell| *counts.entry(cell).or_default() += 1.0);
    counts.into_values().collect()
}

/// Counts above zero, with what is computed from all of them.
struct Counts {
    ascending: Vec<f64>,
    mean: f64,
    variance: f64,
    median: f64,
    largest: f64,
}

impl Counts {
    fn new(mut counts: Vec<f64>) -> Option<Counts> {
        counts.retain(|count| *count > 0.0);
        counts.sort_unstable_by(f64::total_cmp); // sums of floats depend on the order
        let (median, largest) = (*counts.get(counts.len() / 2)?, *counts.last()?);
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        Some(Counts { ascending: counts, mean, variance, median, largest })
    }

    fn cells(&self) -> f64 {
        self.ascending.len() as f64
    }

    /// Each number with its share of the counts.
    fn shares(&self) -> Vec<(usize, f64)> {
        let equal = self.ascending.chunk_by(|a, b| a == b);
        let share = |equal: &[f64]| equal.len() as f64 / self.cells();
        let size = |equal: &[f64]| equal.first().and_then(|count| usize::try_from(round(*count)).ok());
        equal.filter_map(|equal| Some((size(equal)?, share(equal)))).collect()
    }

    fn of_a_key(&self) -> f64 {
        self.mean + self.variance / self.mean
    }

    /// As Poisson numbers do: variance and mean over so many cells, empty ones included, are equal to within
    /// three standard errors.
    fn scatter_at_random(&self, cells: f64) -> bool {
        let mean = self.mean * self.cells() / cells;
        let dispersion = self.of_a_key() - mean;
        (dispersion - 1.0).abs() < 3.0 * ((2.0 + 1.0 / mean) / cells).sqrt()
    }

    fn top_is_shared(&self) -> bool {
        let at_top = self.ascending.iter().rev().take_while(|count| **count == self.largest).count();
        at_top * SHARED_TOP >= self.ascending.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_only_cells_with_keys() {
        let occupancy = Occupancy::counted(vec![0.0, 2.0, 0.0, 4.0, 6.0]);
        assert_eq!((occupancy.cells, occupancy.mean, occupancy.median, occupancy.largest), (3.0, 4.0, 4.0, 6.0));
        assert_eq!(occupancy.of_a_key, 56.0 / 12.0); // (4 + 16 + 36) / (2 + 4 + 6)
        assert_eq!(Occupancy::counted(vec![]), Occupancy::default());
    }

    #[test]
    fn nothing_is_left_to_chance_with_one_cell() {
        assert_eq!(Occupancy::scattered(1e6, 1.0, 1.0), Occupancy::one_cell(1e6));
        assert_eq!(Occupancy::scattered(0.0, 16.0, 1.0), Occupancy::default());
    }

    #[test]
    fn clumps_stay_together() {
        // 1000 clumps of 64 in 2^20 cells: nearly every one alone
        let occupancy = Occupancy::scattered(64e3, 1048576.0, 64.0);
        assert_eq!((occupancy.cells.round(), occupancy.median), (1000.0, 64.0));
        assert!(occupancy.largest >= 64.0 && occupancy.largest <= 128.0);
    }

    fn all(keys: f64, cells: f64, capacity: f64) -> AllCells {
        AllCells { keys, cells, looked_at: None, capacity, alike: 1.0 }
    }

    #[test]
    fn a_shared_top_is_a_limit() {
        let counts = [vec![8.0; 900], vec![4.0; 100]].concat();
        let occupancy = Occupancy::of_some_cells(counts, all(7.6e6, 2e6, f64::INFINITY)).unwrap();
        assert_eq!((occupancy.largest, occupancy.median), (8.0, 8.0));
        assert_eq!(occupancy.cells.round(), 1e6);
    }

    #[test]
    fn the_largest_of_all_is_beyond_the_largest_of_some_but_within_capacity() {
        let some: Vec<f64> = (0..1000).map(|i| f64::from(2 + i % 9)).chain([12.0]).collect();
        let largest = |all| Occupancy::of_some_cells(some.clone(), all).unwrap().largest;
        assert!(largest(all(6e6, 4e6, f64::INFINITY)) > 15.0);
        assert_eq!(largest(all(6e6, 4e6, 13.0)), 13.0);
        let in_stretches = AllCells { alike: 1e4, ..all(6e6, 4e6, f64::INFINITY) };
        assert!(largest(in_stretches) < largest(all(6e6, 4e6, f64::INFINITY)));
    }

    #[test]
    fn what_scatters_like_random_cells_is_taken_for_that() {
        // 0 to 5 keys as often as a mean of 1 has them
        let some = [(1.0, 368), (2.0, 184), (3.0, 61), (4.0, 15), (5.0, 4)];
        let some: Vec<f64> = some.iter().flat_map(|(count, cells)| vec![*count; *cells]).collect();
        let random = AllCells { looked_at: Some(1000.0), ..all(1e6, 1e6, f64::INFINITY) };
        let at_random = Occupancy::of_some_cells(some.clone(), random).unwrap();
        assert_eq!(at_random, Occupancy::scattered(1e6, 1e6, 1.0));
        let with_fewer_empty = AllCells { looked_at: Some(700.0), ..random };
        assert_ne!(Occupancy::of_some_cells(some, with_fewer_empty).unwrap().cells, at_random.cells);
    }

    /// The recursion against what it stands for, where both are known: blocks of one key.
    #[test]
    fn blocks_of_one_size_fall_like_keys() {
        let blocks = Occupancy::of_blocks(vec![8.0; 100], 8e6, 1e6);
        let keys = Occupancy::scattered(1e6, 1e6, 1.0);
        assert!((blocks.cells / keys.cells - 1.0).abs() < 1e-9);
        assert_eq!((blocks.median, blocks.largest), (8.0 * keys.median, 8.0 * keys.largest));
        assert!((blocks.of_a_key - 8.0 * keys.of_a_key).abs() < 1e-6);
    }

    #[test]
    fn blocks_of_several_sizes_keep_them() {
        let blocks = Occupancy::of_blocks(vec![1.0, 100.0], 5.05e3, 1e6); // 100 blocks in many cells
        assert_eq!((blocks.cells.round(), blocks.largest), (100.0, 100.0));
    }

    #[test]
    fn the_luck_of_the_draw_is_taken_off() {
        // one key in 100 of even cells: 84 to 116 drawn of 100 is luck; of uneven ones it is not
        let even: Vec<f64> = (0..100).map(|i| [90.0, 100.0, 110.0][i % 3]).collect();
        let occupancy = Occupancy::of_some_keys(even, 1e6).unwrap();
        assert!(occupancy.skew() < 1.04);
        let uneven: Vec<f64> = (0..100).map(|i| [50.0, 100.0, 150.0][i % 3]).collect();
        let occupancy = Occupancy::of_some_keys(uneven, 1e6).unwrap();
        assert!(occupancy.skew() > 1.45);
    }
}
