//! The state of an open database, and how it is opened.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyFileNotFoundError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use sharddb::read::Watch;
use sharddb::spec::Encoding;
use sharddb::{ErrorKind, GenerationId, OpenOptions, Progress, ShardDb, ShardingSpec, Snapshot, VerifyReads};

use crate::errors::{self, OrRaise};
use crate::progress::Bar;
use crate::{buffer, file_system, fork, task};

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
                    other => Err(PyValueError::new_err($name::expected(&format!("{other:?}")))),
                }
            }

            /// Errors: `TypeError` for what is no text; `ValueError` for another text.
            pub(crate) fn of(value: &Bound<'_, PyAny>) -> PyResult<$name> {
                match value.cast::<PyString>() {
                    Ok(text) => $name::parse(&text.to_cow()?),
                    Err(_) => Err(PyTypeError::new_err($name::expected(&value.get_type().name()?.to_string()))),
                }
            }

            fn expected(found: &str) -> String {
                let names = [$(concat!("\"", $text, "\"")),+].join(", ");
                format!("expected {} to be one of {names}, found {found}", $argument)
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
            options.sharding_at(pointer);
        }
        if let Some(spec) = self.spec {
            options.spec(spec);
        }
        match self.mode {
            Mode::Memory => options.load(path),
            Mode::Mmap => buffer::open_mapped(&options, path),
            Mode::Pread => options.open(path),
            Mode::Auto if !file_system::is_local(path) => options.open(path),
            Mode::Auto => {
                // the generation or the shards may be links to another file system; no shard is mapped before its first use
                let db = buffer::open_mapped(&options, path)?;
                if file_system::is_local(db.snapshot().shards_directory()) { Ok(db) } else { options.open(path) }
            }
        }
    }

    /// Opens a database without the GIL. Loading into memory ends at a signal.
    fn open_detached(&self, py: Python<'_>, path: &Path) -> PyResult<ShardDb> {
        match self.mode {
            Mode::Memory => {
                let (options, path) = (self.clone(), path.to_path_buf());
                task::run_or_leave(py, move || options.open(&path))
            }
            _ => py.detach(|| self.open(path)).or_raise(py),
        }
    }

    /// Whether a lookup in a snapshot is a system call.
    fn is_positioned(&self, path: &Path, snapshot: &Snapshot) -> bool {
        match self.mode {
            Mode::Auto => ![path, snapshot.shards_directory()].into_iter().all(file_system::is_local),
            mode => mode == Mode::Pread,
        }
    }
}

/// What reads use.
enum Served {
    /// The generation to which the database has switched last.
    Following(ShardDb),
    /// One generation, and nothing of its database: that of a snapshot, or after a fork or in another process.
    Pinned { snapshot: Snapshot, since: Instant },
}

/// An open database, or a snapshot of one.
pub(crate) struct Open {
    /// Absolute.
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    served: Served,
    /// Value of [`fork::count`] when it was opened.
    forks: u64,
    /// Whether a lookup is a system call.
    is_positioned: bool,
    /// The number of keys of a data set without a manifest.
    counted: OnceLock<u64>,
    /// Locked only while the GIL is held, so never during a fork.
    watch: Mutex<Option<Watch>>,
}

impl Served {
    fn pinned(snapshot: Snapshot) -> Served {
        Served::Pinned { snapshot, since: Instant::now() }
    }

    #[inline]
    fn snapshot(&self) -> Snapshot {
        match self {
            Served::Following(db) => db.snapshot(),
            Served::Pinned { snapshot, .. } => snapshot.clone(),
        }
    }
}

/// The counters of a database; see `sharddb.Stats`.
pub(crate) struct DatabaseStats {
    pub(crate) open_generations: usize,
    pub(crate) swaps: u64,
    pub(crate) age: Duration,
    pub(crate) failures: u64,
    pub(crate) last_error: Option<String>,
}

impl Open {
    /// Opens the database at `path`, which is absolute.
    pub(crate) fn new(py: Python<'_>, path: PathBuf, options: Options) -> PyResult<Open> {
        let db = options.open_detached(py, &path)?;
        Ok(Open::of(path, options, Served::Following(db)))
    }

    fn of(path: PathBuf, options: Options, served: Served) -> Open {
        let (forks, is_positioned) = (fork::count(), options.is_positioned(&path, &served.snapshot()));
        Open { path, options, served, forks, is_positioned, counted: OnceLock::new(), watch: Mutex::default() }
    }

    /// Opens the database again, in another process, so that it serves the same generation.
    ///
    /// Errors: `GenerationGone` if the generation was removed.
    pub(crate) fn again(py: Python<'_>, origin: Origin) -> PyResult<Open> {
        let Origin { path, options, generation } = origin;
        let Some((id, directory)) = generation else { return Open::new(py, path, options) };
        let open = |path: &Path| {
            options.open_detached(py, path).map_err(|error| {
                let is_not_found = error.is_instance_of::<PyFileNotFoundError>(py);
                if is_not_found && directory.parent().is_some_and(|it| it.metadata().is_ok_and(|it| it.is_dir())) {
                    gone(py, id, &directory)
                } else {
                    error
                }
            })
        };
        // only what is served is opened: in the mode "memory" it is loaded, and the current generation may be damaged
        let is_current = path == directory || path.join("current").canonicalize().is_ok_and(|path| path == directory);
        let mut db = open(if is_current { &path } else { &directory })?;
        if is_current && db.snapshot().generation() == Some(id) {
            return Ok(Open::of(path, options, Served::Following(db)));
        }
        if is_current {
            db = open(&directory)?; // another generation has become current meanwhile
        }
        Ok(Open::of(path, options, Served::pinned(db.snapshot())))
    }

    /// Returns what another process needs to open the same generation.
    pub(crate) fn origin(&self) -> Origin {
        let served = self.snapshot();
        let directory = served.directory();
        let is_of_store = self.path.canonicalize().is_ok_and(|path| directory.parent() == Some(&path));
        // `path` may be a link to it, such as `current`
        let path = if is_of_store { self.path.clone() } else { directory.to_path_buf() };
        let generation = served.generation().map(|id| (id, directory.to_path_buf()));
        Origin { path, options: self.options.clone(), generation }
    }

    /// Whether this process opened it. False in a forked child.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.forks == fork::count()
    }

    /// Runs the lookup of one key in a snapshot: without the GIL if it is a system call or decodes the value. A lookup of a
    /// raw value in memory takes less time than the release of the GIL, which other threads would then take in turns.
    #[inline]
    pub(crate) fn look_up<T: Send>(
        &self,
        py: Python<'_>,
        snapshot: &Snapshot,
        lookup: impl FnOnce() -> sharddb::Result<T> + Send,
    ) -> PyResult<T> {
        if self.is_positioned || snapshot.spec().data_encoding() != Encoding::Raw {
            py.detach(lookup)
        } else {
            lookup()
        }
        .or_raise(py)
    }

    /// Returns the generation that reads use.
    #[inline]
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.served.snapshot()
    }

    /// Returns a state that stays with the generation that is served now.
    pub(crate) fn pinned(&self) -> Open {
        let served = self.snapshot();
        Open::of(served.directory().to_path_buf(), self.options.clone(), Served::pinned(served))
    }

    /// Returns the database that can be refreshed; `None` if this state stays with a generation.
    pub(crate) fn following(&self) -> Option<&ShardDb> {
        match &self.served {
            Served::Following(db) => Some(db),
            Served::Pinned { .. } => None,
        }
    }

    /// Returns the counters of the database; those of one that was opened with the snapshot, if this state is one.
    pub(crate) fn database_stats(&self) -> DatabaseStats {
        match &self.served {
            Served::Following(db) => {
                let stats = db.stats();
                DatabaseStats {
                    open_generations: stats.open_generations,
                    swaps: stats.swaps,
                    age: stats.age,
                    failures: stats.failures,
                    last_error: stats.last_error.map(|last| last.error.to_string()),
                }
            }
            Served::Pinned { since, .. } => {
                DatabaseStats { open_generations: 1, swaps: 0, age: since.elapsed(), failures: 0, last_error: None }
            }
        }
    }

    /// Refreshes the database without the GIL. A signal ends the call while a generation is loaded into memory; it may be
    /// served later, once it is loaded.
    pub(crate) fn refresh(&self, py: Python<'_>, db: &ShardDb) -> PyResult<()> {
        match self.options.mode {
            Mode::Memory => {
                let db = db.clone();
                task::run_or_leave(py, move || db.refresh()).map(drop)
            }
            _ => py.detach(|| db.refresh()).or_raise(py).map(drop),
        }
    }

    /// Replaces the watch of the database. Ends the previous one.
    pub(crate) fn set_watch(&self, py: Python<'_>, watch: Option<Watch>) {
        let previous = std::mem::replace(&mut *self.watch.lock().unwrap_or_else(PoisonError::into_inner), watch);
        py.detach(|| drop(previous)); // waits for its thread
    }

    /// Returns the number of keys: that of the manifest or, without one, the number of those in the indexes.
    pub(crate) fn len(&self, py: Python<'_>) -> PyResult<u64> {
        let snapshot = self.snapshot();
        if let Some(keys) = snapshot.key_count().or(self.counted.get().copied()) {
            return Ok(keys);
        }
        let keys = task::run(py, Bar::none(), |progress| count(&snapshot, progress))?;
        Ok(*self.counted.get_or_init(|| keys)) // such a data set is not refreshed
    }
}

/// Counts the keys in the indexes, until it is cancelled.
fn count(snapshot: &Snapshot, progress: &Progress) -> sharddb::Result<u64> {
    let shards = snapshot.shards().take_while(|_| !progress.is_cancelled());
    shards.map(|shard| shard?.count()).sum()
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
