//! The entries of a shard index front to back, in blocks.
//!
//! A shard index has one entry for each of up to 2^32 minishards, and most of them may be empty: then it is a sparse file,
//! whose holes are skipped. An entry in a hole is (0, 0), which is that of an empty minishard.

use crate::error::Result;
use crate::format::shard_index::ENTRY_LEN;
use crate::shard::reader::ShardReader;
use crate::spec::MinishardNumber;
use crate::storage::{Bytes, Holes};

/// Walks over a shard index; not an iterator, so that it borrows the shard only for a step.
///
/// Cost: reads what is not in a hole, and one block of each hole.
#[derive(Default)]
pub(crate) struct EntryBlocks {
    next: u64,
    /// The last block was all zeros, so that it may have been in a hole.
    after_zeros: bool,
    holes: Option<Holes>,
    is_over: bool,
}

impl EntryBlocks {
    /// The next block of entries, with the minishard of the first; at least one entry.
    ///
    /// Errors: `Corrupt` if the file ends within the shard index, `Io`. There is nothing after an error.
    pub(crate) fn next<'a>(&mut self, shard: &'a ShardReader) -> Result<Option<(MinishardNumber, Bytes<'a>)>> {
        if self.after_zeros {
            self.skip_hole(shard);
        }
        if self.is_over || self.next >= shard.spec.minishards() {
            return Ok(None);
        }
        let first = MinishardNumber(self.next);
        let block = shard.shard_index_block(first).inspect_err(|_| self.is_over = true)?;
        self.next += block.len() as u64 / ENTRY_LEN;
        self.after_zeros = block.iter().all(|byte| *byte == 0);
        Ok(Some((first, block)))
    }

    /// The minishard that the next block begins with, or that could not be read.
    pub(crate) fn position(&self) -> MinishardNumber {
        MinishardNumber(self.next)
    }

    /// Ends the walk.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    #[cold]
    fn skip_hole(&mut self, shard: &ShardReader) {
        if self.next < shard.spec.minishards() {
            let holes = self.holes.get_or_insert_with(|| shard.files().shard_index_holes());
            self.next = holes.next_data(self.next * ENTRY_LEN) / ENTRY_LEN; // of an entry that begins in a hole too
        }
    }
}
