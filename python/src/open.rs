//! `sharddb.open`, its options, and the state of an open database.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sharddb::{ErrorKind, GenerationId, OpenOptions, ShardDb, Snapshot, VerifyReads};

use crate::errors::{self, OrRaise};
use crate::reader::{Database, Reader};
use crate::{buffer, file_system, fork};

/// How a database is opened: the keyword arguments of `sharddb.open`, which pickle.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) mode: Mode,
    pub(crate) verify: Verify,
    pub(crate) pointer: Option<String>,
}

/// A choice among names, which are those of a keyword argument.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident, $argument:literal, $($variant:ident = $text:literal),+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($variant),+ }

        impl $name {
            pub(crate) fn parse(text: &str) -> PyResult<$name> {
                match text {
                    $($text => Ok($name::$variant),)+
                    other => Err(PyValueError::new_err(format!(
                        concat!("expected ", $argument, " to be one of ", $("\"", $text, "\" ",)+ "found {:?}"), other
                    ))),
                }
            }

            pub(crate) fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }
        }
    };
}

choice!(
    /// How files are read.
    Mode, "mode", Auto = "auto", Mmap = "mmap", Pread = "pread", Memory = "memory"
);
choice!(
    /// When reads verify checksums.
    Verify, "verify", Once = "once", Never = "never", Always = "always"
);

impl Options {
    fn open(&self, path: &Path) -> sharddb::Result<ShardDb> {
        let mut options = OpenOptions::new();
        options.verify_reads(match self.verify {
            Verify::Once => VerifyReads::Once,
            Verify::Never => VerifyReads::Never,
            Verify::Always => VerifyReads::Always,
        });
        if let Some(pointer) = &self.pointer {
            options.pointer(pointer);
        }
        match self.mode {
            Mode::Auto if file_system::is_local(path) => buffer::open_mapped(&options, path),
            Mode::Mmap => buffer::open_mapped(&options, path),
            Mode::Auto | Mode::Pread => options.open_pread(path),
            Mode::Memory => options.load(path),
        }
    }
}

/// An open database, or a snapshot of one.
pub(crate) struct Open {
    /// Absolute.
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    pub(crate) db: ShardDb,
    /// The generation that is served instead of that of `db`: that of a snapshot, or after a fork or in another process.
    pub(crate) pinned: Option<Snapshot>,
    /// Value of [`fork::count`] when it was opened.
    pub(crate) forks: u64,
    /// The number of keys of a data set without a manifest.
    counted: OnceLock<u64>,
}

impl Open {
    pub(crate) fn new(path: PathBuf, options: Options, db: ShardDb, pinned: Option<Snapshot>) -> Open {
        Open { path, options, db, pinned, forks: fork::count(), counted: OnceLock::new() }
    }

    fn open(py: Python<'_>, path: PathBuf, options: Options) -> PyResult<Open> {
        let db = py.detach(|| options.open(&path)).or_raise(py)?;
        Ok(Open::new(path, options, db, None))
    }

    /// Opens the database again, so that it serves the generation that it served in another process.
    ///
    /// Errors: `GenerationGone` if the generation was removed.
    pub(crate) fn open_at(
        py: Python<'_>,
        path: PathBuf,
        options: Options,
        generation: Option<&Path>,
        id: Option<GenerationId>,
    ) -> PyResult<Open> {
        let open = Open::open(py, path, options)?;
        let Some((id, directory)) = id.zip(generation) else { return Ok(open) };
        if open.db.snapshot().generation() == Some(id) {
            return Ok(open);
        }
        let options = &open.options;
        let at = py.detach(|| options.open(directory)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                let message = format!("expected {id}, found it removed: open the store again");
                errors::new(py, ErrorKind::GenerationGone, &message, Some(directory), None)
            }
            _ => errors::to_py(py, &error),
        })?;
        Ok(Open { pinned: Some(at.snapshot()), ..open })
    }

    /// Returns the generation that reads use.
    #[inline]
    pub(crate) fn snapshot(&self) -> Snapshot {
        match &self.pinned {
            Some(pinned) => pinned.clone(),
            None => self.db.snapshot(),
        }
    }

    /// Returns the number of keys: that of the manifest or, without one, the number of those in the indexes.
    pub(crate) fn len(&self, py: Python<'_>) -> PyResult<u64> {
        let snapshot = self.snapshot();
        if let Some(keys) = snapshot.len().or(self.counted.get().copied()) {
            return Ok(keys);
        }
        let keys = py.detach(|| snapshot.count()).or_raise(py)?;
        Ok(*self.counted.get_or_init(|| keys)) // such a data set is not refreshed
    }
}

/// Opens a database: a store, the directory of one generation, or a directory of shards of any writer.
///
/// `mode` selects how files are read. "mmap" maps them: lookups copy nothing but their result. "pread" uses positioned
/// reads. "memory" reads all files first. "auto" maps files on local file systems, and uses positioned reads on all others
/// (NFS, Lustre, GPFS, FUSE, SMB, 9p). Nobody may truncate or edit files while they are mapped, and an I/O error on a
/// mapped file ends the process with SIGBUS; removing files is safe. "pread" and "memory" have no such condition.
///
/// `verify` selects when reads verify checksums: "once", at the first use of most bytes, "always" or "never".
///
/// `pointer` is the JSON pointer of the object in `info` that has the member "sharding", such as "/scales/0".
///
/// Raises `NotFound` (a `FileNotFoundError`), `InvalidSpec`, `InvalidInput`, `Corrupt`, `Unsupported`, `TooLarge`,
/// `GenerationGone` or `Io`.
#[pyfunction]
#[pyo3(signature = (path, *, mode = "auto", verify = "once", pointer = None))]
fn open(py: Python<'_>, path: PathBuf, mode: &str, verify: &str, pointer: Option<String>) -> PyResult<Py<Database>> {
    let options = Options { mode: Mode::parse(mode)?, verify: Verify::parse(verify)?, pointer };
    let path = std::path::absolute(path)?;
    Database::new(py, Reader::new(Open::open(py, path, options)?))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(open, module)?)
}
