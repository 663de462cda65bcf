//! A writer that one thread of one process uses at a time, and that closes after an error.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use pyo3::prelude::*;
use sharddb::ErrorKind;

use crate::{errors, fork};

/// Holds a writer until it is taken or a use of it fails.
pub(crate) struct Exclusive<T> {
    /// What it is, for messages.
    noun: &'static str,
    path: PathBuf,
    /// Value of [`fork::count`] when it was created.
    forks: u64,
    /// `None` after it was taken or dropped.
    writer: Mutex<Option<T>>,
}

impl<T: Send> Exclusive<T> {
    pub(crate) fn new(noun: &'static str, path: PathBuf, writer: T) -> Exclusive<T> {
        Exclusive { noun, path, forks: fork::count(), writer: Mutex::new(Some(writer)) }
    }

    /// Returns the path, for messages.
    pub(crate) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Calls `f` with the writer. Drops the writer after an error.
    pub(crate) fn write(&self, py: Python<'_>, f: impl FnOnce(&mut T) -> PyResult<()>) -> PyResult<()> {
        let mut writer = self.lock(py)?;
        let result = f(writer.as_mut().ok_or_else(|| self.closed(py))?);
        if result.is_err() {
            let failed = writer.take();
            py.detach(|| drop(failed)); // removes files
        }
        result
    }

    /// Returns the writer. Later uses are errors.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<T> {
        self.lock(py)?.take().ok_or_else(|| self.closed(py))
    }

    /// Drops the writer, if there still is one.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        let writer = self.lock(py)?.take();
        py.detach(|| drop(writer));
        Ok(())
    }

    /// Calls `f` with the writer, for the garbage collector. Does nothing while another use is under way.
    pub(crate) fn visit<E>(&self, f: impl FnOnce(&T) -> Result<(), E>) -> Result<(), E> {
        match self.writer.try_lock().as_deref() {
            Ok(Some(writer)) => f(writer),
            _ => Ok(()),
        }
    }

    /// Drops the writer, for the garbage collector. Does nothing while another use is under way.
    pub(crate) fn clear(&self) {
        if let Ok(mut writer) = self.writer.try_lock() {
            *writer = None;
        }
    }

    /// Locks the writer. Does not wait, because the other use may be one of this thread.
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Option<T>>> {
        let noun = self.noun;
        if self.forks != fork::count() {
            let message = format!("expected the process that created the {noun}, found a forked child of it");
            return Err(self.invalid(py, &message));
        }
        match self.writer.try_lock() {
            Ok(writer) => Ok(writer),
            Err(TryLockError::Poisoned(writer)) => Ok(PoisonError::into_inner(writer)),
            Err(TryLockError::WouldBlock) => {
                let message = format!("expected one use of the {noun} at a time, found another that is under way");
                Err(self.invalid(py, &message))
            }
        }
    }

    #[cold]
    fn closed(&self, py: Python<'_>) -> PyErr {
        let message =
            format!("expected an open {}, found one that has finished or failed: create another one", self.noun);
        self.invalid(py, &message)
    }

    #[cold]
    fn invalid(&self, py: Python<'_>, message: &str) -> PyErr {
        errors::new(py, ErrorKind::InvalidInput, message, Some(&self.path), None)
    }
}
