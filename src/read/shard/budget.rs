//! How much of a shard a walk reads at most.
//!
//! Indexes state where bytes are, and nothing in the format keeps a broken or hostile shard from stating the same bytes
//! many times: 2^m entries may name one minishard index, all of its rows one value. What is read is bounded by the length
//! of the file, so that time and memory are linear in it.

use crate::byte_range::ByteRange;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::MinishardNumber;

/// Sound minishard indexes share no bytes, so all of them have at most the bytes of the file. Twice as many are read: one
/// damaged entry may name the whole file, and hides no other.
const MOST_INDEXES: u64 = 2;

/// Values may share bytes legally, so that a few are stored for many keys.
const MOST_VALUES: u64 = 64;

/// Rows that are collected in memory beyond one for each byte of the file: of empty values, for example.
const MOST_ROWS: u64 = 1 << 19;

/// The bytes of minishard indexes that a walk has read.
#[derive(Default)]
pub(crate) struct IndexBudget {
    spent: u64,
    /// The index that ends last.
    furthest: Option<(MinishardNumber, ByteRange)>,
}

impl IndexBudget {
    /// Takes what reading the index at `range` costs.
    ///
    /// Errors: `Corrupt` if so many bytes were read that indexes must overlap; this one does not count then.
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
        let other =
            shared.map_or(String::new(), |(number, _)| format!(", and this one shares bytes with {}", number.0));
        let message = format!(
            "expected minishard indexes that share no bytes, found those before this one to take up {} bytes of a file of \
             {file_len}{other}: it is not read; `sharddb salvage` keeps what is sound",
            self.spent
        );
        Error::corrupt(message).at_offset(range.start)
    }
}

/// The bytes of values and prefixes that a walk has read.
#[derive(Default)]
pub(crate) struct ValueBudget(u64);

impl ValueBudget {
    /// Takes what reading `bytes` costs; whether so much may be read.
    pub(crate) fn take(&mut self, file_len: u64, bytes: u64) -> bool {
        let spent = self.0.saturating_add(bytes);
        let may = spent <= Self::most(file_len);
        if may {
            self.0 = spent;
        }
        may
    }

    /// The most bytes.
    pub(crate) fn most(file_len: u64) -> u64 {
        file_len.saturating_mul(MOST_VALUES)
    }
}

/// Makes room for `more` rows in a vector that keeps all rows of a shard.
///
/// Errors: `TooLarge` if the shard would have more rows than one for each of its bytes and 2^19, or there is no memory.
pub(crate) fn reserve_rows<T>(rows: &mut Vec<T>, more: u64, file_len: u64) -> Result<()> {
    let most = file_len.saturating_add(MOST_ROWS);
    let all = (rows.len() as u64).saturating_add(more);
    if all > most {
        let message =
            format!("expected at most {most} keys in a shard of that length, found {all}: not all are looked at");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    let no_memory = |_| Error::new(ErrorKind::TooLarge, format!("no memory for the places of {all} keys"));
    rows.try_reserve(usize::try_from(more).unwrap_or(usize::MAX)).map_err(no_memory)
}
