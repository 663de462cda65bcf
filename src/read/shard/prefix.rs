//! Prefixes: the bytes that lie directly before a value, which no index names.

use crate::byte_range::ByteRange;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checks::ChecksPlace;
use crate::format::minishard_index::Row;
use crate::format::spec::Encoding;
use crate::read::shard::named_ranges::NamedRanges;
use crate::read::shard::reader::ShardReader;
use crate::read::shard::rows::Rows;
use crate::read::shard::stored_value::Stored;
use crate::read::shard::value::Value;
use crate::storage::Bytes;

impl ShardReader {
    /// The `n` bytes before the value of a key that was found.
    pub(crate) fn prefix(&self, stored: &Stored, n: u64) -> Result<Value<'_>> {
        let prefix = self.prefix_of(stored, n);
        prefix.map_err(|error| self.at(stored.minishard, error).at_key(stored.row.id))
    }

    fn prefix_of(&self, stored: &Stored, n: u64) -> Result<Value<'_>> {
        let end = self.value_range(stored.row)?.start;
        let before = end - self.base();
        if n > before {
            let message = format!("expected a prefix of at most the {before} bytes before the value, found {n}");
            return Err(Error::invalid_input(message));
        }
        let prefix = ByteRange { start: end - n, end };
        if self.verifies_prefixes() {
            let gap = self.gap_of_ours(stored)?;
            if prefix.start < gap.start {
                let message = format!("expected a prefix of at most {} bytes, found {n}", gap.len());
                return Err(Error::invalid_input(message));
            }
            self.verify_prefix(stored.row, stored.checks, gap)?;
        }
        self.read_at_most_cap(prefix, 1).map(Value::from_bytes)
    }

    /// The prefix as far as the shard can tell: all bytes between the value and what lies before it.
    pub(crate) fn whole_prefix(&self, stored: &Stored) -> Result<Bytes<'_>> {
        let gap = match self.layout {
            Some(layout) if !layout.prefixes => return Ok(Bytes::Borrowed(&[])),
            Some(_) => self.gap_of_ours(stored)?,
            None => self.gap_before(stored.row)?,
        };
        if self.verifies_prefixes() {
            self.verify_prefix(stored.row, stored.checks, gap)?;
        }
        self.read_at_most_cap(gap, 1)
    }

    /// The bytes before a value in a shard of ours: they begin where the previous value of the minishard ends, or where the
    /// checks of a raw index do.
    fn gap_of_ours(&self, stored: &Stored) -> Result<ByteRange> {
        let Stored { row, checks: ChecksPlace { index_end, rows }, .. } = *stored;
        let layout = self.layout.unwrap_or_default();
        let start = match (row.number, self.spec.minishard_index_encoding()) {
            (0, Encoding::Raw) => index_end.checked_add(ChecksPlace::total_len(rows, layout)),
            (0, Encoding::Gzip) => return self.gap_before(row), // behind another minishard
            _ => self.value_before(stored)?,
        };
        let end = self.value_range(row)?.start;
        match start.filter(|start| *start <= end) {
            Some(start) => Ok(ByteRange { start, end }),
            None => Err(Error::corrupt("expected a value behind the one before it, found them in another order")),
        }
    }

    /// Where the value of the row before ends.
    fn value_before(&self, stored: &Stored) -> Result<Option<u64>> {
        let minishard = self.minishard(stored.minishard)?;
        let before = minishard.and_then(|minishard| minishard.index().row(stored.row.number.checked_sub(1)?));
        before.map(|row| self.value_range(row).map(|value| value.end)).transpose()
    }

    /// The bytes between a row's value and what an index names before it.
    ///
    /// Cost: the first call reads all indexes of the shard and keeps 16 bytes a key.
    pub(crate) fn gap_before(&self, row: Row) -> Result<ByteRange> {
        let value = self.value_range(row)?;
        let ranges = match self.named_ranges.get() {
            Some(ranges) => ranges,
            None => {
                let new = self.read_named_ranges()?;
                self.named_ranges.get_or_init(|| new)
            }
        };
        match ranges {
            Some(ranges) => Ok(ByteRange { start: ranges.gap_start(value), end: value.start }),
            None => Err(Error::new(
                ErrorKind::TooLarge,
                "expected fewer keys in a shard of that length, found too many to know what is before a value",
            )),
        }
    }

    /// Reads all indexes of a shard; bad entries name nothing.
    ///
    /// `None` if the shard has more rows than may be kept. Errors: `Io`.
    ///
    /// Cost: 16 bytes of memory a key.
    fn read_named_ranges(&self) -> Result<Option<NamedRanges>> {
        let mut ranges = self.named_ranges();
        let mut rows = Rows::default();
        loop {
            match rows.next_minishard(self) {
                Ok(Some(minishard)) => {
                    if ranges.reserve(minishard.rows, self.files().data_len()).is_err() {
                        return Ok(None);
                    }
                    ranges.push_index(minishard.index, minishard.rows);
                    while let Some(row) = rows.next_row(self) {
                        if let Ok(value) = self.value_range(row) {
                            ranges.push_value(value);
                        }
                    }
                }
                Ok(None) => return Ok(Some(ranges.finish())),
                Err(error) if error.kind() == ErrorKind::Io => return Err(error), // it may be read the next time
                Err(_) => {}
            }
        }
    }
}
