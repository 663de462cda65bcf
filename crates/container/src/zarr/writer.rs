//! Writers: one shard from encoded chunks in any order, and an array shard by shard.

use std::fmt;
use std::path::Path;

use sharddb_format::{Error, ErrorKind, Result};

use crate::linear;
use crate::new_file::{NewDirectory, NewFile, remove_file};
use crate::zarr::codec::Serializer;
use crate::zarr::endian::Endian;
use crate::zarr::metadata::{ZARR_JSON, ZarrMetadata};
use crate::zarr::nd::{self, ElementBox, to_usize};
use crate::zarr::shard_index::{IndexEntry, IndexLocation};

/// Largest number of entries in an index that is written: 1 GiB.
const MAX_CHUNKS_PER_SHARD: u64 = 1 << 26;

/// Writes the file of one shard; without sharding, of one chunk.
///
/// Chunks may be added in any order and are stored in that order. [`finish`](ZarrShardWriter::finish) writes the index
/// and makes the file appear, replacing an old one. A shard without chunks has no file.
///
/// Memory: 16 bytes per entry of the index.
///
/// ```no_run
/// use sharddb_container::zarr::{ZarrMetadata, ZarrShardWriter};
///
/// let metadata = ZarrMetadata::from_json(&std::fs::read_to_string("volume.zarr/zarr.json").unwrap())?;
/// let mut shard = ZarrShardWriter::create("volume.zarr", &metadata, 0)?;
/// shard.put(1, b"the encoded bytes of chunk 1")?;
/// shard.put(0, b"and those of chunk 0")?;
/// shard.finish()?;
/// # Ok::<(), sharddb::Error>(())
/// ```
#[must_use = "nothing is there until `finish`"]
pub struct ZarrShardWriter {
    metadata: ZarrMetadata,
    number: u64,
    file: NewFile,
    entries: Vec<IndexEntry>,
    /// Current length of the file in bytes.
    end: u64,
}

impl fmt::Debug for ZarrShardWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZarrShardWriter").field("number", &self.number).finish_non_exhaustive()
    }
}

impl ZarrShardWriter {
    /// Starts shard `number`, in C order of the shards, in the directory of an array.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is no such shard; `Unsupported` for shards that are compressed as a whole; `Io`;
    /// `TooLarge` if the index has more than 2^26 entries or cannot be allocated.
    pub fn create(array: impl AsRef<Path>, metadata: &ZarrMetadata, number: u64) -> Result<ZarrShardWriter> {
        if number >= metadata.grid.shards() {
            let message = format!("expected a shard below {}, found {number}", metadata.grid.shards());
            return Err(Error::invalid_input(message));
        }
        refuse_wrapped(metadata)?;
        let entries = absent_entries(metadata)?;
        let mut file = NewFile::create(&array.as_ref().join(metadata.shard_path(number)))?;
        let room = match metadata.sharding().map(|sharding| sharding.index) {
            Some(index) if index.location() == IndexLocation::Start => index.len(),
            _ => 0,
        };
        let mut left = room;
        while left > 0 {
            let zeros = [0; 4096];
            let piece = zeros.get(..to_usize(left)).unwrap_or(&zeros);
            file.write(piece)?;
            left -= piece.len() as u64;
        }
        Ok(ZarrShardWriter { metadata: metadata.clone(), number, file, entries, end: room })
    }

    /// Adds a chunk by its encoded bytes.
    ///
    /// # Errors
    ///
    /// `OutOfOrder` if the chunk belongs to another shard; `DuplicateKey`; `InvalidInput` if there is no such chunk, or
    /// `encoded` is empty or of the wrong length; `Io`.
    pub fn put(&mut self, key: u64, encoded: &[u8]) -> Result<()> {
        let entry = self.entry_of(key)?;
        check_chunk(&self.metadata, key, encoded)?;
        if self.entry(entry) != IndexEntry::ABSENT {
            let message = format!("expected every chunk once, found chunk {key} again");
            return Err(Error::new(ErrorKind::DuplicateKey, message).at_key(key));
        }
        self.append(entry, encoded)
    }

    /// Writes any part of the array, such as a slice or a row, in C order and little endian.
    ///
    /// Only for uncompressed chunks (the codec `bytes` alone), whose length is known in advance. Elements of a chunk
    /// that are never written have the fill value. A part may be written more than once.
    ///
    /// # Errors
    ///
    /// `Unsupported` for other codecs; `InvalidInput` if the part is not inside the array and this shard, or `elements`
    /// does not have its length; `Io`.
    pub fn write_part(&mut self, origin: &[u64], shape: &[u64], elements: &[u8]) -> Result<()> {
        let metadata = self.metadata.clone();
        let endian = plain_codec(&metadata)?;
        self.check_part(origin, shape, elements)?;
        let chunk_shape = metadata.chunk_shape();
        let first: Vec<_> = origin.iter().zip(chunk_shape).map(|(at, len)| at / len).collect();
        let counts: Vec<_> = origin
            .iter()
            .zip(shape)
            .zip(chunk_shape)
            .zip(&first)
            .map(|(((at, len), chunk), first)| (at + len).div_ceil(*chunk) - first)
            .collect();
        if shape.contains(&0) {
            return Ok(());
        }
        for number in 0..nd::product(&counts).unwrap_or(0) {
            let cell = cell_at(&counts, &first, number);
            let part = ChunkPart::of(&cell, chunk_shape, origin, shape);
            let size = metadata.element_len();
            let mut bytes = nd::zeroed(to_usize(nd::product(&part.shape).unwrap_or(0)).saturating_mul(size))?;
            let zeros = vec![0; shape.len()];
            let source = ElementBox { elements, shape };
            nd::copy_part(&source, &part.from, &mut bytes, &part.shape, &zeros, &part.shape, size);
            let bytes = endian.to_little(bytes, metadata.elements.data_type);
            self.write_chunk_part(&cell, &part, &bytes)?;
        }
        Ok(())
    }

    /// Writes the index, syncs the file and makes it appear. Without chunks, removes an existing file.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn finish(mut self) -> Result<()> {
        if self.entries.iter().all(|entry| *entry == IndexEntry::ABSENT) {
            return remove_file(self.file.path());
        }
        if let Some(format) = self.metadata.sharding().map(|sharding| sharding.index) {
            let index = format.encode(&self.entries);
            match format.location() {
                IndexLocation::Start => self.file.overwrite(0, &index)?,
                IndexLocation::End => self.file.write(&index)?,
            }
        }
        self.file.finish()
    }

    /// Adds a chunk by its entry, which may be outside the array.
    pub(super) fn append(&mut self, entry: usize, encoded: &[u8]) -> Result<()> {
        self.file.write(encoded)?;
        let nbytes = encoded.len() as u64;
        if let Some(place) = self.entries.get_mut(entry) {
            *place = IndexEntry { offset: self.end, nbytes };
        }
        self.end += nbytes;
        Ok(())
    }

    fn entry(&self, number: usize) -> IndexEntry {
        self.entries.get(number).copied().unwrap_or(IndexEntry::ABSENT)
    }

    fn entry_of(&self, key: u64) -> Result<usize> {
        entry_in_shard(&self.metadata, self.number, key)
    }

    fn check_part(&self, origin: &[u64], shape: &[u64], elements: &[u8]) -> Result<()> {
        let inside = origin.len() == shape.len()
            && origin.len() == self.metadata.shape().len()
            && self
                .shard_bounds()
                .zip(origin.iter().zip(shape))
                .all(|((from, to), (at, len))| from <= *at && at.checked_add(*len).is_some_and(|end| end <= to));
        if !inside {
            let message =
                format!("expected a part of the array in shard {}, found {shape:?} at {origin:?}", self.number);
            return Err(Error::invalid_input(message));
        }
        match self.metadata.elements.bytes(shape) {
            Some(bytes) if bytes == elements.len() as u64 => Ok(()),
            _ => Err(Error::invalid_input(format!("expected elements of {shape:?}, found {} bytes", elements.len()))),
        }
    }

    /// Returns the start and end of the shard along each axis, clipped to the array.
    fn shard_bounds(&self) -> impl Iterator<Item = (u64, u64)> {
        let position = self.metadata.grid.shard_position(self.number);
        let axes = self.metadata.shape().iter().zip(self.metadata.shard_shape());
        position
            .into_iter()
            .zip(axes)
            .map(|(at, (len, shard))| (at * shard, (at * shard).saturating_add(*shard).min(*len)))
    }

    fn write_chunk_part(&mut self, cell: &[u64], part: &ChunkPart, bytes: &[u8]) -> Result<()> {
        let grid = self.metadata.chunk_grid();
        let key = linear::number(&grid, cell).unwrap_or(u64::MAX);
        let entry = self.entry_of(key)?;
        if self.entry(entry) == IndexEntry::ABSENT {
            let filled = self.metadata.elements.filled(self.metadata.chunk_shape(), u64::MAX)?;
            let endian = plain_codec(&self.metadata)?;
            let filled = endian.to_little(filled, self.metadata.elements.data_type);
            self.append(entry, &filled)?;
        }
        let start = self.entry(entry).offset;
        let size = self.metadata.element_len();
        let contiguous = nd::to_usize(part.contiguous(self.metadata.chunk_shape())).saturating_mul(size).max(1);
        let starts = part.starts(self.metadata.chunk_shape());
        for (at, piece) in starts.into_iter().zip(bytes.chunks(contiguous)) {
            self.file.overwrite(start + at * size as u64, piece)?;
        }
        Ok(())
    }
}

/// The intersection of a chunk and a part of the array.
struct ChunkPart {
    /// Position in the part of the array.
    from: Vec<u64>,
    /// Position in the chunk.
    to: Vec<u64>,
    shape: Vec<u64>,
}

impl ChunkPart {
    fn of(cell: &[u64], chunk_shape: &[u64], origin: &[u64], shape: &[u64]) -> ChunkPart {
        let mut part = ChunkPart { from: Vec::new(), to: Vec::new(), shape: Vec::new() };
        for (((cell, chunk), origin), len) in cell.iter().zip(chunk_shape).zip(origin).zip(shape) {
            let chunk_start = cell * chunk;
            let (start, end) = (chunk_start.max(*origin), chunk_start.saturating_add(*chunk).min(origin + len));
            part.from.push(start - origin);
            part.to.push(start - chunk_start);
            part.shape.push(end - start);
        }
        part
    }

    /// Returns the number of trailing axes that are covered completely.
    fn whole_axes(&self, chunk_shape: &[u64]) -> usize {
        self.shape.iter().zip(chunk_shape).rev().take_while(|(len, chunk)| len == chunk).count()
    }

    /// Returns the number of elements that are contiguous in the chunk.
    fn contiguous(&self, chunk_shape: &[u64]) -> u64 {
        let axes = (self.whole_axes(chunk_shape) + 1).min(self.shape.len());
        self.shape.iter().rev().take(axes).product()
    }

    /// Returns the start of each contiguous piece in the chunk.
    fn starts(&self, chunk_shape: &[u64]) -> Vec<u64> {
        let axes = (self.whole_axes(chunk_shape) + 1).min(self.shape.len());
        let outer = self.shape.len() - axes;
        let strides = nd::strides(chunk_shape).unwrap_or_default();
        let first: u64 = self.to.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
        let walk = nd::Walk::new(self.shape.get(..outer).unwrap_or_default(), &strides);
        walk.map(|at| first + at).collect()
    }
}

/// Returns cell `number` of a box of cells that starts at `first`.
fn cell_at(counts: &[u64], first: &[u64], number: u64) -> Vec<u64> {
    let mut rest = number;
    let mut cell = first.to_vec();
    for (at, count) in cell.iter_mut().zip(counts).rev() {
        *at += rest % count;
        rest /= count;
    }
    cell
}

/// Returns the byte order of chunks that consist of exactly their elements.
fn plain_codec(metadata: &ZarrMetadata) -> Result<Endian> {
    let (codecs, _) = metadata.chunk_codecs();
    let plain =
        codecs.compressors.is_empty() && codecs.transpose.is_identity() && metadata.codecs.transpose.is_identity();
    match codecs.serializer {
        Serializer::Bytes(endian) if plain => Ok(endian),
        _ => {
            let message =
                "expected chunks of the codec bytes alone, found other codecs: put whole encoded chunks instead";
            Err(Error::new(ErrorKind::Unsupported, message))
        }
    }
}

/// Checks that shards are not compressed as a whole.
///
/// # Errors
///
/// `Unsupported` for shards that are compressed as a whole.
pub(super) fn refuse_wrapped(metadata: &ZarrMetadata) -> Result<()> {
    if metadata.is_wrapped() {
        let message = "expected sharding_indexed as the last codec, found codecs after it: reshard the array";
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    Ok(())
}

/// Returns an index in which all chunks are absent.
///
/// # Errors
///
/// `TooLarge` if a shard has more than 2^26 entries, or the index cannot be allocated.
pub(super) fn absent_entries(metadata: &ZarrMetadata) -> Result<Vec<IndexEntry>> {
    let chunks = metadata.grid.chunks_per_shard();
    if chunks > MAX_CHUNKS_PER_SHARD {
        let message = format!("expected at most {MAX_CHUNKS_PER_SHARD} chunks in a shard to write, found {chunks}");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    let len = to_usize(chunks);
    let mut entries = Vec::new();
    entries
        .try_reserve_exact(len)
        .map_err(|_| Error::new(ErrorKind::TooLarge, format!("no memory for the index of a shard of {len} chunks")))?;
    entries.resize(len, IndexEntry::ABSENT);
    Ok(entries)
}

/// Returns the entry of a chunk, which must belong to the shard.
pub(super) fn entry_in_shard(metadata: &ZarrMetadata, shard: u64, key: u64) -> Result<usize> {
    match metadata.grid.place(key) {
        Some(place) if place.shard == shard => Ok(to_usize(place.entry)),
        Some(place) => {
            let message = format!("expected a chunk of shard {shard}, found one of shard {}", place.shard);
            Err(Error::new(ErrorKind::OutOfOrder, message).at_key(key))
        }
        None => Err(Error::invalid_input("expected a chunk of the array, found a number outside its grid").at_key(key)),
    }
}

/// Checks the length of an encoded chunk.
///
/// # Errors
///
/// `InvalidInput` if it is empty or of the wrong length.
pub(super) fn check_chunk(metadata: &ZarrMetadata, key: u64, encoded: &[u8]) -> Result<()> {
    let (codecs, shape) = metadata.chunk_codecs();
    let expected = codecs.fixed_len(shape, &metadata.elements);
    match expected {
        Some(expected) if expected != encoded.len() as u64 => {
            let message = format!("expected a chunk of {expected} bytes, found {}", encoded.len());
            Err(Error::invalid_input(message).at_key(key))
        }
        _ if encoded.is_empty() => Err(Error::invalid_input("expected the bytes of a chunk, found none").at_key(key)),
        _ => Ok(()),
    }
}

/// Writes an array shard by shard. Its directory appears only when it is complete.
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// # let (metadata, chunks): (sharddb_container::zarr::ZarrMetadata, Vec<(u64, Vec<u8>)>) = todo!();
/// use sharddb_container::zarr::ZarrWriter;
///
/// let writer = ZarrWriter::create("new.zarr", &metadata)?;
/// let mut shard = writer.shard(0)?;
/// for (key, encoded) in chunks {
///     shard.put(key, &encoded)?;
/// }
/// shard.finish()?;
/// writer.finish()
/// # }
/// ```
#[must_use = "nothing is there until `finish`"]
pub struct ZarrWriter {
    directory: NewDirectory,
    metadata: ZarrMetadata,
}

impl fmt::Debug for ZarrWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZarrWriter").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

impl ZarrWriter {
    /// Starts an array at `path`, which must not exist.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `path` exists; `Unsupported` for shards that are compressed as a whole; `Io`.
    pub fn create(path: impl AsRef<Path>, metadata: &ZarrMetadata) -> Result<ZarrWriter> {
        refuse_wrapped(metadata)?;
        let directory = NewDirectory::create(path.as_ref())?;
        let mut file = NewFile::create(&directory.temporary().join(ZARR_JSON))?;
        file.write(metadata.to_json().as_bytes())?;
        file.finish()?;
        Ok(ZarrWriter { directory, metadata: metadata.clone() })
    }

    /// Returns the metadata of the array.
    pub fn metadata(&self) -> &ZarrMetadata {
        &self.metadata
    }

    /// Starts shard `number`, in C order of the shards.
    ///
    /// # Errors
    ///
    /// Those of [`ZarrShardWriter::create`].
    pub fn shard(&self, number: u64) -> Result<ZarrShardWriter> {
        ZarrShardWriter::create(self.directory.temporary(), &self.metadata, number)
    }

    /// Returns the number of the shard that holds a chunk; `None` if there is no such chunk.
    pub fn shard_of(&self, key: u64) -> Option<u64> {
        self.metadata.shard_of(key)
    }

    /// Makes the array appear at its path.
    ///
    /// # Errors
    ///
    /// `Io`, also if something was created at the path in the meantime.
    pub fn finish(self) -> Result<()> {
        self.directory.finish()
    }
}
