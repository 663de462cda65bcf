//! The extension module `sharddb._sharddb`, which the Python package re-exports.
//!
//! Each file has one noun and a function `register`, which adds its classes and functions to the module. All `unsafe` code
//! is in `buffer`.

mod batch;
#[expect(unsafe_code, reason = "the buffer protocol, and the promise of a map; the only file with unsafe code")]
mod buffer;
mod database;
mod errors;
mod file_system;
mod fork;
mod iter;
mod keys;
mod listing;
mod metadata;
mod open;
mod pickle;
mod reader;
mod report;
mod snapshot;
mod spec;
mod task;
mod value;

use pyo3::prelude::*;

#[pymodule]
fn _sharddb(module: &Bound<'_, PyModule>) -> PyResult<()> {
    fork::register(module)?;
    file_system::register(module)?;
    reader::register(module)?;
    database::register(module)?;
    snapshot::register(module)?;
    value::register(module)?;
    iter::register(module)?;
    report::register(module)?;
    pickle::register(module)?;
    open::register(module)
}
