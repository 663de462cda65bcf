//! Bytes of a shard that two indexes name, and bytes that none does.

use crate::byte_range::ByteRange;
use crate::error::Error;
use crate::format::layout::Layout;
use crate::ids::MinishardNumber;
use crate::verify::VerifyLevel;
use crate::verify::extents::{Extent, Gap, Named};
use crate::verify::finding::FindingKind;
use crate::verify::shard::ShardVerifier;

impl ShardVerifier<'_> {
    /// Verifies that no bytes are named twice, and what the bytes are that nobody names.
    pub(super) fn verify_extents(&mut self) {
        let extents = std::mem::take(&mut self.extents).into_sorted();
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
