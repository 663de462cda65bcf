//! Merge functions of the caller, which combine the values of a key in the caller's thread.

use std::io;
use std::sync::mpsc::{Sender, SyncSender, sync_channel};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use sharddb::OnDuplicate;

use crate::bytes_like;
use crate::preamble;

/// What a thread of a build passes to the caller's thread.
pub(crate) enum Event {
    /// A call of the merge function.
    Call(Call),
    /// The work is about to publish, and waits for the reply; it is dropped if nothing shall be published.
    Publish(SyncSender<()>),
    /// The work has ended.
    Done,
}

/// A call of the merge function that a thread of a build requests, and waits for.
pub(crate) struct Call {
    key: u64,
    values: Vec<Vec<u8>>,
    /// Takes the new value; is dropped if there is none.
    reply: SyncSender<Vec<u8>>,
}

/// Returns a policy that requests a call for each key.
pub(crate) fn policy(events: Sender<Event>) -> OnDuplicate {
    OnDuplicate::merge(move |key, values, to| {
        let mut all = Vec::new();
        while let Some(value) = values.next()? {
            all.push(value.to_vec());
        }
        let (reply, merged) = sync_channel(1);
        let ended = || io::Error::other("the merge function raised an exception, or the build was interrupted");
        events.send(Event::Call(Call { key, values: all, reply })).map_err(|_| ended())?;
        to.write_all(&merged.recv().map_err(|_| ended())?)
    })
}

impl Call {
    /// Calls the function, and passes its result to the thread that waits.
    ///
    /// Errors: what the function raises; `TypeError` if it returns no bytes.
    pub(crate) fn answer(self, function: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = function.py();
        let values = PyList::new(py, self.values.iter().map(|value| PyBytes::new(py, value)))?;
        let merged = function.call1((self.key, values))?;
        if preamble::of(&merged)?.is_some_and(|preamble| !preamble.as_bytes().is_empty()) {
            let message = format!("expected bytes without a preamble from the merge function for key {}", self.key);
            return Err(PyTypeError::new_err(message));
        }
        let mut value = Vec::new();
        bytes_like::append(&merged, &mut value).map_err(|error| {
            let message = format!("expected bytes from the merge function for key {}: {}", self.key, error.value(py));
            PyTypeError::new_err(message)
        })?;
        let _ = self.reply.send(value); // a thread that has failed meanwhile does not wait
        Ok(())
    }
}
