//! The progress of one shard.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::threads::progress::Progress;

/// Counts what is verified of a shard: up to `total`, so that the counts of all shards add up to that of the
/// verification.
#[derive(Clone, Copy)]
pub(super) struct Steps<'a> {
    pub(super) progress: &'a Progress,
    pub(super) counted: &'a AtomicU64,
    pub(super) total: u64,
}

impl Steps<'_> {
    pub(super) fn add(self, bytes: u64) {
        let add = |counted: u64| Some(counted.saturating_add(bytes).min(self.total));
        let before = self.counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).unwrap_or(self.total);
        self.progress.add(bytes.min(self.total - before));
    }

    /// Errors: `Cancelled`. The rest of the shard may be left out then: nobody sees the report.
    pub(super) fn check(self) -> Result<()> {
        self.progress.check()
    }
}
