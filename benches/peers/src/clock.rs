//! Two clocks: processor time of a thread, and wall time.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use crate::reader::Result;

/// Runs `work` and returns the processor time of this thread in nanoseconds. Other load on the machine affects it less
/// than wall time.
pub fn on_cpu<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let start = thread_cpu_ns();
    let result = work()?;
    Ok((result, thread_cpu_ns() - start))
}

/// Runs `work` and returns the wall time in nanoseconds.
pub fn on_wall<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let start = Instant::now();
    let result = work()?;
    Ok((result, start.elapsed().as_nanos() as f64))
}

fn thread_cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
