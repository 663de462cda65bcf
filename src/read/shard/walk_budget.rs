//! Upper bounds on the bytes and rows that a walk over a shard reads.
//!
//! A damaged or hostile shard may name the same bytes many times: all entries of the shard index may name one minishard
//! index, and all its rows one value. The bounds are proportional to the length of the file, and so are the time and
//! the memory of a walk.

use crate::byte_range::ByteRange;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::MinishardNumber;

/// Upper bound on the bytes of minishard indexes that a walk reads, as a multiple of the file length. Valid indexes do
/// not overlap, so all together are at most one file length. The second one leaves room for a damaged entry that names
/// the whole file: the other indexes are still read.
const INDEX_BYTES_FACTOR: u64 = 2;

/// Upper bound on the bytes of values that a walk reads, as a multiple of the file length. It is above 1 because the
/// format allows several keys to share one stored value.
const VALUE_BYTES_FACTOR: u64 = 64;

/// Upper bound on the rows that a walk keeps in memory, in addition to one row per byte of the file.
const MOST_ROWS: u64 = 1 << 19;

/// Counts the bytes of minishard indexes that a walk has read.
#[derive(Default)]
pub(crate) struct IndexBudget {
    spent: u64,
    /// The charged index that ends last, for the message of an error.
    furthest: Option<(MinishardNumber, ByteRange)>,
}

impl IndexBudget {
    /// Charges the bytes of the index at `range`.
    ///
    /// Errors: `Corrupt` if that exceeds the budget, which only indexes that overlap do. Then nothing is charged.
    pub(crate) fn take(&mut self, file_len: u64, number: MinishardNumber, range: ByteRange) -> Result<()> {
        let spent = self.spent.saturating_add(range.len());
        if spent > Self::most(file_len) {
            return Err(self.overlapping(file_len, range));
        }
        self.spent = spent;
        if self.furthest.is_none_or(|(_, furthest)| furthest.end < range.end) {
            self.furthest = Some((number, range));
        }
        Ok(())
    }

    /// Charges what the walk over the next minishards was charged. Returns false, and charges nothing, if that exceeds
    /// the budget.
    pub(crate) fn add(&mut self, next: IndexBudget, file_len: u64) -> bool {
        let spent = self.spent.saturating_add(next.spent);
        let fits = spent <= Self::most(file_len);
        if fits {
            *self = IndexBudget { spent, furthest: next.furthest.or(self.furthest) };
        }
        fits
    }

    /// Returns the budget in bytes.
    pub(crate) fn most(file_len: u64) -> u64 {
        file_len.saturating_mul(INDEX_BYTES_FACTOR)
    }

    #[cold]
    fn overlapping(&self, file_len: u64, range: ByteRange) -> Error {
        let shared = self.furthest.filter(|(_, other)| range.start < other.end && other.start < range.end);
        let other =
            shared.map_or(String::new(), |(number, _)| format!(" (this one overlaps minishard {})", number.get()));
        let message = format!(
            "expected minishard indexes that do not overlap, found {} bytes of indexes before this one in a file of \
                     {file_len} bytes{other}: this index is skipped; run `sharddb salvage` to recover the valid data",
            self.spent
        );
        Error::corrupt(message).at_offset(range.start)
    }
}

/// Counts the bytes of values and preambles that a walk has read.
#[derive(Default)]
pub(crate) struct ValueBudget(u64);

impl ValueBudget {
    /// Charges `bytes`. Returns false, and charges nothing, if that exceeds the budget.
    pub(crate) fn take(&mut self, file_len: u64, bytes: u64) -> bool {
        let spent = self.0.saturating_add(bytes);
        let fits = spent <= Self::most(file_len);
        if fits {
            self.0 = spent;
        }
        fits
    }

    /// Charges what the walk over the next minishards was charged. Returns false, and charges nothing, if that exceeds
    /// the budget.
    pub(crate) fn add(&mut self, next: ValueBudget, file_len: u64) -> bool {
        self.take(file_len, next.0)
    }

    /// Returns the budget in bytes.
    pub(crate) fn most(file_len: u64) -> u64 {
        file_len.saturating_mul(VALUE_BYTES_FACTOR)
    }
}

/// Returns the upper bound on the rows of a shard that are kept in memory.
pub(crate) fn most_rows(file_len: u64) -> u64 {
    file_len.saturating_add(MOST_ROWS)
}

/// Checks that a shard may have this many rows.
///
/// Errors: `TooLarge` if they are more than `file_len + 2^19`.
pub(crate) fn check_rows(all: u64, file_len: u64) -> Result<()> {
    let most = most_rows(file_len);
    if all <= most {
        return Ok(());
    }
    let message =
        format!("expected at most {most} keys in a shard of {file_len} bytes, found {all}: not all are checked");
    Err(Error::new(ErrorKind::TooLarge, message))
}

/// Reserves memory for `more` rows in a vector of all rows of a shard.
///
/// Errors: those of [`check_rows`]; `TooLarge` if the allocation fails.
pub(crate) fn reserve_rows<T>(rows: &mut Vec<T>, more: u64, file_len: u64) -> Result<()> {
    let all = (rows.len() as u64).saturating_add(more);
    check_rows(all, file_len)?;
    let no_memory =
        |_| Error::new(ErrorKind::TooLarge, format!("cannot allocate memory for the positions of {all} keys"));
    rows.try_reserve(usize::try_from(more).unwrap_or(usize::MAX)).map_err(no_memory)
}
