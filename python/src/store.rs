//! Stores: the generations of a directory, and which one is current.

use std::path::PathBuf;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use sharddb::{GenerationId, Progress, StoreWriter, WriterOptions};

use crate::errors::{self, OrRaise};
use crate::job::Job;
use crate::pickle::pickle_fields;
use crate::progress::Bar;
use crate::published::check_late_signals;
use crate::task;

/// A directory of generations, one of which is current.
///
/// ``Store(path)`` opens a store; ``create=True`` creates an empty one if nothing or an empty directory is there. Every
/// method that changes the store takes its writer lock for the duration of the call. Generations are ints, or the names of
/// their directories.
///
/// Raises ``NotFound`` if there is no store, ``InvalidInput`` if the directory is something else, ``Io``.
#[pyclass(frozen, module = "sharddb")]
pub(crate) struct Store(sharddb::Store);

/// A generation of a store.
#[pyclass(frozen, eq, hash, get_all, module = "sharddb")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Generation {
    /// Its number.
    id: u64,
    /// Whether it has a manifest, which is written last.
    is_complete: bool,
    /// Whether ``current`` names it.
    is_current: bool,
}

/// The totals of a generation, as its manifest states them.
#[pyclass(frozen, eq, hash, get_all, module = "sharddb")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct GenerationTotals {
    /// The number of keys.
    keys: u64,
    /// The stored bytes of all values.
    value_bytes: u64,
    /// The number of shard files.
    shards: u64,
}

/// The result of ``Store.gc``.
#[pyclass(frozen, get_all, module = "sharddb")]
pub(crate) struct GcReport {
    /// The generations that were removed, ascending.
    removed: Vec<u64>,
    /// The generations that were kept because a reader has them open, ascending.
    in_use: Vec<u64>,
    /// The generations that could not be removed, ascending, and the messages of the errors.
    failed: Vec<(u64, String)>,
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (path, *, create=false))]
    fn new(py: Python<'_>, path: PathBuf, create: bool) -> PyResult<Store> {
        let open = || if create { sharddb::Store::create(&path) } else { sharddb::Store::open(&path) };
        py.detach(open).or_raise(py).map(Store)
    }

    /// The absolute path of the directory.
    #[getter]
    fn path(&self) -> PathBuf {
        self.0.path().to_path_buf()
    }

    /// The number of the current generation; ``None`` if nothing was published.
    ///
    /// Raises ``Corrupt`` if ``current`` is anything but the name of one generation, ``Io``.
    #[getter]
    fn current(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        Ok(py.detach(|| self.0.current()).or_raise(py)?.map(GenerationId::get))
    }

    /// Returns all generations, ascending.
    ///
    /// Raises ``Corrupt`` if ``current`` is damaged, ``Io``.
    fn generations(&self, py: Python<'_>) -> PyResult<Vec<Generation>> {
        let stored = py.detach(|| self.0.generations()).or_raise(py)?;
        let generation = |stored: sharddb::store::StoredGeneration| Generation {
            id: stored.id.get(),
            is_complete: stored.is_complete,
            is_current: stored.is_current,
        };
        Ok(stored.into_iter().map(generation).collect())
    }

    /// Returns the numbers of the generations that were current, oldest first. The last is the current one.
    ///
    /// Raises ``Corrupt`` if ``history`` or ``current`` is damaged, ``Io``.
    fn history(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        py.detach(|| self.0.history()).or_raise(py).map(numbers)
    }

    /// Returns the totals of a generation.
    ///
    /// Raises ``NotFound`` if there is no such complete generation, ``Corrupt``, ``Io``.
    fn totals(&self, py: Python<'_>, generation: &Bound<'_, PyAny>) -> PyResult<GenerationTotals> {
        let id = generation_id(generation)?;
        let totals = py.detach(|| self.0.totals(id)).or_raise(py)?;
        Ok(GenerationTotals { keys: totals.keys, value_bytes: totals.value_bytes, shards: totals.shards })
    }

    /// Returns the path of the directory of a generation, which need not exist. ``sharddb.open`` opens it.
    fn generation_path(&self, generation: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
        Ok(self.0.generation_path(generation_id(generation)?))
    }

    /// Publishes a copy of a generation that was built elsewhere: a directory with a ``manifest.json``. Returns its
    /// number.
    ///
    /// Verifies every checksum. ``progress``: a bar as for ``Loader.finish``, in bytes.
    ///
    /// Runs without the GIL. A KeyboardInterrupt ends the copy within 50 ms, and nothing is published; once ``current`` is being
    /// swapped, it waits for the return. Raises ``InvalidInput``, ``Corrupt``, ``Locked``, ``Empty`` for a generation without keys
    /// if the store has some, without ``allow_empty``; ``Io``, and what the bar raises.
    #[pyo3(signature = (directory, progress=None, *, allow_empty=false))]
    fn publish(
        &self,
        py: Python<'_>,
        directory: PathBuf,
        progress: Option<Bound<'_, PyAny>>,
        allow_empty: bool,
    ) -> PyResult<u64> {
        let adopt = |job: &Job| {
            let mut options = WriterOptions::new();
            options.progress(&job.progress).allow_empty(allow_empty);
            job.publish(self.0.writer_with(&options)?.adopt_unpublished(&directory)?)
        };
        let published = Job::new(None).run(py, Bar::new(progress)?, adopt)?;
        check_late_signals(py, &published)?;
        Ok(published.generation.get())
    }

    /// Makes another generation current: ``to``, or the previous one of the history. Returns its number.
    ///
    /// Raises ``NotFound`` if there is none, ``InvalidInput`` if it is not complete, ``Corrupt``, ``Locked``, ``Io``.
    #[pyo3(signature = (to=None))]
    fn rollback(&self, py: Python<'_>, to: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
        let to = to.map(generation_id).transpose()?;
        self.write(py, |writer| writer.rollback(to)).map(GenerationId::get)
    }

    /// Removes old generations: all but the ``keep`` newest ones of the history, of which the current one is the newest.
    ///
    /// ``keep``: at least 1. Generations that were rolled back are not in the history, and are removed; those that a reader has
    /// open are kept. A KeyboardInterrupt ends it after the generation that is being removed. Raises ``Corrupt``, ``Locked``, ``Io``.
    fn gc(&self, py: Python<'_>, keep: usize) -> PyResult<GcReport> {
        if keep == 0 {
            return Err(PyValueError::new_err(
                "the current generation is always kept and counts: expected at least 1, found 0",
            ));
        }
        let gc = |progress: &Progress| self.0.writer_with(WriterOptions::new().progress(progress))?.gc(keep);
        let report = task::run(py, Bar::none(), gc)?;
        let failed = report.failed.iter().map(|failure| (failure.id.get(), failure.error.to_string())).collect();
        Ok(GcReport { removed: numbers(report.removed), in_use: numbers(report.in_use), failed })
    }

    /// Removes one generation that is not current.
    ///
    /// Raises ``NotFound`` if it does not exist, ``InvalidInput`` if it is the current one, ``Locked`` if a reader has it
    /// open or the store has another writer, ``Io``.
    fn discard(&self, py: Python<'_>, generation: &Bound<'_, PyAny>) -> PyResult<()> {
        let id = generation_id(generation)?;
        self.write(py, |writer| writer.discard(id))
    }

    fn __reduce__<'py>(this: &Bound<'py, Self>) -> (Bound<'py, PyType>, (PathBuf,)) {
        (this.get_type(), (this.get().path(),))
    }

    fn __repr__(&self) -> String {
        format!("Store({:?})", self.0.path().to_string_lossy())
    }
}

impl Store {
    /// Runs an operation under the writer lock, without the GIL.
    fn write<T: Send>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&StoreWriter) -> sharddb::Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| operation(&self.0.writer()?)).or_raise(py)
    }
}

pickle_fields!(Generation, _generation, { id: u64, is_complete: bool, is_current: bool });
pickle_fields!(GenerationTotals, _generation_totals, { keys: u64, value_bytes: u64, shards: u64 });
pickle_fields!(GcReport, _gc_report, { removed: Vec<u64>, in_use: Vec<u64>, failed: Vec<(u64, String)> });

#[pymethods]
impl Generation {
    fn __repr__(&self) -> String {
        let Generation { id, is_complete, is_current } = *self;
        let [is_complete, is_current] = [is_complete, is_current].map(|is| if is { "True" } else { "False" });
        format!("Generation(id={id}, is_complete={is_complete}, is_current={is_current})")
    }
}

#[pymethods]
impl GenerationTotals {
    fn __repr__(&self) -> String {
        let GenerationTotals { keys, value_bytes, shards } = *self;
        format!("GenerationTotals(keys={keys}, value_bytes={value_bytes}, shards={shards})")
    }
}

#[pymethods]
impl GcReport {
    fn __repr__(&self) -> String {
        let GcReport { removed, in_use, failed } = self;
        format!("GcReport(removed={removed:?}, in_use={in_use:?}, failed={failed:?})")
    }
}

fn numbers(ids: Vec<GenerationId>) -> Vec<u64> {
    ids.into_iter().map(GenerationId::get).collect()
}

/// Returns the generation that an int or the name of a directory states.
fn generation_id(value: &Bound<'_, PyAny>) -> PyResult<GenerationId> {
    let py = value.py();
    if let Ok(name) = value.cast::<PyString>() {
        return name.to_cow()?.parse().or_raise(py);
    }
    match value.extract::<u64>() {
        Ok(number) => GenerationId::new(number).or_raise(py),
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            let found = value.get_type().name()?.to_string();
            Err(PyTypeError::new_err(format!("expected a generation as an int or a name, found {found}")))
        }
        Err(_) => {
            let message = format!("expected a generation number from 0, found {value}");
            Err(errors::new(py, sharddb::ErrorKind::InvalidInput, &message, None, None))
        }
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Store>()?;
    module.add_class::<Generation>()?;
    module.add_class::<GenerationTotals>()?;
    module.add_class::<GcReport>()?;
    module.add_function(wrap_pyfunction!(_generation, module)?)?;
    module.add_function(wrap_pyfunction!(_generation_totals, module)?)?;
    module.add_function(wrap_pyfunction!(_gc_report, module)?)
}
