//! Lookups by one positioned read: in a native shard, the index, the checks and the values of a minishard are adjacent.
//!
//! ```text
//! minishard -> span     from its index to that of the next minishard with keys: from the minishard map
//!           -> bytes    one read, into a buffer that the thread keeps
//!           -> value    found in the index; both are verified as the mode requires
//! ```
//!
//! Nothing is cached. The general path ([`lookup`](super::lookup)) takes over if the result is [`Probe::Undecided`]:
//!
//! - The shard is foreign, mapped or loaded, its indexes are gzip, or the minishard is not in the minishard map.
//! - The span is longer than [`MOST_BYTES`], or too many minishards without keys follow.
//! - The read fails, the bytes do not match their checks, or the value is not within the span or exceeds the cap: the
//!   general path reports it.

use std::cell::RefCell;

use crate::byte_range::ByteRange;
use crate::bytes::Storage;
use crate::format::checks::{self, ChecksPlace};
use crate::format::minishard::MinishardIndex;
use crate::ids::{Location, MinishardNumber, minishard_number};
use crate::read::shard::fast_path::Probe;
use crate::read::shard::reader::{ShardReader, to_usize};
use crate::read::shard::stored_value::FoundKey;

/// Longer spans are read in parts: the index with its checks, and then the value.
const MOST_BYTES: u64 = 8 << 10;

/// The most bytes that [`read_span`](ShardReader::read_span) reads.
pub(crate) const MOST_AT_ONCE: u64 = 64 << 10;

/// The search for the next minishard with keys looks at this many.
const MOST_EMPTY: u64 = 64;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A minishard with keys whose index, checks and values one read returns.
#[derive(Clone, Copy)]
pub(crate) struct ShortMinishard {
    index: ByteRange,
    /// The start of the next minishard with keys, or the end of the file.
    end: u64,
}

/// Bytes of a file that were read, from offset `start` on.
#[derive(Clone, Copy)]
pub(crate) struct ReadBytes<'a> {
    pub(super) start: u64,
    pub(super) bytes: &'a [u8],
}

impl ShardReader {
    /// Passes the stored bytes of a value to `take`, verified as the mode requires.
    #[inline]
    pub(super) fn read_at_once<T>(&self, number: MinishardNumber, key: u64, take: impl FnOnce(&[u8]) -> T) -> Probe<T> {
        self.short_minishard(number).and_then(|minishard| {
            self.read_span(minishard.span(), |read| self.value_from(number, key, minishard, read, take))
        })
    }

    /// Finds the row of a key. Reads the index and the checks.
    pub(super) fn find_at_once(&self, number: MinishardNumber, key: u64) -> Probe<FoundKey> {
        self.short_minishard(number).and_then(|ShortMinishard { index, end }| {
            let range = ByteRange { start: index.start, end: end.min(index.end + self.checks_len(index)) };
            self.read_span(range, |read| self.search(number, key, read, index))
        })
    }

    /// Returns a minishard that one read returns; `None` also for a minishard without keys.
    pub(crate) fn short(&self, number: MinishardNumber) -> Option<ShortMinishard> {
        match self.short_minishard(number) {
            Probe::Found(minishard) => Some(minishard),
            Probe::Absent | Probe::Undecided => None,
        }
    }

    /// Reads at most `MOST_AT_ONCE` bytes of the file, and passes them to `search`. `Undecided` if that fails.
    pub(crate) fn read_span<T>(&self, range: ByteRange, search: impl FnOnce(ReadBytes<'_>) -> Probe<T>) -> Probe<T> {
        let Storage::File(file) = self.files.data() else { return Probe::Undecided };
        let read = |buffer: &RefCell<Vec<u8>>| {
            let mut buffer = buffer.try_borrow_mut().ok()?;
            let room = to_usize(range.len().next_multiple_of(MOST_BYTES));
            if let Some(more) = room.checked_sub(buffer.len()).filter(|more| *more > 0) {
                buffer.try_reserve_exact(more).ok()?;
                buffer.resize(room, 0);
            }
            let bytes = buffer.get_mut(..to_usize(range.len()))?;
            file.read_into(bytes, range.start).ok()?;
            Some(search(ReadBytes { start: range.start, bytes }))
        };
        BUFFER.try_with(read).ok().flatten().unwrap_or(Probe::Undecided) // an error while the thread ends
    }

    /// `Absent` for a minishard without keys, and `Undecided` for one that one read does not return.
    fn short_minishard(&self, number: MinishardNumber) -> Probe<ShortMinishard> {
        let (Storage::File(file), Some(_), false) = (self.files.data(), self.layout, self.files.is_pair()) else {
            return Probe::Undecided;
        };
        let Some(known) = self.known_minishard(number) else { return Probe::Undecided };
        if known.rows == 0 {
            return Probe::Absent;
        }
        let (index, end) = (known.index().resolve(self.base, file.len()), self.end_of_minishard(number));
        match (index, end) {
            (Some(index), Some(end)) if (index.end..=index.start + MOST_BYTES).contains(&end) => {
                Probe::Found(ShortMinishard { index, end })
            }
            _ => Probe::Undecided,
        }
    }

    /// Returns where the next minishard with keys begins, or the end of the file; `None` if that is not known.
    fn end_of_minishard(&self, number: MinishardNumber) -> Option<u64> {
        let last = self.spec.minishards() - 1;
        for next in number.get() + 1..=last.min(number.get() + MOST_EMPTY) {
            let next = self.known_minishard(minishard_number(next))?;
            if next.rows > 0 {
                return self.base.checked_add(next.start);
            }
        }
        (last <= number.get() + MOST_EMPTY).then_some(self.files.data_len())
    }

    /// Finds a key in a minishard that was read, and passes its stored value to `take`, verified as the mode requires.
    pub(crate) fn value_from<T>(
        &self,
        number: MinishardNumber,
        key: u64,
        minishard: ShortMinishard,
        read: ReadBytes<'_>,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Probe<T> {
        self.search(number, key, read, minishard.index).and_then(|found| match self.value_in(read, &found) {
            Some(value) => Probe::Found(take(value)),
            None => Probe::Undecided,
        })
    }

    /// Finds the row of a key in a raw index that was read.
    fn search(&self, number: MinishardNumber, key: u64, read: ReadBytes<'_>, index: ByteRange) -> Probe<FoundKey> {
        let Some(stored) = read.of(index).and_then(|bytes| MinishardIndex::of_decoded(bytes, None, index).ok()) else {
            return Probe::Undecided;
        };
        if index.len() > self.options.max_index_bytes || !self.has_intact_index(number, &stored, read) {
            return Probe::Undecided;
        }
        let rows = stored.view_in_place();
        match rows.find(key) {
            Some(row) => {
                let checks = stored.checks();
                let value_check = read.value_check(checks, row.number);
                Probe::Found(FoundKey { minishard: number, row, checks, value_check })
            }
            None if rows.miss_proves_absence() => Probe::Absent,
            None => Probe::Undecided,
        }
    }

    /// Whether an index needs no verification, or was read with its check and matches it.
    pub(super) fn has_intact_index(
        &self,
        number: MinishardNumber,
        index: &MinishardIndex<&[u8]>,
        read: ReadBytes<'_>,
    ) -> bool {
        let location = Location { shard: self.number, minishard: number };
        let stated =
            || read.of(index.checks().place_of_index()?)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        !self.verifies() || stated() == Some(index.compute_check(location))
    }

    /// Returns the stored bytes of a value that was read with its check, verified as the mode requires.
    fn value_in<'a>(&self, read: ReadBytes<'a>, found: &FoundKey) -> Option<&'a [u8]> {
        let range = self.value_range(found.row).ok()?;
        self.check_cap(range).ok()?;
        let value = read.of(range)?;
        let is_intact = || found.value_check == Some(checks::compute_value_check(found.row.id, value));
        (!self.verifies() || is_intact()).then_some(value)
    }
}

impl ShortMinishard {
    pub(crate) fn span(self) -> ByteRange {
        ByteRange { start: self.index.start, end: self.end }
    }
}

impl<'a> ReadBytes<'a> {
    /// Returns the bytes of a range of the file; `None` if they were not read.
    pub(super) fn of(self, range: ByteRange) -> Option<&'a [u8]> {
        let start = range.start.checked_sub(self.start)?;
        ByteRange { start, end: start + range.len() }.of(self.bytes)
    }

    /// Returns the check of the value of a row; `None` if it was not read.
    pub(super) fn value_check(self, checks: ChecksPlace, row: usize) -> Option<u32> {
        self.of(checks.place_of_value(row)?)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }
}
