//! Lookups of many keys in one call, without the GIL.

use std::collections::HashMap;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyMemoryError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use sharddb::{ErrorKind, Snapshot, Value};

use crate::buffer::{self, Rows};
use crate::errors;
use crate::keys::{Keys, is_masked, room_for};
use crate::reader::Reader;
use crate::task::{Failure, SignalCheck};

/// Keys per check of the clock.
const KEYS_PER_CHECK: usize = 256;

/// Keys of `get_many` between two acquisitions of the GIL. Bounds the values that are in memory twice.
const KEYS_PER_SLICE: usize = 4096;

/// The size of the pages that `touch` reads; larger ones are read several times.
const PAGE: usize = 4096;

#[pymethods]
impl Reader {
    /// Returns the values of many keys, in their order; `None` for each absent key. Keys may repeat.
    ///
    /// `keys` is an array of any integer dtype with at most one dimension, or an iterable of integers. For large batches
    /// `get_ragged` is faster, because it creates no object per value.
    ///
    /// Raises `TypeError` or `OverflowError` for a key that is not an integer from 0 to 2**64 - 1, and the errors of
    /// `db[k]` for the first value that cannot be read.
    #[pyo3(signature = (keys, /))]
    fn get_many<'py>(&self, py: Python<'py>, keys: Keys) -> PyResult<Bound<'py, PyList>> {
        let snapshot = self.snapshot(py)?;
        let mut found: Vec<Option<Bound<'py, PyBytes>>> = room_for(keys.0.len())?;
        for keys in keys.0.chunks(KEYS_PER_SLICE) {
            let values = py.detach(|| {
                let mut values = Vec::with_capacity(keys.len());
                for_each_value(&snapshot, keys, |_, value| {
                    touch(value.as_deref().unwrap_or_default());
                    values.push(value);
                    Ok(())
                })?;
                Ok(values)
            });
            let values = values.map_err(|failure: Failure| failure.into_py(py))?;
            found.extend(values.into_iter().map(|value| value.map(|value| PyBytes::new(py, &value))));
        }
        PyList::new(py, found)
    }

    /// Returns the values of many keys, one after the other: `(data, offsets, found)`.
    ///
    /// `data` is a `uint8` array, `offsets` is `int64[n + 1]`, `found` is `bool[n]`. The value of `keys[i]` is
    /// `data[offsets[i]:offsets[i + 1]]`, with no bytes if `found[i]` is false. One copy; the GIL is released during the
    /// whole call. Values that are read or decoded are in memory twice.
    ///
    /// `keys` and errors are those of `get_many`; `MemoryError` if the values do not fit into memory.
    #[pyo3(signature = (keys, /))]
    fn get_ragged<'py>(&self, py: Python<'py>, keys: Keys) -> PyResult<(Array<'py>, Array<'py>, Array<'py>)> {
        let snapshot = self.snapshot(py)?;
        let ragged = py.detach(|| Ragged::read(&snapshot, &keys.0)).map_err(|failure| failure.into_py(py))?;
        Ok((buffer::array(py, ragged.data)?, buffer::array(py, ragged.offsets)?, buffer::array(py, ragged.found)?))
    }

    /// Copies values of a fixed size into the rows of an array: that of `keys[i]` to `out[i]`. Returns `found`, `bool[n]`.
    ///
    /// `out` is a writable C-contiguous array of any dtype without objects, whose first axis has the length of `keys`; the
    /// bytes of each `out[i]` (`out.itemsize` times the other axes) are the bytes of a value. Rows of absent keys do not
    /// change.
    ///
    /// Raises `ValueError` for another `out`, `InvalidInput` (a `ValueError`) with the key of the first value that has
    /// another length, after which the rows before it are written, and the errors of `get_many`.
    #[pyo3(signature = (keys, /, out))]
    fn get_into<'py>(&self, py: Python<'py>, keys: Keys, out: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let snapshot = self.snapshot(py)?;
        let mut rows = rows_of(out, keys.0.len())?;
        let found = py.detach(|| copy_into(&snapshot, &keys.0, &mut rows)).map_err(|failure| failure.into_py(py))?;
        buffer::array(py, found)
    }

    /// Returns where the values of many keys are stored: `(files, file_no, offsets, lengths)`.
    ///
    /// `files` is a list of paths; `file_no` is `int32[n]`, an index into it, or -1 for an absent key; `offsets` and
    /// `lengths` are `int64[n]`, in bytes, 0 for an absent key. They are those of the stored bytes: where
    /// `spec["data_encoding"]` is "gzip", these are a gzip member of the value.
    ///
    /// `keys` and errors are those of `get_many`, as far as they concern indexes.
    #[pyo3(signature = (keys, /))]
    fn locate_many<'py>(
        &self,
        py: Python<'py>,
        keys: Keys,
    ) -> PyResult<(Vec<OsString>, Array<'py>, Array<'py>, Array<'py>)> {
        let snapshot = self.snapshot(py)?;
        let places = py.detach(|| Places::find(&snapshot, &keys.0)).map_err(|failure| failure.into_py(py))?;
        let (file_no, offsets) = (buffer::array(py, places.file_no)?, buffer::array(py, places.offsets)?);
        Ok((places.files, file_no, offsets, buffer::array(py, places.lengths)?))
    }
}

type Array<'py> = Bound<'py, PyAny>;

/// Calls `f` with each position in `keys` and its value. Checks for signals.
fn for_each_value<'a>(
    snapshot: &'a Snapshot,
    keys: &[u64],
    mut f: impl FnMut(usize, Option<Value<'a>>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut signals = SignalCheck::new();
    let outcome = snapshot.get_each(keys, |at, value| {
        let step = || {
            if at % KEYS_PER_CHECK == 0 {
                signals.check()?;
            }
            f(at, value?)
        };
        match step() {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => ControlFlow::Break(failure),
        }
    });
    match outcome {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(failure) => Err(failure),
    }
}

/// Reads a byte of each page, so that no page fault waits for a disk while the GIL is held.
pub(crate) fn touch(bytes: &[u8]) {
    for byte in bytes.iter().step_by(PAGE) {
        std::hint::black_box(*byte);
    }
}

/// Values one after the other, as columns.
struct Ragged {
    data: Vec<u8>,
    offsets: Vec<i64>,
    found: Vec<bool>,
}

impl Ragged {
    /// Looks up the values, and then copies them into memory of exactly their size.
    fn read(snapshot: &Snapshot, keys: &[u64]) -> Result<Ragged, Failure> {
        let mut values = room_for(keys.len())?;
        let mut offsets = room_for(keys.len() + 1)?;
        let mut found = room_for(keys.len())?;
        let mut end = 0_usize;
        offsets.push(0);
        for_each_value(snapshot, keys, |_, value| {
            end = end.checked_add(value.as_ref().map_or(0, |value| value.len())).ok_or_else(too_many_bytes)?;
            offsets.push(i64::try_from(end).map_err(|_| too_many_bytes())?);
            found.push(value.is_some());
            values.extend(value);
            Ok(())
        })?;
        let mut data = Vec::new();
        data.try_reserve_exact(end).map_err(|_| too_many_bytes())?;
        let mut signals = SignalCheck::new();
        for values in values.chunks(KEYS_PER_CHECK) {
            signals.check()?;
            values.iter().for_each(|value| data.extend_from_slice(value));
        }
        Ok(Ragged { data, offsets, found })
    }
}

fn too_many_bytes() -> PyErr {
    PyMemoryError::new_err("the values of these keys do not fit into memory: read fewer keys in one call")
}

fn rows_of(out: &Bound<'_, PyAny>, keys: usize) -> PyResult<Rows> {
    let buffer = PyUntypedBuffer::get(out).map_err(|_| {
        PyTypeError::new_err(format!(
            "expected an array with at least one axis for the values, found {}",
            out.get_type()
        ))
    })?;
    let expected = "a writable C-contiguous array with one row per key";
    if is_masked(out)? {
        return Err(PyValueError::new_err(format!("expected {expected}, found a masked array: pass its `data`")));
    }
    let rows =
        Rows::new(buffer).map_err(|found| PyValueError::new_err(format!("expected {expected}, found {found}")))?;
    if rows.len() != keys {
        let message = format!("expected {expected}, found {} rows for {keys} keys", rows.len());
        return Err(PyValueError::new_err(message));
    }
    Ok(rows)
}

/// Returns keys as a `uint64` array. For `sharddb.remote`.
#[pyfunction]
fn _key_array(py: Python<'_>, keys: Keys) -> PyResult<Array<'_>> {
    buffer::array(py, keys.0)
}

/// Checks that an array takes the values of as many keys as `get_into` requires. For `sharddb.remote`.
#[pyfunction]
fn _check_rows(out: &Bound<'_, PyAny>, keys: usize) -> PyResult<()> {
    rows_of(out, keys).map(drop)
}

/// Copies values into the rows of an array, like `get_into`. Returns `found`. For `sharddb.remote`.
#[pyfunction]
fn _copy_into<'py>(
    py: Python<'py>,
    keys: Keys,
    values: Vec<Option<Bound<'py, PyBytes>>>,
    out: &Bound<'py, PyAny>,
) -> PyResult<Array<'py>> {
    let mut rows = rows_of(out, values.len())?;
    for (at, (key, value)) in keys.0.iter().zip(&values).enumerate() {
        if let Some(value) = value.as_ref().map(|value| value.as_bytes())
            && !rows.write(at, value)
        {
            return Err(wrong_length(Some(*key), rows.row_bytes(), value.len()));
        }
    }
    buffer::array(py, values.iter().map(Option::is_some).collect())
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_key_array, module)?)?;
    module.add_function(wrap_pyfunction!(_check_rows, module)?)?;
    module.add_function(wrap_pyfunction!(_copy_into, module)?)
}

fn copy_into(snapshot: &Snapshot, keys: &[u64], rows: &mut Rows) -> Result<Vec<bool>, Failure> {
    let mut found = room_for(keys.len())?;
    let mut copied = keys.iter();
    for_each_value(snapshot, keys, |at, value| {
        let key = copied.next().copied();
        found.push(value.is_some());
        let Some(value) = value else { return Ok(()) };
        if rows.write(at, &value) { Ok(()) } else { Err(wrong_length(key, rows.row_bytes(), value.len()).into()) }
    })?;
    Ok(found)
}

#[cold]
fn wrong_length(key: Option<u64>, expected: usize, found: usize) -> PyErr {
    let key_text = key.map_or_else(String::new, |key| format!(" (key {key})"));
    let message = format!("expected values of {expected} bytes, as the rows of `out`, found one of {found}{key_text}");
    Python::attach(|py| errors::new(py, ErrorKind::InvalidInput, &message, None, key))
}

/// The places of values, as columns.
struct Places {
    files: Vec<OsString>,
    file_no: Vec<i32>,
    offsets: Vec<i64>,
    lengths: Vec<i64>,
}

impl Places {
    fn find(snapshot: &Snapshot, keys: &[u64]) -> Result<Places, Failure> {
        let (file_no, offsets, lengths) = (room_for(keys.len())?, room_for(keys.len())?, room_for(keys.len())?);
        let mut places = Places { files: Vec::new(), file_no, offsets, lengths };
        let mut numbers: HashMap<PathBuf, i32> = HashMap::new();
        let mut signals = SignalCheck::new();
        for keys in keys.chunks(KEYS_PER_CHECK) {
            signals.check()?;
            for location in snapshot.locate_many(keys) {
                let Some(location) = location? else {
                    places.push(-1, 0, 0)?;
                    continue;
                };
                let number = match numbers.get(&location.path) {
                    Some(number) => *number,
                    None => {
                        let number = i32::try_from(places.files.len()).map_err(|_| too_many_bytes())?;
                        places.files.push(location.path.clone().into());
                        numbers.insert(location.path.clone(), number);
                        number
                    }
                };
                places.push(number, location.range.start, location.stored_len())?;
            }
        }
        Ok(places)
    }

    /// Errors: `OverflowError` for a place that no file has.
    fn push(&mut self, file_no: i32, offset: u64, len: u64) -> PyResult<()> {
        let signed = |number| i64::try_from(number).map_err(|_| PyOverflowError::new_err("an offset of 2**63 or more"));
        self.file_no.push(file_no);
        self.offsets.push(signed(offset)?);
        self.lengths.push(signed(len)?);
        Ok(())
    }
}
