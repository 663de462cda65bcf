//! The threads of calls that may wait for a disk.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::thread::{self, Thread, available_parallelism};
use std::time::Duration;

use sharddb::{Error, Result as Started};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::problem::{Problem, Result};

/// The threads of calls, at most, besides those of [`Workers`].
pub(crate) const THREADS: usize = 64;

/// The long calls that run at a time; others wait without a thread.
const LONG_CALLS: usize = 8;

/// The lists that are made at a time: a second one has the result of the first.
const LISTS: usize = 1;

/// The lookups that run on threads of connections at a time, at least.
const MIN_LOOKUPS: usize = 4;

/// The time after which another thread waits for sockets in place of one that runs a lookup.
const TICK: Duration = Duration::from_millis(5);

/// The threads of connections. Some may run lookups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workers {
    processors: usize,
}

impl Workers {
    /// Reads the number of processors.
    pub(crate) fn of_machine() -> Workers {
        Workers { processors: available_parallelism().map_or(1, NonZeroUsize::get) }
    }

    /// The lookups that may run at a time.
    fn lookups(self) -> usize {
        self.processors.max(MIN_LOOKUPS)
    }

    /// The number of threads: one for each processor, and one for each lookup.
    pub(crate) fn count(self) -> usize {
        self.processors + self.lookups()
    }
}

/// What a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// A few reads.
    Lookup,
    /// Reads of a bounded part of a database.
    Some,
    /// Reads of all indexes, or of a directory.
    Long,
    /// A search of directories.
    List,
}

/// Runs calls that may wait for a disk.
pub(crate) struct DiskCalls {
    /// The others of the workers serve connections also if no lookup returns.
    lookups: Semaphore,
    /// The others of [`THREADS`] read files also if no long call and no list returns.
    long: Arc<Semaphore>,
    lists: Arc<Semaphore>,
    relief: Relief,
}

impl DiskCalls {
    /// Begins to relieve the workers of the current runtime.
    ///
    /// Errors: `Io` if no thread can be started.
    pub(crate) fn new(workers: Workers) -> Started<DiskCalls> {
        Ok(DiskCalls {
            lookups: Semaphore::new(workers.lookups()),
            long: Arc::new(Semaphore::new(LONG_CALLS)),
            lists: Arc::new(Semaphore::new(LISTS)),
            relief: Relief::start(Handle::current())?,
        })
    }

    /// Runs a call where its cost belongs.
    ///
    /// Errors: those of the call; `internal` if it panics.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        cost: Cost,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match cost {
            Cost::Lookup => self.look_up(call).await,
            Cost::Some => self.run(call).await,
            Cost::Long => self.run_at(&self.long, call).await,
            Cost::List => self.run_at(&self.lists, call).await,
        }
    }

    /// Like [`run`](DiskCalls::run), after it has waited for one of some places.
    async fn run_at<T: Send + 'static>(
        &self,
        places: &Arc<Semaphore>,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let place = Arc::clone(places).acquire_owned().await;
        self.run(move || {
            let _place = place; // until the call ends, also if nobody waits for it any more
            call()
        })
        .await
    }

    /// Runs a lookup on this thread, a worker: if its bytes are in memory, it takes less time than another thread takes
    /// to begin it. While many lookups wait for disks, like [`run`](DiskCalls::run).
    ///
    /// Errors: those of the lookup; `internal` if it panics.
    async fn look_up<T: Send + 'static>(&self, call: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        match self.lookups.try_acquire() {
            Ok(_place) => {
                let _running = self.relief.begin();
                catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(panicked()))
            }
            Err(_) => self.run(call).await,
        }
    }

    /// Runs a call on one of [`THREADS`] threads.
    ///
    /// Errors: those of the call; `internal` if it panics.
    async fn run<T: Send + 'static>(&self, call: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        spawn_blocking(call).await.map_err(|_| panicked())?
    }
}

fn panicked() -> Problem {
    Problem::internal("a bug in sharddb: the request was not answered; please report it")
}

/// A thread that wakes a worker from time to time while lookups run.
///
/// One worker waits for all sockets and timers. If that one begins a lookup, nobody waits for them until another worker
/// wakes (tokio issue 4730).
struct Relief {
    running: Arc<AtomicUsize>,
    thread: Thread,
}

/// A lookup that runs until this is dropped.
struct Running<'a>(&'a AtomicUsize);

impl Relief {
    fn start(runtime: Handle) -> Started<Relief> {
        let running = Arc::new(AtomicUsize::new(0));
        let watched = Arc::downgrade(&running);
        let failed = |error| Error::io("start a thread", Path::new(""), error);
        let started = thread::Builder::new().name("relief".to_string()).spawn(move || relieve(&runtime, &watched));
        Ok(Relief { running, thread: started.map_err(failed)?.thread().clone() })
    }

    fn begin(&self) -> Running<'_> {
        if self.running.fetch_add(1, SeqCst) == 0 {
            self.thread.unpark();
        }
        Running(&self.running)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Drop for Relief {
    fn drop(&mut self) {
        self.running = Arc::default(); // the thread sees that nobody has the old one
        self.thread.unpark();
    }
}

/// Sleeps while no lookup runs. Returns when the [`Relief`] is dropped.
fn relieve(runtime: &Handle, running: &Weak<AtomicUsize>) {
    while let Some(count) = running.upgrade().map(|running| running.load(SeqCst)) {
        match count {
            0 => thread::park(),
            _ => {
                thread::sleep(TICK);
                drop(runtime.spawn(async {})); // wakes a worker
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use axum::http::StatusCode;
    use tokio::runtime::{Builder, Runtime};

    use super::*;
    use crate::WATCHDOG;

    fn runtime(workers: Workers) -> Runtime {
        Builder::new_multi_thread().worker_threads(workers.count()).enable_all().build().unwrap()
    }

    /// Lookups that never return, on all workers that may run them and beyond: timers still run, and calls still return.
    #[test]
    fn lookups_that_wait_stop_no_one_else() {
        let workers = Workers { processors: 1 };
        let (runtime, lookups) = (runtime(workers), workers.lookups() + 2);
        let (release, released) = (0..lookups).map(|_| mpsc::channel::<()>()).unzip::<_, _, Vec<_>, Vec<_>>();
        runtime.block_on(async {
            let calls = Arc::new(DiskCalls::new(workers).unwrap());
            let mut waiting = Vec::new();
            for released in released {
                let calls = Arc::clone(&calls);
                waiting.push(tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(1)).await; // resumed by the worker that waits for timers
                    calls.look_up(move || Ok(released.recv_timeout(WATCHDOG).is_ok())).await.unwrap()
                }));
            }
            let other = tokio::spawn(async move {
                for _ in 0..20 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                calls.run(|| Ok(7)).await.unwrap()
            });
            assert_eq!(other.await.unwrap(), 7);
            release.iter().for_each(|release| release.send(()).unwrap());
            for lookup in waiting {
                assert!(lookup.await.unwrap(), "it was not released before the other calls returned");
            }
        });
    }

    /// Many more long calls than threads, none of which returns: other calls still do.
    #[test]
    fn long_calls_leave_threads_to_others() {
        let workers = Workers { processors: 1 };
        let runtime = Builder::new_multi_thread().worker_threads(2).max_blocking_threads(THREADS).build().unwrap();
        let (release, released) = (0..2 * THREADS).map(|_| mpsc::channel::<()>()).unzip::<_, _, Vec<_>, Vec<_>>();
        runtime.block_on(async {
            let calls = Arc::new(DiskCalls::new(workers).unwrap());
            let mut waiting = Vec::new();
            for released in released {
                let calls = Arc::clone(&calls);
                let wait = move || Ok(released.recv_timeout(WATCHDOG).is_ok());
                waiting.push(tokio::spawn(async move { calls.call(Cost::Long, wait).await.unwrap() }));
            }
            for _ in 0..100 {
                assert_eq!(calls.call(Cost::Some, || Ok(7)).await.unwrap(), 7);
            }
            release.iter().for_each(|release| release.send(()).unwrap());
            for call in waiting {
                assert!(call.await.unwrap(), "it was not released before the other calls returned");
            }
        });
    }

    #[test]
    fn a_panic_is_an_answer() {
        let workers = Workers { processors: 1 };
        runtime(workers).block_on(async {
            let calls = DiskCalls::new(workers).unwrap();
            let panics = || -> Result<()> { std::panic::resume_unwind(Box::new("a bug")) };
            assert_eq!(calls.look_up(panics).await.unwrap_err().status, StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(calls.run(panics).await.unwrap_err().status, StatusCode::INTERNAL_SERVER_ERROR);
        });
    }
}
