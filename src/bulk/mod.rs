//! The bulk loader: pairs in any order and any amount, a published generation out, in bounded memory.
//!
//! ```text
//! insert   pairs gather in batches; threads encode, check and sort each and spill it as a run
//!          (without a specification: as a segment of a log, in the order of insertion, with statistics)
//! finish   without a specification: plan one from the statistics, turn the log into runs
//!          with more runs than can be merged at once: merge neighbours into longer ones
//!          merge the runs into shards, one after another, front to back
//!          info, manifest, sync, publish
//! ```
//!
//! What fits into one batch is never spilled. Everything on disk is written and read front to back in large blocks.

mod batch;
mod merge;
mod options;
mod record;
mod run;
mod shards;
mod workers;

use std::io::Read;
use std::path::Path;

pub use options::{BuildOptions, BuildPhase, BuildProgress, OnDuplicate};

use crate::bulk::batch::{Batch, SortedBatch};
use crate::bulk::merge::Merge;
use crate::bulk::run::{Run, RunWriter, run_path};
use crate::bulk::shards::ShardsWriter;
use crate::bulk::workers::{Sorting, Workers};
use crate::error::{Error, Result};
use crate::info::Info;
use crate::layout::Layout;
use crate::manifest::{Manifest, ShardRecord};
use crate::plan::{KeyStats, PlanOptions};
use crate::shard::{PairBytes, PairHeader, ShardSummary};
use crate::spec::{Encoding, ShardingSpec};
use crate::store::{GenerationId, PendingGeneration, Store};

/// Pairs in storage order, each key once, with the place of each; the bytes can be copied in the same order.
pub(crate) trait SortedPairs: PairBytes {
    fn next(&mut self) -> Result<Option<(u64, PairHeader)>>;
}

/// Builds and publishes a generation of a store from pairs in any order and any amount.
///
/// Memory stays below [`BuildOptions::memory`], whatever comes; what does not fit is spilled to a temporary directory.
/// The same pairs and options give the same bytes, whatever the order of insertion, the threads, the memory or the
/// time. Dropped before [`finish`](BulkLoader::finish), it leaves nothing behind.
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
    /// The specification, unless it is to be planned.
    spec: Option<ShardingSpec>,
    data_encoding: Encoding,
    batch: Batch,
    batch_cost: usize,
    next_number: u64,
    /// An insertion failed, so that a pair may be missing.
    failed: bool,
    // in the order in which they must be dropped: the threads write files into what `pending` removes
    workers: Workers,
    seen: Seen,
    pending: PendingGeneration,
}

/// What was seen of the pairs so far.
#[derive(Default)]
pub(crate) struct Seen {
    stats: Option<KeyStats>,
    prefixes: bool,
    dropped: u64,
    stored_bytes: u64,
    runs: Vec<(u64, Run)>,
}

/// What a build has published.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// The generation, which is current now.
    pub generation: GenerationId,
    /// The specification, given or planned.
    pub spec: ShardingSpec,
    /// The number of keys.
    pub keys: u64,
    /// The stored bytes of all values.
    pub value_bytes: u64,
    /// The bytes of all shard files.
    pub file_bytes: u64,
    /// The number of shard files.
    pub shards: u64,
    /// Pairs that were left out because their key came again.
    pub dropped: u64,
}

impl BulkLoader {
    /// Options with their defaults, for [`BuildOptions::create`].
    pub fn options() -> BuildOptions {
        BuildOptions::default()
    }

    /// A loader with default options.
    ///
    /// Errors: those of [`BuildOptions::create`].
    pub fn create_default(store: impl AsRef<Path>) -> Result<BulkLoader> {
        BuildOptions::default().create(store)
    }

    fn create(store: &Path, options: BuildOptions) -> Result<BulkLoader> {
        if let Some(info) = &options.info {
            Info::check(info)?; // refused now rather than at the end
        }
        let pending = Store::create(store)?.writer()?.begin(options.temp_dir.as_deref())?;
        let data_encoding = match options.spec {
            Some(spec) => spec.data_encoding(),
            None => options.data_encoding.unwrap_or_default(),
        };
        let sorting = Sorting { spec: options.spec, on_duplicate: options.on_duplicate };
        let memory = usize::try_from(options.memory).unwrap_or(usize::MAX);
        let workers = Workers::start(&options, sorting, data_encoding, pending.spill_dir().to_path_buf());
        let batch_cost = workers.batch_cost(memory);
        options.progress.begin(BuildPhase::Insert, 0);
        Ok(BulkLoader {
            spec: options.spec,
            data_encoding,
            batch: Batch::new(0, Vec::new(), batch_cost),
            batch_cost,
            next_number: 1,
            failed: false,
            workers,
            seen: Seen::default(),
            pending,
            options,
        })
    }

    /// Adds a pair.
    ///
    /// Errors: `Io` from spilling, also of pairs before; `DuplicateKey`, at the latest from
    /// [`finish`](BulkLoader::finish); `Cancelled`. After an error the build cannot be finished any more.
    pub fn insert(&mut self, key: u64, value: &[u8]) -> Result<()> {
        self.insert_with_prefix(key, &[], value)
    }

    /// Adds a pair with bytes that will lie directly before its value, not encoded.
    ///
    /// Errors: as [`insert`](BulkLoader::insert).
    pub fn insert_with_prefix(&mut self, key: u64, prefix: &[u8], value: &[u8]) -> Result<()> {
        self.add(key, (prefix.len() as u64, value.len() as u64), Source::Slices(prefix, value))
    }

    /// Adds a pair whose prefix and then value are read from `reader`: constant memory for any length.
    ///
    /// Errors: as [`insert`](BulkLoader::insert), and `Io` if the reader fails or ends early.
    pub fn insert_reader(&mut self, key: u64, prefix_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()> {
        self.add(key, (prefix_len, value_len), Source::Reader(reader))
    }

    fn add(&mut self, key: u64, lens: (u64, u64), source: Source<'_>) -> Result<()> {
        let added = self.cost_in_batch(lens).and_then(|cost| match (cost, source) {
            (Some(cost), source) => {
                self.batch.push(&header(key, lens), cost, |bytes| source.append_to(bytes, lens, key))
            }
            (None, Source::Slices(prefix, value)) => self.insert_large(key, lens, &mut prefix.chain(value)),
            (None, Source::Reader(reader)) => self.insert_large(key, lens, reader),
        });
        self.failed |= added.is_err();
        self.options.progress.add(lens.0 + lens.1);
        added
    }

    /// The cost of a pair in the batch, which has room for it then; `None` if it is too large for a batch.
    fn cost_in_batch(&mut self, (prefix_len, value_len): (u64, u64)) -> Result<Option<usize>> {
        let cost = usize::try_from(Batch::cost_of(prefix_len, value_len, self.data_encoding)).unwrap_or(usize::MAX);
        if cost > self.batch_cost / 2 {
            return Ok(None);
        }
        if self.batch.cost() + cost > self.batch_cost {
            self.submit()?;
        }
        Ok(Some(cost))
    }

    /// Gives the batch to the workers and begins another.
    fn submit(&mut self) -> Result<()> {
        self.options.check_cancel()?;
        let memory = self.workers.free_memory(&mut self.seen)?;
        let next = Batch::new(self.next_number, memory, self.batch_cost);
        self.next_number += 1;
        let full = std::mem::replace(&mut self.batch, next);
        self.workers.submit(full)
    }

    /// Writes a pair that is too large for a batch as a run of its own, straight from the caller.
    fn insert_large(&mut self, key: u64, lens: (u64, u64), reader: &mut dyn Read) -> Result<()> {
        self.options.check_cancel()?;
        if !self.batch.is_empty() {
            self.submit()?;
        }
        // the batch at hand is empty, so its number is free for the run, which comes before what follows
        let number = std::mem::replace(&mut self.batch.number, self.next_number);
        self.next_number += 1;
        let path = run_path(self.pending.spill_dir(), number);
        let (run, header) =
            Run::write_single(path, key, lens, reader, self.data_encoding).map_err(|error| error.at_key(key))?;
        self.seen.see(&header, self.spec.is_none());
        self.seen.runs.push((number, run));
        Ok(())
    }

    /// Sorts, writes, syncs and publishes; the new generation is current when this returns.
    ///
    /// An empty loader publishes an empty generation.
    ///
    /// Errors: those of [`insert`](BulkLoader::insert) and of publishing; nothing is published then.
    pub fn finish(mut self) -> Result<Published> {
        if self.failed {
            let message = "expected all insertions to have succeeded, found that one failed: begin the build again";
            return Err(Error::invalid_input(message));
        }
        let (spec, summaries) = if self.next_number == 1 { self.write_from_memory() } else { self.write_from_runs() }?;
        self.publish(spec, &summaries)
    }

    /// All pairs are in the one batch.
    fn write_from_memory(&mut self) -> Result<(ShardingSpec, Vec<ShardSummary>)> {
        let planning = self.spec.is_none();
        let seen = &mut self.seen;
        let batch = std::mem::take(&mut self.batch).encode(self.data_encoding, |header| seen.see(header, planning))?;
        let spec = self.planned_spec();
        let (entries, dropped) = batch.sort(&spec, self.options.on_duplicate)?;
        self.seen.dropped += dropped;
        let summaries = self.write_shards(spec, &mut SortedBatch::new(&batch, &entries))?;
        Ok((spec, summaries))
    }

    /// Pairs were spilled.
    fn write_from_runs(&mut self) -> Result<(ShardingSpec, Vec<ShardSummary>)> {
        if !self.batch.is_empty() {
            let last = std::mem::take(&mut self.batch);
            self.workers.submit(last)?;
        }
        self.batch = Batch::default();
        self.workers.finish(&mut self.seen)?;
        let spec = self.planned_spec();
        if self.spec.is_none() {
            self.sort_log(spec)?;
        }
        let mut runs = std::mem::take(&mut self.seen.runs);
        runs.sort_unstable_by_key(|(number, _)| *number);
        let runs = self.merge_levels(spec, runs.into_iter().map(|(_, run)| run).collect())?;
        let mut merge = Merge::new(&runs, spec, self.options.on_duplicate, self.merge_memory())?;
        let summaries = self.write_shards(spec, &mut merge)?;
        self.seen.dropped += merge.dropped();
        Ok((spec, summaries))
    }

    fn planned_spec(&mut self) -> ShardingSpec {
        let stats = self.seen.stats.take().unwrap_or_default();
        self.spec.unwrap_or_else(|| {
            let mut planner = PlanOptions::new();
            planner.layout(self.layout()).data_encoding(self.data_encoding);
            if let Some(encoding) = self.options.minishard_index_encoding {
                planner.minishard_index_encoding(encoding);
            }
            planner.plan(&stats, self.options.profile).spec()
        })
    }

    /// Turns the segments of the log into runs, on all threads.
    fn sort_log(&mut self, spec: ShardingSpec) -> Result<()> {
        self.options.progress.begin(BuildPhase::Sort, self.seen.stored_bytes);
        let segments = std::mem::take(&mut self.seen.runs);
        let sorting = Sorting { spec: Some(spec), on_duplicate: self.options.on_duplicate };
        let sorter = Workers::start(&self.options, sorting, Encoding::Raw, self.pending.spill_dir().to_path_buf());
        self.seen.runs = sorter.sort_segments(segments, self.batch_cost, &mut self.seen)?;
        Ok(())
    }

    /// Merges neighbouring runs until so few are left that they can be merged at once.
    fn merge_levels(&mut self, spec: ShardingSpec, mut runs: Vec<Run>) -> Result<Vec<Run>> {
        let fan_in = merge::fan_in(self.merge_memory());
        while runs.len() > fan_in {
            self.options.progress.begin(BuildPhase::Merge, self.seen.stored_bytes);
            let groups = runs.len().div_ceil(fan_in);
            let each = runs.len().div_ceil(groups);
            let mut merged = Vec::with_capacity(groups);
            let mut left = runs.into_iter();
            loop {
                let group: Vec<Run> = left.by_ref().take(each).collect();
                if group.is_empty() {
                    break;
                }
                merged.push(self.merge_group(spec, &group)?);
            }
            runs = merged;
        }
        Ok(runs)
    }

    fn merge_group(&mut self, spec: ShardingSpec, group: &[Run]) -> Result<Run> {
        let headers_at_most = group.iter().map(Run::headers_len).sum();
        let path = run_path(self.pending.spill_dir(), self.next_number);
        self.next_number += 1;
        let mut merge = Merge::new(group, spec, self.options.on_duplicate, self.merge_memory())?;
        let mut writer = RunWriter::create(path, headers_at_most)?;
        while let Some((_, header)) = merge.next()? {
            writer.write_pair(&header, &mut merge)?;
            self.options.progress.add(header.prefix_len + header.stored_len);
        }
        self.options.check_cancel()?;
        self.seen.dropped += merge.dropped();
        writer.finish()
    }

    fn write_shards(&mut self, spec: ShardingSpec, pairs: &mut dyn SortedPairs) -> Result<Vec<ShardSummary>> {
        self.options.progress.begin(BuildPhase::Write, self.seen.stored_bytes);
        let memory = usize::try_from(self.options.memory / 8).unwrap_or(usize::MAX);
        let directory = self.pending.path().to_path_buf();
        ShardsWriter::new(&directory, self.pending.spill_dir(), spec, self.layout(), &self.options, memory).write(pairs)
    }

    fn publish(self, spec: ShardingSpec, summaries: &[ShardSummary]) -> Result<Published> {
        self.options.progress.begin(BuildPhase::Publish, 0);
        let layout = self.layout();
        let info = Info::compose(self.options.info.as_deref(), &spec, &layout)?;
        let sum = |of: fn(&ShardSummary) -> u64| summaries.iter().map(of).sum();
        let manifest = Manifest {
            sharding: spec,
            info_crc32: crc32fast::hash(info.as_bytes()),
            layout,
            keys: sum(|shard| shard.keys),
            value_bytes: sum(|shard| shard.value_bytes),
            shards: summaries.iter().map(shard_record).collect(),
        };
        let dropped = self.seen.dropped;
        drop(self.seen);
        let generation = self.pending.publish(info.as_bytes(), &manifest)?;
        Ok(Published {
            generation,
            spec,
            keys: manifest.keys,
            value_bytes: manifest.value_bytes,
            file_bytes: sum(|shard| shard.bytes),
            shards: summaries.len() as u64,
            dropped,
        })
    }

    fn layout(&self) -> Layout {
        Layout {
            checks: self.options.checks,
            prefixes: self.seen.prefixes,
            value_alignment: self.options.value_alignment,
        }
    }

    /// What reading the runs of a merge may take.
    fn merge_memory(&self) -> usize {
        usize::try_from(self.options.memory / 8 * 5).unwrap_or(usize::MAX)
    }
}

impl Seen {
    /// Takes note of a pair.
    pub(crate) fn see(&mut self, header: &PairHeader, planning: bool) {
        self.prefixes |= header.prefix_len > 0;
        self.stored_bytes += header.prefix_len + header.stored_len;
        if planning {
            let stats = self.stats.get_or_insert_default();
            stats.insert(header.key, header.prefix_len, header.stored_len);
        }
    }

    /// Takes note of what another has seen.
    pub(crate) fn merge(&mut self, other: Seen) {
        self.prefixes |= other.prefixes;
        self.stored_bytes += other.stored_bytes;
        self.dropped += other.dropped;
        self.runs.extend(other.runs);
        match (&mut self.stats, other.stats) {
            (Some(stats), Some(other)) => stats.merge(&other),
            (none, other) => *none = none.take().or(other),
        }
    }
}

fn shard_record(shard: &ShardSummary) -> ShardRecord {
    let ShardSummary { number, bytes, keys, crc32, shard_index_crc32, .. } = *shard;
    ShardRecord { number, bytes, keys, crc32, shard_index_crc32 }
}

/// Where an insertion has the bytes of its pair from.
enum Source<'a> {
    Slices(&'a [u8], &'a [u8]),
    Reader(&'a mut dyn Read),
}

impl Source<'_> {
    /// Appends the prefix and the value, which fit into memory.
    fn append_to(self, bytes: &mut Vec<u8>, lens: (u64, u64), key: u64) -> Result<()> {
        match self {
            Source::Slices(prefix, value) => {
                bytes.extend_from_slice(prefix);
                bytes.extend_from_slice(value);
                Ok(())
            }
            Source::Reader(reader) => {
                let start = bytes.len();
                bytes.resize(start + usize::try_from(lens.0 + lens.1).unwrap_or(usize::MAX), 0);
                let read = reader.read_exact(bytes.get_mut(start..).unwrap_or_default());
                read.map_err(|error| Error::io("read the value of a pair", Path::new(""), error).at_key(key))
            }
        }
    }
}

/// The header of a pair that is not encoded yet.
fn header(key: u64, (prefix_len, value_len): (u64, u64)) -> PairHeader {
    PairHeader { key, prefix_len, stored_len: value_len, value_check: 0, prefix_sum: 0, source: 0, skip: 0 }
}
