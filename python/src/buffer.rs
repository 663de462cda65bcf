//! All `unsafe` code of the package: the buffer protocol, and the promise of [`sharddb::ShardDb::open_mapped`].

use std::any::Any;
use std::ffi::{CStr, c_int};
use std::ops::Range;
use std::path::Path;

use arrow_array::RecordBatchReader;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use sharddb::{OpenOptions, ShardDb};

use crate::value::Value;

/// Opens a database by mapping its files. The caller of `sharddb.open` makes the promise; its docstring states it.
pub(crate) fn open_mapped(options: &OpenOptions, path: &Path) -> sharddb::Result<ShardDb> {
    // SAFETY: the docstring of `sharddb.open` requires of the caller that nobody edits the files.
    unsafe { options.open_mapped(path) }
}

/// Calls `f` with the bytes of each item of a one-dimensional buffer, in order.
///
/// Returns `None` without a call if the items do not have `N` bytes, or if the buffer has suboffsets or other dimensions.
pub(crate) fn for_each_item<const N: usize>(
    _py: Python<'_>,
    buffer: &PyUntypedBuffer,
    mut f: impl FnMut([u8; N]) -> PyResult<()>,
) -> Option<PyResult<()>> {
    if buffer.item_size() != N || buffer.suboffsets().is_some() {
        return None;
    }
    let ([items], [stride]) = (buffer.shape(), buffer.strides()) else { return None };
    let mut item = buffer.buf_ptr().cast::<[u8; N]>().cast_const();
    for _ in 0..*items {
        // SAFETY: the exporter states that each of its items has N bytes, `stride` bytes apart, and keeps them while the
        // buffer is held. An array of bytes has no alignment. No other thread runs Python code meanwhile.
        let bytes = unsafe { item.read() };
        if let Err(error) = f(bytes) {
            return Some(Err(error));
        }
        item = item.wrapping_byte_offset(*stride);
    }
    Some(Ok(()))
}

/// Appends a range of the bytes of a contiguous buffer to `to`. Appends nothing if the range does not fit, or the buffer is
/// not contiguous.
pub(crate) fn append_bytes(_py: Python<'_>, buffer: &PyUntypedBuffer, range: Range<usize>, to: &mut Vec<u8>) {
    let is_within = range.start < range.end && range.end <= buffer.len_bytes();
    if !is_within || !buffer.is_c_contiguous() {
        return;
    }
    let start = buffer.buf_ptr().cast::<u8>().cast_const().wrapping_add(range.start);
    // SAFETY: a contiguous buffer is `len_bytes` bytes in one piece, which its exporter keeps in place while the buffer is
    // held, and the range is not empty and within them. The GIL is held, so no other thread runs Python code meanwhile. The
    // slice ends with this call, which does not run Python code either.
    to.extend_from_slice(unsafe { std::slice::from_raw_parts(start, range.len()) });
}

/// The name of capsules with an Arrow stream.
const ARROW_STREAM: &CStr = c"arrow_array_stream";

/// Returns a capsule with an Arrow stream, as `__arrow_c_stream__` does.
pub(crate) fn arrow_capsule<'py>(
    py: Python<'py>,
    batches: impl RecordBatchReader + Send + 'static,
) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), ARROW_STREAM)
}

/// Takes the stream out of a capsule that `__arrow_c_stream__` has returned.
///
/// Errors: `TypeError` if it is no such capsule.
pub(crate) fn take_arrow_stream(capsule: &Bound<'_, PyAny>) -> PyResult<FFI_ArrowArrayStream> {
    let stream = capsule.cast::<PyCapsule>().ok().and_then(|capsule| capsule.pointer_checked(Some(ARROW_STREAM)).ok());
    let Some(stream) = stream else {
        let message = "expected a capsule \"arrow_array_stream\" from __arrow_c_stream__, found another object";
        return Err(PyTypeError::new_err(message));
    };
    // SAFETY: the Arrow PyCapsule interface states that a capsule of this name points to a valid stream structure, which it
    // owns. The stream is moved out: an empty one, which is released, takes its place. The GIL is held meanwhile.
    Ok(unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr().cast()) })
}

/// The memory of an array of the caller, as rows of equal length along its first axis.
pub(crate) struct Rows {
    buffer: PyUntypedBuffer,
    rows: usize,
    row_bytes: usize,
}

impl Rows {
    /// Takes the buffer of an array that is writable and C-contiguous, and whose items are not references to objects.
    ///
    /// Returns what is wrong with any other array.
    pub(crate) fn new(buffer: PyUntypedBuffer) -> Result<Rows, &'static str> {
        let Some(rows) = buffer.shape().first().copied() else { return Err("no axis") };
        if buffer.readonly() {
            return Err("a read-only array");
        }
        if !buffer.is_c_contiguous() || buffer.suboffsets().is_some() {
            return Err("an array that is not C-contiguous");
        }
        if has_pointers(buffer.format().to_bytes()) {
            return Err("an array of objects");
        }
        let row_bytes = buffer.len_bytes().checked_div(rows).unwrap_or(0);
        Ok(Rows { buffer, rows, row_bytes })
    }

    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    pub(crate) fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Copies `bytes` into a row. Returns whether there is such a row and it has that length.
    pub(crate) fn write(&mut self, row: usize, bytes: &[u8]) -> bool {
        if row >= self.rows || bytes.len() != self.row_bytes {
            return false;
        }
        let start = self.buffer.buf_ptr().cast::<u8>().wrapping_add(row * self.row_bytes);
        // SAFETY: the buffer is writable, contiguous and held, and has rows * row_bytes bytes, of which this row is a part.
        // Its items have no pointers. `bytes` is memory of the database, which no writable buffer exports; `copy` would
        // also be right for bytes that overlap.
        unsafe { start.copy_from(bytes.as_ptr(), bytes.len()) };
        true
    }
}

/// Returns whether a format in the syntax of `struct` and PEP 3118 has objects or other pointers. Names are between colons.
pub(crate) fn has_pointers(format: &[u8]) -> bool {
    format.split(|byte| *byte == b':').step_by(2).any(|codes| codes.iter().any(|code| b"OPX&".contains(code)))
}

/// An item type of NumPy arrays: any bytes are a valid item, or Rust never reads it again.
pub(crate) trait Item: Send + Sync + 'static {
    /// The name of the dtype.
    const DTYPE: &'static str;
}

impl Item for bool {
    const DTYPE: &'static str = "bool";
}
impl Item for u8 {
    const DTYPE: &'static str = "uint8";
}
impl Item for i32 {
    const DTYPE: &'static str = "int32";
}
impl Item for i64 {
    const DTYPE: &'static str = "int64";
}
impl Item for u64 {
    const DTYPE: &'static str = "uint64";
}

/// Moves the items into a writable one-dimensional NumPy array, without a copy.
pub(crate) fn array<T: Item>(py: Python<'_>, items: Vec<T>) -> PyResult<Bound<'_, PyAny>> {
    let numpy = py.import(intern!(py, "numpy"))?;
    if items.is_empty() {
        return numpy.call_method1(intern!(py, "empty"), (0, T::DTYPE)); // `frombuffer` refuses no bytes
    }
    numpy.call_method1(intern!(py, "frombuffer"), (Column::new(items), T::DTYPE))
}

/// The memory of a NumPy array: a vector that Rust does not use any more. Exports its bytes.
#[pyclass(frozen, module = "sharddb")]
struct Column {
    start: *mut u8,
    bytes: usize,
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the pointer is to the heap memory of `_owner`, which any thread may own. Only holders of a buffer use it.
unsafe impl Send for Column {}
// SAFETY: as above; the methods only copy the pointer.
unsafe impl Sync for Column {}

impl Column {
    fn new<T: Item>(mut items: Vec<T>) -> Column {
        let (start, bytes) = (items.as_mut_ptr().cast::<u8>(), size_of_val(items.as_slice()));
        Column { start, bytes, _owner: Box::new(items) }
    }
}

#[pymethods]
impl Column {
    /// # Safety
    ///
    /// `view` is the argument of `bf_getbuffer`.
    unsafe fn __getbuffer__(this: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let column = this.get();
        // SAFETY: the memory is that of a vector that the object owns and does not change; the buffer keeps the object.
        unsafe { fill(&this, view, column.start, column.bytes, false, flags) }
    }
}

#[pymethods]
impl Value {
    /// # Safety
    ///
    /// `view` is the argument of `bf_getbuffer`.
    unsafe fn __getbuffer__(this: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = this.get().bytes();
        // SAFETY: the object owns the value, whose bytes are in a shard or on the heap and do not move; it is never
        // changed. The buffer is read-only and keeps the object.
        unsafe { fill(&this, view, bytes.as_ptr().cast_mut(), bytes.len(), true, flags) }
    }
}

/// Fills a buffer view with bytes that `owner` keeps.
///
/// # Safety
///
/// `view` is the argument of `bf_getbuffer`. The bytes stay in place and valid while `owner` lives; if the buffer is
/// writable, only its holders use them.
unsafe fn fill<T>(
    owner: &Bound<'_, T>,
    view: *mut ffi::Py_buffer,
    start: *mut u8,
    bytes: usize,
    is_readonly: bool,
    flags: c_int,
) -> PyResult<()> {
    let bytes = ffi::Py_ssize_t::try_from(bytes)?;
    // SAFETY: the caller promises a view of `bf_getbuffer` and bytes that `owner` keeps; the view takes a reference to it.
    let result =
        unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start.cast(), bytes, c_int::from(is_readonly), flags) };
    match result {
        0 => Ok(()),
        _ => Err(PyErr::fetch(owner.py())),
    }
}
