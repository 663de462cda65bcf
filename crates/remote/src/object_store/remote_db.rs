//! A data set in an object store, with asynchronous lookups.

use std::sync::Arc;

use ::object_store::ObjectStore;
use sharddb_format::Result;

use crate::object_store::drive::drive;
use crate::object_store::transport::Transport;
use crate::{
    Operation, OperationStats, RemoteLocation, RemoteOptions, RemoteReader, RemoteSnapshot, RemoteStats, RemoteValue,
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
/// use sharddb_remote::{RemoteDb, RemoteOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let local = std::env::temp_dir().join(format!("sharddb-remote-doc-{}", std::process::id()));
/// # let mut loader = sharddb::BulkLoader::create_default(&local)?;
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
/// let db = RemoteDb::open(store, "numbers", &RemoteOptions::new()).await?;
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
    pub async fn open(store: Arc<dyn ObjectStore>, prefix: &str, options: &RemoteOptions) -> Result<RemoteDb> {
        let mut options = options.clone();
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
