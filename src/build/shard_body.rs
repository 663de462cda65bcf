//! The writer of the sections of a shard file: the shard index and the minishards after it.
//!
//! ```text
//! | shard index   2^minishard_bits x 16 bytes, written through its own cursor
//! | minishard 0   raw index:   index | checks | values        gzip index:   values | index | checks
//! | minishard 1   ...          each begins at a multiple of 8
//! ```
//!
//! A minishard is written when all its pairs are known. If they do not fit into memory, it is written through one
//! cursor per region (each row of the index, each row of the checks, the values), each of which writes sequentially.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crc32fast::Hasher;

use crate::byte_range::{ByteRange, RelativeRange};
use crate::disk;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checks::{self, ChecksPlace};
use crate::format::gzip::{DEFAULT_MAX_INDEX_BYTES, DEFAULT_MAX_VALUE_BYTES, GzipEncoder};
use crate::format::layout::{Layout, MINISHARD_ALIGNMENT, ValueAlignment};
use crate::format::minishard_index::{IndexBuilder, ROW_LEN};
use crate::format::shard_index::ShardIndexEntry;
use crate::format::spec::{Encoding, ShardingSpec};
use crate::ids::{Location, MinishardNumber, ShardNumber};
use crate::storage::{BlockReader, Cursor, Sink, WRITE_BLOCK, create_new, zeros_sum};

/// Block size of a cursor that writes a row. There are several such cursors at once.
const ROW_BLOCK: usize = 256 << 10;

/// The header of a pair: everything except its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PairHeader {
    pub(crate) key: u64,
    pub(crate) prefix_len: u64,
    pub(crate) stored_len: u64,
    /// The check of the stored value.
    pub(crate) value_check: u32,
    /// The CRC-32 of the prefix.
    pub(crate) prefix_crc32: u32,
    /// The number of the batch that it was inserted in. Orders the pairs of one key by insertion.
    pub(crate) batch: u64,
    /// Offset of its bytes in the loader's file of large pairs; `None` if its source contains them.
    pub(crate) large: Option<u64>,
    /// The number of the source that contains its bytes.
    pub(crate) source: u32,
    /// Where its bytes are in the source. In a run: the bytes to skip before it, from the end of the previous kept pair.
    /// In memory: the offset in the piece.
    pub(crate) skip: u64,
}

impl PairHeader {
    /// Returns the header of a pair that is not encoded yet, and not in a source.
    pub(crate) fn new(key: u64, prefix_len: u64, stored_len: u64) -> PairHeader {
        PairHeader {
            key,
            prefix_len,
            stored_len,
            value_check: 0,
            prefix_crc32: 0,
            batch: 0,
            large: None,
            source: 0,
            skip: 0,
        }
    }

    /// Returns the number of its bytes in the source: those of prefix and stored value, or 0 for a large pair.
    #[inline]
    pub(crate) fn inline_len(&self) -> u64 {
        match self.large {
            Some(_) => 0,
            None => self.prefix_len + self.stored_len,
        }
    }
}

/// Checks the length of a value. Errors: `TooLarge` for a gzip value that readers refuse to decode by default.
pub(crate) fn check_value_len(key: u64, len: u64, data_encoding: Encoding) -> Result<()> {
    if data_encoding == Encoding::Raw || len <= DEFAULT_MAX_VALUE_BYTES {
        return Ok(());
    }
    let message = format!(
        "expected a value of at most {DEFAULT_MAX_VALUE_BYTES} bytes for gzip, the most that readers decode by default, \
         found {len}: choose the raw data encoding"
    );
    Err(Error::new(ErrorKind::TooLarge, message).at_key(key))
}

/// A source of the bytes of pairs, in the order in which they are written.
pub(crate) trait PairBytes {
    /// Copies the prefix and the stored value of a pair.
    fn copy(&mut self, pair: &PairHeader, to: &mut Cursor) -> Result<()>;
}

/// Pairs that are stored one after another in memory.
impl PairBytes for &[u8] {
    fn copy(&mut self, pair: &PairHeader, to: &mut Cursor) -> Result<()> {
        let len = usize::try_from(pair.prefix_len + pair.stored_len).unwrap_or(usize::MAX);
        let (pair_bytes, rest) = self.split_at_checked(len).unwrap_or((self, &[]));
        *self = rest;
        to.write(pair_bytes)
    }
}

/// The summary of a finished shard: its row of the manifest, and its value bytes.
///
/// ```
/// use sharddb::ShardingSpec;
/// use sharddb::build::ShardWriter;
/// use sharddb::spec::{HashFunction, Layout, ShardNumber};
///
/// let spec = ShardingSpec::new(HashFunction::Identity, 0, 0, 0)?;
/// let mut writer = ShardWriter::in_memory(spec, ShardNumber(0), Layout::default())?;
/// writer.insert(7, "seven")?;
/// let (summary, bytes) = writer.finish_in_memory()?;
/// assert_eq!((summary.keys, summary.value_bytes, summary.bytes), (1, 5, bytes.len() as u64));
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardSummary {
    /// The shard.
    pub number: ShardNumber,
    /// The length of the file in bytes.
    pub bytes: u64,
    /// The number of keys.
    pub keys: u64,
    /// The stored bytes of all values: encoded, without prefixes, padding and indexes.
    pub value_bytes: u64,
    /// The CRC-32 of the file.
    pub crc32: u32,
    /// The CRC-32 of the shard index.
    pub shard_index_crc32: u32,
}

/// A shard file being written.
pub(crate) struct ShardBody {
    sink: Sink,
    spec: ShardingSpec,
    number: ShardNumber,
    layout: Layout,
    shard_index: Cursor,
    body: Cursor,
    keys: u64,
    value_bytes: u64,
    encoder: GzipEncoder,
    // buffers for the current minishard, kept to reuse their memory
    places: Vec<Place>,
    builder: IndexBuilder,
    raw_index: Vec<u8>,
    encoded_index: Vec<u8>,
}

/// The position of a pair in the file.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Zero bytes before the prefix.
    padding: u64,
    value: ByteRange,
}

/// Assigns positions to consecutive values.
struct Placement {
    alignment: ValueAlignment,
    end: u64,
    /// The last value was empty, so an empty value directly after it would have the same byte range.
    after_empty: bool,
}

impl Placement {
    fn place(&mut self, pair: &PairHeader) -> Place {
        let empty = pair.stored_len == 0;
        // CloudVolume keeps only one of several keys that share a byte range
        let apart = u64::from(self.after_empty && empty && pair.prefix_len == 0);
        let unaligned = self.end + apart + pair.prefix_len;
        let start = unaligned + self.alignment.padding(unaligned);
        let place = Place {
            padding: start - pair.prefix_len - self.end,
            value: ByteRange { start, end: start + pair.stored_len },
        };
        (self.end, self.after_empty) = (place.value.end, empty);
        place
    }
}

impl ShardBody {
    pub(crate) fn create(path: &Path, spec: ShardingSpec, number: ShardNumber, layout: Layout) -> Result<ShardBody> {
        Ok(ShardBody::new(Sink::file(create_new(path)?, path), spec, number, layout))
    }

    pub(crate) fn new(sink: Sink, spec: ShardingSpec, number: ShardNumber, layout: Layout) -> ShardBody {
        ShardBody {
            shard_index: Cursor::new(sink.clone(), 0, ROW_BLOCK),
            body: Cursor::new(sink.clone(), spec.shard_index_len(), WRITE_BLOCK),
            sink,
            spec,
            number,
            layout,
            keys: 0,
            value_bytes: 0,
            encoder: GzipEncoder::new(),
            places: Vec::new(),
            builder: IndexBuilder::default(),
            raw_index: Vec::new(),
            encoded_index: Vec::new(),
        }
    }

    /// Returns the destination of the bytes.
    pub(crate) fn sink(&self) -> &Sink {
        &self.sink
    }

    pub(crate) fn spec(&self) -> &ShardingSpec {
        &self.spec
    }

    pub(crate) fn number(&self) -> ShardNumber {
        self.number
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Writes a minishard whose headers are in memory. Keys must ascend strictly, and so must minishards across calls.
    pub(crate) fn write_minishard(
        &mut self,
        minishard: MinishardNumber,
        pairs: &[PairHeader],
        bytes: &mut dyn PairBytes,
    ) -> Result<()> {
        let rows = pairs.len() as u64;
        self.check_index_len(minishard, rows)?;
        self.align_minishard()?;
        let index = match self.spec.minishard_index_encoding() {
            Encoding::Raw => {
                let values = self.body.position() + ROW_LEN * rows + self.checks_len(rows);
                self.place(pairs, values);
                let index = self.write_index(minishard, pairs)?;
                self.write_values(pairs, bytes)?;
                index
            }
            Encoding::Gzip => {
                self.place(pairs, self.body.position());
                self.write_values(pairs, bytes)?;
                self.write_index(minishard, pairs)?
            }
        };
        self.enter(minishard, index, rows)
    }

    /// Assigns positions to the pairs from offset `start` on and builds the raw index.
    fn place(&mut self, pairs: &[PairHeader], start: u64) {
        let mut placement = self.placement(start);
        self.places.clear();
        self.places.extend(pairs.iter().map(|pair| placement.place(pair)));
        for (pair, place) in pairs.iter().zip(&self.places) {
            self.builder.push(pair.key, relative(&self.spec, place.value));
        }
        self.raw_index.clear();
        self.builder.drain_into(&mut self.raw_index);
    }

    /// Writes the index and its checks; returns the byte range of the index.
    fn write_index(&mut self, minishard: MinishardNumber, pairs: &[PairHeader]) -> Result<ByteRange> {
        let encoded = match self.spec.minishard_index_encoding() {
            Encoding::Raw => &self.raw_index,
            Encoding::Gzip => {
                self.encoded_index.clear();
                self.encoder.encode(&self.raw_index, &mut self.encoded_index);
                &self.encoded_index
            }
        };
        let start = self.body.position();
        self.body.write(encoded)?;
        let index = ByteRange { start, end: self.body.position() };
        if self.layout.checks {
            let location = Location { shard: self.number, minishard };
            self.body.write(&checks::of_index(location, encoded).to_le_bytes())?;
            pairs.iter().try_for_each(|pair| self.body.write(&pair.value_check.to_le_bytes()))?;
            if self.layout.prefixes {
                let places = pairs.iter().zip(&self.places);
                places.map(|(pair, place)| prefix_check(pair, place)).try_for_each(|check| self.body.write(&check))?;
            }
        }
        Ok(index)
    }

    fn write_values(&mut self, pairs: &[PairHeader], bytes: &mut dyn PairBytes) -> Result<()> {
        for (pair, place) in pairs.iter().zip(&self.places) {
            self.body.zeros(place.padding)?;
            bytes.copy(pair, &mut self.body)?;
            check_end(pair, place, &self.body)?;
            self.value_bytes += pair.stored_len;
        }
        Ok(())
    }

    /// Writes a minishard of `rows` pairs from an iterator. Keys must ascend strictly.
    ///
    /// `scratch` is the path of a temporary file for the rows of a gzip index. The file is removed afterwards.
    pub(crate) fn write_large_minishard(
        &mut self,
        minishard: MinishardNumber,
        rows: u64,
        pairs: &mut dyn Iterator<Item = Result<PairHeader>>,
        bytes: &mut dyn PairBytes,
        scratch: &Path,
    ) -> Result<()> {
        self.check_index_len(minishard, rows)?;
        self.align_minishard()?;
        let start = self.body.position();
        let index = match self.spec.minishard_index_encoding() {
            Encoding::Raw => {
                let head = ROW_LEN * rows + self.checks_len(rows);
                let mut row_cursors = RowCursors::new(&self.sink, start, rows, self.layout);
                let mut values = Cursor::new(self.sink.clone(), start + head, WRITE_BLOCK);
                self.write_rows(pairs, &mut row_cursors, &mut values, bytes)?;
                let mut index = self.index_hasher(minishard);
                row_cursors.append_to(&mut self.body, &mut index)?;
                self.body.append(values)?;
                ByteRange { start, end: start + ROW_LEN * rows }
            }
            Encoding::Gzip => {
                let file = create_new(scratch)?;
                let rows_sink = Sink::file(file.clone(), scratch);
                let mut row_cursors = RowCursors::new(&rows_sink, 0, rows, self.layout);
                let mut values = Cursor::new(self.sink.clone(), start, WRITE_BLOCK);
                self.write_rows(pairs, &mut row_cursors, &mut values, bytes)?;
                row_cursors.finish()?;
                self.body.append(values)?;
                let index = self.compress_index(minishard, &file, scratch, rows)?;
                disk::remove_file(scratch).map_err(|error| Error::io("remove", scratch, error))?;
                index
            }
        };
        self.enter(minishard, index, rows)
    }

    fn write_rows(
        &mut self,
        pairs: &mut dyn Iterator<Item = Result<PairHeader>>,
        row_cursors: &mut RowCursors,
        values: &mut Cursor,
        bytes: &mut dyn PairBytes,
    ) -> Result<()> {
        let mut placement = self.placement(values.position());
        for pair in pairs {
            let pair = pair?;
            let place = placement.place(&pair);
            let (id, start) = self.builder.deltas(pair.key, relative(&self.spec, place.value));
            row_cursors.write(&pair, &place, id, start)?;
            values.zeros(place.padding)?;
            bytes.copy(&pair, values)?;
            check_end(&pair, &place, values)?;
            self.value_bytes += pair.stored_len;
        }
        self.builder = IndexBuilder::default();
        Ok(())
    }

    /// Compresses the rows of an index from the scratch file and copies its checks after it.
    fn compress_index(
        &mut self,
        minishard: MinishardNumber,
        scratch: &Arc<File>,
        path: &Path,
        rows: u64,
    ) -> Result<ByteRange> {
        let start = self.body.position();
        let (index_len, checks_len) = (ROW_LEN * rows, self.checks_len(rows));
        let mut raw = BlockReader::new(scratch.clone(), path, 0, index_len, ROW_BLOCK);
        let mut check = self.index_hasher(minishard);
        let mut failed = None;
        let body = &mut self.body;
        let encoded = self.encoder.encode_reader(&mut raw, index_len, &mut |piece| {
            check.update(piece);
            body.write(piece).map_err(|error| {
                failed = Some(error);
                std::io::ErrorKind::Other.into()
            })
        });
        encoded.map_err(|error| failed.unwrap_or_else(|| Error::io("compress a minishard index", path, error)))?;
        let index = ByteRange { start, end: self.body.position() };
        if self.layout.checks {
            self.body.write(&check.finalize().to_le_bytes())?;
            let after_index_check = index_len + 4;
            let end = index_len + checks_len;
            let mut rest = BlockReader::new(scratch.clone(), path, after_index_check, end, ROW_BLOCK);
            rest.copy(end - after_index_check, &mut self.body)?;
        }
        Ok(index)
    }

    /// Completes the shard index and returns the summary of the file. Does not sync.
    pub(crate) fn finish(&mut self) -> Result<ShardSummary> {
        self.shard_index.zeros(self.spec.shard_index_len() - self.shard_index.position())?;
        let bytes = self.body.position();
        let mut crc32 = self.shard_index.finish()?;
        let shard_index_crc32 = crc32.clone().finalize();
        crc32.combine(&self.body.finish()?);
        Ok(ShardSummary {
            number: self.number,
            bytes,
            keys: self.keys,
            value_bytes: self.value_bytes,
            crc32: crc32.finalize(),
            shard_index_crc32,
        })
    }

    /// Checks the length of an index. Errors: `TooLarge` for a gzip index that readers refuse to decode by default.
    fn check_index_len(&self, minishard: MinishardNumber, rows: u64) -> Result<()> {
        let decoded = rows.saturating_mul(ROW_LEN);
        if self.spec.minishard_index_encoding() == Encoding::Raw || decoded <= DEFAULT_MAX_INDEX_BYTES {
            return Ok(());
        }
        let message = format!(
            "expected a gzip minishard index of at most {DEFAULT_MAX_INDEX_BYTES} bytes, the most that readers decode by \
             default, found {rows} keys that need {decoded}: choose more minishard bits or a raw minishard index"
        );
        Err(Error::new(ErrorKind::TooLarge, message).at_shard(self.number).at_minishard(minishard))
    }

    fn align_minishard(&mut self) -> Result<()> {
        self.body.zeros(self.body.position().wrapping_neg() % MINISHARD_ALIGNMENT)
    }

    /// Adds the entry of a minishard to the shard index, after zero entries for the empty minishards before it.
    fn enter(&mut self, minishard: MinishardNumber, index: ByteRange, rows: u64) -> Result<()> {
        let empty = ShardIndexEntry::position(minishard).start - self.shard_index.position();
        self.shard_index.zeros(empty)?; // the entry of an empty minishard is (0, 0)
        self.shard_index.write(&ShardIndexEntry::new(relative(&self.spec, index)).to_bytes())?;
        self.keys += rows;
        Ok(())
    }

    fn placement(&self, start: u64) -> Placement {
        Placement { alignment: self.layout.value_alignment, end: start, after_empty: false }
    }

    fn checks_len(&self, rows: u64) -> u64 {
        ChecksPlace::total_len(rows, self.layout)
    }

    fn index_hasher(&self, minishard: MinishardNumber) -> Hasher {
        checks::index_hasher(Location { shard: self.number, minishard })
    }
}

/// One cursor for each row of a large minishard's index and checks.
struct RowCursors {
    ids: Cursor,
    starts: Cursor,
    sizes: Cursor,
    checks: Option<CheckCursors>,
}

struct CheckCursors {
    index: Cursor,
    values: Cursor,
    prefixes: Option<Cursor>,
}

impl RowCursors {
    /// Creates cursors for the rows of an index with `rows` keys and of its checks, from offset `start` of a file on.
    fn new(sink: &Sink, start: u64, rows: u64, layout: Layout) -> RowCursors {
        let at = |position| Cursor::new(sink.clone(), position, ROW_BLOCK);
        let checks = start + ROW_LEN * rows;
        RowCursors {
            ids: at(start),
            starts: at(start + 8 * rows),
            sizes: at(start + 16 * rows),
            checks: layout.checks.then(|| CheckCursors {
                index: at(checks),
                values: at(checks + 4),
                prefixes: layout.prefixes.then(|| at(checks + 4 + 4 * rows)),
            }),
        }
    }

    fn write(&mut self, pair: &PairHeader, place: &Place, id: u64, start: u64) -> Result<()> {
        self.ids.write(&id.to_le_bytes())?;
        self.starts.write(&start.to_le_bytes())?;
        self.sizes.write(&pair.stored_len.to_le_bytes())?;
        let Some(checks) = &mut self.checks else { return Ok(()) };
        checks.values.write(&pair.value_check.to_le_bytes())?;
        match &mut checks.prefixes {
            Some(prefixes) => prefixes.write(&prefix_check(pair, place)),
            None => Ok(()),
        }
    }

    /// Finishes the rows, moves `body` past them, and writes the check of the index after the index.
    fn append_to(self, body: &mut Cursor, index_check: &mut Hasher) -> Result<()> {
        for row in [self.ids, self.starts, self.sizes] {
            index_check.combine(&body.append(row)?);
        }
        let Some(mut checks) = self.checks else { return Ok(()) };
        checks.index.write(&index_check.clone().finalize().to_le_bytes())?;
        for row in [Some(checks.index), Some(checks.values), checks.prefixes].into_iter().flatten() {
            body.append(row)?;
        }
        Ok(())
    }

    /// Writes what is buffered, except for the check of the index: that of a gzip index is of its encoded bytes.
    fn finish(self) -> Result<()> {
        let checks = self.checks.map(|checks| [Some(checks.values), checks.prefixes]);
        let rows = [Some(self.ids), Some(self.starts), Some(self.sizes)];
        let mut all = rows.into_iter().chain(checks.into_iter().flatten()).flatten();
        all.try_for_each(|mut row| row.finish().map(drop))
    }
}

/// Checks that a written value ends where the index states. Errors: `Internal`.
#[inline]
fn check_end(pair: &PairHeader, place: &Place, written: &Cursor) -> Result<()> {
    let (stated, found) = (place.value.end, written.position());
    if stated == found {
        return Ok(());
    }
    let message = format!("expected the value to end at byte {stated} of the shard as its index states, found {found}");
    Err(Error::internal(message).at_key(pair.key))
}

/// Returns the check of the bytes between two values: padding, then the prefix.
fn prefix_check(pair: &PairHeader, place: &Place) -> [u8; 4] {
    let mut check = zeros_sum(place.padding);
    check.combine(&Hasher::new_with_initial_len(pair.prefix_crc32, pair.prefix_len));
    check.finalize().to_le_bytes()
}

/// Converts a range of the file to one relative to the end of the shard index.
fn relative(spec: &ShardingSpec, range: ByteRange) -> RelativeRange {
    let base = spec.shard_index_len();
    RelativeRange { start: range.start - base, end: range.end - base }
}
