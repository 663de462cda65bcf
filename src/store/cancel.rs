//! A flag by which another thread ends what takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// Whether to go on; never cancelled by default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub(super) fn by(flag: Arc<AtomicBool>) -> Cancel {
        Cancel(flag)
    }

    /// Errors: `Cancelled` once the flag is set.
    pub(super) fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Cancelled, "the adoption was cancelled: nothing was published")),
            false => Ok(()),
        }
    }
}
