//! A buffered writer of one region of a file, front to back, in large blocks. Computes the CRC-32 of the region and, if
//! wanted, its digest.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crc32fast::Hasher;

use crate::bytes::sink::Sink;
use crate::error::{Error, Result};
use crate::format::checksum::{Checksum, crc32_of_zeros};
use crate::format::digest::Digester;
use crate::fs::disk;

/// Block size. Blocks end at multiples of it, so that the file can be mapped with huge pages if the file system
/// supports them.
pub(crate) const WRITE_BLOCK: usize = 2 << 20;

/// Writes from one position of a file onwards. Several cursors may write distinct regions of one file.
pub(crate) struct Cursor {
    sink: Sink,
    /// File position of the first byte in the buffer.
    flushed_to: u64,
    buffer: Vec<u8>,
    /// Blocks end at multiples of this.
    block: usize,
    crc: Hasher,
    digester: Option<Digester>,
}

impl Cursor {
    /// Creates a cursor that writes at `position` in blocks of `block` bytes.
    pub(crate) fn new(sink: Sink, position: u64, block: usize) -> Cursor {
        Cursor { sink, flushed_to: position, buffer: Vec::new(), block, crc: Hasher::new(), digester: None }
    }

    /// Makes the cursor compute the digest of the region, too.
    pub(crate) fn with_digest(self) -> Cursor {
        Cursor { digester: Some(Digester::default()), ..self }
    }

    /// Returns the file position of the next byte.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.flushed_to + self.buffer.len() as u64
    }

    #[inline]
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while bytes.len() >= self.room() {
            let (now, later) = bytes.split_at(self.room());
            self.buffer.extend_from_slice(now);
            self.flush()?;
            bytes = later;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes exactly `len` bytes from `reader`.
    ///
    /// Errors: `Io`, also if `reader` has fewer bytes.
    pub(crate) fn write_from(&mut self, reader: &mut dyn Read, mut len: u64) -> Result<()> {
        while len > 0 {
            let take = usize::try_from(len).unwrap_or(usize::MAX).min(self.room());
            let start = self.buffer.len();
            self.buffer.resize(start + take, 0);
            let read = reader.read_exact(self.buffer.get_mut(start..).unwrap_or_default());
            read.map_err(|error| Error::io("read the bytes to write", self.sink.path(), error))?;
            len -= take as u64;
            if self.room() == 0 {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes `len` zero bytes. A run of a block or more becomes a hole.
    #[inline]
    pub(crate) fn zeros(&mut self, len: u64) -> Result<()> {
        match usize::try_from(len) {
            Ok(0) => Ok(()),
            Ok(len) if len < self.block => {
                let start = self.buffer.len();
                self.buffer.resize(start + len, 0);
                if self.buffer.len() >= self.block { self.flush() } else { Ok(()) }
            }
            _ => {
                self.flush()?;
                self.skip(len, &crc32_of_zeros(len));
                self.digester.iter_mut().for_each(|digester| digester.zeros(len));
                Ok(())
            }
        }
    }

    /// Steps over `len` bytes that are already in the file, with the CRC-32 state `crc`.
    fn skip(&mut self, len: u64, crc: &Hasher) {
        self.flushed_to += len;
        self.crc.combine(crc);
    }

    /// Continues at the end of `other`, which began at the position of this cursor. Returns the CRC-32 state of the
    /// bytes that `other` wrote.
    ///
    /// Cost: with a digest, reads these bytes back.
    pub(crate) fn append(&mut self, mut other: Cursor) -> Result<Hasher> {
        self.flush()?;
        let len = other.position() - self.flushed_to;
        let crc = other.finish()?;
        if let Some(digester) = &mut self.digester {
            self.sink.read_back(self.flushed_to, len, &mut |block| digester.update(block))?;
        }
        self.skip(len, &crc);
        Ok(crc)
    }

    /// Flushes the buffer. Returns the CRC-32 state of the region so far.
    pub(crate) fn finish(&mut self) -> Result<Hasher> {
        self.flush()?;
        Ok(self.crc.clone())
    }

    /// Flushes the buffer. Returns what a manifest states about the file, which is no shard and has no other region.
    pub(crate) fn finish_file(mut self) -> Result<Checksum> {
        let crc32 = self.finish()?.finalize();
        let digest = self.take_digester().map(|digester| digester.finish());
        Ok(Checksum { bytes: self.position(), crc32, digest, shard_index_len: 0 })
    }

    /// Returns the digester of the region, if there is one, after the buffer was flushed.
    pub(crate) fn take_digester(&mut self) -> Option<Digester> {
        self.digester.take()
    }

    /// Returns the number of bytes left in the current block.
    #[inline]
    fn room(&self) -> usize {
        let into_block = usize::try_from(self.flushed_to % self.block as u64).unwrap_or(0);
        (self.block - into_block).saturating_sub(self.buffer.len())
    }

    fn flush(&mut self) -> Result<()> {
        self.crc.update(&self.buffer);
        self.digester.iter_mut().for_each(|digester| digester.update(&self.buffer));
        self.sink.write_all_at(self.flushed_to, &self.buffer)?;
        self.flushed_to += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Creates a file for writing and reading back.
///
/// Errors: `Io`, also if the file exists.
pub(crate) fn create_new(path: &Path) -> Result<Arc<File>> {
    disk::create_new(path).map(Arc::new).map_err(|error| Error::io("create", path, error))
}
