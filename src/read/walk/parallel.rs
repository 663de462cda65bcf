//! A walk over all pairs on several threads. Idle threads take the next slice.

use std::num::NonZero;
use std::ops::ControlFlow;

use crate::error::Result;
use crate::read::shard::Value;
use crate::read::snapshot::Snapshot;
use crate::threads::for_each;

/// Slices per thread: enough that threads end at about the same time although slices differ in cost.
const SLICES_PER_THREAD: NonZero<usize> = NonZero::<usize>::MIN.saturating_add(31);

impl Snapshot {
    /// Calls `f` with every key and its value, on up to `threads` threads, until `f` breaks.
    ///
    /// Like [`scan`](Snapshot::scan), each pair and each error once, but in no particular order. Within a shard the work
    /// is divided by minishards, so this uses all threads even if there is one shard. If `f` breaks, the other threads
    /// stop before their next pair, and the first break is returned. If `f` panics, so does this call, after all threads
    /// have ended. The calling thread is one of the threads. If the process cannot start more threads, fewer are used.
    ///
    /// ```
    /// # let store = std::env::temp_dir().join(format!("sharddb-scan-parallel-doc-{}", std::process::id()));
    /// # let mut loader = sharddb::BulkLoader::create_default(&store)?;
    /// # loader.insert(7, b"seven")?;
    /// # loader.finish()?;
    /// use std::ops::ControlFlow;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// let snapshot = sharddb::ShardDb::open(&store)?.snapshot();
    /// let total = AtomicUsize::new(0);
    /// let first_error = snapshot.scan_parallel(std::thread::available_parallelism()?, |pair| match pair {
    ///     Ok((_key, value)) => {
    ///         total.fetch_add(value.len(), Ordering::Relaxed);
    ///         ControlFlow::Continue(())
    ///     }
    ///     Err(error) => ControlFlow::Break(error),
    /// });
    /// assert!(first_error.is_continue() && total.into_inner() == 5);
    /// # std::fs::remove_dir_all(&store).unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan_parallel<B: Send>(
        &self,
        threads: NonZero<usize>,
        f: impl Fn(Result<(u64, Value<'_>)>) -> ControlFlow<B> + Sync,
    ) -> ControlFlow<B> {
        let slices = self.split(threads.saturating_mul(SLICES_PER_THREAD));
        for_each(threads, slices.into_iter(), |slice, stop| slice.scan(|pair| stop.or(|| f(pair))))
    }
}
