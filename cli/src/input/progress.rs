//! The progress of reading the inputs.

use std::sync::atomic::{AtomicU64, Ordering};

/// Steps done and steps in all. A step is a byte of a stream or a file of a directory.
/// Readers write it, and the progress bar reads it.
#[derive(Debug, Default)]
pub(crate) struct InputProgress {
    done: AtomicU64,
    /// Steps of the inputs that are begun.
    total: AtomicU64,
    /// Steps of all inputs; 0 if unknown.
    announced: AtomicU64,
    bytes: AtomicU64,
    /// Number of streams of unknown length among the inputs.
    endless: AtomicU64,
}

impl InputProgress {
    /// Adds steps that are done, and the bytes that they took.
    pub(crate) fn add_done(&self, steps: u64, bytes: u64) {
        self.done.fetch_add(steps, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Announces the steps of all inputs before the first is read; `None` if one is unknown.
    pub(crate) fn announce(&self, steps: Option<u64>) {
        match steps {
            Some(steps) => self.announced.store(steps, Ordering::Relaxed),
            None => self.add_total(None),
        }
    }

    /// Adds the steps of an input; `None` if its length is unknown.
    pub(crate) fn add_total(&self, steps: Option<u64>) {
        match steps {
            Some(steps) => self.total.fetch_add(steps, Ordering::Relaxed),
            None => self.endless.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// The number of bytes read.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The part that is done, from 0 to 1; `None` if the total is unknown.
    pub(crate) fn fraction(&self) -> Option<f64> {
        let total = self.announced.load(Ordering::Relaxed).max(self.total.load(Ordering::Relaxed));
        let known = total > 0 && self.endless.load(Ordering::Relaxed) == 0;
        known.then(|| (self.done.load(Ordering::Relaxed) as f64 / total as f64).min(1.0))
    }
}
