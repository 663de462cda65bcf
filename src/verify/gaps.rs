//! Reports byte ranges of a shard that overlap, and verifies the gaps between them.

use crate::byte_range::ByteRange;
use crate::error::Error;
use crate::format::layout::Layout;
use crate::ids::minishard_number;
use crate::plural::Plural;
use crate::verify::VerifyLevel;
use crate::verify::extents::{Chains, Extent, ExtentKind, Extents, Gap, Link};
use crate::verify::finding::FindingKind;
use crate::verify::shard::ShardVerifier;

/// Maximum number of chains in a foreign shard. A native one has one; CloudVolume stores minishards in any order, and the indexes
/// after all values.
const MOST_FOREIGN_CHAINS: usize = 1 << 16;

impl ShardVerifier<'_> {
    /// Adds the byte range of an index or a value.
    ///
    /// Where ranges follow each other, it is compared with the one before it, of which nothing is kept then. If there is anything
    /// to report, the shard is verified again with all ranges in memory: another one may be in the gap.
    pub(super) fn add_extent(&mut self, extent: Extent) {
        let most = if self.shard.layout.is_some() { 1 } else { MOST_FOREIGN_CHAINS };
        match &mut self.state.extents {
            Extents::All(all) => all.push(extent),
            Extents::Chains(chains) => match chains.link(extent, most) {
                Link::Begins => {}
                Link::Follows(last) => self.verify_link(&last, &extent),
                Link::Breaks => self.state.needs_all_extents = true,
            },
        }
    }

    fn verify_link(&mut self, last: &Extent, extent: &Extent) {
        if last.end == extent.start && !last.is_empty() {
            return; // as nearly all do
        }
        let reported = self.report.reported();
        self.verify_sharing(last, last, extent);
        self.verify_gap(last, Some(*extent));
        self.state.needs_all_extents |= self.report.reported() != reported;
    }

    /// Verifies that no bytes are named twice, and the lengths and contents of gaps.
    pub(super) fn verify_extents(&mut self) {
        let index = ByteRange { start: 0, end: self.shard.base() };
        let shard_index = Extent::new(ExtentKind::ShardIndex, minishard_number(0), 0, index);
        let furthest = match std::mem::take(&mut self.state.extents) {
            Extents::Chains(chains) => self.verify_chains(chains, shard_index),
            Extents::All(extents) => self.verify_all(extents, shard_index),
        };
        self.verify_gap(&furthest, None);
        let unnamed = std::mem::take(&mut self.state.unnamed);
        if let Some(first) = unnamed.first {
            let message = format!(
                "expected an index to name every byte, found {} in {} that no index names",
                Plural(unnamed.bytes, "byte"),
                Plural(unnamed.gaps, "gap")
            );
            self.report_finding(FindingKind::UnnamedBytes, Error::corrupt(message).at_offset(first));
        }
    }

    /// Compares the chains with each other. Returns the end of the last.
    fn verify_chains(&mut self, chains: Chains, mut last: Extent) -> Extent {
        for chain in chains.into_sorted() {
            // an empty extent overlaps nothing, those after it may
            self.state.needs_all_extents |= chain.first.start < last.end;
            self.verify_link(&last, &chain.first);
            last = chain.last;
        }
        last
    }

    /// Compares all extents. Returns the one that ends last.
    fn verify_all(&mut self, mut extents: Vec<Extent>, shard_index: Extent) -> Extent {
        extents.sort_unstable_by_key(|extent| (extent.start, extent.end));
        let (mut furthest, mut last) = (shard_index, shard_index);
        for extent in extents {
            self.verify_sharing(&furthest, &last, &extent);
            self.verify_gap(&furthest, Some(extent));
            if extent.end >= furthest.end {
                furthest = extent;
            }
            last = extent;
        }
        furthest
    }

    /// Reports bytes of `extent` that also belong to an earlier extent.
    ///
    /// `furthest` and `last` start at or before the start of `extent`. `furthest` has the greatest end of all earlier
    /// extents; `last` is the previous one.
    fn verify_sharing(&mut self, furthest: &Extent, last: &Extent, extent: &Extent) {
        if extent.start < furthest.end && !extent.is_empty() {
            let bytes = furthest.end.min(extent.end) - extent.start;
            let message = format!(
                "expected a byte range that shares no bytes, found that its first {bytes} bytes belong to {furthest} too"
            );
            let kind =
                if furthest.is_value() && extent.is_value() { FindingKind::Overlap } else { FindingKind::IndexOverlap };
            self.report_finding(kind, extent.at(Error::corrupt(message)));
        }
        if last.is_value() && last.is_empty() && extent.is_empty() && last.start == extent.start {
            let message = format!("expected an empty value at an offset of its own, found it at the offset of {last}");
            self.report_finding(FindingKind::SharedEmptyRange, extent.at(Error::corrupt(message)));
        }
    }

    fn verify_gap(&mut self, previous: &Extent, next: Option<Extent>) {
        let end = next.map_or(self.shard.files().data_len(), |extent| extent.start);
        if end <= previous.end || self.state.lost_extents {
            return;
        }
        let gap = Gap { range: ByteRange { start: previous.end, end }, previous: *previous, next };
        match self.shard.layout {
            Some(layout) => self.verify_native_gap(gap, layout),
            None => self.state.unnamed.add(gap.range),
        }
    }

    /// Verifies a gap in a native shard: padding, then a preamble where one is allowed.
    fn verify_native_gap(&mut self, gap: Gap, layout: Layout) {
        let ByteRange { start, end } = gap.range;
        let padding_end = gap.padding_end(layout, self.shard.spec.minishard_index_encoding());
        // padding that is too short (`padding_end > end`) is not reported here: a misaligned value is `MisalignedValue`,
        // and a misaligned minishard does no harm
        if padding_end < end && !gap.may_hold_preamble(layout) {
            let message = format!("expected {} bytes of padding, found {}", padding_end - start, end - start);
            let error = Error::corrupt(message + " that no index names").at_offset(start);
            return self.report_finding(FindingKind::UnexpectedGap, error);
        }
        if self.reaches(VerifyLevel::Data) {
            self.verify_padding(ByteRange { start, end: padding_end.min(end) });
        }
    }

    /// Verifies that all bytes of a range are zero.
    fn verify_padding(&mut self, range: ByteRange) {
        self.count_read(range.len());
        let nonzero = match self.body_window.read(range) {
            Ok(bytes) => bytes.iter().position(|byte| *byte != 0),
            Err(error) => return self.report_finding(FindingKind::NonzeroPadding, error),
        };
        if let Some(at) = nonzero {
            let error = Error::corrupt("expected padding of zero bytes, found a nonzero byte")
                .at_offset(range.start + at as u64);
            self.report_finding(FindingKind::NonzeroPadding, error);
        }
    }
}
