//! The bulk loader: sorts pairs of any order and amount in bounded memory and publishes them as a generation.
//!
//! ```text
//! insert   pairs are collected in batches; threads encode and checksum them; they stay in memory while they fit
//!          when they do not: batches are sorted and spilled as a run, a quarter of the memory at once
//!          a pair of more than an eighth of the memory of batches goes to the file of large pairs; the batch has its
//!          header
//! finish   without a specification: plan one from statistics collected during insertion
//!          nothing was spilled: threads write shards directly from memory
//!          else: runs whose guessed order does not fit are sorted again; runs are merged until one merge can read all;
//!          threads merge the rest into shards
//!          info, manifest, sync, publish
//! ```
//!
//! Files are written and read sequentially in large blocks. If no specification is given, runs are spilled before one
//! is planned, so they are sorted by a guessed one with some more bits; `run_pairs` explains how they are merged.
//!
//! The insertion order is (batch number, position in the batch). Unless duplicates are errors, headers in runs carry the
//! number of their batch and merges order by it, so the result does not depend on which batches a run consists of.

mod arena;
mod batch;
mod candidate;
mod from_pairs;
mod large;
mod memory_pairs;
mod merge;
mod minishard_table;
#[cfg(test)]
mod model_tests;
mod options;
mod record;
mod run;
mod run_pairs;
mod shard_body;
mod shard_writer;
mod shards;
mod slices;
mod workers;

use std::fmt;
use std::io::Read;
use std::path::Path;

pub use candidate::{Candidate, Published};
pub use options::{BuildOptions, BuildPhase, BuildProgress, OnDuplicate};
pub use shard_body::ShardSummary;
pub use shard_writer::ShardWriter;

use crate::build::arena::Arena;
use crate::build::batch::{Batch, Seen};
use crate::build::large::{LargeFileReader, LargeFileWriter};
use crate::build::memory_pairs::{MemoryPairs, SlicedBatch};
use crate::build::options::MIN_MEMORY;
use crate::build::run::{Run, run_path};
use crate::build::run_pairs::{FanIn, RunPairs};
use crate::build::shard_body::{PairBytes, PairHeader, check_value_len};
use crate::build::shards::{ShardIndexLimit, ShardsJob, Written};
use crate::build::slices::Span;
use crate::build::workers::{Done, Task, Workers};
use crate::disk;
use crate::error::{Error, Result};
use crate::format::info::Info;
use crate::format::layout::Layout;
use crate::format::manifest::{Manifest, ShardRecord};
use crate::format::spec::{Encoding, ShardingSpec};
use crate::plan::Plan;
use crate::store::{PendingGeneration, Store};

/// Upper bound on a batch in bytes, unless that makes more than [`MANY_BATCHES`]. Larger batches are no faster, and
/// small ones keep all threads busy.
const MAX_BATCH: usize = 64 << 20;

/// Upper bound on the number of batches, up to twice that if half full. Each has up to 16 pieces, which are memory maps;
/// Linux allows a process about 65,000.
const MANY_BATCHES: usize = 512;

/// Upper bound on a batch and on a pair in it, in bytes, so that an offset within a batch fits into 32 bits.
const MAX_PAIR: usize = 1 << 30;

/// Minimum memory per thread in bytes. A thread with less is not worth starting.
const MIN_PER_THREAD: usize = 8 << 20;

/// Memory of a thread besides the pairs, in bytes: its write blocks.
const THREAD_OVERHEAD: usize = 3 << 20;

/// Number of bits that a run is sorted by beyond those of a plan for the pairs so far.
///
/// If the final plan has the same number of bits, the run has `2^3` parts; each bit that the plan gains halves that. After
/// more than three gained bits the run must be sorted again.
const MORE_BITS: u8 = 3;

/// All pairs of a build, readable in storage order span by span.
pub(crate) trait Pairs: Sync {
    /// Returns the largest `n` such that the pairs can be split into `2^n` spans.
    fn max_span_bits(&self) -> u8;

    /// Returns the pairs of one span. Call it once per span: it may take them out.
    fn span(&self, span: Span) -> Result<Box<dyn SortedPairs + '_>>;
}

/// Pairs in storage order, by place and then key, each key once. Their bytes can be copied in the same order.
pub(crate) trait SortedPairs: PairBytes {
    /// Returns the place and the header of the next pair.
    fn next(&mut self) -> Result<Option<(u64, PairHeader)>>;

    /// Returns the number of pairs that were dropped because of a duplicate key.
    fn dropped(&self) -> u64;
}

/// Builds and publishes a generation of a store from pairs in any order and any amount.
///
/// Memory use stays below [`BuildOptions::memory`]. Pairs that do not fit are spilled to a temporary directory.
/// Equal pairs and options produce equal bytes, regardless of threads, memory, time and the order of insertion, except
/// that of duplicate keys.
/// A loader that is dropped before [`finish`](BulkLoader::finish) leaves no files behind.
///
/// ```
/// # fn main() -> sharddb::Result<()> {
/// # let store = std::env::temp_dir().join(format!("sharddb-bulk-doc-{}", std::process::id()));
/// let mut loader = sharddb::BulkLoader::create_default(&store)?;
/// loader.insert(7, b"seven")?;
/// loader.insert(3, b"three")?;
/// let published = loader.finish()?;
/// assert_eq!(published.keys, 2);
///
/// let db = sharddb::ShardDb::open_pread(&store)?;
/// assert_eq!(db.get(7)?.unwrap(), b"seven");
/// # std::fs::remove_dir_all(&store).unwrap();
/// # Ok(()) }
/// ```
pub struct BulkLoader {
    options: BuildOptions,
    data_encoding: Encoding,
    budget: Budget,
    /// Memory of all batches except `batch`, in bytes.
    in_use: usize,
    batch: Batch,
    next_number: u64,
    /// Batches that are encoded and not spilled.
    encoded: Vec<Batch>,
    /// Number of batches that are being encoded.
    encoding: usize,
    /// Memory of spilled batches, reused for the next ones.
    spare: Vec<Arena>,
    seen: Seen,
    dropped: u64,
    /// An insertion failed or panicked, so a pair may be missing or incomplete.
    failed: bool,
    // these fields are in drop order: the threads must end before `pending` removes the directory that they write to
    workers: Workers,
    runs: Vec<Run>,
    /// The file of large pairs, once there is one.
    large: Option<LargeFileWriter>,
    pending: PendingGeneration,
}

/// The split of the memory limit, in bytes.
#[derive(Clone, Copy, Debug)]
struct Budget {
    threads: usize,
    /// For all batches, including what sorting them takes.
    batches: usize,
    /// For one batch.
    batch: usize,
    /// For reading the runs of a merge.
    merge: usize,
    /// For the headers of the minishards being written.
    minishards: usize,
}

impl Budget {
    fn new(memory: u64, threads: usize) -> Budget {
        // tests set less than the minimum to reach the thresholds; the memory bound does not matter to them
        let (min_per_thread, overhead) = if memory < MIN_MEMORY { (1, 0) } else { (MIN_PER_THREAD, THREAD_OVERHEAD) };
        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
        let threads = threads.min(memory / min_per_thread).max(1);
        let blocks = threads * overhead;
        let minishards = memory / 8;
        let batches = memory.saturating_sub(minishards + blocks);
        let merge = (memory / 8 * 6).saturating_sub(blocks);
        // while batches are sliced, each thread also holds the pieces of one; the memory of minishards is not used yet
        let batch = (batches / (8 * threads).max(16)).min(MAX_BATCH).max(batches / MANY_BATCHES).min(MAX_PAIR);
        Budget { threads, batches, batch, merge, minishards }
    }

    /// Returns the maximum cost (`Batch::cost_of`) of a pair in a batch. A larger pair goes to the file of large pairs.
    fn pair(&self) -> usize {
        (self.batches / 8).min(MAX_PAIR)
    }

    /// Returns the amount that is spilled at once.
    fn run(&self) -> usize {
        self.batches / 4
    }
}

impl BulkLoader {
    /// Returns the default options. [`BuildOptions::create`] begins the build.
    pub fn options() -> BuildOptions {
        BuildOptions::default()
    }

    /// Creates a loader with default options.
    ///
    /// # Errors
    ///
    /// Those of [`BuildOptions::create`].
    pub fn create_default(store: impl AsRef<Path>) -> Result<BulkLoader> {
        BuildOptions::default().create(store)
    }

    fn create(store: &Path, options: BuildOptions) -> Result<BulkLoader> {
        if let Some(info) = &options.info {
            Info::check(info)?; // fail before the build rather than at its end
        }
        let begin = || Store::create(store)?.writer()?.begin(options.temp_dir.as_deref());
        let pending = disk::with_sync(options.durable, begin)?;
        let data_encoding = match options.spec {
            Some(spec) => spec.data_encoding(),
            None => options.data_encoding.unwrap_or_default(),
        };
        let budget = Budget::new(options.memory, options.threads);
        let workers = Workers::start(&options, budget.threads, data_encoding, pending.spill_dir());
        options.progress.begin(BuildPhase::Insert, 0);
        Ok(BulkLoader {
            data_encoding,
            budget,
            in_use: 0,
            batch: Batch::new(0, Arena::default(), budget.batch)?,
            next_number: 1,
            encoded: Vec::new(),
            encoding: 0,
            spare: Vec::new(),
            seen: Seen::default(),
            dropped: 0,
            failed: false,
            workers,
            runs: Vec::new(),
            large: None,
            pending,
            options,
        })
    }

    /// Adds a pair.
    ///
    /// Copies the value. May wait for the threads while memory is full.
    ///
    /// # Errors
    ///
    /// - `Io` from spilling this pair or an earlier one.
    /// - `DuplicateKey`, for this key or an earlier one; [`finish`](BulkLoader::finish) reports it at the latest.
    /// - `TooLarge` for a gzip value of more than 1 GiB, which readers refuse by default.
    /// - `Cancelled`, and `Internal`.
    ///
    /// After an error the build cannot be finished.
    #[inline]
    pub fn insert(&mut self, key: u64, value: impl AsRef<[u8]>) -> Result<()> {
        self.insert_with_prefix(key, &[], value.as_ref())
    }

    /// Adds all pairs of an iterator.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](BulkLoader::insert). Stops at the first pair that fails.
    ///
    /// ```
    /// # let store = std::env::temp_dir().join(format!("sharddb-extend-doc-{}", std::process::id()));
    /// let mut loader = sharddb::BulkLoader::create_default(&store)?;
    /// loader.extend((0..1000).map(|key| (key, format!("value {key}"))))?;
    /// assert_eq!(loader.finish()?.keys, 1000);
    /// # std::fs::remove_dir_all(&store).unwrap();
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn extend<V: AsRef<[u8]>>(&mut self, pairs: impl IntoIterator<Item = (u64, V)>) -> Result<()> {
        pairs.into_iter().try_for_each(|(key, value)| self.insert(key, value))
    }

    /// Adds all pairs of an iterator whose items may be errors, such as the lines of a file.
    ///
    /// # Errors
    ///
    /// The first error of the iterator or of [`insert`](BulkLoader::insert). The pairs before it were added.
    ///
    /// ```
    /// # let store = std::env::temp_dir().join(format!("sharddb-try-extend-doc-{}", std::process::id()));
    /// use std::io::BufRead;
    ///
    /// let mut loader = sharddb::BulkLoader::create_default(&store)?;
    /// let lines = b"one\ntwo\n".lines().enumerate();
    /// loader.try_extend::<_, std::io::Error>(lines.map(|(at, line)| Ok((at as u64, line?))))?;
    /// assert_eq!(loader.finish()?.keys, 2);
    /// # std::fs::remove_dir_all(&store).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_extend<V: AsRef<[u8]>, E: From<Error>>(
        &mut self,
        pairs: impl IntoIterator<Item = Result<(u64, V), E>>,
    ) -> Result<(), E> {
        pairs.into_iter().try_for_each(|pair| {
            let (key, value) = pair?;
            self.insert(key, value).map_err(E::from)
        })
    }

    /// Adds a pair with a prefix: bytes that are stored directly before the value and are never encoded.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](BulkLoader::insert).
    pub fn insert_with_prefix(&mut self, key: u64, prefix: &[u8], value: &[u8]) -> Result<()> {
        self.add(key, (prefix.len() as u64, value.len() as u64), Source::Slices(prefix, value))
    }

    /// Adds a pair whose prefix and value are read from `reader`, in this order.
    ///
    /// Takes constant memory for any length. After a panic of the reader the build cannot be finished.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](BulkLoader::insert), and `Io` if the reader fails or ends early.
    pub fn insert_reader(&mut self, key: u64, prefix_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()> {
        self.add(key, (prefix_len, value_len), Source::Reader(reader))
    }

    fn add(&mut self, key: u64, lens: (u64, u64), source: Source<'_>) -> Result<()> {
        let failed_before = std::mem::replace(&mut self.failed, true); // stays true if the source panics
        let added = self.add_pair(key, lens, source);
        self.failed = failed_before || added.is_err();
        self.options.progress.add(lens.0 + lens.1);
        added
    }

    #[inline]
    fn add_pair(&mut self, key: u64, lens: (u64, u64), source: Source<'_>) -> Result<()> {
        let cost = Batch::cost_of(lens.0, lens.1, self.data_encoding);
        let cost = usize::try_from(cost).unwrap_or(usize::MAX);
        if cost > self.budget.pair() {
            return self.add_large_pair(key, lens, source);
        }
        self.make_room_in_batch(cost)?;
        self.batch.push(&PairHeader::new(key, lens.0, lens.1), cost, |to| source.fill(to, key))
    }

    /// Writes the bytes of a pair directly to the file of large pairs and adds its header to the batch.
    #[cold]
    fn add_large_pair(&mut self, key: u64, lens: (u64, u64), source: Source<'_>) -> Result<()> {
        self.options.check_cancel()?;
        check_value_len(key, lens.1, self.data_encoding)?;
        let large = match &mut self.large {
            Some(large) => large,
            none => none.insert(LargeFileWriter::create(self.pending.spill_dir())?),
        };
        let header = match source {
            Source::Slices(prefix, value) => large.write(key, lens, &mut prefix.chain(value), self.data_encoding),
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
        self.options.check_cancel()?;
        self.submit()?;
        let capacity = self.budget.batch.max(cost);
        self.make_room(capacity)?;
        self.batch = Batch::new(self.next_number, self.spare.pop().unwrap_or_default(), capacity)?;
        self.next_number += 1;
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

    /// Spills batches until there is memory for a batch of this capacity.
    fn make_room(&mut self, capacity: usize) -> Result<()> {
        while let Some(done) = self.workers.try_wait()? {
            self.take(done);
        }
        while self.in_use + capacity > self.budget.batches && self.in_use > 0 {
            let idle = self.workers.under_way() < self.workers.count();
            // not while batches are being encoded: a run takes consecutive batches, and the plan needs their statistics
            match self.encoding == 0 && idle && !self.encoded.is_empty() {
                true => self.spill()?,
                false => self.wait()?,
            }
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
            Done::Encoded { batch, seen, cost_before } => {
                self.encoding -= 1;
                self.in_use = self.in_use - cost_before + batch.cost();
                self.seen.merge(seen);
                self.encoded.push(batch);
            }
            Done::Spilled { run, dropped, memory, cost_before } => {
                self.in_use -= cost_before;
                self.dropped += dropped;
                self.spare.extend(memory);
                self.runs.push(run);
            }
            Done::Sliced(_) => {} // handled by `write_from_memory`
        }
    }

    /// Passes the first encoded batches to the threads, as many as fit into one run.
    fn spill(&mut self) -> Result<()> {
        self.encoded.sort_unstable_by_key(|batch| batch.number);
        let mut cost = 0;
        let of_a_run = self.encoded.iter().take_while(|batch| {
            cost += batch.cost();
            cost <= self.budget.run()
        });
        let count = of_a_run.count().max(1);
        let batches: Vec<Batch> = self.encoded.drain(..count).collect();
        let order = self.options.spec.unwrap_or_else(|| with_more_bits(self.planned_spec()));
        self.workers.give(Task::Spill { batches, order })
    }

    /// Sorts, writes, syncs and publishes the pairs. The new generation is current when this returns.
    ///
    /// An empty loader publishes an empty generation. O(n log n) for n pairs.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](BulkLoader::insert) and of [`Candidate::publish`]; `InvalidSpec` if the shard indexes would
    /// take more bytes than [`BuildOptions::allow_sparse`] permits; `InvalidInput` if an insertion failed. Nothing is
    /// published then.
    pub fn finish(self) -> Result<Published> {
        self.finish_unpublished()?.publish()
    }

    /// Sorts, writes and syncs the pairs, and returns the generation without publishing it.
    ///
    /// The caller can open and verify it, and then [`publish`](Candidate::publish) or drop it.
    ///
    /// # Errors
    ///
    /// Those of [`finish`](BulkLoader::finish) before publishing. No files are left behind then.
    pub fn finish_unpublished(self) -> Result<Candidate> {
        disk::with_sync(self.options.durable, || self.write())
    }

    fn write(mut self) -> Result<Candidate> {
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
        // nothing is being encoded, so what is under way are spills
        let written = match self.runs.is_empty() && self.workers.under_way() == 0 {
            true => self.write_from_memory(spec, large.as_ref()),
            false => self.write_from_runs(spec, large.as_ref()),
        }?;
        self.dropped += written.dropped;
        self.complete(spec, &written.shards)
    }

    fn write_from_memory(&mut self, spec: ShardingSpec, large: Option<&LargeFileReader>) -> Result<Written> {
        self.spare.clear();
        let batches = std::mem::take(&mut self.encoded);
        let count = batches.len();
        for batch in batches {
            self.workers.give(Task::Slice(batch, spec))?;
        }
        let mut sliced = Vec::with_capacity(count);
        while self.workers.under_way() > 0 {
            match self.workers.wait()? {
                Done::Sliced(batch) => sliced.push(batch),
                other => self.take(other),
            }
        }
        sliced.sort_unstable_by_key(SlicedBatch::number);
        let pairs = MemoryPairs::new(sliced, spec, self.options.on_duplicate);
        self.write_shards(spec, &pairs, large, self.budget.threads)
    }

    fn write_from_runs(&mut self, spec: ShardingSpec, large: Option<&LargeFileReader>) -> Result<Written> {
        while !self.encoded.is_empty() {
            self.spill()?;
        }
        self.wait_for_all()?;
        self.spare.clear();
        self.sort_again(spec)?;
        let fan_in = FanIn::new(self.budget.merge);
        self.merge_levels(spec, fan_in)?;
        // each thread reads every source of its span, so threads times sources must be within the fan-in
        let sources = run_pairs::sources_of(&self.runs, &spec);
        let threads = self.budget.threads.min(fan_in.sources / sources.max(1)).max(1);
        let pairs = RunPairs::open(&self.runs, spec, self.options.on_duplicate, self.budget.merge / threads)?;
        self.write_shards(spec, &pairs, large, threads)
    }

    fn wait_for_all(&mut self) -> Result<()> {
        while self.workers.under_way() > 0 {
            self.wait()?;
        }
        Ok(())
    }

    /// Plans a specification for the pairs so far.
    fn planned_spec(&self) -> ShardingSpec {
        let spec = Plan::new(&self.workers.stats(), self.options.profile).spec();
        let index_encoding = self.options.minishard_index_encoding.unwrap_or(spec.minishard_index_encoding());
        spec.with_minishard_index_encoding(index_encoding).with_data_encoding(self.data_encoding)
    }

    /// Re-sorts the runs whose guessed order does not match the specification.
    fn sort_again(&mut self, spec: ShardingSpec) -> Result<()> {
        /// Number of runs that are re-sorted at once. Each takes as much memory as when it was spilled.
        const AT_ONCE: usize = 3;
        self.options.progress.begin(BuildPhase::Sort, self.runs.iter().map(Run::len).sum());
        for run in std::mem::take(&mut self.runs) {
            if run_pairs::parts_of(&run, &spec).is_some() {
                self.options.progress.add(run.len());
                self.runs.push(run);
                continue;
            }
            self.options.check_cancel()?;
            while self.workers.under_way() >= AT_ONCE {
                self.wait()?;
            }
            self.workers.give(Task::Resort { run, order: spec, batch_len: self.budget.batch })?;
        }
        self.wait_for_all()
    }

    /// Merges groups of runs until the remaining runs can be merged at once.
    fn merge_levels(&mut self, spec: ShardingSpec, fan_in: FanIn) -> Result<()> {
        while !fan_in.has_room_for(&self.runs, &spec) {
            self.options.progress.begin(BuildPhase::Merge, self.runs.iter().map(Run::len).sum());
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
        self.options.check_cancel()?;
        let headers_at_most = group.iter().map(Run::headers_len).sum();
        let path = run_path(self.pending.spill_dir(), self.next_number);
        self.next_number += 1;
        let on_duplicate = self.options.on_duplicate;
        let pairs = RunPairs::open(&group, spec, on_duplicate, self.budget.merge)?;
        let mut merge = pairs.span(Span::ALL)?;
        let run = Run::write(path, spec, on_duplicate, headers_at_most, &mut *merge)?;
        self.options.progress.add(run.len());
        self.dropped += merge.dropped();
        drop(merge);
        drop(pairs);
        group.into_iter().try_for_each(Run::remove)?;
        Ok(run)
    }

    fn write_shards(
        &self,
        spec: ShardingSpec,
        pairs: &dyn Pairs,
        large: Option<&LargeFileReader>,
        threads: usize,
    ) -> Result<Written> {
        self.options.progress.begin(BuildPhase::Write, self.seen.stored_bytes);
        let job = ShardsJob {
            directory: self.pending.path(),
            spill_dir: self.pending.spill_dir(),
            spec,
            layout: self.layout(),
            options: &self.options,
            large,
            shard_indexes: ShardIndexLimit::allowed(&self.options, self.seen.stored_bytes),
            threads,
            memory: self.budget.minishards,
        };
        job.write(pairs)
    }

    fn complete(self, spec: ShardingSpec, summaries: &[ShardSummary]) -> Result<Candidate> {
        self.options.progress.begin(BuildPhase::Publish, 0);
        let layout = self.layout();
        let info = Info::compose(self.options.info.as_deref(), &spec, &layout)?;
        let table = minishard_table::write(self.pending.path(), spec, summaries)?;
        let sum = |of: fn(&ShardSummary) -> u64| summaries.iter().map(of).sum();
        let manifest = Manifest {
            sharding: spec,
            info_crc32: crc32fast::hash(info.as_bytes()),
            layout,
            keys: sum(|shard| shard.keys),
            value_bytes: sum(|shard| shard.value_bytes),
            auxiliary: table.into_iter().collect(),
            shards: summaries.iter().map(shard_record).collect(),
        };
        let generation = self.pending.complete(info.as_bytes(), &manifest)?;
        Ok(Candidate::new(generation, &manifest, self.dropped, self.options.durable))
    }

    fn layout(&self) -> Layout {
        Layout {
            checks: self.options.checks,
            prefixes: self.seen.prefixes,
            value_alignment: self.options.value_alignment,
        }
    }
}

impl fmt::Debug for BulkLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkLoader").field("path", &self.pending.path()).finish_non_exhaustive()
    }
}

/// Returns the order of runs that are spilled before the final plan: that of `spec` with [`MORE_BITS`] more bits.
fn with_more_bits(spec: ShardingSpec) -> ShardingSpec {
    let shard_bits = (spec.shard_bits() + MORE_BITS).min(64 - spec.minishard_bits());
    let more = ShardingSpec::new(spec.hash_function(), spec.preshift_bits(), spec.minishard_bits(), shard_bits);
    more.unwrap_or(spec)
}

fn shard_record(shard: &ShardSummary) -> ShardRecord {
    let ShardSummary { number, bytes, keys, crc32, shard_index_crc32, .. } = *shard;
    ShardRecord { number, bytes, keys, crc32, shard_index_crc32 }
}

/// The source of the bytes of an inserted pair.
enum Source<'a> {
    Slices(&'a [u8], &'a [u8]),
    Reader(&'a mut dyn Read),
}

impl Source<'_> {
    /// Fills `to` with the prefix and the value.
    #[inline]
    fn fill(self, to: &mut [u8], key: u64) -> Result<()> {
        match self {
            Source::Slices(prefix, value) => {
                batch::copy_both(prefix, value, to);
                Ok(())
            }
            Source::Reader(reader) => {
                let read = reader.read_exact(to);
                read.map_err(|error| Error::io("read a pair from the reader", Path::new(""), error).at_key(key))
            }
        }
    }
}
