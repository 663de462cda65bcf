//! The digest after each chunk, over its encoded bytes.

use std::fmt;

use md5::Md5;
use sha1::Sha1;
use sha2::Digest;
use sha2::{Sha224, Sha256, Sha384, Sha512};
use sharddb_format::{Error, Result};

/// The kind of digest that is stored after each chunk.
///
/// ```
/// use sharddb_container::bloscpack::Checksum;
///
/// assert_eq!(Checksum::Sha256.digest_len(), 32);
/// assert_eq!(Checksum::default(), Checksum::Adler32);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Checksum {
    /// No digest: changed bytes may go unnoticed.
    None,
    /// Adler-32 (the default).
    #[default]
    Adler32,
    /// CRC-32, as in zlib.
    Crc32,
    /// MD5.
    Md5,
    /// SHA-1.
    Sha1,
    /// SHA-224.
    Sha224,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Checksum {
    /// All kinds; the index of each is its number in the format.
    pub const ALL: [Checksum; 9] = [
        Self::None,
        Self::Adler32,
        Self::Crc32,
        Self::Md5,
        Self::Sha1,
        Self::Sha224,
        Self::Sha256,
        Self::Sha384,
        Self::Sha512,
    ];

    /// Returns bloscpack's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Adler32 => "adler32",
            Self::Crc32 => "crc32",
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha224 => "sha224",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    pub(super) fn from_number(number: u8) -> Result<Checksum> {
        let checksum = Checksum::ALL.get(usize::from(number)).copied();
        checksum.ok_or_else(|| Error::corrupt(format!("expected a checksum from 0 to 8, found {number}")))
    }

    pub(super) fn number(self) -> u8 {
        self as u8
    }

    /// Returns the length of a digest in bytes.
    pub fn digest_len(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Adler32 | Self::Crc32 => 4,
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// Returns the digest of `bytes`. Adler-32 and CRC-32 are little-endian.
    pub(super) fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::None => Vec::new(),
            Self::Adler32 => zlib_rs::adler32::adler32(1, bytes).to_le_bytes().to_vec(),
            Self::Crc32 => crc32fast::hash(bytes).to_le_bytes().to_vec(),
            Self::Md5 => Md5::digest(bytes).to_vec(),
            Self::Sha1 => Sha1::digest(bytes).to_vec(),
            Self::Sha224 => Sha224::digest(bytes).to_vec(),
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha384 => Sha384::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    /// Compares the digest of `bytes` with the stored one.
    ///
    /// # Errors
    ///
    /// `Corrupt` if they differ, with both.
    pub(super) fn verify(self, bytes: &[u8], stated: &[u8]) -> Result<()> {
        let found = self.digest(bytes);
        if found == stated {
            return Ok(());
        }
        Err(Error::corrupt(format!("expected {self} {}, found {}", hex(stated), hex(&found))))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digests of "abc": Adler-32 as in RFC 1950, zlib's crc32, and the examples of RFC 1321 and FIPS 180.
    #[test]
    fn known_digests() {
        for (checksum, expected) in [
            (Checksum::None, ""),
            (Checksum::Adler32, "27014d02"),
            (Checksum::Crc32, "c2412435"),
            (Checksum::Md5, "900150983cd24fb0d6963f7d28e17f72"),
            (Checksum::Sha1, "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (Checksum::Sha224, "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7"),
            (Checksum::Sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                Checksum::Sha384,
                "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
            ),
            (
                Checksum::Sha512,
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd\
                 454d4423643ce80e2a9ac94fa54ca49f",
            ),
        ] {
            let digest = checksum.digest(b"abc");
            assert_eq!(hex(&digest), expected, "{checksum}");
            assert_eq!(checksum.digest_len(), digest.len() as u64);
            assert_eq!(Checksum::from_number(checksum.number()).unwrap(), checksum);
            assert!(checksum.verify(b"abc", &digest).is_ok());
            assert_eq!(checksum.verify(b"abd", &digest).is_err(), checksum != Checksum::None);
        }
        assert!(Checksum::from_number(9).is_err());
    }
}
