//! How keys fill cells: minishards or shards.
//!
//! One type for every source: all cells counted, some cells counted, some keys counted, or random placement.

use std::collections::HashMap;
use std::f64::consts::LN_2;
use std::hash::Hash;

use sharddb::internal::poisson;

/// A largest count that at least one in this many cells has is a limit of the data, not the tail of a distribution.
const SHARED_TOP: usize = 50;

/// Panjer's recursion is limited to cells of few blocks (or its first term underflows) and few keys.
const MAX_BLOCKS: f64 = 500.0;
const MAX_TERMS: f64 = 16_384.0;

/// How many cells hold keys, and how many keys they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Occupancy {
    /// The number of cells with keys.
    pub(super) cells: f64,
    /// Mean, median and maximum of the number of keys in a cell with keys.
    pub(super) mean: f64,
    pub(super) median: f64,
    pub(super) largest: f64,
    /// The mean over keys of the number of keys in the same cell. Full cells weigh more.
    pub(super) of_a_key: f64,
}

impl Occupancy {
    /// All keys are in one cell.
    pub(super) fn one_cell(keys: f64) -> Occupancy {
        Occupancy { cells: 1.0, mean: keys, median: keys, largest: keys, of_a_key: keys }
    }

    /// Every cell with keys is counted.
    pub(super) fn counted(counts: Vec<f64>) -> Occupancy {
        let Some(counts) = CellCounts::new(counts) else { return Occupancy::default() };
        Occupancy {
            cells: counts.cells(),
            mean: counts.mean,
            median: counts.median,
            largest: counts.largest,
            of_a_key: counts.of_a_key(),
        }
    }

    /// Some of the cells of `keys` keys are counted, each in full. No cell can hold more than `capacity` keys.
    ///
    /// The largest of all cells exceeds the largest counted one by as much as for Poisson numbers of their variance.
    pub(super) fn of_some_cells(counts: Vec<f64>, keys: f64, capacity: f64) -> Option<Occupancy> {
        let counts = CellCounts::new(counts)?;
        let unit = counts.variance / counts.mean;
        let cells = (keys / counts.mean).max(counts.cells());
        let further = if counts.top_is_shared() || unit <= f64::EPSILON {
            0.0
        } else {
            let largest_of = |many| unit * poisson::largest_of(many, counts.mean / unit);
            (largest_of(cells) - largest_of(counts.cells())).max(0.0)
        };
        Some(Occupancy {
            cells,
            mean: counts.mean,
            median: counts.median,
            largest: (counts.largest + further.round()).min(capacity).max(counts.largest),
            of_a_key: counts.of_a_key(),
        })
    }

    /// Some of the `keys` are counted in every cell.
    ///
    /// The counts vary more than the cells do, by the variance of sampling. It is taken off; if the variance of the
    /// counts may be sampling alone, the cells are taken for randomly filled.
    pub(super) fn of_some_keys(counts: Vec<f64>, keys: f64) -> Option<Occupancy> {
        let counts = CellCounts::new(counts)?;
        let sampled = counts.mean * counts.cells() / keys;
        let by_sampling = counts.mean * (1.0 - sampled);
        let may_be_sampling = counts.variance <= by_sampling * (1.0 + 2.0 * (2.0 / counts.cells()).sqrt());
        let kept = if may_be_sampling { 0.0 } else { (1.0 - by_sampling / counts.variance).sqrt() };
        let mean = keys / counts.cells();
        let by_chance = if may_be_sampling { poisson::largest_of(counts.cells(), mean) - mean } else { 0.0 };
        let in_full = |count: f64| mean + (count - counts.mean) / sampled * kept;
        Some(Occupancy {
            cells: counts.cells(),
            mean,
            median: in_full(counts.median).round(),
            largest: (in_full(counts.largest) + by_chance).round(),
            of_a_key: mean + (counts.of_a_key() - counts.mean) / sampled * kept * kept,
        })
    }

    /// `keys` are placed at random into `cells`, in clumps of `unit` keys that stay together.
    pub(super) fn scattered(keys: f64, cells: f64, unit: f64) -> Occupancy {
        if keys <= 0.0 {
            return Occupancy::default();
        }
        let unit = unit.clamp(f64::EPSILON, keys); // 0: evenly spread
        let expected = keys / cells;
        let clumps = expected / unit;
        let with_keys = (cells * -(-clumps).exp_m1()).clamp(1.0, keys);
        let others = 1.0 - 1.0 / cells; // the total is fixed, so one cell does not vary
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

    /// `keys` are in blocks like those of which the keys are counted, and the blocks are placed at random into `cells`.
    ///
    /// Exact by Panjer's recursion for the sum of a Poisson number of random numbers. Where that would be long, all
    /// blocks count as large as that of an average key.
    pub(super) fn of_blocks(blocks: Vec<f64>, keys: f64, cells: f64) -> Occupancy {
        let Some(blocks) = CellCounts::new(blocks) else { return Occupancy::scattered(keys, cells, 1.0) };
        let blocks_per_cell = keys / blocks.mean / cells;
        let deviation = (blocks_per_cell * blocks.mean * blocks.of_a_key()).sqrt();
        let end = (keys / cells + 12.0 * (deviation + blocks.largest)).ceil();
        if blocks.largest == 1.0 || blocks_per_cell > MAX_BLOCKS || end > MAX_TERMS {
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

/// The number of occurrences of each cell.
pub(super) fn count<T: Hash + Eq>(cells: impl Iterator<Item = T>) -> Vec<f64> {
    let mut counts: HashMap<T, f64> = HashMap::new();
    cells.for_each(|cell| *counts.entry(cell).or_default() += 1.0);
    counts.into_values().collect()
}

/// The nearest integer of a number that counts something.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates, as it should")]
pub(super) fn round(number: f64) -> u64 {
    number.round() as u64
}

/// The numbers of keys of the cells with keys, and their moments.
struct CellCounts {
    ascending: Vec<f64>,
    mean: f64,
    variance: f64,
    median: f64,
    largest: f64,
}

impl CellCounts {
    fn new(mut counts: Vec<f64>) -> Option<CellCounts> {
        counts.retain(|count| *count > 0.0);
        counts.sort_unstable_by(f64::total_cmp); // float sums depend on the order
        let (median, largest) = (*counts.get(counts.len() / 2)?, *counts.last()?);
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        Some(CellCounts { ascending: counts, mean, variance, median, largest })
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

    fn top_is_shared(&self) -> bool {
        let at_top = self.ascending.iter().rev().take_while(|count| **count == self.largest).count();
        at_top * SHARED_TOP >= self.ascending.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cells_with_keys_count() {
        let occupancy = Occupancy::counted(vec![0.0, 2.0, 0.0, 4.0, 6.0]);
        assert_eq!((occupancy.cells, occupancy.mean, occupancy.median, occupancy.largest), (3.0, 4.0, 4.0, 6.0));
        assert_eq!(occupancy.of_a_key, 56.0 / 12.0); // (4 + 16 + 36) / (2 + 4 + 6)
        assert_eq!(Occupancy::counted(vec![]), Occupancy::default());
    }

    #[test]
    fn one_cell_holds_all_keys() {
        assert_eq!(Occupancy::scattered(1e6, 1.0, 1.0), Occupancy::one_cell(1e6));
        assert_eq!(Occupancy::scattered(0.0, 16.0, 1.0), Occupancy::default());
    }

    #[test]
    fn clumps_stay_together() {
        // 1000 clumps of 64 in 2^20 cells: nearly every clump has its own cell
        let occupancy = Occupancy::scattered(64e3, 1048576.0, 64.0);
        assert_eq!((occupancy.cells.round(), occupancy.median), (1000.0, 64.0));
        assert!(occupancy.largest >= 64.0 && occupancy.largest <= 128.0);
    }

    #[test]
    fn a_shared_top_is_a_limit() {
        let counts = [vec![8.0; 900], vec![4.0; 100]].concat();
        let occupancy = Occupancy::of_some_cells(counts, 7.6e6, f64::INFINITY).unwrap();
        assert_eq!((occupancy.largest, occupancy.median), (8.0, 8.0));
        assert_eq!(occupancy.cells.round(), 1e6);
    }

    #[test]
    fn the_largest_of_all_exceeds_the_largest_of_some_within_capacity() {
        let some: Vec<f64> = (0..1000).map(|i| f64::from(2 + i % 9)).chain([12.0]).collect();
        let largest = |capacity| Occupancy::of_some_cells(some.clone(), 6e6, capacity).unwrap().largest;
        assert!(largest(f64::INFINITY) > 15.0);
        assert_eq!(largest(13.0), 13.0);
    }

    /// The recursion against random placement, for blocks of one size.
    #[test]
    fn blocks_of_one_size_scatter_like_keys() {
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
    fn the_variance_of_sampling_is_taken_off() {
        // one key in 100 of even cells: 84 to 116 of 100 may be sampling; in uneven cells it is not
        let skew = |counts: [f64; 3]| {
            let counts = (0..100).map(|i| counts[i % 3]).collect();
            let occupancy = Occupancy::of_some_keys(counts, 1e6).unwrap();
            occupancy.largest / occupancy.mean
        };
        assert!(skew([90.0, 100.0, 110.0]) < 1.04);
        assert!(skew([50.0, 100.0, 150.0]) > 1.45);
    }
}
