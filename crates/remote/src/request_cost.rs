//! What a request costs: a number, which is given, or measured by the times of responses.

use std::sync::Mutex;
use std::time::Duration;

use sharddb_format::internal::locks::lock;

use crate::request::{Response, Timing};

/// What a request costs, in bytes that arrive in the same time.
///
/// While a request waits for its first byte, latency times bandwidth could arrive, for all requests in flight together.
/// Everything that is read to save requests follows from this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestCost(u64);

/// Shorter bodies say little about the rate: much of them arrives with the head of the response.
const LONG_BODY: u64 = 256 << 10;

/// The rate is that of about this many newest bytes.
const RATE_BYTES: u64 = 64 << 20;

/// What responses say about the cost of a request.
#[derive(Debug, Default)]
pub(crate) struct MeasuredCost(Mutex<Times>);

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// The least time from a request to its response, in nanoseconds: what a request waits for itself, and not for others.
    least_wait: Option<u64>,
    /// The bytes of long bodies, and the nanoseconds in which they arrived.
    bytes: u64,
    transfer: u64,
}

impl RequestCost {
    /// The cost at 20 ms, 100 MB/s and 32 requests in flight.
    pub(crate) const OF_OBJECT_STORES: RequestCost = RequestCost(64 << 10);

    /// The cost of a file, the least one.
    pub(crate) const OF_FILES: RequestCost = RequestCost(16 << 10);

    /// The greatest cost.
    const MOST: RequestCost = RequestCost(2 << 20);

    /// Requests grow up to this many times their cost, so that nearly all of their time goes into bytes.
    const LONGEST_COSTS: u64 = 64;

    /// And up to this many bytes, so that long parts arrive in parallel.
    const LONGEST: u64 = 4 << 20;

    /// Creates a cost of `bytes`, or the nearest one: from 16 KiB to 2 MiB.
    pub(crate) fn new(bytes: u64) -> RequestCost {
        RequestCost(bytes).clamp(RequestCost::OF_FILES, RequestCost::MOST)
    }

    /// Whether to read `bytes` that are not wanted if that saves `requests`.
    pub(crate) fn pays_for(self, bytes: u64, requests: u64) -> bool {
        bytes < self.0.saturating_mul(requests)
    }

    /// Upper bound on the bytes of a request for several ranges.
    pub(crate) fn longest(self) -> u64 {
        (self.0 * RequestCost::LONGEST_COSTS).min(RequestCost::LONGEST)
    }
}

impl MeasuredCost {
    /// Takes the times of a response, if it has them.
    pub(crate) fn observe(&self, response: &Response) {
        let Some(Timing { wait, transfer }) = response.timing else { return };
        let (wait, len) = (nanos(wait), response.body.as_slice().len() as u64);
        let mut times = lock(&self.0);
        times.least_wait = Some(times.least_wait.map_or(wait, |least| least.min(wait)));
        if len >= LONG_BODY {
            times.bytes = times.bytes.saturating_add(len);
            times.transfer = times.transfer.saturating_add(nanos(transfer));
            if times.bytes > RATE_BYTES {
                times.bytes /= 2;
                times.transfer /= 2;
            }
        }
    }

    /// Returns the least wait times the rate of a long body; `None` before there was one.
    pub(crate) fn get(&self) -> Option<RequestCost> {
        let Times { least_wait, bytes, transfer } = *lock(&self.0);
        let wait = least_wait.filter(|_| bytes > 0)?;
        let cost = u128::from(wait) * u128::from(bytes) / u128::from(transfer.max(1));
        Some(RequestCost::new(u64::try_from(cost).unwrap_or(u64::MAX)))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Body;

    fn response(len: usize, wait: u64, transfer: u64) -> Response {
        let timing = Timing { wait: Duration::from_millis(wait), transfer: Duration::from_millis(transfer) };
        Response { timing: Some(timing), ..Response::new(Body::new(vec![0; len]), None, None) }
    }

    #[test]
    fn the_cost_is_latency_times_rate() {
        let cost = MeasuredCost::default();
        cost.observe(&Response::new(Body::new(vec![0; 1 << 20]), None, None));
        cost.observe(&response(100, 20, 0));
        assert_eq!(cost.get(), None);
        // 10 MB/s
        (0..3).for_each(|_| cost.observe(&response(1_000_000, 25, 100)));
        assert_eq!(cost.get(), Some(RequestCost::new(200_000)));
        // 5 MB/s from now on
        (0..500).for_each(|_| cost.observe(&response(1_000_000, 80, 200)));
        let slower = cost.get().unwrap();
        assert!((RequestCost::new(100_000)..RequestCost::new(101_000)).contains(&slower), "{slower:?}");
    }

    #[test]
    fn times_of_zero_have_the_nearest_cost() {
        for (wait, transfer, expected) in [(20, 0, u64::MAX), (0, 100, 0), (0, 0, 0)] {
            let cost = MeasuredCost::default();
            cost.observe(&response(1 << 20, wait, transfer));
            assert_eq!(cost.get(), Some(RequestCost::new(expected)));
        }
    }
}
