//! Pairs from an Arrow stream: a column of integers, a column of bytes, and perhaps one of preambles.

use std::fmt::Display;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::ArrayStreamReader;
use arrow_array::types::{Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayReader, ArrowPrimitiveType, BinaryArray, BinaryViewArray, LargeBinaryArray, LargeStringArray,
    StringArray, StringViewArray, StructArray,
};
use arrow_schema::{ArrowError, DataType, Field, Fields};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use sharddb::ErrorKind;

use crate::buffer;
use crate::errors;
use crate::pairs::{BATCH_PAIRS, Sink, Writer};

/// The names of the columns.
const KEY: &str = "key";
const VALUE: &str = "value";
const PREAMBLE: &str = "preamble";

/// Adds the pairs of a stream, given the capsule that `__arrow_c_stream__` has returned.
///
/// The producer is trusted with the lengths of its buffers, which the C interface does not state: that of a data buffer is
/// the last offset. All other offsets and views are checked.
pub(crate) fn extend<S: Sink>(writer: &mut Writer<S>, capsule: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = capsule.py();
    let failed = |error: ArrowError| {
        errors::new(py, ErrorKind::InvalidInput, &format!("the Arrow stream failed: {error}"), None, None)
    };
    let stream = buffer::take_arrow_stream(capsule)?;
    if stream.get_next().is_none() {
        let message = "expected an Arrow stream that returns batches, found one without get_next: was it read already?";
        return Err(errors::new(py, ErrorKind::InvalidInput, message, None, None));
    }
    // not the reader of record batches, which ignores that rows are null
    let mut batches = py.detach(|| ArrayStreamReader::try_new(stream)).map_err(failed)?;
    let DataType::Struct(fields) = batches.field().data_type() else {
        let found = batches.field().data_type();
        let message = format!("expected an Arrow stream of record batches, found one of {found}");
        return Err(errors::new(py, ErrorKind::InvalidInput, &message, None, None));
    };
    let columns = Columns::of(fields)?;
    while let Some(batch) = py.detach(|| batches.next()) {
        let batch = batch.map_err(failed)?;
        let Some(batch) = batch.as_struct_opt() else {
            return Err(errors::new(py, ErrorKind::Internal, "an Arrow stream has changed its type", None, None));
        };
        columns.insert(py, batch, writer)?;
    }
    Ok(())
}

/// The positions of the columns.
struct Columns {
    key: usize,
    value: usize,
    preamble: Option<usize>,
}

impl Columns {
    /// Finds the columns: by their names, of which that of preambles may be missing, or the first and the second of two.
    ///
    /// Errors: `ValueError` if the columns do not exist; `TypeError` for other types than integers and bytes.
    fn of(fields: &Fields) -> PyResult<Columns> {
        let named = fields.find(KEY).zip(fields.find(VALUE));
        let two = || match &fields[..] {
            [key, value] => Some(((0, key), (1, value))),
            _ => None,
        };
        let Some(((key, key_field), (value, value_field))) = named.or_else(two) else {
            let names: Vec<_> = fields.iter().map(|field| field.name().as_str()).collect();
            let message = format!("expected the columns \"{KEY}\" and \"{VALUE}\", or two columns, found {names:?}");
            return Err(PyValueError::new_err(message));
        };
        let expect = |field: &Field, is_right: fn(&DataType) -> bool, expected: &str| {
            if is_right(field.data_type()) || *field.data_type() == DataType::Null {
                Ok(()) // a table without rows may have no other type; rows are refused as nulls
            } else {
                Err(PyTypeError::new_err(format!(
                    "expected {expected} in the column {:?}, found {}",
                    field.name(),
                    field.data_type()
                )))
            }
        };
        expect(key_field, DataType::is_integer, "integers")?;
        expect(value_field, is_bytes, "binary or strings")?;
        let preamble = named.and_then(|_| fields.find(PREAMBLE));
        if let Some((_, field)) = preamble {
            expect(field, is_bytes, "binary or strings")?;
        }
        Ok(Columns { key, value, preamble: preamble.map(|(at, _)| at) })
    }

    fn insert<S: Sink>(&self, py: Python<'_>, batch: &StructArray, writer: &mut Writer<S>) -> PyResult<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let keys = py.detach(|| self.checked_keys(batch))?;
        let values = BytesColumn::of(batch.column(self.value));
        let preambles = self.preamble.map(|at| BytesColumn::of(batch.column(at)));
        for (number, keys) in keys.chunks(BATCH_PAIRS).enumerate() {
            let mut rows = keys.iter().zip(number * BATCH_PAIRS..);
            writer.insert_all(py, |sink| {
                rows.try_for_each(|(key, row)| {
                    let preamble = preambles.map_or(&[][..], |preambles| preambles.get(row));
                    sink.put(*key, preamble, values.get(row))
                })
            })?;
        }
        Ok(())
    }
}

impl Columns {
    /// Checks a batch, and returns its keys. Needs no GIL.
    ///
    /// Errors: `ValueError` for a null or for invalid data; those of [`keys`].
    fn checked_keys(&self, batch: &StructArray) -> PyResult<Vec<u64>> {
        if let Some(row) = (0..batch.len()).find(|row| batch.is_null(*row)) {
            return Err(PyValueError::new_err(format!("expected no null rows, found row {row} of a batch null")));
        }
        let (key, value) = (batch.column(self.key), batch.column(self.value));
        let preamble = self.preamble.map(|at| (batch.column(at), at));
        for (column, at) in [(key, self.key), (value, self.value)].into_iter().chain(preamble) {
            check(column, batch.fields().get(at).map_or("", |field| field.name()))?;
        }
        keys(key)
    }
}

fn is_bytes(data_type: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    matches!(data_type, Binary | LargeBinary | BinaryView | Utf8 | LargeUtf8 | Utf8View)
}

/// Checks that a column has no nulls, and that its offsets and views are within its buffers.
///
/// Errors: `ValueError`, which names the column.
fn check(column: &dyn Array, name: &str) -> PyResult<()> {
    let is_null = |row: &usize| column.is_null(*row) || *column.data_type() == DataType::Null;
    if let Some(row) = (0..column.len()).find(is_null) {
        let message = format!("expected no nulls in the column {name:?}, found one in row {row} of a batch");
        return Err(PyValueError::new_err(message));
    }
    let bad =
        |error| PyValueError::new_err(format!("expected valid Arrow data in the column {name:?}, found: {error}"));
    column.to_data().validate_full().map_err(bad)
}

/// Returns the keys of a column of integers.
///
/// Errors: `OverflowError` for a negative number.
fn keys(column: &dyn Array) -> PyResult<Vec<u64>> {
    match column.data_type() {
        DataType::UInt8 => numbers::<UInt8Type>(column),
        DataType::UInt16 => numbers::<UInt16Type>(column),
        DataType::UInt32 => numbers::<UInt32Type>(column),
        DataType::UInt64 => Ok(column.as_primitive::<UInt64Type>().values().to_vec()),
        DataType::Int8 => numbers::<Int8Type>(column),
        DataType::Int16 => numbers::<Int16Type>(column),
        DataType::Int32 => numbers::<Int32Type>(column),
        DataType::Int64 => numbers::<Int64Type>(column),
        other => Err(PyTypeError::new_err(format!("expected a column of integers as keys, found {other}"))),
    }
}

fn numbers<T>(column: &dyn Array) -> PyResult<Vec<u64>>
where
    T: ArrowPrimitiveType<Native: TryInto<u64> + Display>,
{
    let number = |number: &T::Native| {
        (*number)
            .try_into()
            .map_err(|_| PyOverflowError::new_err(format!("expected a key from 0 to 2**64 - 1, found {number}")))
    };
    column.as_primitive::<T>().values().iter().map(number).collect()
}

/// A column of bytes or strings.
#[derive(Clone, Copy)]
enum BytesColumn<'a> {
    Binary(&'a BinaryArray),
    LargeBinary(&'a LargeBinaryArray),
    BinaryView(&'a BinaryViewArray),
    Utf8(&'a StringArray),
    LargeUtf8(&'a LargeStringArray),
    Utf8View(&'a StringViewArray),
}

impl<'a> BytesColumn<'a> {
    /// `column` is of a type that [`is_bytes`].
    fn of(column: &'a dyn Array) -> BytesColumn<'a> {
        match column.data_type() {
            DataType::Binary => BytesColumn::Binary(column.as_bytes()),
            DataType::LargeBinary => BytesColumn::LargeBinary(column.as_bytes()),
            DataType::BinaryView => BytesColumn::BinaryView(column.as_byte_view()),
            DataType::Utf8 => BytesColumn::Utf8(column.as_bytes()),
            DataType::LargeUtf8 => BytesColumn::LargeUtf8(column.as_bytes()),
            _ => BytesColumn::Utf8View(column.as_byte_view()),
        }
    }

    #[inline]
    fn get(self, row: usize) -> &'a [u8] {
        match self {
            BytesColumn::Binary(values) => values.value(row),
            BytesColumn::LargeBinary(values) => values.value(row),
            BytesColumn::BinaryView(values) => values.value(row),
            BytesColumn::Utf8(values) => values.value(row).as_bytes(),
            BytesColumn::LargeUtf8(values) => values.value(row).as_bytes(),
            BytesColumn::Utf8View(values) => values.value(row).as_bytes(),
        }
    }
}
