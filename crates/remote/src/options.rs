//! The options for opening a data set in an object store.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use sharddb_format::internal::gzip::{DEFAULT_MAX_INDEX_BYTES, DEFAULT_MAX_VALUE_BYTES};
use sharddb_format::internal::spec::ShardingSpec;

use crate::block::Cache;
use crate::block_store::BlockStore;
use crate::generation::Shared;
use crate::objects::Totals;
use crate::open::Served;
use crate::operation::Operation;
use crate::reader::RemoteReader;
use crate::request_cost::RequestCost;
use crate::table::DEFAULT_WHOLE_TABLE_BYTES;

/// Options for opening a data set in an object store or on a web server.
///
/// ```
/// use sharddb_remote::{Operation, RemoteOptions, RemoteReader};
///
/// let operation: Operation<'_, RemoteReader> =
///     RemoteOptions::new().root_name("s3://bucket/store").cache_bytes(256 << 20).open();
/// ```
#[derive(Clone)]
pub struct RemoteOptions {
    root_name: String,
    generation: Option<String>,
    pointer: Option<String>,
    spec: Option<ShardingSpec>,
    cache_bytes: u64,
    whole_table_bytes: u64,
    request_cost: Option<RequestCost>,
    measures_request_cost: bool,
    max_value_bytes: u64,
    max_index_bytes: u64,
    block_store: Option<Arc<dyn BlockStore>>,
}

impl Default for RemoteOptions {
    fn default() -> RemoteOptions {
        RemoteOptions {
            root_name: String::new(),
            generation: None,
            pointer: None,
            spec: None,
            cache_bytes: 64 << 20,
            whole_table_bytes: DEFAULT_WHOLE_TABLE_BYTES,
            request_cost: None,
            measures_request_cost: false,
            max_value_bytes: DEFAULT_MAX_VALUE_BYTES,
            max_index_bytes: DEFAULT_MAX_INDEX_BYTES,
            block_store: None,
        }
    }
}

impl RemoteOptions {
    /// Creates the default options.
    pub fn new() -> RemoteOptions {
        RemoteOptions::default()
    }

    /// Sets the name of the data set, such as `s3://bucket/store`: errors show it before the object, and a
    /// [`BlockStore`] distinguishes data sets by it. Default: empty.
    pub fn root_name(&mut self, name: impl Into<String>) -> &mut RemoteOptions {
        self.root_name = name.into();
        self
    }

    /// Sets the generation that is served instead of the current one: in a store that was pushed, one of the history, by
    /// its name, or by its number as in `gen-0000000003`. A refresh does not leave it. Default: the current one.
    ///
    /// In a copy of a local store: any generation that was copied, by its name. The copy needs an object `current` whose
    /// text is the name of a generation. The symbolic link `current` of a local store is no object, and `LocalFileSystem`
    /// of the crate `object_store` hides it: opening such a copy fails with kind `NotFound`.
    pub fn generation(&mut self, name: impl Into<String>) -> &mut RemoteOptions {
        self.generation = Some(name.into());
        self
    }

    /// Sets the JSON pointer (RFC 6901) to the object in `info` that has the member "sharding", such as `/scales/0`.
    /// Default: like `OpenOptions::sharding_at` of the crate `sharddb`.
    pub fn sharding_at(&mut self, pointer: impl Into<String>) -> &mut RemoteOptions {
        self.pointer = Some(pointer.into());
        self
    }

    /// Sets the sharding specification, for shards without an `info`, or to override it. The data is foreign then.
    /// Default: that of `info`.
    pub fn spec(&mut self, spec: ShardingSpec) -> &mut RemoteOptions {
        self.spec = Some(spec);
        self
    }

    /// Sets the capacity in bytes of the cache, for the minishard indexes, short minishards, shard indexes and blocks of
    /// the minishard table that lookups read. Default: 64 MiB.
    pub fn cache_bytes(&mut self, bytes: u64) -> &mut RemoteOptions {
        self.cache_bytes = bytes;
        self
    }

    /// Sets the maximum length in bytes of a minishard table that is read as a whole when a generation is opened, and kept
    /// besides the cache. Of a longer table this reads the beginning. The rest is read on demand, 64 KiB at a time, and cached.
    /// Default: 1 MiB.
    ///
    /// Up to 16 MiB it is read at the same time as the manifest. With 0, only the head is read, in another round of requests.
    pub fn whole_table_bytes(&mut self, bytes: u64) -> &mut RemoteOptions {
        self.whole_table_bytes = bytes;
        self
    }

    /// Sets what a request costs, in bytes that arrive in the same time: latency times bandwidth, divided by the requests that
    /// are in flight at a time. From 16 KiB to 2 MiB. Default: 64 KiB, the cost at 20 ms, 100 MB/s and 32 requests in flight;
    /// 16 KiB for a `RemoteDb` of a `LocalFileSystem`.
    ///
    /// It decides what is read to save requests. A gap between two ranges of an object is read if it is shorter. The values
    /// of a minishard are read with its index if they are shorter than one cost for each key that is looked up in it. So a
    /// batch of existing keys reads at most this many bytes that it does not need for each request that it saves. A request
    /// for several ranges has at most 64 times this, and at most 4 MiB.
    ///
    /// Raise it for a high latency and a high bandwidth. Lower it if bytes cost more than requests.
    pub fn request_cost(&mut self, bytes: u64) -> &mut RemoteOptions {
        self.request_cost = Some(RequestCost::new(bytes));
        self
    }

    /// Makes the reader measure what a request costs: the least wait times the rate of long bodies, by
    /// [`Response::timing`](crate::Response::timing). [`request_cost`](RemoteOptions::request_cost) is used until a response of
    /// 256 KiB or more has arrived. Default: false, so that the same lookups make the same requests.
    ///
    /// `RemoteDb` states the times. Retries of the client, and what it does besides, are in them.
    pub fn measure_request_cost(&mut self, measures: bool) -> &mut RemoteOptions {
        self.measures_request_cost = measures;
        self
    }

    /// Sets the default for what a request costs.
    #[cfg(feature = "object_store")]
    pub(crate) fn default_request_cost(&mut self, cost: RequestCost) {
        self.request_cost.get_or_insert(cost);
    }

    /// Sets the cap in bytes on a value. A larger one is an error of kind `TooLarge`. Default: 1 GiB.
    pub fn max_value_bytes(&mut self, bytes: u64) -> &mut RemoteOptions {
        self.max_value_bytes = bytes;
        self
    }

    /// Sets the cap in bytes on a minishard index, and on a shard index that is read as a whole. A larger one is an error
    /// of kind `TooLarge`. Default: 256 MiB.
    pub fn max_index_bytes(&mut self, bytes: u64) -> &mut RemoteOptions {
        self.max_index_bytes = bytes;
        self
    }

    /// Sets a second cache, which is looked up before a request is made. Foreign data uses it only for objects with a strong
    /// ETag, after the first response about the object, and if there is a [`root_name`](RemoteOptions::root_name). Default:
    /// none.
    pub fn block_store(&mut self, store: Arc<dyn BlockStore>) -> &mut RemoteOptions {
        self.block_store = Some(store);
        self
    }

    /// Opens the data set: the generation that `current` names or, if there is no `current`, the directory at the root,
    /// a generation or foreign data.
    ///
    /// Cost: two rounds of requests: `current`, then `info`, the manifest and the minishard table at the same time. One for
    /// foreign data, and for a [`generation`] that is chosen by the name of its directory. One more for a table at the root or
    /// with a head above [`whole_table_bytes`](RemoteOptions::whole_table_bytes), and for the shard indexes of a store without a
    /// table that has several shards, or its shard in a directory below.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is neither `current` nor `info`, no bucket of the name, or no such [`generation`]; `GenerationGone`
    /// if `gc` removed it; `Corrupt`, `InvalidSpec`, `InvalidInput`, `Unsupported`, as for a local directory; those of the
    /// client.
    ///
    /// [`generation`]: RemoteOptions::generation
    pub fn open(&self) -> Operation<'static, RemoteReader> {
        let shared = Arc::new(self.shared());
        Operation::new(|exchange| async move {
            let served = Served::open(&shared, &exchange).await?;
            Ok(RemoteReader::new(shared, served))
        })
    }

    /// Returns the name that errors show.
    #[cfg(feature = "object_store")]
    pub(crate) fn root(&self) -> &str {
        &self.root_name
    }

    fn shared(&self) -> Shared {
        Shared {
            root: self.root_name.as_str().into(),
            chosen: self.generation.clone(),
            spec: self.spec,
            pointer: self.pointer.clone(),
            max_value_bytes: self.max_value_bytes,
            max_index_bytes: self.max_index_bytes,
            whole_table_bytes: self.whole_table_bytes,
            request_cost: self.request_cost.unwrap_or(RequestCost::OF_OBJECT_STORES),
            cache: Cache::new(self.cache_bytes),
            block_store: self.block_store.clone(),
            totals: Arc::new(Totals::new(self.measures_request_cost)),
            generations: AtomicU64::new(0),
        }
    }
}

impl fmt::Debug for RemoteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteOptions")
            .field("root_name", &self.root_name)
            .field("generation", &self.generation)
            .field("pointer", &self.pointer)
            .field("spec", &self.spec)
            .field("cache_bytes", &self.cache_bytes)
            .field("whole_table_bytes", &self.whole_table_bytes)
            .field("request_cost", &self.request_cost)
            .field("measures_request_cost", &self.measures_request_cost)
            .field("max_value_bytes", &self.max_value_bytes)
            .field("max_index_bytes", &self.max_index_bytes)
            .field("block_store", &self.block_store.is_some())
            .finish()
    }
}
