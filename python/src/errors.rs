//! From the errors of the library to the exceptions of `sharddb.errors`, one class per kind.

use std::error::Error as _;
use std::path::Path;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use sharddb::{Error, ErrorKind, ErrorLocation};

/// Converts the error of a library call into an exception.
pub(crate) trait OrRaise<T> {
    /// Returns the value, or the exception for the error.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for sharddb::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| to_py(py, &error))
    }
}

/// Returns the exception for an error: the class of its kind, the message, and the place as attributes. Its cause is the
/// exception of an object store, if there is one.
#[cold]
pub(crate) fn to_py(py: Python<'_>, error: &Error) -> PyErr {
    let place = Place { path: error.path(), key: error.key(), location: error.location() };
    let advice = match error.kind() {
        ErrorKind::Empty => "; allow_empty=True publishes an empty generation",
        ErrorKind::DuplicateKey => "; on_duplicate=\"first\", \"last\" or a function says what becomes of its values",
        _ => "",
    };
    let message = format!("{error}{advice}");
    let exception = exception(py, error.kind(), &message, &place, error.raw_os_error());
    if let Some(cause) = error.source().and_then(|source| source.downcast_ref::<PyErr>()) {
        exception.set_cause(py, Some(cause.clone_ref(py)));
    }
    exception
}

/// Returns an exception of a kind about an argument or state of this package, with the path or key that it refers to.
#[cold]
pub(crate) fn new(py: Python<'_>, kind: ErrorKind, message: &str, path: Option<&Path>, key: Option<u64>) -> PyErr {
    exception(py, kind, message, &Place { path, key, location: ErrorLocation::default() }, None)
}

struct Place<'a> {
    path: Option<&'a Path>,
    key: Option<u64>,
    location: ErrorLocation,
}

fn exception(py: Python<'_>, kind: ErrorKind, message: &str, place: &Place<'_>, errno: Option<i32>) -> PyErr {
    let create = || {
        let attributes = PyDict::new(py);
        attributes.set_item("path", place.path.map(Path::as_os_str))?;
        attributes.set_item("key", place.key)?;
        attributes.set_item("shard", place.location.shard.map(|shard| shard.get()))?;
        attributes.set_item("minishard", place.location.minishard.map(|minishard| minishard.get()))?;
        attributes.set_item("offset", place.location.offset)?;
        let class = match (kind, place.key) {
            (ErrorKind::NotFound, Some(_)) => "absent-key",
            (kind, _) => kind.as_str(),
        };
        if let ("io" | "not-found", Some(errno)) = (class, errno) {
            attributes.set_item("errno", errno)?;
        }
        classes(py)?.as_any().get_item(class)?.call((message,), Some(&attributes))
    };
    match create() {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// Returns the classes by kind.
fn classes(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    CLASSES.import(py, "sharddb.errors", "_CLASSES")
}
