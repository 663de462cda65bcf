//! The sorter: takes pairs in any order and any amount, and returns them in storage order, in bounded memory.
//!
//! ```text
//! add      pairs are collected in batches; threads encode and checksum them; they stay in memory while they fit
//!          when they do not: batches are sorted and spilled, a quarter of their memory per run
//!          a pair of more than an eighth of the memory of batches goes to the file of large pairs; the batch gets only
//!          its header
//! sort     without a specification: plan one from statistics collected during insertion
//!          nothing was spilled: the pairs are read directly from memory
//!          else: runs whose guessed order is incompatible with the specification are sorted again;
//!          runs are merged until one merge can read all; threads merge the remaining runs
//! ```
//!
//! Files are written and read sequentially in large blocks. If no specification is given, runs are spilled before one
//! is planned, so they are sorted by a guessed one that selects more bits; `run_pairs` explains how they are merged.
//!
//! The insertion order is (batch number, position in the batch). Unless duplicates are errors, headers in runs carry
//! the number of their batch and merges order by it, so the result does not depend on which batches a run consists of.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::layout::ValueAlignment;
use crate::format::spec::{Encoding, ShardingSpec};
use crate::threads::progress::Phase;
use crate::write::Pairs;
use crate::write::arena::Arena;
use crate::write::bands::Span;
use crate::write::batch::{self, Batch, Totals};
use crate::write::duplicates::Duplicates;
use crate::write::large::{LargeFileReader, LargeFileWriter};
use crate::write::memory_pairs::{BandedBatch, MemoryPairs};
use crate::write::memory_split::MemorySplit;
use crate::write::options::{BuildOptions, OnDuplicate};
use crate::write::run::{Run, run_path};
use crate::write::run_pairs::{self, FanIn, RunPairs};
use crate::write::shard_file::{PairHeader, check_value_len};
use crate::write::workers::{Done, Task, Workers};

/// Number of bits that the guessed order of a run selects in addition to those of a plan for the pairs so far.
///
/// If the final plan has the same number of bits, the run has `2^3` parts; each bit that the plan gains halves that.
/// If the plan gains more than three bits, the run must be sorted again.
const MORE_BITS: u8 = 3;

/// Pairs that are being sorted.
///
/// After an error of any method the pairs cannot be sorted.
pub(crate) struct Sorter {
    options: BuildOptions,
    duplicates: Duplicates,
    /// How values are encoded when they are added.
    data_encoding: Encoding,
    spill_dir: PathBuf,
    budget: MemorySplit,
    fan_in: FanIn,
    /// Cost of the batches that are encoded, being encoded or being spilled, in bytes.
    ///
    /// Includes neither `batch` nor `spare`: the memory in `spare` was counted until its batches were spilled, and is
    /// used up before new batches allocate.
    in_use: usize,
    batch: Batch,
    first_batch: u64,
    next_batch_number: u64,
    /// Batches that are encoded and not spilled.
    encoded: Vec<Batch>,
    /// Number of batches that are being encoded.
    encoding: usize,
    /// Memory of spilled batches, for the next ones.
    spare: Vec<Arena>,
    /// Totals of all pairs that are encoded.
    totals: Totals,
    dropped: u64,
    /// Whether an insertion failed or panicked, so that a pair may be missing or incomplete.
    failed: bool,
    workers: Workers,
    runs: Vec<Run>,
    /// The file of large pairs, once there is one.
    large: Option<LargeFileWriter>,
}

/// Sorted pairs. Their files are in the spill directory of the sorter.
pub(crate) struct Sorted {
    pub(crate) spec: ShardingSpec,
    pub(crate) totals: Totals,
    /// Number of pairs that the sorter dropped because of a duplicate key. Reading the pairs may drop more.
    pub(crate) dropped: u64,
    duplicates: Duplicates,
    budget: MemorySplit,
    fan_in: FanIn,
    /// The pairs, if nothing was spilled.
    batches: Vec<BandedBatch>,
    runs: Vec<Run>,
    large: Option<LargeFileReader>,
}

impl Sorter {
    /// Begins a sort. The spill directory must exist as long as the sorter and its pairs. The names of its files begin
    /// with numbers from `first_batch` on, so that several sorters can share a directory.
    ///
    /// Without a specification in `options`, one is planned for their profile.
    pub(crate) fn new(
        options: &BuildOptions,
        duplicates: Duplicates,
        data_encoding: Encoding,
        spill_dir: &Path,
        first_batch: u64,
    ) -> Result<Sorter> {
        let budget = MemorySplit::new(options.memory_now(), options.thread_count());
        let workers = Workers::start(options, duplicates, budget.threads, data_encoding, spill_dir);
        Ok(Sorter {
            duplicates,
            data_encoding,
            spill_dir: spill_dir.to_path_buf(),
            budget,
            fan_in: FanIn::new(budget.merge, options.max_open_runs),
            in_use: 0,
            batch: Batch::new(first_batch, Arena::default(), budget.batch)?,
            next_batch_number: first_batch + 1,
            first_batch,
            encoded: Vec::new(),
            encoding: 0,
            spare: Vec::new(),
            totals: Totals::default(),
            dropped: 0,
            failed: false,
            workers,
            runs: Vec::new(),
            large: None,
            options: options.clone(),
        })
    }

    /// Begins the sort of a build. Values are encoded when they are added or, with a merge function, after it.
    pub(crate) fn of_build(options: &BuildOptions, spill_dir: &Path) -> Result<Sorter> {
        let data_encoding = match options.on_duplicate {
            OnDuplicate::Merge(_) => Encoding::Raw,
            _ => options.encoding(),
        };
        Sorter::new(options, options.on_duplicate.in_a_sort(), data_encoding, spill_dir, 0)
    }

    /// Adds a pair. May wait for the threads while memory is full.
    #[inline]
    pub(crate) fn add(&mut self, key: u64, lens: (u64, u64), source: Source<'_>) -> Result<()> {
        let failed_before = std::mem::replace(&mut self.failed, true); // remains true if the reader panics
        let added = if lens.0 > 0 && self.options.value_alignment > ValueAlignment::One {
            self.add_after_padding(key, lens, source)
        } else {
            self.add_pair(key, lens, source)
        };
        self.failed = failed_before || added.is_err();
        self.options.progress.add(lens.0 + lens.1);
        added
    }

    /// Adds a pair whose preamble may follow padding.
    #[cold]
    fn add_after_padding(&mut self, key: u64, lens: (u64, u64), source: Source<'_>) -> Result<()> {
        let alignment = self.options.value_alignment;
        let check = |preamble: &[u8]| alignment.check_preamble(preamble).map_err(|error| error.at_key(key));
        match source {
            Source::Slices(preamble, _) => {
                check(preamble)?;
                self.add_pair(key, lens, source)
            }
            Source::Reader(reader) => {
                let mut first = [0];
                let read = reader.read_exact(&mut first);
                read.map_err(|error| Error::io("read a pair from the reader", Path::new(""), error).at_key(key))?;
                check(&first)?;
                self.add_pair(key, lens, Source::Reader(&mut first.chain(reader)))
            }
        }
    }

    #[inline]
    fn add_pair(&mut self, key: u64, lens: (u64, u64), source: Source<'_>) -> Result<()> {
        let cost = Batch::cost_of(lens.0, lens.1, self.data_encoding);
        let cost = usize::try_from(cost).unwrap_or(usize::MAX);
        if cost > self.budget.max_pair() {
            return self.add_large_pair(key, lens, source);
        }
        self.make_room_in_batch(cost)?;
        self.batch.push(&PairHeader::new(key, lens.0, lens.1), cost, |to| source.fill(to, key))
    }

    /// Adds a mark that deletes a key, in place of a pair. It orders among the pairs of the key by insertion.
    pub(crate) fn delete(&mut self, key: u64) -> Result<()> {
        let failed_before = std::mem::replace(&mut self.failed, true);
        let header = PairHeader { is_deleted: true, ..PairHeader::new(key, 0, 0) };
        let added = self.make_room_in_batch(Batch::LARGE_COST);
        let added = added.and_then(|()| self.batch.push(&header, Batch::LARGE_COST, |_| Ok(())));
        self.failed = failed_before || added.is_err();
        added
    }

    /// Writes the bytes of a pair directly to the file of large pairs and adds its header to the batch.
    #[cold]
    fn add_large_pair(&mut self, key: u64, lens: (u64, u64), source: Source<'_>) -> Result<()> {
        self.options.progress.check()?;
        check_value_len(key, lens.1, self.data_encoding)?;
        let large = match &mut self.large {
            Some(large) => large,
            none => none.insert(LargeFileWriter::create(&self.spill_dir, self.first_batch)?),
        };
        let header = match source {
            Source::Slices(preamble, value) => large.write(key, lens, &mut preamble.chain(value), self.data_encoding),
            Source::Reader(reader) => large.write(key, lens, reader, self.data_encoding),
        };
        let header = header.map_err(|error| error.at_key(key))?;
        self.make_room_in_batch(Batch::LARGE_COST)?;
        self.batch.push(&header, Batch::LARGE_COST, |_| Ok(()))
    }

    /// Begins a new batch unless the current one has room for a pair of this cost.
    #[inline]
    fn make_room_in_batch(&mut self, cost: usize) -> Result<()> {
        if self.batch.cost() + cost > self.budget.batch {
            self.next_batch(cost)?;
        }
        Ok(())
    }

    /// Passes the current batch to the threads and begins a new one with room for a pair of this cost.
    #[cold]
    fn next_batch(&mut self, cost: usize) -> Result<()> {
        self.options.progress.check()?;
        self.submit()?;
        let capacity = self.budget.batch.max(cost);
        self.make_room(capacity)?;
        self.batch = Batch::new(self.next_batch_number, self.spare.pop().unwrap_or_default(), capacity)?;
        self.next_batch_number += 1;
        Ok(())
    }

    /// Passes the current batch to the threads.
    fn submit(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let full = std::mem::take(&mut self.batch);
        self.in_use += full.cost();
        self.encoding += 1;
        self.workers.give(Task::Encode(full))
    }

    /// Spills batches, and waits for the threads, until there is memory for a batch of this capacity.
    fn make_room(&mut self, capacity: usize) -> Result<()> {
        while let Some(done) = self.workers.try_wait()? {
            self.take(done);
        }
        while self.in_use + capacity > self.budget.batches && self.in_use > 0 {
            let idle = self.workers.under_way() < self.workers.count();
            // spills only when no batch is being encoded, because the order of a run is planned from the statistics of
            // all pairs so far
            if self.encoding == 0 && idle && !self.encoded.is_empty() { self.spill()? } else { self.wait()? }
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        let done = self.workers.wait()?;
        self.take(done);
        Ok(())
    }

    /// Records the result of a task.
    fn take(&mut self, done: Done) {
        match done {
            Done::Encoded { batch, totals, cost_before } => {
                self.encoding -= 1;
                self.in_use = self.in_use - cost_before + batch.cost();
                self.totals.merge(totals);
                self.encoded.push(batch);
            }
            Done::RunWritten { run, dropped, memory, cost_before } => {
                self.in_use -= cost_before;
                self.dropped += dropped;
                self.spare.extend(memory);
                self.runs.push(run);
            }
            Done::Banded(_) => {} // only `band` gives this task, and it takes the result itself
        }
    }

    /// Passes the first encoded batches to the threads as one run: the most that `max_run` allows, but at least one.
    fn spill(&mut self) -> Result<()> {
        self.encoded.sort_unstable_by_key(|batch| batch.number);
        let mut cost = 0;
        let of_a_run = self.encoded.iter().take_while(|batch| {
            cost += batch.cost();
            cost <= self.budget.max_run()
        });
        let count = of_a_run.count().max(1);
        let batches: Vec<Batch> = self.encoded.drain(..count).collect();
        let order = self.options.spec.unwrap_or_else(|| with_more_bits(self.planned_spec()));
        self.workers.give(Task::Spill { batches, order })
    }

    /// Returns the number of runs that were spilled so far.
    #[cfg(test)]
    pub(crate) fn spilled_runs(&self) -> usize {
        self.runs.len()
    }

    /// Sorts all pairs. O(n log n) for n pairs.
    pub(crate) fn sort(mut self) -> Result<Sorted> {
        if self.failed {
            let message = "cannot finish the build, because an insertion failed: begin the build again";
            return Err(Error::invalid_input(message));
        }
        self.submit()?;
        while self.encoding > 0 {
            self.wait()?;
        }
        let spec = self.options.spec.unwrap_or_else(|| self.planned_spec());
        let large = self.large.take().map(LargeFileWriter::finish).transpose()?;
        // nothing is being encoded, so every task under way is a spill
        let batches = if self.runs.is_empty() && self.workers.under_way() == 0 {
            self.band(spec)?
        } else {
            self.spill_and_merge(spec)?;
            Vec::new()
        };
        let Sorter { totals, dropped, duplicates, budget, fan_in, runs, .. } = self;
        Ok(Sorted { spec, totals, dropped, duplicates, budget, fan_in, batches, runs, large })
    }

    /// Puts the pairs of all batches into the order of bands, in memory.
    fn band(&mut self, spec: ShardingSpec) -> Result<Vec<BandedBatch>> {
        self.spare.clear();
        let batches = std::mem::take(&mut self.encoded);
        let count = batches.len();
        for batch in batches {
            self.workers.give(Task::Band(batch, spec))?;
        }
        let mut banded = Vec::with_capacity(count);
        while self.workers.under_way() > 0 {
            match self.workers.wait()? {
                Done::Banded(batch) => banded.push(batch),
                other => self.take(other),
            }
        }
        banded.sort_unstable_by_key(BandedBatch::number);
        Ok(banded)
    }

    /// Spills the remaining batches, and sorts and merges runs until one merge can read all of them.
    fn spill_and_merge(&mut self, spec: ShardingSpec) -> Result<()> {
        while !self.encoded.is_empty() {
            self.spill()?;
        }
        self.wait_for_all()?;
        self.spare.clear();
        self.sort_again(spec)?;
        self.merge_levels(spec, self.fan_in)
    }

    fn wait_for_all(&mut self) -> Result<()> {
        while self.workers.under_way() > 0 {
            self.wait()?;
        }
        Ok(())
    }

    /// Plans a specification for the pairs so far.
    fn planned_spec(&self) -> ShardingSpec {
        self.options.plan(&self.workers.stats(), self.data_encoding)
    }

    /// Re-sorts the runs whose guessed order does not match the specification.
    fn sort_again(&mut self, spec: ShardingSpec) -> Result<()> {
        /// Number of runs that are re-sorted at once. Each usually takes at most a quarter of the memory of batches, as
        /// its batches did before the spill.
        const AT_ONCE: usize = 3;
        self.options.progress.begin(Phase::Sort, self.runs.iter().map(Run::value_region_bytes).sum());
        for run in std::mem::take(&mut self.runs) {
            if run_pairs::parts_of(&run, &spec).is_some() {
                self.options.progress.add(run.value_region_bytes());
                self.runs.push(run);
                continue;
            }
            self.options.progress.check()?;
            while self.workers.under_way() >= AT_ONCE {
                self.wait()?;
            }
            self.workers.give(Task::Resort { run, order: spec, batch_len: self.budget.batch })?;
        }
        self.wait_for_all()
    }

    /// Merges groups of runs until one merge can read all remaining runs.
    fn merge_levels(&mut self, spec: ShardingSpec, fan_in: FanIn) -> Result<()> {
        while !fan_in.has_room_for(&self.runs, &spec) {
            self.options.progress.begin(Phase::Merge, self.runs.iter().map(Run::value_region_bytes).sum());
            let mut group = Vec::new();
            for run in std::mem::take(&mut self.runs) {
                group.push(run);
                if fan_in.is_filled_by(&group, &spec) {
                    let merged = self.merge_group(spec, std::mem::take(&mut group))?;
                    self.runs.push(merged);
                }
            }
            self.runs.append(&mut group);
        }
        Ok(())
    }

    fn merge_group(&mut self, spec: ShardingSpec, group: Vec<Run>) -> Result<Run> {
        self.options.progress.check()?;
        let headers_at_most = group.iter().map(Run::headers_len).sum();
        // a spilled run is named by the number of its first batch; a merged run takes a number that no batch has
        let path = run_path(&self.spill_dir, self.next_batch_number);
        self.next_batch_number += 1;
        let pairs = RunPairs::open(&group, spec, self.duplicates, None, self.budget.merge)?;
        let mut merge = pairs.span(Span::ALL)?;
        let run = Run::write(path, spec, self.duplicates, headers_at_most, &mut *merge)?;
        self.options.progress.add(run.value_region_bytes());
        self.dropped += merge.dropped();
        drop(merge);
        drop(pairs);
        group.into_iter().try_for_each(Run::remove)?;
        Ok(run)
    }
}

impl Sorted {
    /// Opens the pairs for reading, once. Also returns the number of threads that may read them.
    pub(crate) fn open(&mut self) -> Result<(Box<dyn Pairs + '_>, usize)> {
        let large = self.large.as_ref();
        if self.runs.is_empty() {
            let batches = std::mem::take(&mut self.batches);
            return Ok((Box::new(MemoryPairs::new(batches, self.spec, self.duplicates, large)), self.budget.threads));
        }
        // each thread reads all sources, each for its own span, so threads times sources must be within the fan-in
        let sources = run_pairs::sources_of(&self.runs, &self.spec);
        let threads = self.budget.threads.min(self.fan_in.sources / sources.max(1)).max(1);
        let memory = self.budget.merge / threads;
        Ok((Box::new(RunPairs::open(&self.runs, self.spec, self.duplicates, large, memory)?), threads))
    }

    /// Returns the memory for the headers of the minishards that are being written, in bytes.
    pub(crate) fn memory_of_minishards(&self) -> usize {
        self.budget.minishards
    }
}

/// Returns the order of runs that are spilled before the final plan: `spec` with [`MORE_BITS`] more shard bits.
fn with_more_bits(spec: ShardingSpec) -> ShardingSpec {
    let shard_bits = (spec.shard_bits() + MORE_BITS).min(64 - spec.minishard_bits());
    let more = ShardingSpec::new(spec.hash_function(), spec.preshift_bits(), spec.minishard_bits(), shard_bits);
    more.unwrap_or(spec)
}

/// The source of the bytes of an inserted pair.
pub(crate) enum Source<'a> {
    Slices(&'a [u8], &'a [u8]),
    Reader(&'a mut dyn Read),
}

impl Source<'_> {
    /// Fills `to` with the preamble and the value.
    #[inline]
    fn fill(self, to: &mut [u8], key: u64) -> Result<()> {
        match self {
            Source::Slices(preamble, value) => {
                batch::copy_both(preamble, value, to);
                Ok(())
            }
            Source::Reader(reader) => {
                let read = reader.read_exact(to);
                read.map_err(|error| Error::io("read a pair from the reader", Path::new(""), error).at_key(key))
            }
        }
    }
}
