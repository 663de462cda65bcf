//! Exact counts of keys by some of their bits: the lowest ones, or the highest ones.

use std::ops::Range;

/// The number of keys with each pattern of certain consecutive bits.
///
/// Counts saturate, so a sum does not depend on its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BitCounts {
    /// The lowest of the bits.
    from: u32,
    counts: Box<[u32]>, // 2^(number of bits)
}

/// A number with the bits `bits` set.
pub(super) fn mask(bits: &Range<u32>) -> u64 {
    let below = |end: u32| u64::MAX.checked_shr(u64::BITS.saturating_sub(end)).unwrap_or(0);
    below(bits.end) & !below(bits.start)
}

impl BitCounts {
    pub(super) fn new(bits: u32) -> BitCounts {
        BitCounts { from: 0, counts: vec![0; 1 << bits].into() }
    }

    /// The bits that are counted.
    pub(super) fn bits(&self) -> Range<u32> {
        self.from..self.from + self.counts.len().ilog2()
    }

    /// Counts a key by the current bits.
    #[inline]
    pub(super) fn insert(&mut self, key: u64) {
        let pattern = (key >> self.from) & (self.counts.len() as u64 - 1);
        if let Some(count) = usize::try_from(pattern).ok().and_then(|pattern| self.counts.get_mut(pattern)) {
            *count = count.saturating_add(1);
        }
    }

    /// Counts a key by the highest bits of the largest key so far.
    ///
    /// A key with a higher bit moves the bits up and adds the counts of patterns that become equal. The final
    /// position depends on the largest key alone.
    #[inline]
    pub(super) fn insert_high(&mut self, key: u64) {
        if key.checked_shr(self.bits().end).is_some_and(|above| above != 0) {
            self.move_up_to(u64::BITS - key.leading_zeros());
        }
        self.insert(key);
    }

    #[cold]
    fn move_up_to(&mut self, end: u32) {
        let up = end.saturating_sub(self.bits().end);
        self.from += up;
        for pattern in 0..self.counts.len() {
            let count = self.counts.get_mut(pattern).map(std::mem::take).unwrap_or_default();
            self.add(pattern, up, count);
        }
    }

    pub(super) fn merge(&mut self, other: &BitCounts) {
        self.move_up_to(other.bits().end);
        let up = self.from - other.from;
        for (pattern, count) in other.counts.iter().enumerate() {
            self.add(pattern, up, *count);
        }
    }

    /// Adds the count of a pattern of bits that start `up` bits below `from`.
    fn add(&mut self, pattern: usize, up: u32, count: u32) {
        if let Some(sum) = self.counts.get_mut(pattern.checked_shr(up).unwrap_or(0)) {
            *sum = sum.saturating_add(count);
        }
    }

    /// The number of keys with each pattern of `bits`, in ascending order of the pattern.
    ///
    /// `bits` must start within the counted bits. Bits above them are 0 in every key if the counts are of the highest
    /// bits; patterns in which they are set are left out.
    pub(super) fn by_bits(&self, bits: &Range<u32>) -> Vec<u64> {
        let field = usize::try_from(mask(bits) >> self.from).unwrap_or(usize::MAX) & (self.counts.len() - 1);
        let lowest = field.trailing_zeros();
        let mut sums = vec![0; field.checked_shr(lowest).unwrap_or(0) + 1];
        for (pattern, count) in self.counts.iter().enumerate() {
            if let Some(sum) = sums.get_mut((pattern & field).checked_shr(lowest).unwrap_or(0)) {
                *sum += u64::from(*count);
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
    fn masks_range_from_no_bit_to_all_bits() {
        let masks = [0..0, 2..5, 0..64, 63..64, 64..64].map(|bits| mask(&bits));
        assert_eq!(masks, [0, 0b11100, !0, 1 << 63, 0]);
    }

    #[test]
    fn low_bits_do_not_move() {
        let mut counts = BitCounts::new(2);
        [0b000, 0b101, 0b001, 0b111, u64::MAX].iter().for_each(|key| counts.insert(*key));
        assert_eq!(*counts.counts, [1, 2, 0, 2]);
        assert_eq!(counts.by_bits(&(1..2)), [3, 2]);
        assert_eq!(counts.by_bits(&(0..2)), [1, 2, 0, 2]);
        assert_eq!(counts.by_bits(&(0..0)), [5]);
    }

    #[test]
    fn high_bits_follow_the_largest_key() {
        let mut counts = high(2, &[0, 3, 0b1000, 0b1111, 0b0100]);
        assert_eq!(counts.bits(), 2..4);
        assert_eq!(*counts.counts, [2, 1, 1, 1]);
        counts.insert_high(u64::MAX);
        assert_eq!(counts.bits(), 62..64);
        assert_eq!(*counts.counts, [5, 0, 0, 1]);
    }

    #[test]
    fn merge_keeps_the_higher_bits_of_the_two() {
        let (small, large) = ([1, 2, 3], [40, 63, 5]);
        let all = high(3, &[1, 2, 3, 40, 63, 5]);
        for (first, second) in [(small, large), (large, small)] {
            let mut merged = high(3, &first);
            merged.merge(&high(3, &second));
            assert_eq!(merged, all);
        }
    }

    #[test]
    fn bits_may_end_above_the_largest_key() {
        let counts = high(3, &[0b01000, 0b11100, 0b11011]);
        assert_eq!(counts.by_bits(&(3..64)), [0, 1, 0, 2], "bits 3 and 4");
        assert_eq!(counts.by_bits(&(7..9)), [3], "bits that no key has set");
    }
}
