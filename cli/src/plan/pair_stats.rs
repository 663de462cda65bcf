//! Statistics of pairs: those of the library, and the lengths of values.

use sharddb::plan::KeyStats;

/// What predictions depend on. Independent of the order of insertion.
#[derive(Debug)]
pub(crate) struct PairStats {
    keys: KeyStats,
    pub(super) pairs: u64,
    pub(super) value_bytes: u64,
    pub(super) preamble_bytes: u64,
    pub(super) shortest_value: u64,
    pub(super) longest_value: u64,
    /// Index `b`: the number of values whose stored length has `b` significant bits.
    pub(super) values_by_bits: [u64; 65],
    /// The sum over pairs of the square of the stored length of preamble and value together.
    square_sum: u128,
}

impl PairStats {
    pub(crate) fn new() -> PairStats {
        PairStats {
            keys: KeyStats::new(),
            pairs: 0,
            value_bytes: 0,
            preamble_bytes: 0,
            shortest_value: u64::MAX,
            longest_value: 0,
            values_by_bits: [0; 65],
            square_sum: 0,
        }
    }

    /// Pairs of which only the number and the bytes of all values are known: values of equal length.
    pub(crate) fn of_counts(pairs: u64, value_bytes: u64) -> PairStats {
        let mut stats = PairStats { pairs, value_bytes, ..PairStats::new() };
        stats.add_lengths(0, value_bytes / pairs.max(1), pairs);
        stats
    }

    /// Counts a pair, given the stored lengths of its preamble and of its value.
    pub(crate) fn insert(&mut self, key: u64, preamble_len: u64, value_len: u64) {
        self.keys.insert(key, preamble_len, value_len);
        self.pairs = self.pairs.saturating_add(1);
        self.value_bytes = self.value_bytes.saturating_add(value_len);
        self.preamble_bytes = self.preamble_bytes.saturating_add(preamble_len);
        self.add_lengths(preamble_len, value_len, 1);
    }

    fn add_lengths(&mut self, preamble_len: u64, value_len: u64, times: u64) {
        self.shortest_value = self.shortest_value.min(value_len);
        self.longest_value = self.longest_value.max(value_len);
        if let Some(count) = self.values_by_bits.get_mut((u64::BITS - value_len.leading_zeros()) as usize) {
            *count = count.saturating_add(times);
        }
        let together = u128::from(value_len.saturating_add(preamble_len));
        self.square_sum = self.square_sum.saturating_add((together * together).saturating_mul(times.into()));
    }

    /// The library's statistics; empty if only counts are known.
    pub(crate) fn keys(&self) -> &KeyStats {
        &self.keys
    }

    /// The variance of the stored length of preamble and value together.
    pub(super) fn length_variance(&self) -> f64 {
        let pairs = self.pairs.max(1) as f64;
        let mean = (self.value_bytes as f64 + self.preamble_bytes as f64) / pairs;
        (self.square_sum as f64 / pairs - mean * mean).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lengths() {
        let mut stats = PairStats::new();
        for (key, preamble_len, value_len) in [(8, 0, 0), (24, 5, 1), (16, 0, 7), (8, 0, u64::MAX)] {
            stats.insert(key, preamble_len, value_len);
        }
        assert_eq!((stats.pairs, stats.preamble_bytes, stats.value_bytes), (4, 5, u64::MAX));
        assert_eq!((stats.shortest_value, stats.longest_value), (0, u64::MAX));
        let by_bits = stats.values_by_bits;
        assert_eq!((by_bits[0], by_bits[1], by_bits[3], by_bits[64]), (1, 1, 1, 1));
    }

    #[test]
    fn variance_is_of_preamble_and_value_together() {
        let mut stats = PairStats::new();
        stats.insert(1, 10, 0);
        stats.insert(2, 0, 20);
        assert_eq!(stats.length_variance(), 25.0);
        assert_eq!(PairStats::of_counts(10, 1000).length_variance(), 0.0);
    }
}
