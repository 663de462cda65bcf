//! What a long operation shares with other threads: a flag that cancels it, and the number of bytes done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// The cancellation flag of an operation, and its progress. The default flag is never set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel {
    flag: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
}

impl Cancel {
    pub(crate) fn by(flag: &Arc<AtomicBool>) -> Cancel {
        Cancel { flag: flag.clone(), ..Cancel::default() }
    }

    pub(crate) fn set_flag(&mut self, flag: Arc<AtomicBool>) {
        self.flag = flag;
    }

    pub(crate) fn set_progress(&mut self, bytes: Arc<AtomicU64>) {
        self.bytes = bytes;
    }

    /// Adds bytes that are done.
    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Checks the flag.
    ///
    /// Errors: `Cancelled` once the flag is set.
    pub(crate) fn check(&self) -> Result<()> {
        match self.is_set() {
            true => Err(Error::new(ErrorKind::Cancelled, "the operation was cancelled: nothing was published")),
            false => Ok(()),
        }
    }
}
