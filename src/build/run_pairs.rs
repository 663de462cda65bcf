//! Pairs of runs in storage order: runs that were sorted by more bits than the specification selects, merged.
//!
//! A run is spilled before all pairs are seen, so for a specification that is yet to be planned it is sorted by a
//! guess with some bits more. Such a run is in storage order part by part: each part has the same bits above those
//! that the specification selects. So every part is a source of the merge.

use std::ops::Range;

use crate::build::merge::Merge;
use crate::build::options::OnDuplicate;
use crate::build::run::{OpenRun, Run};
use crate::build::slices::{Slicing, Span, place_bits};
use crate::build::{Pairs, SortedPairs};
use crate::disk;
use crate::error::{Error, Result};
use crate::format::spec::ShardingSpec;

/// The smallest block in which a source of a merge is read.
const MIN_BLOCK: usize = 24 << 10;

/// The largest; larger ones do not make a disk faster.
const MAX_BLOCK: usize = 4 << 20;

/// The most runs that a merge has open.
const MAX_RUNS: usize = 512;

/// Open runs, each in the order of the specification at least part by part.
pub(crate) struct RunPairs<'a> {
    /// Each with the bits of its number of parts.
    runs: Vec<(OpenRun<'a>, u8)>,
    spec: ShardingSpec,
    on_duplicate: OnDuplicate,
    /// Bytes for what reads one span.
    memory: usize,
}

/// What can be merged at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FanIn {
    /// Each source has a block in memory.
    pub(crate) sources: usize,
    /// Each run has a descriptor.
    pub(crate) runs: usize,
}

impl FanIn {
    /// The fan-in for this much memory and the descriptors that the process may open.
    pub(crate) fn new(memory: usize) -> FanIn {
        FanIn { sources: (memory / MIN_BLOCK).max(2), runs: (disk::open_files_limit() / 4).clamp(2, MAX_RUNS) }
    }

    pub(crate) fn has_room_for(self, runs: &[Run], spec: &ShardingSpec) -> bool {
        runs.len() <= self.runs && sources_of(runs, spec) <= self.sources
    }

    /// Whether a group is large enough for an intermediate merge: it leaves room for one more run of many parts.
    pub(crate) fn is_filled_by(self, runs: &[Run], spec: &ShardingSpec) -> bool {
        runs.len() >= self.runs || sources_of(runs, spec) > self.sources / 2
    }
}

/// The number of sources that runs are in a merge; runs of another order count nothing.
pub(crate) fn sources_of(runs: &[Run], spec: &ShardingSpec) -> usize {
    runs.iter().filter_map(|run| parts_of(run, spec)).sum()
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
    /// Opens runs that have parts by this specification; reading one span takes `memory` bytes.
    ///
    /// Takes one descriptor per run, whatever the number of threads.
    pub(crate) fn open(
        runs: &'a [Run],
        spec: ShardingSpec,
        on_duplicate: OnDuplicate,
        memory: usize,
    ) -> Result<RunPairs<'a>> {
        let open = |run: &'a Run| {
            let wrong = || Error::internal("a run that is merged is sorted otherwise");
            let part_bits = part_bits(run.order(), &spec).ok_or_else(wrong)?;
            Ok((run.open()?, part_bits))
        };
        let runs = runs.iter().map(open).collect::<Result<_>>()?;
        Ok(RunPairs { runs, spec, on_duplicate, memory })
    }

    /// Each run with its number of bits that make parts, and of those that make slices of a part.
    fn bits(&self) -> impl Iterator<Item = (&OpenRun<'a>, u8, u8)> {
        self.runs.iter().map(|(run, part_bits)| (run, *part_bits, Slicing::of(run.order()).bits - part_bits))
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
        let parts: Vec<(&OpenRun<'_>, Range<usize>)> = parts.collect();
        let block = (self.memory / parts.len().max(1)).min(MAX_BLOCK);
        let readers = parts.into_iter().map(|(run, slices)| run.read(slices, block));
        Ok(Box::new(Merge::new(readers, self.spec, self.on_duplicate)?))
    }
}
