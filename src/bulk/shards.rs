//! From pairs in storage order to the shards of a generation.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::bulk::options::{BuildOptions, BuildProgress};
use crate::bulk::slices::Span;
use crate::bulk::{Pairs, SortedPairs, record};
use crate::disk;
use crate::error::{Error, Result};
use crate::failpoint;
use crate::layout::Layout;
use crate::shard::{PairHeader, ShardSections, ShardSummary};
use crate::spec::{Location, ShardNumber, ShardingSpec};
use crate::storage::{BlockReader, Cursor, create_new};

/// What a pair takes while its minishard is in memory: its header, its place, its rows.
const PAIR_COST: usize = 160;

/// Blocks in which the headers of a large minishard are put aside.
const HEADERS_BLOCK: usize = 256 << 10;

/// What the shards of a generation are written by.
pub(crate) struct ShardsJob<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) spill_dir: &'a Path,
    pub(crate) spec: ShardingSpec,
    pub(crate) layout: Layout,
    pub(crate) options: &'a BuildOptions,
    pub(crate) threads: usize,
    /// For the headers of minishards, for all threads.
    pub(crate) memory: usize,
}

/// What was written.
#[derive(Default)]
pub(crate) struct Written {
    /// In ascending order.
    pub(crate) shards: Vec<ShardSummary>,
    /// Pairs that were left out because their key came again.
    pub(crate) dropped: u64,
}

impl ShardsJob<'_> {
    /// Writes and syncs all shards; each thread takes one span of shards after another.
    pub(crate) fn write(&self, pairs: &dyn Pairs) -> Result<Written> {
        let syncer = Syncer::start();
        let span_bits = pairs.max_span_bits().min(self.spec.shard_bits());
        let spans = Mutex::new(Span::all(span_bits));
        let written = std::thread::scope(|scope| {
            let work = || self.write_spans(pairs, &spans, &syncer);
            let threads: Vec<_> = (0..self.threads.min(1 << span_bits)).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect::<Vec<_>>()
        });
        let synced = syncer.finish();
        let mut all = Written::default();
        for written in written {
            all.add(written?);
        }
        all.shards.sort_unstable_by_key(|shard| shard.number);
        synced?;
        failpoint::reach("bulk: after shard syncs");
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
            written.add(self.write_span(span, pairs, syncer).inspect_err(|_| while next().is_some() {})?);
        }
        Ok(written)
    }

    fn write_span(&self, span: Span, pairs: &dyn Pairs, syncer: &Syncer) -> Result<Written> {
        let mut pairs = pairs.span(span)?;
        let writer = ShardsWriter {
            job: self,
            scratch: self.spill_dir.join(format!("{:x}", span.number)),
            max_pairs: (self.memory / self.threads.max(1) / PAIR_COST).max(1),
            pairs: Vec::new(),
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

#[cold]
fn panicked() -> Error {
    Error::internal("a thread that writes shards panicked")
}

/// Writes the shards of a span one after another.
struct ShardsWriter<'a> {
    job: &'a ShardsJob<'a>,
    /// Where files of its own may be made, with an extension.
    scratch: PathBuf,
    /// Minishards of more pairs are not collected in memory.
    max_pairs: usize,
    pairs: Vec<PairHeader>,
    current: Option<ShardSections>,
    syncer: &'a Syncer,
    written: Vec<ShardSummary>,
}

impl ShardsWriter<'_> {
    /// Writes all pairs; what the shards are, in order.
    fn write(mut self, pairs: &mut dyn SortedPairs) -> Result<Vec<ShardSummary>> {
        let mut next = pairs.next()?;
        while let Some((place, first)) = next {
            self.job.options.check_cancel()?;
            next = self.collect(place, first, pairs)?;
            let location = self.job.spec.location_of_hash(place);
            self.enter_shard(location.shard)?;
            match next {
                Some((further, pair)) if further == place => next = self.write_large(location, place, pair, pairs)?,
                _ => self.write_collected(location, pairs)?,
            }
        }
        self.finish_shard()?;
        Ok(self.written)
    }

    /// Collects the pairs of a minishard, as many as may be; the pair behind them.
    fn collect(
        &mut self,
        place: u64,
        first: PairHeader,
        pairs: &mut dyn SortedPairs,
    ) -> Result<Option<(u64, PairHeader)>> {
        self.pairs.clear();
        self.pairs.push(first);
        loop {
            match pairs.next()? {
                Some((further, pair)) if further == place && self.pairs.len() < self.max_pairs => self.pairs.push(pair),
                other => return Ok(other),
            }
        }
    }

    fn write_collected(&mut self, location: Location, pairs: &mut dyn SortedPairs) -> Result<()> {
        let Some(shard) = &mut self.current else { return Ok(()) };
        report(&self.job.options.progress, &self.pairs);
        shard.write_minishard(location.minishard, &self.pairs, pairs)
    }

    /// Puts the headers of a minishard aside until their number is known, then writes it; the pair behind it.
    fn write_large(
        &mut self,
        location: Location,
        place: u64,
        pair: PairHeader,
        pairs: &mut dyn SortedPairs,
    ) -> Result<Option<(u64, PairHeader)>> {
        let mut headers = HeaderFile::create(self.scratch.with_extension("headers"))?;
        self.pairs.push(pair);
        let mut next = None;
        loop {
            for pair in self.pairs.drain(..) {
                headers.push(&pair)?;
            }
            self.job.options.check_cancel()?;
            match pairs.next()? {
                Some((further, pair)) if further == place => self.pairs.push(pair),
                other => {
                    next = other.or(next);
                    break;
                }
            }
        }
        let count = headers.count;
        let progress = self.job.options.progress.clone();
        let mut read = headers.read()?.inspect(|pair| pair.iter().for_each(|pair| report(&progress, &[*pair])));
        if let Some(shard) = &mut self.current {
            let scratch = self.scratch.with_extension("rows");
            shard.write_large_minishard(location.minishard, count, &mut read, pairs, &scratch)?;
        }
        Ok(next)
    }

    fn enter_shard(&mut self, number: ShardNumber) -> Result<()> {
        if self.current.as_ref().is_some_and(|shard| shard.number() == number) {
            return Ok(());
        }
        self.finish_shard()?;
        let ShardsJob { directory, spec, layout, .. } = self.job;
        let path = directory.join(spec.shard_file_name(number));
        self.current = Some(ShardSections::create(&path, *spec, number, *layout)?);
        Ok(())
    }

    fn finish_shard(&mut self) -> Result<()> {
        let Some(mut shard) = self.current.take() else { return Ok(()) };
        self.written.push(shard.finish()?);
        failpoint::reach("bulk: after shard");
        self.syncer.sync(shard.file(), shard.path());
        Ok(())
    }
}

fn report(progress: &BuildProgress, pairs: &[PairHeader]) {
    progress.add(pairs.iter().map(|pair| pair.prefix_len + pair.stored_len).sum());
}

/// The headers of a large minishard, put aside.
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
        let cursor = Cursor::new(file.clone(), path.as_path().into(), 0, HEADERS_BLOCK);
        Ok(HeaderFile { path, file, cursor, bytes: Vec::new(), count: 0 })
    }

    fn push(&mut self, pair: &PairHeader) -> Result<()> {
        self.bytes.clear();
        record::write(pair, &mut self.bytes);
        record::write_varint(u64::from(pair.source), &mut self.bytes);
        record::write_varint(pair.skip, &mut self.bytes);
        self.count += 1;
        self.cursor.write(&self.bytes)
    }

    fn read(mut self) -> Result<impl Iterator<Item = Result<PairHeader>>> {
        self.cursor.finish()?;
        let end = self.cursor.position();
        let mut reader = BlockReader::new(self.file.clone(), &self.path, 0, end, HEADERS_BLOCK);
        Ok(std::iter::from_fn(move || {
            let _keep_until_read = &self;
            next_header(&mut reader).transpose()
        }))
    }
}

impl Drop for HeaderFile {
    fn drop(&mut self) {
        let _ = disk::remove_file(&self.path);
    }
}

fn next_header(reader: &mut BlockReader) -> Result<Option<PairHeader>> {
    const TWO_VARINTS: usize = 20;
    let bytes = reader.fill_at_least(record::MAX_LEN + TWO_VARINTS)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let (mut pair, len) = record::read(bytes)?;
    let mut rest = bytes.get(len..).unwrap_or_default();
    let (source, skip) = (record::read_varint(&mut rest), record::read_varint(&mut rest));
    let consumed = bytes.len() - rest.len();
    if let (Some(source), Some(skip)) = (source, skip) {
        (pair.source, pair.skip) = (u32::try_from(source).unwrap_or(u32::MAX), skip);
    }
    reader.consume(consumed);
    Ok(Some(pair))
}

/// Brings finished files to the disk while the next ones are written.
struct Syncer {
    files: Sender<(Arc<File>, PathBuf)>,
    thread: JoinHandle<Result<()>>,
}

impl Syncer {
    fn start() -> Syncer {
        let (files, to_sync) = channel::<(Arc<File>, PathBuf)>();
        let thread = std::thread::spawn(move || {
            to_sync.into_iter().try_for_each(|(file, path)| {
                disk::sync_file(&file, &path).map_err(|error| Error::io("bring to the disk", &path, error))
            })
        });
        Syncer { files, thread }
    }

    fn sync(&self, file: Arc<File>, path: &Path) {
        // a thread that ended has an error to tell, which `finish` gives
        let _ = self.files.send((file, path.to_path_buf()));
    }

    fn finish(self) -> Result<()> {
        drop(self.files);
        self.thread.join().unwrap_or_else(|_| Err(Error::internal("the thread that syncs files panicked")))
    }
}
