//! Signals: ask the work to stop, let it remove what it has begun, then end with the signal's code.
//!
//! A run that has nothing to remove ends at once. One that holds a [`Cleanup`] gets a grace period, in which its
//! work sees the flag, returns, and drops its files; a second signal, or the end of the period, ends the process.
//!
//! SIGXFSZ (a file would grow beyond the limit of `ulimit -f`) ends nothing: the write that caused it fails, and its
//! error names the file.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use crate::exit::Exit;

/// The signals of this run, shared by everything that can be stopped.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<State>);

#[derive(Default)]
struct State {
    cancel: Arc<AtomicBool>,
    /// The exit code of the first signal; 0 = none came.
    code: AtomicU8,
    cleanups: AtomicUsize,
}

/// While one of these lives, a signal waits for the work to end by itself.
pub(crate) struct Cleanup(Arc<State>);

impl Interrupt {
    /// Takes over SIGINT and SIGTERM, and SIGXFSZ, which then does not end the process.
    ///
    /// Errors: the operating system refuses a handler or a thread.
    #[cfg(unix)]
    pub(crate) fn install() -> io::Result<Interrupt> {
        use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};

        let interrupt = Interrupt::default();
        signal_hook::flag::register(SIGXFSZ, Arc::default())?; // nobody reads the flag
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
        let state = Arc::clone(&interrupt.0);
        std::thread::Builder::new().name("signals".to_string()).spawn(move || {
            for signal in signals.forever() {
                state.stop(if signal == SIGTERM { Exit::Terminated } else { Exit::Interrupted });
            }
        })?;
        Ok(interrupt)
    }

    /// Leaves signals to the operating system, which ends the process.
    #[cfg(not(unix))]
    pub(crate) fn install() -> io::Result<Interrupt> {
        Ok(Interrupt::default())
    }

    /// The flag that a signal sets.
    pub(crate) fn cancel(&self) -> &Arc<AtomicBool> {
        &self.0.cancel
    }

    /// Whether a signal came.
    pub(crate) fn is_set(&self) -> bool {
        self.0.cancel.load(Ordering::Relaxed)
    }

    /// The exit code of the signal that came, if one did.
    pub(crate) fn exit(&self) -> Option<Exit> {
        [Exit::Interrupted, Exit::Terminated]
            .into_iter()
            .find(|exit| exit.code() == self.0.code.load(Ordering::Acquire))
    }

    /// Asks for a grace period: there is something to remove.
    pub(crate) fn cleanup(&self) -> Cleanup {
        self.0.cleanups.fetch_add(1, Ordering::AcqRel);
        Cleanup(Arc::clone(&self.0))
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.0.cleanups.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(unix)]
impl State {
    /// Runs on the thread of the signals.
    fn stop(self: &Arc<State>, exit: Exit) {
        let first = self.code.compare_exchange(0, exit.code(), Ordering::AcqRel, Ordering::Acquire).is_ok();
        self.cancel.store(true, Ordering::Release);
        if !first || self.cleanups.load(Ordering::Acquire) == 0 {
            std::process::exit(i32::from(exit.code()));
        }
        std::thread::spawn(move || {
            // a timer of its own, so that a second signal is heard meanwhile
            std::thread::sleep(GRACE);
            std::process::exit(i32::from(exit.code()));
        });
    }
}

/// How long a run may take to remove what it has begun.
#[cfg(unix)]
const GRACE: std::time::Duration = std::time::Duration::from_secs(2);
