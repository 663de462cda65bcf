//! The index of a shard: the byte range of each inner chunk.
//!
//! ```text
//! n x (offset u64, nbytes u64)   in C order of the chunks in the shard, little or big endian;
//!                                both 2^64-1: the chunk is absent
//! CRC-32C of the entries, u32le  if the index codecs have it
//! ```
//!
//! The index is at the start or the end of the shard. Offsets are relative to the start of the shard. Chunks may be
//! stored in any order, share bytes, and leave gaps.

use serde_json::value::RawValue;
use sharddb_format::internal::byte_range::ByteRange;
use sharddb_format::internal::json;
use sharddb_format::{Error, ErrorKind, Result};

use crate::crc32c::{self, Crc32c};
use crate::zarr::endian::{Endian, is_bytes};
use crate::zarr::extension::Extension;
use crate::zarr::nd;

/// Length in bytes of an entry.
pub(super) const INDEX_ENTRY_LEN: u64 = 16;

/// Length in bytes of the checksum.
const CHECKSUM_LEN: u64 = crc32c::LEN as u64;

/// Offset and length of an absent chunk.
const ABSENT: u64 = u64::MAX;

/// The location of the index in a shard. See [`ZarrMetadata`](super::ZarrMetadata) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexLocation {
    /// Before the chunks.
    Start,
    /// After the chunks (the format's default).
    End,
}

impl IndexLocation {
    /// Returns the name in `zarr.json`: `start` or `end`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::End => "end",
        }
    }
}

/// The length, location and encoding of a shard index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexFormat {
    chunks: u64,
    endian: Endian,
    crc32c: bool,
    location: IndexLocation,
}

/// An index whose length and checksum are verified, but not its entries.
pub(super) struct ShardIndex<'a> {
    format: IndexFormat,
    entries: &'a [u8],
}

/// An entry of the index, not yet validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) offset: u64,
    pub(super) nbytes: u64,
}

impl IndexFormat {
    /// Returns `None` if the index would have 2^63 bytes or more.
    pub(super) fn new(
        chunks_per_shard: &[u64],
        endian: Endian,
        crc32c: bool,
        location: IndexLocation,
    ) -> Option<IndexFormat> {
        let chunks = nd::product(chunks_per_shard)?;
        (chunks <= u64::MAX >> 6).then_some(IndexFormat { chunks, endian, crc32c, location })
    }

    pub(super) fn chunks(self) -> u64 {
        self.chunks
    }

    pub(super) fn location(self) -> IndexLocation {
        self.location
    }

    /// Returns the length of the encoded index in bytes.
    pub(super) fn len(self) -> u64 {
        self.chunks * INDEX_ENTRY_LEN + if self.crc32c { CHECKSUM_LEN } else { 0 }
    }

    /// Returns the range of the index in a shard of `shard_len` bytes.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the shard is shorter than its index.
    pub(super) fn range(self, shard_len: u64) -> Result<ByteRange> {
        let len = self.len();
        if shard_len < len {
            return Err(Error::corrupt(format!(
                "expected a shard with an index of {len} bytes, found {shard_len} bytes"
            )));
        }
        Ok(match self.location {
            IndexLocation::Start => ByteRange { start: 0, end: len },
            IndexLocation::End => ByteRange { start: shard_len - len, end: shard_len },
        })
    }

    /// Returns the range of the entry of a chunk in a shard of `shard_len` bytes.
    pub(super) fn entry_range(self, shard_len: u64, chunk: u64) -> Result<ByteRange> {
        let start = self.range(shard_len)?.start + chunk.min(self.chunks) * INDEX_ENTRY_LEN;
        Ok(ByteRange { start, end: start + INDEX_ENTRY_LEN })
    }

    /// Returns the range of the entries and that of their checksum in a shard of `shard_len` bytes; `None` without a
    /// checksum.
    pub(super) fn checked_range(self, shard_len: u64) -> Result<Option<(ByteRange, ByteRange)>> {
        let ByteRange { start, end } = self.range(shard_len)?;
        let middle = end - if self.crc32c { CHECKSUM_LEN } else { 0 };
        Ok(self.crc32c.then_some((ByteRange { start, end: middle }, ByteRange { start: middle, end })))
    }

    /// Parses an entry.
    #[inline]
    pub(super) fn entry(self, bytes: &[u8]) -> Option<IndexEntry> {
        let (offset, rest) = bytes.split_first_chunk::<8>()?;
        let nbytes = rest.first_chunk::<8>()?;
        Some(match self.endian {
            Endian::Little => IndexEntry { offset: u64::from_le_bytes(*offset), nbytes: u64::from_le_bytes(*nbytes) },
            Endian::Big => IndexEntry { offset: u64::from_be_bytes(*offset), nbytes: u64::from_be_bytes(*nbytes) },
        })
    }

    /// Encodes the index.
    pub(super) fn encode(self, entries: &[IndexEntry]) -> Vec<u8> {
        let mut encoded = Vec::with_capacity(nd::to_usize(self.len()));
        for entry in entries {
            for number in [entry.offset, entry.nbytes] {
                encoded.extend_from_slice(&match self.endian {
                    Endian::Little => number.to_le_bytes(),
                    Endian::Big => number.to_be_bytes(),
                });
            }
        }
        if self.crc32c {
            let mut crc = Crc32c::default();
            crc.update(&encoded);
            encoded.extend_from_slice(&crc.finish().to_le_bytes());
        }
        encoded
    }
}

/// Compares the stored checksum of an index with the computed one.
pub(super) fn check_crc32c(stored: &[u8], found: u32) -> Result<()> {
    let stated = stored.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    if stated != found {
        let message = format!("expected a shard index with CRC-32C {stated:08x}, found {found:08x}");
        return Err(Error::corrupt(message));
    }
    Ok(())
}

/// Parses the index codecs: `bytes`, optionally followed by `crc32c`. Returns the byte order, and whether `crc32c`
/// follows.
pub(super) fn parse_index_codecs(value: &RawValue) -> Result<(Endian, bool)> {
    let wrong = || {
        let message = format!("expected the index codecs bytes, then crc32c or none, found {}", value.get());
        Error::new(ErrorKind::Unsupported, message)
    };
    let codecs = json::elements(value).ok_or_else(wrong)?;
    let codecs: Vec<_> = codecs.into_iter().map(|codec| Extension::parse(codec, "codec")).collect::<Result<_>>()?;
    match codecs.as_slice() {
        [bytes] if is_bytes(bytes) => Ok((Endian::parse(bytes, 8)?, false)),
        [bytes, crc32c] if is_bytes(bytes) && crc32c.name == "crc32c" => Ok((Endian::parse(bytes, 8)?, true)),
        _ => Err(wrong()),
    }
}

impl<'a> ShardIndex<'a> {
    /// Reads the index of a shard in memory.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the index is truncated, or its checksum does not match.
    pub(super) fn read(format: IndexFormat, shard: &'a [u8]) -> Result<ShardIndex<'a>> {
        let index = format.range(shard.len() as u64)?;
        if let Some((entries, stored)) = format.checked_range(shard.len() as u64)? {
            let mut crc = Crc32c::default();
            crc.update(entries.of(shard).unwrap_or_default());
            check_crc32c(stored.of(shard).unwrap_or_default(), crc.finish())
                .map_err(|error| error.at_offset(stored.start))?;
        }
        Ok(ShardIndex { format, entries: index.of(shard).unwrap_or_default() })
    }

    /// Returns the entry of a chunk.
    pub(super) fn chunk(&self, number: u64) -> Result<IndexEntry> {
        let start = nd::to_usize(number.saturating_mul(INDEX_ENTRY_LEN));
        let entry = self.entries.get(start..).and_then(|bytes| self.format.entry(bytes));
        entry.ok_or_else(|| Error::corrupt("expected an entry in the shard index, found its end"))
    }
}

impl IndexEntry {
    /// The entry of an absent chunk.
    pub(super) const ABSENT: IndexEntry = IndexEntry { offset: ABSENT, nbytes: ABSENT };

    /// Returns the range of the chunk in a shard of `shard_len` bytes; `None` if it is absent.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the range is empty or outside the shard, or only one of the two numbers marks an absent chunk.
    #[inline]
    pub(super) fn range(self, shard_len: u64) -> Result<Option<ByteRange>> {
        if self == IndexEntry::ABSENT {
            return Ok(None);
        }
        match self.offset.checked_add(self.nbytes) {
            Some(end) if end <= shard_len && self.nbytes > 0 => Ok(Some(ByteRange { start: self.offset, end })),
            _ => Err(self.bad(shard_len)),
        }
    }

    #[cold]
    fn bad(self, shard_len: u64) -> Error {
        let IndexEntry { offset, nbytes } = self;
        Error::corrupt(match (offset, nbytes) {
            (ABSENT, _) => {
                format!("expected 2^64-1 twice for an absent chunk, found it for the offset and {nbytes} bytes")
            }
            (_, ABSENT) => format!("expected 2^64-1 twice for an absent chunk, found it for the length at {offset}"),
            (_, 0) => format!("expected a chunk with bytes, found 0 bytes at {offset}"),
            _ => format!("expected a chunk within the shard of {shard_len} bytes, found {nbytes} bytes at {offset}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(endian: Endian, crc32c: bool, location: IndexLocation) -> IndexFormat {
        IndexFormat::new(&[2], endian, crc32c, location).unwrap()
    }

    /// A present and an absent chunk.
    const LITTLE: [u8; 32] = [
        0x20, 0, 0, 0, 0, 0, 0, 0, 0x05, 0, 0, 0, 0, 0, 0, 0, // chunk 0: 5 bytes at 32
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // chunk 1
    ];

    #[test]
    fn both_ways_in_both_orders_at_both_ends() {
        let entries = [IndexEntry { offset: 32, nbytes: 5 }, IndexEntry::ABSENT];
        let little = format(Endian::Little, false, IndexLocation::End).encode(&entries);
        assert_eq!(little, LITTLE);
        let big = format(Endian::Big, false, IndexLocation::End).encode(&entries);
        assert_eq!(big[..16], [0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 5]);
        for endian in [Endian::Little, Endian::Big] {
            for crc32c in [false, true] {
                for location in [IndexLocation::Start, IndexLocation::End] {
                    let format = format(endian, crc32c, location);
                    let mut shard = vec![7; 50];
                    let index = format.encode(&entries);
                    assert_eq!(index.len() as u64, format.len());
                    match location {
                        IndexLocation::Start => drop(shard.splice(..0, index)),
                        IndexLocation::End => shard.extend(index),
                    }
                    let index = ShardIndex::read(format, &shard).unwrap();
                    assert_eq!([index.chunk(0).unwrap(), index.chunk(1).unwrap()], entries);
                    assert!(index.chunk(2).is_err());
                }
            }
        }
    }

    #[test]
    fn every_flipped_bit_of_a_checked_index_is_corrupt() {
        let format = format(Endian::Little, true, IndexLocation::End);
        let shard = [vec![0; 40], format.encode(&[IndexEntry { offset: 0, nbytes: 40 }; 2])].concat();
        assert!(ShardIndex::read(format, &shard).is_ok());
        for bit in 40 * 8..shard.len() * 8 {
            let mut flipped = shard.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ShardIndex::read(format, &flipped).err().unwrap().kind(), ErrorKind::Corrupt, "bit {bit}");
        }
    }

    #[test]
    fn entries_lie_in_the_shard_or_are_absent() {
        let range = |offset, nbytes| IndexEntry { offset, nbytes }.range(100);
        assert_eq!(range(0, 100).unwrap(), Some(ByteRange { start: 0, end: 100 }));
        assert_eq!(range(ABSENT, ABSENT).unwrap(), None);
        for (offset, nbytes) in [(0, 101), (100, 1), (50, 0), (ABSENT, 0), (ABSENT, 7), (7, ABSENT), (ABSENT - 1, 2)] {
            assert_eq!(range(offset, nbytes).unwrap_err().kind(), ErrorKind::Corrupt, "{offset} {nbytes}");
        }
    }

    #[test]
    fn an_index_has_room_in_the_shard_and_in_numbers() {
        let format = format(Endian::Little, true, IndexLocation::Start);
        assert!(ShardIndex::read(format, &[0; 35]).is_err());
        assert!(ShardIndex::read(format, &[]).is_err());
        assert!(IndexFormat::new(&[1 << 60], Endian::Little, true, IndexLocation::End).is_none());
        assert!(IndexFormat::new(&[1 << 33, 1 << 33], Endian::Little, true, IndexLocation::End).is_none());
    }
}
