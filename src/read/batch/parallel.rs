//! Batch lookups on several threads. Idle threads take the next block of keys.

use std::num::NonZero;
use std::ops::ControlFlow;

use crate::error::Result;
use crate::read::shard::Value;
use crate::read::snapshot::Snapshot;
use crate::threads::for_each;

/// Keys per block: enough to make the cost of the lock negligible, few enough that threads end at about the same time.
const KEYS_PER_BLOCK: usize = 1024;

impl Snapshot {
    /// Calls `f` with each position in `keys` and the value of that key, on up to `threads` threads, until `f` breaks.
    ///
    /// Positions arrive in no particular order, each exactly once. If `f` breaks, the other threads stop before their next
    /// position, and the first break is returned. If `f` panics, so does this call, after all threads have ended.
    ///
    /// The calling thread is one of the threads. Each call starts the others, which pays off for many keys, or for
    /// values that are decoded or read. A thread takes 1024 keys at a time, so a batch of at most 1024 keys uses one
    /// thread. If the process cannot start more threads, fewer are used. Nothing is allocated per key.
    ///
    /// ```no_run
    /// use std::ops::ControlFlow;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let snapshot = sharddb::ShardDb::open("store")?.snapshot();
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
        let blocks = keys.chunks(KEYS_PER_BLOCK).enumerate();
        for_each(threads, blocks, |(number, keys), stop| {
            self.get_many_with(keys, |at, value| stop.or(|| f(number * KEYS_PER_BLOCK + at, value)))
        })
    }
}
