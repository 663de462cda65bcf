//! `Reader`: what a database and a snapshot have in common. Further methods are in the files of their nouns.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sharddb::{ErrorKind, Snapshot};

use crate::errors;
use crate::keys::Key;
use crate::open::{Open, Origin};
use crate::value::Value;

/// A database or a snapshot of one: a read-only mapping of `int` from 0 to 2**64 - 1 to `bytes`.
///
/// All methods may be called from several threads. After a fork, the first use in the child opens the same generation
/// again, with a lease of the child, or raises `GenerationGone`.
#[pyclass(frozen, subclass, module = "sharddb")]
pub(crate) struct Reader {
    /// `None` after `close`.
    open: ArcSwapOption<Open>,
}

impl Reader {
    pub(crate) fn new(open: Open) -> Reader {
        Reader { open: ArcSwapOption::from_pointee(open) }
    }

    /// Returns the state, which is opened again at the first use in a forked child.
    #[inline]
    pub(crate) fn open(&self, py: Python<'_>) -> PyResult<Arc<Open>> {
        match self.open.load_full() {
            Some(open) if open.is_own() => Ok(open),
            Some(open) => self.open_again(py, &open),
            None => Err(closed(py)),
        }
    }

    /// Returns the generation that reads use now.
    #[inline]
    pub(crate) fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        match &*self.open.load() {
            Some(open) if open.is_own() => Ok(open.snapshot()),
            _ => self.open(py).map(|open| open.snapshot()),
        }
    }

    /// Returns the value of a key, or `None` if the key is absent.
    #[inline]
    fn value<'py>(&self, py: Python<'py>, key: u64) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let open = self.open(py)?;
        let snapshot = open.snapshot();
        let value = open.look_up(py, &snapshot, || snapshot.get(key))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    /// Replaces the state, and returns it.
    pub(crate) fn replace(&self, open: Open) -> Arc<Open> {
        let open = Arc::new(open);
        self.open.store(Some(open.clone()));
        open
    }

    /// Opens the path of the database again: the current generation, if it is a store. A forked child needs this if the
    /// generation of its parent was removed.
    pub(crate) fn open_current(&self, py: Python<'_>) -> PyResult<Arc<Open>> {
        let open = self.open.load_full().ok_or_else(|| closed(py))?;
        Open::again(py, Origin { generation: None, ..open.origin() }).map(|open| self.replace(open))
    }

    /// Opens the generation that the parent served. The copy of the parent's state is dropped, with its watch.
    #[cold]
    fn open_again(&self, py: Python<'_>, parent: &Open) -> PyResult<Arc<Open>> {
        Open::again(py, parent.origin()).map(|open| self.replace(open))
    }
}

#[cold]
fn closed(py: Python<'_>) -> PyErr {
    errors::new(py, ErrorKind::InvalidInput, "expected an open database, found a closed one", None, None)
}

#[pymethods]
impl Reader {
    /// Returns the value of a key. Raises `KeyError` if the key is absent.
    fn __getitem__<'py>(&self, py: Python<'py>, key: Key) -> PyResult<Bound<'py, PyBytes>> {
        self.value(py, key.0)?.ok_or_else(|| PyKeyError::new_err(key.0))
    }

    /// Returns the value of a key, or `default` if the key is absent.
    #[pyo3(signature = (key, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Key,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.value(py, key.0)?.map(Bound::into_any).or(default))
    }

    /// Returns the value of a key as an object with a read-only buffer. Raises `KeyError` if the key is absent.
    ///
    /// No copy if the database is mapped or in memory and the value is stored raw. It pins the shard until it is dropped.
    #[pyo3(signature = (key, /))]
    fn view(&self, py: Python<'_>, key: Key) -> PyResult<Value> {
        let open = self.open(py)?;
        let snapshot = open.snapshot();
        match open.look_up(py, &snapshot, || snapshot.get_owned(key.0))? {
            Some(value) => Ok(Value(value)),
            None => Err(PyKeyError::new_err(key.0)),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: Key) -> PyResult<bool> {
        let open = self.open(py)?;
        let snapshot = open.snapshot();
        open.look_up(py, &snapshot, || snapshot.contains(key.0))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let keys = self.open(py)?.len(py)?;
        Ok(usize::try_from(keys)?)
    }

    /// The absolute path that was opened.
    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<PathBuf> {
        Ok(self.open(py)?.path.clone())
    }

    /// Closes the database. Later calls of methods raise `InvalidInput`; values that were returned stay valid.
    fn close(&self, py: Python<'_>) {
        let open = self.open.swap(None);
        py.detach(|| drop(open)); // unmaps
    }

    fn __repr__(this: &Bound<'_, Self>) -> PyResult<String> {
        let class = this.get_type().name()?;
        let Some(open) = this.get().open.load_full() else { return Ok(format!("<sharddb.{class}, closed>")) };
        let generation = open.snapshot().generation().map_or_else(String::new, |id| format!(" ({id})"));
        Ok(format!("<sharddb.{class} {:?}{generation}>", open.path))
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Reader>()
}
