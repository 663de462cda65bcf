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
use crate::format::minishard_index::{IndexView, Row, SCAN_LIMIT, SmallIndex};
use crate::ids::MinishardNumber;
use crate::prefetch;
use crate::read::shard::minishard_map::KnownMinishard;
use crate::read::shard::reader::{ShardReader, to_usize};
use crate::read::shard::value::Value;

/// The number of cache lines prefetched per minishard in a single lookup: the index of 4 to 8 keys and the first values.
const MINISHARD_LINES: usize = 10;

/// The same where minishards are short.
const SHORT_LINES: usize = 5;

/// The number of cache lines prefetched per minishard in a batch: the index of 8 keys.
const INDEX_LINES: usize = 4;

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
    known: KnownMinishard,
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
    #[inline(always)]
    pub(crate) fn probe(&self, number: MinishardNumber, key: u64) -> Probe<&[u8]> {
        self.prefetched_minishard(number).and_then(|minishard| minishard.value(key))
    }

    /// Returns whether a key exists in the minishard that it hashes to. Does not access its value.
    #[inline(always)]
    pub(crate) fn probe_key(&self, number: MinishardNumber, key: u64) -> Probe<()> {
        self.prefetched_minishard(number).and_then(|minishard| minishard.key(key))
    }

    /// Prefetches the entry of a minishard in the minishard map.
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

    /// Locates a minishard by the minishard map, and prefetches it before the details are read.
    #[inline(always)]
    fn prefetched_minishard(&self, number: MinishardNumber) -> Probe<FastMinishard<'_>> {
        self.fast_minishard(number, |body, start| {
            prefetch::lines_once(body, start, SHORT_LINES);
            if !self.minishard_map.is_short() {
                let rest = start.wrapping_add(SHORT_LINES * prefetch::LINE);
                prefetch::lines_once(body, rest, MINISHARD_LINES - SHORT_LINES);
            }
        })
    }

    /// Locates a minishard by the minishard map. Calls `prefetch` with its body and the offset of its first cache line
    /// before the details are read.
    #[inline(always)]
    pub(crate) fn fast_minishard(
        &self,
        number: MinishardNumber,
        prefetch: impl FnOnce(&[u8], usize),
    ) -> Probe<FastMinishard<'_>> {
        let Some(body) = self.raw_body() else { return Probe::Undecided };
        let Some(line) = self.minishard_map.line(number) else { return Probe::Undecided };
        prefetch(body, to_usize(line.start()));
        match self.minishard_map.details(number, line) {
            // needs no trusted index: what states that there are no keys was verified when the map was filled, either a
            // block of the minishard table or, as far as the mode requires, the shard index
            Some(KnownMinishard { rows: 0, .. }) => Probe::Absent,
            Some(known) => Probe::Found(FastMinishard { shard: self, body, known }),
            None => Probe::Undecided,
        }
    }
}

/// Prefetches the index of a minishard in a batch.
#[inline]
pub(crate) fn prefetch_index(body: &[u8], start: usize) {
    prefetch::lines_at(body, start, INDEX_LINES);
}

impl<'a> FastMinishard<'a> {
    /// Returns whether a key exists. `Undecided` if the index is not trusted.
    #[inline(always)]
    pub(crate) fn key(&self, key: u64) -> Probe<()> {
        if !self.known.trusted.has_index() {
            return Probe::Undecided;
        }
        let found = self.small_index().and_then(|index| match index.find(key) {
            Some(_) => Some(Probe::Found(())),
            None => index.miss_proves_absence().then_some(Probe::Absent),
        });
        found.unwrap_or_else(|| scan(self.body, self.known, key).and_then(|_| Probe::Found(())))
    }

    /// Returns the value of a key. `Undecided` if the index is not trusted, or the value is neither trusted nor
    /// verified.
    #[inline(always)]
    pub(crate) fn value(&self, key: u64) -> Probe<&'a [u8]> {
        if !self.known.trusted.has_index() {
            return Probe::Undecided;
        }
        let Some(index) = self.small_index() else { return scan_value(self.shard, self.body, self.known, key) };
        match index.find(key) {
            Some(row) => match row.value.of(self.body) {
                Some(value) if self.known.trusted.has_all() => Probe::Found(value),
                Some(_) => verified_value(self.shard, self.body, self.known, key, row.number, row.value),
                None => Probe::Undecided,
            },
            None if index.miss_proves_absence() => Probe::Absent,
            None => scan_value(self.shard, self.body, self.known, key),
        }
    }

    /// Views the index, if it is small.
    #[inline(always)]
    fn small_index(&self) -> Option<SmallIndex<'a>> {
        SmallIndex::view(self.body, self.known.start, self.known.rows)
    }
}

// The functions below take parts of a `FastMinishard` or of a `Row`, so that these stay in registers on the way of most
// lookups, which calls none of them.

/// Returns a value if it is marked as verified or matches its checksum now; else `Undecided`.
#[inline(never)]
fn verified_value<'a>(
    shard: &ShardReader,
    body: &'a [u8],
    known: KnownMinishard,
    id: u64,
    number: usize,
    value: RelativeRange,
) -> Probe<&'a [u8]> {
    // the index is relative to the body, so the ranges of the checks are too
    let checks = ChecksPlace { index_end: known.index().end, rows: u64::from(known.rows) };
    match value.of(body) {
        Some(bytes) if shard.try_verify_value(body, Row { number, id, value }, checks, bytes) => Probe::Found(bytes),
        _ => Probe::Undecided,
    }
}

/// Returns the value of a key in a minishard whose index is not small, or does not prove that the key is absent.
#[inline(never)]
fn scan_value<'a>(shard: &ShardReader, body: &'a [u8], known: KnownMinishard, key: u64) -> Probe<&'a [u8]> {
    scan(body, known, key).and_then(|row| match row.value.of(body) {
        Some(value) if known.trusted.has_all() => Probe::Found(value),
        Some(_) => verified_value(shard, body, known, key, row.number, row.value),
        None => Probe::Undecided,
    })
}

/// Finds the row of a key by a linear scan. `Undecided` if there are more than `SCAN_LIMIT` keys, if the index is not
/// within the body (its view is then empty), or if a miss does not prove absence.
#[inline(never)]
fn scan(body: &[u8], known: KnownMinishard, key: u64) -> Probe<Row> {
    let bytes = known.index().of(body).unwrap_or_default();
    let Some(index) = IndexView::view(bytes).ok().filter(|index| (1..=SCAN_LIMIT).contains(&index.len())) else {
        return Probe::Undecided;
    };
    match index.find(key) {
        Some(row) => Probe::Found(row),
        None if index.miss_proves_absence() => Probe::Absent,
        None => Probe::Undecided,
    }
}
