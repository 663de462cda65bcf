//! A data set in an object store, with lookups that block the thread.

use sharddb_format::internal::error::panicked;
use std::sync::Arc;
use std::thread;

use ::object_store::ObjectStore;
use sharddb_format::{Error, Result};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::database::remote_db::RemoteDb;
use crate::{
    Operation, OperationStats, RemoteLocation, RemoteOptions, RemoteReader, RemoteSnapshot, RemoteStats, RemoteValue,
};

/// A [`RemoteDb`] whose lookups block the thread: for programs without an asynchronous runtime.
///
/// It has a runtime of its own, with two threads. It may be shared by any number of threads, and clones share everything.
/// It can be called and dropped inside another runtime too, where it blocks a thread of that runtime: prefer [`RemoteDb`]
/// there.
///
/// ```
/// use std::sync::Arc;
///
/// use object_store::memory::InMemory;
/// use sharddb_remote::BlockingDb;
///
/// let error = BlockingDb::open(Arc::new(InMemory::new()), "numbers").unwrap_err();
/// assert_eq!(error.kind(), sharddb::ErrorKind::NotFound); // the store is empty
/// ```
#[derive(Clone, Debug)]
pub struct BlockingDb {
    db: RemoteDb,
    workers: Workers,
}

impl BlockingDb {
    /// Opens the data set under `prefix`, like [`RemoteDb::open`].
    ///
    /// Errors: `Io` if no thread can be started, and those of [`RemoteDb::open`].
    pub fn open(store: Arc<dyn ObjectStore>, prefix: &str) -> Result<BlockingDb> {
        BlockingDb::open_with(store, prefix, &RemoteOptions::new())
    }

    /// Opens the data set under `prefix` with options; see [`open`](BlockingDb::open).
    ///
    /// Errors: those of [`open`](BlockingDb::open).
    pub fn open_with(store: Arc<dyn ObjectStore>, prefix: &str, options: &RemoteOptions) -> Result<BlockingDb> {
        let workers = Workers::start()?;
        let db = workers.wait_for(RemoteDb::open_with(store, prefix, options))??;
        Ok(BlockingDb { db, workers })
    }

    /// Returns the value of a key; `None` if it is absent. See [`RemoteReader::get`].
    ///
    /// Errors: those of [`RemoteReader::get`].
    pub fn get(&self, key: u64) -> Result<Option<RemoteValue>> {
        self.workers.wait_for(self.db.get(key))?
    }

    /// Returns whether a key is present. See [`RemoteReader::contains`].
    ///
    /// Errors: those of [`RemoteReader::contains`].
    pub fn contains(&self, key: u64) -> Result<bool> {
        self.workers.wait_for(self.db.contains(key))?
    }

    /// Returns where the value of a key is. See [`RemoteReader::locate`].
    ///
    /// Errors: those of [`RemoteReader::locate`].
    pub fn locate(&self, key: u64) -> Result<Option<RemoteLocation>> {
        self.workers.wait_for(self.db.locate(key))?
    }

    /// Returns the values of many keys, in their order, with a result for each. See [`RemoteReader::get_many`].
    ///
    /// Errors: those of [`RemoteReader::get_many`].
    pub fn get_many(&self, keys: &[u64]) -> Result<Vec<Result<Option<RemoteValue>>>> {
        self.workers.wait_for(self.db.get_many(keys))?
    }

    /// Moves to the generation that is current now; returns whether it is another one. See [`RemoteReader::refresh`].
    ///
    /// Errors: those of [`RemoteReader::refresh`].
    pub fn refresh(&self) -> Result<bool> {
        self.workers.wait_for(self.db.refresh())?
    }

    /// Runs an operation of this data set's [reader](BlockingDb::reader) or [snapshots](BlockingDb::snapshot), with at
    /// most 48 requests at a time. Returns its result, and what it cost.
    pub fn run<T: Send>(&self, operation: Operation<'_, T>) -> (Result<T>, OperationStats) {
        let cost = OperationStats::default();
        self.workers.wait_for(self.db.run(operation)).unwrap_or_else(|error| (Err(error), cost))
    }

    /// Returns the reader, whose operations [`run`](BlockingDb::run) takes.
    pub fn reader(&self) -> &RemoteReader {
        self.db.reader()
    }

    /// Pins the generation that is served now: its lookups fail with `GenerationGone` once it is removed.
    pub fn snapshot(&self) -> RemoteSnapshot {
        self.db.snapshot()
    }

    /// Returns the totals of requests, bytes and cache hits since the data set was opened.
    pub fn stats(&self) -> RemoteStats {
        self.db.stats()
    }
}

/// A runtime whose threads serve timers and connections. Futures run on the thread that waits for them, if it is no thread
/// of another runtime.
#[derive(Clone, Debug)]
struct Workers(Arc<OwnRuntime>);

#[derive(Debug)]
struct OwnRuntime(Option<Runtime>);

impl Workers {
    fn start() -> Result<Workers> {
        let runtime = Builder::new_multi_thread().worker_threads(2).thread_name("sharddb-remote").enable_all().build();
        let runtime = runtime.map_err(|source| Error::io("start a thread", "".as_ref(), source))?;
        Ok(Workers(Arc::new(OwnRuntime(Some(runtime)))))
    }

    /// Waits for a future. Unlike `Runtime::block_on`, it does not panic on a thread of another runtime.
    ///
    /// There it uses a thread of its own: a future that is polled on that thread could wait for it forever, because tokio
    /// delays some wakeups until the task that is running returns.
    fn wait_for<T: Send>(&self, future: impl Future<Output = T> + Send) -> Result<T> {
        // `None` only while it is dropped
        let runtime = self.0.0.as_ref().ok_or_else(|| Error::internal("expected a runtime, found none"))?;
        if Handle::try_current().is_err() {
            return Ok(runtime.block_on(future));
        }
        thread::scope(|scope| {
            let started = thread::Builder::new().spawn_scoped(scope, || runtime.block_on(future));
            let thread = started.map_err(|source| Error::io("start a thread", "".as_ref(), source))?;
            thread.join().map_err(|panic| panicked("a lookup", &*panic))
        })
    }
}

impl Drop for OwnRuntime {
    /// Ends the threads without waiting for them: dropping a runtime inside another one panics.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
