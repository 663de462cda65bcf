//! The fast path of lookups: for raw shards in memory, mapped or loaded.
//!
//! ```text
//! key -> minishard        located by the minishard table in memory
//!     -> row              found in the minishard index
//!     -> value            borrowed from the bytes after the index
//! ```
//!
//! A lookup waits once for the bytes of the file: index, checks and first values are within 10 cache lines, which are
//! prefetched together as soon as their position is known. The result is [`Probe::Undecided`] in every other case: the
//! first use of a minishard, more than 64 keys, every error. Then the general path ([`lookup`](super::lookup)) decides.

use crate::byte_range::RelativeRange;
use crate::format::checks::ChecksPlace;
use crate::format::minishard_index::{IndexView, ROW_LEN, Row, SCAN_LIMIT, SmallIndex};
use crate::ids::MinishardNumber;
use crate::prefetch;
use crate::read::shard::minishards::{KnownMinishard, Line, Verified};
use crate::read::shard::probe::Probe;
use crate::read::shard::reader::ShardReader;

/// Cache lines prefetched per minishard in a single lookup: the index of 4 to 8 keys and the first values.
const MINISHARD_LINES: usize = 10;

/// Cache lines prefetched per minishard in a batch: the index.
const INDEX_LINES: usize = 5;

/// A minishard in memory, with its position, row count and verified parts. Has at least one row.
#[derive(Clone, Copy)]
pub(crate) struct MappedMinishard<'a> {
    shard: &'a ShardReader,
    /// The bytes after the shard index, to which relative ranges refer.
    body: &'a [u8],
    /// The offset of the index in `body`.
    start: u64,
    rows: u64,
    verified: Verified,
}

impl ShardReader {
    /// Returns the value of a key from the minishard that it hashes to.
    #[inline]
    pub(crate) fn probe(&self, number: MinishardNumber, key: u64) -> Probe<&[u8]> {
        self.mapped_minishard(number, prefetch_all).and_then(|minishard| minishard.value(key))
    }

    /// Returns whether a key exists in the minishard that it hashes to. Does not access its value.
    #[inline]
    pub(crate) fn probe_key(&self, number: MinishardNumber, key: u64) -> Probe<()> {
        self.mapped_minishard(number, prefetch_all).and_then(|minishard| minishard.key(key))
    }

    /// Prefetches the details of a minishard in the minishard table.
    #[inline]
    pub(crate) fn prefetch_known(&self, number: MinishardNumber) {
        self.minishards.prefetch(number);
    }

    /// Locates a minishard by the minishard table. Calls `prefetch` with its first cache line before the details are
    /// read.
    #[inline]
    pub(crate) fn mapped_minishard(
        &self,
        number: MinishardNumber,
        prefetch: impl FnOnce(&[u8], Line),
    ) -> Probe<MappedMinishard<'_>> {
        let (Some(body), Some(line)) = (self.raw_body(), self.minishards.line(number)) else {
            return Probe::Undecided;
        };
        prefetch(body, line);
        let Some(KnownMinishard { start, rows, verified }) = self.minishards.details(number, line) else {
            return Probe::Undecided;
        };
        match rows {
            0 => Probe::Absent,
            rows => Probe::Found(MappedMinishard { shard: self, body, start, rows, verified }),
        }
    }
}

/// Prefetches the index and the first values of a minishard with `prefetchnta`, so that they do not evict the minishard
/// table from the larger caches.
#[inline]
fn prefetch_all(body: &[u8], line: Line) {
    prefetch::lines_once(body, usize::try_from(line.start()).unwrap_or(0), MINISHARD_LINES);
}

/// Prefetches the index of a minishard of a batch.
#[inline]
pub(crate) fn prefetch_index(body: &[u8], line: Line) {
    prefetch::lines_at(body, usize::try_from(line.start()).unwrap_or(0), INDEX_LINES);
}

impl<'a> MappedMinishard<'a> {
    /// Returns whether a key exists. `Undecided` if the index is not verified.
    #[inline]
    pub(crate) fn key(&self, key: u64) -> Probe<()> {
        match self.verified.has_index() {
            true => self.row(key).and_then(|_| Probe::Found(())),
            false => Probe::Undecided,
        }
    }

    /// Returns the value of a key. `Undecided` if index or value are not verified.
    #[inline]
    pub(crate) fn value(&self, key: u64) -> Probe<&'a [u8]> {
        if !self.verified.has_index() {
            return Probe::Undecided;
        }
        self.row(key).and_then(|row| match row.value.of(self.body) {
            Some(value) if self.verified.has_all() => Probe::Found(value),
            Some(value) => self.verified_value(row, value),
            None => Probe::Undecided,
        })
    }

    /// Returns a value of a minishard whose values are not all verified, if this value is.
    #[inline(never)]
    fn verified_value(&self, row: Row, value: &'a [u8]) -> Probe<&'a [u8]> {
        let checks = ChecksPlace { index_end: self.index().end, rows: self.rows }; // relative to the body, like its ranges
        match self.shard.try_verify_value(self.body, row, checks, value) {
            true => Probe::Found(value),
            false => Probe::Undecided,
        }
    }

    /// Finds the row of a key.
    #[inline(always)]
    fn row(&self, key: u64) -> Probe<Row> {
        let Some(index) = SmallIndex::view(self.body, self.start, self.rows) else { return self.scan(key) };
        match index.find(key) {
            Some(row) => Probe::Found(row),
            None if index.is_plain() => Probe::Absent,
            None => self.scan(key),
        }
    }

    /// Finds the row of a key by a linear scan. `Undecided` with more than `SCAN_LIMIT` keys, or if the index is not within
    /// the body, which gives an empty one.
    #[inline(never)]
    fn scan(&self, key: u64) -> Probe<Row> {
        let bytes = self.index().of(self.body).unwrap_or_default();
        let Some(index) = IndexView::view(bytes).ok().filter(|index| (1..=SCAN_LIMIT).contains(&index.len())) else {
            return Probe::Undecided;
        };
        match index.find(key) {
            Some(row) => Probe::Found(row),
            None if index.is_possible() => Probe::Absent,
            None => Probe::Undecided,
        }
    }

    fn index(&self) -> RelativeRange {
        RelativeRange { start: self.start, end: self.start.wrapping_add(self.rows.wrapping_mul(ROW_LEN)) }
    }
}
