//! Values with preambles: `sharddb.ValueWithPreamble`, a subclass of `bytes` that is defined in Python.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyType};

use crate::errors::OrRaise;
use crate::keys::Key;
use crate::reader::Reader;

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    CLASS.import(py, "sharddb._values", "ValueWithPreamble")
}

/// Creates a value with its preamble; `None` if that is unknown.
pub(crate) fn value<'py>(py: Python<'py>, value: &[u8], preamble: Option<&[u8]>) -> PyResult<Bound<'py, PyAny>> {
    class(py)?.call1((PyBytes::new(py, value), preamble.map(|preamble| PyBytes::new(py, preamble))))
}

/// Returns the preamble of a value of the caller, if it has one.
#[inline]
pub(crate) fn of<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
    if value.is_exact_instance_of::<PyBytes>() || !value.is_instance(class(value.py())?)? {
        return Ok(None);
    }
    Ok(Some(value.getattr("preamble")?.cast_into()?))
}

#[pymethods]
impl Reader {
    /// Returns the value of a key and its preamble as a `ValueWithPreamble`, or `default` if the key is absent. In foreign data
    /// the preamble is what no index names before the value.
    ///
    /// Cost for foreign data: the first call per shard reads all its indexes and keeps 16 bytes per key.
    #[pyo3(signature = (key, default = None))]
    fn get_with_preamble<'py>(
        &self,
        py: Python<'py>,
        key: Key,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let snapshot = self.snapshot(py)?;
        match py.detach(|| snapshot.get_with_preamble(key.0)).or_raise(py)? {
            Some((preamble, found)) => value(py, &found, Some(&preamble)).map(Some),
            None => Ok(default),
        }
    }
}
