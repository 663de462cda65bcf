//! The command `sharddb`, which `sharddb.__main__` runs.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command, and returns its exit code. It owns its process, as `sharddb_cli::run` says.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 hands over what it has converted")]
fn _run_command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| sharddb_cli::run(&arguments))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(_run_command, module)?)
}
