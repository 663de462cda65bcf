//! ShardDb: an embedded, read-only `u64 -> bytes` key-value engine whose files are the Neuroglancer precomputed
//! *sharded* format (`neuroglancer_uint64_sharded_v1`).
//!
//! A database is a directory of shards, built once by a bulk loader and read in place: mapped, a lookup waits for memory
//! about once and copies nothing. New data comes as a whole new generation that is swapped in atomically under running readers.
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
//! # Many keys, and all of them
//!
//! In mapped data a key of a batch costs less than a lookup by itself, since the cache misses of the batch overlap. A
//! scan reads in storage order, front to back.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let store = std::env::temp_dir().join(format!("sharddb-lib-doc4-{}", std::process::id()));
//! # let mut loader = sharddb::BulkLoader::create_default(&store)?;
//! # loader.insert(42, b"the answer")?;
//! # loader.insert(7, b"")?;
//! # loader.finish()?;
//! use std::ops::ControlFlow;
//!
//! let snapshot = sharddb::ShardDb::open_pread(&store)?.snapshot();
//! let keys = [42, 8, 7];
//!
//! // in their order, each with a result of its own; without a vector of results: get_many_with
//! let values = snapshot.get_many(&keys);
//! assert_eq!(values.len(), 3);
//!
//! // on several threads, for many thousands of keys, from a closure
//! use std::sync::atomic::{AtomicUsize, Ordering};
//!
//! snapshot.read_ahead(&keys); // a hint, for mapped data that is still on a disk
//! let found = AtomicUsize::new(0);
//! let outcome = snapshot.get_many_parallel_with(&keys, std::thread::available_parallelism()?, |_, value| match value {
//!     Ok(value) => {
//!         found.fetch_add(usize::from(value.is_some()), Ordering::Relaxed);
//!         ControlFlow::Continue(())
//!     }
//!     Err(error) => ControlFlow::Break(error),
//! });
//! assert!(outcome.is_continue() && found.into_inner() == 2);
//!
//! // all pairs; an error is told with its place, and `f` decides whether to go on
//! let mut bytes = 0;
//! let outcome = snapshot.scan(|pair| match pair {
//!     Ok((_key, value)) => {
//!         bytes += value.len();
//!         ControlFlow::Continue(())
//!     }
//!     Err(error) => ControlFlow::Break(error),
//! });
//! assert!(outcome.is_continue());
//! assert_eq!(bytes, 10);
//! # std::fs::remove_dir_all(&store).unwrap();
//! # Ok(()) }
//! ```
//!
//! | walk | gives | shards that are met |
//! |---|---|---|
//! | [`Snapshot::scan`] | each key with its value to a closure; the fastest | are closed when they are past |
//! | [`Snapshot::iter`] | entries; a value is read when it is asked for | stay open, as after a lookup |
//! | [`Snapshot::keys`] | keys, from the indexes alone | are closed when they are past |
//! | [`Snapshot::shards`] | shards, each with its own `iter`, `count` and `keys` | are closed with their last handle |
//! | [`Snapshot::range`] | pairs by ascending key; reads all indexes first | |
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
//! # Check and mend
//!
//! [`Snapshot::verify`] looks at every rule of the format, every check and every byte. [`Salvage`] takes the pairs that
//! can still be proved right out of a damaged data set, and names the rest. [`OpenOptions::verify_reads`] says when reads compare bytes
//! with their checks; by default each byte is compared when it is first used.
//!
//! ```
//! # fn main() -> sharddb::Result<()> {
//! # let store = std::env::temp_dir().join(format!("sharddb-lib-doc5-{}", std::process::id()));
//! # let whole = std::env::temp_dir().join(format!("sharddb-lib-doc6-{}", std::process::id()));
//! # let mut loader = sharddb::BulkLoader::create_default(&store)?;
//! # loader.insert(42, b"the answer")?;
//! # loader.finish()?;
//! use sharddb::{OpenOptions, Salvage, VerifyLevel, VerifyReads};
//!
//! let snapshot = OpenOptions::new().verify_reads(VerifyReads::Always).open_pread(&store)?.snapshot();
//! assert!(snapshot.verify(VerifyLevel::Data)?.is_clean());
//!
//! let salvage = Salvage::open(&store)?;
//! let mut loader = salvage.build_options().create(&whole)?;
//! let report = salvage.write(&mut loader, |lost| eprintln!("{lost}"))?;
//! loader.finish()?;
//! assert_eq!((report.kept, report.losses), (1, 0));
//! # std::fs::remove_dir_all(&store).unwrap();
//! # std::fs::remove_dir_all(&whole).unwrap();
//! # Ok(()) }
//! ```
//!
//! # Volumes and other formats
//!
//! [`morton`] has the keys of precomputed volumes: the position of a chunk as one number. The trait
//! [`container::Container`] is what a [`Snapshot`] has in common with Zarr v3 arrays (feature `zarr`), bcolz arrays and
//! bloscpack files (feature `bcolz`): a key goes in, the bytes of a chunk come out.
//!
//! ```
//! # fn main() -> sharddb::Result<()> {
//! # let store = std::env::temp_dir().join(format!("sharddb-lib-doc7-{}", std::process::id()));
//! # let mut loader = sharddb::BulkLoader::create_default(&store)?;
//! # loader.insert(42, b"the answer")?;
//! # loader.finish()?;
//! use sharddb::container::{Container, Form};
//!
//! fn stored_bytes(container: &dyn Container) -> sharddb::Result<usize> {
//!     let mut bytes = 0;
//!     for key in container.keys() {
//!         bytes += container.get(key?, Form::Encoded)?.map_or(0, |chunk| chunk.len());
//!     }
//!     Ok(bytes)
//! }
//!
//! let db = sharddb::ShardDb::open_pread(&store)?;
//! assert_eq!(stored_bytes(&db.snapshot())?, 10);
//! assert_eq!(sharddb::morton::encode(&[4, 4, 5], &[2, 3, 4]), Some(90));
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
//! | bytes of one shard in hand | [`shard::Shard::from_bytes`] | no directory needed |
//! | files that others edit, a network file system | [`ShardDb::open_pread`] | no map; a file that shrinks is an error |
//! | a server that must survive a bad sector | [`ShardDb::open_pread`] or [`ShardDb::load`] | an I/O error on a map is SIGBUS |
//! | data that is read into memory once | [`ShardDb::load`] | borrowed values without a promise |
//!
//! For mapped data that fits into memory, [`OpenOptions::populate`] reads a shard whole at its first touch, and
//! [`Snapshot::warm`] all of them in the background. For data that
//! does not, and has no minishard table, [`OpenOptions::read_ahead_index`] asks for the shard indexes when a generation is
//! opened.
//!
//! # Features
//!
//! - `bytes`: `From<OwnedValue> for bytes::Bytes`, without a copy.
//! - `blosc`: Blosc 1 chunks, decoded and encoded (`container::blosc`); part of the next two.
//! - `bcolz`: bcolz arrays and tables, and bloscpack files, as a [`container`]: read, verified, written.
//! - `zarr`: Zarr v3 arrays with shards as a [`container`]: read, verified, written.
//!
//! # Quirks
//!
//! - There is no insert, update or delete of single keys: data is replaced as a whole.
//! - Iteration is in storage order, by hash; [`Snapshot::range`] sorts the keys first. [`Snapshot::iter`] keeps the
//!   shards that it meets open: with more of them than a process may map, take [`Snapshot::scan`].
//! - A kept value or snapshot pins its map, and the disk beneath it, even when the generation was removed.
//! - A swap needs the disk twice. A page fault blocks its thread: an async executor should read on a blocking one.
//! - Reading a map ends the process with SIGBUS where the file was truncated, or its disk has an I/O error. Positioned
//!   reads return an `Io` error.
//! - CRC-32 is against accidents, not against tampering.
//! - With [`VerifyReads::Never`], and in data sets without checks, damage inside raw bytes is noticed only where it breaks a
//!   rule of the format.

#[cfg(test)]
extern crate self as sharddb; // for what the fuzz targets share with the unit tests

pub mod build;
mod byte_range;
#[cfg(test)]
#[allow(dead_code, reason = "most of it is for the integration tests")]
#[path = "../tests/common/mod.rs"]
mod common;
pub mod container;
mod disk;
mod error;
mod format;
mod ids;
pub mod plan;
mod prefetch;
pub mod read;
pub mod salvage;
mod storage;
pub mod store;
#[cfg(test)]
mod tests;
pub mod verify;

/// One shard by itself, without a directory: lookups, entries, keys.
pub mod shard {
    pub use crate::read::shard::{Entry, Shard, ShardEntries, ShardKeys, ValueLocation};
}

/// The sharding specification and what belongs to it: from a key to its shard and minishard.
pub mod spec {
    pub use crate::format::hash::HashFunction;
    pub use crate::format::layout::{Layout, ValueAlignment};
    pub use crate::format::spec::{Encoding, ShardingSpec};
    pub use crate::ids::{Location, MinishardNumber, ShardNumber};
}

/// Guides: tuning, patterns, migration from other engines.
pub mod guide {
    #[doc = include_str!("guide/migration.md")]
    pub mod migration {}
    #[doc = include_str!("guide/patterns.md")]
    pub mod patterns {}
    #[doc = include_str!("guide/tuning.md")]
    pub mod tuning {}
}

pub use build::{BuildOptions, BulkLoader, Candidate, OnDuplicate, Published};
pub use error::{Error, ErrorKind, ErrorLocation, Result};
pub use format::morton;
pub use plan::Profile;
pub use read::{OpenOptions, OwnedValue, Reader, ShardDb, Snapshot, Value, VerifyReads};
pub use salvage::Salvage;
pub use spec::ShardingSpec;
pub use store::{GenerationId, Store, StoreWriter};
pub use verify::VerifyLevel;
