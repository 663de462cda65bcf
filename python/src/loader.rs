//! `Loader`, which builds and publishes a generation of a store.

use std::path::PathBuf;
use std::sync::OnceLock;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sharddb::BulkLoader;

use crate::errors::OrRaise;
use crate::exclusive::Exclusive;
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
    open: Exclusive<Open>,
    published: OnceLock<sharddb::Published>,
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
        let Build { options, job, .. } = Build::with_spec(py, "Loader", spec, options, &["progress"])?;
        let path = std::path::absolute(store)?;
        let loader = py.detach(|| options.create(&path)).or_raise(py)?;
        let open = Exclusive::new("loader", path, Open { writer: Writer::new(loader), job });
        Ok(Loader { open, published: OnceLock::new() })
    }

    /// Adds a pair: an int from 0 to 2**64 - 1 and its value, ``bytes`` or any contiguous buffer.
    ///
    /// Errors of insertion may be raised by a later call, at the latest by ``finish``.
    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.open.write(key.py(), |open| open.writer.push(key, value))
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
        self.open.write(keys.py(), |open| open.writer.extend_any(keys, offsets, data))
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
        let Open { writer, job } = self.open.take(py)?;
        let loader = writer.finish(py)?;
        let result = job.run_and_publish(py, Bar::new(progress), |job| job.publish(loader.finish_unpublished()?));
        if let Some(published) = job.published() {
            self.published.get_or_init(|| published.clone());
        }
        result.map(|(published, ())| published.into())
    }

    /// Closes the loader without publishing, and removes its temporary files. Does nothing after ``finish``.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.open.close(py)
    }

    /// What ``finish`` has published; ``None`` before that.
    #[getter]
    fn published(&self) -> Option<Published> {
        self.published.get().cloned().map(Published::from)
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
        match class.is_none() {
            true if self.published.get().is_some() => Ok(()),
            true => self.finish(py, None).map(drop),
            false => self.abort(py),
        }
    }

    /// Shows the merge function to the garbage collector, because it may refer to the loader.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.open.visit(|open| open.job.traverse(&visit))
    }

    fn __clear__(&self) {
        self.open.clear();
    }

    fn __repr__(&self) -> String {
        format!("Loader({:?})", self.open.path().to_string_lossy())
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Loader>()
}
