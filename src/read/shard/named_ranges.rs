//! The byte ranges that the indexes of a shard name, sorted. The bytes between two of them are a gap.
//!
//! A gap directly before a value is its preamble (the fragments of a multi-resolution mesh, for example), padding, or of
//! unknown use. Code that copies values to another shard also copies the gap. Values may share bytes or be empty.
//! Non-empty values that begin at one offset have the same gap: the one that ends at that offset. If empty values begin
//! there too, the gap is theirs, and the non-empty values have none. A value that begins within another one has no gap.

use crate::byte_range::ByteRange;
use crate::error::Result;
use crate::format::checks::ChecksPlace;
use crate::format::layout::{Layout, MINISHARD_ALIGNMENT};
use crate::format::spec::Encoding;
use crate::read::shard::walk_budget::reserve_rows;

/// The start of each range, in ascending order, with its reach: the largest end of this range and all ranges before it.
pub(crate) struct NamedRanges(Box<[(u64, u64)]>);

/// Collects the ranges of one shard, in any order.
#[derive(Clone)]
pub(crate) struct NamedRangesBuilder {
    layout: Layout,
    /// Whether each minishard begins at an aligned offset after the checks of the previous one: in a native data set with
    /// gzip indexes, where the values of a minishard precede its index.
    aligns_minishards: bool,
    ranges: Vec<(u64, u64)>,
}

impl NamedRangesBuilder {
    /// Creates a builder with the range of the shard index, `base` bytes. `layout` is `None` for foreign shards.
    pub(crate) fn new(layout: Option<Layout>, index_encoding: Encoding, base: u64) -> NamedRangesBuilder {
        let aligns_minishards = layout.is_some() && index_encoding == Encoding::Gzip;
        let mut new = NamedRangesBuilder { layout: layout.unwrap_or_default(), aligns_minishards, ranges: Vec::new() };
        new.push(0, base);
        new
    }

    /// Reserves memory for an index and its rows. Errors: `TooLarge`.
    pub(crate) fn reserve(&mut self, rows: u64, file_len: u64) -> Result<()> {
        reserve_rows(&mut self.ranges, rows.saturating_add(1), file_len)
    }

    /// Adds an encoded minishard index of `rows` rows, with its checks.
    pub(crate) fn push_index(&mut self, index: ByteRange, rows: u64) {
        self.push(index.start, index.end + ChecksPlace::total_len(rows, self.layout));
    }

    pub(crate) fn push_value(&mut self, value: ByteRange) {
        self.ranges.push((value.start, value.end));
    }

    fn push(&mut self, start: u64, end: u64) {
        let gap = if self.aligns_minishards { end.next_multiple_of(MINISHARD_ALIGNMENT) } else { end };
        self.ranges.push((start, gap));
    }

    pub(crate) fn finish(mut self) -> NamedRanges {
        self.ranges.sort_unstable();
        let mut reach = 0;
        for (_, end) in &mut self.ranges {
            reach = reach.max(*end); // a range may extend past ranges that begin after it
            *end = reach;
        }
        NamedRanges(self.ranges.into())
    }
}

impl NamedRanges {
    /// Whether any byte of `range` is named.
    pub(crate) fn overlap(&self, range: ByteRange) -> bool {
        let begin_before = self.0.partition_point(|(start, _)| *start < range.end);
        let last = begin_before.checked_sub(1).and_then(|at| self.0.get(at));
        range.start < range.end && last.is_some_and(|(_, reach)| *reach > range.start)
    }

    /// Returns the gaps of a file of this length: the bytes that no index names.
    pub(crate) fn gaps(&self, file_len: u64) -> impl Iterator<Item = ByteRange> {
        let ends = self.0.iter().skip(1).map(|(start, _)| *start).chain([file_len]);
        let gaps = self.0.iter().zip(ends).map(|((_, reach), end)| ByteRange { start: *reach, end });
        gaps.filter(|gap| gap.start < gap.end)
    }

    /// Returns the start of the gap before a value; the start of the value if there is no gap.
    pub(crate) fn gap_start(&self, value: ByteRange) -> u64 {
        let is_before = |(start, reach): &(u64, u64)| match value.len() {
            0 => *start < value.start,
            _ => *start < value.start || (*start, *reach) == (value.start, value.start),
        };
        let before = self.0.partition_point(is_before);
        let gap = before.checked_sub(1).and_then(|at| self.0.get(at)).map_or(value.start, |(_, reach)| *reach);
        gap.min(value.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranges 0..10 (the shard index), 10..20 and the given ones, in a foreign shard.
    fn gap_start(values: &[(u64, u64)], of: (u64, u64)) -> u64 {
        let mut builder = NamedRangesBuilder::new(None, Encoding::Raw, 10);
        for (start, end) in [(10, 20)].iter().chain(values) {
            builder.push_value(ByteRange { start: *start, end: *end });
        }
        builder.finish().gap_start(ByteRange { start: of.0, end: of.1 })
    }

    #[test]
    fn values_at_one_offset() {
        let two = [(30, 35), (30, 40)];
        assert_eq!(two.map(|value| gap_start(&two, value)), [20, 20], "two values share the gap before them");
        let with_empty = [(30, 30), (30, 30), (30, 40)];
        assert_eq!(
            with_empty.map(|value| gap_start(&with_empty, value)),
            [20, 20, 30],
            "the gap is of the empty values"
        );
        let nested = [(25, 40), (30, 35)];
        assert_eq!(nested.map(|value| gap_start(&nested, value)), [20, 30], "no gap within another value");
    }
}
