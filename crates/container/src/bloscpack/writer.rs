//! The writer: offsets, a digest after each chunk, and an optional reserve so that the chunk can grow.

use std::fmt;
use std::path::Path;

use sharddb_format::internal::byte_range::ByteRange;
use sharddb_format::{Error, Result};

use crate::blosc::{self, Encoder};
use crate::bloscpack::checksum::Checksum;
use crate::bloscpack::header::{Header, Version};
use crate::bloscpack::metadata::Metadata;
use crate::bloscpack::superchunk::Superchunk;
use crate::new_file::NewFile;

/// Options for writing a bloscpack file.
///
/// ```
/// use sharddb_container::bloscpack::{BloscpackOptions, Bloscpack};
/// use sharddb_container::{Container, Form};
///
/// let path = std::env::temp_dir().join(format!("sharddb-bloscpack-doc-{}.blp", std::process::id()));
/// let mut writer = BloscpackOptions::new().typesize(4).create(&path, 2)?;
/// writer.push(&[1; 4000])?;
/// writer.push(&[2; 100])?;
/// writer.finish()?;
/// let file = Bloscpack::open(&path)?;
/// assert_eq!(file.get(1, Form::Decoded)?.unwrap(), [2; 100]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BloscpackOptions {
    pub(crate) encoder: Encoder,
    pub(crate) typesize: u8,
    pub(crate) checksum: Checksum,
    pub(crate) reserve_percent: u32,
    pub(crate) max_app_chunks: u64,
    pub(crate) metadata: Option<Metadata>,
}

impl Default for BloscpackOptions {
    fn default() -> BloscpackOptions {
        BloscpackOptions::new()
    }
}

impl BloscpackOptions {
    /// Creates the defaults: Adler-32, no reserve, no reserved offsets, no metadata, elements of one byte.
    pub fn new() -> BloscpackOptions {
        BloscpackOptions {
            encoder: Encoder::new(),
            typesize: 1,
            checksum: Checksum::Adler32,
            reserve_percent: 0,
            max_app_chunks: 0,
            metadata: None,
        }
    }

    /// Sets the width of an element in bytes, from 1 (the default) to 255. Any other width counts as 1.
    pub fn typesize(&mut self, typesize: usize) -> &mut BloscpackOptions {
        self.typesize = u8::try_from(typesize).unwrap_or(1).max(1);
        self.encoder.typesize(typesize);
        self
    }

    /// Sets how bytes are reordered before compression (default: byte shuffle).
    pub fn shuffle(&mut self, shuffle: blosc::Shuffle) -> &mut BloscpackOptions {
        self.encoder.shuffle(shuffle);
        self
    }

    /// Sets the digest after each chunk (default: Adler-32).
    pub fn checksum(&mut self, checksum: Checksum) -> &mut BloscpackOptions {
        self.checksum = checksum;
        self
    }

    /// Sets the reserve after each chunk in percent of its length, so that a longer chunk can replace it in place
    /// (default: 0).
    ///
    /// Readers that follow the offsets are not affected. bloscpack itself reads from front to back and cannot read a
    /// file with a reserve.
    pub fn reserve_percent(&mut self, percent: u32) -> &mut BloscpackOptions {
        self.reserve_percent = percent;
        self
    }

    /// Sets the number of reserved offsets, which is how many chunks bloscpack can append (default: 0).
    pub fn max_app_chunks(&mut self, chunks: u64) -> &mut BloscpackOptions {
        self.max_app_chunks = chunks;
        self
    }

    /// Sets the metadata section (default: none).
    pub fn metadata(&mut self, metadata: Metadata) -> &mut BloscpackOptions {
        self.metadata = Some(metadata);
        self
    }

    /// Starts a file of `nchunks` chunks. [`finish`](BloscpackWriter::finish) makes it appear at `path` and replaces a
    /// file that is there.
    ///
    /// # Errors
    ///
    /// `Io`; `InvalidInput` for metadata that does not fit, or more offsets than a file can hold.
    pub fn create(&self, path: impl AsRef<Path>, nchunks: u64) -> Result<BloscpackWriter> {
        BloscpackWriter::create(path.as_ref(), self.clone(), nchunks)
    }
}

/// Writes a bloscpack file chunk by chunk. See [`BloscpackOptions`] for an example.
#[must_use = "nothing is there until `finish`"]
pub struct BloscpackWriter {
    file: NewFile,
    options: BloscpackOptions,
    nchunks: u64,
    /// Start of the offsets in the file.
    table: u64,
    /// Start of the next chunk in the file.
    end: u64,
    offsets: Vec<u64>,
    /// The decoded lengths of the first chunk and of the latest one.
    lengths: Option<(u32, u32)>,
}

impl fmt::Debug for BloscpackWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BloscpackWriter").field("nchunks", &self.nchunks).finish_non_exhaustive()
    }
}

impl BloscpackWriter {
    fn create(path: &Path, options: BloscpackOptions, nchunks: u64) -> Result<BloscpackWriter> {
        let slots = nchunks.checked_add(options.max_app_chunks).and_then(|slots| slots.checked_mul(8));
        let Some(slots) = slots.filter(|slots| i64::try_from(*slots).is_ok()) else {
            return Err(Error::invalid_input(format!(
                "expected fewer chunks, found {nchunks} and {} more",
                options.max_app_chunks
            )));
        };
        let mut file = NewFile::create(path)?;
        let mut writer_header = Header { version: Version::V3, nchunks: Some(nchunks), ..Header::of_one_chunk() };
        writer_header.has_offsets = true;
        let metadata = options.metadata.as_ref().map(|metadata| metadata.encode(options.checksum)).transpose()?;
        let metadata = metadata.unwrap_or_default();
        file.write(&writer_header.encode())?;
        file.write(&metadata)?;
        let table = writer_header.len() + metadata.len() as u64;
        write_fill(&mut file, 0xff, slots)?;
        Ok(BloscpackWriter { file, options, nchunks, table, end: table + slots, offsets: Vec::new(), lengths: None })
    }

    /// Compresses and appends a chunk. All chunks have the same length, except that the last may be shorter.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for more chunks than stated, or a chunk of a different length; `Io`.
    pub fn push(&mut self, chunk: &[u8]) -> Result<()> {
        let chunk = self.options.encoder.encode(chunk)?;
        self.push_encoded(&chunk)
    }

    /// Appends an encoded Blosc 1 chunk unchanged.
    ///
    /// # Errors
    ///
    /// Those of [`push`](BloscpackWriter::push), and `Corrupt` if it is not a Blosc 1 chunk.
    pub fn push_encoded(&mut self, chunk: &[u8]) -> Result<()> {
        let header = blosc::Header::parse(chunk)?;
        header.check_len(chunk)?;
        self.check_length(header.nbytes())?;
        let digest = self.options.checksum.digest(chunk);
        let reserve = (chunk.len() as u64).saturating_mul(self.options.reserve_percent.into()) / 100;
        self.offsets.push(self.end);
        self.file.write(chunk)?;
        self.file.write(&digest)?;
        write_fill(&mut self.file, 0, reserve)?;
        self.end += chunk.len() as u64 + digest.len() as u64 + reserve;
        Ok(())
    }

    fn check_length(&mut self, nbytes: u32) -> Result<()> {
        let fail = |expected: &str| {
            Err(Error::invalid_input(format!("expected {expected}, found one of {nbytes} bytes"))
                .at_path(self.file.path()))
        };
        if self.offsets.len() as u64 == self.nchunks {
            return fail(&format!("no more than {} chunks", self.nchunks));
        }
        match self.lengths {
            Some((first, last)) if last != first => return fail("no chunk after a shorter one"),
            Some((first, _)) if nbytes > first => return fail(&format!("a chunk of at most {first} bytes")),
            Some((first, _)) => self.lengths = Some((first, nbytes)),
            None => self.lengths = Some((nbytes, nbytes)),
        }
        Ok(())
    }

    /// Syncs the file and makes it appear at its path.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if chunks are missing; `Io`. The file at the path is then unchanged.
    pub fn finish(mut self) -> Result<()> {
        let pushed = self.offsets.len() as u64;
        if pushed != self.nchunks {
            let message = format!("expected {} chunks, found {pushed}", self.nchunks);
            return Err(Error::invalid_input(message).at_path(self.file.path()));
        }
        let offsets: Vec<u8> = self.offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
        self.file.overwrite(self.table, &offsets)?;
        self.file.overwrite(0, &self.header().encode())?;
        self.file.finish()
    }

    fn header(&self) -> Header {
        let (first, last) = self.lengths.unzip();
        Header {
            version: Version::V3,
            has_offsets: true,
            has_metadata: self.options.metadata.is_some(),
            checksum: self.options.checksum,
            typesize: self.options.typesize,
            chunk_size: first,
            last_chunk: last,
            nchunks: Some(self.nchunks),
            max_app_chunks: self.options.max_app_chunks,
        }
    }
}

/// How [`BcolzWriter::replace_chunk`](crate::bcolz::BcolzWriter::replace_chunk) replaced a chunk.
///
/// ```no_run
/// use sharddb_container::bcolz::BcolzWriter;
/// use sharddb_container::bloscpack::Replaced;
///
/// let mut writer = BcolzWriter::open("prices")?;
/// if writer.replace_chunk(0, &[0; 4096])? == Replaced::Rewritten {
///     println!("the superchunk was written again");
/// }
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The chunk fits in the space of the old one and its reserve. No other chunk moved.
    InPlace,
    /// The chunk does not fit, so all chunks of the file were written again.
    Rewritten,
}

/// Replaces chunk `number`, in place if the new chunk fits. The file is a new one that replaces the old by rename.
///
/// # Errors
///
/// `InvalidInput` if there is no such chunk; `Corrupt` if the file cannot be read; `Io`.
pub(crate) fn replace_chunk(file: &Superchunk, number: u64, chunk: &[u8], reserve_percent: u32) -> Result<Replaced> {
    let Some(extent) = file.extent(number) else {
        let message = format!("expected a chunk below {}, found {number}", file.len());
        return Err(Error::invalid_input(message).at_path(file.path()));
    };
    let digest = file.header().checksum.digest(chunk);
    let needed = chunk.len() as u64 + digest.len() as u64;
    // without offsets, readers expect the next chunk where this one ends
    let fits = if file.header().has_offsets { needed <= extent.len() } else { needed == extent.len() };
    if !fits {
        rewrite(file, reserve_percent, file.len(), |at| (at == number).then_some(chunk))?;
        return Ok(Replaced::Rewritten);
    }
    let mut new = NewFile::create(file.path())?;
    copy(file, ByteRange { start: 0, end: extent.start }, &mut new)?;
    new.write(chunk)?;
    new.write(&digest)?;
    write_fill(&mut new, 0, extent.len() - needed)?;
    copy(file, ByteRange { start: extent.end, end: file.file_len() }, &mut new)?;
    new.finish()?;
    Ok(Replaced::InPlace)
}

/// Replaces a file by one with `nchunks` chunks: those that `changed` returns, otherwise the existing ones.
pub(crate) fn rewrite<'a>(
    file: &Superchunk,
    reserve_percent: u32,
    nchunks: u64,
    changed: impl Fn(u64) -> Option<&'a [u8]>,
) -> Result<()> {
    let header = file.header();
    let options = BloscpackOptions {
        encoder: Encoder::new(),
        typesize: header.typesize,
        checksum: header.checksum,
        reserve_percent,
        max_app_chunks: header.max_app_chunks,
        metadata: file.metadata().cloned(),
    };
    let mut writer = BloscpackWriter::create(file.path(), options, nchunks)?;
    for number in 0..nchunks {
        if let Some(chunk) = changed(number) {
            writer.push_encoded(chunk)?;
            continue;
        }
        let Some(stored) = file.stored(number)? else {
            let message = format!("expected chunk {number}, found {} chunks", file.len());
            return Err(Error::invalid_input(message).at_path(file.path()));
        };
        writer.push_encoded(&stored.bytes)?;
    }
    writer.finish()
}

/// Encodes a file of one chunk in the format of bcolz: a header of version 1, then the chunk.
pub(crate) fn encode_one_chunk(chunk: &[u8]) -> Vec<u8> {
    let mut file = Header::of_one_chunk().encode();
    file.extend_from_slice(chunk);
    file
}

fn copy(file: &Superchunk, range: ByteRange, to: &mut NewFile) -> Result<()> {
    const PIECE: u64 = 1 << 20;
    let mut start = range.start;
    while start < range.end {
        let end = range.end.min(start + PIECE);
        to.write(&file.bytes(ByteRange { start, end })?)?;
        start = end;
    }
    Ok(())
}

/// Writes one byte `len` times.
fn write_fill(file: &mut NewFile, byte: u8, mut len: u64) -> Result<()> {
    let fill = [byte; 4096];
    while len > 0 {
        let piece = fill.get(..usize::try_from(len).unwrap_or(usize::MAX)).unwrap_or(&fill);
        file.write(piece)?;
        len -= piece.len() as u64;
    }
    Ok(())
}
