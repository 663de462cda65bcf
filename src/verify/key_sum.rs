//! The sum of a set of keys, in any order.

/// The sum of a 128-bit mix of each key, modulo 2^128.
///
/// Two sets of keys that differ by accident have the same sum with a probability of 2^-128. No key is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeySum(u128);

impl KeySum {
    /// Adds the keys of another set.
    pub(super) fn merge(&mut self, other: KeySum) {
        self.0 = self.0.wrapping_add(other.0);
    }

    pub(super) fn add(&mut self, key: u64) {
        let halves = u128::from(mix(key)) << 64 | u128::from(mix(!key.rotate_left(32)));
        self.0 = self.0.wrapping_add(halves);
    }
}

/// Mixes the bits of a key: the finalizer of SplitMix64.
fn mix(key: u64) -> u64 {
    let key = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(keys: &[u64]) -> KeySum {
        let mut sum = KeySum::default();
        keys.iter().for_each(|key| sum.add(*key));
        sum
    }

    #[test]
    fn depends_on_the_keys_and_not_on_their_order() {
        assert_eq!(sum(&[1, 2, u64::MAX]), sum(&[u64::MAX, 1, 2]));
        for other in [&[1, 2][..], &[1, 3], &[0, 3], &[2, 2, u64::MAX], &[1, 2, u64::MAX, 0], &[]] {
            assert_ne!(sum(&[1, 2, u64::MAX]), sum(other), "{other:?}");
        }
    }
}
