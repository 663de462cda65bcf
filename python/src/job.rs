//! A build under way. Its long work runs on a thread, while the caller's thread handles signals, shows progress and calls
//! the merge function.

use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use sharddb::write::Candidate;
use sharddb::{ErrorKind, Progress, Published};

use crate::errors::{self, OrRaise};
use crate::merge_function::{Call, Event};
use crate::progress::Bar;
use crate::task::CHECK_EVERY;

/// The time that the GIL is kept after a call of the merge function, so that one acquisition serves a batch of keys: the
/// threads of the build need less than this between two calls, unless they wait for the disk.
const NEXT_CALL: Duration = Duration::from_micros(100);

/// What the caller's thread and the threads of a build share.
pub(crate) struct Job {
    /// Is cancelled when the build shall end without publishing.
    pub(crate) progress: Progress,
    merge: Option<Py<PyAny>>,
    sender: Sender<Event>,
    events: Mutex<Receiver<Event>>,
}

impl Job {
    /// Creates a job, whose merge function is `merge` if the policy for duplicate keys is one.
    pub(crate) fn new(merge: Option<Py<PyAny>>) -> Job {
        let (sender, events) = channel();
        Job { progress: Progress::new(), merge, sender, events: Mutex::new(events) }
    }

    /// Returns where threads of the build send events.
    pub(crate) fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// Shows the merge function to the garbage collector.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.merge)
    }

    /// Asks the caller's thread whether to publish. From its consent on, the work ends as if there were no signal.
    ///
    /// Errors: `Cancelled`.
    pub(crate) fn may_publish(&self) -> sharddb::Result<()> {
        let (reply, consent) = sync_channel(1);
        if self.sender.send(Event::Publish(reply)).is_err() || consent.recv().is_err() {
            self.progress.cancel();
        }
        self.progress.check()
    }

    /// Publishes a candidate, if the job [may publish](Self::may_publish).
    pub(crate) fn publish(&self, candidate: Candidate) -> sharddb::Result<Published> {
        self.may_publish()?;
        candidate.publish()
    }

    /// Runs `work` on a thread. Returns what it returns.
    ///
    /// If a signal handler (KeyboardInterrupt), the bar or the merge function raises, cancels the work, waits for its end,
    /// and returns that exception. None is called after the work [may publish](Self::may_publish), so nothing was published then.
    pub(crate) fn run<T: Send>(
        &self,
        py: Python<'_>,
        mut bar: Bar<'_>,
        work: impl FnOnce(&Job) -> sharddb::Result<T> + Send,
    ) -> PyResult<T> {
        let (served, result) = thread::scope(|scope| {
            let worker = thread::Builder::new().name("sharddb-build".to_string()).spawn_scoped(scope, || {
                let _done = SendsDone(self.sender());
                work(self)
            })?;
            let served = self.serve(py, &mut bar);
            Ok::<_, PyErr>((served, py.detach(|| worker.join())))
        })?;
        let is_shown = served?;
        let panicked = |_| errors::new(py, ErrorKind::Internal, "a build panicked", None, None);
        let value = result.map_err(panicked)?.or_raise(py)?;
        if !is_shown {
            bar.show(&self.progress)?;
        }
        Ok(value)
    }

    /// Handles events and signals until the work has ended. Returns whether it has published, after the last call of the bar.
    ///
    /// Errors: the first exception, after which the work is cancelled.
    fn serve(&self, py: Python<'_>, bar: &mut Bar<'_>) -> PyResult<bool> {
        let mut check = |outcome: &mut PyResult<()>| {
            if outcome.is_ok() {
                *outcome = py.check_signals().and_then(|()| bar.show(&self.progress));
            }
        };
        let (mut outcome, mut is_publishing) = (Ok(()), false);
        let mut checked = Instant::now();
        let mut with_gil = Duration::ZERO;
        loop {
            let event = self.next_event(with_gil).or_else(|| py.detach(|| self.next_event(CHECK_EVERY)));
            with_gil = if matches!(event, Some(Event::Call(_))) { NEXT_CALL } else { Duration::ZERO };
            match event {
                Some(Event::Done) => return outcome.map(|()| is_publishing),
                Some(Event::Call(call)) if outcome.is_ok() => outcome = self.answer(py, call),
                Some(Event::Publish(reply)) => {
                    check(&mut outcome);
                    is_publishing = outcome.is_ok() && reply.send(()).is_ok();
                }
                Some(Event::Call(_)) | None => {}
            }
            if checked.elapsed() >= CHECK_EVERY && !is_publishing {
                checked = Instant::now();
                check(&mut outcome);
            }
            if outcome.is_err() {
                self.progress.cancel();
            }
        }
    }

    /// Returns the next event; `None` if none arrives in this time.
    fn next_event(&self, at_most: Duration) -> Option<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(at_most).ok()
    }

    fn answer(&self, py: Python<'_>, call: Call) -> PyResult<()> {
        match &self.merge {
            Some(function) => call.answer(function.bind(py)),
            None => Ok(()), // the thread that waits fails
        }
    }
}

/// Sends `Done` when the work ends, also by a panic.
struct SendsDone(Sender<Event>);

impl Drop for SendsDone {
    fn drop(&mut self) {
        let _ = self.0.send(Event::Done); // the job, which has the receiver, waits for it
    }
}
