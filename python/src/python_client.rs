//! `PythonClient`: an object store of the caller, whose synchronous methods of obspec are called on threads.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use object_store::path::Path;
use object_store::{Error, PutResult, Result};
use pyo3::exceptions::{PyFileNotFoundError, PyPermissionError, PyTypeError};
use pyo3::prelude::*;
use tokio::task::spawn_blocking;

/// The calls of stores that have begun and not ended, also those that nobody waits for any more.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// One of [`CALLS`], until it is dropped.
struct UnderWay;

impl UnderWay {
    fn new() -> UnderWay {
        CALLS.fetch_add(1, Ordering::SeqCst);
        UnderWay
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let one_less = |calls: usize| calls.checked_sub(1); // not below 0 in a child that a call has forked
        let _ = CALLS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
    }
}

/// Forgets the calls of the parent, in a forked child: their threads are not there.
pub(crate) fn forget_calls() {
    CALLS.store(0, Ordering::SeqCst);
}

#[pyfunction]
fn _calls_under_way() -> usize {
    CALLS.load(Ordering::SeqCst)
}

/// An object store of Python. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PythonClient {
    store: Arc<Py<PyAny>>,
    /// What the store calls itself, for messages: its class, bucket and prefix, for example.
    name: String,
}

impl PythonClient {
    /// Errors: `TypeError` for an object without one of these methods.
    pub(crate) fn new(store: &Bound<'_, PyAny>, methods: &[&str]) -> PyResult<PythonClient> {
        let class = store.get_type().name()?.to_string();
        let is_missing = |name: &&&str| !store.getattr(**name).is_ok_and(|method| method.is_callable());
        match methods.iter().find(is_missing) {
            Some(missing) => Err(PyTypeError::new_err(format!(
                "expected store to be an object store with the methods {} of obspec, such as those of obstore, found {class} \
                 without {missing}",
                methods.join(", ")
            ))),
            None => Ok(PythonClient { store: Arc::new(store.clone().unbind()), name: name_of(store).unwrap_or(class) }),
        }
    }

    /// Calls a function with the store on a thread.
    ///
    /// Errors: what it raises, for the object at `path`.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        path: &Path,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T> + Send + 'static,
    ) -> Result<T> {
        let (store, path) = (self.store.clone(), path.to_string());
        let under_way = UnderWay::new();
        let called = spawn_blocking(move || {
            let _ends_after_the_call = under_way;
            Python::attach(|py| call(store.bind(py)).map_err(|error| error_of(py, error, path)))
        });
        called.await.map_err(|error| Error::Generic { store: "Python", source: error.into() })?
    }
}

impl fmt::Display for PythonClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for PythonClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PythonClient({})", self.name)
    }
}

/// Returns the text of a store of obstore, which has its bucket, unless it is an address in memory. That of another class may have
/// secrets.
fn name_of(store: &Bound<'_, PyAny>) -> Option<String> {
    let module = store.get_type().module().ok()?.to_string();
    let text = store.repr().ok()?.to_string();
    (module.starts_with("obstore") && !text.contains(" at 0x")).then_some(text)
}

/// Returns what a store states about an object that it wrote.
pub(crate) fn put_result(result: &Bound<'_, PyAny>) -> PyResult<PutResult> {
    let (e_tag, version) = versions(result)?;
    Ok(PutResult { e_tag, version, extensions: Default::default() })
}

/// Returns the ETag and the version that a store states about an object.
pub(crate) fn versions(stated: &Bound<'_, PyAny>) -> PyResult<(Option<String>, Option<String>)> {
    let member = |name| stated.call_method1("get", (name,))?.extract();
    Ok((member("e_tag")?, member("version")?))
}

/// Returns what an exception of a store says. Stores have their own classes with the names of obspec.
fn error_of(py: Python<'_>, error: PyErr, path: String) -> Error {
    let classes = error.get_type(py).mro();
    let is = |name: &str| {
        classes.iter().any(|class| class.getattr("__name__").is_ok_and(|found| found.eq(name).unwrap_or(false)))
    };
    let is_missing = error.is_instance_of::<PyFileNotFoundError>(py) || is("NotFoundError");
    let is_forbidden = error.is_instance_of::<PyPermissionError>(py) || is("PermissionDeniedError");
    let source = Box::new(error);
    if is_missing {
        Error::NotFound { path, source }
    } else if is_forbidden {
        Error::PermissionDenied { path, source }
    } else if is("UnauthenticatedError") {
        Error::Unauthenticated { path, source }
    } else if is("AlreadyExistsError") {
        Error::AlreadyExists { path, source }
    } else if is("PreconditionError") {
        Error::Precondition { path, source }
    } else if is("NotModifiedError") {
        Error::NotModified { path, source }
    } else if is("NotSupportedError") || is("NotImplementedError") {
        Error::NotSupported { source }
    } else {
        Error::Generic { store: "Python", source }
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_calls_under_way, module)?)
}
