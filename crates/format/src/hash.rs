//! The hash functions that map a key to its hashed chunk id: identity, and MurmurHash3_x86_128 of one `u64`.

/// The hash function of a sharding specification ("hash"). The format has these two: the list is closed.
///
/// ```
/// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
/// use sharddb::spec::HashFunction;
///
/// assert_eq!(HashFunction::MurmurHash3X86_128.as_str(), "murmurhash3_x86_128");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashFunction {
    /// The key itself. Consecutive keys are stored close to each other.
    Identity,
    /// The low 8 bytes of MurmurHash3_x86_128, seed 0, of the key's 8 little-endian bytes.
    MurmurHash3X86_128,
}

impl HashFunction {
    /// Returns the name in the format's JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::MurmurHash3X86_128 => "murmurhash3_x86_128",
        }
    }

    /// Returns the hash of `input`, the key shifted right by `preshift_bits`.
    ///
    /// The 64-bit MurmurHash3 result is not injective: two keys may have the same hash.
    ///
    /// ```
    /// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
    /// use sharddb::spec::HashFunction;
    ///
    /// assert_eq!(HashFunction::Identity.hash(7), 7);
    /// assert_eq!(HashFunction::MurmurHash3X86_128.hash(0), 0x4772b084e028ae41);
    /// ```
    #[inline]
    pub fn hash(self, input: u64) -> u64 {
        match self {
            Self::Identity => input,
            Self::MurmurHash3X86_128 => murmurhash3_x86_128_low(input),
        }
    }
}

/// Returns the low 8 bytes of MurmurHash3_x86_128 (seed 0) of the 8 little-endian bytes of `input`.
///
/// An 8-byte input fills only the first two of the four lanes. The other two stay equal to each other throughout, so
/// `h3` serves for both.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the two halves of a u64 are taken on purpose")]
fn murmurhash3_x86_128_low(input: u64) -> u64 {
    const C1: u32 = 0x239b_961b;
    const C2: u32 = 0xab0e_9789;
    const C3: u32 = 0x38b3_4ae5;
    const INPUT_LEN: u32 = 8;

    let (k1, k2) = (input as u32, (input >> 32) as u32);
    let mut h1 = INPUT_LEN ^ k1.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2);
    let mut h2 = INPUT_LEN ^ k2.wrapping_mul(C2).rotate_left(16).wrapping_mul(C3);
    let mut h3 = INPUT_LEN; // also h4

    h1 = h1.wrapping_add(h2).wrapping_add(h3).wrapping_add(h3);
    h2 = h2.wrapping_add(h1);
    h3 = h3.wrapping_add(h1);
    (h1, h2, h3) = (fmix32(h1), fmix32(h2), fmix32(h3));
    h1 = h1.wrapping_add(h2).wrapping_add(h3).wrapping_add(h3);
    h2 = h2.wrapping_add(h1);
    u64::from(h1) | u64::from(h2) << 32
}

#[inline]
fn fmix32(mut h: u32) -> u32 {
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of other implementations of the format.
    #[test]
    fn matches_published_vectors() {
        let vectors = [
            (0, 0x4772_b084_e028_ae41),
            (1, 0xe8bd_67d6_16d4_ce9a),
            (0x2a, 0xc20b_94f9_5119_f47a),
            (0xdead_beef, 0x2583_af9f_1fd1_e05f),
            (0x0123_4567_89ab_cdef, 0x7080_3626_4c10_9d93),
            (u64::MAX, 0x574f_66bd_212b_5d1a),
        ];
        for (input, hash) in vectors {
            assert_eq!(HashFunction::MurmurHash3X86_128.hash(input), hash, "input {input:#x}");
        }
    }

    #[test]
    fn matches_the_murmur3_crate() {
        fn agrees(input: u64) -> bool {
            let digest = murmur3::murmur3_x86_128(&mut &input.to_le_bytes()[..], 0).unwrap();
            u128::from(HashFunction::MurmurHash3X86_128.hash(input)) == digest & u128::from(u64::MAX)
        }
        quickcheck::QuickCheck::new().tests(10_000).quickcheck(agrees as fn(u64) -> bool);
        assert!((0..64).all(|bit| agrees(1 << bit) && agrees(u64::MAX >> bit)));
    }
}
