//! Pairs too large for a batch: their bytes go straight to one file, in the order of insertion.
//!
//! The batch holds only the header, with the position of the bytes. So a large pair is sorted, spilled and merged like
//! any other, at its place in the order of insertion, and its bytes are copied once: into the shard.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::build::shard_body::PairHeader;
use crate::error::{Error, Result};
use crate::format::checks;
use crate::format::gzip::GzipEncoder;
use crate::format::spec::Encoding;
use crate::storage::{BlockReader, Cursor, Sink, create_new};

/// Blocks in which the file is written and read.
const BLOCK: usize = 1 << 20;

/// Writes the bytes of large pairs.
pub(crate) struct LargePairs {
    path: PathBuf,
    file: Arc<File>,
    cursor: Cursor,
}

/// The bytes of all large pairs, to be copied from any thread; shares one descriptor.
pub(crate) struct LargeBytes {
    path: PathBuf,
    file: Arc<File>,
}

impl LargePairs {
    /// Creates the file in a loader's spill directory.
    pub(crate) fn create(spill_dir: &Path) -> Result<LargePairs> {
        let path = spill_dir.join("0.large");
        let file = create_new(&path)?;
        let cursor = Cursor::new(Sink::file(file.clone(), &path), 0, BLOCK);
        Ok(LargePairs { path, file, cursor })
    }

    /// Appends the prefix and the encoded value that `reader` gives; returns the header that refers to them.
    ///
    /// Errors: `Io` if the reader fails or ends early; then bytes without a header stay in the file.
    pub(crate) fn write(
        &mut self,
        key: u64,
        (prefix_len, value_len): (u64, u64),
        reader: &mut dyn Read,
        data_encoding: Encoding,
    ) -> Result<PairHeader> {
        let position = self.cursor.position();
        let mut prefix_sum = crc32fast::Hasher::new();
        self.cursor.write_from(&mut SumReader(reader, &mut prefix_sum), prefix_len)?;
        let value_start = self.cursor.position();
        let mut value_check = checks::value_hasher(key);
        match data_encoding {
            Encoding::Raw => self.cursor.write_from(&mut SumReader(reader, &mut value_check), value_len)?,
            Encoding::Gzip => self.write_encoded(reader, value_len, &mut value_check)?,
        }
        Ok(PairHeader {
            key,
            prefix_len,
            stored_len: self.cursor.position() - value_start,
            value_check: value_check.finalize(),
            prefix_sum: prefix_sum.finalize(),
            batch: 0,
            large: Some(position),
            source: 0,
            skip: 0,
        })
    }

    fn write_encoded(&mut self, reader: &mut dyn Read, len: u64, sum: &mut crc32fast::Hasher) -> Result<()> {
        let (cursor, mut failed) = (&mut self.cursor, None);
        let encoded = GzipEncoder::new().encode_reader(reader, len, &mut |piece| {
            sum.update(piece);
            cursor.write(piece).map_err(|error| {
                failed = Some(error);
                std::io::ErrorKind::Other.into()
            })
        });
        encoded.map_err(|error| failed.unwrap_or_else(|| Error::io("compress a value for", &self.path, error)))
    }

    /// Writes what is buffered, so that everything can be read back.
    pub(crate) fn finish(mut self) -> Result<LargeBytes> {
        self.cursor.finish()?;
        Ok(LargeBytes { path: self.path, file: self.file })
    }
}

impl LargeBytes {
    /// Copies the prefix and the stored value that begin at `position`.
    pub(crate) fn copy(&self, position: u64, len: u64, to: &mut Cursor) -> Result<()> {
        let end = position.checked_add(len).ok_or_else(|| Error::internal("a large pair ends beyond 2^64"))?;
        BlockReader::new(self.file.clone(), &self.path, position, end, BLOCK).copy(len, to)
    }
}

/// Updates a checksum with the bytes that pass.
struct SumReader<'a>(&'a mut dyn Read, &'a mut crc32fast::Hasher);

impl Read for SumReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read(into)?;
        self.1.update(into.get(..read).unwrap_or_default());
        Ok(read)
    }
}
