//! The walk over a shard in storage order: minishard by minishard, row by row. All iterators use it.

use crate::byte_range::ByteRange;
use crate::error::Result;
use crate::format::checks::ChecksPlace;
use crate::format::minishard_index::{IndexView, Row, RowsState};
use crate::format::shard_index::ShardIndexEntry;
use crate::ids::MinishardNumber;
use crate::prefetch;
use crate::read::shard::budget::IndexBudget;
use crate::read::shard::entry_blocks::EntryBlocks;
use crate::read::shard::minishards::Verified;
use crate::read::shard::reader::ShardReader;
use crate::read::shard::stored_value::FoundKey;
use crate::read::shard::verification::VerifyScope;
use crate::storage::Bytes;

/// The number of minishards that indexes are prefetched ahead.
const MINISHARDS_AHEAD: u64 = 8;

/// Cache lines prefetched per index.
const INDEX_LINES: usize = 8;

/// A walk over the rows of a shard. It is not an iterator, so that it borrows the shard for one step at a time.
///
/// `next_minishard` moves to the next minishard with keys, and `next_row` returns its rows. A bad minishard is one
/// error, and the walk continues after it. The walk always ends, and reads at most twice the file length in indexes:
/// indexes beyond that overlap others, and each is an error.
#[derive(Default)]
pub(crate) struct Rows {
    blocks: EntryBlocks,
    next_minishard: u64,
    block_first: u64,
    block: Vec<ShardIndexEntry>,
    budget: IndexBudget,
    pub(super) current: Option<CurrentMinishard>,
    compare: VerifyScope,
    /// The decoded index of the current minishard, unless the index is in memory and raw.
    pub(super) decoded: Option<Vec<u8>>,
    pub(super) state: RowsState,
}

/// The current minishard of a walk.
#[derive(Clone, Copy)]
pub(crate) struct CurrentMinishard {
    pub(crate) number: MinishardNumber,
    /// The range of the encoded index.
    pub(crate) index: ByteRange,
    pub(crate) rows: u64,
    pub(super) verified: Verified,
}

impl CurrentMinishard {
    #[inline]
    pub(super) fn stored(&self, row: Row) -> FoundKey {
        let checks = ChecksPlace { index_end: self.index.end, rows: self.rows };
        FoundKey { minishard: self.number, row, checks }
    }
}

impl Rows {
    /// Creates a walk that verifies the parts of each minishard that `compare` selects.
    pub(super) fn comparing(compare: VerifyScope) -> Rows {
        Rows { compare, ..Rows::default() }
    }

    /// Moves to the next minishard with keys; `None` at the end.
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

    /// Returns the next row of the current minishard.
    #[inline]
    pub(crate) fn next_row(&mut self, shard: &ShardReader) -> Option<Row> {
        let mut state = self.state;
        let row = state.next(self.view(shard, self.current?.index).ok()?);
        self.state = state;
        row
    }

    /// Returns the index of the current minishard if it is raw and in memory; otherwise an empty index.
    pub(super) fn in_place<'a>(&self, shard: &'a ShardReader) -> IndexView<'a> {
        match (&self.decoded, self.current) {
            (None, Some(current)) => IndexView::view(shard.in_memory(current.index).unwrap_or_default()),
            _ => Ok(IndexView::default()),
        }
        .unwrap_or_default()
    }

    /// Returns the next entry of the shard index, with its minishard. Skips holes.
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

    /// Moves to the next block of entries. Returns whether there is one.
    ///
    /// Errors: `Corrupt` for a damaged shard index; `Io`. An error ends the walk.
    fn next_block(&mut self, shard: &ShardReader) -> Result<bool> {
        if self.blocks.is_over() {
            return Ok(false);
        }
        // a damaged shard index may hide minishards that have keys, so none of its entries are used
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

    /// Prefetches the index of a minishard ahead of the walk. A walk over indexes alone skips values of varying
    /// lengths, which the hardware prefetcher cannot predict.
    #[inline]
    pub(super) fn prefetch(&self, shard: &ShardReader) {
        let ahead = usize::try_from(self.next_minishard + MINISHARDS_AHEAD - self.block_first).unwrap_or(usize::MAX);
        let index = self.block.get(ahead).and_then(ShardIndexEntry::minishard_index);
        if let (Some(body), Some(index)) = (shard.raw_body(), index) {
            prefetch::lines(index.of(body).unwrap_or_default(), INDEX_LINES);
        }
    }

    fn enter(&mut self, shard: &ShardReader, number: MinishardNumber, index: ByteRange) -> Result<CurrentMinishard> {
        self.budget.take(shard.files().data_len(), number, index)?;
        let encoded = shard.read_minishard_index(index)?;
        let decoded = shard.decode_minishard_index(&encoded)?;
        let view = IndexView::view(decoded.as_deref().unwrap_or(&encoded));
        let rows = view.map_err(|error| error.at_offset(index.start))?.len() as u64;
        let verified = shard.verify_used_index(number, index, &encoded, rows, self.compare)?;
        self.decoded = match (decoded, encoded) {
            (None, Bytes::Owned(bytes)) => Some(bytes.to_vec()),
            (decoded, _) => decoded,
        };
        self.state = RowsState::default();
        Ok(CurrentMinishard { number, index, rows, verified })
    }

    /// Returns the decoded index of the current minishard.
    fn view<'a>(&'a self, shard: &'a ShardReader, index: ByteRange) -> Result<IndexView<'a>> {
        match &self.decoded {
            Some(decoded) => IndexView::view(decoded),
            None => IndexView::view(shard.in_memory(index).unwrap_or_default()),
        }
        .map_err(|error| error.at_offset(index.start))
    }
}
