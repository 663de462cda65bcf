//! The objects from which a build takes pairs: arrays, a mapping, an iterable or an Arrow stream.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::arrow_input;
use crate::pairs::{Sink, Writer};

/// What a build takes in one argument.
const EXPECTED: &str = "a mapping, an iterable of pairs or an Arrow stream";
const PAIRS: &str = "pairs of a key and a value";

impl<S: Sink> Writer<S> {
    /// Adds the pairs of arrays, if there are offsets and data, or of one object.
    pub(crate) fn extend_any(
        &mut self,
        keys: &Bound<'_, PyAny>,
        offsets: Option<&Bound<'_, PyAny>>,
        data: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        match (offsets, data) {
            (None, None) => self.extend(keys),
            (Some(offsets), Some(data)) => self.extend_ragged(keys, offsets, data),
            _ => Err(PyTypeError::new_err("expected extend(pairs) or extend(keys, offsets, data)")),
        }
    }

    /// Adds the pairs of an Arrow stream, a mapping, or an iterable of pairs.
    pub(crate) fn extend(&mut self, pairs: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Some(stream) = pairs.getattr_opt("__arrow_c_stream__")? {
            return arrow_input::extend(self, &stream.call0()?);
        }
        if pairs.is_instance_of::<PyString>() || pairs.is_instance_of::<PyBytes>() || pairs.hasattr("__fspath__")? {
            return Err(PyTypeError::new_err(format!(
                "expected {EXPECTED}, found {}: read a file first, such as by pyarrow.parquet.read_table(path)",
                pairs.get_type().name()?
            )));
        }
        let items = match pairs.getattr_opt("items")? {
            Some(items) => items.call0()?,
            None => pairs.clone(),
        };
        for pair in items.try_iter().map_err(|error| wrong_type(error, EXPECTED, pairs))? {
            let (key, value) = key_and_value(pair?)?;
            self.push(&key, &value)?;
        }
        Ok(())
    }
}

/// Returns the items of a tuple, or of another iterable, of two.
fn key_and_value(pair: Bound<'_, PyAny>) -> PyResult<(Bound<'_, PyAny>, Bound<'_, PyAny>)> {
    let found = match pair.cast_into::<PyTuple>() {
        Ok(tuple) => tuple,
        Err(error) => {
            let pair = error.into_inner();
            let tuple = pair.py().get_type::<PyTuple>().call1((&pair,));
            tuple.map_err(|error| wrong_type(error, PAIRS, &pair))?.cast_into()?
        }
    };
    match found.len() {
        2 => found.extract(),
        len => Err(PyValueError::new_err(format!("expected {PAIRS}, found {len} items"))),
    }
}

/// Returns a `TypeError` that says what was expected. Any other exception stays as it is.
#[cold]
fn wrong_type(error: PyErr, expected: &str, found: &Bound<'_, PyAny>) -> PyErr {
    if error.is_instance_of::<PyTypeError>(found.py()) {
        PyTypeError::new_err(format!("expected {expected}, found {}", found.get_type()))
    } else {
        error
    }
}
