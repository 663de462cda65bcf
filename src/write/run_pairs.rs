//! Pairs of runs in storage order: a merge of runs that are sorted by more bits than the specification selects.
//!
//! If the caller gives no specification, runs are spilled before the specification is planned. Such a run is sorted by
//! a guess that selects more bits of the hash. It is a sequence of parts: in one part, the additional highest bits are
//! equal, so that the other bits are in the storage order of the specification. Each part is a source of the merge.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::spec::ShardingSpec;
use crate::fs::disk;
use crate::write::bands::{Banding, Span, place_bits};
use crate::write::duplicates::Duplicates;
use crate::write::large::LargeFileReader;
use crate::write::merge::Merge;
use crate::write::run::{OpenRun, Run};
use crate::write::{Pairs, SortedPairs};

/// Minimum memory for reading a source of a merge, in bytes. Limits the number of sources.
const MIN_BLOCK: usize = 24 << 10;

/// Maximum memory for reading a source, in bytes: a block of headers and one of values. More is no faster.
const MAX_BLOCK: usize = 4 << 20;

/// Open runs, each of which consists of parts in the order of the specification.
pub(crate) struct RunPairs<'a> {
    /// Each run with the binary logarithm of its number of parts.
    runs: Vec<(OpenRun<'a>, u8)>,
    spec: ShardingSpec,
    duplicates: Duplicates,
    large: Option<&'a LargeFileReader>,
    /// Memory for reading one span, in bytes.
    memory: usize,
}

/// The limits of one merge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FanIn {
    /// Maximum number of sources. Each takes a block of memory.
    pub(crate) sources: usize,
    /// Maximum number of runs. Each takes a file descriptor.
    pub(crate) runs: usize,
}

impl FanIn {
    /// Computes the fan-in from the memory in bytes and the descriptor limit of the process. A merge has at most
    /// `max_open_runs` runs open.
    pub(crate) fn new(memory: usize, max_open_runs: usize) -> FanIn {
        FanIn { sources: (memory / MIN_BLOCK).max(2), runs: (disk::open_files_limit() / 4).clamp(2, max_open_runs) }
    }

    pub(crate) fn has_room_for(self, runs: &[Run], spec: &ShardingSpec) -> bool {
        runs.len() <= self.runs && sources_of(runs, spec) <= self.sources
    }

    /// Returns whether a group of runs is large enough for an intermediate merge, which replaces them by one run.
    ///
    /// A group is closed by the first run that takes it above half the sources. That run usually has at most eight
    /// parts and so still fits; if it does not, only the read blocks get smaller.
    pub(crate) fn is_filled_by(self, runs: &[Run], spec: &ShardingSpec) -> bool {
        runs.len() >= self.runs || sources_of(runs, spec) > self.sources / 2
    }
}

/// Returns the number of merge sources of some runs. Ignores runs of an incompatible order; `sort_again` leaves none.
pub(crate) fn sources_of(runs: &[Run], spec: &ShardingSpec) -> usize {
    runs.iter().filter_map(|run| parts_of(run, spec)).sum()
}

/// Returns the number of parts of a run; `None` if its order is incompatible with the specification.
pub(crate) fn parts_of(run: &Run, spec: &ShardingSpec) -> Option<usize> {
    part_bits(run.order(), spec).map(|bits| 1 << bits)
}

fn part_bits(order: &ShardingSpec, spec: &ShardingSpec) -> Option<u8> {
    let same_hash = (order.hash_function(), order.preshift_bits()) == (spec.hash_function(), spec.preshift_bits());
    let more_bits = place_bits(order).checked_sub(place_bits(spec))?;
    // a part consists of whole bands, whose starts are what a run records
    (same_hash && more_bits <= Banding::of(order).bits).then_some(more_bits)
}

impl<'a> RunPairs<'a> {
    /// Opens runs whose order is compatible with the specification. Reading one span takes about `memory` bytes.
    ///
    /// Takes one descriptor per run, regardless of the number of threads.
    pub(crate) fn open(
        runs: &'a [Run],
        spec: ShardingSpec,
        duplicates: Duplicates,
        large: Option<&'a LargeFileReader>,
        memory: usize,
    ) -> Result<RunPairs<'a>> {
        let open = |run: &'a Run| {
            let wrong = || Error::internal("a run to merge has an order that is incompatible with the specification");
            let part_bits = part_bits(run.order(), &spec).ok_or_else(wrong)?;
            Ok((run.open()?, part_bits))
        };
        let runs = runs.iter().map(open).collect::<Result<_>>()?;
        Ok(RunPairs { runs, spec, duplicates, large, memory })
    }

    /// Iterates over (run, bits that select a part, bits that select a band of a part).
    fn bits(&self) -> impl Iterator<Item = (&OpenRun<'a>, u8, u8)> {
        self.runs.iter().map(|(run, part_bits)| (run, *part_bits, Banding::of(run.order()).bits - part_bits))
    }
}

impl Pairs for RunPairs<'_> {
    fn max_span_bits(&self) -> u8 {
        self.bits().map(|(_, _, band_bits)| band_bits).min().unwrap_or_default()
    }

    fn span(&self, span: Span) -> Result<Box<dyn SortedPairs + '_>> {
        let parts = self.bits().flat_map(|(run, part_bits, band_bits)| {
            let of_part = move |part: usize| -> Range<usize> {
                let (first, bands) = (part << band_bits, span.bands(band_bits));
                first + bands.start..first + bands.end
            };
            (0..1 << part_bits).map(move |part| (run, of_part(part)))
        });
        let parts: Vec<(&OpenRun<'_>, Range<usize>)> = parts.collect();
        let block = (self.memory / parts.len().max(1)).min(MAX_BLOCK);
        let readers = parts.into_iter().map(|(run, bands)| run.read(bands, block));
        Ok(Box::new(Merge::new(readers, self.spec, self.duplicates, self.large)?))
    }
}
