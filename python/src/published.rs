//! What a build has published.

use std::fmt::Display;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sharddb::ShardingSpec;

use crate::errors::OrRaise;
use crate::pickle::pickle_fields;
use crate::spec;

/// A published generation, which is current when the call that returns it is done. A call that changed nothing publishes
/// nothing, and returns ``None``.
#[pyclass(frozen, eq, hash, module = "sharddb")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Published {
    /// The number of the generation.
    #[pyo3(get)]
    generation: u64,
    /// The JSON text of the specification.
    spec: String,
    /// The number of keys.
    #[pyo3(get)]
    keys: u64,
    /// The number of keys of the generation that was current before; ``None`` if there was none, or it cannot be read.
    #[pyo3(get)]
    keys_before: Option<u64>,
    /// The stored bytes of all values.
    #[pyo3(get)]
    value_bytes: u64,
    /// The bytes of all shard files.
    #[pyo3(get)]
    file_bytes: u64,
    /// The number of shard files.
    #[pyo3(get)]
    shards: u64,
    /// The number of pairs that were dropped because of a duplicate key.
    #[pyo3(get)]
    dropped: u64,
}

pickle_fields!(Published, _published, {
    generation: u64,
    spec: String,
    keys: u64,
    keys_before: Option<u64>,
    value_bytes: u64,
    file_bytes: u64,
    shards: u64,
    dropped: u64,
});

impl From<sharddb::Published> for Published {
    fn from(published: sharddb::Published) -> Published {
        let sharddb::Published { generation, keys_before, content, .. } = published;
        let sharddb::Content { spec, keys, value_bytes, file_bytes, shards, dropped, .. } = content;
        let (generation, spec) = (generation.get(), spec.to_json());
        Published { generation, spec, keys, keys_before, value_bytes, file_bytes, shards, dropped }
    }
}

impl Published {
    /// What was published; `None` if nothing changed.
    pub(crate) fn if_new(published: sharddb::Published) -> Option<Published> {
        published.is_new.then(|| published.into())
    }
}

/// Handles the signals that have arrived while a job was publishing.
///
/// Errors: the exception of a handler (KeyboardInterrupt), with a note that says what was published.
pub(crate) fn check_late_signals(py: Python<'_>, published: &sharddb::Published) -> PyResult<()> {
    check_signals_after(py, published.is_new.then_some(&published.generation))
}

/// Like [`check_late_signals`], for a generation of this name, if one was published.
pub(crate) fn check_signals_after(py: Python<'_>, published: Option<&impl Display>) -> PyResult<()> {
    py.check_signals().inspect_err(|error| {
        if let Some(generation) = published {
            let note = format!("{generation} was published before this exception was raised");
            let _ = error.value(py).call_method1("add_note", (note,)); // an exception whose method raises has no note
        }
    })
}

#[pymethods]
impl Published {
    /// The sharding specification, given or planned: the JSON object "sharding" of `info` as a dict.
    #[getter]
    fn spec<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        spec::to_dict(py, &ShardingSpec::from_json(&self.spec).or_raise(py)?)
    }

    fn __repr__(&self) -> String {
        let Published { generation, keys, keys_before, value_bytes, file_bytes, shards, dropped, .. } = self;
        let before = keys_before.map_or_else(|| "None".to_string(), |keys| keys.to_string());
        format!(
            "Published(generation={generation}, keys={keys}, keys_before={before}, value_bytes={value_bytes}, \
             file_bytes={file_bytes}, shards={shards}, dropped={dropped})"
        )
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Published>()?;
    module.add_function(wrap_pyfunction!(_published, module)?)
}
