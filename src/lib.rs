//! ShardDb: an embedded, read-only `u64 -> bytes` key-value engine whose files are the Neuroglancer precomputed
//! *sharded* format (`neuroglancer_uint64_sharded_v1`).
//!
//! A database is a directory of shards, built once by a bulk loader and read in place: mapped, a lookup costs about two
//! cache misses and copies nothing. New data comes as a whole new generation that is swapped in atomically under running readers.
//! Every database is at the same time a data set that TensorStore, CloudVolume and Neuroglancer read, and theirs open
//! as databases.
//!
//! # Build
//!
//! Pairs come in any order and any amount; memory stays below a budget.
//!
//! ```
//! # fn main() -> sharddb::Result<()> {
//! # let store = std::env::temp_dir().join(format!("sharddb-lib-doc-{}", std::process::id()));
//! let mut loader = sharddb::BulkLoader::create_default(&store)?;
//! loader.insert(42, b"the answer")?;
//! loader.insert(7, b"")?;
//! let published = loader.finish()?; // sorted, synced, current
//! assert_eq!(published.keys, 2);
//! # std::fs::remove_dir_all(&store).unwrap();
//! # Ok(()) }
//! ```
//!
//! # Look up
//!
//! `Ok(None)` is "not there", an empty value is a value, and anything else that is not the stored value is an `Err`
//! that names file, shard, minishard, key and byte.
//!
//! ```
//! # fn main() -> sharddb::Result<()> {
//! # let store = std::env::temp_dir().join(format!("sharddb-lib-doc2-{}", std::process::id()));
//! # let mut loader = sharddb::BulkLoader::create_default(&store)?;
//! # loader.insert(42, b"the answer")?;
//! # loader.insert(7, b"")?;
//! # loader.finish()?;
//! let db = sharddb::ShardDb::open_pread(&store)?; // safe; `open` maps, which is faster and needs a promise
//! let snapshot = db.snapshot(); // one generation, for as long as it is kept
//!
//! assert_eq!(snapshot.get(42)?.unwrap(), b"the answer");
//! assert_eq!(snapshot.get(7)?.unwrap(), b"");
//! assert!(snapshot.get(8)?.is_none());
//!
//! for value in snapshot.get_many(&[42, 8, 42]) {
//!     println!("{:?}", value?.map(|value| value.len()));
//! }
//! for entry in snapshot.iter() {
//!     let entry = entry?;
//!     println!("{} has {} bytes", entry.key(), entry.value()?.len());
//! }
//! # std::fs::remove_dir_all(&store).unwrap();
//! # Ok(()) }
//! ```
//!
//! # Replace
//!
//! A build publishes a new generation; readers that hold a [`Snapshot`] stay on theirs, [`ShardDb::refresh`] moves the
//! database on. [`Store`] lists generations, rolls back, and collects those that nobody reads.
//!
//! ```
//! # fn main() -> sharddb::Result<()> {
//! # let store = std::env::temp_dir().join(format!("sharddb-lib-doc3-{}", std::process::id()));
//! # let mut loader = sharddb::BulkLoader::create_default(&store)?;
//! # loader.insert(42, b"old")?;
//! # loader.finish()?;
//! let db = sharddb::ShardDb::open_pread(&store)?;
//! let before = db.snapshot();
//!
//! let mut loader = sharddb::BulkLoader::create_default(&store)?;
//! loader.insert(42, b"new")?;
//! loader.finish()?;
//!
//! db.refresh()?;
//! assert_eq!(db.get(42)?.unwrap(), b"new");
//! assert_eq!(before.get(42)?.unwrap(), b"old");
//! # std::fs::remove_dir_all(&store).unwrap();
//! # Ok(()) }
//! ```
//!
//! # Which handle
//!
//! | for | use | because |
//! |---|---|---|
//! | a loop, a batch, a request | [`ShardDb::snapshot`] | one generation throughout, borrowed values |
//! | a thread that must follow swaps | [`ShardDb::reader`] | one load a get, no shared counter |
//! | a value that outlives the lookup | [`ShardDb::get`] | it keeps its shard alive |
//! | bytes of one shard in hand | [`Shard::from_bytes`] | no directory needed |
//!
//! # Features
//!
//! - `bytes`: `From<OwnedValue> for bytes::Bytes`, without a copy.
//! - `blosc`: Blosc 1 chunks, decoded and encoded ([`container::blosc`]); part of the next two.
//! - `bcolz`: bcolz arrays and tables, and bloscpack files, as a [`container`]: read, verified, written.
//! - `zarr`: Zarr v3 arrays with shards as a [`container`]: read, verified, written.
//! - `failpoints`: for this crate's own crash tests.
//!
//! # Quirks
//!
//! - There is no insert, update or delete of single keys: data is replaced as a whole.
//! - Iteration is in storage order, by hash; [`Snapshot::range`] sorts the keys first.
//! - A kept value or snapshot pins its map, and the disk beneath it, even when the generation was removed.
//! - A swap needs the disk twice. A page fault blocks its thread: an async executor should read on a blocking one.
//! - CRC-32 is against accidents, not against tampering.
//! - Without `verify_on_read`, damage inside raw bytes is noticed only where it breaks a rule of the format.

mod bulk;
mod byte_range;
pub mod container;
#[cfg(test)]
mod crash_tests;
mod db;
mod disk;
mod error;
mod failpoint;
mod format;
mod generation;
mod get_many;
mod get_many_parallel;
mod hash;
mod info;
mod iter;
mod json;
mod layout;
mod manifest;
pub mod morton;
mod options;
mod owned_value;
mod plan;
mod prefetch;
mod range;
mod read_ahead;
mod salvage;
mod shard;
mod snapshot;
mod spec;
mod storage;
mod store;
mod verify;

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
pub use plan::{HttpGet, KeyStats, LocalGet, Plan, PlanOptions, Prediction, Profile};
pub use range::{Range, RangeEntry};
pub use salvage::{Salvage, SalvageReport};
pub use shard::{CacheStats, Entry, Shard, ShardEntries, ShardSummary, ShardWriter, Value, ValueLocation};
pub use snapshot::{LeaseState, Snapshot, Stats};
pub use spec::{Encoding, Location, MinishardNumber, ShardNumber, ShardingSpec};
pub use storage::Access;
pub use store::{GcReport, GenerationId, Store, StoreWriter, StoredGeneration};
pub use verify::{Finding, FindingKind, Severity, VerifyLevel, VerifyReport};
