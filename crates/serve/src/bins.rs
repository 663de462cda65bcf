//! Bins of whole numbers whose width grows with the numbers: log-linear, without gaps.

/// The same number of bins per power of two. Bins of small numbers have one number each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bins {
    /// Binary logarithm of the number of bins per power of two.
    bits: u32,
}

impl Bins {
    /// Returns the bins with `2^bits` per power of two; `bits` is at most 16.
    pub(crate) const fn with_bits(bits: u32) -> Bins {
        Bins { bits }
    }

    /// Returns the bin of a number. The bins are numbered from 0 in ascending order.
    pub(crate) fn of(self, number: u64) -> usize {
        let power = number.max(1).ilog2();
        let bin = match power.checked_sub(self.bits) {
            None => number,
            Some(shift) => (u64::from(shift) << self.bits) + (number >> shift),
        };
        usize::try_from(bin).unwrap_or(usize::MAX)
    }

    /// Returns the smallest number of a bin; `u64::MAX` for one that is above all numbers.
    pub(crate) fn first(self, bin: usize) -> u64 {
        let bin = bin as u64;
        let per_power = 1 << self.bits;
        let Some(shift) = (bin >> self.bits).checked_sub(1) else { return bin };
        let first = u32::try_from(shift).ok().and_then(|shift| 1u64.checked_shl(shift));
        first.and_then(|width| width.checked_mul(per_power + bin % per_power)).unwrap_or(u64::MAX)
    }

    /// Returns the largest number of a bin.
    pub(crate) fn last(self, bin: usize) -> u64 {
        match self.first(bin.saturating_add(1)) {
            u64::MAX => u64::MAX,
            next => next - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_have_bins_of_their_own() {
        let bins = Bins::with_bits(5);
        for number in 0..64 {
            let bin = usize::try_from(number).unwrap();
            assert_eq!((bins.of(number), bins.first(bin), bins.last(bin)), (bin, number, number));
        }
        // two numbers per bin up to 127, then four
        assert_eq!([64, 65, 66, 127, 128, 131, 132].map(|number| bins.of(number)), [64, 64, 65, 95, 96, 96, 97]);
        assert_eq!((bins.first(95), bins.last(95), bins.first(96), bins.last(96)), (126, 127, 128, 131));
    }

    #[test]
    fn bins_are_consecutive_and_have_their_numbers() {
        for bits in [0, 3, 5] {
            let bins = Bins::with_bits(bits);
            for number in
                (0..64).flat_map(|power| [(1u64 << power) - 1, 1 << power, (1 << power) + 1]).chain([u64::MAX])
            {
                let bin = bins.of(number);
                let (first, last) = (bins.first(bin), bins.last(bin));
                assert!(first <= number && number <= last, "{bits}: {number} is not in {first}..={last}");
                assert!(last - first <= first >> bits, "{bits}: {first}..={last} is too wide");
                assert!(last == u64::MAX || bins.first(bin + 1) == last + 1);
                assert!(bin == 0 || bins.last(bin - 1) == first - 1);
            }
        }
        assert_eq!(Bins::with_bits(3).first(usize::MAX), u64::MAX);
    }
}
