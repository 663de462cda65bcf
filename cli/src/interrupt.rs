//! Signals: they set a cancel flag, the work cleans up, and the run ends with the exit code of the signal.
//!
//! A run without anything to remove ends at once. A run that holds a [`Cleanup`] has a grace period, in which the work
//! sees the flag, returns and removes its files. A second signal, or the end of the grace period, ends the process.
//! Every interrupted run says so in one line. Once it has published or written its output, a signal does not make it fail.
//!
//! SIGXFSZ (a file would exceed the limit of `ulimit -f`) does not end the process: the write fails, and its error
//! names the file.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use sharddb::Progress;
use sharddb::internal::lock;

use crate::exit::Exit;

/// The state of signals, shared by everything that can be cancelled.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<State>);

#[derive(Default)]
struct State {
    cancel: Arc<AtomicBool>,
    /// The exit code of the first signal; 0 if none arrived.
    code: AtomicU8,
    cleanups: AtomicUsize,
    /// Whether a signal is ending the process.
    is_ending: AtomicBool,
    /// The grace period in milliseconds, if it is longer than [`GRACE`].
    grace: AtomicU64,
    stage: Mutex<Stage>,
}

/// How far a run is with what it does once and as a whole.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// It has no such thing to do.
    #[default]
    Never,
    Publishing,
    Published,
    Writing,
    Written,
}

impl Stage {
    fn is_done(self) -> bool {
        matches!(self, Stage::Published | Stage::Written)
    }
}

/// A guard. While one exists, a signal waits for the work to end.
pub(crate) struct Cleanup(Arc<State>);

impl Interrupt {
    /// Handles SIGINT, SIGTERM and SIGXFSZ.
    ///
    /// Errors: the operating system refuses a handler or a thread; SIGINT and SIGTERM keep their default action then.
    #[cfg(unix)]
    pub(crate) fn install() -> io::Result<Interrupt> {
        use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};

        let interrupt = Interrupt::default();
        signal_hook::flag::register(SIGXFSZ, Arc::default())?; // only replaces the default action; the flag is not read
        let state = Arc::clone(&interrupt.0);
        let (sender, receiver) = std::sync::mpsc::channel::<signal_hook::iterator::Signals>();
        std::thread::Builder::new().name("signals".to_string()).spawn(move || {
            let Ok(mut signals) = receiver.recv() else { return };
            for signal in signals.forever() {
                state.stop(if signal == SIGTERM { Exit::Terminated } else { Exit::Interrupted });
            }
        })?;
        _ = sender.send(signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?); // the thread waits for it
        Ok(interrupt)
    }

    /// Installs nothing: the operating system ends the process.
    #[cfg(not(unix))]
    pub(crate) fn install() -> io::Result<Interrupt> {
        Ok(Interrupt::default())
    }

    /// The flag that a signal sets.
    pub(crate) fn cancel(&self) -> &Arc<AtomicBool> {
        &self.0.cancel
    }

    /// The progress of some work, which a signal cancels.
    pub(crate) fn progress(&self) -> Progress {
        Progress::cancelled_by(&self.0.cancel)
    }

    /// Whether a signal arrived.
    pub(crate) fn is_set(&self) -> bool {
        self.0.cancel.load(Ordering::Relaxed)
    }

    /// The exit code of the first signal; `None` if none arrived.
    pub(crate) fn exit(&self) -> Option<Exit> {
        [Exit::Interrupted, Exit::Terminated]
            .into_iter()
            .find(|exit| exit.code() == self.0.code.load(Ordering::Acquire))
    }

    /// Whether the run has published its generation or written its output.
    pub(crate) fn is_done(&self) -> bool {
        self.0.stage().is_done()
    }

    /// The message of an interrupted run whose work has returned.
    pub(crate) fn message(&self) -> &'static str {
        self.0.message()
    }

    /// Requests a grace period, for a run that has files to remove.
    pub(crate) fn cleanup(&self) -> Cleanup {
        self.0.cleanups.fetch_add(1, Ordering::AcqRel);
        Cleanup(Arc::clone(&self.0))
    }

    /// Like [`cleanup`](Interrupt::cleanup), for a server that lets running answers end for at most `grace`.
    #[allow(dead_code, reason = "the subcommand serve may be left out")]
    pub(crate) fn draining(&self, grace: std::time::Duration) -> Cleanup {
        self.0.grace.store(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
        self.cleanup()
    }

    /// Like [`cleanup`](Interrupt::cleanup), for a run that publishes a generation at its end.
    pub(crate) fn publishing(&self) -> Cleanup {
        *self.0.stage() = Stage::Publishing;
        self.cleanup()
    }

    /// Like [`cleanup`](Interrupt::cleanup), for a run whose output gets its name at the end.
    pub(crate) fn writing(&self) -> Cleanup {
        *self.0.stage() = Stage::Writing;
        self.cleanup()
    }

    /// Does not return while a signal is ending the process, so that the exit code is that of the signal. A signal that
    /// ends the writer of a pipe too looks like the end of the input.
    pub(crate) fn wait_for_end(&self) {
        while self.0.is_ending.load(Ordering::Acquire) {
            std::thread::park();
        }
    }
}

impl Cleanup {
    /// States that the run has published its generation or written its output.
    pub(crate) fn done(&self) {
        let mut stage = self.0.stage();
        *stage = match *stage {
            Stage::Publishing | Stage::Published => Stage::Published,
            Stage::Writing | Stage::Written => Stage::Written,
            Stage::Never => Stage::Never,
        };
    }
}

impl State {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        lock(&self.stage)
    }

    fn message(&self) -> &'static str {
        match *self.stage() {
            Stage::Never => "sharddb: interrupted",
            Stage::Publishing => "sharddb: interrupted: nothing published",
            Stage::Writing => "sharddb: interrupted: nothing written",
            Stage::Published => "sharddb: interrupted after the publication, which stays",
            Stage::Written => "sharddb: interrupted after the output was written, which stays",
        }
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.0.cleanups.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(unix)]
impl State {
    /// Handles a signal, on the thread of signals.
    fn stop(self: &Arc<State>, exit: Exit) {
        let first = self.code.compare_exchange(0, exit.code(), Ordering::AcqRel, Ordering::Acquire).is_ok();
        self.cancel.store(true, Ordering::Release);
        if !first || (self.cleanups.load(Ordering::Acquire) == 0 && !self.stage().is_done()) {
            self.is_ending.store(true, Ordering::Release);
            self.end(exit);
        }
        let longer = std::time::Duration::from_millis(self.grace.load(Ordering::Acquire));
        let state = Arc::clone(self);
        std::thread::spawn(move || {
            // on its own thread, so that a second signal is handled meanwhile
            std::thread::sleep(GRACE.saturating_add(longer));
            state.end(exit);
        });
    }

    /// Ends the process. Its work continues until then, so that it is only known what it has done before.
    ///
    /// Another thread writes the line: standard error may be a full pipe, and the process ends in any case.
    fn end(&self, exit: Exit) -> ! {
        use std::io::Write;

        let is_done = self.stage().is_done();
        let message = if is_done { self.message() } else { "sharddb: interrupted" };
        let (said, wait) = std::sync::mpsc::channel::<()>();
        let say = move || {
            crate::progress::clear();
            let _ = io::stderr().write_all(format!("{message}\n").as_bytes());
            drop(said);
        };
        if std::thread::Builder::new().spawn(say).is_ok() {
            let _ = wait.recv_timeout(PATIENCE);
        }
        std::process::exit(i32::from(if is_done { Exit::Done } else { exit }.code()))
    }
}

/// The time that the last line may take.
#[cfg(unix)]
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(200);

/// The time that a run has to remove its files.
#[cfg(unix)]
const GRACE: std::time::Duration = std::time::Duration::from_secs(2);
