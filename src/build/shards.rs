//! The writer of all shards of a generation from pairs in storage order.

use std::fs::File;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::build::options::{BuildOptions, BuildProgress};
use crate::build::shard_file::{PairHeader, ShardFile, ShardSummary};
use crate::build::slices::Span;
use crate::build::workers::panicked;
use crate::build::{Pairs, SortedPairs, pair_header};
use crate::disk;
use crate::error::{Error, Result};
use crate::format::layout::Layout;
use crate::format::spec::ShardingSpec;
use crate::ids::{Location, ShardNumber};
use crate::storage::{BlockReader, Cursor, Sink, create_new};
use crate::threads::on_threads;

/// Memory per pair of a minishard that is collected in memory, in bytes: its header, its position and its part of the
/// index.
const PAIR_COST: usize = 200;

/// Block size of the file for the headers of a minishard with too many pairs for memory.
const HEADERS_BLOCK: usize = 256 << 10;

/// The parameters for writing the shards of a generation.
pub(crate) struct ShardsJob<'a> {
    /// The directory of the shards.
    pub(crate) directory: &'a Path,
    pub(crate) spill_dir: &'a Path,
    pub(crate) spec: ShardingSpec,
    pub(crate) layout: Layout,
    pub(crate) options: &'a BuildOptions,
    pub(crate) shard_indexes: ShardIndexLimit,
    pub(crate) threads: usize,
    /// Memory for the headers of minishards in all threads together, in bytes.
    pub(crate) memory: usize,
}

/// The limit on the bytes of all shard indexes, which exceed the data if a specification has too many minishard bits.
///
/// On most file systems empty entries are holes, but a copy to an object store contains all of them.
pub(crate) struct ShardIndexLimit {
    written: AtomicU64,
    most: u64,
}

impl ShardIndexLimit {
    /// Shard indexes of up to this many bytes are always allowed.
    const ALWAYS_ALLOWED: u64 = 64 << 20;

    /// Creates a limit of the bytes of the data, or of 64 MiB if that is more; no limit if the options allow sparse
    /// shards.
    pub(crate) fn new(options: &BuildOptions, stored_bytes: u64) -> ShardIndexLimit {
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

/// The result of writing shards.
#[derive(Default)]
pub(crate) struct Written {
    /// The shards in ascending order.
    pub(crate) shards: Vec<ShardSummary>,
    /// The number of pairs that were dropped because of a duplicate key.
    pub(crate) dropped: u64,
}

impl ShardsJob<'_> {
    /// Writes and syncs all shards. Each thread, including the caller's, takes one span of shards after another.
    ///
    /// Works with fewer threads if the process cannot start all of them.
    pub(crate) fn write(&self, pairs: &dyn Pairs) -> Result<Written> {
        let syncer = Syncer::start(self.options.durable);
        let span_bits = pairs.max_span_bits().min(self.spec.shard_bits());
        let spans = Mutex::new(Span::all(span_bits));
        let threads = NonZero::new(self.threads.min(1 << span_bits)).unwrap_or(NonZero::<usize>::MIN);
        let all = Mutex::new(Ok(Written::default()));
        on_threads(threads, || {
            let written = self.write_spans(pairs, &spans, &syncer);
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            match (&mut *all, written) {
                (Ok(all), Ok(written)) => all.add(written),
                (Ok(_), Err(error)) => *all = Err(error),
                (Err(_), _) => {} // the first error is returned
            }
        });
        let synced = syncer.finish();
        let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        all.shards.sort_unstable_by_key(|shard| shard.number);
        synced?;
        Ok(all)
    }

    fn write_spans(
        &self,
        pairs: &dyn Pairs,
        spans: &Mutex<impl Iterator<Item = Span>>,
        syncer: &Syncer,
    ) -> Result<Written> {
        let mut written = Written::default();
        let next = || spans.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some(span) = next() {
            let of_span = catch_unwind(AssertUnwindSafe(|| self.write_span(span, pairs, syncer)));
            let of_span = of_span.unwrap_or_else(|panic| Err(panicked(&*panic)));
            // after an error, takes the remaining spans without writing them, so that the other threads end soon
            written.add(of_span.inspect_err(|_| while next().is_some() {})?);
        }
        Ok(written)
    }

    fn write_span(&self, span: Span, pairs: &dyn Pairs, syncer: &Syncer) -> Result<Written> {
        let mut pairs = pairs.span(span)?;
        let writer = SpanWriter {
            job: self,
            scratch: self.spill_dir.join(format!("{:x}", span.number)),
            max_pairs: (self.memory / self.threads.max(1) / PAIR_COST).max(1),
            headers: Vec::new(),
            current: None,
            syncer,
            written: Vec::new(),
        };
        let shards = writer.write(&mut *pairs)?;
        Ok(Written { shards, dropped: pairs.dropped() })
    }
}

impl Written {
    fn add(&mut self, other: Written) {
        self.shards.extend(other.shards);
        self.dropped += other.dropped;
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
    written: Vec<ShardSummary>,
}

impl SpanWriter<'_> {
    /// Writes all pairs; returns the shards in ascending order.
    fn write(mut self, pairs: &mut dyn SortedPairs) -> Result<Vec<ShardSummary>> {
        let mut next = pairs.next()?;
        while let Some((place, first)) = next {
            self.job.options.check_cancel()?;
            next = self.collect(place, first, pairs)?;
            let location = self.job.spec.location_of_hash(place);
            self.enter_shard(location.shard)?;
            match next {
                Some((next_place, pair)) if next_place == place => {
                    next = self.write_spilled_minishard(location, place, pair, pairs)?
                }
                _ => self.write_collected(location, pairs)?,
            }
        }
        self.finish_shard()?;
        Ok(self.written)
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
        add_progress(&self.job.options.progress, &self.headers);
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
            self.job.options.check_cancel()?;
            match pairs.next()? {
                Some((next_place, pair)) if next_place == place => self.headers.push(pair),
                other => break other,
            }
        };
        let count = spilled.count;
        let progress = self.job.options.progress.clone();
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
        self.job.shard_indexes.add(&self.job.spec)?;
        let ShardsJob { directory, spec, layout, .. } = self.job;
        let path = directory.join(spec.shard_file_name(number));
        self.current = Some(ShardFile::create(&path, *spec, number, *layout)?);
        Ok(())
    }

    fn finish_shard(&mut self) -> Result<()> {
        let Some(mut shard) = self.current.take() else { return Ok(()) };
        self.written.push(shard.finish()?);
        self.syncer.sync(shard.sink().clone())
    }
}

#[cold]
fn no_shard() -> Error {
    Error::internal("a minishard is written before its shard was begun")
}

fn add_progress(progress: &BuildProgress, pairs: &[PairHeader]) {
    progress.add(pairs.iter().map(|pair| pair.prefix_len + pair.stored_len).sum());
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

    fn start(durable: bool) -> Syncer {
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
