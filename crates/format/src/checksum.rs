//! What a manifest states about the bytes of a file, and its computation in one pass.

use crc32fast::Hasher;

use crate::digest::{Digest, Digester, ShardIndexDigester};
use crate::error::{Error, Result};

/// The length of a file, its CRC-32 and its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    pub bytes: u64,
    pub crc32: u32,
    /// `None` if the manifest lacks it, as one of version 0.1.0 does.
    pub digest: Option<Digest>,
    /// The length of the shard index at the beginning of a shard, which decides its digest; 0 for another file.
    pub shard_index_len: u64,
}

impl Checksum {
    /// Returns the checksum of a file that is no shard.
    pub fn of(bytes: &[u8]) -> Checksum {
        let mut hasher = ChecksumHasher::of_file();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Returns a hasher that computes the same numbers of other bytes.
    pub fn hasher(self) -> ChecksumHasher {
        ChecksumHasher::new(self.shard_index_len, self.digest.is_some())
    }

    /// Checks a checksum that was found against this one, which the manifest states.
    ///
    /// Errors: `Corrupt` if they differ.
    pub fn check(self, found: Checksum) -> Result<()> {
        if (self.bytes, self.crc32) != (found.bytes, found.crc32) {
            return Err(Error::corrupt(format!(
                "expected {} bytes with CRC-32 {:08x} as the manifest says, found {} bytes with CRC-32 {:08x}",
                self.bytes, self.crc32, found.bytes, found.crc32
            )));
        }
        match (self.digest, found.digest) {
            (Some(stated), Some(found)) if stated != found => {
                let message = format!("expected the digest {stated} as the manifest says, found {found}");
                Err(Error::corrupt(message))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether a file has the same bytes as one of which this is stated: false if either digest is unknown.
    pub fn is_of_equal_bytes(self, found: Checksum) -> bool {
        self == found && self.digest.is_some()
    }
}

/// Computes the checksum of a file whose bytes arrive in pieces, front to back.
#[derive(Debug)]
pub struct ChecksumHasher {
    shard_index_len: u64,
    bytes: u64,
    crc32: Hasher,
    /// `None` if the digest is not needed.
    digesters: Option<Box<(ShardIndexDigester, Digester)>>,
}

impl ChecksumHasher {
    /// Creates a hasher for a file that is no shard.
    pub fn of_file() -> ChecksumHasher {
        ChecksumHasher::new(0, true)
    }

    fn new(shard_index_len: u64, with_digest: bool) -> ChecksumHasher {
        let digesters = with_digest.then(Box::default);
        ChecksumHasher { shard_index_len, bytes: 0, crc32: Hasher::new(), digesters }
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.crc32.update(bytes);
        if let Some(digesters) = &mut self.digesters {
            let (of_index, of_rest) = &mut **digesters;
            let index_left = self.shard_index_len.saturating_sub(self.bytes);
            let at = bytes.len().min(usize::try_from(index_left).unwrap_or(usize::MAX));
            let (index, rest) = bytes.split_at(at);
            of_index.update(index);
            of_rest.update(rest);
        }
        self.bytes += bytes.len() as u64;
    }

    /// Adds `len` zero bytes. Cost: O(log `len`), but O(`len`) for a digest outside of the shard index.
    pub fn zeros(&mut self, len: u64) {
        self.crc32.combine(&crc32_of_zeros(len));
        if let Some(digesters) = &mut self.digesters {
            let (of_index, of_rest) = &mut **digesters;
            let in_index = len.min(self.shard_index_len.saturating_sub(self.bytes));
            of_index.zeros(in_index);
            of_rest.zeros(len - in_index);
        }
        self.bytes += len;
    }

    /// Returns the number of bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn finish(self) -> Checksum {
        let ChecksumHasher { shard_index_len, bytes, crc32, digesters } = self;
        let digest = digesters.map(|digesters| match (shard_index_len, *digesters) {
            (0, (_, of_file)) => of_file.finish(),
            (_, (of_index, of_rest)) => of_rest.finish_shard(&of_index),
        });
        Checksum { bytes, crc32: crc32.finalize(), digest, shard_index_len }
    }
}

/// Returns the CRC-32 state of `len` zero bytes. Cost: O(log `len`), by doubling.
pub fn crc32_of_zeros(mut len: u64) -> Hasher {
    let mut crc = Hasher::new();
    let mut power = Hasher::new();
    power.update(&[0]);
    while len > 0 {
        if len & 1 == 1 {
            crc.combine(&power);
        }
        power.combine(&power.clone());
        len >>= 1;
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc32_of_zeros_is_that_of_zero_bytes() {
        for len in [0, 1, 2, 3, 1000, 70_001] {
            let zeros = vec![0; usize::try_from(len).unwrap()];
            assert_eq!(crc32_of_zeros(len).finalize(), crc32fast::hash(&zeros), "length {len}");
        }
    }

    /// The CRC-32 of two values that end with their own CRC-32 is equal, and that of any text around them; digests differ.
    #[test]
    fn tells_values_with_their_own_crc32_apart() {
        let file = |value: &[u8]| [b"before", value, &crc32fast::hash(value).to_le_bytes(), b"after"].concat();
        for index_len in [0, 16] {
            let sum = |bytes: &[u8]| {
                let mut hasher = ChecksumHasher::new(index_len, true);
                hasher.update(bytes);
                hasher.finish()
            };
            let (one, other) = (sum(&file(b"old!")), sum(&file(b"new!")));
            assert_eq!((one.bytes, one.crc32), (other.bytes, other.crc32));
            assert!(one.check(other).unwrap_err().message().contains("digest"));
            assert!(one.check(one).is_ok() && one.is_of_equal_bytes(one) && !one.is_of_equal_bytes(other));
            let unknown = Checksum { digest: None, ..one };
            assert!(unknown.check(one).is_ok() && !unknown.is_of_equal_bytes(unknown));
        }
    }

    #[test]
    fn does_not_depend_on_pieces_and_holes() {
        let bytes = [vec![0; 32], vec![1; 16], vec![0; 40], vec![2; 5]].concat();
        let whole = |index_len| {
            let mut hasher = ChecksumHasher::new(index_len, true);
            hasher.update(&bytes);
            hasher.finish()
        };
        for index_len in [0, 16, 48, 64, 93] {
            for piece in 1..bytes.len() {
                let mut hasher = whole(index_len).hasher();
                bytes.chunks(piece).for_each(|piece| hasher.update(piece));
                assert_eq!(hasher.finish(), whole(index_len), "{piece}");
            }
            let mut hasher = whole(index_len).hasher();
            hasher.zeros(32);
            hasher.update(&bytes[32..48]);
            hasher.zeros(40);
            hasher.update(&bytes[88..]);
            assert_eq!(hasher.finish(), whole(index_len));
        }
    }
}
