//! Long work without the GIL: it runs on a thread while the caller's thread handles signals and reports progress.

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::errors::OrRaise;

/// The time between two checks for signals.
pub(crate) const CHECK_EVERY: Duration = Duration::from_millis(50);

/// What the caller's thread and the work share.
#[derive(Default)]
pub(crate) struct Control {
    /// Becomes true when the work shall end with an error of kind `Cancelled`.
    pub(crate) cancel: Arc<AtomicBool>,
    /// What is done, in units of `total`.
    pub(crate) done: Arc<AtomicU64>,
    /// 0 while it is not known.
    pub(crate) total: Arc<AtomicU64>,
}

/// Runs `work` on a thread. Every 50 ms, checks for signals and calls `progress(done, total)`.
///
/// If a signal handler (KeyboardInterrupt) or `progress` raises, sets `cancel`, waits for the work to end, and returns that
/// exception, whatever the result of the work. `progress` is called once more when the work has ended well.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Control) -> sharddb::Result<T> + Send,
) -> PyResult<T> {
    let control = Control::default();
    let report = || match progress {
        Some(progress) => {
            let numbers = [&control.done, &control.total].map(|number| number.load(Ordering::Relaxed));
            progress.call1((numbers[0], numbers[1])).map(drop)
        }
        None => Ok(()),
    };
    let result = thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel::<()>(0);
        let control = &control;
        let worker = thread::Builder::new().name("sharddb-task".to_string()).spawn_scoped(scope, move || {
            let _ends_with_the_work = sender;
            work(control)
        })?;
        let receiver = std::sync::Mutex::new(receiver); // `detach` lends it to this thread only
        let wait = || {
            let receiver = receiver.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            receiver.recv_timeout(CHECK_EVERY) == Err(mpsc::RecvTimeoutError::Timeout)
        };
        let mut outcome = Ok(());
        while py.detach(wait) {
            if outcome.is_ok() {
                outcome = py.check_signals().and_then(|()| report());
                control.cancel.store(outcome.is_err(), Ordering::Relaxed);
            }
        }
        let result = py.detach(|| worker.join()).unwrap_or_else(|payload| panic::resume_unwind(payload));
        outcome?;
        result.or_raise(py)
    })?;
    report()?;
    Ok(result)
}

/// Checks for signals at most every 50 ms, in work that the caller's thread does in slices.
pub(crate) struct SignalCheck(Instant);

impl SignalCheck {
    pub(crate) fn new() -> SignalCheck {
        SignalCheck(Instant::now())
    }

    /// Handles signals if 50 ms have passed since the last check. Errors: the exception of a signal handler.
    pub(crate) fn check(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.0.elapsed() < CHECK_EVERY {
            return Ok(());
        }
        py.check_signals()?;
        self.0 = Instant::now();
        Ok(())
    }
}
