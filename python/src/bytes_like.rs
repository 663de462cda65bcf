//! Values of the caller: `bytes`, or any other contiguous object of the buffer protocol.

use std::ops::Range;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer;
use crate::keys::is_masked;

/// Appends the bytes of an object to `to`.
///
/// Errors: `TypeError` if it has none; `ValueError` if they are not contiguous.
#[inline]
pub(crate) fn append(object: &Bound<'_, PyAny>, to: &mut Vec<u8>) -> PyResult<()> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        to.extend_from_slice(bytes.as_bytes());
        return Ok(());
    }
    let held = Held::new(object)?;
    held.append(object.py(), 0..held.len(), to);
    Ok(())
}

/// The bytes of an object that are held, so that they are neither moved nor freed.
pub(crate) struct Held(PyUntypedBuffer);

impl Held {
    /// Holds the bytes of an object.
    ///
    /// Errors: `TypeError` if it has none, or references to objects; `ValueError` if they are not contiguous.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Held> {
        let Ok(buffer) = PyUntypedBuffer::get(object) else {
            let found = object.get_type().name()?.to_string();
            return Err(PyTypeError::new_err(format!(
                "expected bytes, or an object with a buffer of them, found {found}"
            )));
        };
        if is_masked(object)? {
            let message = "expected bytes, found a masked array: pass its `filled(value)` or `compressed()`";
            return Err(PyTypeError::new_err(message));
        }
        if buffer::has_pointers(buffer.format().to_bytes()) {
            return Err(PyTypeError::new_err("expected bytes, found an array of objects: convert it first"));
        }
        if buffer.is_c_contiguous() {
            Ok(Held(buffer))
        } else {
            Err(PyValueError::new_err("expected contiguous bytes, found a strided buffer: copy it first"))
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len_bytes()
    }

    /// Appends a range of the bytes to `to`. A range past the end appends nothing.
    pub(crate) fn append(&self, py: Python<'_>, range: Range<usize>, to: &mut Vec<u8>) {
        buffer::append_bytes(py, &self.0, range, to);
    }
}
