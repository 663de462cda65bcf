//! Keys without gaps, whose occupancy under identity can be computed.

use super::bit_field::{BitField, low_bits};
use super::occupancy::Occupancy;

/// The keys `(first + i) * 2^step_bits` for `i` below `keys`, plus a constant below `2^step_bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyRun {
    pub(super) first: u64,
    pub(super) keys: u64,
    pub(super) step_bits: u32,
}

impl KeyRun {
    /// How the run fills the patterns of a field: some rounds through all of them, then one more through a part.
    pub(super) fn occupancy(self, field: BitField) -> Occupancy {
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
    pub(super) fn ids(self, field: BitField) -> impl Iterator<Item = u64> {
        let from = field.from.saturating_sub(self.step_bits).min(u64::BITS - 1);
        let to = field.to.saturating_sub(self.step_bits);
        let number = move |i: u64| i & low_bits(from) | (i >> from).checked_shl(to).unwrap_or(0);
        (0..self.keys).map(move |i| number(i).checked_shl(self.step_bits).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::occupancy::count;

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
}
