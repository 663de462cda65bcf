//! The usual shard, read as it lies: in memory and raw.
//!
//! This is the read path at its shortest. `None` is for everything that is not usual, whatever is wrong included: then
//! the other path of [`ShardReader`](super::ShardReader) decides, which also knows the errors.

use crate::byte_range::{ByteRange, RelativeRange};
use crate::format::checks::{self, ChecksPlace};
use crate::format::minishard_index::{ROW_LEN, RawIndex, Row, SCAN_LIMIT, SmallIndex};
use crate::format::shard_index::ShardIndexEntry;
use crate::prefetch;
use crate::shard::minishard_lines;
use crate::spec::{Location, MinishardNumber};

/// Cache lines asked for at the beginning of a minishard: its index at 4 to 8 keys, and the first values.
const MINISHARD_LINES: usize = 8;

/// The same where the first line is remembered: the index does not begin with it, and asked for early more of them pay.
const REMEMBERED_LINES: usize = 10;

/// What is found, if it lies in memory and is as usual; the inner `None`: it is not there.
pub(crate) type InMemory<T> = Option<Option<T>>;

/// A shard whose bytes are in memory.
#[derive(Clone, Copy)]
pub(crate) struct ShardInPlace<'a> {
    shard_index: &'a [u8],
    /// Where relative ranges count from.
    behind: &'a [u8],
}

/// A minishard with keys, in such a shard.
#[derive(Clone, Copy)]
pub(crate) struct MinishardInPlace<'a> {
    behind: &'a [u8],
    index: RelativeRange,
}

impl<'a> ShardInPlace<'a> {
    #[inline]
    pub(crate) fn new(file: &'a [u8], shard_index_len: usize) -> Option<ShardInPlace<'a>> {
        let (shard_index, behind) = file.split_at_checked(shard_index_len)?;
        Some(ShardInPlace { shard_index, behind })
    }

    /// What relative ranges are of.
    pub(crate) fn behind(&self) -> &'a [u8] {
        self.behind
    }

    /// Asks for the shard index entry of a minishard.
    #[inline]
    pub(crate) fn prefetch_entry(&self, number: MinishardNumber) {
        if let Some(entry) = ShardIndexEntry::position(number).of(self.shard_index) {
            prefetch::line(entry);
        }
    }

    /// Asks for the page that a minishard probably lies in, before its entry tells: hashed minishards lie nearly evenly.
    /// The walk through the page tables then goes on beside the read of the entry.
    #[inline]
    pub(crate) fn prefetch_page(&self, number: MinishardNumber, minishard_bits: u8) {
        const UNIT: u32 = 16; // of 64 KiB, so that the product fits
        let units = (self.behind.len() as u64 >> UNIT).wrapping_mul(number.0) >> minishard_bits;
        prefetch::line_at(self.behind, usize::try_from(units << UNIT).unwrap_or(0));
    }

    /// Asks for a minishard by where it begins as remembered, to the cache line, before its entry tells. The processor is told
    /// not to keep these lines, so that what it does keep, such as what is remembered, stays in its caches.
    #[inline]
    pub(crate) fn prefetch_at(&self, position: u64) {
        prefetch::lines_once(self.behind, usize::try_from(position).unwrap_or(0), REMEMBERED_LINES);
    }

    /// A minishard by its shard index entry.
    #[inline]
    pub(crate) fn minishard(&self, number: MinishardNumber) -> InMemory<MinishardInPlace<'a>> {
        let entry = ShardIndexEntry::read(ShardIndexEntry::position(number).of(self.shard_index)?)?;
        Some(entry.minishard_index().map(|index| MinishardInPlace { behind: self.behind, index }))
    }
}

impl<'a> MinishardInPlace<'a> {
    /// Asks for the index and the first values behind it.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Some(from_index) = usize::try_from(self.index.start).ok().and_then(|start| self.behind.get(start..)) {
            prefetch::lines_from(from_index, MINISHARD_LINES);
        }
    }

    /// Where its index lies.
    pub(crate) fn index(&self) -> RelativeRange {
        self.index
    }

    /// Whether its index begins in this cache line, if any.
    #[inline]
    pub(crate) fn begins_in(&self, line: Option<u64>) -> bool {
        line == Some(minishard_lines::line_of(self.index.start))
    }

    /// Asks for the index alone.
    #[inline]
    pub(crate) fn prefetch_index(&self) {
        if let Some(index) = self.index.of(self.behind) {
            prefetch::lines(index, MINISHARD_LINES);
        }
    }

    /// The row of a key.
    #[inline(always)]
    pub(crate) fn find(&self, key: u64) -> InMemory<Row> {
        let Some(index) = SmallIndex::view(self.behind, self.index) else { return scan(self.behind, self.index, key) };
        match index.find(key) {
            Some(row) => Some(Some(row)),
            None if index.is_plain() => Some(None),
            None => scan(self.behind, self.index, key),
        }
    }

    /// The value of a key.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> InMemory<&'a [u8]> {
        match self.find(key)? {
            Some(row) => Some(Some(row.value.of(self.behind)?)),
            None => Some(None),
        }
    }

    /// The value of a key, if the checks of its index and of itself say that both are as they were written.
    #[inline]
    pub(crate) fn get_checked(&self, key: u64, location: Location) -> InMemory<&'a [u8]> {
        let index = self.index.of(self.behind)?;
        let place = ChecksPlace { index_end: self.index.end, rows: index.len() as u64 / ROW_LEN };
        self.is_stated(place.of_index()?, checks::of_index(location, index))?;
        let Some(row) = self.find(key)? else { return Some(None) };
        let value = row.value.of(self.behind)?;
        self.is_stated(place.of_value(row.number)?, checks::of_value(key, value))?;
        Some(Some(value))
    }

    #[inline]
    fn is_stated(&self, place: ByteRange, check: u32) -> Option<()> {
        (place.of(self.behind)? == check.to_le_bytes()).then_some(())
    }
}

/// The value of a key in its minishard, which may have no keys.
#[inline]
pub(crate) fn value(minishard: Option<MinishardInPlace<'_>>, key: u64) -> InMemory<&[u8]> {
    match minishard {
        Some(minishard) => minishard.get(key),
        None => Some(None),
    }
}

/// The row of a key in an index of the bytes behind the shard index, row by row.
#[inline(never)]
fn scan(behind: &[u8], index: RelativeRange, key: u64) -> InMemory<Row> {
    let index = RawIndex::view(index.of(behind)?).ok().filter(|index| index.len() <= SCAN_LIMIT)?;
    match index.find(key) {
        Some(row) => Some(Some(row)),
        None => index.is_possible().then_some(None),
    }
}
