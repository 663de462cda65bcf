//! From pairs in storage order to the shards of a generation.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use crate::bulk::SortedPairs;
use crate::bulk::options::{BuildOptions, BuildProgress};
use crate::bulk::record;
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

/// Writes the shards of a generation one after another.
pub(crate) struct ShardsWriter<'a> {
    directory: &'a Path,
    spill_dir: &'a Path,
    spec: ShardingSpec,
    layout: Layout,
    options: &'a BuildOptions,
    /// Minishards of more pairs are not collected in memory.
    max_pairs: usize,
    pairs: Vec<PairHeader>,
    current: Option<ShardSections>,
    syncer: Syncer,
    written: Vec<ShardSummary>,
}

impl<'a> ShardsWriter<'a> {
    pub(crate) fn new(
        directory: &'a Path,
        spill_dir: &'a Path,
        spec: ShardingSpec,
        layout: Layout,
        options: &'a BuildOptions,
        memory: usize,
    ) -> ShardsWriter<'a> {
        ShardsWriter {
            directory,
            spill_dir,
            spec,
            layout,
            options,
            max_pairs: (memory / PAIR_COST).max(1),
            pairs: Vec::new(),
            current: None,
            syncer: Syncer::start(),
            written: Vec::new(),
        }
    }

    /// Writes all pairs; what the shards are, in order.
    pub(crate) fn write(mut self, pairs: &mut dyn SortedPairs) -> Result<Vec<ShardSummary>> {
        let mut next = pairs.next()?;
        while let Some((place, first)) = next {
            self.options.check_cancel()?;
            next = self.collect(place, first, pairs)?;
            let location = self.spec.location_of_hash(place);
            self.enter_shard(location.shard)?;
            match next {
                Some((further, pair)) if further == place => next = self.write_large(location, place, pair, pairs)?,
                _ => self.write_collected(location, pairs)?,
            }
        }
        self.finish_shard()?;
        self.syncer.finish()?;
        failpoint::reach("bulk: after shard syncs");
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
        report(&self.options.progress, &self.pairs);
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
        let mut headers = HeaderFile::create(self.spill_dir.join("minishard.headers"))?;
        self.pairs.push(pair);
        let mut next = None;
        loop {
            for pair in self.pairs.drain(..) {
                headers.push(&pair)?;
            }
            self.options.check_cancel()?;
            match pairs.next()? {
                Some((further, pair)) if further == place => self.pairs.push(pair),
                other => {
                    next = other.or(next);
                    break;
                }
            }
        }
        let count = headers.count;
        let progress = self.options.progress.clone();
        let mut read = headers.read()?.inspect(|pair| pair.iter().for_each(|pair| report(&progress, &[*pair])));
        if let Some(shard) = &mut self.current {
            let scratch = self.spill_dir.join("minishard.rows");
            shard.write_large_minishard(location.minishard, count, &mut read, pairs, &scratch)?;
        }
        Ok(next)
    }

    fn enter_shard(&mut self, number: ShardNumber) -> Result<()> {
        if self.current.as_ref().is_some_and(|shard| shard.number() == number) {
            return Ok(());
        }
        self.finish_shard()?;
        let path = self.directory.join(self.spec.shard_file_name(number));
        self.current = Some(ShardSections::create(&path, self.spec, number, self.layout)?);
        Ok(())
    }

    fn finish_shard(&mut self) -> Result<()> {
        let Some(mut shard) = self.current.take() else { return Ok(()) };
        self.written.push(shard.finish()?);
        failpoint::reach("bulk: after shard");
        self.syncer.sync(shard.file(), shard.path())
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

    fn sync(&self, file: Arc<File>, path: &Path) -> Result<()> {
        // a thread that ended has an error to tell, which `finish` gives
        let _ = self.files.send((file, path.to_path_buf()));
        Ok(())
    }

    fn finish(self) -> Result<()> {
        drop(self.files);
        self.thread.join().unwrap_or_else(|_| Err(Error::corrupt("the thread that syncs files panicked")))
    }
}
