//! A queue of bytes: in memory while it is short, else in a file.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bytes::{Cursor, Sink, create_new, read_exact_at};
use crate::error::Result;

/// Bytes that are kept in memory. When there are more, all of them move to the file.
const IN_MEMORY: usize = 1 << 20;

/// Block size for writing the file.
const WRITE_BLOCK: usize = 1 << 20;

/// Bytes that are written at the end and read from the beginning.
pub(crate) struct Spool {
    path: PathBuf,
    file: Option<Arc<File>>,
    /// Writes the file; `None` while nothing of the queue is in it.
    cursor: Option<Cursor>,
    /// Position in the file of the next byte to read, if the file has any.
    read: u64,
    /// The bytes after those in the file.
    memory: Vec<u8>,
    /// Number of bytes of `memory` that were read.
    taken: usize,
}

impl Spool {
    /// Creates an empty queue. Its file is created when it is needed, and stays until its directory is removed.
    pub(crate) fn new(path: &Path) -> Spool {
        Spool { path: path.to_path_buf(), file: None, cursor: None, read: 0, memory: Vec::new(), taken: 0 }
    }

    /// Returns the number of bytes that were written and not read.
    pub(crate) fn len(&self) -> u64 {
        self.len_in_file() + (self.memory.len() - self.taken) as u64
    }

    fn len_in_file(&self) -> u64 {
        self.cursor.as_ref().map_or(0, |cursor| cursor.position() - self.read)
    }

    /// Adds bytes at the end.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.memory.extend_from_slice(bytes);
        if self.memory.len() - self.taken <= IN_MEMORY {
            return Ok(());
        }
        let cursor = match (&mut self.cursor, &self.file) {
            (Some(cursor), _) => cursor,
            (none, file) => {
                let file = match file {
                    Some(file) => file.clone(),
                    None => self.file.insert(create_new(&self.path)?).clone(),
                };
                self.read = 0;
                none.insert(Cursor::new(Sink::file(file, &self.path), 0, WRITE_BLOCK))
            }
        };
        cursor.write(self.memory.get(self.taken..).unwrap_or_default())?;
        self.memory.clear();
        self.taken = 0;
        Ok(())
    }

    fn read_file(&mut self, into: &mut [u8]) -> io::Result<()> {
        if let Some(cursor) = &mut self.cursor {
            cursor.finish().map_err(io::Error::other)?;
        }
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        read_exact_at(file, into, self.read)?;
        self.read += into.len() as u64;
        if self.len_in_file() == 0 {
            self.cursor = None; // the next bytes begin at the start of the file again
        }
        Ok(())
    }
}

impl Read for Spool {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let in_file = usize::try_from(self.len_in_file()).unwrap_or(usize::MAX).min(into.len());
        if in_file > 0 {
            self.read_file(into.get_mut(..in_file).unwrap_or_default())?;
            return Ok(in_file);
        }
        let read = self.memory.get(self.taken..).unwrap_or_default().read(into)?;
        self.taken += read;
        if self.taken == self.memory.len() {
            self.memory.clear();
            self.taken = 0;
        } else if self.taken > IN_MEMORY / 2 {
            self.memory.drain(..self.taken);
            self.taken = 0;
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::common::TempDir;

    /// Writes and reads pieces of any length, from less than the memory to several times as much.
    #[test]
    fn is_a_queue_whatever_its_length() {
        let directory = TempDir::new();
        let mut spool = Spool::new(&directory.path().join("0.spool"));
        let (mut expected, mut seed) = (VecDeque::new(), 7_u64);
        let mut next = |end: u64| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (seed >> 33) % end
        };
        for round in 0..400 {
            // grows to a few MiB, and shrinks to nothing, several times
            let (write, read) = if round / 50 % 2 == 0 { (200_000, 50_000) } else { (20_000, 900_000) };
            let piece: Vec<u8> = (0..next(write)).map(|_| u8::try_from(next(251)).unwrap()).collect();
            spool.push(&piece).unwrap();
            expected.extend(piece);
            let mut bytes = vec![0; usize::try_from(next(read).min(spool.len())).unwrap()];
            spool.read_exact(&mut bytes).unwrap();
            assert!(expected.drain(..bytes.len()).eq(bytes), "round {round}");
            assert_eq!(spool.len(), expected.len() as u64);
        }
        assert!(directory.path().join("0.spool").exists(), "the file was used");
    }
}
