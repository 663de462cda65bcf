//! A buffered reader of one region of a file, front to back, in large blocks.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bytes::cursor::Cursor;
use crate::bytes::file::read_exact_at;
use crate::error::{Error, Result};
use crate::fs::disk;

/// Reads a region of a file front to back in large blocks. Several readers of one file keep separate positions.
pub(crate) struct BlockReader {
    file: Arc<File>,
    path: PathBuf,
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    taken: usize,
    block: usize,
}

impl BlockReader {
    /// Creates a reader of bytes `start..end` of a file, in blocks of `block` bytes.
    pub(crate) fn new(file: Arc<File>, path: &Path, start: u64, end: u64, block: usize) -> BlockReader {
        BlockReader { file, path: path.to_path_buf(), position: start, end, buffer: Vec::new(), taken: 0, block }
    }

    /// Returns the buffered bytes: at least one, unless the end is reached.
    pub(crate) fn fill(&mut self) -> Result<&[u8]> {
        self.fill_at_least(1)
    }

    /// Returns the buffered bytes: at least `len`, or all that are left.
    #[inline]
    pub(crate) fn fill_at_least(&mut self, len: usize) -> Result<&[u8]> {
        if self.buffer.len() - self.taken < len {
            self.refill(len)?;
        }
        Ok(self.buffer.get(self.taken..).unwrap_or_default())
    }

    /// Steps past `len` buffered bytes.
    #[inline]
    pub(crate) fn consume(&mut self, len: usize) {
        self.taken = (self.taken + len).min(self.buffer.len());
    }

    /// Steps past `len` bytes. Does not read those that are not buffered.
    pub(crate) fn skip(&mut self, len: u64) {
        let buffered = self.buffer.len() - self.taken;
        match usize::try_from(len) {
            Ok(len) if len <= buffered => self.taken += len,
            _ => {
                self.position += len - buffered as u64;
                self.taken = self.buffer.len();
            }
        }
    }

    /// Copies `len` bytes to a cursor.
    pub(crate) fn copy(&mut self, len: u64, to: &mut Cursor) -> Result<()> {
        self.pieces(len, &mut |piece| to.write(piece))
    }

    /// Passes on the next `len` bytes, in pieces of at most a block.
    #[inline]
    pub(crate) fn pieces(&mut self, mut len: u64, to: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        while len > 0 {
            let bytes = self.fill()?;
            if bytes.is_empty() {
                return Err(Error::io("read", &self.path, io::ErrorKind::UnexpectedEof.into()));
            }
            let take = usize::try_from(len).unwrap_or(usize::MAX).min(bytes.len());
            to(bytes.get(..take).unwrap_or_default())?;
            self.consume(take);
            len -= take as u64;
        }
        Ok(())
    }

    fn refill(&mut self, at_least: usize) -> Result<()> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let kept = self.buffer.len();
        let left = self.end.saturating_sub(self.position);
        let want = self.block.max(at_least).saturating_sub(kept);
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(want);
        self.buffer.resize(kept + take, 0);
        let into = self.buffer.get_mut(kept..).unwrap_or_default();
        disk::inspect(&self.path, || read_exact_at(&self.file, into, self.position))
            .map_err(|error| Error::io("read", &self.path, error).at_offset(self.position))?;
        self.position += take as u64;
        Ok(())
    }
}

impl Read for BlockReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut bytes = self.fill().map_err(io::Error::other)?;
        let read = bytes.read(into)?;
        self.consume(read);
        Ok(read)
    }
}
