//! The failure of a run: a message for the user and an exit code.

use std::fmt;
use std::io;
use std::path::Path;

use sharddb::ErrorKind;

use crate::exit::Exit;

/// The result of every fallible function of the command.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a run ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request is not valid.
    Usage(String),
    /// An input breaks a rule of its format.
    Malformed(Malformed),
    /// The path is not a database.
    NotADatabase(String),
    /// A pair that its sink refuses. The reader of the input adds the place with [`at`](Failure::at).
    Refused(String),
    /// Inputs or sources that are damaged, or not what they must be: empty, with a key twice, different from each other.
    Unsound(String),
    /// A key that must be there is absent.
    Absent(String),
    /// A file or stream could not be read or written.
    Io {
        /// The operation and its object: "read a.bin".
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The reader of standard output has closed it; not an error.
    BrokenPipe,
    /// A signal requested the end of the run.
    Cancelled,
    /// A bug of this program.
    Internal(String),
    /// An error of the library.
    Library(sharddb::Error),
}

/// A malformed input: what was expected and found, and where.
#[derive(Debug)]
pub(crate) struct Malformed {
    /// What was expected and what was found.
    pub(crate) message: String,
    /// The input, as the user named it.
    pub(crate) input: String,
    /// Where in the input.
    pub(crate) place: Place,
}

/// A place in an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// All of it.
    Whole,
    /// A byte offset, from 0.
    Byte(u64),
    /// A line, from 1.
    Line(u64),
}

impl Malformed {
    /// The input and the place in it: "a.ndjson, line 7".
    pub(crate) fn located(&self) -> String {
        match self.place {
            Place::Whole => self.input.clone(),
            Place::Byte(offset) => format!("{}, byte {offset}", self.input),
            Place::Line(line) => format!("{}, line {line}", self.input),
        }
    }
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::Usage(message.into())
    }

    pub(crate) fn malformed(input: &str, place: Place, message: impl Into<String>) -> Failure {
        Failure::Malformed(Malformed { message: message.into(), input: input.to_string(), place })
    }

    /// Adds the place of the pair to the refusal of a sink. Any other failure stays as it is.
    pub(crate) fn at(self, input: &str, place: Place) -> Failure {
        match self {
            Failure::Refused(message) => Failure::malformed(input, place, message),
            other => other,
        }
    }

    /// A pair that the library refuses: an input that is malformed, and no wrong command line.
    pub(crate) fn of_pair(error: sharddb::Error) -> Failure {
        match error.kind() {
            ErrorKind::InvalidInput => Failure::Refused(error.to_string()),
            _ => error.into(),
        }
    }

    /// An I/O error. `verb` names the operation: "open", "read".
    pub(crate) fn io(verb: &str, path: &Path, source: io::Error) -> Failure {
        Failure::Io { what: format!("{verb} {}", path.display()), source }
    }

    /// A failed write to standard output.
    pub(crate) fn stdout(source: io::Error) -> Failure {
        match source.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::Io { what: "write to standard output".to_string(), source },
        }
    }

    /// The operating system cannot start a thread.
    pub(crate) fn thread(source: io::Error) -> Failure {
        Failure::Io { what: "start a thread".to_string(), source }
    }

    /// The operating system refuses to install signal handlers.
    pub(crate) fn signals(source: io::Error) -> Failure {
        Failure::Io { what: "watch for signals".to_string(), source }
    }

    /// The exit code of this failure.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Failure::Usage(_) => Exit::Usage,
            Failure::Malformed(_) | Failure::Refused(_) | Failure::Unsound(_) => Exit::Corrupt,
            Failure::Absent(_) => Exit::Absent,
            Failure::NotADatabase(_) | Failure::Io { .. } => Exit::Io,
            Failure::BrokenPipe => Exit::Done,
            Failure::Cancelled => Exit::Interrupted,
            Failure::Internal(_) => Exit::Internal,
            Failure::Library(error) => exit_of(error.kind()),
        }
    }
}

/// What the refusal of an empty generation advises.
pub(crate) const ALLOW_EMPTY: &str = "--allow-empty publishes an empty generation";

/// The exit code of an error of the library.
pub(crate) fn exit_of(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::InvalidInput => Exit::Usage,
        ErrorKind::Io | ErrorKind::NotFound | ErrorKind::Locked | ErrorKind::GenerationGone => Exit::Io,
        ErrorKind::Superseded => Exit::Superseded,
        ErrorKind::Cancelled => Exit::Interrupted,
        ErrorKind::Internal => Exit::Internal,
        // Corrupt, TooLarge, InvalidSpec, Unsupported, DuplicateKey, OutOfOrder, Empty, and kinds of later versions
        _ => Exit::Corrupt,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(message)
            | Failure::Refused(message)
            | Failure::Unsound(message)
            | Failure::Absent(message)
            | Failure::NotADatabase(message)
            | Failure::Internal(message) => f.write_str(message),
            Failure::Malformed(malformed) => malformed.fmt(f),
            Failure::Io { what, source } => write!(f, "cannot {what}: {source}"),
            Failure::BrokenPipe => f.write_str("the reader of the output has gone"),
            Failure::Cancelled => f.write_str("stopped by a signal"),
            Failure::Library(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (file {})", self.message, self.located())
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Failure::Io { source, .. } => Some(source),
            Failure::Library(error) => Some(error),
            _ => None,
        }
    }
}

impl From<sharddb::Error> for Failure {
    fn from(error: sharddb::Error) -> Failure {
        match error.kind() {
            ErrorKind::Cancelled => Failure::Cancelled,
            ErrorKind::Empty => Failure::Unsound(format!("{error}; {ALLOW_EMPTY}")),
            _ => Failure::Library(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_its_exit_code() {
        let source = || io::Error::other("x");
        let cases = [
            (Failure::usage("x"), Exit::Usage),
            (Failure::malformed("a.bin", Place::Byte(3), "x"), Exit::Corrupt),
            (Failure::Refused("x".to_string()), Exit::Corrupt),
            (Failure::Unsound("x".to_string()), Exit::Corrupt),
            (Failure::NotADatabase("x".to_string()), Exit::Io),
            (Failure::Absent("x".to_string()), Exit::Absent),
            (Failure::io("open", Path::new("a.bin"), source()), Exit::Io),
            (Failure::stdout(source()), Exit::Io),
            (Failure::stdout(io::ErrorKind::BrokenPipe.into()), Exit::Done),
            (Failure::Cancelled, Exit::Interrupted),
        ];
        for (failure, exit) in cases {
            assert_eq!(failure.exit(), exit, "{failure}");
        }
    }

    #[test]
    fn every_kind_of_the_library_has_its_exit_code() {
        let cases = [
            (ErrorKind::Io, 4),
            (ErrorKind::NotFound, 4),
            (ErrorKind::Locked, 4),
            (ErrorKind::GenerationGone, 4),
            (ErrorKind::Superseded, 5),
            (ErrorKind::Corrupt, 3),
            (ErrorKind::TooLarge, 3),
            (ErrorKind::InvalidSpec, 3),
            (ErrorKind::Unsupported, 3),
            (ErrorKind::DuplicateKey, 3),
            (ErrorKind::OutOfOrder, 3),
            (ErrorKind::Empty, 3),
            (ErrorKind::InvalidInput, 2),
            (ErrorKind::Cancelled, 130),
            (ErrorKind::Internal, 70),
        ];
        for (kind, code) in cases {
            assert_eq!(exit_of(kind).code(), code, "{kind}");
        }
    }

    #[test]
    fn a_malformed_input_names_its_place() {
        let message = |place| Failure::malformed("a.x", place, "expected 1, found 2").to_string();
        assert_eq!(message(Place::Whole), "expected 1, found 2 (file a.x)");
        assert_eq!(message(Place::Byte(16)), "expected 1, found 2 (file a.x, byte 16)");
        assert_eq!(message(Place::Line(7)), "expected 1, found 2 (file a.x, line 7)");
        let refused = Failure::Refused("expected 1, found 2".to_string()).at("a.x", Place::Line(7));
        assert_eq!(refused.to_string(), "expected 1, found 2 (file a.x, line 7)");
    }
}
