//! What a build has published.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::spec;

/// A published generation, which is current when the call that returns it is done.
#[pyclass(frozen, module = "sharddb")]
pub(crate) struct Published(sharddb::Published);

impl From<sharddb::Published> for Published {
    fn from(published: sharddb::Published) -> Published {
        Published(published)
    }
}

#[pymethods]
impl Published {
    /// The number of the generation.
    #[getter]
    fn generation(&self) -> u64 {
        self.0.generation.get()
    }

    /// The sharding specification, given or planned: the JSON object "sharding" of `info` as a dict.
    #[getter]
    fn spec<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        spec::to_dict(py, &self.0.spec)
    }

    /// The number of keys.
    #[getter]
    fn keys(&self) -> u64 {
        self.0.keys
    }

    /// The stored bytes of all values.
    #[getter]
    fn value_bytes(&self) -> u64 {
        self.0.value_bytes
    }

    /// The bytes of all shard files.
    #[getter]
    fn file_bytes(&self) -> u64 {
        self.0.file_bytes
    }

    /// The number of shard files.
    #[getter]
    fn shards(&self) -> u64 {
        self.0.shards
    }

    /// The number of pairs that were dropped because of a duplicate key.
    #[getter]
    fn dropped(&self) -> u64 {
        self.0.dropped
    }

    fn __eq__(&self, other: &Published) -> bool {
        self.0 == other.0
    }

    fn __repr__(&self) -> String {
        let sharddb::Published { generation, keys, value_bytes, file_bytes, shards, dropped, .. } = self.0;
        format!(
            "Published(generation={}, keys={keys}, value_bytes={value_bytes}, file_bytes={file_bytes}, \
             shards={shards}, dropped={dropped})",
            generation.get()
        )
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Published>()
}
