//! A run: pairs in storage order on disk, headers and values in two regions of one file, each written and read front
//! to back. A log segment is the same with the pairs in the order of insertion.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bulk::batch::{AHEAD, Batch, SortEntry};
use crate::bulk::record;
use crate::byte_range::ByteRange;
use crate::disk;
use crate::error::{Error, Result};
use crate::failpoint;
use crate::format::checks;
use crate::format::encoding::GzipEncoder;
use crate::shard::{PairBytes, PairHeader};
use crate::spec::Encoding;
use crate::storage::{BlockReader, Cursor, create_new};

/// Blocks in which runs are written.
const WRITE_BLOCK: usize = 1 << 20;

/// Pairs on disk; the file is removed when it is dropped.
pub(crate) struct Run {
    path: PathBuf,
    file: Arc<fs::File>,
    headers: ByteRange,
    values: ByteRange,
}

impl Run {
    /// Writes the pairs of a batch in the order of `entries`.
    pub(crate) fn write(path: PathBuf, batch: &Batch, entries: &[SortEntry]) -> Result<Run> {
        let mut writer = RunWriter::create(path, (entries.len() * record::MAX_LEN) as u64)?;
        for (at, entry) in entries.iter().enumerate() {
            // sorted entries lie all over the batch: the bytes of a later one come while this one is copied
            if let Some(later) = entries.get(at + AHEAD) {
                batch.prefetch(later);
            }
            writer.write_entry(batch, entry)?;
        }
        writer.finish()
    }

    /// Writes the pairs of a batch as they came.
    pub(crate) fn write_log(path: PathBuf, batch: &Batch) -> Result<Run> {
        let mut writer = RunWriter::create(path, (batch.pairs() * record::MAX_LEN) as u64)?;
        for entry in batch.entries_in_order() {
            writer.write_entry(batch, &entry?)?;
        }
        writer.finish()
    }

    /// Writes a run of a single pair, too large for a batch, from a reader of its prefix and its value.
    pub(crate) fn write_single(
        path: PathBuf,
        key: u64,
        (prefix_len, value_len): (u64, u64),
        reader: &mut dyn Read,
        data_encoding: Encoding,
    ) -> Result<(Run, PairHeader)> {
        let mut writer = RunWriter::create(path, record::MAX_LEN as u64)?;
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
        writer.write_header(&header)?;
        Ok((writer.finish()?, header))
    }

    pub(crate) fn headers_len(&self) -> u64 {
        self.headers.len()
    }

    pub(crate) fn len(&self) -> u64 {
        self.headers.len() + self.values.len()
    }

    /// Reads the run in blocks of these sizes.
    pub(crate) fn read(&self, header_block: usize, value_block: usize) -> RunReader {
        let reader =
            |range: ByteRange, block| BlockReader::new(self.file.clone(), &self.path, range.start, range.end, block);
        RunReader { headers: reader(self.headers, header_block), values: reader(self.values, value_block), dropped: 0 }
    }

    /// Reads a log segment back into a batch.
    pub(crate) fn read_batch(&self, batch: &mut Batch) -> Result<()> {
        let mut reader = self.read(WRITE_BLOCK, WRITE_BLOCK);
        while let Some(header) = reader.next()? {
            let len = header.prefix_len + header.stored_len;
            batch.push(&header, 0, |bytes| {
                let start = bytes.len();
                bytes.resize(start + usize::try_from(len).unwrap_or(usize::MAX), 0);
                let read = reader.values.read_exact(bytes.get_mut(start..).unwrap_or_default());
                read.map_err(|error| Error::io("read", &self.path, error))
            })?;
        }
        Ok(())
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
    headers: Cursor,
    /// Begins behind the most that the headers can take; what they do not take stays a hole.
    values: Cursor,
    values_start: u64,
    header: Vec<u8>,
}

impl RunWriter {
    pub(crate) fn create(path: PathBuf, headers_at_most: u64) -> Result<RunWriter> {
        let file = create_new(&path)?;
        let values_start = headers_at_most.next_multiple_of(WRITE_BLOCK as u64);
        let cursor = |position| Cursor::new(file.clone(), path.as_path().into(), position, WRITE_BLOCK);
        let (headers, values) = (cursor(0), cursor(values_start));
        Ok(RunWriter { path, file, headers, values, values_start, header: Vec::new() })
    }

    pub(crate) fn write_header(&mut self, header: &PairHeader) -> Result<()> {
        self.header.clear();
        record::write(header, &mut self.header);
        self.headers.write(&self.header)
    }

    fn write_entry(&mut self, batch: &Batch, entry: &SortEntry) -> Result<()> {
        let (header, bytes) = batch.pair(entry)?;
        self.write_header(&header)?;
        self.values.write(bytes)
    }

    /// Writes a pair whose bytes `from` has.
    pub(crate) fn write_pair(&mut self, header: &PairHeader, from: &mut dyn PairBytes) -> Result<()> {
        self.write_header(header)?;
        from.copy(header, &mut self.values)
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

    pub(crate) fn finish(mut self) -> Result<Run> {
        self.headers.finish()?;
        self.values.finish()?;
        failpoint::reach("bulk: after run");
        let headers = ByteRange { start: 0, end: self.headers.position() };
        let values = ByteRange { start: self.values_start, end: self.values.position() };
        Ok(Run { path: self.path, file: self.file, headers, values })
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
