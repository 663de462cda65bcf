//! Teams of threads: [`for_each`] takes units from a queue, [`in_order`](in_order::in_order) has results in order.

pub(crate) mod in_order;
pub(crate) mod progress;

use std::num::NonZero;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::format::locks::{into_inner, lock};

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

/// Calls `work` with each unit, on this thread and on up to `threads - 1` others, until it breaks. An idle thread takes the
/// next unit.
///
/// After a break or a panic no unit is begun, and [`Stop`] ends those that are under way. Returns the first break.
pub(crate) fn for_each<U, B: Send>(
    threads: NonZero<usize>,
    units: impl ExactSizeIterator<Item = U> + Send,
    work: impl Fn(U, &Stop) -> ControlFlow<Option<B>> + Sync,
) -> ControlFlow<B> {
    let threads = NonZero::new(units.len()).map_or(threads, |units| units.min(threads));
    let (units, first_break, stop) = (Mutex::new(units), Mutex::new(None), Stop(AtomicBool::new(false)));
    on_threads(threads, || {
        let _guard = StopOnPanic(&stop);
        let next = || lock(&units).next();
        while !stop.is_set()
            && let Some(unit) = next()
        {
            if let ControlFlow::Break(broken) = work(unit, &stop) {
                let mut first = lock(&first_break);
                *first = first.take().or(broken);
                stop.set();
            }
        }
    });
    into_inner(first_break).map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// Whether the work has to end early.
pub(crate) struct Stop(AtomicBool);

impl Stop {
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes one step, or breaks with `None` if the work has to end.
    #[inline]
    pub(crate) fn or<B>(&self, step: impl FnOnce() -> ControlFlow<B>) -> ControlFlow<Option<B>> {
        if self.is_set() { ControlFlow::Break(None) } else { step().map_break(Some) }
    }
}

struct StopOnPanic<'a>(&'a Stop);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.set();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    const THREADS: NonZero<usize> = NonZero::<usize>::MIN.saturating_add(3);

    #[test]
    fn each_unit_is_worked_on_once() {
        for units in [0, 1, 100] {
            let taken = Mutex::new(Vec::new());
            let outcome = for_each(THREADS, 0..units, |unit, _| {
                lock(&taken).push(unit);
                ControlFlow::<Option<()>>::Continue(())
            });
            assert!(outcome.is_continue());
            let mut taken = into_inner(taken);
            taken.sort_unstable();
            assert_eq!(taken, (0..units).collect::<Vec<_>>());
        }
    }

    /// The threads that wait for `Stop` end, or the test hangs.
    fn until_stopped<B>(stop: &Stop) -> ControlFlow<Option<B>> {
        loop {
            stop.or(|| ControlFlow::Continue(()))?;
            thread::yield_now();
        }
    }

    #[test]
    fn a_break_ends_the_others_and_is_returned() {
        let outcome = for_each(THREADS, 0..100, |unit, stop| match unit {
            2 => ControlFlow::Break(Some(unit)),
            0 | 1 => until_stopped(stop),
            _ => ControlFlow::Continue(()),
        });
        assert_eq!(outcome, ControlFlow::Break(2));
    }

    #[test]
    fn a_panic_ends_the_others_and_continues() {
        let work = |unit, stop: &Stop| match unit {
            2 => panic!("planted"),
            _ => until_stopped::<()>(stop),
        };
        let panic = catch_unwind(AssertUnwindSafe(|| for_each(THREADS, 0..100, work))).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"planted"));
    }
}
