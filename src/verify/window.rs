//! A buffered view of a shard, in which adjacent ranges take one read.

use crate::byte_range::ByteRange;
use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::format::checks::StoredCheck;
use crate::read::shard::ShardReader;

/// Minimum size in bytes of a read from a shard that is neither mapped nor loaded, except at the end of the file.
const WINDOW_BLOCK: u64 = 256 << 10;

/// A buffered view of a shard, for reads at mostly ascending offsets.
pub(super) struct Window<'a> {
    shard: &'a ShardReader,
    /// The length of the file with the data.
    data_len: u64,
    block_range: ByteRange,
    block: Option<Bytes<'a>>,
}

impl<'a> Window<'a> {
    pub(super) fn new(shard: &'a ShardReader) -> Window<'a> {
        Window { shard, data_len: shard.files().data_len(), block_range: ByteRange { start: 0, end: 0 }, block: None }
    }

    /// Returns the bytes of a range of the file: borrowed from memory, or else from the buffered block.
    ///
    /// Does not enforce a cap: the caller must limit the length of the range.
    pub(super) fn read(&mut self, range: ByteRange) -> Result<&[u8]> {
        if let Some(bytes) = self.shard.mapped_or_loaded(range) {
            return Ok(bytes);
        }
        if self.block.is_none() || range.start < self.block_range.start || range.end > self.block_range.end {
            self.move_to(range)?;
        }
        let block = self.block.as_deref().unwrap_or_default();
        let start = range.start - self.block_range.start;
        let in_block = ByteRange { start, end: start + range.len() };
        in_block.of(block).ok_or_else(|| Error::corrupt("expected a range inside the file, found the end of the file"))
    }

    /// Returns the check at a place. Errors: `Corrupt` if there is no such place, or it is not inside the file.
    pub(super) fn read_check(&mut self, place: Option<ByteRange>) -> Result<StoredCheck> {
        StoredCheck::read(place, |place| {
            if place.end <= self.data_len {
                self.read(place)
            } else {
                Err(Error::corrupt("expected checks after the minishard index, found the end of the file"))
            }
        })
    }

    /// Reads a block that begins with `range` and contains all of it.
    fn move_to(&mut self, range: ByteRange) -> Result<()> {
        let end = (range.start + WINDOW_BLOCK).min(self.data_len).max(range.end);
        self.block = None; // freed first, so that there is one block at a time
        self.block_range = ByteRange { start: range.start, end };
        self.block = Some(self.shard.read(self.block_range)?);
        Ok(())
    }
}
