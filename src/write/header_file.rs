//! Temporary files with the headers of a minishard.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use crate::bytes::{BlockReader, Cursor, Sink, create_new};
use crate::error::{Error, Result};
use crate::fs::disk;
use crate::write::pair_header;
use crate::write::shard_file::PairHeader;

/// Block size of the file for the headers of a minishard with too many pairs for memory.
const HEADERS_BLOCK: usize = 256 << 10;

/// A temporary file with the headers of a minishard that has too many pairs for memory.
pub(super) struct HeaderFile {
    path: PathBuf,
    file: Arc<File>,
    cursor: Cursor,
    bytes: Vec<u8>,
    pub(super) count: u64,
}

impl HeaderFile {
    pub(super) fn create(path: PathBuf) -> Result<HeaderFile> {
        let file = create_new(&path)?;
        let cursor = Cursor::new(Sink::file(file.clone(), &path), 0, HEADERS_BLOCK);
        Ok(HeaderFile { path, file, cursor, bytes: Vec::new(), count: 0 })
    }

    pub(super) fn push(&mut self, pair: &PairHeader) -> Result<()> {
        self.bytes.clear();
        pair_header::write(pair, &mut self.bytes);
        pair_header::write_varint(u64::from(pair.source), &mut self.bytes);
        pair_header::write_varint(pair.locator, &mut self.bytes);
        self.count += 1;
        self.cursor.write(&self.bytes)
    }

    pub(super) fn read(&mut self) -> Result<impl Iterator<Item = Result<PairHeader>> + use<>> {
        self.cursor.finish()?;
        let end = self.cursor.position();
        let mut reader = BlockReader::new(self.file.clone(), &self.path, 0, end, HEADERS_BLOCK);
        Ok(std::iter::from_fn(move || next_header(&mut reader).transpose()))
    }

    /// Removes the file. Files that are not removed are deleted with the spill directory.
    pub(super) fn remove(self) -> Result<()> {
        disk::remove_file(&self.path).map_err(|error| Error::io("remove", &self.path, error))
    }
}

fn next_header(reader: &mut BlockReader) -> Result<Option<PairHeader>> {
    let bytes = reader.fill_at_least(pair_header::MAX_LEN + 2 * pair_header::MAX_VARINT)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let (mut pair, len) = pair_header::read(bytes)?;
    let mut rest = bytes.get(len..).unwrap_or_default();
    let source = pair_header::read_varint(&mut rest).and_then(|source| u32::try_from(source).ok());
    pair.source = source.ok_or_else(pair_header::cut_short)?;
    pair.locator = pair_header::read_varint(&mut rest).ok_or_else(pair_header::cut_short)?;
    let consumed = bytes.len() - rest.len();
    reader.consume(consumed);
    Ok(Some(pair))
}
