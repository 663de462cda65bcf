//! ShardDb
mod byte_range;
mod error;
mod format;
mod hash;
mod info;
mod json;
mod layout;
mod prefetch;
mod shard;
mod spec;
mod storage;

pub use error::{Error, ErrorKind, ErrorLocation, Result};
pub use hash::HashFunction;
pub use layout::{Layout, ValueAlignment};
pub use shard::{CacheStats, Entry, Shard, ShardEntries, Value, ValueLocation};
pub use spec::{Encoding, Location, MinishardNumber, ShardNumber, ShardingSpec};
pub use storage::Access;
