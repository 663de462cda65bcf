//! Threads that compare units, whose results arrive in the order of the units.
//!
//! ```text
//! threads    take the next unit, append a channel of its results to the queue, compare
//! caller     takes the channels off the queue, in order, and the results out of each
//! ```
//!
//! Queue and channels are bounded, so a thread that is ahead waits for the caller. The thread with the first unit never
//! waits for another one.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::diff::item::Item;
use crate::diff::units::Unit;
use crate::error::Error;

/// The number of units that each thread may be ahead.
const UNITS_AHEAD: usize = 4;

/// The number of items in a batch.
const BATCH: usize = 256;

/// The number of batches of a unit that wait for the caller.
const BATCHES: usize = 2;

/// Items of a unit; the last batch of each unit says so.
struct Batch {
    items: Vec<Item>,
    is_last: bool,
}

/// Calls `compare` with the units that `next` returns, on up to `threads` threads, and `take` with the items that it
/// emits, on this thread in the order of the units, until that breaks.
///
/// With one thread, or if no other can be started, all work is done on this thread. A panic in a thread is an item.
pub(super) fn run<B>(
    threads: usize,
    next: impl FnMut() -> Option<Unit> + Send,
    compare: impl Fn(Unit, &mut dyn FnMut(Item) -> ControlFlow<()>) + Sync,
    mut take: impl FnMut(Item) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let (queue, results) = sync_channel(UNITS_AHEAD.saturating_mul(threads).min(1 << 10));
    let units = Units(Mutex::new(Some((next, queue))));
    thread::scope(|scope| {
        let work = || units.work(&compare);
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let started: Vec<_> = match threads {
            0 | 1 => Vec::new(),
            threads => (0..threads).map_while(spawn).collect(),
        };
        let taken = match started.is_empty() {
            true => units.work_here(&compare, &mut take),
            false => take_all(&results, &mut take),
        };
        drop(results); // ends the threads, if `take` broke
        let panicked = started.into_iter().map(|thread| thread.join().is_err()).collect::<Vec<_>>().contains(&true);
        match (taken, panicked) {
            (ControlFlow::Continue(()), true) => {
                take(Item::BadPair(Error::internal("a thread of the comparison panicked")))
            }
            (taken, _) => taken,
        }
    })
}

fn take_all<B>(results: &Receiver<Receiver<Batch>>, take: &mut impl FnMut(Item) -> ControlFlow<B>) -> ControlFlow<B> {
    for unit in results {
        let mut is_whole = false;
        for Batch { items, is_last } in unit {
            items.into_iter().try_for_each(&mut *take)?;
            is_whole = is_last;
        }
        if !is_whole {
            break; // its thread has panicked, which is reported when it is joined
        }
    }
    ControlFlow::Continue(())
}

/// The units that are left, and the queue of their results.
struct Units<N>(Mutex<Option<(N, SyncSender<Receiver<Batch>>)>>);

impl<N: FnMut() -> Option<Unit>> Units<N> {
    /// Compares units on a thread of its own, until there are none left, or the caller has gone.
    fn work(&self, compare: &impl Fn(Unit, &mut dyn FnMut(Item) -> ControlFlow<()>)) {
        while let Some((unit, results)) = self.next() {
            let mut items = Vec::new();
            let mut is_wanted = true;
            compare(unit, &mut |item| {
                items.push(item);
                if items.len() < BATCH {
                    return ControlFlow::Continue(());
                }
                let batch = Batch { items: std::mem::take(&mut items), is_last: false };
                is_wanted = results.send(batch).is_ok();
                if is_wanted { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            if !is_wanted || results.send(Batch { items, is_last: true }).is_err() {
                return self.end();
            }
        }
    }

    /// Returns the next unit, with the channel for its results.
    fn next(&self) -> Option<(Unit, SyncSender<Batch>)> {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, queue) = left.as_mut()?;
        let unit = next();
        let (sender, receiver) = sync_channel(BATCHES);
        match unit {
            Some(unit) if queue.send(receiver).is_ok() => Some((unit, sender)),
            _ => {
                *left = None; // closes the queue
                None
            }
        }
    }

    fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Compares all units on this thread.
    fn work_here<B>(
        &self,
        compare: &impl Fn(Unit, &mut dyn FnMut(Item) -> ControlFlow<()>),
        take: &mut impl FnMut(Item) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let left = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((mut next, _)) = left else { return ControlFlow::Continue(()) };
        let mut outcome = ControlFlow::Continue(());
        while let (ControlFlow::Continue(()), Some(unit)) = (&outcome, next()) {
            compare(unit, &mut |item| match take(item) {
                ControlFlow::Continue(()) => ControlFlow::Continue(()),
                broken => {
                    outcome = broken;
                    ControlFlow::Break(())
                }
            });
        }
        outcome
    }
}
