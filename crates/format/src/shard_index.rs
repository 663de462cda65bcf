//! The shard index: the byte range of each minishard index.
//!
//! ```text
//! byte 16 * minishard    start u64le   start of the encoded minishard index, relative to the end of the shard index
//!                   + 8  end   u64le   its exclusive end; start == end: the minishard has no keys
//! ```

use crate::byte_range::{ByteRange, RelativeRange};
use crate::ids::MinishardNumber;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardIndexEntry {
    start: u64,
    end: u64,
}

/// The length of an entry in bytes.
pub const ENTRY_LEN: u64 = 16;

impl ShardIndexEntry {
    pub fn new(minishard_index: RelativeRange) -> ShardIndexEntry {
        ShardIndexEntry { start: minishard_index.start, end: minishard_index.end }
    }

    /// Returns the byte range of a minishard's entry in the file.
    #[inline]
    pub fn position(minishard: MinishardNumber) -> ByteRange {
        let start = minishard.0 * ENTRY_LEN; // minishard < 2^32
        ByteRange { start, end: start + ENTRY_LEN }
    }

    /// Reads the entry in the first 16 bytes; `None` if there are fewer.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<ShardIndexEntry> {
        let [start, end] = *bytes.as_chunks().0.first_chunk()?;
        Some(ShardIndexEntry { start: u64::from_le_bytes(start), end: u64::from_le_bytes(end) })
    }

    /// Returns the bytes of the entry.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let words = [self.start.to_le_bytes(), self.end.to_le_bytes()];
        bytes.copy_from_slice(words.as_flattened());
        bytes
    }

    /// Returns the stated range of the encoded minishard index; `None` for a minishard without keys.
    #[inline]
    pub fn minishard_index(&self) -> Option<RelativeRange> {
        let range = self.stated_range();
        (range.start != range.end).then_some(range)
    }

    /// Returns the stated range of the encoded minishard index; empty for a minishard without keys.
    #[inline]
    pub fn stated_range(&self) -> RelativeRange {
        RelativeRange { start: self.start, end: self.end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_both_ways() {
        let bytes = [
            0x10, 0x32, 0, 0, 0, 0, 0, 0, // start 0x3210
            0x28, 0x32, 0, 0, 0, 0, 0, 0x80, // end 0x8000000000003228
        ];
        let range = RelativeRange { start: 0x3210, end: 0x8000_0000_0000_3228 };
        assert_eq!(ShardIndexEntry::read(&bytes).unwrap().minishard_index(), Some(range));
        assert_eq!(ShardIndexEntry::new(range).to_bytes(), bytes);
        assert_eq!(ShardIndexEntry::read(&bytes[..15]), None);
    }

    #[test]
    fn any_equal_pair_is_empty() {
        for offset in [0, 7, u64::MAX] {
            let entry = ShardIndexEntry::new(RelativeRange { start: offset, end: offset });
            assert_eq!(entry.minishard_index(), None);
        }
    }
}
