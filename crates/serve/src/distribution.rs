//! How often each number occurs: exact for small numbers, by bins of at most 1/32 of the number for large ones.

use serde_json::{Value, json};

use crate::bins::Bins;

/// One number per bin below 64, then 32 bins per power of two.
const BINS: Bins = Bins::with_bits(5);

/// Counts per bin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distribution {
    /// Ends with the bin of the largest number.
    counts: Vec<u64>,
}

impl Distribution {
    pub(crate) fn add(&mut self, number: u64) {
        self.add_times(number, 1);
    }

    /// Adds `number` `times` times.
    pub(crate) fn add_times(&mut self, number: u64, times: u64) {
        if times == 0 {
            return;
        }
        let bin = BINS.of(number);
        if self.counts.len() <= bin {
            self.counts.resize(bin + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(bin) {
            *count = count.saturating_add(times);
        }
    }

    /// The edges, of which there is one more than counts, from the first bin that is not empty to the last. A number is in
    /// the bin whose first edge it reaches and whose second it does not.
    pub(crate) fn json(&self) -> Value {
        let Some(first) = self.counts.iter().position(|count| *count > 0) else {
            return json!({"edges": [], "counts": []});
        };
        let edges: Vec<u64> = (first..=self.counts.len()).map(|bin| BINS.first(bin)).collect();
        json!({"edges": edges, "counts": self.counts.get(first..).unwrap_or_default()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[u64]) -> Value {
        let mut distribution = Distribution::default();
        numbers.iter().for_each(|number| distribution.add(*number));
        distribution.json()
    }

    #[test]
    fn edges_enclose_the_counts() {
        assert_eq!(of(&[]), json!({"edges": [], "counts": []}));
        assert_eq!(of(&[0, 1, 3, 3]), json!({"edges": [0, 1, 2, 3, 4], "counts": [1, 1, 0, 2]}));
        assert_eq!(of(&[30, 31, 31, 32]), json!({"edges": [30, 31, 32, 33], "counts": [1, 2, 1]}));
        assert_eq!(of(&[63, 64, 65, 66]), json!({"edges": [63, 64, 66, 68], "counts": [1, 2, 1]}));
        assert_eq!(of(&[1000]), json!({"edges": [992, 1008], "counts": [1]}));
        assert_eq!(of(&[u64::MAX])["counts"], json!([1]));
    }

    #[test]
    fn a_count_of_zero_adds_no_bin() {
        let mut distribution = Distribution::default();
        distribution.add_times(0, 0);
        assert_eq!(distribution.json()["edges"], json!([]));
        distribution.add_times(7, 3);
        assert_eq!(distribution.json(), json!({"edges": [7, 8], "counts": [3]}));
    }
}
