//! Reads from inputs that may block forever, without blocking cancellation.
//!
//! A read of a pipe or terminal cannot be interrupted. A separate thread reads, and the run waits for its chunks and
//! polls the cancel flag.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

const CHUNK: usize = 256 << 10;
const QUEUE: usize = 4;
const LOOK_AT_FLAG: Duration = Duration::from_millis(50);

/// The bytes of a pipe. After cancellation, reads fail with an error that [`is_cancelled`] recognises.
pub(crate) struct Pipe {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
    at: usize,
    cancel: Arc<AtomicBool>,
}

impl Pipe {
    /// Opens with `open` and reads, both on a separate thread, since opening may block too (a FIFO without a writer).
    pub(crate) fn new<R: Read>(
        open: impl FnOnce() -> io::Result<R> + Send + 'static,
        cancel: Arc<AtomicBool>,
    ) -> io::Result<Pipe> {
        let (sender, chunks) = sync_channel(QUEUE);
        thread::Builder::new().name("input".to_string()).spawn(move || match open() {
            Ok(reader) => send_chunks(reader, &sender),
            Err(error) => drop(sender.send(Err(error))),
        })?;
        Ok(Pipe { chunks, chunk: Vec::new(), at: 0, cancel })
    }

    /// Waits for the next chunk; an empty chunk is the end.
    fn next_chunk(&self) -> io::Result<Vec<u8>> {
        loop {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(io::Error::other(Cancelled));
            }
            match self.chunks.recv_timeout(LOOK_AT_FLAG) {
                Ok(chunk) => return chunk,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(Vec::new()),
            }
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at == self.chunk.len() {
            self.chunk = self.next_chunk()?;
            self.at = 0;
        }
        let rest = self.chunk.get(self.at..).unwrap_or_default();
        let read = (&*rest).read(buf)?;
        self.at += read;
        Ok(read)
    }
}

/// Sends chunks until the end, an error, or until the receiver is gone.
fn send_chunks(mut reader: impl Read, sender: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut chunk = vec![0; CHUNK];
        let result = match reader.read(&mut chunk) {
            Ok(0) => return,
            Ok(read) => {
                chunk.truncate(read);
                Ok(chunk)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let last = result.is_err();
        if sender.send(result).is_err() || last {
            return;
        }
    }
}

/// Whether a read failed because of the cancel flag.
pub(crate) fn is_cancelled(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Cancelled>())
}

#[derive(Debug)]
struct Cancelled;

impl std::fmt::Display for Cancelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stopped by a signal")
    }
}

impl std::error::Error for Cancelled {}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe_of(reader: impl Read + Send + 'static, cancel: &Arc<AtomicBool>) -> Pipe {
        Pipe::new(move || Ok(reader), Arc::clone(cancel)).unwrap()
    }

    #[test]
    fn hands_on_every_byte() {
        let bytes: Vec<u8> = (0..=250).cycle().take(3 * CHUNK + 17).collect();
        let mut read = Vec::new();
        pipe_of(io::Cursor::new(bytes.clone()), &Arc::default()).read_to_end(&mut read).unwrap();
        assert!(read == bytes);
    }

    #[test]
    fn hands_on_errors() {
        let mut pipe =
            Pipe::new(|| Err::<io::Empty, _>(io::ErrorKind::PermissionDenied.into()), Arc::default()).unwrap();
        assert_eq!(pipe.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn stops_while_the_other_side_is_silent() {
        let (reader, writer) = io::pipe().unwrap();
        let cancel = Arc::new(AtomicBool::new(false));
        let mut pipe = pipe_of(reader, &cancel);
        cancel.store(true, Ordering::Relaxed);
        let read = crate::testing::must_return(move || pipe.read(&mut [0]));
        assert!(is_cancelled(&read.unwrap_err()));
        drop(writer);
    }
}
