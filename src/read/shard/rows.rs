//! The walk over a shard in storage order: minishard by minishard, row by row. All iterators use it.

use crate::ids::{MinishardNumber, minishard_number};
use std::ops::Range;

use crate::byte_range::ByteRange;
use crate::bytes::Bytes;
use crate::error::Result;
use crate::format::checks::ChecksPlace;
use crate::format::minishard_index::{IndexView, Row, RowsState};
use crate::format::shard_index::ShardIndexEntry;
use crate::prefetch;
use crate::read::shard::entry_blocks::EntryBlocks;
use crate::read::shard::minishard_map::Trusted;
use crate::read::shard::reader::ShardReader;
use crate::read::shard::stored_value::FoundKey;
use crate::read::shard::verification::VerifyScope;
use crate::read::shard::walk_budget::IndexBudget;

/// The number of minishards that indexes are prefetched ahead.
const MINISHARDS_AHEAD: u64 = 8;

/// Cache lines prefetched per index.
const INDEX_LINES: usize = 8;

/// A walk over the rows of a shard. It is not an iterator, so that it borrows the shard for one step at a time.
///
/// `next_minishard` moves to the next minishard with keys, and `next_row` returns its rows. A bad minishard is one
/// error, and the walk continues after it. The walk always ends, and reads at most twice the file length in indexes:
/// indexes beyond that overlap others, and each is an error. A walk over a range of minishards has this bound for
/// itself.
#[derive(Default)]
pub(crate) struct Rows {
    blocks: EntryBlocks,
    next_minishard: u64,
    block_first: u64,
    block: Vec<ShardIndexEntry>,
    budget: IndexBudget,
    pub(super) current: Option<CurrentMinishard>,
    scope: VerifyScope,
    /// The index of the current minishard, decoded or read; `None` if it is raw, and mapped or loaded.
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
    pub(super) trusted: Trusted,
}

impl CurrentMinishard {
    #[inline]
    pub(crate) fn found(&self, row: Row) -> FoundKey {
        let checks = ChecksPlace { index_end: self.index.end, rows: self.rows };
        FoundKey { minishard: self.number, row, checks, value_check: None }
    }
}

impl Rows {
    /// Creates a walk over a range of minishards. The range may end after the last minishard.
    pub(crate) fn over(minishards: Range<MinishardNumber>) -> Rows {
        Rows { blocks: EntryBlocks::over(minishards), ..Rows::default() }
    }

    /// Creates a walk that verifies the parts of each minishard that `scope` selects, unless they are trusted.
    pub(crate) fn verifying(scope: VerifyScope) -> Rows {
        Rows::default().with_scope(scope)
    }

    pub(super) fn with_scope(self, scope: VerifyScope) -> Rows {
        Rows { scope, ..self }
    }

    /// Moves to the next minishard with keys; `None` at the end.
    pub(crate) fn next_minishard(&mut self, shard: &ShardReader) -> Result<Option<CurrentMinishard>> {
        self.current = None;
        while let Some((number, entry)) = self.next_entry(shard)? {
            let entered = shard.resolve_entry(number, entry).and_then(|range| match range {
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

    /// Returns the current minishard; `None` before the first and after the last.
    pub(crate) fn current(&self) -> Option<CurrentMinishard> {
        self.current
    }

    /// Returns the next row of the current minishard.
    #[inline]
    pub(crate) fn next_row(&mut self, shard: &ShardReader) -> Option<Row> {
        let mut state = self.state;
        let row = state.next(self.view(shard, self.current?.index).ok()?);
        self.state = state;
        row
    }

    /// Calls `f` with each row of the current minishard that is left.
    #[inline]
    pub(crate) fn for_each_row(&mut self, shard: &ShardReader, mut f: impl FnMut(&FoundKey)) {
        let Some(current) = self.current else { return };
        let Ok(index) = self.view(shard, current.index) else { return };
        let mut state = self.state;
        while let Some(row) = state.next(index) {
            f(&current.found(row));
        }
        self.state = state;
    }

    /// Whether the walk was ended by an error about the whole shard index.
    pub(crate) fn is_over(&self) -> bool {
        self.blocks.is_over()
    }

    /// Returns the index of the current minishard if it is raw, and mapped or loaded; otherwise an empty index.
    #[inline]
    pub(super) fn in_place<'a>(&self, shard: &'a ShardReader) -> IndexView<'a> {
        match (&self.decoded, self.current) {
            (None, Some(current)) => IndexView::view(shard.mapped_or_loaded(current.index).unwrap_or_default()),
            _ => Ok(IndexView::default()),
        }
        .unwrap_or_default()
    }

    /// Returns the next entry of the shard index, with its minishard. Skips holes.
    fn next_entry(&mut self, shard: &ShardReader) -> Result<Option<(MinishardNumber, ShardIndexEntry)>> {
        loop {
            let in_block = usize::try_from(self.next_minishard - self.block_first).unwrap_or(usize::MAX);
            if let Some(entry) = self.block.get(in_block) {
                let number = minishard_number(self.next_minishard);
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
            return Err(shard.at(minishard_number(self.next_minishard), error));
        }
        let Some((first, block)) = self.blocks.next(shard)? else { return Ok(false) };
        (self.block_first, self.next_minishard) = (first.get(), first.get());
        self.block.clear();
        self.block.extend(block.chunks_exact(size_of::<ShardIndexEntry>()).filter_map(ShardIndexEntry::read));
        Ok(true)
    }

    /// Prefetches the index of a minishard ahead of the walk. A walk over indexes alone skips values of varying
    /// lengths, which the hardware prefetcher cannot predict.
    #[inline]
    pub(crate) fn prefetch(&self, shard: &ShardReader) {
        let ahead = usize::try_from(self.next_minishard + MINISHARDS_AHEAD - self.block_first).unwrap_or(usize::MAX);
        let index = self.block.get(ahead).and_then(ShardIndexEntry::minishard_index);
        if let (Some(body), Some(index)) = (shard.raw_body(), index) {
            prefetch::lines(index.of(body).unwrap_or_default(), INDEX_LINES);
        }
    }

    fn enter(&mut self, shard: &ShardReader, number: MinishardNumber, index: ByteRange) -> Result<CurrentMinishard> {
        self.budget.take(shard.files().data_len(), number, index)?;
        let stored = shard.read_minishard_index(index)?;
        let trusted = shard.verify_used_index(number, &stored, self.scope)?;
        let rows = stored.checks().rows;
        self.decoded = match stored.into_parts() {
            (Bytes::Owned(bytes), None) => Some(bytes.to_vec()),
            (_, decoded) => decoded,
        };
        self.state = RowsState::default();
        Ok(CurrentMinishard { number, index, rows, trusted })
    }

    /// Returns the decoded index of the current minishard.
    fn view<'a>(&'a self, shard: &'a ShardReader, index: ByteRange) -> Result<IndexView<'a>> {
        match &self.decoded {
            Some(decoded) => IndexView::view(decoded),
            None => IndexView::view(shard.mapped_or_loaded(index).unwrap_or_default()),
        }
        .map_err(|error| error.at_offset(index.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::hash::HashFunction;
    use crate::format::layout::Layout;
    use crate::format::spec::ShardingSpec;
    use crate::ids::{minishard_number, shard_number};
    use crate::read::shard::handle::Shard;
    use crate::write::ShardWriter;

    /// A shard of 2^13 minishards, whose shard index is two blocks. The keys of each are its number and, in every
    /// seventh, also its number plus 2^13.
    fn shard() -> (Shard, Vec<u64>) {
        let spec = ShardingSpec::new(HashFunction::Identity, 0, 13, 0).unwrap();
        let mut writer = ShardWriter::in_memory(spec, shard_number(0), Layout::default()).unwrap();
        let mut keys = Vec::new();
        for minishard in (0..1 << 13).filter(|minishard| minishard % 3 != 0) {
            keys.push(minishard);
            keys.extend((minishard % 7 == 0).then_some(minishard + (1 << 13)));
        }
        keys.iter().for_each(|key| writer.insert(*key, key.to_le_bytes()).unwrap());
        (Shard::from_bytes(spec, shard_number(0), writer.finish_in_memory().unwrap().1), keys)
    }

    fn keys_of(shard: &Shard, minishards: Range<u64>) -> Vec<u64> {
        let mut rows = Rows::over(minishard_number(minishards.start)..minishard_number(minishards.end));
        let mut keys = Vec::new();
        while rows.next_minishard(shard.reader()).unwrap().is_some() {
            while let Some(row) = rows.next_row(shard.reader()) {
                keys.push(row.id);
            }
        }
        keys
    }

    #[test]
    fn a_walk_over_a_range_returns_the_rows_of_its_minishards_alone() {
        let (shard, keys) = shard();
        let ends = [0, 1, 2, 5, 4095, 4096, 4097, 8190, 8191, 8192, 8193, u64::MAX];
        for start in ends {
            for end in ends {
                let expected: Vec<u64> =
                    keys.iter().copied().filter(|key| (start..end).contains(&(key % (1 << 13)))).collect();
                assert_eq!(keys_of(&shard, start..end), expected, "{start}..{end}");
            }
        }
    }

    /// A file that ends within its shard index is an error of the walks that need the missing entries.
    #[test]
    fn a_short_shard_index_is_an_error_only_where_it_is_missing() {
        let (spec, index) = (ShardingSpec::new(HashFunction::Identity, 0, 13, 0).unwrap(), vec![0; 16 * 100]);
        let shard = Shard::from_bytes(spec, shard_number(0), index);
        let walk = |minishards: Range<u64>| {
            let mut rows = Rows::over(minishard_number(minishards.start)..minishard_number(minishards.end));
            rows.next_minishard(shard.reader()).map(|minishard| minishard.is_none())
        };
        assert!(walk(0..100).unwrap() && walk(50..50).unwrap());
        for missing in [0..101, 100..101, 5000..5001, 0..u64::MAX] {
            let error = walk(missing).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Corrupt);
        }
    }
}
