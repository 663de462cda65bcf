//! Progress and cancellation of an upload or a download.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sharddb::write::{BuildOptions, BuildPhase, BuildProgress};
use sharddb_format::{Error, ErrorKind, Result};

/// The bytes of an upload, download or verification, updated while it runs. Read it from another thread.
///
/// ```
/// let progress = sharddb_remote::TransferProgress::new();
/// assert_eq!((progress.done(), progress.total()), (0, 0));
/// ```
#[derive(Debug, Default)]
pub struct TransferProgress {
    done: AtomicU64,
    total: AtomicU64,
}

impl TransferProgress {
    /// Creates a progress of zero bytes.
    pub fn new() -> TransferProgress {
        TransferProgress::default()
    }

    /// Returns the bytes done, including those that an earlier attempt had transferred.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns the total bytes; 0 if unknown.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }
}

/// What an operation checks and reports while it transfers bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Transfer {
    pub(super) progress: Arc<TransferProgress>,
    pub(super) cancel: Arc<AtomicBool>,
    /// The progress of a build, of which this transfer is a phase.
    build: Option<Arc<BuildProgress>>,
}

impl Transfer {
    /// Returns a transfer that the flag of a build cancels.
    pub(super) fn cancelled_by(options: &BuildOptions) -> Transfer {
        Transfer { cancel: options.cancel.clone(), ..Transfer::default() }
    }

    /// Returns a transfer that the flag of a build cancels, and that is its phase `Write`.
    pub(super) fn phase_of(options: &BuildOptions) -> Transfer {
        Transfer { build: Some(options.progress.clone()), ..Transfer::cancelled_by(options) }
    }

    /// Begins an operation on this number of bytes.
    pub(super) fn begin(&self, total: u64) {
        self.progress.done.store(0, Ordering::Relaxed);
        self.progress.total.store(total, Ordering::Relaxed);
        if let Some(build) = &self.build {
            build.begin(BuildPhase::Write, total);
        }
    }

    /// Adds bytes that are done.
    pub(super) fn add(&self, bytes: u64) {
        self.progress.done.fetch_add(bytes, Ordering::Relaxed);
        if let Some(build) = &self.build {
            build.add(bytes);
        }
    }

    /// Checks the flag.
    ///
    /// Errors: `Cancelled` once the flag is set.
    pub(super) fn check(&self) -> Result<()> {
        match self.cancel.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Cancelled, "the operation was cancelled: nothing was published")),
            false => Ok(()),
        }
    }
}
