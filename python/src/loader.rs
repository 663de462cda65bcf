//! `Loader`, which builds and publishes a generation of a store.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sharddb::write::Candidate;
use sharddb::{BulkLoader, ErrorKind, OnDuplicate, Store, Updater};

use crate::errors::{self, OrRaise};
use crate::exclusive::Exclusive;
use crate::job::Job;
use crate::options::{Build, read_update};
use crate::pairs::{Sink, Writer};
use crate::progress::Bar;
use crate::published::{Published, check_late_signals};

/// Builds and publishes a generation of a store from pairs in any order and any amount.
///
/// ``store``: the directory; created if nothing or an empty directory is there. ``mode``: what becomes of the keys that the
/// store has: "replace" publishes the pairs of this loader alone, "update" adds them to the others, where a later pair of a key
/// replaces an earlier one. Without it, a store that has keys raises ``InvalidInput``. An update keeps how the store is written,
/// and takes of the following options only ``memory``, ``threads``, ``temp_dir``, ``allow_empty`` and ``durable``.
///
/// ``spec``: the JSON object "sharding" as a dict or text, or a ``Plan``; default: planned for ``profile`` ("local", "remote" or
/// "cloudvolume"; default "local") and ``max_shard_bytes``, with ``data_encoding`` and ``index_encoding`` ("raw" or "gzip").
/// ``memory``: bytes, or a text such as "1GiB"; at least 16 MiB. Pairs that do not fit are spilled to ``temp_dir``
/// (default: the store). ``on_duplicate``: "error", "first", "last", or a function ``f(key: int, values: list[bytes]) ->
/// bytes``, which is called once for each key, also for one with a single value, in the thread that calls ``finish``.
/// ``info``: a dict or JSON text whose members are kept, except for "sharding"; ``sharding_at``: the JSON pointer of the
/// object in it that describes the shards, such as "/scales/0". ``threads``: default one per core. ``ordered``: whether to
/// write a key file, for fast ranges. ``checks``: whether to store checksums. ``value_alignment``: 1, 4, 8, 16, 64 or 4096
/// bytes. ``allow_sparse``: whether shard indexes may take more bytes than the data. ``allow_empty``: whether a loader
/// without pairs may replace those of the store. ``durable``: whether files are synced.
///
/// As a context manager it finishes at the end of the block, or publishes nothing if the block raises. After any error of a
/// method the loader is closed: nothing was published, and its temporary files are removed. A loader that is dropped leaves
/// no files. It is used by one thread at a time, and not in a forked child.
///
/// Raises ``Locked`` if the store has another writer, ``InvalidInput``, ``InvalidSpec``, ``TypeError``, ``ValueError``,
/// ``Io``.
#[pyclass(frozen, generic, module = "sharddb")]
pub(crate) struct Loader {
    open: Exclusive<Open>,
    published: OnceLock<sharddb::Published>,
}

struct Open {
    writer: Writer<Target>,
    job: Job,
}

/// Where the pairs go.
enum Target {
    Build(BulkLoader),
    Update(Updater),
}

impl Sink for Target {
    #[inline]
    fn put(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> sharddb::Result<()> {
        match self {
            Target::Build(loader) => loader.put(key, preamble, value),
            Target::Update(updater) => Sink::put(updater, key, preamble, value),
        }
    }
}

impl Target {
    fn finish(self) -> sharddb::Result<Candidate> {
        match self {
            Target::Build(loader) => loader.finish_unpublished(),
            Target::Update(updater) => updater.finish_unpublished().map(|(candidate, _)| candidate),
        }
    }
}

#[pymethods]
impl Loader {
    #[new]
    #[pyo3(
        signature = (store, spec=None, *, mode=None, **options),
        text_signature = "(store, spec=None, *, mode=None, profile=None, memory=\"1GiB\", on_duplicate=\"error\", info=None, \
            sharding_at=None, max_shard_bytes=None, data_encoding=None, index_encoding=None, value_alignment=1, threads=None, \
            temp_dir=None, ordered=False, checks=True, allow_sparse=False, allow_empty=False, durable=True)"
    )]
    fn new<'py>(
        py: Python<'py>,
        store: PathBuf,
        spec: Option<&Bound<'py, PyAny>>,
        mode: Option<&str>,
        options: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Loader> {
        let path = std::path::absolute(store)?;
        let there = py.detach(|| Replaced::of(&path));
        let is_update = match mode {
            None => there.refuse(py, &path).map(|()| false)?,
            Some("replace") => false,
            Some("update") => true,
            Some(other) => {
                let message = format!("expected mode to be \"replace\" or \"update\", found {other:?}");
                return Err(PyValueError::new_err(message));
            }
        };
        if is_update {
            refuse_of_build(spec, options.as_ref())?;
        }
        let (target, job) = if is_update && there.is_generation {
            let (options, job, _) = read_update("Loader", options.as_ref())?;
            (Target::Update(py.detach(|| options.open(&path)).or_raise(py)?), job)
        } else {
            let Build { mut options, job, .. } = Build::with_spec(py, "Loader", spec, options, &["progress"])?;
            if is_update {
                options.on_duplicate(OnDuplicate::KeepLast);
            }
            (Target::Build(py.detach(|| options.create(&path)).or_raise(py)?), job)
        };
        let open = Exclusive::new("loader", path, Open { writer: Writer::new(target), job });
        Ok(Loader { open, published: OnceLock::new() })
    }

    /// Adds a pair: an int from 0 to 2**64 - 1 and its value, ``bytes``, a ``ValueWithPreamble`` or any contiguous buffer.
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
    /// column "key" of integers, a column "value" of binary or strings and perhaps such a column "preamble", or with two
    /// columns.
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

    /// Sorts, writes, syncs and publishes the pairs. The new generation is current when this returns. An update of a store that
    /// has all these pairs publishes nothing and returns ``None``.
    ///
    /// ``progress``: a bar such as ``tqdm(unit="B", unit_scale=True)``. Each phase sets its attribute ``total`` and calls
    /// ``set_description(phase)``, ``reset()`` and then ``update(n)`` with bytes. It is checked before the work begins, and nothing
    /// is published if it raises.
    ///
    /// Runs without the GIL. A KeyboardInterrupt ends it within 50 ms, unless it waits for the disk, and nothing is
    /// published; once ``current`` is being swapped, it completes first, and ``published`` is set. Raises ``DuplicateKey``,
    /// ``Empty`` if there are no pairs and the store has some, without ``allow_empty``; ``InvalidSpec``, ``TooLarge``, ``Io``,
    /// and what the merge function or the bar raises.
    #[pyo3(signature = (progress=None))]
    fn finish<'py>(&self, py: Python<'py>, progress: Option<Bound<'py, PyAny>>) -> PyResult<Option<Published>> {
        let Open { writer, job } = self.open.take(py)?;
        let bar = Bar::new(progress)?;
        let target = writer.finish(py)?;
        let published = job.run(py, bar, |job| job.publish(target.finish()?))?;
        check_late_signals(py, self.published.get_or_init(|| published.clone()))?;
        Ok(Published::if_new(published))
    }

    /// Closes the loader without publishing, and removes its temporary files. Does nothing after ``finish``.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.open.close(py)
    }

    /// What ``finish`` has published; ``None`` before that, and if nothing changed.
    #[getter]
    fn published(&self) -> Option<Published> {
        self.published.get().cloned().and_then(Published::if_new)
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

/// What a build would replace.
struct Replaced {
    is_generation: bool,
    /// The keys and the generation that has them, for a message; `None` without keys.
    found: Option<String>,
}

impl Replaced {
    /// Reads what the store has. What is no store has nothing, and is refused when the work begins.
    fn of(path: &Path) -> Replaced {
        let current = Store::open(path).and_then(|store| Ok((store.current_or_newest()?, store)));
        let Ok((Some(current), store)) = current else { return Replaced { is_generation: false, found: None } };
        let found = match store.totals(current).map(|totals| totals.keys) {
            Ok(0) => None,
            Ok(1) => Some(format!("1 key in {current}")),
            Ok(keys) => Some(format!("{keys} keys in {current}")),
            Err(_) => Some(format!("{current}, which cannot be read (Store.rollback goes back to the one before)")),
        };
        Replaced { is_generation: true, found }
    }

    /// Errors: `InvalidInput` if there are keys, which a build without a mode must not replace.
    fn refuse(&self, py: Python<'_>, path: &Path) -> PyResult<()> {
        let Some(found) = &self.found else { return Ok(()) };
        let message = format!(
            "the store has {found}: expected mode=\"update\", which adds pairs to those, or mode=\"replace\", which publishes the \
             pairs of this loader alone"
        );
        Err(errors::new(py, ErrorKind::InvalidInput, &message, Some(path), None))
    }
}

/// Refuses the options of a build in an update, which keeps what they are about.
///
/// Errors: `TypeError`.
fn refuse_of_build(spec: Option<&Bound<'_, PyAny>>, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    const NAMES: &[&str] = &["memory", "threads", "temp_dir", "allow_empty", "durable"];
    let mut given = Vec::new();
    for (name, value) in options.into_iter().flatten() {
        if !value.is_none() {
            given.push(name.extract::<String>()?);
        }
    }
    given.extend(spec.map(|_| "spec".to_string()));
    match given.into_iter().find(|name| !NAMES.contains(&&**name)) {
        None => Ok(()),
        Some(name) => Err(PyTypeError::new_err(format!(
            "expected no {name} with mode=\"update\", which keeps how the store is written: leave it out, or build the store first"
        ))),
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Loader>()
}
