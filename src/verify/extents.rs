//! Who names which bytes of a shard: what is named twice, and what nobody names.
//!
//! ```text
//! | shard index | index 0, checks | pad, value | pad, value | pad | index 1, checks | ..       raw indexes
//! | shard index | value | pad, value | index 0, checks | pad, value | .. | index 1, checks     gzip indexes
//!                                                         pad: to the value alignment; before a minishard to 8
//! ```
//!
//! A shard of ours has these gaps and no others; with prefixes, any bytes may stand directly before a value. In a
//! shard of others every gap may be something that somebody knows of.

use std::fmt;

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::format::layout::Layout;
use crate::format::layout::MINISHARD_ALIGNMENT;
use crate::format::spec::Encoding;
use crate::ids::MinishardNumber;
use crate::read::shard::{ShardReader, reserve_rows};
use crate::verify::VerifyLevel;
use crate::verify::finding::FindingKind;
use crate::verify::shard::ShardVerifier;

/// The bytes that the indexes of one shard name.
#[derive(Default)]
pub(super) struct Extents(Vec<Extent>);

/// Bytes of a file, and who names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    start: u64,
    end: u64,
    key: u64,
    minishard: u32,
    what: Named,
}

// what the documentation of `verify` says of its memory
const _: () = assert!(size_of::<Extent>() == 32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    ShardIndex,
    /// A minishard index with its checks.
    Index,
    Value,
}

/// Bytes that no index names.
#[derive(Clone, Copy)]
struct Gap {
    range: ByteRange,
    behind: Extent,
    /// `None` at the end of the file.
    before: Option<Extent>,
}

impl Extents {
    /// Makes room for an index and its rows. Errors: `TooLarge`.
    pub(super) fn reserve(&mut self, rows: u64, shard: &ShardReader) -> Result<()> {
        reserve_rows(&mut self.0, rows.saturating_add(1), shard)
    }

    pub(super) fn push_index(&mut self, minishard: MinishardNumber, range: ByteRange) {
        self.0.push(Extent::new(Named::Index, minishard, 0, range));
    }

    pub(super) fn push_value(&mut self, minishard: MinishardNumber, key: u64, range: ByteRange) {
        self.0.push(Extent::new(Named::Value, minishard, key, range));
    }
}

impl Extent {
    fn new(what: Named, minishard: MinishardNumber, key: u64, range: ByteRange) -> Extent {
        let minishard = u32::try_from(minishard.0).unwrap_or(u32::MAX); // there are at most 2^32
        Extent { start: range.start, end: range.end, key, minishard, what }
    }

    fn is_value(&self) -> bool {
        self.what == Named::Value
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Adds this as the place of an error.
    fn place(&self, error: Error) -> Error {
        let error = error.at_minishard(MinishardNumber(self.minishard.into())).at_offset(self.start);
        if self.is_value() { error.at_key(self.key) } else { error }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            Named::ShardIndex => f.write_str("the shard index"),
            Named::Index => write!(f, "the index of minishard {}", self.minishard),
            Named::Value => write!(f, "key {}", self.key),
        }
    }
}

impl Gap {
    /// How far our writer pads from the beginning of this gap.
    fn padding_end(&self, layout: Layout, index_encoding: Encoding) -> u64 {
        let start = self.range.start;
        let Some(before) = self.before else { return start };
        let begins_minishard = match index_encoding {
            Encoding::Raw => !before.is_value(),
            Encoding::Gzip => before.is_value() && !self.behind.is_value(),
        };
        let start = if begins_minishard { start.next_multiple_of(MINISHARD_ALIGNMENT) } else { start };
        if !before.is_value() || layout.prefixes {
            return start;
        }
        let both_empty = self.behind.is_value() && self.behind.is_empty() && before.is_empty();
        let start = start + u64::from(both_empty);
        start + layout.value_alignment.padding(start)
    }

    /// Behind the padding there may be a prefix.
    fn may_hold_prefix(&self, layout: Layout) -> bool {
        layout.prefixes && self.before.is_some_and(|before| before.is_value())
    }
}

impl ShardVerifier<'_> {
    /// Verifies that no bytes are named twice, and what the bytes are that nobody names.
    pub(super) fn verify_extents(&mut self) {
        let mut extents = std::mem::take(&mut self.extents).0;
        extents.sort_unstable_by_key(|extent| (extent.start, extent.end));
        let index = ByteRange { start: 0, end: self.shard.base() };
        let shard_index = Extent::new(Named::ShardIndex, MinishardNumber(0), 0, index);
        let (mut furthest, mut last) = (shard_index, shard_index);
        let mut unnamed = Unnamed::default();
        for extent in extents {
            self.verify_sharing(&furthest, &last, &extent);
            self.verify_gap(&furthest, Some(extent), &mut unnamed);
            if extent.end >= furthest.end {
                furthest = extent;
            }
            last = extent;
        }
        self.verify_gap(&furthest, None, &mut unnamed);
        if let Some(first) = unnamed.first {
            let message = format!("found {} bytes in {} places that no index names", unnamed.bytes, unnamed.places);
            self.found(FindingKind::UnnamedBytes, Error::corrupt(message).at_offset(first));
        }
    }

    /// `furthest` and `last` begin before `extent`, or where it begins; `furthest` ends last.
    fn verify_sharing(&mut self, furthest: &Extent, last: &Extent, extent: &Extent) {
        if extent.start < furthest.end && !extent.is_empty() {
            let bytes = furthest.end.min(extent.end) - extent.start;
            let message = format!("expected bytes of its own, found the first {bytes} to belong to {furthest} too");
            let kind = match furthest.is_value() && extent.is_value() {
                true => FindingKind::Overlap,
                false => FindingKind::IndexOverlap,
            };
            self.found(kind, extent.place(Error::corrupt(message)));
        }
        if last.is_value() && last.is_empty() && extent.is_empty() && last.start == extent.start {
            let message = format!("expected an empty value apart from others, found it at the place of {last}");
            self.found(FindingKind::SharedEmptyRange, extent.place(Error::corrupt(message)));
        }
    }

    fn verify_gap(&mut self, behind: &Extent, before: Option<Extent>, unnamed: &mut Unnamed) {
        let end = before.map_or(self.data.len, |extent| extent.start);
        if end <= behind.end || !self.is_whole {
            return;
        }
        let gap = Gap { range: ByteRange { start: behind.end, end }, behind: *behind, before };
        match self.shard.layout {
            Some(layout) => self.verify_own_gap(gap, layout),
            None => unnamed.add(gap.range),
        }
    }

    /// A gap of ours is padding, then a prefix if there may be one.
    fn verify_own_gap(&mut self, gap: Gap, layout: Layout) {
        let ByteRange { start, end } = gap.range;
        let padding_end = gap.padding_end(layout, self.shard.spec.minishard_index_encoding());
        if padding_end < end && !gap.may_hold_prefix(layout) {
            let message = format!("expected {} bytes of padding, found {}", padding_end - start, end - start);
            let error = Error::corrupt(message + " that no index names").at_offset(start);
            return self.found(FindingKind::UnexpectedGap, error);
        }
        if self.reaches(VerifyLevel::Data) {
            self.verify_padding(ByteRange { start, end: padding_end.min(end) });
        }
    }

    fn verify_padding(&mut self, range: ByteRange) {
        self.has_read(range.len());
        let nonzero = match self.body.read(range) {
            Ok(bytes) => bytes.iter().position(|byte| *byte != 0),
            Err(error) => return self.found(FindingKind::NonzeroPadding, error),
        };
        if let Some(at) = nonzero {
            let error =
                Error::corrupt("expected padding of zero bytes, found another").at_offset(range.start + at as u64);
            self.found(FindingKind::NonzeroPadding, error);
        }
    }
}

/// The gaps in a shard of others, told in one note.
#[derive(Default)]
struct Unnamed {
    bytes: u64,
    places: u64,
    first: Option<u64>,
}

impl Unnamed {
    fn add(&mut self, range: ByteRange) {
        self.bytes += range.len();
        self.places += 1;
        self.first.get_or_insert(range.start);
    }
}
