//! Long work without the GIL: on a thread, while the caller's thread handles signals and reports progress, or on the
//! caller's thread in slices.

use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use sharddb::{ErrorKind, Progress};

use crate::errors::{self, OrRaise};
use crate::progress::Bar;

/// The time between two checks for signals.
pub(crate) const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Runs `work` on a thread, without the GIL. Every 50 ms, checks for signals and shows its progress on `bar`.
///
/// If a signal handler (KeyboardInterrupt) or the bar raises, cancels the work, waits for it to end, and returns that
/// exception, whatever the result of the work. The progress is shown once more when the work has ended well.
pub(crate) fn run<T: Send, E: Into<Failure> + Send>(
    py: Python<'_>,
    mut bar: Bar<'_>,
    work: impl FnOnce(&Progress) -> Result<T, E> + Send,
) -> PyResult<T> {
    let progress = Progress::new();
    let mut report = || bar.show(&progress);
    let (sender, receiver) = mpsc::sync_channel::<()>(0);
    let receiver = Mutex::new(receiver); // lent to `detach`, which requires `Sync`
    let is_working = || {
        let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
        receiver.recv_timeout(CHECK_EVERY) == Err(mpsc::RecvTimeoutError::Timeout)
    };
    let (outcome, result) = thread::scope(|scope| -> PyResult<_> {
        let progress = &progress;
        let worker = thread::Builder::new().name("sharddb-task".to_string()).spawn_scoped(scope, move || {
            let _disconnects_at_the_end = sender;
            work(progress)
        })?;
        let mut outcome = Ok(());
        while py.detach(is_working) {
            if outcome.is_ok() {
                outcome = py.check_signals().and_then(|()| report());
                if outcome.is_err() {
                    progress.cancel();
                }
            }
        }
        Ok((outcome, py.detach(|| worker.join())))
    })?;
    outcome?;
    let panicked = |_| errors::new(py, ErrorKind::Internal, "a task panicked", None, None);
    let value = result.map_err(panicked)?.map_err(|error| error.into().into_py(py))?;
    report().map(|()| value)
}

/// Runs `work` on a thread, without the GIL, and checks for signals every 50 ms.
///
/// Errors: those of the work. If a signal handler (KeyboardInterrupt) raises, returns that exception at once; the work, which
/// cannot be cancelled, goes on until it ends, and its result is dropped.
pub(crate) fn run_or_leave<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> sharddb::Result<T> + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let receiver = Mutex::new(receiver); // lent to `detach`, which requires `Sync`
    let next = || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(CHECK_EVERY);
    thread::Builder::new().name("sharddb-task".to_string()).spawn(move || {
        let _ = sender.send(work()); // the caller may have been interrupted
    })?;
    loop {
        match py.detach(next) {
            Ok(result) => return result.or_raise(py),
            Err(mpsc::RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(errors::new(py, ErrorKind::Internal, "a task panicked", None, None));
            }
        }
    }
}

/// Why work in slices ended early: a read failed, or an exception was raised.
pub(crate) enum Failure {
    Read(sharddb::Error),
    Raised(PyErr),
}

impl Failure {
    pub(crate) fn into_py(self, py: Python<'_>) -> PyErr {
        match self {
            Failure::Read(error) => errors::to_py(py, &error),
            Failure::Raised(error) => error,
        }
    }
}

impl From<sharddb::Error> for Failure {
    fn from(error: sharddb::Error) -> Failure {
        Failure::Read(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Failure {
        Failure::Raised(error)
    }
}

/// Checks for signals at most every 50 ms, in work that the caller's thread does without the GIL.
pub(crate) struct SignalCheck(Instant);

impl SignalCheck {
    /// Begins; the first check is due after 50 ms.
    pub(crate) fn new() -> SignalCheck {
        SignalCheck(Instant::now())
    }

    /// Takes the GIL and handles signals, if that is due.
    ///
    /// Errors: the exception of a signal handler, such as KeyboardInterrupt.
    #[inline]
    pub(crate) fn check(&mut self) -> PyResult<()> {
        if self.0.elapsed() < CHECK_EVERY {
            return Ok(());
        }
        self.0 = Instant::now();
        Python::attach(|py| py.check_signals())
    }
}
