//! Detects that this process is a forked child, in which the leases of its databases are those of the parent.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::python_client;

static FORKS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of forks by Python between the first process and this one.
///
/// A handle that was opened at another number belongs to a parent. Cost: one load; a process id would be a system call.
#[inline]
pub(crate) fn count() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

#[pyfunction]
fn _after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    python_client::forget_calls();
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let os = py.import("os")?;
    if !os.hasattr("register_at_fork")? {
        return Ok(()); // a system without fork
    }
    let hooks = PyDict::new(py);
    hooks.set_item("after_in_child", wrap_pyfunction!(_after_fork_in_child, module)?)?;
    os.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}
