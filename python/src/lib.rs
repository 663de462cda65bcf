//! The extension module `sharddb._sharddb`, which the Python package re-exports.
//!
//! Each file has one noun and a function `register`, which adds its classes and functions to the module. All `unsafe` code
//! is in `buffer`.

#[expect(unsafe_code, reason = "the buffer protocol, and the promise of a map; the only file with unsafe code")]
mod buffer;
mod errors;
mod file_system;
mod fork;
mod keys;
mod listing;
mod open;
mod reader;
mod task;

use pyo3::prelude::*;

#[pymodule]
fn _sharddb(module: &Bound<'_, PyModule>) -> PyResult<()> {
    fork::register(module)?;
    open::register(module)?;
    reader::register(module)
}
