//! Digests: XXH3-128, which names the content of a file. Detects accidents, not tampering.
//!
//! A CRC-32 does not name it: a value that ends with its own CRC-32 contributes the same to every CRC-32 over it, so two
//! files of such values can have equal lengths and equal checksums.
//!
//! ```text
//! info, auxiliary file   XXH3-128 of its bytes
//! shard                  XXH3-128 of: the bytes after the shard index, the digest of the shard index
//! shard index            XXH3-128 of: for each entry that is not zero, its minishard number u64le and its 16 bytes
//! ```
//!
//! The seed is 0. A digest within another one has the canonical byte order, big-endian. The shard index is apart, and its
//! zero entries are left out, so that the digest is computed in one pass by a writer, which completes the shard index
//! last, by a reader, which finds it first, and over the holes of a shard index of billions of minishards.

use std::fmt;
use std::str::FromStr;

use twox_hash::xxhash3_128::Hasher;

use crate::error::{Error, Result};
use crate::shard_index::{ENTRY_LEN, ShardIndexEntry};

/// The length of a digest in bytes.
pub const LEN: usize = 16;

/// The number of hexadecimal digits of a digest.
pub const DIGITS: usize = 2 * LEN;

/// The digest of some bytes. Displayed and parsed as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; LEN]);

impl Digest {
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Hasher::oneshot(bytes).to_be_bytes())
    }

    pub fn to_bytes(self) -> [u8; LEN] {
        self.0
    }

    pub fn from_bytes(bytes: [u8; LEN]) -> Digest {
        Digest(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:032x}", u128::from_be_bytes(self.0)))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Digest> {
        let digest = u128::from_str_radix(text, 16).ok().map(|digest| Digest(digest.to_be_bytes()));
        digest.filter(|digest| digest.to_string() == text).ok_or_else(|| {
            Error::invalid_input(format!(
                "expected a digest of {DIGITS} lowercase hexadecimal digits, found {text:.40?}"
            ))
        })
    }
}

/// Computes the digest of bytes that arrive in pieces. It does not depend on the division into pieces.
#[derive(Clone, Default)]
pub struct Digester(Hasher);

impl fmt::Debug for Digester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digester")
    }
}

impl Digester {
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// Adds `len` zero bytes. Cost: O(`len`).
    pub fn zeros(&mut self, mut len: u64) {
        const ZEROS: [u8; 4096] = [0; 4096];
        while len >= ZEROS.len() as u64 {
            self.update(&ZEROS);
            len -= ZEROS.len() as u64;
        }
        self.update(ZEROS.get(..usize::try_from(len).unwrap_or(0)).unwrap_or_default());
    }

    pub fn finish(&self) -> Digest {
        Digest(self.0.finish_128().to_be_bytes())
    }

    /// Returns the digest of a shard, given that of the bytes after its shard index.
    pub fn finish_shard(mut self, shard_index: &ShardIndexDigester) -> Digest {
        self.update(&shard_index.entries.finish().to_bytes());
        self.finish()
    }
}

/// Computes the digest of a shard index, whose bytes arrive in pieces.
#[derive(Clone, Debug, Default)]
pub struct ShardIndexDigester {
    /// The number of bytes so far.
    position: u64,
    /// The bytes of the current entry.
    entry: [u8; size_of::<ShardIndexEntry>()],
    entries: Digester,
}

impl ShardIndexDigester {
    /// Adds bytes of the shard index.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let held = usize::try_from(self.position % ENTRY_LEN).unwrap_or(0);
            let to = self.entry.get_mut(held..).unwrap_or_default();
            let (now, later) = bytes.split_at(bytes.len().min(to.len()));
            to.iter_mut().zip(now).for_each(|(to, byte)| *to = *byte);
            self.position += now.len() as u64;
            if self.position.is_multiple_of(ENTRY_LEN) {
                self.add_entry();
            }
            bytes = later;
        }
    }

    /// Adds `len` zero bytes. Cost: O(1).
    pub fn zeros(&mut self, len: u64) {
        let before = len.min(self.position.wrapping_neg() % ENTRY_LEN);
        let after = (len - before) % ENTRY_LEN;
        // the entries between `before` and `after` are zero, so only their number counts
        (0..before + after).for_each(|_| self.update(&[0]));
        self.position += len - before - after;
    }

    /// Adds the entry that is complete.
    fn add_entry(&mut self) {
        if self.entry != [0; size_of::<ShardIndexEntry>()] {
            self.entries.update(&(self.position / ENTRY_LEN - 1).to_le_bytes());
            self.entries.update(&self.entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by the Python package xxhash: `xxhash.xxh3_128(b"...").hexdigest()`.
    #[test]
    fn golden_digests() {
        let ascending: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for (bytes, expected) in [
            (&b""[..], "99aa06d3014798d86001c324468d497f"),
            (b"a", "a96faf705af16834e6c632b61e964e1f"),
            (&ascending, "076f7e02b7120d2ad33dd80b46f60e50"),
        ] {
            assert_eq!(Digest::of(bytes).to_string(), expected);
        }
    }

    /// Computed by the function of docs/format.md.
    #[test]
    fn golden_digest_of_a_shard() {
        assert_eq!(digest_of_shard(&SHARD, &[48, 7]).to_string(), "5a5c678fe5a9557691b77653fc243b2f");
    }

    /// A shard index of three minishards, of which the second is empty, and a body.
    const SHARD: [u8; 53] = {
        let mut shard = [0; 53];
        shard[8] = 3;
        shard[32] = 3;
        shard[40] = 5;
        [shard[48], shard[49], shard[50], shard[51], shard[52]] = *b"body!";
        shard
    };

    /// Returns the digest, with the bytes of index and body in pieces of these lengths.
    fn digest_of_shard(shard: &[u8], pieces: &[usize]) -> Digest {
        let (index, body) = shard.split_at(48);
        let (mut of_index, mut of_body) = (ShardIndexDigester::default(), Digester::default());
        index.chunks(pieces[0]).for_each(|piece| of_index.update(piece));
        body.chunks(pieces[1]).for_each(|piece| of_body.update(piece));
        of_body.finish_shard(&of_index)
    }

    #[test]
    fn does_not_depend_on_the_pieces() {
        for piece in 1..=48 {
            assert_eq!(digest_of_shard(&SHARD, &[piece, 1 + piece % 5]), digest_of_shard(&SHARD, &[48, 5]), "{piece}");
        }
    }

    #[test]
    fn every_bit_of_a_shard_counts() {
        let mut seen = vec![digest_of_shard(&SHARD, &[48, 5]).to_bytes()];
        for bit in 0..SHARD.len() * 8 {
            let mut changed = SHARD;
            changed[bit / 8] ^= 1 << (bit % 8);
            seen.push(digest_of_shard(&changed, &[48, 5]).to_bytes());
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1 + SHARD.len() * 8);
    }

    /// Zeros that are skipped are equal to zeros that are passed on, at any offset.
    #[test]
    fn skipped_zeros_count_as_zeros() {
        for (before, zeros) in (0..40).flat_map(|before| (0..40).map(move |zeros| (before, zeros))) {
            let (mut skipped, mut passed) = (ShardIndexDigester::default(), ShardIndexDigester::default());
            skipped.update(&vec![1; before]);
            skipped.zeros(zeros as u64);
            skipped.update(&[2; 40]);
            passed.update(&[vec![1; before], vec![0; zeros], vec![2; 40]].concat());
            assert_eq!(skipped.entries.finish(), passed.entries.finish(), "{zeros} zeros after {before} bytes");
        }
        let (mut skipped, mut passed) = (Digester::default(), Digester::default());
        skipped.zeros(10_000);
        passed.update(&[0; 10_000]);
        assert_eq!(skipped.finish(), passed.finish());
    }

    #[test]
    fn parses_what_it_displays_and_nothing_else() {
        for bytes in [&b""[..], b"a", b"another"] {
            let digest = Digest::of(bytes);
            assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
            assert_eq!(Digest::from_bytes(digest.to_bytes()), digest);
        }
        let digits = "0".repeat(DIGITS - 1);
        for bad in [
            "",
            "0",
            &digits,
            &format!("{digits}G"),
            &format!("{digits}00"),
            &format!("+{digits}"),
            &format!("{digits}F"),
        ] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
