//! `Database`: a reader that follows its store, and the local part of `sharddb.open`.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sharddb::ErrorKind;

use crate::errors::{self, OrRaise};
use crate::open::{Mode, Open, Options, Verify};
use crate::reader::Reader;
use crate::spec;

/// An open database: a store, one generation, or a directory of shards. Returned by `sharddb.open`.
///
/// A database that was opened by the path of a store serves its current generation: the one that was current when it was
/// opened or at the last `refresh`.
#[pyclass(frozen, extends = Reader, module = "sharddb")]
pub(crate) struct Database;

impl Database {
    pub(crate) fn new(py: Python<'_>, open: Open) -> PyResult<Py<Database>> {
        Py::new(py, PyClassInitializer::from(Reader::new(open)).add_subclass(Database))
    }
}

#[pymethods]
impl Database {
    /// Switches to the current generation of the store, newer or older. Returns its number, or `None` if it is served
    /// already, or if the database stays with one generation.
    ///
    /// Reads in other threads never wait. Snapshots and views stay with their generation. After an exception (those of
    /// `sharddb.open`) the old generation is served.
    fn refresh(this: PyRef<'_, Self>, py: Python<'_>) -> PyResult<Option<u64>> {
        let reader = this.as_super();
        let Ok(open) = reader.open(py) else {
            // the generation of a forked child's parent was removed
            return Ok(reader.open_current(py)?.snapshot().generation().map(|id| id.get()));
        };
        let served = |snapshot: &sharddb::Snapshot| (snapshot.generation(), snapshot.directory().to_path_buf());
        let before = served(&open.snapshot()); // not the snapshot, so that the refresh closes what nobody else reads
        match open.following() {
            Some(db) => open.refresh(py, db)?,
            None => drop(reader.open_current(py)?),
        }
        let after = served(&reader.snapshot(py)?);
        Ok(after.0.map(|id| id.get()).filter(|_| before != after))
    }

    /// Refreshes the database on a thread, now and every `seconds`. `None` ends that.
    ///
    /// It ends when the database is closed, and in a forked child. `stats` has the age of the data and the last error.
    ///
    /// Raises `ValueError` for a time that is not positive, and `InvalidInput` for a database that stays with one
    /// generation, because it was not opened by the path of a store.
    #[pyo3(signature = (seconds, /))]
    fn watch(this: PyRef<'_, Self>, py: Python<'_>, seconds: Option<f64>) -> PyResult<()> {
        let interval = seconds.map(interval).transpose()?;
        let reader = this.as_super();
        let mut open = reader.open(py)?;
        if interval.is_some() && open.following().is_none() {
            open = reader.open_current(py)?;
        }
        let watch = match (interval, open.following()) {
            (None, _) => None,
            (Some(interval), Some(db)) => Some(db.watch(interval).or_raise(py)?),
            (Some(_), None) => {
                let message = "a database that was opened again stays with one generation";
                return Err(errors::new(py, ErrorKind::Internal, message, None, None));
            }
        };
        open.set_watch(py, watch);
        Ok(())
    }
}

fn interval(seconds: f64) -> PyResult<Duration> {
    let interval = Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds > 0.0);
    interval.ok_or_else(|| PyValueError::new_err(format!("expected a positive number of seconds, found {seconds}")))
}

/// Opens a database on disk. `sharddb.open` has the documentation of the arguments, and the promise that the mode "mmap"
/// requires of the caller.
#[pyfunction]
#[pyo3(
    signature = (path, *, mode = None, verify = None, pointer = None, spec = None),
    text_signature = "(path, *, mode='auto', verify='once', pointer=None, spec=None)"
)]
fn open(
    py: Python<'_>,
    path: PathBuf,
    mode: Option<&Bound<'_, PyAny>>,
    verify: Option<&Bound<'_, PyAny>>,
    pointer: Option<String>,
    spec: Option<&Bound<'_, PyAny>>,
) -> PyResult<Py<Database>> {
    let spec = spec.map(spec::parse).transpose()?;
    let mode = mode.map_or(Ok(Mode::Auto), Mode::of)?;
    let verify = verify.map_or(Ok(Verify::Once), Verify::of)?;
    if path.as_os_str().is_empty() {
        return Err(errors::new(
            py,
            ErrorKind::NotFound,
            "expected the path of a database, found an empty path",
            None,
            None,
        ));
    }
    let options = Options { mode, verify, pointer, spec };
    let path = std::path::absolute(path)?;
    Database::new(py, Open::new(py, path, options)?)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Database>()?;
    module.add_function(wrap_pyfunction!(open, module)?)
}
