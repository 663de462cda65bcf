//! `Loader`, which builds and publishes a generation of a store.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sharddb::{BulkLoader, ErrorKind};

use crate::errors::{self, OrRaise};
use crate::fork;
use crate::job::Job;
use crate::options::Build;
use crate::pairs::Writer;
use crate::progress::Bar;
use crate::published::Published;

/// Builds and publishes a generation of a store from pairs in any order and any amount.
///
/// ``store``: the directory; created if nothing or an empty directory is there. ``spec``: the JSON object "sharding" as a
/// dict or text, or a ``Plan``; default: planned for ``profile`` ("local", "remote" or "cloudvolume"; default "local") and
/// ``max_shard_bytes``, with ``data_encoding`` and ``index_encoding`` ("raw" or "gzip"). ``memory``: bytes, or a text such
/// as "1GiB"; at least 16 MiB. Pairs that do not fit are spilled to ``temp_dir`` (default: the store). ``on_duplicate``:
/// "error", "first", "last", or a function ``f(key: int, values: list[bytes]) -> bytes``, which is called once for each key,
/// also for one with a single value, in the thread that calls ``finish``. ``info``: a dict or JSON text whose members are
/// kept, except for "sharding"; ``sharding_at``: the JSON pointer of the object in it that describes the shards, such as
/// "/scales/0". ``threads``: default one per core. ``ordered``: whether to write a key file, for fast ranges.
/// ``checks``: whether to store checksums. ``value_alignment``: 1, 8, 16, 64 or 4096 bytes. ``allow_sparse``: whether shard
/// indexes may take more bytes than the data. ``durable``: whether files are synced.
///
/// As a context manager it finishes at the end of the block, or publishes nothing if the block raises. After any error of a
/// method the loader is closed: nothing was published, and its temporary files are removed. A loader that is dropped leaves
/// no files. It is used by one thread at a time, and not in a forked child.
///
/// Raises ``Locked`` if the store has another writer, ``InvalidInput``, ``InvalidSpec``, ``TypeError``, ``ValueError``,
/// ``Io``.
#[pyclass(frozen, module = "sharddb")]
pub(crate) struct Loader {
    path: PathBuf,
    /// Value of [`fork::count`] when it was created.
    forks: u64,
    state: Mutex<State>,
}

enum State {
    Open(Box<Open>),
    Published(sharddb::Published),
    /// After an error or `abort`.
    Closed,
}

struct Open {
    writer: Writer<BulkLoader>,
    job: Job,
}

#[pymethods]
impl Loader {
    #[new]
    #[pyo3(
        signature = (store, spec=None, **options),
        text_signature = "(store, spec=None, *, profile=None, memory=\"1GiB\", on_duplicate=\"error\", info=None, sharding_at=None, \
            max_shard_bytes=None, data_encoding=None, index_encoding=None, value_alignment=1, threads=None, \
            temp_dir=None, ordered=False, checks=True, allow_sparse=False, durable=True)"
    )]
    fn new<'py>(
        py: Python<'py>,
        store: PathBuf,
        spec: Option<&Bound<'py, PyAny>>,
        options: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Loader> {
        let options = options.unwrap_or_else(|| PyDict::new(py));
        options.set_item("spec", spec)?;
        let Build { options, job, .. } = Build::read("Loader", Some(&options))?;
        let path = std::path::absolute(store)?;
        let loader = py.detach(|| options.create(&path)).or_raise(py)?;
        let open = Box::new(Open { writer: Writer::new(loader), job });
        Ok(Loader { path, forks: fork::count(), state: Mutex::new(State::Open(open)) })
    }

    /// Adds a pair: an int from 0 to 2**64 - 1 and its value, ``bytes`` or any contiguous buffer.
    ///
    /// Errors of insertion may be raised by a later call, at the latest by ``finish``.
    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.write(key.py(), |writer| writer.push(key, value))
    }

    /// Adds many pairs.
    ///
    /// ``extend(keys, offsets, data)``: the value of ``keys[i]`` is ``data[offsets[i]:offsets[i + 1]]``. ``keys``: n integers
    /// of any dtype; ``offsets``: n + 1 integers, ascending, such as int64; ``data``: contiguous bytes, such as uint8.
    /// ``extend(pairs)``: a mapping, an iterable of pairs, or an Arrow stream (an object with ``__arrow_c_stream__``) with a
    /// column "key" of integers and a column "value" of binary or strings, or with two columns of these types.
    ///
    /// Arrays and streams are inserted without the GIL and without an object per value. They must not be changed meanwhile.
    /// Raises ``TypeError``, ``ValueError``, ``OverflowError``, what the iterable raises, ``DuplicateKey``, ``Io``.
    #[pyo3(signature = (keys, offsets=None, data=None))]
    fn extend(
        &self,
        keys: &Bound<'_, PyAny>,
        offsets: Option<&Bound<'_, PyAny>>,
        data: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.write(keys.py(), |writer| match (offsets, data) {
            (None, None) => writer.extend(keys),
            (Some(offsets), Some(data)) => writer.extend_ragged(keys, offsets, data),
            _ => Err(pyo3::exceptions::PyTypeError::new_err("expected extend(pairs) or extend(keys, offsets, data)")),
        })
    }

    /// Sorts, writes, syncs and publishes the pairs. The new generation is current when this returns.
    ///
    /// ``progress``: a bar such as ``tqdm(unit="B", unit_scale=True)``. Each phase sets its attribute ``total`` and calls
    /// ``set_description(phase)``, ``reset()`` and then ``update(n)`` with bytes.
    ///
    /// Runs without the GIL. A KeyboardInterrupt ends it within 50 ms, unless it waits for the disk, and nothing is
    /// published; once ``current`` is being swapped, it completes first, and ``published`` is set. Raises ``DuplicateKey``,
    /// ``InvalidSpec``, ``TooLarge``, ``Io``, and what the merge function or the bar raises.
    #[pyo3(signature = (progress=None))]
    fn finish<'py>(&self, py: Python<'py>, progress: Option<Bound<'py, PyAny>>) -> PyResult<Published> {
        let mut state = self.lock(py)?;
        let Open { writer, job } = *self.take(py, &mut state)?;
        let loader = writer.finish(py)?;
        let result = job.run(py, Bar::new(progress), |job| job.publish(loader.finish_unpublished()?));
        if let Some(published) = job.published() {
            *state = State::Published(published.clone());
        }
        result.map(|(published, ())| published.into())
    }

    /// Closes the loader without publishing, and removes its temporary files. Does nothing after ``finish``.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.lock(py)?;
        if let State::Open(_) = *state {
            let open = std::mem::replace(&mut *state, State::Closed);
            py.detach(|| drop(open));
        }
        Ok(())
    }

    /// What ``finish`` has published; ``None`` before that.
    #[getter]
    fn published(&self, py: Python<'_>) -> PyResult<Option<Published>> {
        match &*self.lock(py)? {
            State::Published(published) => Ok(Some(published.clone().into())),
            _ => Ok(None),
        }
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Finishes, or publishes nothing if the block raised.
    fn __exit__(
        &self,
        py: Python<'_>,
        class: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if !class.is_none() {
            return self.abort(py);
        }
        let is_published = matches!(*self.lock(py)?, State::Published(_));
        if is_published { Ok(()) } else { self.finish(py, None).map(drop) }
    }

    /// Shows the merge function to the garbage collector, because it may refer to the loader.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.state.try_lock().as_deref() {
            Ok(State::Open(open)) => open.job.traverse(&visit),
            _ => Ok(()),
        }
    }

    fn __clear__(&self) {
        if let Ok(mut state) = self.state.try_lock()
            && let State::Open(_) = *state
        {
            *state = State::Closed;
        }
    }

    fn __repr__(&self) -> String {
        format!("Loader({:?})", self.path.to_string_lossy())
    }
}

impl Loader {
    /// Calls `write` with the writer. Closes the loader after an error.
    fn write(&self, py: Python<'_>, write: impl FnOnce(&mut Writer<BulkLoader>) -> PyResult<()>) -> PyResult<()> {
        let mut state = self.lock(py)?;
        let State::Open(open) = &mut *state else { return Err(self.closed(py)) };
        let written = write(&mut open.writer);
        if written.is_err() {
            let open = std::mem::replace(&mut *state, State::Closed);
            py.detach(|| drop(open));
        }
        written
    }

    /// Returns the build, and closes the loader.
    fn take(&self, py: Python<'_>, state: &mut State) -> PyResult<Box<Open>> {
        if let State::Published(_) = state {
            return Err(self.closed(py));
        }
        match std::mem::replace(state, State::Closed) {
            State::Open(open) => Ok(open),
            _ => Err(self.closed(py)),
        }
    }

    /// Locks the state. Does not wait, because the other call may be one of this thread.
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, State>> {
        if self.forks != fork::count() {
            return Err(self.invalid(py, "expected the process that created the loader, found a forked child of it"));
        }
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(state)) => Ok(PoisonError::into_inner(state)),
            Err(TryLockError::WouldBlock) => {
                Err(self.invalid(py, "expected one use of the loader at a time, found another that is under way"))
            }
        }
    }

    #[cold]
    fn closed(&self, py: Python<'_>) -> PyErr {
        self.invalid(py, "expected an open loader, found one that has finished or failed: create another one")
    }

    #[cold]
    fn invalid(&self, py: Python<'_>, message: &str) -> PyErr {
        errors::new(py, ErrorKind::InvalidInput, message, Some(&self.path), None)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Loader>()
}
