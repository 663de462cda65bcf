//! The short path: a raw shard whose bytes are in memory, mapped or loaded.
//!
//! ```text
//! key -> minishard        its place, by the minishard table in memory
//!     -> row              in the minishard index
//!     -> value            behind it, borrowed
//! ```
//!
//! One wait for memory: index and values lie side by side, and are prefetched as soon as their place is known. Whatever is not
//! usual, also whatever is wrong, is [`Probe::Unusual`]: the general path ([`lookup`](super::lookup)) decides.

use crate::byte_range::RelativeRange;
use crate::format::checks::ChecksPlace;
use crate::format::minishard_index::{ROW_LEN, RawIndex, Row, SCAN_LIMIT, SmallIndex};
use crate::ids::MinishardNumber;
use crate::prefetch;
use crate::read::shard::minishards::{KnownMinishard, Line, Verified};
use crate::read::shard::probe::Probe;
use crate::read::shard::reader::ShardReader;

/// Cache lines prefetched at the beginning of a minishard: the index of 4 to 8 keys and the first values.
const MINISHARD_LINES: usize = 10;

/// Cache lines prefetched for each minishard of a group.
const INDEX_LINES: usize = 5;

/// A minishard in memory whose index was found and, as far as the mode asks for it, verified.
#[derive(Clone, Copy)]
pub(crate) struct MappedMinishard<'a> {
    shard: &'a ShardReader,
    /// What relative ranges are of.
    behind: &'a [u8],
    /// Where the index begins.
    start: u64,
    rows: u64,
    verified: Verified,
}

impl ShardReader {
    /// The value of a key, in the minishard that it hashes to.
    #[inline]
    pub(crate) fn probe(&self, number: MinishardNumber, key: u64) -> Probe<&[u8]> {
        self.mapped_minishard(number, prefetch_all).and_then(|minishard| minishard.value(key))
    }

    /// Whether a key is there; its value is not looked at.
    #[inline]
    pub(crate) fn probe_key(&self, number: MinishardNumber, key: u64) -> Probe<()> {
        self.mapped_minishard(number, prefetch_all).and_then(|minishard| minishard.key(key))
    }

    /// Prefetches what the minishard table says of a minishard.
    #[inline]
    pub(crate) fn prefetch_known(&self, number: MinishardNumber) {
        self.minishards.prefetch(number);
    }

    /// A minishard, by the minishard table. `prefetch` is told early which cache line it begins in.
    #[inline]
    pub(crate) fn mapped_minishard(
        &self,
        number: MinishardNumber,
        prefetch: impl FnOnce(&[u8], Line),
    ) -> Probe<MappedMinishard<'_>> {
        let (Some(behind), Some(line)) = (self.raw_behind(), self.minishards.line(number)) else {
            return Probe::Unusual;
        };
        prefetch(behind, line);
        let Some(KnownMinishard { start, rows, verified }) = self.minishards.details(number, line) else {
            return Probe::Unusual;
        };
        match rows {
            0 => Probe::Absent,
            rows => Probe::Found(MappedMinishard { shard: self, behind, start, rows, verified }),
        }
    }
}

/// Prefetches a minishard, index and first values, past the larger caches (`prefetchnta`), so that the minishard table stays in
/// them.
#[inline]
fn prefetch_all(behind: &[u8], line: Line) {
    prefetch::lines_once(behind, usize::try_from(line.start()).unwrap_or(0), MINISHARD_LINES);
}

/// Prefetches the index of a minishard, one of a group.
#[inline]
pub(crate) fn prefetch_index(behind: &[u8], line: Line) {
    prefetch::lines_at(behind, usize::try_from(line.start()).unwrap_or(0), INDEX_LINES);
}

impl<'a> MappedMinishard<'a> {
    /// Whether a key is there.
    #[inline]
    pub(crate) fn key(&self, key: u64) -> Probe<()> {
        match self.verified.has_index() {
            true => self.row(key).and_then(|_| Probe::Found(())),
            false => Probe::Unusual,
        }
    }

    /// The value of a key.
    #[inline]
    pub(crate) fn value(&self, key: u64) -> Probe<&'a [u8]> {
        if !self.verified.has_index() {
            return Probe::Unusual;
        }
        self.row(key).and_then(|row| match row.value.of(self.behind) {
            Some(value) if self.verified.has_all() => Probe::Found(value),
            Some(value) => self.compared(row, value),
            None => Probe::Unusual,
        })
    }

    /// A value of a minishard that is too large to have been compared as a whole.
    #[inline(never)]
    fn compared(&self, row: Row, value: &'a [u8]) -> Probe<&'a [u8]> {
        let checks = ChecksPlace { index_end: self.index().end, rows: self.rows };
        match self.shard.is_value_as_written(self.behind, row, checks, value) {
            Some(()) => Probe::Found(value),
            None => Probe::Unusual,
        }
    }

    /// The row of a key.
    #[inline(always)]
    fn row(&self, key: u64) -> Probe<Row> {
        let Some(index) = SmallIndex::view(self.behind, self.start, self.rows) else { return self.scan(key) };
        match index.find(key) {
            Some(row) => Probe::Found(row),
            None if index.is_plain() => Probe::Absent,
            None => self.scan(key),
        }
    }

    /// The row of a key, row by row.
    #[inline(never)]
    fn scan(&self, key: u64) -> Probe<Row> {
        let bytes = self.index().of(self.behind).unwrap_or_default();
        let Some(index) = RawIndex::view(bytes).ok().filter(|index| (1..=SCAN_LIMIT).contains(&index.len())) else {
            return Probe::Unusual;
        };
        match index.find(key) {
            Some(row) => Probe::Found(row),
            None if index.is_possible() => Probe::Absent,
            None => Probe::Unusual,
        }
    }

    fn index(&self) -> RelativeRange {
        RelativeRange { start: self.start, end: self.start.wrapping_add(self.rows.wrapping_mul(ROW_LEN)) }
    }
}
