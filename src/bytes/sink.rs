//! The destination of written bytes: a file, or memory.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::bytes::file::read_exact_at;
use crate::error::{Error, Result};
use crate::format::locks::lock;
use crate::fs::disk;

/// Block size of reading back.
const READ_BLOCK: usize = 1 << 20;

/// A file or a vector that several cursors write at positions.
#[derive(Clone)]
pub(crate) enum Sink {
    File(Arc<File>, Arc<Path>),
    Memory(Arc<Mutex<Vec<u8>>>),
}

impl Sink {
    pub(crate) fn file(file: Arc<File>, path: &Path) -> Sink {
        Sink::File(file, path.into())
    }

    /// Returns the path of the file; empty for memory.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Sink::File(_, path) => path,
            Sink::Memory(_) => Path::new(""),
        }
    }

    /// Writes all bytes at a position. Bytes that are never written are zeros.
    pub(super) fn write_all_at(&self, position: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Sink::File(file, path) => disk::write_all_at(file, path, position, bytes)
                .map_err(|error| Error::io("write", path, error).at_offset(position)),
            Sink::Memory(memory) => {
                let start = usize::try_from(position).unwrap_or(usize::MAX);
                let mut memory = lock(memory);
                if memory.len() < start.saturating_add(bytes.len()) {
                    memory.resize(start.saturating_add(bytes.len()), 0);
                }
                let to = memory.get_mut(start..).and_then(|rest| rest.get_mut(..bytes.len()));
                to.ok_or_else(|| Error::internal("the buffer in memory is too short"))?.copy_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Passes on bytes that were written, in blocks.
    pub(super) fn read_back(&self, position: u64, len: u64, to: &mut dyn FnMut(&[u8])) -> Result<()> {
        let end = position.saturating_add(len);
        match self {
            Sink::File(file, path) => {
                let mut block = vec![0; usize::try_from(len).unwrap_or(READ_BLOCK).min(READ_BLOCK)];
                let mut position = position;
                while position < end {
                    let take = usize::try_from(end - position).unwrap_or(READ_BLOCK).min(READ_BLOCK);
                    let block = block.get_mut(..take).unwrap_or_default();
                    read_exact_at(file, block, position)
                        .map_err(|error| Error::io("read back", path, error).at_offset(position))?;
                    to(block);
                    position += take as u64;
                }
                Ok(())
            }
            Sink::Memory(memory) => {
                let at = |position| usize::try_from(position).unwrap_or(usize::MAX);
                let memory = lock(memory);
                let written = memory.get(at(position)..at(end));
                to(written.ok_or_else(|| Error::internal("the buffer in memory is too short"))?);
                Ok(())
            }
        }
    }

    /// Flushes a file to disk (fsync). Does nothing for memory.
    pub(crate) fn sync(&self) -> Result<()> {
        match self {
            Sink::File(file, path) => {
                disk::sync_file(file, path).map_err(|error| Error::io("sync to disk", path, error))
            }
            Sink::Memory(_) => Ok(()),
        }
    }

    /// Takes the bytes that were written to memory. Empty for a file.
    pub(crate) fn take_memory(&self) -> Vec<u8> {
        match self {
            Sink::File(..) => Vec::new(),
            Sink::Memory(memory) => std::mem::take(&mut lock(memory)),
        }
    }
}
