//! `PythonUpload`: the parts of an object, which one call of the method `put` of a store takes from an iterator.

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, PutPayload, PutResult, Result, UploadPart};
use pyo3::exceptions::PyInterruptedError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::python_client::{PythonClient, put_result};

/// Number of parts that the store sends at a time.
const PARTS_IN_FLIGHT: usize = 4;

/// An upload whose parts are taken in order.
pub(crate) struct PythonUpload {
    client: PythonClient,
    path: Path,
    /// The call of `put`, from the first part on.
    call: Option<Call>,
}

struct Call {
    /// If it is dropped before the end of the object, the call ends with an exception.
    parts: Sender<Part>,
    /// Why the call has failed.
    failure: Arc<Mutex<Option<Error>>>,
    /// `None` if it has failed.
    result: JoinHandle<Option<PutResult>>,
}

/// The next bytes of the object, which are empty at its end; whether they were taken.
type Part = (Bytes, oneshot::Sender<()>);

impl PythonUpload {
    pub(crate) fn new(client: PythonClient, path: Path) -> PythonUpload {
        PythonUpload { client, path, call: None }
    }

    /// Passes on bytes, and waits until they are taken. Errors: that of the call, if it ends before.
    fn send(&mut self, bytes: Bytes) -> UploadPart {
        let (client, path) = (&self.client, &self.path);
        let call = self.call.get_or_insert_with(|| Call::begin(client, path, bytes.len()));
        let (taken, acknowledged) = oneshot::channel();
        let _ = call.parts.send((bytes, taken)); // drops `taken` if the call has ended
        let failure = call.failure.clone();
        Box::pin(async move { acknowledged.await.map_err(|_| reason(&failure)) })
    }

    /// Waits for the end of the call, which gets no more parts.
    async fn result(&mut self) -> Result<PutResult> {
        let Some(Call { parts, failure, result }) = self.call.take() else { return Err(ended("it had no parts")) };
        drop(parts);
        result.await.ok().flatten().ok_or_else(|| reason(&failure))
    }
}

impl Call {
    fn begin(client: &PythonClient, path: &Path, part_bytes: usize) -> Call {
        let (parts, arriving) = channel();
        let (arriving, failure) = (Arc::new(Mutex::new(Some(arriving))), Arc::new(Mutex::new(None)));
        let (client, path, failed) = (client.clone(), path.clone(), failure.clone());
        let result = tokio::spawn(async move {
            let (name, parts) = (path.to_string(), Parts { arriving: arriving.clone() });
            let put = move |store: &Bound<'_, PyAny>| {
                let keywords = PyDict::new(store.py());
                keywords.set_item("use_multipart", true)?;
                keywords.set_item("chunk_size", part_bytes)?;
                keywords.set_item("max_concurrency", PARTS_IN_FLIGHT)?;
                put_result(&store.call_method("put", (name, parts), Some(&keywords))?)
            };
            let result = client.call(&path, put).await.map_err(|error| *lock(&failed) = Some(error)).ok();
            lock(&arriving).take(); // parts that were not taken fail, also if a traceback keeps the iterator
            result
        });
        Call { parts, failure, result }
    }
}

#[async_trait]
impl MultipartUpload for PythonUpload {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        self.send(part.into())
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.send(Bytes::new()).await?;
        self.result().await
    }

    async fn abort(&mut self) -> Result<()> {
        let _ = self.result().await; // the exception that `Parts` raises
        Ok(())
    }
}

impl fmt::Debug for PythonUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PythonUpload").field("path", &self.path).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns why a call has ended too early.
fn reason(failure: &Mutex<Option<Error>>) -> Error {
    lock(failure).take().unwrap_or_else(|| ended("it ended before it had all parts"))
}

fn ended(why: &str) -> Error {
    Error::Generic { store: "Python", source: format!("the upload failed: {why}").into() }
}

/// The parts of an object as an iterator of `bytes`.
#[pyclass(frozen, module = "sharddb._sharddb")]
struct Parts {
    arriving: Arc<Mutex<Option<Receiver<Part>>>>,
}

#[pymethods]
impl Parts {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Returns the next part. Raises `InterruptedError` if the upload was aborted.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let next = || lock(&self.arriving).as_ref().and_then(|arriving| arriving.recv().ok());
        let Some((bytes, taken)) = py.detach(next) else {
            return Err(PyInterruptedError::new_err("the upload was aborted"));
        };
        let _ = taken.send(()); // nobody waits if the operation was dropped
        Ok((!bytes.is_empty()).then(|| PyBytes::new(py, &bytes)))
    }
}
