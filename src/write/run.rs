//! A run: a spill file of sorted pairs.
//!
//! ```text
//! | headers           [batch number varint] header, ...      read sequentially
//! | hole              space reserved for headers and not used
//! | value region      preamble and stored value, ...           read sequentially
//! | band table       per band: start of its headers u64le, start of its values u64le
//! ```
//!
//! A header is preceded by the number of its batch, which orders the pairs of one key by insertion, whichever runs they
//! are in. If duplicate keys are errors, the number is omitted. Large pairs and deleted keys have only a header. A run is closed after
//! it is written and opened again for reading, so the number of runs is not limited by file descriptors.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bytes::{BlockReader, Cursor, Sink, create_new};
use crate::error::{Error, Result};
use crate::format::spec::ShardingSpec;
use crate::fs::disk;
use crate::write::arena::Arena;
use crate::write::bands::Banding;
use crate::write::batch::Batch;
use crate::write::duplicates::Duplicates;
use crate::write::merge::MergeSource;
use crate::write::shard_file::{PairBytes, PairHeader, PieceSink};
use crate::write::{SortedPairs, pair_header};

/// Block size for writing runs.
const WRITE_BLOCK: usize = 1 << 20;

/// Minimum block size for reading headers and values.
const MIN_READ: usize = 8 << 10;

/// Maximum block size for reading headers, and for reading values. Larger blocks are no faster.
const MAX_READ: usize = 2 << 20;

/// The maximum length of a header in a run with its batch number, in bytes.
pub(crate) const MAX_HEADER: usize = pair_header::MAX_LEN + pair_header::MAX_VARINT;

/// A written run. Its file is closed.
pub(crate) struct Run {
    path: PathBuf,
    order: ShardingSpec,
    /// Whether the number of its batch precedes each header.
    numbered: bool,
    headers_end: u64,
    values_start: u64,
    values_end: u64,
    /// Number of entries of the band table, which ends with the last band that has pairs.
    bands: usize,
}

/// The offsets of the first header and the first value of a band.
#[derive(Clone, Copy)]
struct BandStart {
    header: u64,
    value: u64,
}

impl BandStart {
    const LEN: usize = 16;

    fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let (header, value) = bytes.split_at_mut(8);
        header.copy_from_slice(&self.header.to_le_bytes());
        value.copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; 16]) -> BandStart {
        let number = u128::from_le_bytes(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "the low and the high half")]
        let (header, value) = (number as u64, (number >> 64) as u64);
        BandStart { header, value }
    }
}

impl Run {
    /// Writes pairs that arrive in the storage order of `order`. Their headers take at most `headers_at_most` bytes.
    pub(crate) fn write(
        path: PathBuf,
        order: ShardingSpec,
        duplicates: Duplicates,
        headers_at_most: u64,
        from: &mut dyn SortedPairs,
    ) -> Result<Run> {
        let mut writer = RunWriter::create(path, order, duplicates != Duplicates::Refuse, headers_at_most)?;
        while let Some((place, header)) = from.next()? {
            writer.write_pair(place, &header, from)?;
        }
        writer.finish()
    }

    /// Returns the specification that defines the order of the pairs.
    pub(crate) fn order(&self) -> &ShardingSpec {
        &self.order
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn headers_len(&self) -> u64 {
        self.headers_end
    }

    /// Returns the length of the value region: the bytes of all pairs, without their headers and without large pairs.
    pub(crate) fn value_region_bytes(&self) -> u64 {
        self.values_end - self.values_start
    }

    /// Opens the run for reading. All readers share one descriptor.
    pub(crate) fn open(&self) -> Result<OpenRun<'_>> {
        let file = File::open(&self.path).map_err(|error| Error::io("open", &self.path, error))?;
        let file = Arc::new(file);
        let table_end = self.values_end + (self.bands * BandStart::LEN) as u64;
        let mut table = BlockReader::new(file.clone(), &self.path, self.values_end, table_end, MIN_READ);
        let bytes = table.fill_at_least(self.bands * BandStart::LEN)?;
        let bands = bytes.as_chunks::<{ BandStart::LEN }>().0.iter().map(|bytes| BandStart::from_bytes(*bytes));
        let bands = bands.collect();
        Ok(OpenRun { run: self, file, bands })
    }

    /// Removes the file. Files that are not removed are deleted with the spill directory.
    pub(crate) fn remove(self) -> Result<()> {
        disk::remove_file(&self.path).map_err(|error| Error::io("remove", &self.path, error))
    }
}

/// A run whose file is open.
pub(crate) struct OpenRun<'a> {
    run: &'a Run,
    file: Arc<File>,
    bands: Vec<BandStart>,
}

impl OpenRun<'_> {
    pub(crate) fn order(&self) -> &ShardingSpec {
        &self.run.order
    }

    /// Returns a reader of some bands. Its two blocks, for headers and for values, take about `block` bytes together.
    pub(crate) fn read(&self, bands: Range<usize>, block: usize) -> RunReader {
        let (start, end) = (self.band_start(bands.start), self.band_start(bands.end));
        let (headers, values) = (end.header - start.header, end.value - start.value);
        let header_share = u128::from(headers) * block as u128 / u128::from((headers + values).max(1));
        let header_block = usize::try_from(header_share).unwrap_or(block).clamp(MIN_READ, MAX_READ);
        let value_block = block.saturating_sub(header_block).clamp(MIN_READ, MAX_READ);
        let reader = |start, end, block| BlockReader::new(self.file.clone(), &self.run.path, start, end, block);
        RunReader {
            headers: reader(start.header, end.header, header_block),
            values: reader(start.value, end.value, value_block),
            numbered: self.run.numbered,
            dropped_bytes: 0,
        }
    }

    /// Returns the start of a band; the end of the run if neither the band nor a later one has pairs.
    fn band_start(&self, band: usize) -> BandStart {
        let end = BandStart { header: self.run.headers_end, value: self.run.values_end };
        self.bands.get(band).copied().unwrap_or(end)
    }

    /// Reads all pairs into batches of at most `batch_len` bytes, or of one larger pair. Each batch contains pairs of
    /// one batch number only, and its cost does not include the memory for sorting.
    pub(crate) fn read_batches(&self, batch_len: usize) -> Result<Vec<Batch>> {
        let mut reader = self.read(0..self.bands.len(), 2 * MAX_READ);
        let mut full = Vec::new();
        let mut filling: Vec<Batch> = Vec::new(); // one per batch number; a run has pairs of a few batches
        while let Some(header) = reader.next()? {
            let inline_len = usize::try_from(header.inline_len()).unwrap_or(usize::MAX);
            // not `Batch::cost_of`, since `batch_len` limits only the memory of the records
            let len = pair_header::MAX_LEN.saturating_add(inline_len);
            let at = filling.iter().position(|batch| batch.number == header.batch);
            let at = match at {
                Some(at) if filling.get(at).is_some_and(|batch| batch.cost() + len <= batch_len) => at,
                other => {
                    full.extend(other.map(|at| filling.swap_remove(at)));
                    filling.push(Batch::new(header.batch, Arena::default(), batch_len.max(len))?);
                    filling.len() - 1
                }
            };
            let batch =
                filling.get_mut(at).ok_or_else(|| Error::internal("a batch that was just added is not there"))?;
            batch.push(&header, len, |to| {
                let read = reader.values.read_exact(to);
                read.map_err(|error| Error::io("read", &self.run.path, error))
            })?;
        }
        full.append(&mut filling);
        full.sort_by_key(|batch| batch.number); // stable: batches of one number stay in order
        Ok(full)
    }
}

/// Writes headers and values to two regions of a file at the same time.
struct RunWriter {
    path: PathBuf,
    order: ShardingSpec,
    numbered: bool,
    banding: Banding,
    bands: Vec<BandStart>,
    headers: Cursor,
    /// Begins after the space reserved for headers. The part that they do not use stays a hole.
    values: Cursor,
    values_start: u64,
    header: Vec<u8>,
}

impl RunWriter {
    fn create(path: PathBuf, order: ShardingSpec, numbered: bool, headers_at_most: u64) -> Result<RunWriter> {
        let file = create_new(&path)?;
        let values_start = headers_at_most.next_multiple_of(WRITE_BLOCK as u64);
        let cursor = |position| Cursor::new(Sink::file(file.clone(), &path), position, WRITE_BLOCK);
        let (headers, values) = (cursor(0), cursor(values_start));
        let (banding, bands) = (Banding::of(&order), Vec::new());
        Ok(RunWriter { path, order, numbered, banding, bands, headers, values, values_start, header: Vec::new() })
    }

    fn write_pair(&mut self, place: u64, header: &PairHeader, from: &mut dyn PairBytes) -> Result<()> {
        self.enter_bands_to(self.banding.band_of(place));
        self.write_header(header)?;
        if header.is_inline() { from.copy(header, &mut self.values) } else { Ok(()) }
    }

    /// Records the current position as the start of all bands up to `band` that have not started yet.
    #[inline]
    fn enter_bands_to(&mut self, band: usize) {
        if self.bands.len() <= band {
            let start = BandStart { header: self.headers.position(), value: self.values.position() };
            self.bands.resize(band + 1, start);
        }
    }

    fn write_header(&mut self, header: &PairHeader) -> Result<()> {
        self.header.clear();
        if self.numbered {
            pair_header::write_varint(header.batch, &mut self.header);
        }
        pair_header::write(header, &mut self.header);
        self.headers.write(&self.header)
    }

    fn finish(mut self) -> Result<Run> {
        let values_end = self.values.position();
        for band in &self.bands {
            self.values.write(&band.to_bytes())?;
        }
        self.headers.finish()?;
        self.values.finish()?;
        let headers_end = self.headers.position();
        let RunWriter { path, order, numbered, bands, values_start, .. } = self;
        Ok(Run { path, order, numbered, headers_end, values_start, values_end, bands: bands.len() })
    }
}

/// Reads a run. Headers are read ahead of their values.
pub(crate) struct RunReader {
    headers: BlockReader,
    values: BlockReader,
    numbered: bool,
    /// Bytes in the value region of the pairs that were dropped after the last kept pair with bytes there.
    dropped_bytes: u64,
}

impl MergeSource for RunReader {
    #[inline]
    fn next(&mut self) -> Result<Option<PairHeader>> {
        let mut bytes = self.headers.fill_at_least(MAX_HEADER)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let before = bytes.len();
        let batch =
            if self.numbered { pair_header::read_varint(&mut bytes).ok_or_else(pair_header::cut_short)? } else { 0 };
        let (header, len) = pair_header::read(bytes)?;
        let consumed = before - bytes.len() + len;
        self.headers.consume(consumed);
        Ok(Some(PairHeader { batch, ..header }))
    }

    fn drop_pair(&mut self, header: &PairHeader) {
        self.dropped_bytes += header.inline_len();
    }

    /// Stores in the header the number of bytes to skip before the pair.
    fn keep_pair(&mut self, header: &mut PairHeader) {
        if header.is_inline() {
            header.locator = std::mem::take(&mut self.dropped_bytes);
        }
    }
}

impl PairBytes for RunReader {
    #[inline]
    fn pieces(&mut self, header: &PairHeader, to: &mut PieceSink<'_>) -> Result<()> {
        if header.locator > 0 {
            self.values.skip(header.locator);
        }
        self.values.pieces(header.inline_len(), to)
    }
}

/// Returns the path of a run in the spill directory of a loader.
pub(crate) fn run_path(spill_dir: &Path, number: u64) -> PathBuf {
    spill_dir.join(format!("{number:08}.run"))
}
