//! Batches on several threads: blocks of keys, each taken by whichever thread is free.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::error::Result;
use crate::read::shard::Value;
use crate::read::snapshot::Snapshot;

/// Keys that a thread takes at a time: enough to forget the lock, few enough that none waits long for the last.
const BLOCK: usize = 1024;

impl Snapshot {
    /// Hands the value of each key to `f` with its position in `keys`, from `threads` threads at once, until `f` breaks.
    ///
    /// Nothing is allocated per key. Positions come in no order; each comes once, unless `f` breaks: then the other
    /// threads finish the blocks that they have begun, and the first break is the result.
    ///
    /// The calling thread is one of the threads; the others are started by each call, which pays for many keys, or for
    /// values that are decoded or read. A thread takes 1024 keys at a time, so fewer keys have no use for a second one.
    /// Where the process can have no more threads, fewer work.
    ///
    /// ```no_run
    /// use std::ops::ControlFlow;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let snapshot = sharddb::ShardDb::open_pread("store")?.snapshot();
    /// let total = AtomicUsize::new(0);
    /// let threads = std::thread::available_parallelism()?;
    /// let first_error = snapshot.get_many_parallel_with(&[1, 2, 3], threads, |_, value| match value {
    ///     Ok(value) => {
    ///         total.fetch_add(value.map_or(0, |value| value.len()), Ordering::Relaxed);
    ///         ControlFlow::Continue(())
    ///     }
    ///     Err(error) => ControlFlow::Break(error),
    /// });
    /// # Ok(()) }
    /// ```
    pub fn get_many_parallel_with<'a, B: Send>(
        &'a self,
        keys: &[u64],
        threads: NonZero<usize>,
        f: impl Fn(usize, Result<Option<Value<'a>>>) -> ControlFlow<B> + Sync,
    ) -> ControlFlow<B> {
        let blocks = Blocks::new(keys.chunks(BLOCK).enumerate());
        let first_break = Mutex::new(None);
        on_threads(threads, keys, || {
            while let Some((number, keys)) = blocks.next() {
                if let ControlFlow::Break(broken) = self.get_many_with(keys, |at, value| f(number * BLOCK + at, value))
                {
                    blocks.end();
                    lock(&first_break).get_or_insert(broken);
                }
            }
        });
        match first_break.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(broken) => ControlFlow::Break(broken),
            None => ControlFlow::Continue(()),
        }
    }
}

/// Does `work` on this thread and on others, not more of them than there are blocks of keys.
fn on_threads(threads: NonZero<usize>, keys: &[u64], work: impl Fn() + Sync) {
    let threads = threads.get().min(keys.len().div_ceil(BLOCK));
    thread::scope(|scope| {
        for _ in 1..threads {
            if thread::Builder::new().spawn_scoped(scope, &work).is_err() {
                break; // those that there are do it all
            }
        }
        work();
    });
}

/// Blocks to be taken by several threads.
struct Blocks<I>(Mutex<Option<I>>);

impl<I: Iterator> Blocks<I> {
    fn new(blocks: I) -> Blocks<I> {
        Blocks(Mutex::new(Some(blocks)))
    }

    fn next(&self) -> Option<I::Item> {
        lock(&self.0).as_mut()?.next()
    }

    /// Leaves the rest.
    fn end(&self) {
        *lock(&self.0) = None;
    }
}

/// What is locked here stays whole whatever panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
