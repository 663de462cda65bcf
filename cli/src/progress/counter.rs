//! Counts of a phase, written by the work and read by the display.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::progress::status::{Amount, Status, part};

/// The unit of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bytes of the data.
    Bytes,
    /// Things with a name in the plural.
    Items(&'static str),
    /// Steps that mean nothing to the user: only their part of the total is shown.
    Steps,
}

/// The counts of a phase. Can be set from any thread.
#[derive(Debug)]
pub(crate) struct Counter {
    phase: &'static str,
    unit: Unit,
    done: Arc<AtomicU64>,
    total: AtomicU64,
}

impl Counter {
    /// A counter of nothing yet, with an unknown total.
    pub(crate) fn new(phase: &'static str, unit: Unit) -> Arc<Counter> {
        Arc::new(Counter { phase, unit, done: Arc::default(), total: AtomicU64::new(0) })
    }

    /// Sets both counts; a total of 0 is unknown.
    pub(crate) fn set(&self, done: u64, total: u64) {
        self.set_total(total);
        self.done.store(done, Ordering::Relaxed);
    }

    pub(crate) fn set_total(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }

    /// The number of units that are done, for work that counts by itself.
    pub(crate) fn done(&self) -> &Arc<AtomicU64> {
        &self.done
    }

    /// The status of phase `number`.
    pub(crate) fn status(&self, number: u64) -> Status {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        let capped = if total > 0 { done.min(total) } else { done };
        let amount = match self.unit {
            Unit::Bytes => Amount::Bytes(capped),
            Unit::Items(name) => Amount::Items(capped, name),
            Unit::Steps => Amount::Unknown,
        };
        Status { phase: self.phase, number, part: part(done, total), amount }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_never_exceed_the_total() {
        let counter = Counter::new("copy", Unit::Bytes);
        counter.add(5);
        assert_eq!(counter.status(0).amount, Amount::Bytes(5));
        assert_eq!(counter.status(0).part, None);
        counter.set(12, 10);
        assert_eq!((counter.status(0).amount, counter.status(0).part), (Amount::Bytes(10), Some(1.0)));
    }

    #[test]
    fn steps_are_shown_as_a_part_only() {
        let counter = Counter::new("verify", Unit::Steps);
        counter.set(1, 4);
        assert_eq!(counter.status(0), Status { phase: "verify", number: 0, part: Some(0.25), amount: Amount::Unknown });
    }
}
