//! An open file of chunks: its header, and the byte range of each chunk.

use sharddb::internal::add_finding;
use std::path::{Path, PathBuf};

use sharddb::internal::bytes::{Bytes, Storage, StorageKind};
use sharddb::verify::{FindingKind, VerifyLevel, VerifyReport};
use sharddb_format::internal::byte_range::ByteRange;
use sharddb_format::{Error, ErrorKind, Result};

use crate::blosc;
use crate::bloscpack::header::{self, Header, Version};
use crate::bloscpack::metadata::{self, Metadata, MetadataHeader};

/// An open file. Chunks are read and checked on request.
pub(crate) struct Superchunk {
    path: PathBuf,
    storage: Storage,
    header: Header,
    metadata: Option<Metadata>,
    /// For each chunk, by its number: the range from its start to the start of the next chunk in the file.
    extents: Vec<ByteRange>,
}

/// A chunk as it is stored, with its range and header.
pub(crate) struct StoredChunk<'a> {
    /// The chunk itself, without digest and reserve.
    pub(crate) bytes: Bytes<'a>,
    pub(crate) range: ByteRange,
    pub(crate) header: blosc::Header,
}

impl Superchunk {
    /// Opens a file and finds its chunks.
    ///
    /// # Errors
    ///
    /// `Io`, `Corrupt`, `Unsupported` for a later version.
    pub(crate) fn open(path: &Path, kind: StorageKind) -> Result<Superchunk> {
        let storage = Storage::open(path, kind).map_err(|error| error.at_path(path))?;
        Superchunk::read(path, storage).map_err(|error| error.at_path(path))
    }

    fn read(path: &Path, storage: Storage) -> Result<Superchunk> {
        let len = storage.len();
        let head = storage.read(ByteRange { start: 0, end: len.min(header::LEN as u64) }, 1)?;
        let header = Header::parse(&head)?;
        drop(head);
        let mut at = header.len();
        let metadata = if header.has_metadata { Some(read_metadata(&storage, &mut at)?) } else { None };
        let extents =
            if header.has_offsets { from_offsets(&storage, &header, at)? } else { from_walk(&storage, &header, at)? };
        Ok(Superchunk { path: path.to_path_buf(), storage, header, metadata, extents })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    pub(crate) fn file_len(&self) -> u64 {
        self.storage.len()
    }

    /// Returns the number of chunks.
    pub(crate) fn len(&self) -> u64 {
        self.extents.len() as u64
    }

    /// Returns the range from the start of a chunk to the start of the next one in the file; `None` if there is no such
    /// chunk.
    pub(super) fn extent(&self, number: u64) -> Option<ByteRange> {
        self.extents.get(usize::try_from(number).ok()?).copied()
    }

    /// Reads a range of the file.
    pub(super) fn bytes(&self, range: ByteRange) -> Result<Bytes<'_>> {
        self.storage.read(range, 1).map_err(|error| error.at_path(&self.path))
    }

    /// Returns the range and the header of chunk `number`; `None` if there is no such chunk.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `Io`.
    pub(crate) fn find_chunk(&self, number: u64) -> Result<Option<(ByteRange, blosc::Header)>> {
        let Some(extent) = self.extent(number) else { return Ok(None) };
        self.chunk_in(extent).map(Some).map_err(|error| error.at_path(&self.path).at_offset(extent.start))
    }

    fn chunk_in(&self, extent: ByteRange) -> Result<(ByteRange, blosc::Header)> {
        let head_end = extent.end.min(extent.start.saturating_add(blosc::HEADER_LEN as u64));
        let header = blosc::Header::parse(&self.storage.read(ByteRange { start: extent.start, end: head_end }, 1)?)?;
        let room = extent.len();
        let needed = u64::from(header.cbytes()) + self.header.checksum.digest_len();
        if needed > room {
            return Err(Error::corrupt(format!(
                "expected a chunk with its checksum to fit into the {room} bytes up to the next, found {needed} bytes"
            )));
        }
        Ok((ByteRange { start: extent.start, end: extent.start + u64::from(header.cbytes()) }, header))
    }

    /// Reads chunk `number` and compares its digest; `None` if there is no such chunk.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `Io`.
    pub(crate) fn stored(&self, number: u64) -> Result<Option<StoredChunk<'_>>> {
        let Some((range, header)) = self.find_chunk(number)? else { return Ok(None) };
        let bytes = self.checked(range).map_err(|error| error.at_path(&self.path).at_offset(range.start))?;
        Ok(Some(StoredChunk { bytes, range, header }))
    }

    fn checked(&self, range: ByteRange) -> Result<Bytes<'_>> {
        let bytes = self.storage.read(range, 1)?;
        let digest_end = range.end + self.header.checksum.digest_len();
        let digest = self.storage.read(ByteRange { start: range.end, end: digest_end }, 1)?;
        self.header.checksum.verify(&bytes, &digest)?;
        Ok(bytes)
    }

    /// Reads and decodes chunk `number`; `None` if there is no such chunk.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `TooLarge` above `max_bytes`, `Unsupported`, `Io`.
    pub(crate) fn decoded(&self, number: u64, max_bytes: u64) -> Result<Option<Vec<u8>>> {
        let Some(stored) = self.stored(number)? else { return Ok(None) };
        self.decode(number, &stored, max_bytes)
            .map(Some)
            .map_err(|error| error.at_path(&self.path).at_offset(stored.range.start))
    }

    fn decode(&self, number: u64, stored: &StoredChunk<'_>, max_bytes: u64) -> Result<Vec<u8>> {
        let nbytes = stored.header.nbytes();
        if let Some(stated) = self.header.decoded_len(number, self.len())
            && stated != nbytes
        {
            return Err(Error::corrupt(format!(
                "expected a chunk of {stated} decoded bytes, as the file's header states, found {nbytes}"
            )));
        }
        blosc::decode(&stored.bytes, max_bytes)
    }

    /// Checks every chunk up to the level of the report. The first chunk is reported as key `first_key`.
    pub(crate) fn verify(&self, first_key: u64, max_bytes: u64, report: &mut VerifyReport) {
        report.shards += 1;
        report.bytes_read += self.file_len();
        if let Some(Err(error)) = self.metadata.as_ref().map(Metadata::check) {
            add_finding(report, FindingKind::BadValue, error.at_path(&self.path));
        }
        if report.level == VerifyLevel::Structure {
            return;
        }
        for number in 0..self.len() {
            let key = first_key + number;
            let place = |error: Error| error.at_path(&self.path).at_key(key);
            match self.find_chunk(number) {
                Ok(Some((range, _))) => {
                    report.keys += 1;
                    report.value_bytes += range.len();
                }
                Ok(None) => continue,
                Err(error) => {
                    add_finding(report, FindingKind::BadValueRange, place(error));
                    continue;
                }
            }
            if report.level == VerifyLevel::Data
                && let Err((kind, error)) = self.verify_data(number, max_bytes)
            {
                add_finding(report, kind, place(error));
            }
        }
    }

    fn verify_data(&self, number: u64, max_bytes: u64) -> Result<(), (FindingKind, Error)> {
        let stored = self.stored(number).map_err(|error| (FindingKind::ValueCheck, error))?;
        let (Some(stored), Some(extent)) = (stored, self.extent(number)) else { return Ok(()) };
        self.decode(number, &stored, max_bytes).map_err(|error| {
            let is_large = error.kind() == ErrorKind::TooLarge;
            (if is_large { FindingKind::OverCap } else { FindingKind::BadValue }, error)
        })?;
        let (expected, found) = (self.header.typesize, stored.header.typesize());
        if self.header.version != Version::V1 && expected != found {
            let message = format!("expected chunks of typesize {expected}, as the file's header states, found {found}");
            return Err((FindingKind::BadValue, Error::corrupt(message)));
        }
        let reserve = ByteRange { start: stored.range.end + self.header.checksum.digest_len(), end: extent.end };
        let reserve = self.bytes(reserve).map_err(|error| (FindingKind::UnreadableShard, error))?;
        if reserve.iter().any(|byte| *byte != 0) {
            let message = format!("expected zeros in the {} bytes after a chunk, found others", reserve.len());
            return Err((FindingKind::BadValueRange, Error::corrupt(message)));
        }
        Ok(())
    }
}

/// Reads the metadata section that starts at `at`, and moves `at` to its end.
fn read_metadata(storage: &Storage, at: &mut u64) -> Result<Metadata> {
    let body_start = *at + metadata::SECTION_HEADER_LEN as u64;
    let head = storage.read(ByteRange { start: *at, end: body_start }, 1)?;
    let Some(head) = head.first_chunk() else {
        return Err(Error::corrupt("expected bloscpack metadata, found the end of the file"));
    };
    let header = MetadataHeader::parse(head)?;
    *at = body_start + header.body_len();
    header.read(&storage.read(ByteRange { start: body_start, end: *at }, 1)?)
}

/// Returns the extents of the chunks whose offsets start at `at`.
fn from_offsets(storage: &Storage, header: &Header, at: u64) -> Result<Vec<ByteRange>> {
    let len = storage.len();
    let table_end = header.offset_slots().checked_mul(8).and_then(|bytes| bytes.checked_add(at));
    let Some(table_end) = table_end.filter(|end| *end <= len) else {
        let slots = header.offset_slots();
        return Err(Error::corrupt(format!("expected {slots} offsets, found the end of the file at byte {len}")));
    };
    let table = storage.read(ByteRange { start: at, end: table_end }, 1)?;
    let nchunks = usize::try_from(header.nchunks.unwrap_or_default()).unwrap_or(usize::MAX);
    let (slots, _) = table.as_chunks::<8>();
    let (used, free) = slots.split_at_checked(nchunks).unwrap_or((slots, &[]));
    if free.iter().any(|slot| *slot != [0xff; 8]) {
        return Err(Error::corrupt("expected -1 for each reserved offset, found another"));
    }
    let starts: Vec<u64> = used.iter().map(|slot| u64::from_le_bytes(*slot)).collect();
    let mut ascending = starts.clone();
    ascending.sort_unstable();
    let first = ascending.first().copied().unwrap_or(len);
    if first != table_end {
        return Err(Error::corrupt(format!(
            "expected the first chunk at byte {table_end}, where the offsets end, found it at byte {first}"
        )));
    }
    let extent = |start: &u64| {
        // two chunks with equal offsets both get an empty extent
        let next = ascending.partition_point(|other| other <= start);
        let is_alone = ascending.partition_point(|other| other < start) + 1 == next;
        let end = if is_alone { ascending.get(next).copied().unwrap_or(len).min(len) } else { *start };
        ByteRange { start: *start, end: end.max(*start) }
    };
    Ok(starts.iter().map(extent).collect())
}

/// Returns the extents of the chunks of a file without offsets: each chunk starts where the one before ends.
fn from_walk(storage: &Storage, header: &Header, mut at: u64) -> Result<Vec<ByteRange>> {
    let len = storage.len();
    let mut extents = Vec::new();
    while at < len && header.nchunks.is_none_or(|nchunks| (extents.len() as u64) < nchunks) {
        let head_end = len.min(at + blosc::HEADER_LEN as u64);
        let chunk = blosc::Header::parse(&storage.read(ByteRange { start: at, end: head_end }, 1)?)
            .map_err(|error| error.at_offset(at))?;
        let end = at + u64::from(chunk.cbytes()) + header.checksum.digest_len();
        if end > len {
            let message = format!("expected a chunk up to byte {end}, found the end of the file at byte {len}");
            return Err(Error::corrupt(message).at_offset(at));
        }
        extents.push(ByteRange { start: at, end });
        at = end;
    }
    if let Some(nchunks) = header.nchunks.filter(|nchunks| *nchunks != extents.len() as u64) {
        let message = format!("expected {nchunks} chunks, found {} up to the end of the file", extents.len());
        return Err(Error::corrupt(message).at_offset(at));
    }
    if at < len {
        return Err(Error::corrupt(format!("expected the end of the file, found {} bytes", len - at)).at_offset(at));
    }
    Ok(extents)
}
