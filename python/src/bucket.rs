//! Buckets: publishing a generation to an object store of the caller, downloading one, and verifying one.

use sharddb_remote::internal::{pull_if, push_if};
use std::fmt::Display;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::{Either, select};
use pyo3::prelude::*;
use sharddb::Error;
use sharddb_remote::{Bucket, BucketVerifyLevel, BucketVerifyOptions, BucketVerifyReport, PullOptions, PushOptions};

use crate::errors::{self, OrRaise};
use crate::job::Job;
use crate::pickle::pickle_fields;
use crate::progress::Bar;
use crate::published::check_signals_after;
use crate::python_client::PythonClient;
use crate::python_store::PythonStore;
use crate::task::CHECK_EVERY;

/// A store, the name of the place for messages, by default those of the store and the prefix, and the prefix of its objects.
type Place<'py> = (Bound<'py, PyAny>, String, String);

/// What `push` has done. If the current generation of the bucket was the same, nothing was published.
#[pyclass(frozen, eq, hash, get_all, module = "sharddb")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Pushed {
    /// The name of the generation in the bucket.
    generation: String,
    /// The same if it was published by this call; ``None`` if nothing changed.
    published: Option<String>,
    /// The number of keys.
    keys: u64,
    /// The number of keys of the generation that was current before; ``None`` if there was none, or it cannot be read.
    keys_before: Option<u64>,
    /// The number of objects of the generation.
    objects: u64,
    /// Their bytes.
    bytes: u64,
    /// The number of objects that the bucket had before: those of an earlier attempt, or all if nothing was published.
    skipped: u64,
}

pickle_fields!(Pushed, _pushed, {
    generation: String,
    published: Option<String>,
    keys: u64,
    keys_before: Option<u64>,
    objects: u64,
    bytes: u64,
    skipped: u64,
});

#[pymethods]
impl Pushed {
    fn __repr__(&self) -> String {
        let Pushed { generation, published, keys, keys_before, objects, bytes, skipped } = self;
        let published = or_none(published.as_ref().map(|name| format!("'{name}'")));
        format!(
            "Pushed(generation='{generation}', published={published}, keys={keys}, keys_before={}, objects={objects}, \
             bytes={bytes}, skipped={skipped})",
            or_none(*keys_before)
        )
    }
}

/// What `pull` has done. If the current generation of the local store was the same, nothing was published.
#[pyclass(frozen, eq, hash, get_all, module = "sharddb")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Pulled {
    /// The number of the local generation, which is current.
    generation: u64,
    /// The same if it was published by this call; ``None`` if nothing changed.
    published: Option<u64>,
    /// The name of the generation in the bucket.
    pulled: String,
    /// The number of objects that were downloaded, without `info` and the manifest.
    downloaded: u64,
    /// Their bytes.
    bytes: u64,
    /// The number of files that an earlier attempt had downloaded.
    resumed: u64,
    /// The number of shards that a local generation had.
    shared: u64,
}

pickle_fields!(Pulled, _pulled, {
    generation: u64,
    published: Option<u64>,
    pulled: String,
    downloaded: u64,
    bytes: u64,
    resumed: u64,
    shared: u64,
});

#[pymethods]
impl Pulled {
    fn __repr__(&self) -> String {
        let Pulled { generation, published, pulled, downloaded, bytes, resumed, shared } = self;
        format!(
            "Pulled(generation={generation}, published={}, pulled='{pulled}', downloaded={downloaded}, bytes={bytes}, \
             resumed={resumed}, shared={shared})",
            or_none(*published)
        )
    }
}

fn or_none(value: Option<impl Display>) -> String {
    value.map_or_else(|| "None".to_string(), |value| value.to_string())
}

/// The implementation of `sharddb.push`.
#[pyfunction]
fn _push(
    py: Python<'_>,
    local: PathBuf,
    place: Place<'_>,
    journal: Option<PathBuf>,
    progress: Option<Bound<'_, PyAny>>,
    allow_empty: bool,
) -> PyResult<Pushed> {
    let bucket = bucket(py, place, &["put", "get", "list", "delete"])?;
    let job = Job::new(None);
    let mut options = PushOptions::new();
    options.progress(&job.progress).allow_empty(allow_empty);
    if let Some(directory) = journal {
        options.journal_dir(directory);
    }
    let push = |job: &Job| run(job, push_if(&bucket, local, &options, || job.may_publish()));
    let pushed = job.run(py, Bar::new(progress)?, push)?;
    let published = pushed.is_new.then(|| pushed.generation.clone());
    check_signals_after(py, published.as_ref())?;
    let sharddb_remote::Pushed { generation, keys, keys_before, objects, bytes, skipped, .. } = pushed;
    Ok(Pushed { generation, published, keys, keys_before, objects, bytes, skipped })
}

/// The implementation of `sharddb.pull`.
#[pyfunction]
fn _pull(
    py: Python<'_>,
    place: Place<'_>,
    local: PathBuf,
    generation: Option<String>,
    progress: Option<Bound<'_, PyAny>>,
    allow_empty: bool,
) -> PyResult<Pulled> {
    let bucket = bucket(py, place, &["get"])?;
    let job = Job::new(None);
    let mut options = PullOptions::new();
    options.progress(&job.progress).allow_empty(allow_empty);
    if let Some(generation) = generation {
        options.generation(generation);
    }
    let pull = |job: &Job| run(job, pull_if(&bucket, local, &options, || job.may_publish()));
    let pulled = job.run(py, Bar::new(progress)?, pull)?;
    check_signals_after(py, pulled.is_new.then_some(&pulled.id))?;
    let sharddb_remote::Pulled { id, generation, is_new, downloaded, bytes, resumed, shared, .. } = pulled;
    let published = is_new.then_some(id.get());
    Ok(Pulled { generation: id.get(), published, pulled: generation, downloaded, bytes, resumed, shared })
}

/// Compares a generation with its manifest: the lengths of its objects, or all bytes. Returns these bytes, and the findings as
/// exceptions.
#[pyfunction]
fn _verify_in_bucket(
    py: Python<'_>,
    place: Place<'_>,
    generation: String,
    reads_data: bool,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<(u64, Vec<PyErr>)> {
    let bucket = bucket(py, place, &["get", "list"])?;
    let job = Job::new(None);
    let level = if reads_data { BucketVerifyLevel::Data } else { BucketVerifyLevel::Lengths };
    let mut options = BucketVerifyOptions::new();
    options.generation(generation).progress(&job.progress);
    let report = job.run(py, Bar::new(progress)?, |job| run(job, bucket.verify_with(level, &options)))?;
    let BucketVerifyReport { bytes, findings, .. } = report;
    Ok((bytes, findings.iter().map(|finding| errors::to_py(py, finding)).collect()))
}

fn bucket(py: Python<'_>, (store, name, prefix): Place<'_>, methods: &[&str]) -> PyResult<Bucket> {
    let store = PythonStore(PythonClient::new(&store, methods)?);
    let bucket = Bucket::new(Arc::new(store), &prefix).or_raise(py)?;
    Ok(if name.is_empty() { bucket } else { bucket.named(name) })
}

/// Runs an operation of a bucket on this thread until it ends or is cancelled. A call of the store that is under way then ends on
/// its thread, unobserved.
fn run<T>(job: &Job, operation: impl Future<Output = sharddb::Result<T>>) -> sharddb::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| Error::io("start", "a runtime".as_ref(), error))?;
    let cancelled = async {
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            job.progress.check()?;
        }
    };
    let both = async {
        match select(std::pin::pin!(operation), std::pin::pin!(cancelled)).await {
            Either::Left((result, _)) | Either::Right((result, _)) => result,
        }
    };
    let result = runtime.block_on(both);
    runtime.shutdown_background();
    result
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Pushed>()?;
    module.add_class::<Pulled>()?;
    module.add_function(wrap_pyfunction!(_pushed, module)?)?;
    module.add_function(wrap_pyfunction!(_pulled, module)?)?;
    module.add_function(wrap_pyfunction!(_push, module)?)?;
    module.add_function(wrap_pyfunction!(_pull, module)?)?;
    module.add_function(wrap_pyfunction!(_verify_in_bucket, module)?)
}
