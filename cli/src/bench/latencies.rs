//! Many durations, and their percentiles.

use std::time::{Duration, Instant};

/// Durations in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(Vec<u64>);

/// Mean, median and 99th percentile of durations, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Percentiles {
    pub(crate) mean: f64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
}

impl Latencies {
    pub(crate) fn push(&mut self, duration: Duration) {
        self.0.push(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Mean, median and 99th percentile; `None` if there are no durations.
    pub(crate) fn percentiles(&self) -> Option<Percentiles> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = |percent: usize| sorted.get(sorted.len() * percent / 100).map(|ns| *ns as f64);
        let mean = sorted.iter().map(|ns| *ns as f64).sum::<f64>() / sorted.len() as f64;
        Some(Percentiles { mean, median: at(50)?, p99: at(99)? })
    }
}

/// The cost of reading the clock, in nanoseconds. Every measured duration includes it.
pub(crate) fn clock() -> f64 {
    let mut looks = Latencies::default();
    for _ in 0..1001 {
        looks.push(Instant::now().elapsed());
    }
    looks.percentiles().map_or(0.0, |found| found.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_durations_that_were_met() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.percentiles(), None);
        (0..200).rev().for_each(|ns| latencies.push(Duration::from_nanos(ns)));
        assert_eq!(latencies.percentiles(), Some(Percentiles { mean: 99.5, median: 100.0, p99: 198.0 }));
    }
}
