//! A run: pairs in storage order on disk, headers and values in two regions of one file, each written and read front
//! to back; from the beginning of any slice on.

use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bulk::arena::Arena;
use crate::bulk::batch::Batch;
use crate::bulk::slices::Slicing;
use crate::bulk::{SortedPairs, record};
use crate::disk;
use crate::error::{Error, Result};
use crate::failpoint;
use crate::format::checks;
use crate::format::encoding::GzipEncoder;
use crate::shard::{PairBytes, PairHeader};
use crate::spec::{Encoding, ShardingSpec};
use crate::storage::{BlockReader, Cursor, create_new};

/// Blocks in which runs are written.
const WRITE_BLOCK: usize = 1 << 20;

/// The smallest blocks in which headers and values are read.
const MIN_READ: usize = 8 << 10;

/// The largest; more does not make a disk faster.
const MAX_READ: usize = 2 << 20;

/// Pairs on disk; the file is removed when it is dropped.
pub(crate) struct Run {
    path: PathBuf,
    file: Arc<fs::File>,
    order: ShardingSpec,
    /// Where each slice begins, up to the last that has pairs.
    slices: Vec<SliceStart>,
    headers_end: u64,
    values_end: u64,
    /// The key, if it has but one pair, too large for any batch.
    single: Option<u64>,
}

/// Where the headers and the values of a slice begin.
#[derive(Clone, Copy)]
struct SliceStart {
    header: u64,
    value: u64,
}

impl Run {
    /// Writes pairs that come in the storage order of `order`.
    pub(crate) fn write(
        path: PathBuf,
        order: ShardingSpec,
        headers_at_most: u64,
        from: &mut dyn SortedPairs,
    ) -> Result<Run> {
        let mut writer = RunWriter::create(path, order, headers_at_most)?;
        while let Some((place, header)) = from.next()? {
            writer.write_pair(place, &header, from)?;
        }
        writer.finish()
    }

    /// Writes a run of a single pair, too large for a batch, from a reader of its prefix and its value.
    pub(crate) fn write_single(
        path: PathBuf,
        order: ShardingSpec,
        key: u64,
        (prefix_len, value_len): (u64, u64),
        reader: &mut dyn Read,
        data_encoding: Encoding,
    ) -> Result<(Run, PairHeader)> {
        let mut writer = RunWriter::create(path, order, record::MAX_LEN as u64)?;
        let mut prefix_sum = crc32fast::Hasher::new();
        writer.values.write_from(&mut SumReader(reader, &mut prefix_sum), prefix_len)?;
        let value_start = writer.values.position();
        let mut value_check = checks::value_hasher(key);
        match data_encoding {
            Encoding::Raw => writer.values.write_from(&mut SumReader(reader, &mut value_check), value_len)?,
            Encoding::Gzip => writer.write_encoded(reader, value_len, &mut value_check)?,
        }
        let header = PairHeader {
            key,
            prefix_len,
            stored_len: writer.values.position() - value_start,
            value_check: value_check.finalize(),
            prefix_sum: prefix_sum.finalize(),
            source: 0,
            skip: 0,
        };
        writer.enter_slices_to(writer.slicing.slice_of(order.place(key)), writer.values_start);
        writer.write_header(&header)?;
        let mut run = writer.finish()?;
        run.single = Some(key);
        Ok((run, header))
    }

    /// The same run in the order of `order`, which costs nothing if it has but one pair.
    pub(crate) fn reordered_if_single(mut self, order: ShardingSpec) -> Run {
        if let (Some(key), Some(start)) = (self.single, self.slices.last().copied()) {
            self.slices = vec![start; Slicing::of(&order).slice_of(order.place(key)) + 1];
            self.order = order;
        }
        self
    }

    /// The specification in whose storage order the pairs are.
    pub(crate) fn order(&self) -> &ShardingSpec {
        &self.order
    }

    pub(crate) fn headers_len(&self) -> u64 {
        self.headers_end
    }

    /// The stored bytes of the pairs.
    pub(crate) fn len(&self) -> u64 {
        self.values_end - self.slice_start(0).value
    }

    /// Reads some slices in blocks of `block` bytes, headers and values together.
    pub(crate) fn read(&self, slices: Range<usize>, block: usize) -> RunReader {
        let start = self.slice_start(slices.start);
        let end = self.slice_start(slices.end);
        let (headers, values) = (end.header - start.header, end.value - start.value);
        let header_share = u128::from(headers) * block as u128 / u128::from((headers + values).max(1));
        let header_block = usize::try_from(header_share).unwrap_or(block).clamp(MIN_READ, MAX_READ);
        let value_block = block.saturating_sub(header_block).clamp(MIN_READ, MAX_READ);
        let reader = |start, end, block| BlockReader::new(self.file.clone(), &self.path, start, end, block);
        RunReader {
            headers: reader(start.header, end.header, header_block),
            values: reader(start.value, end.value, value_block),
            dropped: 0,
        }
    }

    fn slice_start(&self, slice: usize) -> SliceStart {
        let end = SliceStart { header: self.headers_end, value: self.values_end };
        self.slices.get(slice).copied().unwrap_or(end)
    }

    /// Reads all pairs back, in batches of about this size.
    pub(crate) fn read_batches(&self, batch_len: usize) -> Result<Vec<Batch>> {
        let mut reader = self.read(0..self.slices.len(), 2 * MAX_READ);
        let mut batches = Vec::new();
        let mut batch = Batch::default();
        while let Some(header) = reader.next()? {
            let len = usize::try_from(header.prefix_len + header.stored_len).unwrap_or(usize::MAX);
            let cost = record::MAX_LEN.saturating_add(len);
            if batch.cost() + cost > batch_len || batches.is_empty() {
                let next = Batch::new(0, Arena::default(), batch_len.max(cost))?;
                batches.push(std::mem::replace(&mut batch, next));
            }
            batch.push(&header, cost, |to| {
                let read = reader.values.read_exact(to);
                read.map_err(|error| Error::io("read", &self.path, error))
            })?;
        }
        batches.push(batch);
        Ok(batches)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = disk::remove_file(&self.path);
    }
}

/// Writes headers and values side by side.
pub(crate) struct RunWriter {
    path: PathBuf,
    file: Arc<fs::File>,
    order: ShardingSpec,
    slicing: Slicing,
    slices: Vec<SliceStart>,
    headers: Cursor,
    /// Begins behind the most that the headers can take; what they do not take stays a hole.
    values: Cursor,
    values_start: u64,
    header: Vec<u8>,
}

impl RunWriter {
    fn create(path: PathBuf, order: ShardingSpec, headers_at_most: u64) -> Result<RunWriter> {
        let file = create_new(&path)?;
        let values_start = headers_at_most.next_multiple_of(WRITE_BLOCK as u64);
        let cursor = |position| Cursor::new(file.clone(), path.as_path().into(), position, WRITE_BLOCK);
        let (headers, values) = (cursor(0), cursor(values_start));
        let (slicing, slices) = (Slicing::of(&order), Vec::new());
        Ok(RunWriter { path, file, order, slicing, slices, headers, values, values_start, header: Vec::new() })
    }

    fn write_pair(&mut self, place: u64, header: &PairHeader, from: &mut dyn PairBytes) -> Result<()> {
        self.enter_slices_to(self.slicing.slice_of(place), self.values.position());
        self.write_header(header)?;
        from.copy(header, &mut self.values)
    }

    /// Notes that all slices up to this one, where not noted before, begin here.
    #[inline]
    fn enter_slices_to(&mut self, slice: usize, value: u64) {
        if self.slices.len() <= slice {
            self.slices.resize(slice + 1, SliceStart { header: self.headers.position(), value });
        }
    }

    fn write_header(&mut self, header: &PairHeader) -> Result<()> {
        self.header.clear();
        record::write(header, &mut self.header);
        self.headers.write(&self.header)
    }

    fn write_encoded(&mut self, reader: &mut dyn Read, len: u64, sum: &mut crc32fast::Hasher) -> Result<()> {
        let (values, mut failed) = (&mut self.values, None);
        let encoded = GzipEncoder::new().encode_reader(reader, len, &mut |piece| {
            sum.update(piece);
            values.write(piece).map_err(|error| {
                failed = Some(error);
                std::io::ErrorKind::Other.into()
            })
        });
        encoded.map_err(|error| failed.unwrap_or_else(|| Error::io("compress a value for", &self.path, error)))
    }

    fn finish(mut self) -> Result<Run> {
        self.headers.finish()?;
        self.values.finish()?;
        failpoint::reach("bulk: after run");
        let (headers_end, values_end) = (self.headers.position(), self.values.position());
        let RunWriter { path, file, order, slices, .. } = self;
        Ok(Run { path, file, order, slices, headers_end, values_end, single: None })
    }
}

/// Reads a run: headers ahead, values behind them.
pub(crate) struct RunReader {
    headers: BlockReader,
    values: BlockReader,
    /// Bytes of values that were dropped since the last one that was kept.
    dropped: u64,
}

impl RunReader {
    /// The next header.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<PairHeader>> {
        let bytes = self.headers.fill_at_least(record::MAX_LEN)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let (header, len) = record::read(bytes)?;
        self.headers.consume(len);
        Ok(Some(header))
    }

    /// Leaves out a pair whose header was read.
    pub(crate) fn drop_pair(&mut self, header: &PairHeader) {
        self.dropped += header.prefix_len + header.stored_len;
    }

    /// Keeps a pair: its header tells what to skip before its bytes.
    pub(crate) fn keep_pair(&mut self, header: &mut PairHeader) {
        header.skip = std::mem::take(&mut self.dropped);
    }

    /// Copies the bytes of a kept pair.
    #[inline]
    pub(crate) fn copy(&mut self, header: &PairHeader, to: &mut Cursor) -> Result<()> {
        if header.skip > 0 {
            self.values.skip(header.skip);
        }
        self.values.copy(header.prefix_len + header.stored_len, to)
    }
}

/// Sums what passes.
struct SumReader<'a>(&'a mut dyn Read, &'a mut crc32fast::Hasher);

impl Read for SumReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read(into)?;
        self.1.update(into.get(..read).unwrap_or_default());
        Ok(read)
    }
}

/// Names the runs of a loader's spill directory.
pub(crate) fn run_path(spill_dir: &Path, number: u64) -> PathBuf {
    spill_dir.join(format!("{number:08}.run"))
}
