//! What the operations of a remote reader return to Python.

use std::task::Poll;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use sharddb::ErrorKind;

use crate::errors::{self, OrRaise};
use crate::remote_cursor::RemoteCursor;
use crate::remote_handle::RemoteHandle;
use crate::remote_operation::{Outcome, Page, RemoteOperation};
use crate::{buffer, preamble, remote_places};

#[pymethods]
impl RemoteOperation {
    /// Advances the operation. Returns a tuple of the result once there is one; before, `None`.
    ///
    /// Raises the errors of the operation, whose cause is an exception of the store, if there is one.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match py.detach(|| self.advance()) {
            Some(Poll::Pending) => Ok(None),
            Some(Poll::Ready(outcome)) => Ok(Some(PyTuple::new(py, [to_python(py, outcome.or_raise(py)?)?])?)),
            None => Err(errors::new(
                py,
                ErrorKind::InvalidInput,
                "expected an operation that is under way, found one that has ended or was cancelled",
                None,
                None,
            )),
        }
    }
}

fn to_python<'py>(py: Python<'py>, outcome: Outcome) -> PyResult<Bound<'py, PyAny>> {
    match outcome {
        Outcome::Opened(reader) => Ok(Bound::new(py, RemoteHandle::new(reader))?.into_any()),
        Outcome::Value(value) => value.map(|value| PyBytes::new(py, &value)).into_bound_py_any(py),
        Outcome::Values(values) => {
            let mut found = Vec::with_capacity(values.len());
            for value in values {
                found.push(value.or_raise(py)?.map(|value| PyBytes::new(py, &value)));
            }
            Ok(PyList::new(py, found)?.into_any())
        }
        Outcome::Location(location) => location
            .map(|location| {
                let len = location.range.end.saturating_sub(location.range.start);
                (location.object, location.range.start, len)
            })
            .into_bound_py_any(py),
        Outcome::Places(places) => remote_places::columns(py, places),
        Outcome::Flag(flag) => flag.into_bound_py_any(py),
        Outcome::Keys(keys) => buffer::array(py, keys),
        Outcome::Page(page) => page.map(|page| page_to_python(py, page)).transpose()?.into_bound_py_any(py),
    }
}

fn page_to_python(py: Python<'_>, page: Page) -> PyResult<Bound<'_, PyAny>> {
    let Page { pairs, rest, has_preambles } = page;
    let value = |value: &[u8]| match has_preambles {
        true => preamble::value(py, value, None),
        false => Ok(PyBytes::new(py, value).into_any()),
    };
    let pairs = pairs.iter().map(|(key, found)| Ok((*key, value(found)?))).collect::<PyResult<Vec<_>>>()?;
    (pairs, RemoteCursor::new(rest, has_preambles)).into_bound_py_any(py)
}
