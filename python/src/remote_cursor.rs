//! `RemoteCursor`: a position in the pairs of a remote generation.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use sharddb::ErrorKind;
use sharddb_remote::RemoteScan;

use crate::errors;
use crate::remote_operation::{Outcome, Page, RemoteOperation};

/// A position in the pairs of a generation, in storage order.
#[pyclass(frozen, module = "sharddb._sharddb")]
pub(crate) struct RemoteCursor {
    /// `None` once it was used: each batch comes with the next position.
    rest: Mutex<Option<RemoteScan>>,
    has_preambles: bool,
}

impl RemoteCursor {
    pub(crate) fn new(rest: RemoteScan, has_preambles: bool) -> RemoteCursor {
        RemoteCursor { rest: Mutex::new(Some(rest)), has_preambles }
    }
}

#[pymethods]
impl RemoteCursor {
    /// Returns the operation that reads the next pairs: a list of them and the next position, or `None` at the end.
    ///
    /// Raises `InvalidInput` if it was called before.
    fn next(&self, py: Python<'_>) -> PyResult<RemoteOperation> {
        let rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut rest) = rest else {
            let message = "expected the last position of an iteration, found one that was used before";
            return Err(errors::new(py, ErrorKind::InvalidInput, message, None, None));
        };
        let has_preambles = self.has_preambles;
        Ok(RemoteOperation::of_future(move |mailbox| async move {
            let pairs = mailbox.run(rest.next_batch()).await?;
            Ok(Outcome::Page(pairs.map(|pairs| Page { pairs, rest, has_preambles })))
        }))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RemoteCursor>()
}
