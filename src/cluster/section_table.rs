//! The end of a spill: its section table and the trailer.
//!
//! ```text
//! | sections      pairs (`record`); a run is one section per part that has pairs, in the order of the parts; the last
//! |               section is of no part: 16 random bytes, by which the digest differs from that of any other spill
//! | table         per section: part u32le, crc32 u32le, pairs u64le, bytes u64le
//! | trailer       magic, version u32le, crc32 of the table u32le, plan 16 bytes, task u64le, digest 16 bytes,
//! |               sections u64le, pairs u64le, preambles u64le, crc32 of the trailer before it u32le
//! ```
//!
//! Sections begin at offset 0 and follow each other without gaps. The digest is that of all sections and the table. Spills
//! of earlier versions have no random bytes.

use crate::error::{Error, ErrorKind, Result};
use crate::format::digest::{self, Digest, Digester};

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
    pub(super) fn to_bytes(self) -> [u8; ROW_LEN] {
        let mut row = [0; ROW_LEN];
        let mut fields = Fields(&mut row);
        fields.put(self.part.to_le_bytes());
        fields.put(self.crc32.to_le_bytes());
        fields.put(self.pairs.to_le_bytes());
        fields.put(self.bytes.to_le_bytes());
        row
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
    pub(super) fn to_bytes(self) -> [u8; TRAILER_LEN] {
        let mut trailer = [0; TRAILER_LEN];
        let mut fields = Fields(&mut trailer);
        fields.put(MAGIC);
        fields.put(VERSION.to_le_bytes());
        fields.put(self.table_crc32.to_le_bytes());
        fields.put(self.plan.to_bytes());
        fields.put(self.task.to_le_bytes());
        fields.put(self.digest.to_bytes());
        fields.put(self.sections.to_le_bytes());
        fields.put(self.pairs.to_le_bytes());
        fields.put(self.preambles.to_le_bytes());
        let crc32 = checksum(&trailer);
        if let Some(last) = trailer.last_chunk_mut() {
            *last = crc32.to_le_bytes();
        }
        trailer
    }

    /// Errors: `Corrupt` if these are not the last bytes of a spill; `Unsupported` for a later version.
    pub(super) fn from_bytes(trailer: &[u8; TRAILER_LEN]) -> Result<Trailer> {
        let foreign = || Error::corrupt("expected a spill, which ends with a trailer, found another or a cut file");
        let mut fields = &trailer[..];
        if take(&mut fields) != Some(MAGIC) || trailer.last_chunk() != Some(&checksum(trailer).to_le_bytes()) {
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

fn checksum(trailer: &[u8; TRAILER_LEN]) -> u32 {
    crc32fast::hash(trailer.split_last_chunk::<4>().map_or(&[][..], |(head, _)| head))
}

/// Writes fields one after another.
struct Fields<'a>(&'a mut [u8]);

impl Fields<'_> {
    fn put<const N: usize>(&mut self, field: [u8; N]) {
        if let Some((to, rest)) = std::mem::take(&mut self.0).split_first_chunk_mut() {
            *to = field;
            self.0 = rest;
        }
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (field, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*field)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Trailer::from_bytes(&other).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }
}
