//! The encoding of a [`PairHeader`] inside the loader: in the memory of a batch and in temporary files.
//!
//! ```text
//! key u64le | check of the stored value u32le
//!           | varint: stored length * 8 + (4 if deleted) + (2 if large) + (1 if it has a preamble)
//!           | if it has a preamble: varint: length of the preamble | CRC-32 of the preamble u32le
//!           | if large: varint: offset in the file of large pairs
//! ```

use crate::error::{Error, Result};
use crate::write::shard_file::PairHeader;

/// The maximum length of a varint in bytes.
pub(crate) const MAX_VARINT: usize = 10;

/// The maximum length of a header in bytes.
pub(crate) const MAX_LEN: usize = 8 + 4 + MAX_VARINT + MAX_VARINT + 4 + MAX_VARINT;

const HAS_PREAMBLE: u64 = 1;
const IS_LARGE: u64 = 2;
const IS_DELETED: u64 = 4;
const FLAG_BITS: u32 = 3;

/// The position of the value's check in a header.
const CHECK: std::ops::Range<usize> = 8..12;

/// Appends a header, without the fields `batch`, `source` and `locator`.
pub(crate) fn write(header: &PairHeader, to: &mut Vec<u8>) {
    to.extend_from_slice(&header.key.to_le_bytes());
    to.extend_from_slice(&header.value_check.to_le_bytes());
    let has_preamble = if header.preamble_len > 0 { HAS_PREAMBLE } else { 0 };
    let is_large = if header.large.is_some() { IS_LARGE } else { 0 };
    let is_deleted = if header.is_deleted { IS_DELETED } else { 0 };
    write_varint(header.stored_len << FLAG_BITS | is_deleted | is_large | has_preamble, to); // no value has 2^61 bytes
    if header.preamble_len > 0 {
        write_varint(header.preamble_len, to);
        to.extend_from_slice(&header.preamble_crc32.to_le_bytes());
    }
    if let Some(position) = header.large {
        write_varint(position, to);
    }
}

/// Reads the header at the beginning of `bytes`; returns it with its length.
#[inline(always)]
pub(crate) fn read(bytes: &[u8]) -> Result<(PairHeader, usize)> {
    read_header(bytes).ok_or_else(cut_short)
}

#[cold]
pub(crate) fn cut_short() -> Error {
    Error::corrupt("expected a complete pair in a batch or a spill file, found a truncated one: run the build again")
}

#[inline(always)]
fn read_header(bytes: &[u8]) -> Option<(PairHeader, usize)> {
    let (key, rest) = bytes.split_first_chunk::<8>()?;
    let (check, mut rest) = rest.split_first_chunk::<4>()?;
    let length = read_varint(&mut rest)?;
    let mut header = PairHeader {
        key: u64::from_le_bytes(*key),
        value_check: u32::from_le_bytes(*check),
        stored_len: length >> FLAG_BITS,
        preamble_len: 0,
        preamble_crc32: 0,
        batch: 0,
        is_deleted: length & IS_DELETED != 0,
        large: None,
        source: 0,
        locator: 0,
    };
    if length & HAS_PREAMBLE != 0 {
        header.preamble_len = read_varint(&mut rest)?;
        let (crc32, after) = rest.split_first_chunk::<4>()?;
        header.preamble_crc32 = u32::from_le_bytes(*crc32);
        rest = after;
    }
    if length & IS_LARGE != 0 {
        header.large = Some(read_varint(&mut rest)?);
    }
    Some((header, bytes.len() - rest.len()))
}

/// Writes the checksums into the header of an inline pair that was written without them.
pub(crate) fn set_checksums(header: &mut [u8], from: &PairHeader) {
    if let Some(check) = header.get_mut(CHECK) {
        check.copy_from_slice(&from.value_check.to_le_bytes());
    }
    if from.preamble_len > 0
        && let Some(crc32) = header.last_chunk_mut()
    {
        *crc32 = from.preamble_crc32.to_le_bytes();
    }
}

pub(crate) fn write_varint(mut number: u64, to: &mut Vec<u8>) {
    #[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 0x80")]
    to.push(number as u8);
}

#[inline]
pub(crate) fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_at_the_extremes() {
        let cases = [
            (0, 0, None),
            (31, 0, Some(0)),
            (32, 1, None),
            (u64::MAX >> 3, u64::MAX, Some(u64::MAX)),
            (1 << 40, 127, Some(1 << 35)),
        ];
        for (stored_len, preamble_len, large) in cases {
            let header = PairHeader {
                key: u64::MAX - stored_len,
                value_check: 0x1234_5678,
                stored_len,
                preamble_len,
                preamble_crc32: if preamble_len > 0 { 0x9abc_def0 } else { 0 },
                batch: 0,
                is_deleted: stored_len == 0,
                large,
                source: 0,
                locator: 0,
            };
            let mut bytes = Vec::new();
            write(&header, &mut bytes);
            assert!(bytes.len() <= MAX_LEN);
            bytes.push(0xff);
            let (read, len) = read(&bytes).unwrap();
            assert_eq!((read, len), (header, bytes.len() - 1));
            for cut in 0..len {
                assert!(super::read(&bytes[..cut]).is_err());
            }
        }
    }
}
