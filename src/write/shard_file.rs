//! The writer of a shard file: the shard index and the minishards after it.
//!
//! ```text
//! | shard index   2^minishard_bits x 16 bytes, written through its own cursor
//! | minishard 0   raw index:   index | checks | values        gzip index:   values | index | checks
//! | minishard 1   ...          each begins at a multiple of 8
//! ```
//!
//! A minishard is written when the headers of all its pairs are known. If they do not fit into memory, it is written
//! through several cursors: one per array of the index, one per array of the checks and one for the values. Each cursor
//! writes sequentially.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crc32fast::Hasher;

use crate::byte_range::{ByteRange, RelativeRange};
use crate::bytes::{BlockReader, Cursor, Sink, WRITE_BLOCK, create_new};
use crate::error::{Error, ErrorKind, Result};
use crate::format::checks::{self, ChecksPlace};
use crate::format::checksum::crc32_of_zeros;
use crate::format::digest::{Digest, ShardIndexDigester};
use crate::format::gzip::{DEFAULT_MAX_INDEX_BYTES, DEFAULT_MAX_VALUE_BYTES, GzipEncoder};
use crate::format::layout::{Layout, MINISHARD_ALIGNMENT, ValueAlignment};
use crate::format::minishard_index::{IndexBuilder, ROW_LEN};
use crate::format::shard_index::ShardIndexEntry;
use crate::format::spec::{Encoding, ShardingSpec};
use crate::fs::disk;
use crate::ids::{Location, MinishardNumber, ShardNumber};

/// Block size of a cursor that writes an array. Up to six such cursors are open at once.
const ARRAY_BLOCK: usize = 256 << 10;

/// The header of a pair: everything except its bytes. `pair_header` encodes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PairHeader {
    pub(crate) key: u64,
    pub(crate) preamble_len: u64,
    pub(crate) stored_len: u64,
    /// The check of the stored value.
    pub(crate) value_check: u32,
    /// The CRC-32 of the preamble.
    pub(crate) preamble_crc32: u32,
    /// The number of the batch that the pair was inserted in. Orders the pairs of one key by insertion.
    pub(crate) batch: u64,
    /// Whether this marks the key as deleted, in place of a pair. Only an update has such marks.
    pub(crate) is_deleted: bool,
    /// Offset of the pair's bytes in the loader's file of large pairs; `None` if the pair is not large, so that its
    /// source contains them.
    pub(crate) large: Option<u64>,
    /// The number of the source that returned the header.
    pub(crate) source: u32,
    /// The position of the pair's bytes in the source. In a run: the number of bytes between the end of the previous
    /// kept pair and this one. In memory: the offset in the piece.
    pub(crate) locator: u64,
}

impl PairHeader {
    /// Returns a header without checksums and without a position in a source. `stored_len` is the raw length until the
    /// value is encoded.
    pub(crate) fn new(key: u64, preamble_len: u64, stored_len: u64) -> PairHeader {
        PairHeader {
            key,
            preamble_len,
            stored_len,
            value_check: 0,
            preamble_crc32: 0,
            batch: 0,
            is_deleted: false,
            large: None,
            source: 0,
            locator: 0,
        }
    }

    /// Returns the number of the pair's bytes in the source: those of preamble and stored value, or 0 for a large pair.
    #[inline]
    pub(crate) fn inline_len(&self) -> u64 {
        match self.large {
            Some(_) => 0,
            None => self.preamble_len + self.stored_len,
        }
    }

    /// Returns whether its bytes are in the source: whether it is neither large nor deleted.
    #[inline]
    pub(crate) fn is_inline(&self) -> bool {
        self.large.is_none() && !self.is_deleted
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
    /// Passes the preamble and the stored value of a pair to `to`, in pieces of any length.
    fn pieces(&mut self, pair: &PairHeader, to: &mut PieceSink<'_>) -> Result<()>;

    /// Copies the preamble and the stored value of a pair.
    #[inline]
    fn copy(&mut self, pair: &PairHeader, to: &mut Cursor) -> Result<()> {
        self.pieces(pair, &mut |piece| to.write(piece))
    }
}

/// A function that takes the bytes of a pair piece by piece.
pub(crate) type PieceSink<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// Pairs that are stored one after another in memory.
impl PairBytes for &[u8] {
    fn pieces(&mut self, pair: &PairHeader, to: &mut PieceSink<'_>) -> Result<()> {
        let len = usize::try_from(pair.preamble_len + pair.stored_len).unwrap_or(usize::MAX);
        let (pair_bytes, rest) = self.split_at_checked(len).unwrap_or((self, &[]));
        *self = rest;
        to(pair_bytes)
    }
}

/// The summary of a finished shard: its record in the manifest, and its value bytes.
///
/// ```
/// use sharddb::ShardingSpec;
/// use sharddb::write::ShardWriter;
/// use sharddb::spec::{HashFunction, Layout};
///
/// let spec = ShardingSpec::new(HashFunction::Identity, 0, 0, 0)?;
/// let mut writer = ShardWriter::in_memory(spec, spec.shard(0).unwrap(), Layout::default())?;
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
    /// The stored bytes of all values: encoded, without preambles, padding and indexes.
    pub value_bytes: u64,
    /// The CRC-32 of the file.
    pub crc32: u32,
    /// The CRC-32 of the shard index.
    pub shard_index_crc32: u32,
    /// The digest of the file.
    pub(crate) digest: Digest,
}

/// A shard file being written.
pub(crate) struct ShardFile {
    sink: Sink,
    spec: ShardingSpec,
    number: ShardNumber,
    layout: Layout,
    /// Writes the shard index.
    shard_index: Cursor,
    shard_index_digester: ShardIndexDigester,
    /// Writes everything after the shard index.
    body: Cursor,
    keys: u64,
    value_bytes: u64,
    encoder: GzipEncoder,
    // buffers for the current minishard, kept to reuse their memory
    positions: Vec<ValuePosition>,
    builder: IndexBuilder,
    raw_index: Vec<u8>,
    encoded_index: Vec<u8>,
}

/// The position of a value in the file.
#[derive(Clone, Copy, Debug)]
struct ValuePosition {
    /// Number of zero bytes before the preamble.
    padding: u64,
    value: ByteRange,
}

/// Assigns positions to consecutive values.
struct PositionAssigner {
    alignment: ValueAlignment,
    /// The end of the last value.
    end: u64,
    /// The last value was empty, so an empty value directly after it would have the same byte range.
    after_empty: bool,
}

impl PositionAssigner {
    /// Returns the position of the next value.
    fn position_of(&mut self, pair: &PairHeader) -> ValuePosition {
        let empty = pair.stored_len == 0;
        // a byte between two empty values, because CloudVolume keeps only one of several keys that share a byte range
        let apart = u64::from(self.after_empty && empty && pair.preamble_len == 0);
        let unaligned = self.end + apart + pair.preamble_len;
        let start = unaligned + self.alignment.padding(unaligned);
        let position = ValuePosition {
            padding: start - pair.preamble_len - self.end,
            value: ByteRange { start, end: start + pair.stored_len },
        };
        (self.end, self.after_empty) = (position.value.end, empty);
        position
    }
}

impl ShardFile {
    pub(crate) fn create(path: &Path, spec: ShardingSpec, number: ShardNumber, layout: Layout) -> Result<ShardFile> {
        Ok(ShardFile::new(Sink::file(create_new(path)?, path), spec, number, layout))
    }

    pub(crate) fn new(sink: Sink, spec: ShardingSpec, number: ShardNumber, layout: Layout) -> ShardFile {
        ShardFile {
            shard_index: Cursor::new(sink.clone(), 0, ARRAY_BLOCK),
            shard_index_digester: ShardIndexDigester::default(),
            body: Cursor::new(sink.clone(), spec.shard_index_len(), WRITE_BLOCK).with_digest(),
            sink,
            spec,
            number,
            layout,
            keys: 0,
            value_bytes: 0,
            encoder: GzipEncoder::new(),
            positions: Vec::new(),
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
        let keys = pairs.len() as u64;
        self.check_index_len(minishard, keys)?;
        self.align_minishard()?;
        let index = match self.spec.minishard_index_encoding() {
            Encoding::Raw => {
                let values = self.body.position() + ROW_LEN * keys + self.checks_len(keys);
                self.assign_positions(pairs, values);
                let index = self.write_index(minishard, pairs)?;
                self.write_values(pairs, bytes)?;
                index
            }
            Encoding::Gzip => {
                self.assign_positions(pairs, self.body.position());
                self.write_values(pairs, bytes)?;
                self.write_index(minishard, pairs)?
            }
        };
        self.add_index_entry(minishard, index, keys)
    }

    /// Assigns positions to the pairs from offset `start` on and builds the raw index.
    fn assign_positions(&mut self, pairs: &[PairHeader], start: u64) {
        let mut assigner = self.position_assigner(start);
        self.positions.clear();
        self.positions.extend(pairs.iter().map(|pair| assigner.position_of(pair)));
        for (pair, position) in pairs.iter().zip(&self.positions) {
            self.builder.push(pair.key, relative(&self.spec, position.value));
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
            self.body.write(&checks::compute_index_check(location, encoded).to_le_bytes())?;
            pairs.iter().try_for_each(|pair| self.body.write(&pair.value_check.to_le_bytes()))?;
            if self.layout.preambles {
                let mut positions = pairs.iter().zip(&self.positions);
                positions.try_for_each(|(pair, position)| self.body.write(&preamble_checksum(pair, position)))?;
            }
        }
        Ok(index)
    }

    fn write_values(&mut self, pairs: &[PairHeader], bytes: &mut dyn PairBytes) -> Result<()> {
        for (pair, position) in pairs.iter().zip(&self.positions) {
            self.body.zeros(position.padding)?;
            bytes.copy(pair, &mut self.body)?;
            check_end(pair, position, &self.body)?;
            self.value_bytes += pair.stored_len;
        }
        Ok(())
    }

    /// Writes a minishard of `keys` pairs from an iterator. Keys must ascend strictly, and so must minishards across
    /// calls.
    ///
    /// `scratch` is the path of a temporary file for the arrays of a gzip index. The file is removed afterwards.
    pub(crate) fn write_minishard_of_many_keys(
        &mut self,
        minishard: MinishardNumber,
        keys: u64,
        pairs: &mut dyn Iterator<Item = Result<PairHeader>>,
        bytes: &mut dyn PairBytes,
        scratch: &Path,
    ) -> Result<()> {
        self.check_index_len(minishard, keys)?;
        self.align_minishard()?;
        let start = self.body.position();
        let index = match self.spec.minishard_index_encoding() {
            Encoding::Raw => {
                let before_values = ROW_LEN * keys + self.checks_len(keys);
                let mut arrays = ArrayCursors::new(&self.sink, start, keys, self.layout);
                let mut values = Cursor::new(self.sink.clone(), start + before_values, WRITE_BLOCK);
                self.write_arrays_and_values(pairs, &mut arrays, &mut values, bytes)?;
                let index_check = self.index_hasher(minishard);
                arrays.append_to(&mut self.body, index_check)?;
                self.body.append(values)?;
                ByteRange { start, end: start + ROW_LEN * keys }
            }
            Encoding::Gzip => {
                let file = create_new(scratch)?;
                let mut arrays = ArrayCursors::new(&Sink::file(file.clone(), scratch), 0, keys, self.layout);
                let mut values = Cursor::new(self.sink.clone(), start, WRITE_BLOCK);
                self.write_arrays_and_values(pairs, &mut arrays, &mut values, bytes)?;
                arrays.finish()?;
                self.body.append(values)?;
                let index = self.compress_index(minishard, &file, scratch, keys)?;
                disk::remove_file(scratch).map_err(|error| Error::io("remove", scratch, error))?;
                index
            }
        };
        self.add_index_entry(minishard, index, keys)
    }

    /// Writes the index and the checks to `arrays`, without the check of the index, and the values to `values`.
    fn write_arrays_and_values(
        &mut self,
        pairs: &mut dyn Iterator<Item = Result<PairHeader>>,
        arrays: &mut ArrayCursors,
        values: &mut Cursor,
        bytes: &mut dyn PairBytes,
    ) -> Result<()> {
        let mut assigner = self.position_assigner(values.position());
        for pair in pairs {
            let pair = pair?;
            let position = assigner.position_of(&pair);
            let (id, start) = self.builder.deltas(pair.key, relative(&self.spec, position.value));
            arrays.write(&pair, &position, id, start)?;
            values.zeros(position.padding)?;
            bytes.copy(&pair, values)?;
            check_end(&pair, &position, values)?;
            self.value_bytes += pair.stored_len;
        }
        self.builder = IndexBuilder::default();
        Ok(())
    }

    /// Compresses the arrays of an index from the scratch file and copies its checks after it.
    fn compress_index(
        &mut self,
        minishard: MinishardNumber,
        scratch: &Arc<File>,
        path: &Path,
        keys: u64,
    ) -> Result<ByteRange> {
        let start = self.body.position();
        let (index_len, checks_len) = (ROW_LEN * keys, self.checks_len(keys));
        let mut raw = BlockReader::new(scratch.clone(), path, 0, index_len, ARRAY_BLOCK);
        let mut check = self.index_hasher(minishard);
        let mut write = |piece: &[u8]| {
            check.update(piece);
            self.body.write(piece)
        };
        let failed = |error| Error::io("compress a minishard index", path, error);
        self.encoder.encode_reader(&mut raw, index_len, &mut write, &failed)?;
        let index = ByteRange { start, end: self.body.position() };
        if self.layout.checks {
            self.body.write(&check.finalize().to_le_bytes())?;
            let after_index_check = index_len + 4;
            let end = index_len + checks_len;
            let mut rest = BlockReader::new(scratch.clone(), path, after_index_check, end, ARRAY_BLOCK);
            rest.copy(end - after_index_check, &mut self.body)?;
        }
        Ok(index)
    }

    /// Completes the shard index. Returns the summary of the file, and its destination, which is not synced.
    pub(crate) fn finish(mut self) -> Result<(ShardSummary, Sink)> {
        self.shard_index.zeros(self.spec.shard_index_len() - self.shard_index.position())?;
        let bytes = self.body.position();
        let mut crc32 = self.shard_index.finish()?;
        let shard_index_crc32 = crc32.clone().finalize();
        crc32.combine(&self.body.finish()?);
        let digester =
            self.body.take_digester().ok_or_else(|| Error::internal("a shard was written without a digest"))?;
        let summary = ShardSummary {
            number: self.number,
            bytes,
            keys: self.keys,
            value_bytes: self.value_bytes,
            crc32: crc32.finalize(),
            shard_index_crc32,
            digest: digester.finish_shard(&self.shard_index_digester),
        };
        Ok((summary, self.sink))
    }

    /// Checks the length of an index. Errors: `TooLarge` for a gzip index that readers refuse to decode by default.
    fn check_index_len(&self, minishard: MinishardNumber, keys: u64) -> Result<()> {
        let decoded = keys.saturating_mul(ROW_LEN);
        if self.spec.minishard_index_encoding() == Encoding::Raw || decoded <= DEFAULT_MAX_INDEX_BYTES {
            return Ok(());
        }
        let message = format!(
            "expected a gzip minishard index of at most {DEFAULT_MAX_INDEX_BYTES} bytes, the most that readers decode by \
             default, found {keys} keys that need {decoded}: choose more minishard bits or a raw minishard index"
        );
        Err(Error::new(ErrorKind::TooLarge, message).at_shard(self.number).at_minishard(minishard))
    }

    fn align_minishard(&mut self) -> Result<()> {
        self.body.zeros(self.body.position().wrapping_neg() % MINISHARD_ALIGNMENT)
    }

    /// Adds the entry of a minishard to the shard index, after zero entries for the empty minishards before it.
    fn add_index_entry(&mut self, minishard: MinishardNumber, index: ByteRange, keys: u64) -> Result<()> {
        let empty = ShardIndexEntry::position(minishard).start - self.shard_index.position();
        self.shard_index.zeros(empty)?; // the entry of an empty minishard is (0, 0)
        self.shard_index_digester.zeros(empty);
        let entry = ShardIndexEntry::new(relative(&self.spec, index)).to_bytes();
        self.shard_index.write(&entry)?;
        self.shard_index_digester.update(&entry);
        self.keys += keys;
        Ok(())
    }

    fn position_assigner(&self, start: u64) -> PositionAssigner {
        PositionAssigner { alignment: self.layout.value_alignment, end: start, after_empty: false }
    }

    fn checks_len(&self, keys: u64) -> u64 {
        ChecksPlace::total_len(keys, self.layout)
    }

    fn index_hasher(&self, minishard: MinishardNumber) -> Hasher {
        checks::index_hasher(Location { shard: self.number, minishard })
    }
}

/// One cursor per array of the index and the checks of a minishard.
struct ArrayCursors {
    ids: Cursor,
    starts: Cursor,
    sizes: Cursor,
    checks: Option<CheckCursors>,
}

struct CheckCursors {
    index: Cursor,
    values: Cursor,
    preambles: Option<Cursor>,
}

impl ArrayCursors {
    /// Creates one cursor per array (ids, starts, sizes, checks) of an index of `keys` keys, from offset `start` of a
    /// file on.
    fn new(sink: &Sink, start: u64, keys: u64, layout: Layout) -> ArrayCursors {
        let at = |position| Cursor::new(sink.clone(), position, ARRAY_BLOCK);
        let checks = start + ROW_LEN * keys;
        ArrayCursors {
            ids: at(start),
            starts: at(start + 8 * keys),
            sizes: at(start + 16 * keys),
            checks: layout.checks.then(|| CheckCursors {
                index: at(checks),
                values: at(checks + 4),
                preambles: layout.preambles.then(|| at(checks + 4 + 4 * keys)),
            }),
        }
    }

    fn write(&mut self, pair: &PairHeader, position: &ValuePosition, id: u64, start: u64) -> Result<()> {
        self.ids.write(&id.to_le_bytes())?;
        self.starts.write(&start.to_le_bytes())?;
        self.sizes.write(&pair.stored_len.to_le_bytes())?;
        let Some(checks) = &mut self.checks else { return Ok(()) };
        checks.values.write(&pair.value_check.to_le_bytes())?;
        match &mut checks.preambles {
            Some(preambles) => preambles.write(&preamble_checksum(pair, position)),
            None => Ok(()),
        }
    }

    /// Finishes the arrays, writes the check of the index, and moves `body` past all of them. `index_check` is the
    /// check of an empty index.
    fn append_to(self, body: &mut Cursor, mut index_check: Hasher) -> Result<()> {
        for array in [self.ids, self.starts, self.sizes] {
            index_check.combine(&body.append(array)?);
        }
        let Some(mut checks) = self.checks else { return Ok(()) };
        checks.index.write(&index_check.finalize().to_le_bytes())?;
        for array in [Some(checks.index), Some(checks.values), checks.preambles].into_iter().flatten() {
            body.append(array)?;
        }
        Ok(())
    }

    /// Finishes the arrays without writing the check of the index: for a gzip index, whose check is that of its encoded
    /// bytes.
    fn finish(self) -> Result<()> {
        let checks = self.checks.map(|checks| [Some(checks.values), checks.preambles]);
        let index = [Some(self.ids), Some(self.starts), Some(self.sizes)];
        let mut arrays = index.into_iter().chain(checks.into_iter().flatten()).flatten();
        arrays.try_for_each(|mut array| array.finish().map(drop))
    }
}

/// Checks that a written value ends where the index states. Errors: `Internal`.
#[inline]
fn check_end(pair: &PairHeader, position: &ValuePosition, written: &Cursor) -> Result<()> {
    let (stated, found) = (position.value.end, written.position());
    if stated == found {
        return Ok(());
    }
    let message = format!("expected the value to end at byte {stated} of the shard as its index states, found {found}");
    Err(Error::internal(message).at_key(pair.key))
}

/// Returns the checksum that is the check of a preamble: of all bytes between two values, padding and then the preamble.
fn preamble_checksum(pair: &PairHeader, position: &ValuePosition) -> [u8; 4] {
    let mut check = crc32_of_zeros(position.padding);
    check.combine(&Hasher::new_with_initial_len(pair.preamble_crc32, pair.preamble_len));
    check.finalize().to_le_bytes()
}

/// Converts a range of the file to one relative to the end of the shard index.
fn relative(spec: &ShardingSpec, range: ByteRange) -> RelativeRange {
    let base = spec.shard_index_len();
    RelativeRange { start: range.start - base, end: range.end - base }
}
