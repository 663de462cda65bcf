//! `SpillWriter`, the map step of a partitioned build.

use std::path::PathBuf;
use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sharddb::cluster;

use crate::errors::OrRaise;
use crate::exclusive::Exclusive;
use crate::job::Job;
use crate::options::Build;
use crate::pairs::{Sink, Writer};
use crate::part_plan::PartPlan;
use crate::progress::Bar;

/// Writes the pairs of one task of a partitioned build into one file, divided by part.
///
/// ``directory``: normally ``job_directory(store, job)``, which is created; on a file system that all processes share.
/// ``task``: an int from 0 to 2**64 - 1. ``memory``: bytes, or a text such as "256MiB"; at least 16 MiB. Pairs beyond it are
/// written to the file. ``durable``: whether the file is synced.
///
/// As a context manager it finishes at the end of the block, and leaves nothing if the block raises. A task may be repeated
/// or run twice: attempts with equal pairs in equal order write the same file, and the driver takes one receipt per task.
/// Raises ``InvalidInput``, ``Io``, ``TypeError``, ``ValueError``.
#[pyclass(frozen, module = "sharddb")]
pub(crate) struct SpillWriter {
    open: Exclusive<(Writer<cluster::SpillWriter>, Job)>,
    receipt: OnceLock<String>,
}

impl Sink for cluster::SpillWriter {
    fn put(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> sharddb::Result<()> {
        self.insert_with_preamble(key, preamble, value)
    }
}

#[pymethods]
impl SpillWriter {
    #[new]
    #[pyo3(
        signature = (directory, plan, task, **options),
        text_signature = "(directory, plan, task, *, memory='1GiB', durable=True)"
    )]
    fn new(
        py: Python<'_>,
        directory: PathBuf,
        plan: PartPlan,
        task: u64,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<SpillWriter> {
        let Build { options, job, .. } = Build::read_some("SpillWriter", options, &["memory", "durable"])?;
        let path = std::path::absolute(directory)?;
        let spill = py.detach(|| cluster::SpillWriter::create(&path, &plan.0, task, &options)).or_raise(py)?;
        let open = Exclusive::new("spill writer", path, (Writer::new(spill), job));
        Ok(SpillWriter { open, receipt: OnceLock::new() })
    }

    /// Adds a pair: an int from 0 to 2**64 - 1 and its value, ``bytes`` or any contiguous buffer.
    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.open.write(key.py(), |(writer, _)| writer.push(key, value))
    }

    /// Adds many pairs, given like those of ``Loader.extend``.
    #[pyo3(signature = (keys, offsets=None, data=None))]
    fn extend(
        &self,
        keys: &Bound<'_, PyAny>,
        offsets: Option<&Bound<'_, PyAny>>,
        data: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.open.write(keys.py(), |(writer, _)| writer.extend_any(keys, offsets, data))
    }

    /// Completes and syncs the file. Returns its receipt, a line of JSON text, for ``build_part`` and ``publish_parts``.
    /// ``progress``: a bar as for ``Loader.finish``.
    #[pyo3(signature = (progress=None))]
    fn finish(&self, py: Python<'_>, progress: Option<Bound<'_, PyAny>>) -> PyResult<String> {
        let (writer, job) = self.open.take(py)?;
        let bar = Bar::new(progress)?;
        let spill = writer.finish(py)?;
        let receipt = job.run(py, bar, |_| spill.finish())?;
        Ok(self.receipt.get_or_init(|| receipt.to_string()).clone())
    }

    /// The receipt; ``None`` before ``finish``.
    #[getter]
    fn receipt(&self) -> Option<&str> {
        self.receipt.get().map(String::as_str)
    }

    /// Closes the writer and removes its file. Does nothing after ``finish``.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.open.close(py)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Finishes, or leaves nothing if the block raised.
    fn __exit__(
        &self,
        py: Python<'_>,
        class: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        match class.is_none() {
            true if self.receipt.get().is_some() => Ok(()),
            true => self.finish(py, None).map(drop),
            false => self.abort(py),
        }
    }

    fn __repr__(&self) -> String {
        format!("SpillWriter({:?})", self.open.path().to_string_lossy())
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<SpillWriter>()
}
