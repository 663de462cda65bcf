//! Exact counts of keys by some of their bits: the lowest ones, and the highest ones.

/// How often each pattern of certain consecutive bits occurs.
///
/// Counts saturate, so a sum does not depend on its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BitCounts {
    /// The lowest of the bits.
    from: u32,
    counts: Box<[u32]>, // 2^(number of bits)
}

impl BitCounts {
    pub(super) fn new(bits: u32) -> BitCounts {
        BitCounts { from: 0, counts: vec![0; 1 << bits].into() }
    }

    fn bits(&self) -> u32 {
        self.counts.len().ilog2()
    }

    /// One past the highest of the bits.
    pub(super) fn to(&self) -> u32 {
        self.from + self.bits()
    }

    pub(super) fn from(&self) -> u32 {
        self.from
    }

    /// Counts a key by the bits where they are.
    #[inline]
    pub(super) fn insert(&mut self, key: u64) {
        let pattern = (key >> self.from) & (self.counts.len() as u64 - 1);
        if let Some(count) = usize::try_from(pattern).ok().and_then(|pattern| self.counts.get_mut(pattern)) {
            *count = count.saturating_add(1);
        }
    }

    /// Counts a key by the highest bits of the largest number so far.
    ///
    /// No number so far has a bit above. When one comes that has, the bits move up, and counts of two patterns
    /// that differ in what is left behind become one. So where they end up is decided by the largest number
    /// alone.
    #[inline]
    pub(super) fn insert_high(&mut self, key: u64) {
        if key.checked_shr(self.to()).is_some_and(|above| above != 0) {
            self.move_up_to(u64::BITS - key.leading_zeros());
        }
        self.insert(key);
    }

    #[cold]
    fn move_up_to(&mut self, to: u32) {
        let up = to.saturating_sub(self.to());
        self.from += up;
        let coarse = |pattern: usize| pattern.checked_shr(up).unwrap_or(0);
        for pattern in 0..self.counts.len() {
            let count = self.counts.get_mut(pattern).map(std::mem::take).unwrap_or_default();
            if let Some(sum) = self.counts.get_mut(coarse(pattern)) {
                *sum = sum.saturating_add(count);
            }
        }
    }

    pub(super) fn merge(&mut self, other: &BitCounts) {
        self.move_up_to(other.to());
        let up = self.from - other.from;
        for (pattern, count) in other.counts.iter().enumerate() {
            if let Some(sum) = self.counts.get_mut(pattern.checked_shr(up).unwrap_or(0)) {
                *sum = sum.saturating_add(*count);
            }
        }
    }

    /// How many keys have each pattern of `mask`, a field of low bits or one that these bits and zeros make up.
    pub(super) fn by_field(&self, mask: u64) -> Vec<f64> {
        let field = usize::try_from(mask >> self.from).unwrap_or(usize::MAX) & (self.counts.len() - 1);
        let lowest = field.trailing_zeros();
        let mut sums = vec![0.0; field.checked_shr(lowest).unwrap_or(0) + 1];
        for (pattern, count) in self.counts.iter().enumerate() {
            if let Some(sum) = sums.get_mut((pattern & field).checked_shr(lowest).unwrap_or(0)) {
                *sum += f64::from(*count);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn high(bits: u32, keys: &[u64]) -> BitCounts {
        let mut counts = BitCounts::new(bits);
        keys.iter().for_each(|key| counts.insert_high(*key));
        counts
    }

    #[test]
    fn low_bits_stay_where_they_are() {
        let mut counts = BitCounts::new(2);
        [0b000, 0b101, 0b001, 0b111, u64::MAX].iter().for_each(|key| counts.insert(*key));
        assert_eq!(*counts.counts, [1, 2, 0, 2]);
        assert_eq!(counts.by_field(0b10), [3.0, 2.0]);
        assert_eq!(counts.by_field(0b11), [1.0, 2.0, 0.0, 2.0]);
        assert_eq!(counts.by_field(0), [5.0]);
    }

    #[test]
    fn high_bits_follow_the_largest_key() {
        let keys = [0, 3, 0b1000, 0b1111, 0b0100];
        let mut counts = high(2, &keys);
        assert_eq!((counts.from(), counts.to()), (2, 4));
        assert_eq!(*counts.counts, [2, 1, 1, 1]);
        counts.insert_high(u64::MAX);
        assert_eq!((counts.from(), counts.to()), (62, 64));
        assert_eq!(*counts.counts, [5, 0, 0, 1]);
    }

    #[test]
    fn merging_takes_the_higher_bits_of_the_two() {
        let (small, large) = ([1, 2, 3], [40, 63, 5]);
        let all = high(3, &[1, 2, 3, 40, 63, 5]);
        for (first, second) in [(small, large), (large, small)] {
            let mut merged = high(3, &first);
            merged.merge(&high(3, &second));
            assert_eq!(merged, all);
        }
    }

    #[test]
    fn a_field_may_reach_beyond_the_largest_key() {
        let counts = high(3, &[0b01000, 0b11100, 0b11011]);
        assert_eq!(counts.by_field(!0b111), [0.0, 1.0, 0.0, 2.0], "the upper two of the bits 2, 3, 4, and zeros above");
    }
}
