//! CRC-32C (Castagnoli), the checksum of the Zarr codec `crc32c` and of RFC 3720, by the crate `crc32c`.

/// Length in bytes of a stored checksum.
pub(super) const LEN: usize = 4;

/// Returns the CRC-32C of `bytes`.
pub(super) fn of(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// An incremental CRC-32C.
#[derive(Default)]
pub(super) struct Crc32c(u32);

impl Crc32c {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0 = ::crc32c::crc32c_append(self.0, bytes);
    }

    pub(super) fn finish(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 3720, B.4, and the check value of the CRC catalogues.
    #[test]
    fn matches_published_vectors() {
        assert_eq!(of(b"123456789"), 0xe306_9283);
        assert_eq!(of(&[0; 32]), 0x8a91_36aa);
        assert_eq!(of(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(of(&std::array::from_fn::<u8, 32, _>(|at| at.to_le_bytes()[0])), 0x46dd_794e);
        assert_eq!(of(b""), 0);
    }

    #[test]
    fn pieces_of_any_size_give_the_same() {
        let bytes: Vec<u8> = (0..100u8).map(|byte| byte.wrapping_mul(37)).collect();
        for cut in 0..bytes.len() {
            let mut hasher = Crc32c::default();
            hasher.update(&bytes[..cut]);
            hasher.update(&bytes[cut..]);
            assert_eq!(hasher.finish(), of(&bytes), "cut at {cut}");
        }
    }
}
