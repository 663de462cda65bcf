//! What every subcommand needs: output streams, messages, and the cancel flag.

use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};

use sharddb::ErrorKind;

use crate::exit::Exit;
use crate::failure::{Failure, Result, exit_of};
use crate::interrupt::Interrupt;
use crate::printable::{self, Printable};
use crate::{progress, secrets};

/// The settings of a run that all subcommands share.
pub(crate) struct Context {
    /// Print errors only (`-q`).
    pub(crate) quiet: bool,
    /// Report what each call to an object store costs (`-v`).
    #[cfg_attr(not(feature = "remote"), expect(dead_code, reason = "calls to object stores read it"))]
    pub(crate) verbose: bool,
    /// The state of signals.
    pub(crate) interrupt: Interrupt,
}

impl Context {
    /// Writes a message to standard error, unless `-q` is given.
    pub(crate) fn say(&self, words: impl fmt::Display) {
        if !self.quiet {
            warn(words);
        }
    }

    /// Returns an error once a signal has arrived.
    ///
    /// Errors: `Cancelled` after a signal.
    pub(crate) fn check_cancel(&self) -> Result<()> {
        if self.interrupt.is_set() { Err(Failure::Cancelled) } else { Ok(()) }
    }
}

/// Writes one line to standard error, also with `-q`. Ignores write errors, since there is no other place to report.
pub(crate) fn warn(words: impl fmt::Display) {
    tell(printable::line(words));
}

/// Like [`warn`], for a text of several lines.
pub(crate) fn warn_lines(words: impl fmt::Display) {
    tell(printable::lines(words));
}

/// Writes to standard error in one call, without secrets.
fn tell<T: fmt::Display>(words: Printable<T>) {
    let text = secrets::hide(&format!("{words}\n"));
    let _ = progress::pause(|| io::stderr().write_all(text.as_bytes()));
}

/// Standard output, locked and buffered; flush it at the end with [`flush`].
pub(crate) fn stdout() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(64 << 10, io::stdout().lock())
}

/// Flushes standard output.
///
/// Errors: `BrokenPipe`, `Io`.
pub(crate) fn flush(mut out: BufWriter<StdoutLock<'static>>) -> Result<()> {
    out.flush().map_err(Failure::stdout)
}

/// Writes one line to standard output.
pub(crate) fn write_line(line: &impl std::fmt::Display) -> Result<()> {
    let mut out = stdout();
    writeln!(out, "{line}").map_err(Failure::stdout)?;
    flush(out)
}

/// Writes one line of JSON to standard output.
pub(crate) fn write_json(value: &impl serde::Serialize) -> Result<()> {
    let mut out = stdout();
    push_json(&mut out, value)?;
    flush(out)
}

/// Writes one line of JSON.
pub(crate) fn push_json(out: &mut impl Write, value: &impl serde::Serialize) -> Result<()> {
    serde_json::to_writer(&mut *out, value).map_err(|error| Failure::stdout(error.into()))?;
    out.write_all(b"\n").map_err(Failure::stdout)
}

/// The errors of a run that continues after them. Each is reported at once, and the worst sets the exit code.
pub(crate) struct Errors {
    worst: Exit,
    has_damage: bool,
}

impl Errors {
    pub(crate) fn new() -> Errors {
        Errors { worst: Exit::Done, has_damage: false }
    }

    /// Reports an error and records its exit code.
    pub(crate) fn tell(&mut self, error: &sharddb::Error) {
        warn(format_args!("sharddb: {error}"));
        self.note(exit_of(error.kind()));
        self.has_damage |= error.kind() == ErrorKind::Corrupt;
    }

    /// Whether data was damaged, so that a salvage may help.
    pub(crate) fn has_damage(&self) -> bool {
        self.has_damage
    }

    /// Records an exit code.
    pub(crate) fn note(&mut self, exit: Exit) {
        self.worst = self.worst.max(exit);
    }

    /// The exit code of the run.
    pub(crate) fn exit(&self) -> Exit {
        self.worst
    }
}
