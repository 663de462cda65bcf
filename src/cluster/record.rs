//! A pair in a spill.
//!
//! ```text
//! key u64le | varint: length of the value * 2 + (1 if it has a preamble) | if so, varint: length of the preamble
//!           | preamble | value, raw
//! ```

use crate::write::{MAX_VARINT, read_varint, write_varint};

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
}
