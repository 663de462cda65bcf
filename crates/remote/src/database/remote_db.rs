//! A data set in an object store, with asynchronous lookups.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use ::object_store::ObjectStore;
use futures_util::future::{BoxFuture, FutureExt, Shared};
use futures_util::stream::{FuturesUnordered, StreamExt};
use sharddb_format::{Error, Result};
use tokio::runtime::{Handle, Id};

use crate::database::transport::Transport;
use crate::request_cost::RequestCost;
use crate::{
    Failure, Operation, OperationStats, RemoteLocation, RemoteOptions, RemoteReader, RemoteSnapshot, RemoteStats,
    RemoteValue, Request, RequestId, Response,
};

/// A data set in an object store: a store that was pushed, a generation of one, or a foreign directory of shards.
///
/// It needs no particular runtime, only the one that the object store needs. Clones share caches and requests: lookups that
/// need the same block at once make one request, if they are on one runtime. Each of them ends if it is polled, whatever
/// becomes of the others. Dropping a future cancels the requests that no other lookup shares.
///
/// ```
/// use std::sync::Arc;
///
/// use object_store::memory::InMemory;
/// use object_store::{ObjectStore, ObjectStoreExt};
/// use sharddb_remote::RemoteDb;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let local = std::env::temp_dir().join(format!("sharddb-remote-doc-{}", std::process::id()));
/// # let mut loader = sharddb::BulkLoader::create(&local)?;
/// # loader.insert(42, b"the answer")?;
/// # loader.finish()?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
/// // a data set: the files of a generation, or a store that was pushed
/// # let generation = sharddb::Store::open(&local)?.current()?.unwrap().to_string();
/// for file in std::fs::read_dir(local.join(generation))? {
///     let file = file?;
///     let name = format!("numbers/{}", file.file_name().display());
///     store.put(&name.into(), std::fs::read(file.path())?.into()).await?;
/// }
///
/// let db = RemoteDb::open(store, "numbers").await?;
/// assert_eq!(db.get(42).await?.unwrap()[..], *b"the answer");
/// assert!(db.get(7).await?.is_none());
///
/// let (values, cost) = db.run(db.reader().get_many(&[42, 7])).await; // what one call costs
/// assert_eq!(values?.len(), 2);
/// println!("{} requests, {} bytes", cost.requests, cost.bytes);
/// # std::fs::remove_dir_all(&local)?;
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RemoteDb {
    reader: RemoteReader,
    transport: Transport,
}

impl RemoteDb {
    /// Opens the data set under `prefix`: names separated by `/`, or nothing.
    ///
    /// The store's own retries and timeouts apply. Without a [root name](RemoteOptions::root_name), errors name objects by
    /// the store's description of itself.
    ///
    /// Errors: `InvalidInput` for a prefix that is not one, and those of [`RemoteOptions::open`].
    pub async fn open(store: Arc<dyn ObjectStore>, prefix: &str) -> Result<RemoteDb> {
        RemoteDb::open_with(store, prefix, &RemoteOptions::new()).await
    }

    /// Opens the data set under `prefix` with options; see [`open`](RemoteDb::open).
    ///
    /// Errors: those of [`open`](RemoteDb::open).
    pub async fn open_with(store: Arc<dyn ObjectStore>, prefix: &str, options: &RemoteOptions) -> Result<RemoteDb> {
        let mut options = options.clone();
        if store.to_string().starts_with("LocalFileSystem") {
            options.default_request_cost(RequestCost::OF_FILES);
        }
        let transport = Transport::new(store, prefix, options.root().to_string())?;
        options.root_name(transport.root_name());
        let reader = drive(&transport, options.open()).await.0?;
        Ok(RemoteDb { reader, transport })
    }

    /// Returns the value of a key; `None` if it is absent. See [`RemoteReader::get`].
    ///
    /// Errors: those of [`RemoteReader::get`].
    pub async fn get(&self, key: u64) -> Result<Option<RemoteValue>> {
        self.run(self.reader.get(key)).await.0
    }

    /// Returns whether a key is present. See [`RemoteReader::contains`].
    ///
    /// Errors: those of [`RemoteReader::contains`].
    pub async fn contains(&self, key: u64) -> Result<bool> {
        self.run(self.reader.contains(key)).await.0
    }

    /// Returns where the value of a key is. See [`RemoteReader::locate`].
    ///
    /// Errors: those of [`RemoteReader::locate`].
    pub async fn locate(&self, key: u64) -> Result<Option<RemoteLocation>> {
        self.run(self.reader.locate(key)).await.0
    }

    /// Returns the values of many keys, in their order, with a result for each. See [`RemoteReader::get_many`].
    ///
    /// Errors: those of [`RemoteReader::get_many`].
    pub async fn get_many(&self, keys: &[u64]) -> Result<Vec<Result<Option<RemoteValue>>>> {
        self.run(self.reader.get_many(keys)).await.0
    }

    /// Moves to the generation that is current now; returns whether it is another one. See [`RemoteReader::refresh`].
    ///
    /// Errors: those of [`RemoteReader::refresh`].
    pub async fn refresh(&self) -> Result<bool> {
        self.run(self.reader.refresh()).await.0
    }

    /// Runs an operation of this data set's [reader](RemoteDb::reader) or [snapshots](RemoteDb::snapshot), with at most 48
    /// requests at a time. Returns its result, and what it cost.
    pub async fn run<T>(&self, operation: Operation<'_, T>) -> (Result<T>, OperationStats) {
        drive(&self.transport, operation).await
    }

    /// Returns the reader, whose operations [`run`](RemoteDb::run) takes.
    pub fn reader(&self) -> &RemoteReader {
        &self.reader
    }

    /// Pins the generation that is served now: its lookups fail with `GenerationGone` once it is removed.
    pub fn snapshot(&self) -> RemoteSnapshot {
        self.reader.snapshot()
    }

    /// Returns the totals of requests, bytes and cache hits since the data set was opened.
    pub fn stats(&self) -> RemoteStats {
        self.reader.stats()
    }
}

/// Maximum number of requests of one operation in flight, also of those that it shares.
///
/// Object stores answer that many at once without slowing down, and with more the first answers come later.
const IN_FLIGHT: usize = 48;

/// A request in flight. Each of the operations that share it polls it, and the last one that is dropped cancels it.
#[derive(Clone)]
struct Read {
    answer: Shared<BoxFuture<'static, Arc<Result<Response, Failure>>>>,
    /// The runtime on which it began, whose timers and connections it waits for.
    runtime: Option<Id>,
}

/// Runs an operation to its end. Returns what it cost too, also if it failed.
///
/// Dropping the future cancels the operation, and its requests unless other operations share them.
async fn drive<T>(transport: &Transport, mut operation: Operation<'_, T>) -> (Result<T>, OperationStats) {
    let start = Instant::now();
    let mut in_flight = FuturesUnordered::new();
    let result = poll_fn(|context: &mut Context<'_>| {
        loop {
            if let Poll::Ready(result) = operation.poll() {
                return Poll::Ready(result);
            }
            while in_flight.len() < IN_FLIGHT
                && let Some((id, request)) = operation.next_request()
            {
                let answer = read(transport, &id, &request).answer;
                in_flight.push(answer.map(|answer| (id, answer)));
            }
            match in_flight.poll_next_unpin(context) {
                Poll::Ready(Some((id, answer))) => operation.answer(id, Result::clone(&answer)),
                Poll::Ready(None) => {
                    return Poll::Ready(Err(Error::internal("expected an operation with a request, found none")));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
    (result, OperationStats { elapsed: start.elapsed(), ..operation.stats() })
}

/// Returns the read of a request. Operations share it if they run on one runtime: another one may have stopped.
fn read(transport: &Transport, id: &RequestId, request: &Request) -> Read {
    let runtime = Handle::try_current().ok().map(|handle| handle.id());
    let start = || {
        let (transport, request) = (transport.clone(), request.clone());
        let answer = async move { Arc::new(transport.perform(&request).await) };
        Read { answer: answer.boxed().shared(), runtime }
    };
    let read = id.shared(start);
    if read.runtime == runtime { read } else { start() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::object_store::ObjectStoreExt;
    use ::object_store::memory::InMemory;

    use super::*;
    use crate::Wanted;
    use crate::database::testing::{Recorder, block_on};

    #[test]
    fn at_most_48_requests_are_in_flight_and_each_answer_comes_once() {
        block_on(async {
            let store = InMemory::new();
            store.put(&"a".into(), (0..=255).collect::<Vec<u8>>().into()).await.unwrap();
            let recorder = Arc::new(Recorder::new(store));
            let transport = Transport::new(recorder.clone(), "", String::new()).unwrap();
            let operation = Operation::new(|exchange| async move {
                let requests = (0..200).map(|at| Request::new("a", Wanted::Bytes(at..at + 1)).into()).collect();
                let mut found = vec![None; 200];
                exchange.fetch_all(requests, |at, answer| found[at] = Some(answer.unwrap().body.as_slice()[0])).await;
                Ok(found)
            });
            let (found, stats) = drive(&transport, operation).await;
            assert_eq!(found.unwrap(), (0..200).map(Some).collect::<Vec<Option<u8>>>());
            assert_eq!((stats.requests, stats.bytes), (200, 200));
            assert_eq!(recorder.take_requests().len(), 200);
            assert_eq!(recorder.most_in_flight(), IN_FLIGHT);
        });
    }

    #[test]
    fn a_failed_operation_states_what_it_cost() {
        block_on(async {
            let transport = Transport::new(Arc::new(InMemory::new()), "", String::new()).unwrap();
            let operation: Operation<'_, ()> = Operation::new(|exchange| async move {
                let answer = exchange.fetch(Request::new("absent", Wanted::Whole { most: 9 })).await;
                assert!(matches!(answer, Err(Failure::NotFound)));
                Err(sharddb_format::Error::corrupt("expected an object, found none"))
            });
            let (result, stats) = drive(&transport, operation).await;
            assert!(result.is_err());
            assert_eq!((stats.requests, stats.bytes), (1, 0));
        });
    }
}
