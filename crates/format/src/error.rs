//! The error type of the crate: a kind, a message with what was expected and found, and a place.
//!
//! The type is opaque instead of an enum per layer: a caller shows the message or branches on [`ErrorKind`], and the
//! library can add detail without a breaking change. An absent key is `Ok(None)`, never an error.

use std::any::Any;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ids::{MinishardNumber, ShardNumber};

/// The result of the fallible functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: its kind, a message, and the place that it refers to. One pointer wide.
///
/// The message states what was expected and found, where (file, shard, minishard, key, byte offset), and what the user
/// can do about it, if anything. Each part has its own accessor.
///
/// ```
/// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
/// use sharddb::{ErrorKind, ShardingSpec};
///
/// let error = ShardingSpec::from_json(r#"{"@type": "neuroglancer_uint64_sharded_v2"}"#).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidSpec);
/// assert!(error.to_string().contains("neuroglancer_uint64_sharded_v1"));
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    path: Option<PathBuf>,
    key: Option<u64>,
    location: ErrorLocation,
    /// Shared with clones: `io::Error` has none.
    source: Option<Arc<io::Error>>,
}

/// The place inside a shard that an [`Error`] refers to. Unknown parts are `None`.
///
/// ```
/// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
/// let error = sharddb::ShardingSpec::from_json("{}").unwrap_err();
/// assert_eq!(error.location().shard, None); // a specification is not in a shard
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorLocation {
    /// The shard.
    pub shard: Option<ShardNumber>,
    /// The minishard within the shard.
    pub minishard: Option<MinishardNumber>,
    /// The byte offset in the file.
    pub offset: Option<u64>,
}

/// The kind of an [`Error`], for branching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A system call failed: no permission, no space, or a missing file, for example. See [`Error::io_kind`].
    Io,
    /// There is no such database, generation or key: the path is something else, or a store without a published generation; no
    /// generation has the number; an update that is strict deletes an absent key.
    NotFound,
    /// A file breaks a rule of the format, or a checksum does not match.
    Corrupt,
    /// A read or a decode would exceed a cap of `OpenOptions` or the available memory.
    TooLarge,
    /// The sharding specification, the metadata that contains it, or the requested configuration is not valid.
    InvalidSpec,
    /// The file was written by a later major version of ShardDb, or needs a feature that this build lacks.
    Unsupported,
    /// The same key was inserted twice.
    DuplicateKey,
    /// A pair was inserted into a `ShardWriter` out of order, or belongs to another shard.
    OutOfOrder,
    /// An argument of the caller is not valid: an option, a path, or a malformed record.
    InvalidInput,
    /// A generation without keys would replace one with keys, and that was not allowed. Nothing was published.
    Empty,
    /// Another writer holds the store.
    Locked,
    /// The generation was deleted while it was in use.
    GenerationGone,
    /// A publication is repeated whose generation was rolled back or replaced. The path is that of its mark.
    Superseded,
    /// The operation was cancelled by the caller.
    Cancelled,
    /// A bug in ShardDb: an invariant does not hold, or one of its threads panicked. Nothing was published. Please
    /// report it.
    Internal,
}

impl ErrorKind {
    /// Returns the kind in lowercase, for logs and machine-readable output: `too-large`, for example.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::NotFound => "not-found",
            Self::Corrupt => "corrupt",
            Self::TooLarge => "too-large",
            Self::InvalidSpec => "invalid-spec",
            Self::Unsupported => "unsupported",
            Self::DuplicateKey => "duplicate-key",
            Self::OutOfOrder => "out-of-order",
            Self::InvalidInput => "invalid-input",
            Self::Empty => "empty",
            Self::Locked => "locked",
            Self::GenerationGone => "generation-gone",
            Self::Superseded => "superseded",
            Self::Cancelled => "cancelled",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Error {
    /// Creates an error, for implementations of the traits of ShardDb.
    ///
    /// ```
    /// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
    /// use sharddb::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::Io, "the queue of requests is full");
    /// assert_eq!(error.to_string(), "the queue of requests is full");
    /// ```
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        let (message, location) = (message.into(), ErrorLocation::default());
        Error(Box::new(Inner { kind, message, path: None, key: None, location, source: None }))
    }

    /// Returns the kind of the error, for branching.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the file or directory that the error refers to, if known.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Returns the key that the error refers to, if any.
    pub fn key(&self) -> Option<u64> {
        self.0.key
    }

    /// Returns the place inside the shard.
    pub fn location(&self) -> ErrorLocation {
        self.0.location
    }

    /// Returns the kind of the I/O error that is the cause, if there is one.
    ///
    /// ```
    /// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
    /// let error = sharddb::ShardingSpec::from_json("{}").unwrap_err();
    /// assert_eq!(error.io_kind(), None); // no call has failed
    /// ```
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        self.0.source.as_ref().map(|source| source.kind())
    }

    /// Returns the error number of the kernel (`errno`) of the I/O error that is the cause, if there is one.
    ///
    /// ```
    /// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
    /// let error = sharddb::ShardingSpec::from_json("{}").unwrap_err();
    /// assert_eq!(error.raw_os_error(), None); // no call has failed
    /// ```
    pub fn raw_os_error(&self) -> Option<i32> {
        self.0.source.as_ref().and_then(|source| source.raw_os_error())
    }

    /// Returns the message without the place and without the I/O error.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Creates an error of the kind `Corrupt`.
    #[cold]
    pub fn corrupt(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupt, message)
    }

    /// Creates an error of the kind `InvalidSpec`.
    #[cold]
    pub fn invalid_spec(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidSpec, message)
    }

    /// Creates an error of the kind `InvalidInput`.
    #[cold]
    pub fn invalid_input(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidInput, message)
    }

    /// Creates an error of the kind `Internal`: of a state that no input can cause.
    #[cold]
    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Internal, message)
    }

    /// Creates an error of the kind `Io`: a call failed that should `what` the file at `path` ("open", "rename to gen-0000000003").
    #[cold]
    pub fn io(what: &str, path: &Path, source: io::Error) -> Error {
        let mut error = Error::new(ErrorKind::Io, format!("cannot {what}"));
        error.0.path = (!path.as_os_str().is_empty()).then(|| path.to_path_buf());
        error.0.source = Some(Arc::new(source));
        error
    }

    /// Replaces the kind, where more is known of the cause.
    #[cold]
    pub fn with_kind(mut self, kind: ErrorKind) -> Error {
        self.0.kind = kind;
        self
    }

    /// Adds the path unless there is one already: that of the innermost layer is the most exact.
    #[cold]
    pub fn at_path(mut self, path: &Path) -> Error {
        self.0.path.get_or_insert_with(|| path.to_path_buf());
        self
    }

    /// Replaces the path, as that of a local copy by that of the original.
    #[cold]
    pub fn with_path(mut self, path: PathBuf) -> Error {
        self.0.path = Some(path);
        self
    }

    /// Puts a sentence before the message, which follows in brackets.
    #[cold]
    pub fn context(mut self, more: &str) -> Error {
        self.0.message = format!("{more} ({})", self.0.message);
        self
    }

    /// Adds the key unless there is one already.
    #[cold]
    pub fn at_key(mut self, key: u64) -> Error {
        self.0.key.get_or_insert(key);
        self
    }

    /// Adds the shard unless there is one already.
    #[cold]
    pub fn at_shard(mut self, shard: ShardNumber) -> Error {
        self.0.location.shard.get_or_insert(shard);
        self
    }

    /// Adds the minishard unless there is one already.
    #[cold]
    pub fn at_minishard(mut self, minishard: MinishardNumber) -> Error {
        self.0.location.minishard.get_or_insert(minishard);
        self
    }

    /// Adds the byte offset in the file unless there is one already.
    #[cold]
    pub fn at_offset(mut self, offset: u64) -> Error {
        self.0.location.offset.get_or_insert(offset);
        self
    }
}

/// Returns the error after a panic in `what`: a thread of this crate, or a function of the caller.
#[cold]
pub fn panicked(what: &str, panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::internal(format!("{what} panicked: {}", text.unwrap_or("no message")))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        f.write_str(&inner.message)?;
        if let Some(source) = &inner.source {
            write!(f, ": {source}")?;
        }
        let mut separator = " (";
        let mut place = |f: &mut fmt::Formatter<'_>, name: &str, value: &dyn fmt::Display| {
            let result = write!(f, "{separator}{name} {value}");
            separator = ", ";
            result
        };
        if let Some(path) = &inner.path {
            place(f, "file", &path.display())?;
        }
        if let Some(shard) = inner.location.shard {
            place(f, "shard", &format_args!("{:x}", shard.0))?;
        }
        if let Some(minishard) = inner.location.minishard {
            place(f, "minishard", &minishard.0)?;
        }
        if let Some(key) = inner.key {
            place(f, "key", &key)?;
        }
        if let Some(offset) = inner.location.offset {
            place(f, "byte", &offset)?;
        }
        if separator == ", " {
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({}: {self})", self.kind())
    }
}

impl std::error::Error for Error {
    /// Returns the source of the I/O error. The I/O error itself is already part of the message.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref()?.source()
    }
}

impl From<Error> for io::Error {
    /// Wraps the error in an I/O error of the matching kind.
    fn from(error: Error) -> io::Error {
        let kind = error.io_kind().unwrap_or(match error.kind() {
            ErrorKind::NotFound | ErrorKind::GenerationGone => io::ErrorKind::NotFound,
            ErrorKind::Corrupt | ErrorKind::InvalidSpec => io::ErrorKind::InvalidData,
            ErrorKind::InvalidInput | ErrorKind::DuplicateKey | ErrorKind::OutOfOrder | ErrorKind::Empty => {
                io::ErrorKind::InvalidInput
            }
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            ErrorKind::Locked => io::ErrorKind::WouldBlock,
            ErrorKind::Io
            | ErrorKind::TooLarge
            | ErrorKind::Superseded
            | ErrorKind::Cancelled
            | ErrorKind::Internal => io::ErrorKind::Other,
        });
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_one_pointer_wide() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn a_chain_names_the_cause_once_and_no_empty_file() {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let error = Error::io("open", Path::new("db/info"), missing());
        assert_eq!(error.to_string(), format!("cannot open: {} (file db/info)", missing()));
        assert!(std::error::Error::source(&error).is_none());
        assert_eq!(error.io_kind(), Some(io::ErrorKind::NotFound));
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);
        let error = Error::io("read", Path::new(""), missing()).at_path(Path::new("db/1c.shard"));
        assert_eq!(error.to_string(), format!("cannot read: {} (file db/1c.shard)", missing()));
    }

    #[test]
    fn the_error_number_is_that_of_the_kernel() {
        let full = io::Error::from_raw_os_error(28);
        let error = Error::io("write", Path::new("db/1c.shard"), full);
        assert_eq!((error.raw_os_error(), error.clone().raw_os_error()), (Some(28), Some(28)));
        assert_eq!(Error::io("write", Path::new(""), io::Error::other("no number")).raw_os_error(), None);
        assert_eq!(Error::corrupt("expected 3, found 4").raw_os_error(), None);
    }

    #[test]
    fn a_copy_has_every_part() {
        let source = io::Error::new(io::ErrorKind::TimedOut, "no answer");
        let error = Error::io("read", Path::new("db/info"), source).at_shard(ShardNumber(1)).at_key(7).at_offset(3);
        let copy = error.clone();
        assert_eq!((copy.to_string(), copy.kind()), (error.to_string(), ErrorKind::Io));
        assert_eq!((copy.io_kind(), copy.key()), (Some(io::ErrorKind::TimedOut), Some(7)));
        assert_eq!((copy.path(), copy.location()), (error.path(), error.location()));
    }

    #[test]
    fn says_kind_and_every_known_place() {
        let error = Error::corrupt("expected a multiple of 24 bytes, found 23")
            .at_path(Path::new("db/1c.shard"))
            .at_path(Path::new("outer layers do not overwrite"))
            .at_shard(ShardNumber(0x1c))
            .at_minishard(MinishardNumber(7))
            .at_key(42)
            .at_offset(512);
        assert_eq!(
            error.to_string(),
            "expected a multiple of 24 bytes, found 23 (file db/1c.shard, shard 1c, minishard 7, key 42, byte 512)"
        );
        assert_eq!((error.kind(), error.key()), (ErrorKind::Corrupt, Some(42)));
    }
}
