//! Reading: databases, snapshots, lookups, batches and walks. Building and verifying are in `write` and `verify`.

// module      what it has                                                    its parts
//
// database    the handle of an application; follows the current generation   options, owned_value
// watch       a thread that refreshes databases                              following
// snapshot    one pinned generation
// batch/      lookups of many keys                                           get_many, cold
// walk/       iteration over all keys in storage order                       iter, slice, piece
// ordered/    ranges in key order                                            queries, range, key_range, scan
// generation  one directory: maps a key to its shard
// sorted_keys/  keys in order: in a key file, in memory, or spilled          key_file, sorter
// shard/      one shard: maps a key to its value

pub(crate) mod batch;
pub(crate) mod database;
pub(crate) mod following;
pub(crate) mod generation;
pub(crate) mod options;
pub(crate) mod ordered;
pub(crate) mod owned_value;
pub(crate) mod shard;
pub(crate) mod snapshot;
pub(crate) mod sorted_keys;
pub(crate) mod walk;
pub(crate) mod watch;

pub use crate::bytes::Access;
pub use database::{Reader, ShardDb};
pub use following::{DatabaseStats, LastError};
pub use options::OpenOptions;
pub use ordered::{KeyRange, Range, RangeEntry, RangeOptions};
pub use owned_value::OwnedValue;
pub use shard::{CacheStats, Value, VerifyReads};
pub use snapshot::{LeaseState, Snapshot, Stats, Warming};
pub use walk::{Iter, Keys, Pairs, Shards, Slice};
pub use watch::{Watch, WatchOptions};
