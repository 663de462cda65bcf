//! A buffered view of a shard, so that adjacent ranges take one read.

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::read::shard::ShardReader;
use crate::storage::Bytes;

/// Size in bytes of a read from a shard that is not in memory.
const WINDOW_BLOCK: u64 = 256 << 10;

/// A buffered view of a shard, for reads at mostly ascending offsets.
pub(super) struct Window<'a> {
    shard: &'a ShardReader,
    /// The length of the file with the data.
    data_len: u64,
    range: ByteRange,
    block: Option<Bytes<'a>>,
}

impl<'a> Window<'a> {
    pub(super) fn new(shard: &'a ShardReader, data_len: u64) -> Window<'a> {
        Window { shard, data_len, range: ByteRange { start: 0, end: 0 }, block: None }
    }

    /// Returns the bytes of a range of the file: borrowed from memory, or else from the buffered block.
    pub(super) fn read(&mut self, range: ByteRange) -> Result<&[u8]> {
        if let Some(bytes) = self.shard.in_memory(range) {
            return Ok(bytes);
        }
        if self.block.is_none() || range.start < self.range.start || range.end > self.range.end {
            self.move_to(range)?;
        }
        let block = self.block.as_deref().unwrap_or_default();
        let start = range.start - self.range.start;
        let in_block = ByteRange { start, end: start + range.len() };
        in_block.of(block).ok_or_else(|| Error::corrupt("expected a range inside the file, found the end of the file"))
    }

    /// Returns the check at a range. Errors: `Corrupt` if the range is missing or not inside the file.
    pub(super) fn read_check(&mut self, place: Option<ByteRange>) -> Result<u32> {
        let place = place.filter(|place| place.end <= self.data_len);
        let place = place
            .ok_or_else(|| Error::corrupt("expected checks after the minishard index, found the end of the file"))?;
        Ok(self.read(place)?.first_chunk().map_or(0, |check| u32::from_le_bytes(*check)))
    }

    fn move_to(&mut self, range: ByteRange) -> Result<()> {
        if range.len() > WINDOW_BLOCK {
            self.shard.check_cap(range)?;
        }
        let end = (range.start + WINDOW_BLOCK).min(self.data_len).max(range.end);
        self.block = None; // freed first, so that there is one block at a time
        self.range = ByteRange { start: range.start, end };
        self.block = Some(self.shard.read(self.range)?);
        Ok(())
    }
}
