//! `RemoteOperation`: a call of a remote reader as a state machine that Python code drives. No I/O is done here. Its `poll`
//! is in `remote_outcome`.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sharddb_remote::{
    Body, Failure, Operation, RemoteLocation, RemoteReader, RemoteScan, RemoteValue, Request, RequestId, Response,
    Timing, Wanted,
};

use crate::bytes_like;

/// What an operation returns.
#[expect(clippy::large_enum_variant, reason = "one per call")]
pub(crate) enum Outcome {
    Opened(RemoteReader),
    Value(Option<RemoteValue>),
    Values(Vec<sharddb::Result<Option<RemoteValue>>>),
    Location(Option<RemoteLocation>),
    Places(Vec<Option<RemoteLocation>>),
    Flag(bool),
    Keys(Vec<u64>),
    /// `None` at the end of a scan.
    Page(Option<Page>),
}

/// The next pairs of a scan.
pub(crate) struct Page {
    pub(crate) pairs: Vec<(u64, RemoteValue)>,
    /// The rest of the scan.
    pub(crate) rest: RemoteScan,
    pub(crate) has_preambles: bool,
}

/// Operations of the library with any result. A request has the number of its operation among those that run at a time.
pub(crate) trait Steps: Send {
    fn poll(&mut self) -> Poll<sharddb::Result<Outcome>>;
    fn next_request(&mut self) -> Option<((usize, RequestId), Request)>;
    fn answer(&mut self, id: (usize, RequestId), answer: Result<Response, Failure>);
}

/// An operation, and what its result is for Python.
struct Call<T> {
    operation: Operation<'static, T>,
    outcome: fn(T) -> Outcome,
}

impl<T> Steps for Call<T> {
    fn poll(&mut self) -> Poll<sharddb::Result<Outcome>> {
        self.operation.poll().map_ok(self.outcome)
    }

    fn next_request(&mut self) -> Option<((usize, RequestId), Request)> {
        self.operation.next_request().map(|(id, request)| ((0, id), request))
    }

    fn answer(&mut self, (_, id): (usize, RequestId), answer: Result<Response, Failure>) {
        self.operation.answer(id, answer);
    }
}

/// Several operations of the library, one after the other.
struct Calls {
    future: Pin<Box<dyn Future<Output = sharddb::Result<Outcome>> + Send>>,
    mailbox: Arc<Mailbox>,
}

impl Steps for Calls {
    fn poll(&mut self) -> Poll<sharddb::Result<Outcome>> {
        self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) // only an answer wakes it
    }

    fn next_request(&mut self) -> Option<((usize, RequestId), Request)> {
        self.mailbox.mail().requests.pop_front().map(|(id, request)| ((0, id), request))
    }

    fn answer(&mut self, (_, id): (usize, RequestId), answer: Result<Response, Failure>) {
        self.mailbox.mail().answers.push((id, answer));
    }
}

/// The requests and answers of the operation that a future runs now.
#[derive(Default)]
pub(crate) struct Mailbox(Mutex<Mail>);

#[derive(Default)]
struct Mail {
    requests: VecDeque<(RequestId, Request)>,
    answers: Vec<(RequestId, Result<Response, Failure>)>,
}

impl Mailbox {
    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an operation to its end. Its requests go into the mailbox, and the answers come from there.
    pub(crate) async fn run<T>(&self, mut operation: Operation<'_, T>) -> sharddb::Result<T> {
        poll_fn(|_| {
            let answers = std::mem::take(&mut self.mail().answers);
            for (id, answer) in answers {
                operation.answer(id, answer);
            }
            let polled = operation.poll();
            let requests = std::iter::from_fn(|| operation.next_request());
            self.mail().requests.extend(requests);
            polled
        })
        .await
    }
}

/// A call that needs reads from an object store. `sharddb._transport` performs them.
///
/// Drive it from one thread: `poll`; perform the requests that `requests` returns, in any order, and give each answer to
/// `answer` or `fail`; then `poll` again. `cancel` ends it.
///
/// Nothing waits for the GIL with a lock of the library, so a thread may wait for such a lock with the GIL.
#[pyclass(frozen, module = "sharddb._sharddb")]
pub(crate) struct RemoteOperation {
    /// `None` after the end.
    steps: Mutex<Option<Box<dyn Steps>>>,
}

impl RemoteOperation {
    pub(crate) fn new<T: 'static>(operation: Operation<'static, T>, outcome: fn(T) -> Outcome) -> RemoteOperation {
        RemoteOperation { steps: Mutex::new(Some(Box::new(Call { operation, outcome }))) }
    }

    /// Creates an operation from several of the library.
    pub(crate) fn of_steps(steps: impl Steps + 'static) -> RemoteOperation {
        RemoteOperation { steps: Mutex::new(Some(Box::new(steps))) }
    }

    /// Creates an operation from a function that makes its future, which runs operations of the library in the mailbox.
    pub(crate) fn of_future<F>(start: impl FnOnce(Arc<Mailbox>) -> F) -> RemoteOperation
    where
        F: Future<Output = sharddb::Result<Outcome>> + Send + 'static,
    {
        let mailbox = Arc::new(Mailbox::default());
        let future = Box::pin(start(mailbox.clone()));
        RemoteOperation { steps: Mutex::new(Some(Box::new(Calls { future, mailbox }))) }
    }

    fn steps(&self) -> MutexGuard<'_, Option<Box<dyn Steps>>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Advances the operation, and drops it at its end; `None` if it had ended before.
    pub(crate) fn advance(&self) -> Option<Poll<sharddb::Result<Outcome>>> {
        let mut steps = self.steps();
        let polled = steps.as_mut()?.poll();
        if polled.is_ready() {
            *steps = None;
        }
        Some(polled)
    }

    fn give(&self, request: &RemoteRequest, answer: Result<Response, Failure>) {
        if let Some(steps) = self.steps().as_mut() {
            steps.answer(request.id.clone(), answer);
        }
    }
}

#[pymethods]
impl RemoteOperation {
    /// Takes the requests that are to be performed now.
    fn requests(&self) -> Vec<RemoteRequest> {
        let mut steps = self.steps();
        let next = || steps.as_mut()?.next_request().map(|(id, request)| RemoteRequest { id, request });
        std::iter::from_fn(next).collect()
    }

    /// Gives the bytes that a request has read, the ETag and length of the object where they are known, and how long the
    /// head of the response and its body took, in seconds.
    ///
    /// Raises `TypeError` or `ValueError` for a body that is not bytes, and `ValueError` for a negative time.
    #[pyo3(signature = (request, body, etag = None, object_len = None, times = None))]
    fn answer(
        &self,
        request: &RemoteRequest,
        body: &Bound<'_, PyAny>,
        etag: Option<String>,
        object_len: Option<u64>,
        times: Option<(f64, f64)>,
    ) -> PyResult<()> {
        let timing = times.map(timing).transpose()?;
        let mut bytes = Vec::new();
        bytes_like::append(body, &mut bytes)?;
        let found = u64::try_from(bytes.len())?;
        let answer = match request.request.wanted {
            Wanted::Whole { most } if found > most => Err(Failure::too_large(most, found)),
            _ => {
                let mut response = Response::new(Body::new(bytes), etag, object_len);
                response.timing = timing;
                Ok(response)
            }
        };
        self.give(request, answer);
        Ok(())
    }

    /// Refuses an object that is larger than `request.most`, and was not read.
    fn refuse(&self, request: &RemoteRequest, object_len: u64) {
        let most = request.most().unwrap_or(u64::MAX);
        self.give(request, Err(Failure::too_large(most, object_len)));
    }

    /// Gives the reason why a request failed: "not-found", "replaced", "unchanged", or "no-permission" or "other" with the
    /// exception.
    ///
    /// Raises `ValueError` for another reason.
    fn fail(&self, py: Python<'_>, request: &RemoteRequest, reason: &str, error: &Bound<'_, PyAny>) -> PyResult<()> {
        let raised = || Raised::new(py, PyErr::from_value(error.clone()));
        let failure = match reason {
            "not-found" => Failure::NotFound,
            "replaced" => Failure::Replaced,
            "unchanged" => Failure::Unchanged,
            "no-permission" => Failure::io("read", io::Error::new(io::ErrorKind::PermissionDenied, raised())),
            "other" => Failure::io("read", io::Error::other(raised())),
            other => return Err(PyValueError::new_err(format!("expected a reason of a failure, found {other:?}"))),
        };
        self.give(request, Err(failure));
        Ok(())
    }

    /// Ends the operation.
    fn cancel(&self, py: Python<'_>) {
        py.detach(|| {
            let steps = self.steps().take();
            drop(steps);
        });
    }
}

/// Errors: `ValueError` for a time that is negative or not finite.
fn timing((wait, transfer): (f64, f64)) -> PyResult<Timing> {
    let time = |seconds| Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()));
    Ok(Timing { wait: time(wait)?, transfer: time(transfer)? })
}

/// What performs a request: an object of `sharddb._transport`.
type Read = Arc<Mutex<Option<Py<PyAny>>>>;

/// A read of an object or of a range of it.
#[pyclass(frozen, module = "sharddb._sharddb")]
pub(crate) struct RemoteRequest {
    id: (usize, RequestId),
    request: Request,
}

impl RemoteRequest {
    /// Returns what operations that make the same request at the same time share. It does not outlive them, so that no cycle
    /// of references goes through it.
    fn shared(&self) -> Read {
        self.id.1.shared(Read::default)
    }
}

#[pymethods]
impl RemoteRequest {
    /// What performs the request, for all operations that make it at the same time; `None` before it is set.
    #[getter]
    fn read(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let shared = self.shared();
        let read = shared.lock().unwrap_or_else(PoisonError::into_inner);
        read.as_ref().map(|read| read.clone_ref(py))
    }

    #[setter]
    fn set_read(&self, read: Py<PyAny>) {
        let shared = self.shared();
        let before = shared.lock().unwrap_or_else(PoisonError::into_inner).replace(read);
        drop(before); // without the lock: it may run Python code
    }

    /// The object: names separated by `/`, relative to the root of the data set.
    #[getter]
    fn object(&self) -> &str {
        &self.request.object
    }

    /// The first byte and the end; `None` for the whole object.
    #[getter]
    fn range(&self) -> Option<(u64, u64)> {
        match &self.request.wanted {
            Wanted::Bytes(range) => Some((range.start, range.end)),
            _ => None,
        }
    }

    /// The maximum length of the object; `None` for a range.
    #[getter]
    fn most(&self) -> Option<u64> {
        match self.request.wanted {
            Wanted::Whole { most } => Some(most),
            _ => None,
        }
    }

    /// The ETag that the object must have, or `None`.
    #[getter]
    fn if_match(&self) -> Option<&str> {
        self.request.if_match.as_deref()
    }

    /// The ETag that the object must not have, or `None`.
    #[getter]
    fn if_none_match(&self) -> Option<&str> {
        self.request.if_none_match.as_deref()
    }
}

/// An exception of the store, as the source of an error of the library. [`to_py`](crate::errors::to_py) makes it the
/// cause.
struct Raised {
    /// Its class, and the first line of its text.
    text: String,
    exception: PyErr,
}

impl Raised {
    fn new(py: Python<'_>, exception: PyErr) -> Raised {
        let class = exception.get_type(py).name().map_or_else(|_| "an exception".to_string(), |name| name.to_string());
        let text = exception.value(py).str().map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned());
        let text = match text.lines().next() {
            Some(line) if !line.trim().is_empty() => format!("{class}: {line}"),
            _ => class,
        };
        Raised { text, exception }
    }
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Raised {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.exception)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RemoteOperation>()?;
    module.add_class::<RemoteRequest>()
}
