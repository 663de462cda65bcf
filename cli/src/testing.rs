//! A limit for unit tests of what could hang.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// The time after which something that normally takes a moment has hung: 20 stalls of 5 s fit.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(120);

/// Runs something on another thread, and fails if it does not return.
#[track_caller]
pub(crate) fn must_return<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, returned) = channel();
    thread::spawn(move || sender.send(run()));
    match returned.recv_timeout(WATCHDOG) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("it does not return"),
        Err(RecvTimeoutError::Disconnected) => panic!("it panicked"),
    }
}
