//! CRC-32C (Castagnoli), the checksum of the Zarr codec `crc32c` and of RFC 3720.
//!
//! Slicing by 8 in safe Rust, 1.7 GB/s. Crates that use the instructions of the processor are faster (crc32c 0.6: 21 to
//! 27 GB/s, crc-fast 1.10: 70 to 110 GB/s; 4 KiB and 1 MiB, Intel Xeon), but the dependency tree with all features is
//! at its limit of 32 crates (`dependency_tree` in `.ci/run`), and they add three and two. The table-driven crate `crc`
//! adds two as well, for 3.5 to 3.9 GB/s.

const POLYNOMIAL: u32 = 0x82f6_3b78; // 0x1edc6f41, bits reversed

/// Length in bytes of a stored checksum.
pub(super) const LEN: usize = 4;

static TABLES: [[u32; 256]; 8] = tables();

/// Returns the CRC-32C of `bytes`.
pub(super) fn of(bytes: &[u8]) -> u32 {
    let mut hasher = Crc32c::new();
    hasher.update(bytes);
    hasher.finish()
}

/// An incremental CRC-32C.
pub(super) struct Crc32c(u32);

impl Crc32c {
    pub(super) fn new() -> Crc32c {
        Crc32c(!0)
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        let (eights, rest) = bytes.as_chunks::<8>();
        for eight in eights {
            let [a, b, c, d] = (self.0 ^ u32::from_le_bytes([eight[0], eight[1], eight[2], eight[3]])).to_le_bytes();
            let [.., e, f, g, h] = *eight;
            let steps = [a, b, c, d, e, f, g, h].into_iter().zip(TABLES.iter().rev());
            self.0 = steps.fold(0, |crc, (byte, table)| crc ^ table[usize::from(byte)]);
        }
        for byte in rest {
            let [low, ..] = self.0.to_le_bytes();
            self.0 = TABLES[0][usize::from(low ^ byte)] ^ (self.0 >> 8);
        }
    }

    pub(super) fn finish(self) -> u32 {
        !self.0
    }
}

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = tables[0][(before & 0xff) as usize] ^ (before >> 8);
            byte += 1;
        }
        table += 1;
    }
    tables
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
            let mut hasher = Crc32c::new();
            hasher.update(&bytes[..cut]);
            hasher.update(&bytes[cut..]);
            assert_eq!(hasher.finish(), of(&bytes), "cut at {cut}");
        }
    }
}
