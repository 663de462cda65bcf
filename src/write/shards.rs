//! The writer of all shards of a generation from pairs in storage order.

use std::fs::File;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::bytes::{BlockReader, Cursor, Sink, create_new};
use crate::error::{Error, Result};
use crate::format::layout::Layout;
use crate::format::locks::{into_inner, lock};
use crate::format::manifest::ShardRecord;
use crate::format::spec::ShardingSpec;
use crate::fs::disk;
use crate::ids::{Location, ShardNumber};
use crate::threads::for_each;
use crate::threads::progress::{Phase, Progress};
use crate::write::bands::Span;
use crate::write::merged_pairs::MergedPairs;
use crate::write::options::{BuildOptions, OnDuplicate};
use crate::write::shard_file::{PairHeader, ShardFile, ShardSummary};
use crate::write::sorter::Sorted;
use crate::write::workers::panicked;
use crate::write::{Pairs, SortedPairs, pair_header};

/// Memory per pair of a minishard that is collected in memory, in bytes: its header, its position and its part of the
/// index.
const PAIR_COST: usize = 200;

/// Block size of the file for the headers of a minishard with too many pairs for memory.
const HEADERS_BLOCK: usize = 256 << 10;

/// Where and how a build writes shards.
pub(crate) struct ShardsTarget<'a> {
    pub(crate) options: &'a BuildOptions,
    /// The directory of the shards.
    pub(crate) directory: &'a Path,
    pub(crate) spill_dir: &'a Path,
    pub(crate) spec: ShardingSpec,
    pub(crate) layout: Layout,
}

/// The shards that a build has written.
#[derive(Default)]
pub(crate) struct Written {
    /// The shards in ascending order.
    pub(crate) shards: Vec<ShardRecord>,
    pub(crate) value_bytes: u64,
    /// The number of pairs that were dropped because of a duplicate key.
    pub(crate) dropped: u64,
}

impl ShardsTarget<'_> {
    /// Writes and syncs the shards of sorted pairs, and closes the spill files.
    pub(crate) fn write_sorted(&self, mut sorted: Sorted) -> Result<Written> {
        let (stored_bytes, memory) = (sorted.totals.stored_bytes, sorted.memory_of_minishards());
        let mut written = {
            let (pairs, threads) = sorted.open()?;
            self.write(&*pairs, stored_bytes, threads, memory)?
        };
        written.dropped += sorted.dropped;
        Ok(written)
    }

    /// Writes and syncs the shards of all pairs, combined by the merge function if the options have one.
    ///
    /// `stored_bytes` is the number of their bytes; `memory` is that for the headers of minishards, in bytes.
    pub(super) fn write(&self, pairs: &dyn Pairs, stored_bytes: u64, threads: usize, memory: usize) -> Result<Written> {
        self.options.progress.begin(Phase::Write, stored_bytes);
        let shard_indexes = ShardIndexLimit::new(self.options, stored_bytes);
        let job = ShardsJob { target: self, shard_indexes, threads, memory };
        match &self.options.on_duplicate {
            OnDuplicate::Merge(function) => job.write(&MergedPairs {
                pairs,
                function,
                data_encoding: self.spec.data_encoding(),
                spill_dir: self.spill_dir,
            }),
            _ => job.write(pairs),
        }
    }
}

impl Written {
    fn add(&mut self, other: Written) {
        self.shards.extend(other.shards);
        self.value_bytes += other.value_bytes;
        self.dropped += other.dropped;
    }

    fn add_shard(&mut self, shard: &ShardSummary) {
        let ShardSummary { number, bytes, keys, value_bytes, crc32, shard_index_crc32, digest, .. } = *shard;
        self.shards.push(ShardRecord { number, bytes, keys, crc32, shard_index_crc32, digest: Some(digest) });
        self.value_bytes += value_bytes;
    }
}

/// The writing of the shards of a target.
struct ShardsJob<'a> {
    target: &'a ShardsTarget<'a>,
    shard_indexes: ShardIndexLimit,
    threads: usize,
    /// Memory for the headers of minishards in all threads together, in bytes.
    memory: usize,
}

/// The limit on the bytes of all shard indexes, which exceed the data if a specification has too many minishard bits.
///
/// On most file systems empty entries are holes, but a copy to an object store contains all of them.
struct ShardIndexLimit {
    written: AtomicU64,
    most: u64,
}

impl ShardIndexLimit {
    /// Shard indexes of up to this many bytes are always allowed.
    const ALWAYS_ALLOWED: u64 = 64 << 20;

    /// Creates a limit of the bytes of the data, or of 64 MiB if that is more; no limit if the options allow sparse
    /// shards.
    fn new(options: &BuildOptions, stored_bytes: u64) -> ShardIndexLimit {
        let most = if options.allow_sparse { u64::MAX } else { stored_bytes.max(Self::ALWAYS_ALLOWED) };
        ShardIndexLimit { written: AtomicU64::new(0), most }
    }

    /// Counts the index of one more shard. Errors: `InvalidSpec` if the limit is exceeded.
    fn add(&self, spec: &ShardingSpec) -> Result<()> {
        let len = spec.shard_index_len();
        let total = self.written.fetch_add(len, Ordering::Relaxed).saturating_add(len);
        if total <= self.most {
            return Ok(());
        }
        Err(Error::invalid_spec(format!(
            "expected shard indexes of at most {} bytes for this data, found that they take {len} bytes per shard, \
             {total} so far: choose fewer minishard bits than {}, or allow sparse shards (`allow_sparse`, `--force`)",
            self.most,
            spec.minishard_bits()
        )))
    }
}

impl ShardsJob<'_> {
    /// Writes and syncs all shards. Each thread, including the caller's, takes one span of shards after another.
    ///
    /// Works with fewer threads if the process cannot start all of them.
    fn write(&self, pairs: &dyn Pairs) -> Result<Written> {
        let syncer = Syncer::start();
        let span_bits = pairs.max_span_bits().min(self.target.spec.shard_bits());
        let threads = NonZero::new(self.threads).unwrap_or(NonZero::<usize>::MIN);
        let all = Mutex::new(Written::default());
        let written = for_each(threads, Span::all(span_bits), |span, _| {
            let of_span = catch_unwind(AssertUnwindSafe(|| self.write_span(span, pairs, &syncer)));
            match of_span.unwrap_or_else(|panic| Err(panicked(&*panic))) {
                Ok(written) => lock(&all).add(written),
                Err(error) => return ControlFlow::Break(Some(error)),
            }
            ControlFlow::Continue(())
        });
        let synced = syncer.finish();
        if let ControlFlow::Break(error) = written {
            return Err(error);
        }
        let mut all = into_inner(all);
        all.shards.sort_unstable_by_key(|shard| shard.number);
        synced?;
        Ok(all)
    }

    fn write_span(&self, span: Span, pairs: &dyn Pairs, syncer: &Syncer) -> Result<Written> {
        let mut pairs = pairs.span(span)?;
        let mut writer = SpanWriter {
            job: self,
            scratch: self.target.spill_dir.join(format!("{:x}", span.number)),
            max_pairs: (self.memory / self.threads.max(1) / PAIR_COST).max(1),
            headers: Vec::new(),
            current: None,
            syncer,
            written: Written::default(),
        };
        writer.write(&mut *pairs)?;
        Ok(Written { dropped: pairs.dropped(), ..writer.written })
    }
}

/// Writes the shards of one span, one after another.
struct SpanWriter<'a> {
    job: &'a ShardsJob<'a>,
    /// Path of the temporary files of this span, without the extension.
    scratch: PathBuf,
    /// Maximum number of pairs of a minishard that is collected in memory.
    max_pairs: usize,
    /// The headers of the minishard that is being collected.
    headers: Vec<PairHeader>,
    current: Option<ShardFile>,
    syncer: &'a Syncer,
    written: Written,
}

impl SpanWriter<'_> {
    /// Writes all pairs.
    fn write(&mut self, pairs: &mut dyn SortedPairs) -> Result<()> {
        let mut next = pairs.next()?;
        while let Some((place, first)) = next {
            self.job.target.options.progress.check()?;
            next = self.collect(place, first, pairs)?;
            let location = self.job.target.spec.location_of_hash(place);
            self.enter_shard(location.shard)?;
            match next {
                Some((next_place, pair)) if next_place == place => {
                    next = self.write_spilled_minishard(location, place, pair, pairs)?
                }
                _ => self.write_collected(location, pairs)?,
            }
        }
        self.finish_shard()
    }

    /// Collects the headers of up to `max_pairs` pairs of a minishard; returns the pair after them.
    fn collect(
        &mut self,
        place: u64,
        first: PairHeader,
        pairs: &mut dyn SortedPairs,
    ) -> Result<Option<(u64, PairHeader)>> {
        self.headers.clear();
        self.headers.push(first);
        loop {
            match pairs.next()? {
                Some((next_place, pair)) if next_place == place && self.headers.len() < self.max_pairs => {
                    self.headers.push(pair)
                }
                other => return Ok(other),
            }
        }
    }

    fn write_collected(&mut self, location: Location, pairs: &mut dyn SortedPairs) -> Result<()> {
        let shard = self.current.as_mut().ok_or_else(no_shard)?;
        add_progress(&self.job.target.options.progress, &self.headers);
        shard.write_minishard(location.minishard, &self.headers, pairs)
    }

    /// Writes a minishard that has too many pairs for memory: those collected, `pair`, and the rest of `pairs`. Spills
    /// all headers to a file first, because their number must be known. Returns the pair after the minishard.
    fn write_spilled_minishard(
        &mut self,
        location: Location,
        place: u64,
        pair: PairHeader,
        pairs: &mut dyn SortedPairs,
    ) -> Result<Option<(u64, PairHeader)>> {
        let mut spilled = HeaderFile::create(self.scratch.with_extension("headers"))?;
        self.headers.push(pair);
        let next = loop {
            for header in self.headers.drain(..) {
                spilled.push(&header)?;
            }
            self.job.target.options.progress.check()?;
            match pairs.next()? {
                Some((next_place, pair)) if next_place == place => self.headers.push(pair),
                other => break other,
            }
        };
        let count = spilled.count;
        let progress = self.job.target.options.progress.clone();
        let mut read = spilled.read()?.inspect(|pair| pair.iter().for_each(|pair| add_progress(&progress, &[*pair])));
        let shard = self.current.as_mut().ok_or_else(no_shard)?;
        let scratch = self.scratch.with_extension("rows");
        shard.write_minishard_of_many_keys(location.minishard, count, &mut read, pairs, &scratch)?;
        drop(read);
        spilled.remove()?;
        Ok(next)
    }

    /// Begins a shard and finishes the previous one. Does nothing if the shard is the current one.
    fn enter_shard(&mut self, number: ShardNumber) -> Result<()> {
        if self.current.as_ref().is_some_and(|shard| shard.number() == number) {
            return Ok(());
        }
        self.finish_shard()?;
        let ShardsTarget { directory, spec, layout, .. } = self.job.target;
        self.job.shard_indexes.add(spec)?;
        let path = directory.join(spec.shard_file_name(number));
        self.current = Some(ShardFile::create(&path, *spec, number, *layout)?);
        Ok(())
    }

    fn finish_shard(&mut self) -> Result<()> {
        let Some(shard) = self.current.take() else { return Ok(()) };
        let (summary, sink) = shard.finish()?;
        self.written.add_shard(&summary);
        self.syncer.sync(sink)
    }
}

#[cold]
fn no_shard() -> Error {
    Error::internal("a minishard is written before its shard was begun")
}

fn add_progress(progress: &Progress, pairs: &[PairHeader]) {
    progress.add(pairs.iter().map(|pair| pair.preamble_len + pair.stored_len).sum());
}

/// A temporary file with the headers of a minishard that has too many pairs for memory.
struct HeaderFile {
    path: PathBuf,
    file: Arc<File>,
    cursor: Cursor,
    bytes: Vec<u8>,
    count: u64,
}

impl HeaderFile {
    fn create(path: PathBuf) -> Result<HeaderFile> {
        let file = create_new(&path)?;
        let cursor = Cursor::new(Sink::file(file.clone(), &path), 0, HEADERS_BLOCK);
        Ok(HeaderFile { path, file, cursor, bytes: Vec::new(), count: 0 })
    }

    fn push(&mut self, pair: &PairHeader) -> Result<()> {
        self.bytes.clear();
        pair_header::write(pair, &mut self.bytes);
        pair_header::write_varint(u64::from(pair.source), &mut self.bytes);
        pair_header::write_varint(pair.locator, &mut self.bytes);
        self.count += 1;
        self.cursor.write(&self.bytes)
    }

    fn read(&mut self) -> Result<impl Iterator<Item = Result<PairHeader>> + use<>> {
        self.cursor.finish()?;
        let end = self.cursor.position();
        let mut reader = BlockReader::new(self.file.clone(), &self.path, 0, end, HEADERS_BLOCK);
        Ok(std::iter::from_fn(move || next_header(&mut reader).transpose()))
    }

    /// Removes the file. Files that are not removed are deleted with the spill directory.
    fn remove(self) -> Result<()> {
        disk::remove_file(&self.path).map_err(|error| Error::io("remove", &self.path, error))
    }
}

fn next_header(reader: &mut BlockReader) -> Result<Option<PairHeader>> {
    let bytes = reader.fill_at_least(pair_header::MAX_LEN + 2 * pair_header::MAX_VARINT)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let (mut pair, len) = pair_header::read(bytes)?;
    let mut rest = bytes.get(len..).unwrap_or_default();
    let source = pair_header::read_varint(&mut rest).and_then(|source| u32::try_from(source).ok());
    pair.source = source.ok_or_else(pair_header::cut_short)?;
    pair.locator = pair_header::read_varint(&mut rest).ok_or_else(pair_header::cut_short)?;
    let consumed = bytes.len() - rest.len();
    reader.consume(consumed);
    Ok(Some(pair))
}

/// Syncs finished files in a thread while the next ones are written. If the thread cannot start, the caller syncs them.
struct Syncer {
    sinks: SyncSender<Sink>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Syncer {
    /// Maximum number of files that wait for their sync, each of which is open.
    const WAITING: usize = 16;

    fn start() -> Syncer {
        let durable = disk::syncs();
        let (sinks, to_sync) = sync_channel::<Sink>(Self::WAITING);
        let sync_all = move || disk::with_syncs_if(durable, || to_sync.into_iter().try_for_each(|sink| sink.sync()));
        Syncer { sinks, thread: std::thread::Builder::new().spawn(sync_all).ok() }
    }

    fn sync(&self, sink: Sink) -> Result<()> {
        match self.thread {
            Some(_) => _ = self.sinks.send(sink), // fails only if the thread has ended; `finish` returns why
            None => sink.sync()?,
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        drop(self.sinks);
        self.thread.map_or(Ok(()), |thread| thread.join().unwrap_or_else(|panic| Err(panicked(&*panic))))
    }
}
