//! Sharding specifications as Python has them: the JSON object "sharding" of an `info`, as a dict.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use sharddb::ShardingSpec;

use crate::errors::OrRaise;

/// Returns the JSON object of a specification.
pub(crate) fn to_dict<'py>(py: Python<'py>, spec: &ShardingSpec) -> PyResult<Bound<'py, PyDict>> {
    let object = py.import("json")?.call_method1("loads", (spec.to_json(),))?;
    Ok(object.cast_into::<PyDict>()?)
}

/// Returns a specification: a dict or JSON text, or an object whose attribute `spec` is one, such as a `Plan`.
///
/// Errors: `TypeError`, `InvalidSpec`.
pub(crate) fn parse(value: &Bound<'_, PyAny>) -> PyResult<ShardingSpec> {
    let py = value.py();
    match value.getattr_opt("spec")? {
        Some(spec) => ShardingSpec::from_json(&json_text("spec", &spec)?).or_raise(py),
        None => ShardingSpec::from_json(&json_text("spec", value)?).or_raise(py),
    }
}

/// Returns the JSON text of a dict, or a text as it is.
///
/// Errors: `TypeError` for any other type; those of `json.dumps`.
pub(crate) fn json_text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if value.is_instance_of::<PyString>() {
        return value.extract();
    }
    if !value.is_instance_of::<PyDict>() {
        let found = value.get_type().name()?.to_string();
        return Err(PyTypeError::new_err(format!("expected {name} as a dict or JSON text, found {found}")));
    }
    value.py().import("json")?.call_method1("dumps", (value,))?.extract()
}
