//! Pairs of runs in storage order: runs that were sorted by more bits than the specification selects, merged.
//!
//! A run is spilled before all pairs are seen, so for a specification that is yet to be planned it is sorted by a
//! guess with some bits more. Such a run is in storage order part by part: each part has the same bits above those
//! that the specification selects. So every part is a source of the merge.

use std::ops::Range;

use crate::bulk::merge::Merge;
use crate::bulk::options::OnDuplicate;
use crate::bulk::run::Run;
use crate::bulk::slices::{Slicing, Span, place_bits};
use crate::bulk::{Pairs, SortedPairs};
use crate::error::Result;
use crate::spec::ShardingSpec;

/// The smallest block in which a source of a merge is read.
const MIN_BLOCK: usize = 24 << 10;

/// The largest; more does not make a disk faster.
const MAX_BLOCK: usize = 4 << 20;

/// Runs in the order of insertion, each in the order of the specification at least part by part.
pub(crate) struct RunPairs<'a> {
    runs: &'a [Run],
    spec: ShardingSpec,
    on_duplicate: OnDuplicate,
    /// Of what reads one span.
    memory: usize,
}

/// How many sources can be merged at once in so much memory.
pub(crate) fn fan_in(memory: usize) -> usize {
    (memory / MIN_BLOCK).max(2)
}

/// The number of parts of a run in storage order; `None` if it was sorted otherwise.
pub(crate) fn parts_of(run: &Run, spec: &ShardingSpec) -> Option<usize> {
    part_bits(run.order(), spec).map(|bits| 1 << bits)
}

fn part_bits(order: &ShardingSpec, spec: &ShardingSpec) -> Option<u8> {
    let same_hash = (order.hash_function(), order.preshift_bits()) == (spec.hash_function(), spec.preshift_bits());
    let more_bits = place_bits(order).checked_sub(place_bits(spec))?;
    (same_hash && more_bits <= Slicing::of(order).bits).then_some(more_bits)
}

impl<'a> RunPairs<'a> {
    /// The pairs of runs that have parts by this specification; reading one span takes so much memory.
    pub(crate) fn new(runs: &'a [Run], spec: ShardingSpec, on_duplicate: OnDuplicate, memory: usize) -> RunPairs<'a> {
        RunPairs { runs, spec, on_duplicate, memory }
    }

    /// Each run with its number of bits that make parts, and of those that make slices of a part.
    fn bits(&self) -> impl Iterator<Item = (&'a Run, u8, u8)> {
        self.runs.iter().map(|run| {
            let part_bits = part_bits(run.order(), &self.spec).unwrap_or_default();
            (run, part_bits, Slicing::of(run.order()).bits - part_bits)
        })
    }
}

impl Pairs for RunPairs<'_> {
    fn max_span_bits(&self) -> u8 {
        self.bits().map(|(_, _, slice_bits)| slice_bits).min().unwrap_or_default()
    }

    fn span(&self, span: Span) -> Result<Box<dyn SortedPairs + '_>> {
        let parts = self.bits().flat_map(|(run, part_bits, slice_bits)| {
            let of_part = move |part: usize| -> Range<usize> {
                let (first, slices) = (part << slice_bits, span.slices(slice_bits));
                first + slices.start..first + slices.end
            };
            (0..1 << part_bits).map(move |part| (run, of_part(part)))
        });
        let parts: Vec<(&Run, Range<usize>)> = parts.collect();
        let block = (self.memory / parts.len().max(1)).min(MAX_BLOCK);
        let readers = parts.into_iter().map(|(run, slices)| run.read(slices, block));
        Ok(Box::new(Merge::new(readers, self.spec, self.on_duplicate)?))
    }
}
