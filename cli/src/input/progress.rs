//! How far the inputs are read.

use std::sync::atomic::{AtomicU64, Ordering};

/// Work done and to do, in bytes of streams and files of directories; written by readers, read by the bar.
#[derive(Debug, Default)]
pub(crate) struct InputProgress {
    done: AtomicU64,
    total: AtomicU64,
    /// A stream of unknown length is among the inputs.
    endless: AtomicU64,
}

impl InputProgress {
    pub(crate) fn add_done(&self, amount: u64) {
        self.done.fetch_add(amount, Ordering::Relaxed);
    }

    /// An input begins; `None` = nobody knows how long it is.
    pub(crate) fn add_total(&self, amount: Option<u64>) {
        match amount {
            Some(amount) => self.total.fetch_add(amount, Ordering::Relaxed),
            None => self.endless.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// The part that is done, from 0 to 1; `None` if the total is not known.
    pub(crate) fn fraction(&self) -> Option<f64> {
        let total = self.total.load(Ordering::Relaxed);
        let known = total > 0 && self.endless.load(Ordering::Relaxed) == 0;
        #[expect(clippy::cast_precision_loss, reason = "a bar has fewer steps than a double")]
        known.then(|| (self.done.load(Ordering::Relaxed) as f64 / total as f64).min(1.0))
    }
}
