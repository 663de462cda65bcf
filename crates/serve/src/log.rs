//! The log of the server. A thread of its own writes it to standard error, so that no request waits for who reads it.
//!
//! Lines that do not fit into the memory for them are lost, and so are those that cannot be written. The next lines that
//! are written begin with the number of those that were lost.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use sharddb::internal::lock;
use sharddb::{Error, Result};
use tracing::Level;

/// Upper bound on the bytes that wait for the thread.
const MAX_BYTES: usize = 1 << 20;

/// The time that the last lines have.
const LAST_LINES: Duration = Duration::from_millis(500);

/// The lines of the log. Clones are the same log.
#[derive(Clone, Debug)]
pub struct Log(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_quiet: bool,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    lost: AtomicU64,
}

/// What the thread has not taken yet.
#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    /// The lines that were lost, and that no line of the log counts yet.
    uncounted: u64,
    /// No more lines follow.
    is_closed: bool,
    is_written: bool,
}

/// The thread that writes. When this is dropped, the last lines are written; a reader that does not read has
/// [`LAST_LINES`] for them.
pub(crate) struct LogWriter(Log);

impl Log {
    /// Creates a log; with `is_quiet` only of warnings.
    pub(crate) fn new(is_quiet: bool) -> Log {
        Log(Arc::new(Shared { is_quiet, ..Shared::default() }))
    }

    /// Collects what this process traces.
    pub(crate) fn collect(&self) {
        let (log, level) = (self.clone(), if self.0.is_quiet { Level::WARN } else { Level::INFO });
        let lines = tracing_subscriber::fmt().with_writer(move || log.clone()).with_max_level(level).with_ansi(false);
        let _ = lines.log_internal_errors(false).try_init(); // it is the only one
    }

    /// Adds a line, unless the log has warnings only. Never waits for who reads them.
    pub fn say(&self, line: &str) {
        if !self.0.is_quiet {
            self.push(format!("{line}\n").as_bytes());
        }
    }

    /// Adds a line that ends. Never waits for the thread.
    fn push(&self, line: &[u8]) {
        let mut waiting = self.waiting();
        if waiting.lines.len() + line.len() > MAX_BYTES {
            self.lose(&mut waiting, 1)
        } else {
            waiting.lines.extend_from_slice(line)
        }
        drop(waiting);
        self.0.changed.notify_all();
    }

    /// Starts the thread that writes to `sink`.
    ///
    /// Errors: `Io` if no thread can be started.
    pub(crate) fn write_to(&self, sink: impl Write + Send + 'static) -> Result<LogWriter> {
        let log = self.clone();
        let started = thread::Builder::new().name("log".to_string()).spawn(move || log.write_all_to(sink));
        started.map_err(|error| Error::io("start a thread", Path::new(""), error))?;
        Ok(LogWriter(self.clone()))
    }

    /// The number of lines that were lost since the start.
    pub(crate) fn lost(&self) -> u64 {
        self.0.lost.load(Relaxed)
    }

    fn write_all_to(&self, mut sink: impl Write) {
        while let Some((lines, lost)) = self.take() {
            let count = if lost > 0 { format!("sharddb: lost lines of this log: {lost}\n") } else { String::new() };
            let unwritten = write(&mut sink, &[count.as_bytes(), &lines].concat());
            if unwritten > 0 {
                let mut waiting = self.waiting();
                waiting.uncounted += if unwritten > lines.len() { lost } else { 0 };
                let lines = lines.get(lines.len().saturating_sub(unwritten)..).unwrap_or_default();
                self.lose(&mut waiting, lines.iter().filter(|byte| **byte == b'\n').count() as u64);
            }
        }
        self.waiting().is_written = true;
        self.0.changed.notify_all();
    }

    /// Waits for lines. Returns them and the number of those that were lost before them; `None` at the end.
    fn take(&self) -> Option<(Vec<u8>, u64)> {
        let idle = |waiting: &mut Waiting| waiting.lines.is_empty() && !waiting.is_closed;
        let waited = self.0.changed.wait_while(self.waiting(), idle);
        let mut waiting = waited.unwrap_or_else(PoisonError::into_inner);
        let lines = std::mem::take(&mut waiting.lines);
        (!lines.is_empty()).then(|| (lines, std::mem::take(&mut waiting.uncounted)))
    }

    fn lose(&self, waiting: &mut Waiting, lines: u64) {
        waiting.uncounted += lines;
        self.0.lost.fetch_add(lines, Relaxed);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.0.waiting)
    }
}

/// Writes to the sink as much as it takes. Returns the number of bytes that it does not take.
fn write(sink: &mut impl Write, mut text: &[u8]) -> usize {
    while !text.is_empty() {
        match sink.write(text) {
            Ok(0) => break,
            Ok(written) => text = text.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    text.len()
}

/// Takes one line in each call, and never fails.
impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.0.waiting().is_closed = true;
        self.0.0.changed.notify_all();
        let _ = self.0.0.changed.wait_timeout_while(self.0.waiting(), LAST_LINES, |waiting| !waiting.is_written);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::WATCHDOG;

    /// Hands each write over, and returns what the test answers: the number of bytes that it takes, or an error.
    struct Sink(Sender<Vec<u8>>, Receiver<io::Result<usize>>);

    impl Write for Sink {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.send(text.to_vec()).unwrap();
            self.1.recv_timeout(WATCHDOG).unwrap()
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A log, and both ends of its sink.
    fn log() -> (Log, LogWriter, Receiver<Vec<u8>>, Sender<io::Result<usize>>) {
        let ((written, writes), (answers, answer)) = (channel(), channel());
        let log = Log::new(false);
        let writer = log.write_to(Sink(written, answer)).unwrap();
        (log, writer, writes, answers)
    }

    fn next(writes: &Receiver<Vec<u8>>) -> String {
        String::from_utf8(writes.recv_timeout(WATCHDOG).unwrap()).unwrap()
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_in_the_next_ones() {
        let (log, writer, writes, answers) = log();
        log.say("one");
        assert_eq!(next(&writes), "one\n");
        log.say("two");
        log.say("three");
        answers.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        assert_eq!(next(&writes), "sharddb: lost lines of this log: 1\ntwo\nthree\n");
        answers.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        log.say("four");
        assert_eq!(next(&writes), "sharddb: lost lines of this log: 3\nfour\n");
        answers.send(Ok("sharddb: lost lines of this log: 3\nfo".len())).unwrap();
        assert_eq!(next(&writes), "ur\n");
        answers.send(Err(io::ErrorKind::BrokenPipe.into())).unwrap();
        log.say("five");
        assert_eq!(next(&writes), "sharddb: lost lines of this log: 1\nfive\n");
        answers.send(Ok("sharddb: lost lines of this log: 1\nfive\n".len())).unwrap();
        drop(writer);
        assert_eq!(log.lost(), 4);
    }

    /// The sink never returns from the first write: lines are taken, the excess is lost, and the end does not wait.
    #[test]
    fn a_reader_that_does_not_read_stops_nobody() {
        let (log, writer, writes, answers) = log();
        log.say("one");
        assert_eq!(next(&writes), "one\n");
        let line = "x".repeat(1023);
        for _ in 0..MAX_BYTES / 1024 + 10 {
            log.say(&line);
        }
        assert_eq!(log.lost(), 10);
        drop(writer);
        drop(answers);
    }

    #[test]
    fn the_last_lines_are_written() {
        let (log, writer, writes, answers) = log();
        answers.send(Ok(4)).unwrap();
        log.say("one");
        drop(writer);
        assert_eq!(next(&writes), "one\n");
    }
}
