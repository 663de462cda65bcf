//! The file of large pairs: stores the bytes of pairs too large for a batch, in insertion order.
//!
//! The batch contains only the header, with the offset of the bytes. A large pair is therefore sorted, spilled and
//! merged like any other pair, and its bytes are copied only once, into the shard.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bytes::{BlockReader, Cursor, Sink, create_new};
use crate::error::{Error, Result};
use crate::format::checks;
use crate::format::gzip::GzipEncoder;
use crate::format::spec::Encoding;
use crate::write::shard_file::{PairHeader, PieceSink};

/// Block size for writing and reading the file.
const LARGE_BLOCK: usize = 1 << 20;

/// The writer of the file of large pairs.
pub(crate) struct LargeFileWriter {
    path: PathBuf,
    file: Arc<File>,
    cursor: Cursor,
}

/// The reader of the file of large pairs. All threads share one descriptor.
pub(crate) struct LargeFileReader {
    path: PathBuf,
    file: Arc<File>,
}

impl LargeFileWriter {
    /// Creates the file in a spill directory, named by a number.
    pub(crate) fn create(spill_dir: &Path, number: u64) -> Result<LargeFileWriter> {
        let path = spill_dir.join(format!("{number}.large"));
        let file = create_new(&path)?;
        let cursor = Cursor::new(Sink::file(file.clone(), &path), 0, LARGE_BLOCK);
        Ok(LargeFileWriter { path, file, cursor })
    }

    /// Reads a preamble and a value from `reader`, and appends the preamble and the encoded value. Returns their header.
    ///
    /// Errors: `Io` if the reader fails or ends early; the bytes written so far then stay in the file without a header.
    pub(crate) fn write(
        &mut self,
        key: u64,
        (preamble_len, value_len): (u64, u64),
        reader: &mut dyn Read,
        data_encoding: Encoding,
    ) -> Result<PairHeader> {
        let position = self.cursor.position();
        let mut preamble_crc32 = crc32fast::Hasher::new();
        self.cursor.write_from(&mut ChecksumReader(reader, &mut preamble_crc32), preamble_len)?;
        let value_start = self.cursor.position();
        let mut value_check = checks::value_hasher(key);
        match data_encoding {
            Encoding::Raw => self.cursor.write_from(&mut ChecksumReader(reader, &mut value_check), value_len)?,
            Encoding::Gzip => self.write_encoded(reader, value_len, &mut value_check)?,
        }
        Ok(PairHeader {
            value_check: value_check.finalize(),
            preamble_crc32: preamble_crc32.finalize(),
            large: Some(position),
            ..PairHeader::new(key, preamble_len, self.cursor.position() - value_start)
        })
    }

    fn write_encoded(&mut self, reader: &mut dyn Read, len: u64, check: &mut crc32fast::Hasher) -> Result<()> {
        let mut write = |piece: &[u8]| {
            check.update(piece);
            self.cursor.write(piece)
        };
        let failed = |error| Error::io("compress a value", &self.path, error);
        GzipEncoder::new().encode_reader(reader, len, &mut write, &failed)
    }

    /// Writes the buffered bytes, so that all pairs can be read back.
    pub(crate) fn finish(mut self) -> Result<LargeFileReader> {
        self.cursor.finish()?;
        Ok(LargeFileReader { path: self.path, file: self.file })
    }
}

impl LargeFileReader {
    fn pieces(&self, position: u64, len: u64, to: &mut PieceSink<'_>) -> Result<()> {
        let end = position.checked_add(len).ok_or_else(|| Error::internal("a large pair ends beyond 2^64"))?;
        BlockReader::new(self.file.clone(), &self.path, position, end, LARGE_BLOCK).pieces(len, to)
    }
}

/// Passes on the preamble and the stored value of a large pair, which begin at `position`.
pub(crate) fn pieces(
    file: Option<&LargeFileReader>,
    position: u64,
    pair: &PairHeader,
    to: &mut PieceSink<'_>,
) -> Result<()> {
    let no_file = || Error::internal("there is no file of large pairs for a large pair").at_key(pair.key);
    file.ok_or_else(no_file)?.pieces(position, pair.preamble_len + pair.stored_len, to)
}

/// A reader that updates a checksum with the bytes that it reads.
struct ChecksumReader<'a>(&'a mut dyn Read, &'a mut crc32fast::Hasher);

impl Read for ChecksumReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read(into)?;
        self.1.update(into.get(..read).unwrap_or_default());
        Ok(read)
    }
}
