//! Counters of the requests of one database: totals, the last minute, and latencies. No lock, no allocation.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bins::Bins;

/// The seconds that the rate covers.
const SECONDS: u64 = 60;

/// The ring has more slots than [`SECONDS`], so that a slot is old before it is used again.
const SLOTS: usize = 64;

/// The bins of latencies, in microseconds. The error of a percentile is at most 1/8.
const BINS: Bins = Bins::with_bits(3);

/// Latencies of 2^42 microseconds (50 days) and more are in the last bin.
const MAX_BINS: usize = 8 * 40;

/// The requests of one database.
#[derive(Debug)]
pub(crate) struct Counters {
    begun: Instant,
    requests: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
    /// The second (above) and the number of requests in it (the low 32 bits).
    ring: [AtomicU64; SLOTS],
    latencies: [AtomicU64; MAX_BINS],
    slowest: AtomicU64,
}

impl Counters {
    pub(crate) fn new() -> Counters {
        Counters {
            begun: Instant::now(),
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            ring: [const { AtomicU64::new(0) }; SLOTS],
            latencies: [const { AtomicU64::new(0) }; MAX_BINS],
            slowest: AtomicU64::new(0),
        }
    }

    /// Counts one request. An absent key is no error.
    pub(crate) fn add(&self, is_error: bool, bytes: u64, latency: Duration) {
        self.requests.fetch_add(1, Relaxed);
        self.errors.fetch_add(u64::from(is_error), Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.slowest.fetch_max(micros, Relaxed);
        if let Some(count) = self.latencies.get(BINS.of(micros).min(MAX_BINS - 1)) {
            count.fetch_add(1, Relaxed);
        }
        self.tick(self.second());
    }

    /// Counts bytes of an answer whose length was not known when it began.
    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts a request in a second, counted from 1.
    fn tick(&self, second: u64) {
        let Some(slot) = self.slot(second) else { return };
        let count = |stored: u64| if stored >> 32 == second { stored + 1 } else { second << 32 | 1 };
        let _ = slot.fetch_update(Relaxed, Relaxed, |stored| Some(count(stored)));
    }

    fn slot(&self, second: u64) -> Option<&AtomicU64> {
        self.ring.get(usize::try_from(second).ok()? % SLOTS)
    }

    fn second(&self) -> u64 {
        self.begun.elapsed().as_secs() + 1
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "uptime_s": self.begun.elapsed().as_secs(),
            "requests": self.requests.load(Relaxed),
            "errors": self.errors.load(Relaxed),
            "bytes_sent": self.bytes.load(Relaxed),
            "requests_per_s": self.last_minute(self.second()),
            "latency_us": {
                "p50": self.percentile(50), "p90": self.percentile(90), "p99": self.percentile(99),
                "max": self.slowest.load(Relaxed),
            },
        })
    }

    /// The requests of each of the last seconds, the oldest first. The last one is not over.
    fn last_minute(&self, now: u64) -> Vec<u64> {
        let count = |back: u64| {
            let second = now.checked_sub(back).filter(|second| *second > 0)?;
            let stored = self.slot(second)?.load(Relaxed);
            (stored >> 32 == second).then_some(stored & u64::from(u32::MAX))
        };
        (0..SECONDS).rev().map(|back| count(back).unwrap_or(0)).collect()
    }

    /// The latency that `percent` of the requests do not exceed, in microseconds; 0 without requests.
    fn percentile(&self, percent: u64) -> u64 {
        let counts: Vec<u64> = self.latencies.iter().map(|count| count.load(Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        let rank = (total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let bin = counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        bin.map_or(0, |bin| BINS.last(bin).min(self.slowest.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_numbers() {
        let counters = Counters::new();
        assert_eq!(counters.percentile(99), 0);
        for micros in 1..=100 {
            counters.add(micros == 7, 10, Duration::from_micros(micros));
        }
        let p50 = counters.percentile(50);
        assert!((50..=55).contains(&p50), "{p50}");
        assert_eq!(counters.percentile(100), 100, "not beyond the slowest");
        let json = counters.json();
        assert_eq!((&json["requests"], &json["errors"], &json["bytes_sent"]), (&100.into(), &1.into(), &1000.into()));
    }

    #[test]
    fn a_very_long_latency_is_in_the_last_bin() {
        let counters = Counters::new();
        counters.add(false, 0, Duration::MAX);
        assert_eq!(counters.percentile(50), (1 << 42) - 1);
    }

    #[test]
    fn the_last_minute_ends_with_this_second() {
        let counters = Counters::new();
        for second in [1, 2, 2, 61, 61, 61] {
            counters.tick(second);
        }
        let minute = counters.last_minute(61);
        assert_eq!((minute.len(), minute[0], minute[1], minute[59]), (60, 2, 0, 3));
        assert_eq!(counters.last_minute(60).iter().sum::<u64>(), 3);
        assert_eq!(counters.last_minute(200).iter().sum::<u64>(), 0);
        counters.tick(65); // the slot of second 1
        assert_eq!(counters.last_minute(65)[59], 1);
    }
}
