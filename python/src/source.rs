//! Databases as sources of other functions: open ones, or paths.

use std::path::PathBuf;

use pyo3::prelude::*;
use sharddb::{OpenOptions, Snapshot};

use crate::errors::OrRaise;
use crate::reader::Reader;

/// Returns the generation of an open database, or opens a path for positioned reads.
pub(crate) fn open(source: &Bound<'_, PyAny>) -> PyResult<Snapshot> {
    let py = source.py();
    if let Ok(reader) = source.cast::<Reader>() {
        return reader.get().snapshot(py);
    }
    let path: PathBuf = source.extract()?;
    py.detach(|| OpenOptions::new().open(&path).map(|db| db.snapshot())).or_raise(py)
}
