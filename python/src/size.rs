//! Sizes in bytes, as numbers or as texts such as `1GiB`.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString};

/// The units and their factors. A letter alone is binary, as in the command.
const UNITS: [(&str, u64); 16] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1_000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
    ("p", 1 << 50),
    ("pib", 1 << 50),
];

/// Returns a size in bytes: an `int`, or a text of a number and a unit.
///
/// Errors: `TypeError`, `ValueError` for another text, `OverflowError` outside of 0 to 2^64 - 1.
pub(crate) fn parse(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(text) = value.cast::<PyString>() {
        let text = text.to_cow()?;
        return of_text(&text).ok_or_else(|| {
            PyValueError::new_err(format!(
                "expected {name} in bytes below 2^64, such as 4096, \"64MiB\", \"1.5GiB\" or \"3GB\", found {text:?}"
            ))
        });
    }
    if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() {
        let found = value.get_type().name()?.to_string();
        return Err(PyTypeError::new_err(format!(
            "expected {name} as an int of bytes or a text such as \"1GiB\", found {found}"
        )));
    }
    value.extract().map_err(|_| {
        let message = format!("expected {name} from 0 to 2**64 - 1 bytes, found {value}");
        PyOverflowError::new_err(message)
    })
}

fn of_text(text: &str) -> Option<u64> {
    let text = text.trim();
    let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(unit)?;
    let unit = unit.trim_start().to_ascii_lowercase();
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| u128::from(*factor))?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let places = u32::try_from(part.len()).ok()?;
    let part = part.parse::<u64>().ok()?;
    let part = u128::from(part).checked_mul(factor)? / 10_u128.checked_pow(places)?;
    let bytes = u128::from(whole.parse::<u64>().ok()?).checked_mul(factor)?.checked_add(part)?;
    u64::try_from(bytes).ok()
}
