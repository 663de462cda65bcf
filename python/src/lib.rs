//! The extension module `sharddb._sharddb`, which the Python package re-exports.
//!
//! Each file has one noun and a function `register`, which adds its classes and functions to the module. All `unsafe` code
//! is in `buffer`.

mod arrow_input;
mod arrow_output;
mod async_lookup;
mod batch;
mod bucket;
#[expect(unsafe_code, reason = "the buffer protocol, and the promise of a map; the only file with unsafe code")]
mod buffer;
mod bytes_like;
mod command;
mod database;
mod diff;
mod errors;
mod exclusive;
mod file_system;
mod fork;
mod iter;
mod job;
mod keys;
mod listing;
mod loader;
mod merge;
mod merge_function;
mod metadata;
mod open;
mod options;
mod pair_input;
mod pairs;
mod part_plan;
mod parts;
mod pickle;
mod plan;
mod preamble;
mod progress;
mod published;
mod python_client;
mod python_store;
mod python_upload;
mod reader;
mod remote_cursor;
mod remote_handle;
mod remote_operation;
mod remote_outcome;
mod remote_places;
mod report;
mod size;
mod snapshot;
mod source;
mod spec;
mod spill_writer;
mod store;
mod task;
mod update;
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
    arrow_output::register(module)?;
    batch::register(module)?;
    bucket::register(module)?;
    command::register(module)?;
    iter::register(module)?;
    report::register(module)?;
    pickle::register(module)?;
    remote_cursor::register(module)?;
    remote_handle::register(module)?;
    remote_operation::register(module)?;
    diff::register(module)?;
    loader::register(module)?;
    merge::register(module)?;
    part_plan::register(module)?;
    parts::register(module)?;
    plan::register(module)?;
    progress::register(module)?;
    published::register(module)?;
    python_client::register(module)?;
    spill_writer::register(module)?;
    store::register(module)?;
    update::register(module)
}
