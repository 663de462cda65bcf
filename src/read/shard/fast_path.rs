//! The fast path of lookups: for raw shards that are mapped or loaded.
//!
//! ```text
//! key -> minishard        located by the minishard map
//!     -> row              found in the minishard index
//!     -> value            borrowed from the bytes after the index
//! ```
//!
//! A lookup waits once for the bytes of the file: index, checks and first values are usually within 10 cache lines,
//! which are prefetched together as soon as their position is known.
//!
//! One read ([`one_read`](super::one_read)) or the general path ([`lookup`](super::lookup)) takes over if the result is
//! [`Probe::Undecided`]:
//!
//! - The shard is not raw, is read by positioned reads, or is an obsolete pair of files.
//! - The minishard is not in the minishard map, or its block of the map is not filled yet.
//! - The index is not trusted: before its first use and, with `VerifyReads::Always`, in every lookup.
//! - The minishard has more than 64 keys.
//! - The key is not found, and the index has an impossible range, so that the miss does not prove absence.
//! - The value is neither trusted nor marked as verified, and it is longer than 512 bytes or does not match its check.
//! - The index or the value is not within the file.

use crate::byte_range::RelativeRange;
use crate::error::Result;
use crate::format::checks::ChecksPlace;
use crate::format::minishard_index::{IndexView, ROW_LEN, Row, SCAN_LIMIT, SmallIndex};
use crate::ids::MinishardNumber;
use crate::prefetch;
use crate::read::shard::minishard_map::{KnownMinishard, Line, Trusted};
use crate::read::shard::reader::{ShardReader, to_usize};
use crate::read::shard::value::Value;

/// The number of cache lines prefetched per minishard in a single lookup: the index of 4 to 8 keys and the first values.
const MINISHARD_LINES: usize = 10;

/// The number of cache lines prefetched per minishard in a batch: the index.
const INDEX_LINES: usize = 5;

/// The result of a step of the fast path, which only reads memory and returns no errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe<T> {
    /// The item exists.
    Found(T),
    /// The item does not exist. This is verified as far as the verification mode requires.
    Absent,
    /// The fast path cannot decide. The general path reads, decodes and verifies, or returns the error.
    Undecided,
}

impl<T> Probe<T> {
    /// Calls `next` with the item, if it exists.
    #[inline]
    pub(crate) fn and_then<U>(self, next: impl FnOnce(T) -> Probe<U>) -> Probe<U> {
        match self {
            Probe::Found(found) => next(found),
            Probe::Absent => Probe::Absent,
            Probe::Undecided => Probe::Undecided,
        }
    }
}

/// A minishard that the fast path may search: its position, row count and trusted parts. Has at least one row.
#[derive(Clone, Copy)]
pub(crate) struct FastMinishard<'a> {
    shard: &'a ShardReader,
    /// The bytes after the shard index, to which relative ranges refer.
    body: &'a [u8],
    /// The offset of the index in `body`.
    start: u64,
    rows: u64,
    trusted: Trusted,
}

impl ShardReader {
    /// Returns the value of a key from the minishard that it hashes to: by the fast path, else by the general path.
    #[inline]
    pub(crate) fn get(&self, number: MinishardNumber, key: u64) -> Result<Option<Value<'_>>> {
        match self.probe(number, key) {
            Probe::Found(value) => Ok(Some(Value::borrowed_from(value))),
            Probe::Absent => Ok(None),
            Probe::Undecided => self.lookup(number, key),
        }
    }

    /// Like [`get`](Self::get), but appends the value to a buffer. Returns whether the key exists.
    #[inline]
    pub(crate) fn get_into(&self, number: MinishardNumber, key: u64, buffer: &mut Vec<u8>) -> Result<bool> {
        match self.probe(number, key) {
            Probe::Found(value) => {
                buffer.extend_from_slice(value);
                Ok(true)
            }
            Probe::Absent => Ok(false),
            Probe::Undecided => self.lookup_into(number, key, buffer),
        }
    }

    /// Returns whether a key exists in the minishard that it hashes to.
    #[inline]
    pub(crate) fn contains(&self, number: MinishardNumber, key: u64) -> Result<bool> {
        match self.probe_key(number, key) {
            Probe::Found(()) => Ok(true),
            Probe::Absent => Ok(false),
            Probe::Undecided => Ok(self.find(number, key)?.is_some()),
        }
    }

    /// Returns the value of a key from the minishard that it hashes to.
    #[inline]
    pub(crate) fn probe(&self, number: MinishardNumber, key: u64) -> Probe<&[u8]> {
        self.fast_minishard(number, prefetch_all).and_then(|minishard| minishard.value(key))
    }

    /// Returns whether a key exists in the minishard that it hashes to. Does not access its value.
    #[inline]
    pub(crate) fn probe_key(&self, number: MinishardNumber, key: u64) -> Probe<()> {
        self.fast_minishard(number, prefetch_all).and_then(|minishard| minishard.key(key))
    }

    /// Prefetches the details of a minishard in the minishard map.
    #[inline]
    pub(crate) fn prefetch_known(&self, number: MinishardNumber) {
        self.minishard_map.prefetch(number);
    }

    /// Returns the bytes after the shard index of a raw shard that is mapped or loaded; `None` if lookups may not take
    /// the fast path.
    #[inline]
    pub(crate) fn raw_body(&self) -> Option<&[u8]> {
        if self.has_fast_path { self.files.main_file.mapped_or_loaded()?.get(to_usize(self.base)..) } else { None }
    }

    /// Locates a minishard by the minishard map. Calls `prefetch` with its first cache line before the details are
    /// read.
    #[inline]
    pub(crate) fn fast_minishard(
        &self,
        number: MinishardNumber,
        prefetch: impl FnOnce(&[u8], Line),
    ) -> Probe<FastMinishard<'_>> {
        let (Some(body), Some(line)) = (self.raw_body(), self.minishard_map.line(number)) else {
            return Probe::Undecided;
        };
        prefetch(body, line);
        let Some(KnownMinishard { start, rows, trusted }) = self.minishard_map.details(number, line) else {
            return Probe::Undecided;
        };
        match rows {
            // needs no trusted index: what states that there are no keys was verified when the map was filled, either
            // a block of the minishard table or, as far as the mode requires, the shard index
            0 => Probe::Absent,
            rows => Probe::Found(FastMinishard { shard: self, body, start, rows, trusted }),
        }
    }
}

/// Prefetches the index and the first values of a minishard with `prefetchnta`, so that they do not evict the minishard
/// map from the larger caches.
#[inline]
fn prefetch_all(body: &[u8], line: Line) {
    prefetch::lines_once(body, usize::try_from(line.start()).unwrap_or(0), MINISHARD_LINES);
}

/// Prefetches the index of a minishard in a batch.
#[inline]
pub(crate) fn prefetch_index(body: &[u8], line: Line) {
    prefetch::lines_at(body, usize::try_from(line.start()).unwrap_or(0), INDEX_LINES);
}

impl<'a> FastMinishard<'a> {
    /// Returns whether a key exists. `Undecided` if the index is not trusted.
    #[inline]
    pub(crate) fn key(&self, key: u64) -> Probe<()> {
        if self.trusted.has_index() { self.row(key).and_then(|_| Probe::Found(())) } else { Probe::Undecided }
    }

    /// Returns the value of a key. `Undecided` if the index is not trusted, or the value is neither trusted nor
    /// verified.
    #[inline]
    pub(crate) fn value(&self, key: u64) -> Probe<&'a [u8]> {
        if !self.trusted.has_index() {
            return Probe::Undecided;
        }
        self.row(key).and_then(|row| match row.value.of(self.body) {
            Some(value) if self.trusted.has_all() => Probe::Found(value),
            Some(value) => self.verified_value(row, value),
            None => Probe::Undecided,
        })
    }

    /// Returns the value if it is marked as verified or matches its checksum now; else `Undecided`.
    #[inline(never)]
    fn verified_value(&self, row: Row, value: &'a [u8]) -> Probe<&'a [u8]> {
        // the index is relative to the body, so the ranges of the checks are too
        let checks = ChecksPlace { index_end: self.index().end, rows: self.rows };
        if self.shard.try_verify_value(self.body, row, checks, value) { Probe::Found(value) } else { Probe::Undecided }
    }

    /// Finds the row of a key.
    #[inline(always)]
    fn row(&self, key: u64) -> Probe<Row> {
        let Some(index) = SmallIndex::view(self.body, self.start, self.rows) else { return self.scan(key) };
        match index.find(key) {
            Some(row) => Probe::Found(row),
            None if index.miss_proves_absence() => Probe::Absent,
            None => self.scan(key),
        }
    }

    /// Finds the row of a key by a linear scan. `Undecided` if there are more than `SCAN_LIMIT` keys, if the index is not
    /// within the body (its view is then empty), or if a miss does not prove absence.
    #[inline(never)]
    fn scan(&self, key: u64) -> Probe<Row> {
        let bytes = self.index().of(self.body).unwrap_or_default();
        let Some(index) = IndexView::view(bytes).ok().filter(|index| (1..=SCAN_LIMIT).contains(&index.len())) else {
            return Probe::Undecided;
        };
        match index.find(key) {
            Some(row) => Probe::Found(row),
            None if index.miss_proves_absence() => Probe::Absent,
            None => Probe::Undecided,
        }
    }

    fn index(&self) -> RelativeRange {
        RelativeRange { start: self.start, end: self.start.wrapping_add(self.rows.wrapping_mul(ROW_LEN)) }
    }
}
