//! One shard: from a key to its value, and from sorted pairs to a file. Here `format` and `storage` meet.

mod cache;
mod entries;
mod extents;
mod reader;

pub use cache::CacheStats;
pub(crate) use cache::MinishardCache;
pub(crate) use entries::Rows;
pub use entries::{Entry, ShardEntries};
pub(crate) use reader::{Minishard, ReadOptions, ShardFiles, ShardReader};
pub use reader::{Shard, Value, ValueLocation};
