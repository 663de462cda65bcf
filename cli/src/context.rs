//! What every verb needs: where words go, and whether it is time to stop.

use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};

use crate::exit::Exit;
use crate::failure::{Failure, Result, exit_of};
use crate::interrupt::Interrupt;
use crate::printable::{self, Printable};

/// The circumstances of a run.
pub(crate) struct Context {
    /// No words but errors.
    pub(crate) quiet: bool,
    /// The signals.
    pub(crate) interrupt: Interrupt,
}

impl Context {
    /// A word to the user; not with `-q`.
    pub(crate) fn say(&self, words: impl fmt::Display) {
        if !self.quiet {
            warn(words);
        }
    }

    /// Errors: `Cancelled` after a signal.
    pub(crate) fn check_cancel(&self) -> Result<()> {
        if self.interrupt.is_set() { Err(Failure::Cancelled) } else { Ok(()) }
    }
}

/// A word to the user in any case: one line. Where standard error is closed, there is nobody to tell.
pub(crate) fn warn(words: impl fmt::Display) {
    tell(printable::line(words));
}

/// Like [`warn`], for a text of several lines.
pub(crate) fn warn_lines(words: impl fmt::Display) {
    tell(printable::lines(words));
}

/// Writes to standard error, all at once.
fn tell<T: fmt::Display>(words: Printable<T>) {
    let text = format!("{words}\n");
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Standard output, locked and buffered; flush it at the end with [`flush`].
pub(crate) fn stdout() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(64 << 10, io::stdout().lock())
}

/// Hands on what is buffered.
///
/// Errors: `BrokenPipe`, `Io`.
pub(crate) fn flush(mut out: BufWriter<StdoutLock<'static>>) -> Result<()> {
    out.flush().map_err(Failure::stdout)
}

/// The errors of a run that goes on after them: each is told as it comes, and the worst decides the exit code.
pub(crate) struct Errors {
    worst: Exit,
}

impl Errors {
    pub(crate) fn new() -> Errors {
        Errors { worst: Exit::Done }
    }

    /// Tells an error and takes note of it.
    pub(crate) fn tell(&mut self, error: &sharddb::Error) {
        warn(format_args!("sharddb: {error}"));
        self.note(exit_of(error.kind()));
    }

    /// Takes note of what happened.
    pub(crate) fn note(&mut self, exit: Exit) {
        self.worst = self.worst.max(exit);
    }

    /// The exit code of the run.
    pub(crate) fn exit(&self) -> Exit {
        self.worst
    }
}
