//! Work on units by several threads, whose results arrive in the order of the units.
//!
//! ```text
//! threads    take the next unit, work on it, append its results to its lane
//! caller     takes the results of the first lane, then those of the next one
//! ```
//!
//! A result that finds no room waits until the caller has taken others. Room or not, one result fits in the first lane
//! if that is empty, so the caller never waits for a thread that waits.

use std::collections::VecDeque;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::error::{Result, panicked};
use crate::format::locks::lock;

/// What works on a unit: gets the unit, and a function that takes each result with the room that it needs while it waits.
/// If that breaks, no more results are wanted.
pub trait Work<U, T>: Fn(U, &mut dyn FnMut(T, usize) -> ControlFlow<()>) + Sync {}

impl<U, T, F: Fn(U, &mut dyn FnMut(T, usize) -> ControlFlow<()>) + Sync> Work<U, T> for F {}

/// Calls `work` with the units that `next` returns, on up to `threads` threads, and `take` with its results, on this
/// thread in the order of the units, until that breaks.
///
/// Results that wait take at most `room`, and one result per thread more. With one thread, or if no other can be
/// started, all work is done on this thread.
///
/// # Errors
///
/// `Internal` after a panic of another thread. A panic of this thread continues.
pub fn in_order<U, T: Send, B>(
    threads: NonZero<usize>,
    room: usize,
    mut next: impl FnMut() -> Option<U> + Send,
    work: impl Work<U, T>,
    mut take: impl FnMut(T) -> ControlFlow<B>,
) -> Result<ControlFlow<B>> {
    if threads.get() == 1 {
        return Ok(here(&mut next, &work, &mut take));
    }
    let flow = Flow { next: Mutex::new(next), state: Mutex::default(), changed: Condvar::new(), room };
    thread::scope(|scope| {
        let _end = End(&flow); // also if `take` panics: the threads would wait for ever
        let run = || flow.run(&work);
        let start = |_| thread::Builder::new().spawn_scoped(scope, run).ok();
        let started: Vec<_> = (0..threads.get()).map_while(start).collect();
        if started.is_empty() {
            return Ok(here(&mut *lock(&flow.next), &work, &mut take));
        }
        let taken = flow.take_all(&mut take);
        flow.stop();
        match started.into_iter().filter_map(|thread| thread.join().err()).next() {
            Some(panic) if taken.is_continue() => Err(panicked("a thread", &*panic)),
            _ => Ok(taken),
        }
    })
}

/// Does all work on this thread.
fn here<U, T, B>(
    next: &mut impl FnMut() -> Option<U>,
    work: &impl Work<U, T>,
    take: &mut impl FnMut(T) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let mut outcome = ControlFlow::Continue(());
    while let (ControlFlow::Continue(()), Some(unit)) = (&outcome, next()) {
        work(unit, &mut |result, _| match take(result) {
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
            broken => {
                outcome = broken;
                ControlFlow::Break(())
            }
        });
    }
    outcome
}

/// The units, and their results on the way to the calling thread.
struct Flow<N, T> {
    next: Mutex<N>,
    state: Mutex<State<T>>,
    /// Notified when a result is added or taken, when a unit is over, and at the end.
    changed: Condvar,
    room: usize,
}

struct State<T> {
    /// The number of units that were taken.
    units: usize,
    /// The results of the last units; the first lane is the one that the calling thread takes.
    lanes: VecDeque<Lane<T>>,
    /// The room that all results take.
    taken: usize,
    /// There are no more units, or their results are not wanted.
    is_over: bool,
    has_panicked: bool,
}

/// The results of a unit.
struct Lane<T> {
    results: VecDeque<(T, usize)>,
    is_over: bool,
}

impl<T> Default for State<T> {
    fn default() -> State<T> {
        State { units: 0, lanes: VecDeque::new(), taken: 0, is_over: false, has_panicked: false }
    }
}

impl<N, T> Flow<N, T> {
    /// Works on units until there are none left.
    fn run<U>(&self, work: &impl Work<U, T>)
    where
        N: FnMut() -> Option<U>,
    {
        let _panic = EndOnPanic(self);
        while let Some((number, unit)) = self.next_unit() {
            work(unit, &mut |result, size| self.emit(number, result, size));
            self.change(|state| {
                if let Some(lane) = state.lane(number) {
                    lane.is_over = true;
                }
            });
        }
    }

    fn next_unit<U>(&self) -> Option<(usize, U)>
    where
        N: FnMut() -> Option<U>,
    {
        let mut next = lock(&self.next);
        if lock(&self.state).is_over {
            return None;
        }
        let unit = next();
        self.change(|state| {
            state.is_over |= unit.is_none();
            let unit = unit.filter(|_| !state.is_over)?; // none if `stop` was called while `next` ran
            state.lanes.push_back(Lane { results: VecDeque::new(), is_over: false });
            state.units += 1;
            Some((state.units - 1, unit))
        })
    }

    /// Adds a result of a unit when there is room. Breaks if results are not wanted any more.
    fn emit(&self, number: usize, result: T, size: usize) -> ControlFlow<()> {
        let mut state = lock(&self.state);
        while !state.has_room(number, size, self.room) {
            state = self.wait(state);
        }
        let Some(lane) = state.lane(number) else { return ControlFlow::Break(()) };
        lane.results.push_back((result, size));
        state.taken += size;
        drop(state);
        self.changed.notify_all();
        ControlFlow::Continue(())
    }

    /// Takes the results of all units, in order, up to a unit whose thread has panicked.
    fn take_all<B>(&self, take: &mut impl FnMut(T) -> ControlFlow<B>) -> ControlFlow<B> {
        let mut state = lock(&self.state);
        loop {
            let is_over = state.is_over;
            match state.lanes.front_mut() {
                Some(lane) => match lane.results.pop_front() {
                    Some((result, size)) => {
                        state.taken -= size;
                        drop(state);
                        self.changed.notify_all();
                        take(result)?;
                        state = lock(&self.state);
                        continue;
                    }
                    None if lane.is_over => {
                        state.lanes.pop_front();
                        self.changed.notify_all(); // the next lane is the first one now
                        continue;
                    }
                    None => {}
                },
                None if is_over => return ControlFlow::Continue(()),
                None => {}
            }
            if state.has_panicked {
                return ControlFlow::Continue(());
            }
            state = self.wait(state);
        }
    }

    /// Ends the threads: results are not wanted any more.
    fn stop(&self) {
        self.change(|state| {
            state.is_over = true;
            state.lanes.clear();
        });
    }

    fn change<R>(&self, change: impl FnOnce(&mut State<T>) -> R) -> R {
        let result = change(&mut lock(&self.state));
        self.changed.notify_all();
        result
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    /// Returns the lane of a unit; `None` if its results are not wanted any more.
    fn lane(&mut self, number: usize) -> Option<&mut Lane<T>> {
        let first = self.units - self.lanes.len();
        self.lanes.get_mut(number.checked_sub(first)?)
    }

    /// Whether a result of a unit can be added, or is not wanted any more.
    fn has_room(&mut self, number: usize, size: usize, room: usize) -> bool {
        let is_first = number == self.units - self.lanes.len();
        let fits = self.taken.saturating_add(size) <= room;
        fits || self.lane(number).is_none_or(|lane| is_first && lane.results.is_empty())
    }
}

/// Ends the threads when the calling thread has ended.
struct End<'a, N, T>(&'a Flow<N, T>);

impl<N, T> Drop for End<'_, N, T> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Ends the calling thread, which would wait for results, if this one panics.
struct EndOnPanic<'a, N, T>(&'a Flow<N, T>);

impl<N, T> Drop for EndOnPanic<'_, N, T> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.change(|state| state.has_panicked = true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    const UNITS: u32 = 200;

    /// Ten results per unit, each of which takes the room 1. Panics at the unit `bad`.
    fn tens(
        threads: usize,
        room: usize,
        bad: u32,
        mut take: impl FnMut(u32) -> ControlFlow<u32>,
    ) -> Result<ControlFlow<u32>> {
        let mut units = 0..UNITS;
        let work = |unit: u32, emit: &mut dyn FnMut(u32, usize) -> ControlFlow<()>| {
            assert!(unit != bad, "planted");
            _ = (unit * 10..unit * 10 + 10).try_for_each(|result| emit(result, 1));
        };
        in_order(NonZero::new(threads).unwrap(), room, || units.next(), work, &mut take)
    }

    #[test]
    fn results_are_in_the_order_of_the_units_with_any_room() {
        for (threads, room) in [(1, 0), (2, 0), (7, 0), (2, 1), (3, 15), (7, 1 << 20)] {
            let mut found = Vec::new();
            let outcome = tens(threads, room, UNITS, |result| {
                found.push(result);
                ControlFlow::Continue(())
            });
            assert_eq!(outcome.unwrap(), ControlFlow::Continue(()));
            assert!(found.into_iter().eq(0..UNITS * 10), "{threads} threads, room {room}");
        }
    }

    #[test]
    fn no_result_is_taken_after_a_break() {
        for threads in [1, 2, 7] {
            let mut last = 0;
            let outcome = tens(threads, 100, UNITS, |result| {
                last = result;
                if result == 42 { ControlFlow::Break(result) } else { ControlFlow::Continue(()) }
            });
            assert_eq!((outcome.unwrap(), last), (ControlFlow::Break(42), 42));
        }
    }

    #[test]
    fn a_panic_is_an_error_after_the_results_before_it() {
        for threads in [2, 7] {
            let mut found = 0;
            let error = tens(threads, 5, 7, |result| {
                assert_eq!(result, found);
                found += 1;
                ControlFlow::Continue(())
            })
            .unwrap_err();
            assert!(found <= 70 && error.to_string().contains("planted"), "{found}: {error}");
        }
        let alone = catch_unwind(AssertUnwindSafe(|| tens(1, 5, 7, |_| ControlFlow::Continue(()))));
        let taker = catch_unwind(AssertUnwindSafe(|| tens(3, 5, UNITS, |_| panic!("planted"))));
        assert!(alone.is_err() && taker.is_err());
    }

    /// No one would take its results, and its thread would wait for room.
    #[test]
    fn a_unit_that_is_returned_after_the_end_is_not_begun() {
        let (asked, was_asked) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let next = move || {
            asked.send(()).unwrap();
            ended.recv().ok()
        };
        let flow = Flow::<_, ()> { next: Mutex::new(next), state: Mutex::default(), changed: Condvar::new(), room: 0 };
        thread::scope(|scope| {
            let unit = scope.spawn(|| flow.next_unit());
            was_asked.recv().unwrap();
            flow.stop();
            end.send(()).unwrap();
            assert_eq!(unit.join().unwrap(), None);
        });
    }

    /// Results that do not fit wait: at most one, of the first unit, is there.
    #[test]
    fn large_results_wait_for_their_turn() {
        let waiting = AtomicUsize::new(0);
        let mut units = 0..UNITS;
        let work = |_, emit: &mut dyn FnMut((), usize) -> ControlFlow<()>| {
            for _ in 0..3 {
                _ = emit((), 100);
                assert!(waiting.fetch_add(1, Ordering::SeqCst) < 2, "one is taken, one is added");
            }
        };
        let outcome = in_order(
            NonZero::new(4).unwrap(),
            99,
            || units.next(),
            work,
            |()| {
                while waiting.load(Ordering::SeqCst) == 0 {
                    thread::yield_now(); // it is counted after it is added
                }
                waiting.fetch_sub(1, Ordering::SeqCst);
                ControlFlow::<()>::Continue(())
            },
        );
        assert!(outcome.is_ok());
    }
}
