//! Walking through a shard in storage order: minishard by minishard, row by row.

use crate::byte_range::ByteRange;
use crate::error::Result;
use crate::format::checks::ChecksPlace;
use crate::format::minishard_index::{RawIndex, Row, RowsState};
use crate::format::shard_index::ShardIndexEntry;
use crate::ids::MinishardNumber;
use crate::prefetch;
use crate::read::shard::budget::IndexBudget;
use crate::read::shard::entry_blocks::EntryBlocks;
use crate::read::shard::minishards::Verified;
use crate::read::shard::reader::ShardReader;
use crate::read::shard::stored_value::Stored;
use crate::read::shard::verification::Compare;
use crate::storage::Bytes;

/// Minishard indexes are asked for so far ahead.
const MINISHARDS_AHEAD: u64 = 8;

/// Cache lines of such an index that are asked for.
const INDEX_LINES: usize = 8;

/// Walks over the rows of a shard; not an iterator, so that it borrows the shard only for a step.
///
/// `next_minishard` goes to the next minishard with keys, `next_row` through its rows. A bad minishard is one
/// error; the walk goes on behind it. It always ends, and reads at most twice as many bytes of indexes as the file has:
/// indexes beyond that overlap others, and each is an error.
#[derive(Default)]
pub(crate) struct Rows {
    blocks: EntryBlocks,
    next_minishard: u64,
    block_first: u64,
    block: Vec<ShardIndexEntry>,
    budget: IndexBudget,
    pub(super) current: Option<CurrentMinishard>,
    compare: Compare,
    /// The index of the current minishard, unless it is searched where it lies.
    pub(super) decoded: Option<Vec<u8>>,
    pub(super) state: RowsState,
}

/// The minishard that a walk is in.
#[derive(Clone, Copy)]
pub(crate) struct CurrentMinishard {
    pub(crate) number: MinishardNumber,
    /// The encoded index.
    pub(crate) index: ByteRange,
    pub(crate) rows: u64,
    pub(super) verified: Verified,
}

impl CurrentMinishard {
    #[inline]
    pub(super) fn stored(&self, row: Row) -> Stored {
        let checks = ChecksPlace { index_end: self.index.end, rows: self.rows };
        Stored { minishard: self.number, row, checks }
    }
}

impl Rows {
    /// A walk that verifies as much of each minishard as `compare` says.
    pub(super) fn comparing(compare: Compare) -> Rows {
        Rows { compare, ..Rows::default() }
    }

    /// Goes to the next minishard with keys.
    pub(crate) fn next_minishard(&mut self, shard: &ShardReader) -> Result<Option<CurrentMinishard>> {
        self.current = None;
        while let Some((number, entry)) = self.next_entry(shard)? {
            let entered = shard.resolve_minishard_index(number, entry).and_then(|range| match range {
                Some(index) => self.enter(shard, number, index).map(Some),
                None => Ok(None),
            });
            if let Some(current) = entered.map_err(|error| shard.at(number, error))? {
                self.current = Some(current);
                return Ok(self.current);
            }
        }
        Ok(None)
    }

    /// The next row of the current minishard.
    #[inline]
    pub(crate) fn next_row(&mut self, shard: &ShardReader) -> Option<Row> {
        let mut state = self.state;
        let row = state.next(self.view(shard, self.current?.index).ok()?);
        self.state = state;
        row
    }

    /// The index of the current minishard where it lies in memory; an empty one if it does not.
    pub(super) fn in_place<'a>(&self, shard: &'a ShardReader) -> RawIndex<'a> {
        match (&self.decoded, self.current) {
            (None, Some(current)) => RawIndex::view(shard.in_memory(current.index).unwrap_or_default()),
            _ => Ok(RawIndex::default()),
        }
        .unwrap_or_default()
    }

    /// The next entry of the shard index that is not in a hole, with its minishard.
    fn next_entry(&mut self, shard: &ShardReader) -> Result<Option<(MinishardNumber, ShardIndexEntry)>> {
        loop {
            let in_block = usize::try_from(self.next_minishard - self.block_first).unwrap_or(usize::MAX);
            if let Some(entry) = self.block.get(in_block) {
                let number = MinishardNumber(self.next_minishard);
                self.next_minishard += 1;
                return Ok(Some((number, *entry)));
            }
            if !self.next_block(shard)? {
                return Ok(None);
            }
        }
    }

    /// Goes to the next block of entries; whether there is one.
    ///
    /// Errors: `Corrupt` for a damaged shard index, `Io`. There is no block after an error.
    fn next_block(&mut self, shard: &ShardReader) -> Result<bool> {
        if self.blocks.is_over() {
            return Ok(false);
        }
        // a shard index that is not as it was written may name no keys where there are some: nothing of it is used
        if let Err(error) = shard.verify_shard_index() {
            self.blocks.end();
            return Err(shard.at(MinishardNumber(self.next_minishard), error));
        }
        let Some((first, block)) = self.blocks.next(shard)? else { return Ok(false) };
        (self.block_first, self.next_minishard) = (first.0, first.0);
        self.block.clear();
        self.block.extend(block.chunks_exact(size_of::<ShardIndexEntry>()).filter_map(ShardIndexEntry::read));
        Ok(true)
    }

    /// Asks for the index of a minishard that is some way ahead: a walk over indexes alone meets them at distances that
    /// the processor does not foresee.
    #[inline]
    pub(super) fn prefetch(&self, shard: &ShardReader) {
        let ahead = usize::try_from(self.next_minishard + MINISHARDS_AHEAD - self.block_first).unwrap_or(usize::MAX);
        let index = self.block.get(ahead).and_then(ShardIndexEntry::minishard_index);
        if let (Some(behind), Some(index)) = (shard.raw_behind(), index) {
            prefetch::lines(index.of(behind).unwrap_or_default(), INDEX_LINES);
        }
    }

    fn enter(&mut self, shard: &ShardReader, number: MinishardNumber, index: ByteRange) -> Result<CurrentMinishard> {
        self.budget.take(shard.files().data_len(), number, index)?;
        let encoded = shard.read_minishard_index(index)?;
        let decoded = shard.decode_minishard_index(&encoded)?;
        let view = RawIndex::view(decoded.as_deref().unwrap_or(&encoded));
        let rows = view.map_err(|error| error.at_offset(index.start))?.len() as u64;
        let verified = shard.verify_used_index(number, index, &encoded, rows, self.compare)?;
        self.decoded = match (decoded, encoded) {
            (None, Bytes::Owned(bytes)) => Some(bytes.to_vec()),
            (decoded, _) => decoded,
        };
        self.state = RowsState::default();
        Ok(CurrentMinishard { number, index, rows, verified })
    }

    /// The decoded index of a minishard that was entered.
    fn view<'a>(&'a self, shard: &'a ShardReader, index: ByteRange) -> Result<RawIndex<'a>> {
        match &self.decoded {
            Some(decoded) => RawIndex::view(decoded),
            None => RawIndex::view(shard.in_memory(index).unwrap_or_default()),
        }
        .map_err(|error| error.at_offset(index.start))
    }
}
