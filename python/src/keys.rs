//! Keys of the caller: one integer, an array of any integer dtype, or an iterable. Nothing is cast silently.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyMemoryError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyString};

use crate::buffer;

/// Upper bound on the keys for which memory is reserved because an iterable states its length.
const MOST_RESERVED: usize = 1 << 16;

/// A single key: any object that is an integer by `__index__`, but no bool.
pub(crate) struct Key(pub(crate) u64);

impl<'py> FromPyObject<'_, 'py> for Key {
    type Error = PyErr;

    #[inline]
    fn extract(key: Borrowed<'_, 'py, PyAny>) -> PyResult<Key> {
        match key.extract::<u64>() {
            Ok(number) if !key.is_instance_of::<PyBool>() => Ok(Key(number)),
            result => Err(no_key(&key, result.err())),
        }
    }
}

/// Returns the exception for an object that is not a key.
#[cold]
fn no_key(key: &Bound<'_, PyAny>, error: Option<PyErr>) -> PyErr {
    let is_out_of_range = error.is_some_and(|error| error.is_instance_of::<PyOverflowError>(key.py()));
    if is_out_of_range {
        out_of_range(&key.repr().map_or_else(|_| "another integer".to_string(), |text| text.to_string()))
    } else {
        let class = key.get_type().name().map_or_else(|_| "another object".to_string(), |name| name.to_string());
        PyTypeError::new_err(format!("expected an integer as key, found {class}"))
    }
}

#[cold]
fn out_of_range(found: &str) -> PyErr {
    PyOverflowError::new_err(format!("expected a key from 0 to 2**64 - 1, found {found}"))
}

/// Many keys: an array of integers (by the buffer protocol or `__array__`), or an iterable of integers.
///
/// Extracting copies them, so that no other thread can change them while the GIL is released.
pub(crate) struct Keys(pub(crate) Vec<u64>);

impl<'py> FromPyObject<'_, 'py> for Keys {
    type Error = PyErr;

    fn extract(keys: Borrowed<'_, 'py, PyAny>) -> PyResult<Keys> {
        if keys.is_instance_of::<PyString>() || keys.is_instance_of::<PyBytes>() || keys.is_instance_of::<PyByteArray>()
        {
            return Err(PyTypeError::new_err(format!(
                "expected an array or iterable of integers as keys, found {}; for keys in bytes, use numpy.frombuffer",
                keys.get_type().name()?
            )));
        }
        if is_masked(&keys)? {
            let message = "expected an array of integers as keys, found a masked array; pass its `compressed()`";
            return Err(PyTypeError::new_err(message));
        }
        if let Ok(buffer) = PyUntypedBuffer::get(&keys) {
            return of_buffer(&keys, &buffer).map(Keys);
        }
        if let Some(nulls) = keys.getattr_opt("null_count")? {
            // an attribute in pyarrow, a method in polars; with nulls their arrays are of floats
            let nulls = if nulls.is_callable() { nulls.call0()? } else { nulls };
            if nulls.gt(0)? {
                return Err(PyValueError::new_err(format!("expected keys without nulls, found {nulls} of them")));
            }
        }
        if keys.hasattr("__array__")? { of_array(&keys).map(Keys) } else { of_iterable(&keys).map(Keys) }
    }
}

/// Whether an object is a masked array of NumPy. Its buffer has the items below the mask, too.
pub(crate) fn is_masked(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(object.getattr_opt("mask")?.is_some() && object.getattr_opt("filled")?.is_some())
}

/// Takes the keys of an object that converts to a NumPy array, and of an array without axes, which has no buffer for PyO3.
fn of_array(keys: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let array = keys.call_method0("__array__")?;
    let array = if array.getattr("ndim")?.eq(0)? { array.call_method1("reshape", (1,))? } else { array };
    match PyUntypedBuffer::get(&array) {
        Ok(buffer) => of_buffer(&array, &buffer),
        Err(_) => Err(no_integers(&array.getattr("dtype")?.to_string())),
    }
}

#[cold]
fn no_integers(found: &str) -> PyErr {
    PyTypeError::new_err(format!("expected an array of integers as keys, found items of the type {found}"))
}

fn of_iterable(keys: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let mut numbers = Vec::with_capacity(keys.len().unwrap_or(0).min(MOST_RESERVED));
    for key in keys.try_iter()? {
        numbers.push(key?.extract::<Key>()?.0);
    }
    Ok(numbers)
}

/// Takes the keys of a buffer, which is that of `keys`.
fn of_buffer(keys: &Bound<'_, PyAny>, buffer: &PyUntypedBuffer) -> PyResult<Vec<u64>> {
    let py = keys.py();
    if buffer.dimensions() > 1 {
        let message = format!("expected keys in one dimension, found {} dimensions", buffer.dimensions());
        return Err(PyValueError::new_err(message));
    }
    let format = buffer.format().to_bytes();
    let Some(integer) = IntegerFormat::parse(format).filter(|integer| integer.bytes == buffer.item_size()) else {
        return Err(no_integers(&match keys.getattr_opt("dtype")? {
            Some(dtype) => dtype.to_string(),
            None => format!("{:?}", String::from_utf8_lossy(format)),
        }));
    };
    let mut keys = room_for(buffer.item_count())?; // a broadcast array has more items than memory
    let copied = match integer.bytes {
        1 => integer.copy::<1>(py, buffer, &mut keys),
        2 => integer.copy::<2>(py, buffer, &mut keys),
        4 => integer.copy::<4>(py, buffer, &mut keys),
        _ => integer.copy::<8>(py, buffer, &mut keys),
    };
    copied.unwrap_or_else(|| Err(no_integers("a buffer with suboffsets")))?;
    Ok(keys)
}

/// Reserves memory for what a number of keys has: themselves, or a part of each result.
///
/// Errors: `MemoryError`.
pub(crate) fn room_for<T>(keys: usize) -> PyResult<Vec<T>> {
    let mut room = Vec::new();
    let refused =
        |_| PyMemoryError::new_err(format!("{keys} keys do not fit into memory: pass fewer keys in one call"));
    room.try_reserve_exact(keys).map_err(refused)?;
    Ok(room)
}

/// The integers of a buffer, by its format in the syntax of the module `struct`.
///
/// The buffers of PyO3 are not used for this: `PyBuffer::<u64>` takes `>u8` for native.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IntegerFormat {
    bytes: usize,
    is_signed: bool,
    is_big_endian: bool,
}

impl IntegerFormat {
    /// Parses a format of one item; `None` if it is not an integer.
    fn parse(format: &[u8]) -> Option<IntegerFormat> {
        let (order, code) = match format {
            [code] => (b'@', *code),
            [order, code] => (*order, *code),
            _ => return None,
        };
        let is_big_endian = match order {
            b'@' | b'=' => cfg!(target_endian = "big"),
            b'<' => false,
            b'>' | b'!' => true,
            _ => return None,
        };
        let is_native = order == b'@';
        let bytes = match code.to_ascii_lowercase() {
            b'b' => 1,
            b'h' => 2,
            b'i' => 4,
            b'l' if is_native => size_of::<std::ffi::c_long>(),
            b'l' => 4,
            b'q' => 8,
            b'n' if is_native => size_of::<isize>(),
            _ => return None,
        };
        Some(IntegerFormat { bytes, is_signed: code.is_ascii_lowercase(), is_big_endian })
    }

    /// Appends the keys of the buffer to `keys`; `None` if its items do not have `N` bytes.
    fn copy<const N: usize>(
        self,
        py: Python<'_>,
        buffer: &PyUntypedBuffer,
        keys: &mut Vec<u64>,
    ) -> Option<PyResult<()>> {
        buffer::for_each_item::<N>(py, buffer, |bytes| {
            keys.push(self.key(bytes)?);
            Ok(())
        })
    }

    #[inline]
    fn key<const N: usize>(self, mut bytes: [u8; N]) -> PyResult<u64> {
        if self.is_big_endian {
            bytes.reverse();
        }
        let is_negative = self.is_signed && bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut wide = [if is_negative { 0xff } else { 0 }; 8];
        wide.iter_mut().zip(bytes).for_each(|(wide, byte)| *wide = byte);
        if is_negative {
            Err(out_of_range(&i64::from_le_bytes(wide).to_string()))
        } else {
            Ok(u64::from_le_bytes(wide))
        }
    }
}
