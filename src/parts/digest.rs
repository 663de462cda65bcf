//! A digest: 64 bits that name the content of a file. Detects accidents, not tampering.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// Odd constants of random bits.
const FACTORS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];

const BLOCK: usize = 16;

/// The digest of some bytes. Displayed and parsed as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn of(bytes: &[u8]) -> Digest {
        let mut digester = Digester::default();
        digester.update(bytes);
        digester.finish()
    }

    pub(super) fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; 8]) -> Digest {
        Digest(u64::from_le_bytes(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Digest> {
        let digest = u64::from_str_radix(text, 16).ok().map(Digest);
        digest.filter(|digest| digest.to_string() == text).ok_or_else(|| {
            Error::invalid_input(format!("expected a digest of 16 lowercase hexadecimal digits, found {text:.40?}"))
        })
    }
}

/// Computes the digest of bytes that arrive in pieces. It does not depend on the division into pieces.
///
/// Each block of 16 bytes is folded into the state by a multiplication to 128 bits.
#[derive(Default)]
pub(super) struct Digester {
    state: u64,
    len: u64,
    /// The bytes after the last whole block.
    rest: [u8; BLOCK],
}

impl Digester {
    #[inline]
    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        let held = self.held();
        self.len += bytes.len() as u64;
        if held > 0 {
            let to = self.rest.get_mut(held..).unwrap_or_default();
            let take = to.len().min(bytes.len());
            let (now, later) = bytes.split_at(take);
            to.iter_mut().zip(now).for_each(|(to, byte)| *to = *byte);
            if held + take < BLOCK {
                return;
            }
            self.fold(self.rest);
            bytes = later;
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        blocks.iter().for_each(|block| self.fold(*block));
        self.rest.iter_mut().zip(rest).for_each(|(to, byte)| *to = *byte);
    }

    pub(super) fn finish(mut self) -> Digest {
        let held = self.held();
        self.rest.iter_mut().skip(held).for_each(|byte| *byte = 0);
        self.fold(self.rest);
        self.fold(u128::from(self.len).to_le_bytes());
        Digest(self.state)
    }

    fn held(&self) -> usize {
        usize::try_from(self.len % BLOCK as u64).unwrap_or(0)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low and the high half")]
    fn fold(&mut self, block: [u8; BLOCK]) {
        let block = u128::from_le_bytes(block);
        let one = self.state ^ FACTORS[0] ^ block as u64;
        let other = FACTORS[1] ^ (block >> 64) as u64;
        let product = u128::from(one) * u128::from(other);
        self.state = product as u64 ^ (product >> 64) as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn does_not_depend_on_the_pieces() {
        let bytes: Vec<u8> = (0..200_u8).collect();
        for len in 0..bytes.len() {
            let whole = Digest::of(&bytes[..len]);
            for piece in [1, 3, 15, 16, 17, 64] {
                let mut digester = Digester::default();
                bytes[..len].chunks(piece).for_each(|piece| digester.update(piece));
                assert_eq!(digester.finish(), whole, "{len} bytes in pieces of {piece}");
            }
        }
    }

    #[test]
    fn every_bit_and_the_length_count() {
        let zeros = [0; 70];
        let mut seen: BTreeSet<u64> = (0..=zeros.len()).map(|len| Digest::of(&zeros[..len]).0).collect();
        for bit in 0..zeros.len() * 8 {
            let mut bytes = zeros;
            bytes[bit / 8] = 1 << (bit % 8);
            seen.insert(Digest::of(&bytes).0);
        }
        assert_eq!(seen.len(), 71 + 70 * 8);
    }

    #[test]
    fn parses_what_it_displays_and_nothing_else() {
        for bytes in [&b""[..], b"a", b"another"] {
            let digest = Digest::of(bytes);
            assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        }
        for bad in ["", "0", "000000000000000G", "00000000000000000", "+00000000000000f", "000000000000000F"] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
