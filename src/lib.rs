//! ShardDb

mod bulk;
mod byte_range;
mod db;
mod error;
mod failpoint;
mod format;
mod generation;
mod get_many;
mod hash;
mod info;
mod iter;
mod json;
mod layout;
mod manifest;
mod options;
mod owned_value;
mod plan;
mod prefetch;
mod range;
mod shard;
mod snapshot;
mod spec;
mod storage;
mod store;

pub use bulk::{BuildOptions, BuildPhase, BuildProgress, BulkLoader, OnDuplicate, Published};
pub use db::{Reader, ShardDb};
pub use error::{Error, ErrorKind, ErrorLocation, Result};
#[cfg(feature = "failpoints")]
#[doc(hidden)]
pub use failpoint::NAMES as FAILPOINTS;
pub use hash::HashFunction;
pub use iter::{Iter, Shards};
pub use layout::{Layout, ValueAlignment};
pub use options::OpenOptions;
pub use owned_value::OwnedValue;
pub use plan::{HttpGet, KeyStats, LocalGet, Plan, Prediction, Profile};
pub use range::{Range, RangeEntry};
pub use shard::{CacheStats, Entry, Shard, ShardEntries, ShardSummary, ShardWriter, Value, ValueLocation};
pub use snapshot::{LeaseState, Snapshot, Stats};
pub use spec::{Encoding, Location, MinishardNumber, ShardNumber, ShardingSpec};
pub use storage::Access;
pub use store::{GcReport, GenerationId, Store, StoreWriter, StoredGeneration};
