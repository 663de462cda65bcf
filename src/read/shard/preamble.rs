//! Preambles: bytes directly before a value that no index refers to.

use crate::byte_range::ByteRange;
use crate::bytes::Bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checks::ChecksPlace;
use crate::format::layout::{Layout, ValueAlignment};
use crate::format::minishard_index::Row;
use crate::format::spec::Encoding;
use crate::read::shard::named_ranges::NamedRanges;
use crate::read::shard::reader::ShardReader;
use crate::read::shard::rows::Rows;
use crate::read::shard::stored_value::FoundKey;
use crate::read::shard::value::Value;

impl ShardReader {
    /// Returns the `n` bytes before the value of a stored key.
    pub(crate) fn preamble(&self, found: &FoundKey, n: u64) -> Result<Value<'_>> {
        let preamble = self.preamble_of(found, n);
        preamble.map_err(|error| self.at(found.minishard, error).at_key(found.row.id))
    }

    fn preamble_of(&self, found: &FoundKey, n: u64) -> Result<Value<'_>> {
        let end = self.value_range(found.row)?.start;
        let before = end - self.base();
        if n > before {
            let message = format!(
                "expected a preamble of at most {before} bytes, all that the shard has before the value, found {n}"
            );
            return Err(Error::invalid_input(message));
        }
        let preamble = ByteRange { start: end - n, end };
        if self.verifies_preambles() {
            let gap = self.native_gap(found)?;
            if preamble.start < gap.start {
                let message = format!("expected a preamble of at most {} bytes, found {n}", gap.len());
                return Err(Error::invalid_input(message));
            }
            self.compare_preamble_check(found.row, found.checks, gap)?;
        }
        self.read_at_most_cap(preamble, 1).map(Value::from_bytes)
    }

    /// Returns the whole preamble of a value; in a foreign shard, all bytes of the gap before the value.
    ///
    /// Errors: also `Unsupported` if the length of the preamble is unknown.
    pub(crate) fn whole_preamble(&self, found: &FoundKey) -> Result<Bytes<'_>> {
        let Some(gap) = self.whole_gap(found)? else { return Ok(Bytes::Borrowed(&[])) };
        if self.verifies_preambles() {
            self.compare_preamble_check(found.row, found.checks, gap)?;
        }
        let start = gap.start + self.padding_of(found.row, gap)?;
        self.read_at_most_cap(ByteRange { start, end: gap.end }, 1)
    }

    /// Returns the [whole preamble](Self::whole_preamble) of a value. Errors have the place of the row.
    pub(crate) fn located_preamble(&self, found: &FoundKey) -> Result<Value<'_>> {
        let preamble = self.whole_preamble(found).map(Value::from_bytes);
        preamble.map_err(|error| self.at(found.minishard, error).at_key(found.row.id))
    }

    /// Returns the gap before a value, in which its preamble is; `None` if the layout has no preambles.
    pub(crate) fn whole_gap(&self, found: &FoundKey) -> Result<Option<ByteRange>> {
        match self.layout {
            Some(layout) if !layout.preambles => Ok(None),
            Some(_) => self.native_gap(found).map(Some),
            None => self.gap_before(found.row).map(Some),
        }
    }

    /// Returns the number of bytes of padding in the gap before a value: zeros to the alignment of values, or the one byte
    /// that separates an empty value from an empty value before it. The preamble is what follows; 0 for a foreign shard.
    ///
    /// A separator is taken for one even if it is a preamble of one zero byte.
    ///
    /// Errors: `Unsupported` if a preamble may begin with the same zeros.
    pub(super) fn padding_of(&self, row: Row, gap: ByteRange) -> Result<u64> {
        let (zeros, most) = self.zeros_of(row, gap)?;
        let alignment = self.layout.map_or(1, |layout| layout.value_alignment.get());
        let is_known = alignment == 1 || self.known.preambles_follow_padding && zeros <= most;
        if zeros > 0 && !is_known {
            let message = format!(
                "expected a preamble whose length is known, found zeros before a value that is aligned to {alignment} bytes, \
                 which may be padding: build the pairs again from their source"
            );
            return Err(Error::new(ErrorKind::Unsupported, message).at_offset(gap.start));
        }
        Ok(zeros)
    }

    /// Returns the number of zeros at the beginning of a gap that can be padding. A preamble may begin with some of them if
    /// version 0.1.0 wrote it.
    pub(crate) fn possible_padding(&self, row: Row, gap: ByteRange) -> Result<u64> {
        self.zeros_of(row, gap).map(|(zeros, most)| zeros.min(most))
    }

    /// Returns the number of zeros at the beginning of a gap, counted to one more than the most that can be padding, and
    /// this most.
    fn zeros_of(&self, row: Row, gap: ByteRange) -> Result<(u64, u64)> {
        let Some(Layout { value_alignment, .. }) = self.layout else { return Ok((0, 0)) };
        let separates = row.value.start == row.value.end;
        let most = value_alignment.get() - 1 + u64::from(separates);
        // without an alignment a separator is alone, so zeros in a longer gap are those of a preamble
        if most == 0 || value_alignment == ValueAlignment::One && gap.len() != 1 {
            return Ok((0, most));
        }
        let first = self.read_at_most_cap(ByteRange { start: gap.start, end: gap.end.min(gap.start + most + 1) }, 1)?;
        Ok((first.iter().take_while(|byte| **byte == 0).count() as u64, most))
    }

    /// Returns the gap before a value in a native shard. It begins at the end of the previous value of the minishard
    /// or, for the first value after a raw index, at the end of the checks of the index.
    pub(super) fn native_gap(&self, found: &FoundKey) -> Result<ByteRange> {
        let FoundKey { row, checks: ChecksPlace { index_end, rows }, .. } = *found;
        let layout = self.layout.unwrap_or_default();
        let start = match (row.number, self.spec.minishard_index_encoding()) {
            (0, Encoding::Raw) => index_end.checked_add(ChecksPlace::total_len(rows, layout)),
            (0, Encoding::Gzip) => return self.gap_before(row), // the previous bytes are of another minishard
            _ => self.value_before(found)?,
        };
        let end = self.value_range(row)?.start;
        match start.filter(|start| *start <= end) {
            Some(start) => Ok(ByteRange { start, end }),
            None => Err(Error::corrupt(
                "expected a value after the index and the previous values, found it before their end",
            )),
        }
    }

    /// Returns the end of the value of the previous row.
    fn value_before(&self, found: &FoundKey) -> Result<Option<u64>> {
        let located = self.index_of(found.minishard)?;
        let before = located.and_then(|located| located.searchable().row(found.row.number.checked_sub(1)?));
        before.map(|row| self.value_range(row).map(|value| value.end)).transpose()
    }

    /// Returns the gap before a row's value: the bytes after the previous range that any index of the shard names.
    ///
    /// Cost: the first call reads all indexes of the shard and keeps 16 bytes per key.
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
            None => {
                let len = self.files().data_len();
                let message =
                    format!("expected fewer keys in a shard of {len} bytes, found too many to locate preambles");
                Err(Error::new(ErrorKind::TooLarge, message))
            }
        }
    }

    /// Reads all indexes of the shard and collects the ranges that they name. Skips bad entries.
    ///
    /// `None` if the shard has too many rows to keep. Errors: `Io`.
    ///
    /// Cost: 16 bytes of memory per key.
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
                Err(error) if error.kind() == ErrorKind::Io => return Err(error), // a later call may succeed
                Err(_) => {}
            }
        }
    }
}
