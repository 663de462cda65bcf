//! Reading: databases, snapshots, lookups, batches and walks. Building and verifying are in `build` and `verify`.
//!
//! ```text
//! database    the handle of an application; follows the current generation   options, owned_value
//! snapshot    one pinned generation                                          warm
//! batch/      lookups of many keys                                           get_many, parallel, cold
//! walk/       iteration over all keys                                        iter, range
//! generation  one directory: maps a key to its shard
//! shard/      one shard: maps a key to its value
//! ```

pub(crate) mod batch;
pub(crate) mod database;
pub(crate) mod generation;
pub(crate) mod options;
pub(crate) mod owned_value;
pub(crate) mod shard;
pub(crate) mod snapshot;
pub(crate) mod walk;
pub(crate) mod warm;

pub use crate::storage::Access;
pub use database::{Reader, ShardDb};
pub use options::OpenOptions;
pub use owned_value::OwnedValue;
pub use shard::{CacheStats, Value, VerifyReads};
pub use snapshot::{LeaseState, Snapshot, Stats};
pub use walk::{Iter, Keys, Range, RangeEntry, Shards};
pub use warm::Warming;
