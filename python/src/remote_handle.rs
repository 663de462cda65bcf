//! `RemoteHandle`: an open remote reader or a snapshot of one, whose calls are operations for Python code to drive.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sharddb::ErrorKind;
use sharddb_remote::{DiskCache, Operation, RemoteOptions, RemoteReader, RemoteSnapshot};

use crate::errors::OrRaise;
use crate::keys::{Key, Keys};
use crate::remote_cursor::RemoteCursor;
use crate::remote_operation::{Outcome, RemoteOperation};
use crate::remote_places::Places;
use crate::{errors, fork, listing, metadata, size, spec};

/// A reader of an object store, as the classes of `sharddb.remote` use it.
#[pyclass(frozen, module = "sharddb._sharddb")]
pub(crate) struct RemoteHandle {
    reader: RemoteReader,
    /// The generation that is served instead of that of the reader.
    pinned: Option<RemoteSnapshot>,
    /// Value of [`fork::count`] when it was opened.
    forks: u64,
}

impl RemoteHandle {
    pub(crate) fn new(reader: RemoteReader) -> RemoteHandle {
        RemoteHandle { reader, pinned: None, forks: fork::count() }
    }

    /// Checks that this process opened it: in a forked child, another thread of the parent may hold a lock for ever.
    ///
    /// Errors: `InvalidInput`.
    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.forks == fork::count() {
            Ok(())
        } else {
            Err(errors::new(
                py,
                ErrorKind::InvalidInput,
                "expected the process that opened the database, found a forked child of it: open it again there, or \
                 start processes with \"spawn\" or \"forkserver\"",
                None,
                None,
            ))
        }
    }

    /// Returns the generation that is served now.
    fn snapshot(&self, py: Python<'_>) -> PyResult<RemoteSnapshot> {
        self.check_process(py)?;
        Ok(self.pinned.clone().unwrap_or_else(|| self.reader.snapshot()))
    }

    /// Creates the operation of a lookup in what is served.
    fn look_up<T: 'static>(
        &self,
        py: Python<'_>,
        current: impl FnOnce(&RemoteReader) -> Operation<'static, T>,
        pinned: impl FnOnce(&RemoteSnapshot) -> Operation<'static, T>,
        outcome: fn(T) -> Outcome,
    ) -> PyResult<RemoteOperation> {
        self.check_process(py)?;
        let operation = match &self.pinned {
            Some(snapshot) => pinned(snapshot),
            None => current(&self.reader),
        };
        Ok(RemoteOperation::new(operation, outcome))
    }
}

#[pymethods]
impl RemoteHandle {
    /// Returns the operation that opens a data set. `name` is its name in messages.
    #[staticmethod]
    #[pyo3(signature = (name, pointer = None, spec = None, cache_bytes = None, disk_cache = None, request_cost = None))]
    fn open(
        py: Python<'_>,
        name: String,
        pointer: Option<String>,
        spec: Option<&Bound<'_, PyAny>>,
        cache_bytes: Option<&Bound<'_, PyAny>>,
        disk_cache: Option<(PathBuf, Bound<'_, PyAny>)>,
        request_cost: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<RemoteOperation> {
        let mut options = RemoteOptions::new();
        options.root_name(name);
        if let Some(pointer) = pointer {
            options.sharding_at(pointer);
        }
        if let Some(spec) = spec {
            options.spec(spec::parse(spec)?);
        }
        if let Some(bytes) = cache_bytes {
            options.cache_bytes(size::parse("cache_bytes", bytes)?);
        }
        match request_cost {
            Some(cost) if cost.eq("measured")? => drop(options.measure_request_cost(true)),
            Some(bytes) => drop(options.request_cost(size::parse("request_cost, or \"measured\",", bytes)?)),
            None => {}
        }
        if let Some((directory, bytes)) = disk_cache {
            let capacity = size::parse("disk_cache_bytes", &bytes)?;
            let cache = py.detach(|| DiskCache::open(directory, capacity)).or_raise(py)?;
            options.block_store(Arc::new(cache));
        }
        Ok(RemoteOperation::new(options.open(), Outcome::Opened))
    }

    /// Returns the operation that reads the value of a key: `bytes` or `None`.
    fn get(&self, py: Python<'_>, key: Key) -> PyResult<RemoteOperation> {
        self.look_up(py, |reader| reader.get(key.0), |snapshot| snapshot.get(key.0), Outcome::Value)
    }

    /// Returns the operation that reads the values of keys: a list of `bytes` or `None`.
    fn get_many(&self, py: Python<'_>, keys: Keys) -> PyResult<RemoteOperation> {
        self.look_up(py, |reader| reader.get_many(&keys.0), |snapshot| snapshot.get_many(&keys.0), Outcome::Values)
    }

    /// Returns the operation that finds out whether there is a key: `bool`.
    fn contains(&self, py: Python<'_>, key: Key) -> PyResult<RemoteOperation> {
        self.look_up(py, |reader| reader.contains(key.0), |snapshot| snapshot.contains(key.0), Outcome::Flag)
    }

    /// Returns the operation that finds the place of a value: `(object, offset, length)` or `None`.
    fn locate(&self, py: Python<'_>, key: Key) -> PyResult<RemoteOperation> {
        self.look_up(py, |reader| reader.locate(key.0), |snapshot| snapshot.locate(key.0), Outcome::Location)
    }

    /// Returns the operation that finds the places of values: `(objects, object_no, offsets, lengths)`.
    fn locate_many(&self, py: Python<'_>, keys: Keys) -> PyResult<RemoteOperation> {
        Ok(RemoteOperation::of_steps(Places::new(self.snapshot(py)?, keys.0)))
    }

    /// Returns the operation that reads all keys, or those of a range in ascending order: a `uint64` array.
    #[pyo3(signature = (range = None, sorted = false))]
    fn keys(&self, py: Python<'_>, range: Option<&Bound<'_, PyAny>>, sorted: bool) -> PyResult<RemoteOperation> {
        let snapshot = self.snapshot(py)?;
        let range = range.map(listing::key_range).transpose()?.or(sorted.then_some(listing::WHOLE));
        Ok(RemoteOperation::of_future(|mailbox| async move {
            let mut all = Vec::new();
            match range {
                Some(range) => {
                    let mut keys = snapshot.key_range(range);
                    while let Some(batch) = mailbox.run(keys.next_batch()).await? {
                        all.extend(batch);
                    }
                }
                None => {
                    let mut keys = snapshot.keys();
                    while let Some(batch) = mailbox.run(keys.next_batch()).await? {
                        all.extend(batch);
                    }
                }
            }
            Ok(Outcome::Keys(all))
        }))
    }

    /// Returns the position before the first pair.
    fn items(&self, py: Python<'_>) -> PyResult<RemoteCursor> {
        let snapshot = self.snapshot(py)?;
        Ok(RemoteCursor::new(snapshot.scan(), snapshot.has_preambles()))
    }

    /// Returns the operation that switches to the current generation: `bool`, whether it is another one.
    fn refresh(&self, py: Python<'_>) -> PyResult<RemoteOperation> {
        self.check_process(py)?;
        Ok(RemoteOperation::new(self.reader.refresh(), Outcome::Flag))
    }

    /// Returns a handle that stays with the generation that is served now.
    fn pinned(&self, py: Python<'_>) -> PyResult<RemoteHandle> {
        let pinned = Some(self.snapshot(py)?);
        Ok(RemoteHandle { reader: self.reader.clone(), pinned, forks: self.forks })
    }

    /// The name of the generation, which is its directory; `None` if there is only one.
    #[getter]
    fn generation(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.snapshot(py)?.generation().map(str::to_string))
    }

    /// The sharding specification, as a dict.
    #[getter]
    fn spec<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        spec::to_dict(py, self.snapshot(py)?.spec())
    }

    /// The file `info`, parsed.
    #[getter]
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let snapshot = self.snapshot(py)?;
        let text = Some(snapshot.info()).filter(|text| !text.is_empty()); // empty where the object is missing
        metadata::info_of_text(py, text, Path::new("info"))
    }

    /// The number of keys; `None` for foreign data.
    #[getter]
    fn key_count(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        Ok(self.snapshot(py)?.key_count())
    }

    /// Whether values may have preambles, which are not read.
    #[getter]
    fn has_preambles(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.snapshot(py)?.has_preambles())
    }

    /// The counters; see `sharddb.RemoteStats`.
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let snapshot = self.snapshot(py)?;
        let totals = self.reader.stats();
        let stats = PyDict::new(py);
        stats.set_item("generation", snapshot.generation())?;
        stats.set_item("keys", snapshot.key_count())?;
        stats.set_item("requests", totals.requests)?;
        stats.set_item("bytes", totals.bytes)?;
        stats.set_item("cache_hits", totals.cache_hits)?;
        stats.set_item("cache_bytes", totals.cache_bytes)?;
        Ok(stats)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RemoteHandle>()
}
