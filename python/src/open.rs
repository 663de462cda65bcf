//! The local part of `sharddb.open`, its options, and the state of an open database.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sharddb::read::Watch;
use sharddb::{ErrorKind, GenerationId, OpenOptions, ShardDb, ShardingSpec, Snapshot, VerifyReads};

use crate::database::Database;
use crate::errors::{self, OrRaise};
use crate::{buffer, file_system, fork, spec};

/// How a database is opened: the keyword arguments of `sharddb.open`, which pickle.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) mode: Mode,
    pub(crate) verify: Verify,
    pub(crate) pointer: Option<String>,
    pub(crate) spec: Option<ShardingSpec>,
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
        if let Some(spec) = self.spec {
            options.spec(spec);
        }
        match self.resolved_mode(path) {
            Mode::Memory => options.load(path),
            Mode::Mmap => buffer::open_mapped(&options, path),
            Mode::Auto | Mode::Pread => options.open_pread(path),
        }
    }

    /// Returns the mode for a path: never `Auto`.
    fn resolved_mode(&self, path: &Path) -> Mode {
        match self.mode {
            Mode::Auto if file_system::is_local(path) => Mode::Mmap,
            Mode::Auto => Mode::Pread,
            mode => mode,
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
    pinned: Option<Snapshot>,
    /// Value of [`fork::count`] when it was opened.
    forks: u64,
    /// Whether a lookup is a system call.
    is_positioned: bool,
    /// The number of keys of a data set without a manifest.
    counted: OnceLock<u64>,
    /// Locked only while the GIL is held, so never during a fork.
    watch: Mutex<Option<Watch>>,
}

impl Open {
    /// Opens the database at `path`, which is absolute.
    pub(crate) fn new(py: Python<'_>, path: PathBuf, options: Options) -> PyResult<Open> {
        let db = py.detach(|| options.open(&path)).or_raise(py)?;
        Ok(Open::of(path, options, db, None))
    }

    fn of(path: PathBuf, options: Options, db: ShardDb, pinned: Option<Snapshot>) -> Open {
        let (forks, is_positioned) = (fork::count(), options.resolved_mode(&path) == Mode::Pread);
        Open { path, options, db, pinned, forks, is_positioned, counted: OnceLock::new(), watch: Mutex::default() }
    }

    /// Opens the database again, in another process, so that it serves the same generation.
    ///
    /// Errors: `GenerationGone` if the generation was removed.
    pub(crate) fn again(py: Python<'_>, origin: Origin) -> PyResult<Open> {
        let Origin { path, options, generation } = origin;
        let Some((id, directory)) = generation else { return Open::new(py, path, options) };
        let open = |path: &Path| {
            py.detach(|| options.open(path)).map_err(|error| match error.kind() {
                ErrorKind::NotFound if directory.parent().is_some_and(Path::is_dir) => gone(py, id, &directory),
                _ => errors::to_py(py, &error),
            })
        };
        let db = open(&path)?;
        let pinned = match db.snapshot().generation() == Some(id) {
            true => None,
            false => Some(open(&directory)?.snapshot()),
        };
        Ok(Open::of(path, options, db, pinned))
    }

    /// Returns what another process needs to open the same generation.
    pub(crate) fn origin(&self) -> Origin {
        let served = self.snapshot();
        let directory = served.directory();
        let is_of_store = self.path.canonicalize().is_ok_and(|path| directory.parent() == Some(&path));
        let path = match is_of_store {
            true => self.path.clone(),
            false => directory.to_path_buf(), // `path` may be a link to it, such as `current`
        };
        let generation = served.generation().map(|id| (id, directory.to_path_buf()));
        Origin { path, options: self.options.clone(), generation }
    }

    /// Whether this process opened it. False in a forked child.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.forks == fork::count()
    }

    /// Runs the lookup of one key: without the GIL if it is a system call. In memory it takes less time than the release
    /// of the GIL, which other threads would then take in turns.
    #[inline]
    pub(crate) fn look_up<T: Send>(
        &self,
        py: Python<'_>,
        lookup: impl FnOnce() -> sharddb::Result<T> + Send,
    ) -> PyResult<T> {
        match self.is_positioned {
            true => py.detach(lookup),
            false => lookup(),
        }
        .or_raise(py)
    }

    /// Returns the generation that reads use.
    #[inline]
    pub(crate) fn snapshot(&self) -> Snapshot {
        match &self.pinned {
            Some(pinned) => pinned.clone(),
            None => self.db.snapshot(),
        }
    }

    /// Returns a state that stays with the generation that is served now.
    pub(crate) fn pinned(&self) -> Open {
        let served = self.snapshot();
        Open::of(served.directory().to_path_buf(), self.options.clone(), self.db.clone(), Some(served))
    }

    /// Returns a state that serves the current generation of the store; `None` if this one does.
    pub(crate) fn unpinned(&self) -> Option<Open> {
        self.pinned.as_ref()?;
        Some(Open::of(self.path.clone(), self.options.clone(), self.db.clone(), None))
    }

    /// Replaces the watch of the database. Ends the previous one.
    pub(crate) fn set_watch(&self, py: Python<'_>, watch: Option<Watch>) {
        let previous = std::mem::replace(&mut *self.watch.lock().unwrap_or_else(PoisonError::into_inner), watch);
        py.detach(|| drop(previous)); // waits for its thread
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

#[cold]
fn gone(py: Python<'_>, id: GenerationId, directory: &Path) -> PyErr {
    let message = format!("expected {id}, found it removed: open the store again, which serves its current generation");
    errors::new(py, ErrorKind::GenerationGone, &message, Some(directory), None)
}

/// What another process needs to open the same generation.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// A store, or the directory of a generation or of shards. Absolute.
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    /// The generation that was served, and its directory; `None` for a bare directory.
    pub(crate) generation: Option<(GenerationId, PathBuf)>,
}

/// Opens a database on disk. `sharddb.open` has the documentation of the arguments, and the promise that the mode "mmap"
/// requires of the caller.
#[pyfunction]
#[pyo3(signature = (path, *, mode = "auto", verify = "once", pointer = None, spec = None))]
fn open(
    py: Python<'_>,
    path: PathBuf,
    mode: &str,
    verify: &str,
    pointer: Option<String>,
    spec: Option<&Bound<'_, PyAny>>,
) -> PyResult<Py<Database>> {
    let spec = spec.map(spec::parse).transpose()?;
    let options = Options { mode: Mode::parse(mode)?, verify: Verify::parse(verify)?, pointer, spec };
    let path = std::path::absolute(path)?;
    Database::new(py, Open::new(py, path, options)?)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(open, module)?)
}
