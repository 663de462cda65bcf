//! Writing one region of a file front to back, in large blocks, with its CRC-32.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crc32fast::Hasher;

use crate::disk;
use crate::error::{Error, Result};
use crate::storage::sink::Sink;

/// Blocks end at multiples of this: a file written so maps with huge pages where the file system can.
pub(crate) const BLOCK: usize = 2 << 20;

/// Writes from one position of a file onwards. Several cursors write distinct regions of one file.
pub(crate) struct Cursor {
    sink: Sink,
    /// Of the first byte in the buffer.
    flushed_to: u64,
    buffer: Vec<u8>,
    /// Blocks end at multiples of this.
    block: usize,
    sum: Hasher,
}

impl Cursor {
    /// A cursor that writes at `position` in blocks of `block` bytes.
    pub(crate) fn new(sink: Sink, position: u64, block: usize) -> Cursor {
        Cursor { sink, flushed_to: position, buffer: Vec::new(), block, sum: Hasher::new() }
    }

    /// Where the next byte goes.
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

    /// Writes exactly `len` bytes of `reader`.
    pub(crate) fn write_from(&mut self, reader: &mut dyn Read, mut len: u64) -> Result<()> {
        while len > 0 {
            let take = usize::try_from(len).unwrap_or(usize::MAX).min(self.room());
            let start = self.buffer.len();
            self.buffer.resize(start + take, 0);
            let read = reader.read_exact(self.buffer.get_mut(start..).unwrap_or_default());
            read.map_err(|error| Error::io("read what is to be written to", self.sink.path(), error))?;
            len -= take as u64;
            if self.room() == 0 {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes `len` zero bytes; a long run of them becomes a hole.
    pub(crate) fn zeros(&mut self, len: u64) -> Result<()> {
        match usize::try_from(len) {
            Ok(len) if len < self.block => {
                let start = self.buffer.len();
                self.buffer.resize(start + len, 0);
                if self.buffer.len() >= self.block { self.flush() } else { Ok(()) }
            }
            _ => {
                self.flush()?;
                self.skip(len, &zeros_sum(len));
                Ok(())
            }
        }
    }

    /// Steps over `len` bytes that others wrote, whose sum is known.
    fn skip(&mut self, len: u64, sum: &Hasher) {
        self.flushed_to += len;
        self.sum.combine(sum);
    }

    /// Goes on where `other` ended, which began where this one stands; the sum of what it wrote.
    pub(crate) fn append(&mut self, mut other: Cursor) -> Result<Hasher> {
        self.flush()?;
        let len = other.position() - self.flushed_to;
        let sum = other.finish()?;
        self.skip(len, &sum);
        Ok(sum)
    }

    /// Writes what is buffered; the sum of the region so far.
    pub(crate) fn finish(&mut self) -> Result<Hasher> {
        self.flush()?;
        Ok(self.sum.clone())
    }

    /// The bytes until the block ends.
    #[inline]
    fn room(&self) -> usize {
        let into_block = usize::try_from(self.flushed_to % self.block as u64).unwrap_or(0);
        (self.block - into_block).saturating_sub(self.buffer.len())
    }

    fn flush(&mut self) -> Result<()> {
        self.sum.update(&self.buffer);
        self.sink.write_all_at(self.flushed_to, &self.buffer)?;
        self.flushed_to += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// The CRC-32 state of `len` zero bytes, by doubling.
pub(crate) fn zeros_sum(mut len: u64) -> Hasher {
    let mut sum = Hasher::new();
    let mut power = Hasher::new();
    power.update(&[0]);
    while len > 0 {
        if len & 1 == 1 {
            sum.combine(&power);
        }
        power.combine(&power.clone());
        len >>= 1;
    }
    sum
}

/// A new file for writing and reading back, which must not exist.
pub(crate) fn create_new(path: &Path) -> Result<Arc<File>> {
    disk::create_new(path).map(Arc::new).map_err(|error| Error::io("create", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_have_the_sum_of_zeros() {
        for len in [0, 1, 2, 3, 1000, 70_001] {
            let zeros = vec![0; usize::try_from(len).unwrap()];
            assert_eq!(zeros_sum(len).finalize(), crc32fast::hash(&zeros), "length {len}");
        }
    }
}
