//! A flag with which another thread cancels a long operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// The cancellation flag of an operation. The default is never set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub(super) fn with_flag(flag: Arc<AtomicBool>) -> Cancel {
        Cancel(flag)
    }

    /// Checks the flag.
    ///
    /// Errors: `Cancelled` once the flag is set.
    pub(super) fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Cancelled, "the adoption was cancelled: nothing was published")),
            false => Ok(()),
        }
    }
}
