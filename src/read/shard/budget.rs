//! Upper bounds on the bytes that a walk over a shard reads.
//!
//! Nothing in the format prevents a damaged or hostile shard from naming the same bytes many times: 2^m entries may
//! name one minishard index, and all its rows one value. The bounds are proportional to the length of the file, so that
//! time and memory are linear in it.

use crate::byte_range::ByteRange;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::MinishardNumber;

/// The bytes of minishard indexes that are read at most, as a multiple of the file length. Valid indexes do not
/// overlap, so together they fit into the file. The factor of 2 ensures that one damaged entry that names the whole
/// file does not prevent the others from being read.
const MOST_INDEXES: u64 = 2;

/// The bytes of values that are read at most, as a multiple of the file length. Values may legally share bytes, so that
/// a few stored values serve many keys.
const MOST_VALUES: u64 = 64;

/// The rows that are kept in memory at most, in addition to one per byte of the file: rows of empty values, for
/// example.
const MOST_ROWS: u64 = 1 << 19;

/// Counts the bytes of minishard indexes that a walk has read.
#[derive(Default)]
pub(crate) struct IndexBudget {
    spent: u64,
    /// The index that ends last.
    furthest: Option<(MinishardNumber, ByteRange)>,
}

impl IndexBudget {
    /// Charges the bytes of the index at `range`.
    ///
    /// Errors: `Corrupt` if the budget is exceeded, which means that indexes overlap. Then nothing is charged.
    pub(crate) fn take(&mut self, file_len: u64, number: MinishardNumber, range: ByteRange) -> Result<()> {
        let spent = self.spent.saturating_add(range.len());
        if spent > file_len.saturating_mul(MOST_INDEXES) {
            return Err(self.overlapping(file_len, range));
        }
        self.spent = spent;
        if self.furthest.is_none_or(|(_, furthest)| furthest.end < range.end) {
            self.furthest = Some((number, range));
        }
        Ok(())
    }

    #[cold]
    fn overlapping(&self, file_len: u64, range: ByteRange) -> Error {
        let shared = self.furthest.filter(|(_, other)| range.start < other.end && other.start < range.end);
        let other = shared.map_or(String::new(), |(number, _)| format!(" (this one overlaps minishard {})", number.0));
        let message = format!(
            "expected minishard indexes that do not overlap, found {} bytes of indexes before this one in a file of \
                     {file_len} bytes{other}: this index is skipped; run `sharddb salvage` to recover the valid data",
            self.spent
        );
        Error::corrupt(message).at_offset(range.start)
    }
}

/// Counts the bytes of values and prefixes that a walk has read.
#[derive(Default)]
pub(crate) struct ValueBudget(u64);

impl ValueBudget {
    /// Charges `bytes`. Returns false, and charges nothing, if that exceeds the budget.
    pub(crate) fn take(&mut self, file_len: u64, bytes: u64) -> bool {
        let spent = self.0.saturating_add(bytes);
        let may = spent <= Self::most(file_len);
        if may {
            self.0 = spent;
        }
        may
    }

    /// Returns the budget in bytes.
    pub(crate) fn most(file_len: u64) -> u64 {
        file_len.saturating_mul(MOST_VALUES)
    }
}

/// Reserves memory for `more` rows in a vector that keeps all rows of a shard.
///
/// Errors: `TooLarge` if the shard has more than `file_len + 2^19` rows, or the allocation fails.
pub(crate) fn reserve_rows<T>(rows: &mut Vec<T>, more: u64, file_len: u64) -> Result<()> {
    let most = file_len.saturating_add(MOST_ROWS);
    let all = (rows.len() as u64).saturating_add(more);
    if all > most {
        let message =
            format!("expected at most {most} keys in a shard of {file_len} bytes, found {all}: not all are checked");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    let no_memory =
        |_| Error::new(ErrorKind::TooLarge, format!("cannot allocate memory for the positions of {all} keys"));
    rows.try_reserve(usize::try_from(more).unwrap_or(usize::MAX)).map_err(no_memory)
}
