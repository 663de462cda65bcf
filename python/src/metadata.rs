//! What a database states about itself: specification, `info`, generation, statistics.

use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sharddb::ErrorKind;
use sharddb::read::LeaseState;

use crate::errors::OrRaise;
use crate::open::Open;
use crate::reader::Reader;
use crate::{errors, spec};

/// The file of a data set that has its metadata.
const INFO: &str = "info";

#[pymethods]
impl Reader {
    /// The sharding specification: the object `"sharding"` of `info`, with all members.
    #[getter]
    fn spec<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(spec::to_dict(py, self.snapshot(py)?.spec())?.into_any())
    }

    /// The file `info`, parsed: a `dict`.
    ///
    /// Raises `GenerationGone` if the generation was removed, `NotFound` if there is no such file, which a database that was
    /// opened with `spec` need not have, `InvalidSpec` if it is not JSON, and `Io`.
    #[getter]
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let snapshot = self.snapshot(py)?;
        let text = py.detach(|| snapshot.info()).or_raise(py)?;
        info_of_text(py, text.as_deref(), &snapshot.directory().join(INFO))
    }

    /// The number of the generation in its store; `None` for a bare directory.
    #[getter]
    fn generation(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        Ok(self.snapshot(py)?.generation().map(|id| id.get()))
    }

    /// The current sizes, cache counters and lease, as a dict; see `sharddb.Stats`. Cost: O(shards).
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        of_open(py, &*self.open(py)?)
    }
}

/// Returns the object of the text of a file `info`.
///
/// Errors: `NotFound` without a text; `InvalidSpec` if it is not JSON.
pub(crate) fn info_of_text<'py>(py: Python<'py>, text: Option<&str>, path: &Path) -> PyResult<Bound<'py, PyAny>> {
    let Some(text) = text else {
        let message = format!(
            "expected the file {INFO}, found none (file {}): databases that are opened with `spec` need not have it",
            path.display()
        );
        return Err(errors::new(py, ErrorKind::NotFound, &message, Some(path), None));
    };
    py.import("json")?.call_method1("loads", (text,)).map_err(|error| {
        let message = format!("expected JSON in the file {INFO}, found: {} (file {})", error.value(py), path.display());
        let invalid = errors::new(py, ErrorKind::InvalidSpec, &message, Some(path), None);
        invalid.set_cause(py, Some(error));
        invalid
    })
}

fn of_open<'py>(py: Python<'py>, open: &Open) -> PyResult<Bound<'py, PyDict>> {
    let following = open.database_stats();
    let served = open.snapshot();
    let current = served.stats();
    let (lease, lease_error) = match current.lease {
        LeaseState::Held => (Some("held"), None),
        LeaseState::Unavailable(why) => (Some("unavailable"), Some(why)),
        _ => (None, None),
    };
    let stats = PyDict::new(py);
    stats.set_item("generation", served.generation().map(|id| id.get()))?;
    stats.set_item("shards", current.shards)?;
    stats.set_item("keys", current.keys)?;
    stats.set_item("value_bytes", current.value_bytes)?;
    stats.set_item("file_bytes", current.file_bytes)?;
    stats.set_item("key_file_bytes", current.key_file_bytes)?;
    stats.set_item("verified_minishards", current.verified_minishards)?;
    stats.set_item("cache_hits", current.cache.hits)?;
    stats.set_item("cache_misses", current.cache.misses)?;
    stats.set_item("cache_bytes", current.cache.bytes)?;
    stats.set_item("process_maps", current.process_maps)?;
    stats.set_item("lease", lease)?;
    stats.set_item("lease_error", lease_error)?;
    stats.set_item("open_generations", following.open_generations)?;
    stats.set_item("swaps", following.swaps)?;
    stats.set_item("age", following.age.as_secs_f64())?;
    stats.set_item("failures", following.failures)?;
    stats.set_item("last_error", following.last_error)?;
    Ok(stats)
}
