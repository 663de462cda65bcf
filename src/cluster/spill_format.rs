//! The bytes of a spill: pairs, section table, trailer.
//!
//! ```text
//! | sections      pairs; a run is one section per part that has pairs, in the order of the parts; the last
//! |               section is of no part: 16 random bytes, by which the digest differs from that of any other spill
//! | table         per section: part u32le, crc32 u32le, pairs u64le, bytes u64le
//! | trailer       magic, version u32le, crc32 of the table u32le, plan 16 bytes, task u64le, digest 16 bytes,
//! |               sections u64le, pairs u64le, preambles u64le, crc32 of the trailer before it u32le
//!
//! pair            key u64le | varint: length of the value * 2 + (1 if it has a preamble)
//!                 | if so, varint: length of the preamble | preamble | value, raw
//! ```
//!
//! Sections begin at offset 0 and follow each other without gaps. The digest is that of all sections and the table. Spills
//! of earlier versions have no random bytes.

use crate::error::{Error, ErrorKind, Result};
use crate::format::digest::{self, Digest, Digester};
use crate::write::{MAX_VARINT, read_varint, write_varint};

const MAGIC: [u8; 8] = *b"sharddbS";

const VERSION: u32 = 2;

/// The number in the row of the random bytes. More than a plan has parts.
pub(super) const NO_PART: u32 = u32::MAX;

/// Length of a row of the table in bytes.
pub const ROW_LEN: usize = 4 + 4 + 8 + 8;

/// Length of the trailer in bytes.
pub const TRAILER_LEN: usize = 8 + 4 + 4 + digest::LEN + 8 + digest::LEN + 8 + 8 + 8 + 4;

/// A section: pairs of one part, in the order of insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SectionRow {
    pub(super) part: u32,
    pub(super) crc32: u32,
    pub(super) pairs: u64,
    pub(super) bytes: u64,
}

impl SectionRow {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let SectionRow { part, crc32, pairs, bytes } = self;
        [&part.to_le_bytes()[..], &crc32.to_le_bytes(), &pairs.to_le_bytes(), &bytes.to_le_bytes()].concat()
    }

    pub(super) fn from_bytes(row: &[u8; ROW_LEN]) -> Option<SectionRow> {
        let mut fields = &row[..];
        Some(SectionRow {
            part: u32::from_le_bytes(take(&mut fields)?),
            crc32: u32::from_le_bytes(take(&mut fields)?),
            pairs: u64::from_le_bytes(take(&mut fields)?),
            bytes: u64::from_le_bytes(take(&mut fields)?),
        })
    }
}

/// The last bytes of a spill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) table_crc32: u32,
    /// The digest of the plan.
    pub(super) plan: Digest,
    pub(super) task: u64,
    /// The digest of the spill.
    pub(super) digest: Digest,
    /// The number of rows of the table.
    pub(super) sections: u64,
    pub(super) pairs: u64,
    /// The number of pairs with a preamble.
    pub(super) preambles: u64,
}

impl Trailer {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut trailer = [
            &MAGIC[..],
            &VERSION.to_le_bytes(),
            &self.table_crc32.to_le_bytes(),
            &self.plan.to_bytes(),
            &self.task.to_le_bytes(),
            &self.digest.to_bytes(),
            &self.sections.to_le_bytes(),
            &self.pairs.to_le_bytes(),
            &self.preambles.to_le_bytes(),
        ]
        .concat();
        trailer.extend(crc32fast::hash(&trailer).to_le_bytes());
        trailer
    }

    /// Errors: `Corrupt` if these are not the last bytes of a spill; `Unsupported` for a later version.
    pub(super) fn from_bytes(trailer: &[u8]) -> Result<Trailer> {
        let foreign = || Error::corrupt("expected a spill, which ends with a trailer, found another or a cut file");
        let (mut fields, crc32) = trailer.split_last_chunk().ok_or_else(foreign)?;
        if *crc32 != crc32fast::hash(fields).to_le_bytes() || take(&mut fields) != Some(MAGIC) {
            return Err(foreign());
        }
        match take(&mut fields).map(u32::from_le_bytes) {
            Some(VERSION) => {}
            version => {
                let message =
                    format!("this build reads spills of version {VERSION}, found {}", version.unwrap_or_default());
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        }
        let mut read = || {
            Some(Trailer {
                table_crc32: u32::from_le_bytes(take(&mut fields)?),
                plan: Digest::from_bytes(take(&mut fields)?),
                task: u64::from_le_bytes(take(&mut fields)?),
                digest: Digest::from_bytes(take(&mut fields)?),
                sections: u64::from_le_bytes(take(&mut fields)?),
                pairs: u64::from_le_bytes(take(&mut fields)?),
                preambles: u64::from_le_bytes(take(&mut fields)?),
            })
        };
        read().ok_or_else(foreign)
    }
}

/// Ends the digest of a spill, given that of its sections, by its table and its task.
pub(super) fn digest_of(mut sections: Digester, table: &[u8], plan: Digest, task: u64) -> Digest {
    sections.update(table);
    sections.update(&plan.to_bytes());
    sections.update(&task.to_le_bytes());
    sections.finish()
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (field, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*field)
}

/// The maximum length of a header in bytes.
pub(super) const MAX_HEADER: usize = 8 + 2 * MAX_VARINT;

/// Upper bound on the length of a value: its varint has a flag.
pub(super) const MAX_VALUE: u64 = u64::MAX >> 1;

/// The key and the lengths of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub(super) key: u64,
    pub(super) preamble_len: u64,
    pub(super) value_len: u64,
}

impl RecordHeader {
    /// Appends the header.
    #[inline]
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.key.to_le_bytes());
        write_varint(self.value_len << 1 | u64::from(self.preamble_len > 0), to);
        if self.preamble_len > 0 {
            write_varint(self.preamble_len, to);
        }
    }

    /// Reads the header at the beginning of `bytes`, and its length; `None` if it is cut short.
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Option<(RecordHeader, usize)> {
        let (key, mut rest) = bytes.split_first_chunk::<8>()?;
        let value = read_varint(&mut rest)?;
        let preamble_len = if value & 1 == 1 { read_varint(&mut rest)? } else { 0 };
        let header = RecordHeader { key: u64::from_le_bytes(*key), preamble_len, value_len: value >> 1 };
        Some((header, bytes.len() - rest.len()))
    }

    /// Returns the number of bytes after the header; `None` if it overflows.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.preamble_len.checked_add(self.value_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_at_the_extremes() {
        for (key, preamble_len, value_len) in
            [(0, 0, 0), (7, 0, 63), (7, 0, 64), (u64::MAX, u64::MAX, MAX_VALUE), (1 << 40, 127, 1 << 35)]
        {
            let header = RecordHeader { key, preamble_len, value_len };
            let mut bytes = Vec::new();
            header.write(&mut bytes);
            assert!(bytes.len() <= MAX_HEADER);
            for cut in 0..bytes.len() {
                assert_eq!(RecordHeader::read(&bytes[..cut]), None);
            }
            bytes.push(0xff);
            assert_eq!(RecordHeader::read(&bytes), Some((header, bytes.len() - 1)));
        }
    }

    /// Ten bytes of header for a value of 100 bytes, so a spill takes 1.02 times the input.
    #[test]
    fn the_header_of_a_small_value_is_small() {
        let mut bytes = Vec::new();
        RecordHeader { key: u64::MAX, preamble_len: 0, value_len: 100 }.write(&mut bytes);
        assert_eq!(bytes, [255, 255, 255, 255, 255, 255, 255, 255, 0xc8, 1]);
    }

    #[test]
    fn a_row_has_these_bytes() {
        let row = SectionRow { part: 7, crc32: 0x0102_0304, pairs: 3, bytes: 0x1_0000 };
        let expected = [
            7, 0, 0, 0, // part
            4, 3, 2, 1, // crc32
            3, 0, 0, 0, 0, 0, 0, 0, // pairs
            0, 0, 1, 0, 0, 0, 0, 0, // bytes
        ];
        assert_eq!(row.to_bytes(), expected);
        assert_eq!(SectionRow::from_bytes(&expected), Some(row));
    }

    #[test]
    fn any_changed_bit_of_a_trailer_is_an_error() {
        let trailer = Trailer {
            table_crc32: 0x1234_5678,
            plan: Digest::of(b"plan"),
            task: u64::MAX,
            digest: Digest::of(b"spill"),
            sections: 5,
            pairs: 1 << 40,
            preambles: 2,
        };
        let bytes = trailer.to_bytes();
        assert_eq!(Trailer::from_bytes(&bytes).unwrap(), trailer);
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Trailer::from_bytes(&other).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }
}
