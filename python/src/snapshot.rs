//! `Snapshot`: a reader of one generation.

use pyo3::prelude::*;

use crate::open::Open;
use crate::reader::Reader;

/// One generation of a database: all reads see the same pairs, whatever is published. Returned by `snapshot`.
///
/// The generation stays on disk until the snapshot is closed or dropped.
#[pyclass(frozen, extends = Reader, module = "sharddb")]
pub(crate) struct Snapshot;

impl Snapshot {
    pub(crate) fn new(py: Python<'_>, open: Open) -> PyResult<Py<Snapshot>> {
        Py::new(py, PyClassInitializer::from(Reader::new(open)).add_subclass(Snapshot))
    }
}

#[pymethods]
impl Reader {
    /// Returns a snapshot of the generation that is served now. Its `path` is the directory of the generation.
    #[pyo3(name = "snapshot")]
    fn new_snapshot(&self, py: Python<'_>) -> PyResult<Py<Snapshot>> {
        Snapshot::new(py, self.open(py)?.pinned())
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Snapshot>()
}
