//! Consecutive bits of a key, which select its minishard or shard under identity.

/// The bits `from..to` of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BitField {
    pub(super) from: u32,
    pub(super) to: u32,
}

impl BitField {
    pub(super) fn mask(self) -> u64 {
        low_bits(self.to) & !low_bits(self.from)
    }

    /// The number of patterns of the field if only the bits `varying` vary.
    pub(super) fn patterns(self, varying: u64) -> f64 {
        f64::from((varying & self.mask()).count_ones()).exp2()
    }
}

/// A number with its lowest `bits` bits set.
pub(super) fn low_bits(bits: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS.saturating_sub(bits)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

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
