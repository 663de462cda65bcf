//! Teams of threads: [`on_threads`] works on a common source, [`in_order`](in_order::in_order) has results in order.

pub(crate) mod in_order;
pub(crate) mod progress;

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Returns the number of threads that options ask for; of 0, what the machine offers now, which reads files of Linux.
#[cold]
pub(crate) fn count(asked: usize) -> NonZero<usize> {
    NonZero::new(asked).unwrap_or_else(|| thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN))
}

/// Runs `work` on this thread and on up to `threads - 1` others. Returns when all have ended.
///
/// If the process cannot start more threads, fewer run: `work` takes what there is to do from a common source. A panic
/// continues on this thread after all have ended.
pub(crate) fn on_threads(threads: NonZero<usize>, work: impl Fn() + Sync) {
    thread::scope(|scope| {
        let mut others = Vec::new();
        for _ in 1..threads.get() {
            match thread::Builder::new().spawn_scoped(scope, &work) {
                Ok(thread) => others.push(thread),
                Err(_) => break, // the threads that are running do all the work
            }
        }
        work();
        let panics = others.into_iter().filter_map(|thread| thread.join().err());
        if let Some(panic) = panics.reduce(|first, _| first) {
            resume_unwind(panic);
        }
    });
}

/// Whether the work has to end early. A thread that panics sets it.
#[derive(Default)]
pub(crate) struct Stop(AtomicBool);

impl Stop {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns a guard that sets it if this thread panics while the guard exists.
    pub(crate) fn on_panic(&self) -> StopOnPanic<'_> {
        StopOnPanic(self)
    }
}

/// See [`Stop::on_panic`].
pub(crate) struct StopOnPanic<'a>(&'a Stop);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.set();
        }
    }
}
