//! How keys fill cells, a cell being a minishard or a shard.
//!
//! One type for every way to know: by counting, by counting some of the cells, by counting some of the keys, or
//! by the law of random placement.

use std::collections::HashMap;
use std::hash::Hash;

use super::poisson;

/// A top that one in so many cells shares is a limit of the data, not the tail of a distribution.
const SHARED_TOP: usize = 50;

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

    /// `keys` lie in cells of which some were counted in full; no cell can hold more than `capacity`.
    ///
    /// The largest of all is further out than the largest of some, by as much as it would be if the counts were
    /// Poisson numbers with their variance.
    pub(super) fn of_some_cells(counts: Vec<f64>, keys: f64, capacity: f64) -> Option<Occupancy> {
        let counts = Counts::new(counts)?;
        let cells = (keys / counts.mean).max(counts.cells());
        let unit = counts.variance / counts.mean;
        let further = match counts.top_is_shared() || unit <= f64::EPSILON {
            true => 0.0,
            false => {
                let largest_of = |many| unit * poisson::largest_of(many, counts.mean / unit);
                largest_of(cells) - largest_of(counts.cells())
            }
        };
        Some(Occupancy {
            cells,
            mean: counts.mean,
            median: counts.median,
            largest: (counts.largest + further.round()).min(capacity).max(counts.largest),
            of_a_key: counts.of_a_key(),
        })
    }

    /// Some of the `keys` were counted in every cell.
    ///
    /// The counts scatter more than the cells do: by the luck of the draw. What remains after its variance is
    /// taken off is put down to the cells.
    pub(super) fn of_some_keys(counts: Vec<f64>, keys: f64) -> Option<Occupancy> {
        let counts = Counts::new(counts)?;
        let drawn = counts.mean * counts.cells() / keys;
        let luck = counts.mean * (1.0 - drawn);
        let kept = (1.0 - luck / counts.variance.max(luck).max(f64::MIN_POSITIVE)).max(0.0).sqrt();
        let mean = keys / counts.cells();
        let in_full = |count: f64| mean + (count - counts.mean) / drawn * kept;
        Some(Occupancy {
            cells: counts.cells(),
            mean,
            median: in_full(counts.median).round(),
            largest: in_full(counts.largest).round(),
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

    /// The largest cell, in multiples of the mean.
    pub(super) fn skew(self) -> f64 {
        if self.mean > 0.0 { self.largest / self.mean } else { 1.0 }
    }
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

    #[test]
    fn a_shared_top_is_a_limit() {
        let counts = [vec![8.0; 900], vec![4.0; 100]].concat();
        let occupancy = Occupancy::of_some_cells(counts, 7.6e6, f64::INFINITY).unwrap();
        assert_eq!((occupancy.largest, occupancy.median), (8.0, 8.0));
        assert_eq!(occupancy.cells.round(), 1e6);
    }

    #[test]
    fn the_largest_of_all_is_beyond_the_largest_of_some_but_within_capacity() {
        let some: Vec<f64> = (0..1000).map(|i| f64::from(2 + i % 9)).chain([12.0]).collect();
        let unlimited = Occupancy::of_some_cells(some.clone(), 6e6, f64::INFINITY).unwrap();
        assert!(unlimited.largest > 15.0);
        assert_eq!(Occupancy::of_some_cells(some, 6e6, 13.0).unwrap().largest, 13.0);
    }

    #[test]
    fn the_luck_of_the_draw_is_taken_off() {
        // one key in 100 of even cells: 84 to 116 drawn of 100 is luck; of uneven ones it is not
        let even: Vec<f64> = (0..100).map(|i| [90.0, 100.0, 110.0][i % 3]).collect();
        let occupancy = Occupancy::of_some_keys(even, 1e6).unwrap();
        assert!(occupancy.skew() < 1.02);
        let uneven: Vec<f64> = (0..100).map(|i| [50.0, 100.0, 150.0][i % 3]).collect();
        let occupancy = Occupancy::of_some_keys(uneven, 1e6).unwrap();
        assert!(occupancy.skew() > 1.45);
    }
}
