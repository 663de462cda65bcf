//! Two clocks: what a thread has computed, and what the wall says.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use crate::reader::Result;

/// Runs `work` and says how much processor time of this thread it took, in nanoseconds: what others do to the
/// machine counts less.
pub fn on_cpu<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let start = thread_cpu_ns();
    let result = work()?;
    Ok((result, thread_cpu_ns() - start))
}

/// Runs `work` and says how long it took, in nanoseconds.
pub fn on_wall<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let start = Instant::now();
    let result = work()?;
    Ok((result, start.elapsed().as_nanos() as f64))
}

fn thread_cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
