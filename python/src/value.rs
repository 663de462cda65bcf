//! `Value`: the bytes of a value without a copy. Its buffer is in `buffer`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use sharddb::OwnedValue;

/// A value as read-only bytes: `memoryview(value)`, `numpy.frombuffer(value, dtype)` and `bytes(value)` read it.
///
/// Mapped and loaded values that are stored raw are not copied. A value stays valid, whatever happens to its database; it
/// keeps the map of its shard, and the disk space of the file.
#[pyclass(frozen, module = "sharddb")]
pub(crate) struct Value(pub(crate) OwnedValue);

impl Value {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[pymethods]
impl Value {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0)
    }

    /// Compares the bytes with those of any object with a buffer of bytes.
    fn __eq__(this: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        PyMemoryView::from(this)?.eq(other)
    }

    fn __repr__(&self) -> String {
        format!("<sharddb.Value of {} bytes>", self.0.len())
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Value>()
}
