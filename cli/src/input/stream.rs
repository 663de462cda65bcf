//! A file or pipe as an input, with a name and an offset for messages.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use crate::failure::{Failure, Place, Result};
use crate::input::compression::{Compression, Damaged};
use crate::input::pipe::{self, Pipe};
use crate::input::{InputProgress, Reading};
use crate::number::plural;

const BUFFER: usize = 64 << 10;

/// A buffered input with a name and an offset.
pub(crate) struct Stream {
    name: String,
    reader: BufReader<Box<dyn Read>>,
    offset: u64,
    len: Option<u64>,
}

impl Stream {
    /// Opens a file. Reads of a pipe or terminal stay interruptible.
    ///
    /// Errors: `Io`.
    pub(crate) fn open(path: &Path, reading: &Reading) -> Result<Stream> {
        let failure = |error| Failure::io("open", path, error);
        let name = path.display().to_string();
        let metadata = path.metadata().map_err(failure)?;
        if metadata.is_file() {
            let file = File::open(path).map_err(failure)?;
            return Ok(Stream::new(name, Box::new(file), Some(metadata.len()), reading));
        }
        let path = path.to_path_buf();
        let pipe = Pipe::new(move || File::open(path), Arc::clone(&reading.cancel)).map_err(Failure::thread)?;
        Ok(Stream::new(name, Box::new(pipe), None, reading))
    }

    /// The same stream, decompressed.
    pub(crate) fn decompressed(self, compression: Compression) -> Stream {
        if compression == Compression::None {
            return self;
        }
        let reader = BufReader::with_capacity(BUFFER, compression.decompress(self.reader.into_inner()));
        Stream { name: self.name, reader, offset: 0, len: None }
    }

    /// Standard input.
    pub(crate) fn stdin(reading: &Reading) -> Result<Stream> {
        let pipe = Pipe::new(|| Ok(io::stdin()), Arc::clone(&reading.cancel)).map_err(Failure::thread)?;
        Ok(Stream::new("standard input".to_string(), Box::new(pipe), None, reading))
    }

    fn new(name: String, reader: Box<dyn Read>, len: Option<u64>, reading: &Reading) -> Stream {
        reading.progress.add_total(len);
        let counted = Counted { reader, progress: Arc::clone(&reading.progress) };
        Stream { name, reader: BufReader::with_capacity(BUFFER, Box::new(counted)), offset: 0, len }
    }

    /// The name in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The number of bytes read so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The number of bytes left; `None` if the length is unknown.
    pub(crate) fn rest(&self) -> Option<u64> {
        self.len.map(|len| len.saturating_sub(self.offset))
    }

    /// The bytes that are buffered and not yet read.
    pub(crate) fn buffer(&self) -> &[u8] {
        self.reader.buffer()
    }

    /// The failure for a read error of this stream: `Cancelled` after a signal, otherwise `Io`.
    pub(crate) fn failure(&self, source: io::Error) -> Failure {
        if pipe::is_cancelled(&source) {
            return Failure::Cancelled;
        }
        if let Some(damaged) = Damaged::of(&source) {
            let message = format!("{damaged}, after {}", plural(self.offset, "decompressed byte"));
            return Failure::malformed(&self.name, Place::Whole, message);
        }
        Failure::Io { what: format!("read {}", self.name), source }
    }

    /// Reads until `buf` is full or the stream ends; returns the number of bytes read.
    pub(crate) fn fill(&mut self, buf: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buf.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read(rest) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failure(error)),
            }
        }
        Ok(filled)
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buf)?;
        self.offset += read as u64;
        Ok(read)
    }
}

impl BufRead for Stream {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.reader.consume(amount);
        self.offset += amount as u64;
    }
}

/// Reports bytes to the progress. It is below the buffer, so this happens once per buffer, not once per record.
struct Counted {
    reader: Box<dyn Read>,
    progress: Arc<InputProgress>,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buf)?;
        self.progress.add_done(read as u64, read as u64);
        Ok(read)
    }
}

#[cfg(test)]
impl Stream {
    /// A stream of known length, like a regular file.
    pub(crate) fn of_bytes(name: &str, bytes: &[u8]) -> Stream {
        let len = Some(bytes.len() as u64);
        Stream { len, ..Stream::of_pipe(name, bytes) }
    }

    /// A stream of unknown length, like a pipe.
    pub(crate) fn of_pipe(name: &str, bytes: &[u8]) -> Stream {
        let reader: Box<dyn Read> = Box::new(io::Cursor::new(bytes.to_vec()));
        Stream { name: name.to_string(), reader: BufReader::new(reader), offset: 0, len: None }
    }
}
