//! A block of a shard, so that what lies side by side is not read piece by piece.

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::read::shard::ShardReader;
use crate::storage::Bytes;

/// What is read at once where reading costs a call.
const BLOCK: u64 = 256 << 10;

/// A view of a shard that moves forwards.
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

    /// The bytes of a range behind the shard index: in place if they are in memory, else from a block read ahead.
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
        in_block.of(block).ok_or_else(|| Error::corrupt("expected bytes of the file, found its end"))
    }

    /// The check at a place.
    pub(super) fn read_check(&mut self, place: Option<ByteRange>) -> Result<u32> {
        let place = place.filter(|place| place.end <= self.data_len);
        let place =
            place.ok_or_else(|| Error::corrupt("expected checks behind the index, found the end of the file"))?;
        Ok(self.read(place)?.first_chunk().map_or(0, |check| u32::from_le_bytes(*check)))
    }

    fn move_to(&mut self, range: ByteRange) -> Result<()> {
        if range.len() > BLOCK {
            self.shard.check_cap(range)?;
        }
        let end = (range.start + BLOCK).min(self.data_len).max(range.end);
        self.block = None; // one block at a time
        self.range = ByteRange { start: range.start, end };
        self.block = Some(self.shard.read(self.range)?);
        Ok(())
    }
}
