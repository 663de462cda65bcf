//! Walking through all pairs of a shard in storage order: minishard by minishard, row by row.

use std::fmt;

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::format::checks::ChecksPlace;
use crate::format::minishard_index::{RawIndex, Row, RowsState};
use crate::format::shard_index::ShardIndexEntry;
use crate::ids::{Location, MinishardNumber};
use crate::prefetch;
use crate::read::shard::budget::IndexBudget;
use crate::read::shard::entry_blocks::EntryBlocks;
use crate::read::shard::handle::Shard;
use crate::read::shard::lookup::Stored;
use crate::read::shard::minishards::Verified;
use crate::read::shard::reader::ShardReader;
use crate::read::shard::value::{Value, ValueLocation};
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
    current: Option<CurrentMinishard>,
    compare: Compare,
    /// The index of the current minishard, unless it is searched where it lies.
    decoded: Option<Vec<u8>>,
    state: RowsState,
}

/// The minishard that a walk is in.
#[derive(Clone, Copy)]
pub(crate) struct CurrentMinishard {
    pub(crate) number: MinishardNumber,
    /// The encoded index.
    pub(crate) index: ByteRange,
    pub(crate) rows: u64,
    verified: Verified,
}

impl CurrentMinishard {
    #[inline]
    fn stored(&self, row: Row) -> Stored {
        let checks = ChecksPlace { index_end: self.index.end, rows: self.rows };
        Stored { minishard: self.number, row, checks }
    }
}

impl Rows {
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
    fn in_place<'a>(&self, shard: &'a ShardReader) -> RawIndex<'a> {
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
    fn prefetch(&self, shard: &ShardReader) {
        let ahead = usize::try_from(self.next_minishard + MINISHARDS_AHEAD - self.block_first).unwrap_or(usize::MAX);
        let index = self.block.get(ahead).and_then(ShardIndexEntry::minishard_index);
        if let (Some(behind), Some(index)) = (shard.raw_behind(), index) {
            prefetch::lines(index.of(behind).unwrap_or_default(), INDEX_LINES);
        }
    }

    fn enter(&mut self, shard: &ShardReader, number: MinishardNumber, index: ByteRange) -> Result<CurrentMinishard> {
        self.budget.take(shard, number, index)?;
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

/// A shard while it is walked through: its file is read ahead.
pub(crate) struct Pass<'a>(&'a Shard);

impl<'a> Pass<'a> {
    pub(crate) fn new(shard: &'a Shard) -> Pass<'a> {
        shard.reader().begin_pass();
        Pass(shard)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.reader().end_pass();
    }
}

/// The keys of a shard in storage order, with a hold of the shard; see [`Shard::keys`].
pub(crate) struct ShardKeys {
    shard: Shard,
    rows: Rows,
}

impl ShardKeys {
    pub(crate) fn new(shard: Shard) -> ShardKeys {
        shard.reader().begin_pass();
        ShardKeys { shard, rows: Rows::default() }
    }
}

impl Drop for ShardKeys {
    fn drop(&mut self) {
        self.shard.reader().end_pass();
    }
}

impl Iterator for ShardKeys {
    type Item = Result<u64>;

    #[inline]
    fn next(&mut self) -> Option<Result<u64>> {
        let reader = self.shard.reader();
        loop {
            if let Some(row) = self.rows.next_row(reader)
                && let Some(minishard) = self.rows.current
            {
                return Some(reader.check_range(&minishard.stored(row)).map(|()| row.id));
            }
            match self.rows.next_minishard(reader) {
                Ok(Some(_)) => self.rows.prefetch(reader),
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The pairs of a shard in storage order; see [`Shard::iter`].
///
/// A bad minishard or a bad value gives one `Err` with its place, and the walk goes on; it always ends.
pub struct ShardEntries<'a> {
    shard: &'a Shard,
    /// What lies behind the shard index, if the values of the current minishard are given as they lie there.
    behind: Option<&'a [u8]>,
    /// Whether everything so far was compared, as far as the mode asks for it.
    is_verified: bool,
    rows: Rows,
    /// Of the current minishard, if it lies in memory.
    index: RawIndex<'a>,
    _pass: Pass<'a>,
}

impl<'a> ShardEntries<'a> {
    pub(crate) fn new(shard: &'a Shard) -> ShardEntries<'a> {
        ShardEntries {
            shard,
            behind: None,
            is_verified: true,
            rows: Rows { compare: Compare::Values, ..Rows::default() },
            index: RawIndex::default(),
            _pass: Pass::new(shard),
        }
    }

    /// The next key with its value.
    #[inline]
    pub(crate) fn next_pair(&mut self) -> Option<Result<(u64, Value<'a>)>> {
        let stored = match self.next_stored()? {
            Ok(stored) => stored,
            Err(error) => return Some(Err(error)),
        };
        match self.in_place(&stored) {
            Some(value) => Some(Ok((stored.row.id, Value::borrowed_from(value)))),
            None => Some(self.read(&stored).map(|value| (stored.row.id, value))),
        }
    }

    fn read(&mut self, stored: &Stored) -> Result<Value<'a>> {
        self.shard.reader().value(stored).inspect_err(|_| self.is_verified = false)
    }

    #[inline]
    fn in_place(&self, stored: &Stored) -> Option<&'a [u8]> {
        stored.row.value.of(self.behind?)
    }

    #[inline]
    fn next_stored(&mut self) -> Option<Result<Stored>> {
        let row = match self.rows.state.next(self.index) {
            Some(row) => row,
            None => match self.next_elsewhere()? {
                Ok(row) => row,
                Err(error) => return Some(Err(error)),
            },
        };
        Some(Ok(self.rows.current?.stored(row)))
    }

    /// The next row behind those of `index`: of an index that is not in memory, or of the next minishard.
    fn next_elsewhere(&mut self) -> Option<Result<Row>> {
        let reader = self.shard.reader();
        loop {
            if self.rows.decoded.is_some()
                && let Some(row) = self.rows.next_row(reader)
            {
                return Some(Ok(row));
            }
            self.index = RawIndex::default(); // a minishard that cannot be entered must not show the one before
            match self.rows.next_minishard(reader) {
                Ok(Some(minishard)) => {
                    self.index = self.rows.in_place(reader);
                    self.behind = reader.raw_behind().filter(|_| minishard.verified.has_all());
                    if let Some(row) = self.rows.state.next(self.index) {
                        return Some(Ok(row));
                    }
                }
                Ok(None) => {
                    if self.is_verified {
                        reader.note_whole_verified();
                    }
                    return None;
                }
                Err(error) => {
                    self.is_verified = false;
                    return Some(Err(error));
                }
            }
        }
    }
}

impl<'a> Iterator for ShardEntries<'a> {
    type Item = Result<Entry<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Result<Entry<'a>>> {
        let stored = match self.next_stored()? {
            Ok(stored) => stored,
            Err(error) => return Some(Err(error)),
        };
        let in_place = self.in_place(&stored);
        if in_place.is_none() {
            self.is_verified = false; // the caller may never ask for the value
            if let Err(error) = self.shard.reader().check_range(&stored) {
                return Some(Err(error));
            }
        }
        Some(Ok(Entry { shard: self.shard, stored, in_place }))
    }
}

/// A pair met by iteration: the key is known, the value is read when asked for.
///
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    shard: &'a Shard,
    stored: Stored,
    /// The value, if it lies in memory as it is.
    in_place: Option<&'a [u8]>,
}

impl<'a> Entry<'a> {
    /// The key.
    #[inline]
    pub fn key(&self) -> u64 {
        self.stored.row.id
    }

    /// The shard and minishard where it is stored; a misplaced key hashes elsewhere.
    pub fn location(&self) -> Location {
        Location { shard: self.shard.number(), minishard: self.stored.minishard }
    }

    /// The stored length in bytes: of the encoded value.
    #[inline]
    pub fn stored_len(&self) -> u64 {
        let value = self.stored.row.value;
        value.end.wrapping_sub(value.start)
    }

    /// The decoded value, as [`Snapshot::get`](crate::Snapshot::get) gives it.
    #[inline]
    pub fn value(&self) -> Result<Value<'a>> {
        match self.in_place {
            Some(value) => Ok(Value::borrowed_from(value)),
            // a copy, so that an entry whose address nobody takes can stay in registers
            None => self.shard.reader().value(&{ self.stored }),
        }
    }

    /// The stored bytes of the value: as they are, or one gzip member.
    pub fn encoded_value(&self) -> Result<Value<'a>> {
        let encoded = self.shard.reader().stored_value(&self.stored);
        encoded.map(Value::from_bytes).map_err(|error| self.at(error))
    }

    /// The bytes between the value and whatever lies before it: its prefix, with padding if there is any.
    ///
    /// Empty without looking where the data set is known to have none. Cost for data sets of others: the first call in a
    /// shard reads all its indexes.
    pub fn prefix(&self) -> Result<Value<'a>> {
        let prefix = self.shard.reader().whole_prefix(&self.stored);
        prefix.map(Value::from_bytes).map_err(|error| self.at(error))
    }

    /// Where the value is stored.
    pub fn value_location(&self) -> Result<ValueLocation> {
        self.shard.reader().value_location(self.stored.minishard, self.stored.row)
    }

    /// Adds this entry as the place of an error.
    #[cold]
    fn at(&self, error: Error) -> Error {
        self.shard.reader().at(self.stored.minishard, error).at_key(self.stored.row.id)
    }
}

impl fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("key", &self.key()).field("stored_len", &self.stored_len()).finish()
    }
}
