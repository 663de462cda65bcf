//! How far the inputs are read.

use std::sync::atomic::{AtomicU64, Ordering};

/// Work done and to do, in steps: the bytes of a stream, the files of a directory. Written by readers, read by the bar.
#[derive(Debug, Default)]
pub(crate) struct InputProgress {
    done: AtomicU64,
    total: AtomicU64,
    bytes: AtomicU64,
    /// A stream of unknown length is among the inputs.
    endless: AtomicU64,
}

impl InputProgress {
    /// So many steps are done, which were so many bytes.
    pub(crate) fn add_done(&self, steps: u64, bytes: u64) {
        self.done.fetch_add(steps, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// An input begins; `None` = nobody knows how long it is.
    pub(crate) fn add_total(&self, steps: Option<u64>) {
        match steps {
            Some(steps) => self.total.fetch_add(steps, Ordering::Relaxed),
            None => self.endless.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// The bytes that were read.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The part that is done, from 0 to 1; `None` if the total is not known.
    pub(crate) fn fraction(&self) -> Option<f64> {
        let total = self.total.load(Ordering::Relaxed);
        let known = total > 0 && self.endless.load(Ordering::Relaxed) == 0;
        known.then(|| (self.done.load(Ordering::Relaxed) as f64 / total as f64).min(1.0))
    }
}
