//! Look up values by integer key, straight from files.
//!
//! ShardDb is an embedded key-value store for data that is built in batches and read constantly. Keys are `u64`, values are
//! bytes. A bulk loader sorts pairs in bounded memory and writes a *generation*: one complete version of the data, which is
//! never changed, and which is swapped in atomically under running readers. A store is a directory of generations.
//!
//! The files with the pairs, the *shards*, are in the Neuroglancer precomputed sharded format
//! (`neuroglancer_uint64_sharded_v1`). TensorStore reads every store, Neuroglancer and CloudVolume those whose `info` has a
//! type that they know, and their data sets open as databases.
//!
//! This page is a tutorial. [`guide`] has pages on [tuning](guide::tuning), [patterns](guide::patterns) and
//! [migration](guide::migration).
//!
//! # Build
//!
//! Pairs come in any order and any amount; memory stays below a budget.
//!
//! ```
//! # fn main() -> sharddb::Result<()> {
//! # let store = std::env::temp_dir().join(format!("sharddb-lib-doc-{}", std::process::id()));
//! let mut loader = sharddb::BulkLoader::create(&store)?;
//! loader.insert(42, b"the answer")?;
//! loader.insert(7, b"")?;
//! let published = loader.finish()?; // sorted, synced, current
//! assert_eq!(published.content.keys, 2);
//! # std::fs::remove_dir_all(&store).unwrap();
//! # Ok(()) }
//! ```
//!
//! [`cluster`] divides a build over processes and hosts, with the same bytes.
//!
//! # Look up
//!
//! `Ok(None)` means that the key is absent. An empty value is a value. Damage is an `Err` that names file, shard, minishard,
//! key and byte offset.
//!
//! ```
//! # fn main() -> sharddb::Result<()> {
//! # let store = std::env::temp_dir().join(format!("sharddb-lib-doc2-{}", std::process::id()));
//! # let mut loader = sharddb::BulkLoader::create(&store)?;
//! # loader.insert(42, b"the answer")?;
//! # loader.insert(7, b"")?;
//! # loader.finish()?;
//! let db = sharddb::ShardDb::open(&store)?; // `open_mapped` is faster, and needs a promise
//! let snapshot = db.snapshot(); // one generation, as long as the snapshot is kept
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
//! In mapped data a batch costs less per key than single lookups, because its cache misses overlap. A scan reads front to
//! back, in storage order.
//!
//! ```
//! # fn main() -> sharddb::Result<()> {
//! # let store = std::env::temp_dir().join(format!("sharddb-lib-doc4-{}", std::process::id()));
//! # let mut loader = sharddb::BulkLoader::create(&store)?;
//! # loader.insert(42, b"the answer")?;
//! # loader.insert(7, b"")?;
//! # loader.finish()?;
//! use std::ops::ControlFlow;
//!
//! let snapshot = sharddb::ShardDb::open(&store)?.snapshot();
//! let keys = [42, 8, 7];
//!
//! // in the order of the keys, each with its own result; get_each needs no vector
//! let values = snapshot.get_many(&keys);
//! assert_eq!(values.len(), 3);
//!
//! // on several threads, for many thousands of keys
//! use std::sync::atomic::{AtomicUsize, Ordering};
//!
//! snapshot.read_ahead(&keys); // a hint, for mapped data that is still on a disk
//! let found = AtomicUsize::new(0);
//! let outcome = snapshot.get_each_parallel(&keys, 0, |_, value| match value {
//!     Ok(value) => {
//!         found.fetch_add(usize::from(value.is_some()), Ordering::Relaxed);
//!         ControlFlow::Continue(())
//!     }
//!     Err(error) => ControlFlow::Break(error),
//! });
//! assert!(outcome.is_continue() && found.into_inner() == 2);
//!
//! // all pairs; the closure decides whether to continue after an error
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
//! Which to call:
//!
//! | for | call | |
//! |---|---|---|
//! | one key | [`get`](Snapshot::get) | [`get_owned`](Snapshot::get_owned) and [`ShardDb::get`] return values that outlive the snapshot, [`get_into`](Snapshot::get_into) fills a vector |
//! | whether it is there, and where | [`contains`](Snapshot::contains), [`locate`](Snapshot::locate) | also [`contains_many`](Snapshot::contains_many), [`locate_many`](Snapshot::locate_many) |
//! | some keys | [`get_many`](Snapshot::get_many) | a vector of results, also [owned](Snapshot::get_many_owned) |
//! | many keys | [`get_each`](Snapshot::get_each) | each result to a closure |
//! | many thousands, on several threads | [`get_each_parallel`](Snapshot::get_each_parallel) | the same |
//! | all pairs | [`scan`](Snapshot::scan) | each to a closure; the fastest; closes what it has opened |
//! | all pairs, on several threads | [`scan_parallel`](Snapshot::scan_parallel) | the same; [`split`](Snapshot::split) for other schedulers |
//! | all pairs, one by one | [`iter`](Snapshot::iter) | entries, whose values are read on request; [`pairs`](Snapshot::pairs) outlives the snapshot |
//! | all keys | [`keys`](Snapshot::keys) | from the indexes alone |
//! | shards | [`shards`](Snapshot::shards) | each with walks of its own |
//! | by ascending key | [`range`](Snapshot::range), [`key_range`](Snapshot::key_range) | from both ends; without a [key file](BuildOptions::ordered) reads all indexes first |
//!
//! # Replace
//!
//! A build publishes a new generation. Readers that hold a [`Snapshot`] stay on theirs; [`ShardDb::refresh`] moves the
//! database to the new one, and [`ShardDb::watch`] does so on a thread. [`BulkLoader::finish_unpublished`] returns a
//! [`Candidate`] to validate first. [`Store`] lists generations, rolls back, and removes those that nobody reads.
//!
//! ```
//! # fn main() -> sharddb::Result<()> {
//! # let store = std::env::temp_dir().join(format!("sharddb-lib-doc3-{}", std::process::id()));
//! # let mut loader = sharddb::BulkLoader::create(&store)?;
//! # loader.insert(42, b"old")?;
//! # loader.finish()?;
//! let db = sharddb::ShardDb::open(&store)?;
//! let before = db.snapshot();
//!
//! let mut loader = sharddb::BulkLoader::create(&store)?;
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
//! # Change
//!
//! [`Updater`] puts and deletes single keys. It writes the shards that have a change, and shares the files of the others.
//! [`BuildOptions::merge`] merges databases, or changes the specification of one, and [`diff`] compares two.
//!
//! ```
//! # fn main() -> sharddb::Result<()> {
//! # let store = std::env::temp_dir().join(format!("sharddb-lib-doc8-{}", std::process::id()));
//! # let mut loader = sharddb::BulkLoader::create(&store)?;
//! # loader.insert(42, b"old")?;
//! # loader.finish()?;
//! use sharddb::Updater;
//!
//! let mut updater = Updater::open(&store)?;
//! updater.put(7, b"seven")?;
//! updater.delete(42)?;
//! let (published, report) = updater.finish()?;
//! assert_eq!((published.content.keys, report.added, report.deleted), (1, 1, 1));
//! # std::fs::remove_dir_all(&store).unwrap();
//! # Ok(()) }
//! ```
//!
//! # Verify and salvage
//!
//! Reads verify each byte of a native data set when the open database first uses it; [`OpenOptions::verify_reads`] changes that.
//! [`Snapshot::verify`] checks every rule of the format, every checksum and every byte. [`Salvage`] copies the pairs that
//! can still be proved right out of a damaged data set, and names the others.
//!
//! ```
//! # fn main() -> sharddb::Result<()> {
//! # let store = std::env::temp_dir().join(format!("sharddb-lib-doc5-{}", std::process::id()));
//! # let whole = std::env::temp_dir().join(format!("sharddb-lib-doc6-{}", std::process::id()));
//! # let mut loader = sharddb::BulkLoader::create(&store)?;
//! # loader.insert(42, b"the answer")?;
//! # loader.finish()?;
//! use sharddb::{OpenOptions, Salvage, VerifyLevel, VerifyReads};
//!
//! let snapshot = OpenOptions::new().verify_reads(VerifyReads::Always).open(&store)?.snapshot();
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
//! # Compare
//!
//! [`diff::Diff`] finds the keys that were added, removed or changed between two generations or any two databases. It reads
//! no shard that both are known to have in common.
//!
//! # Volumes
//!
//! [`volume::morton`] computes the keys of precomputed volumes: the position of a chunk as one number.
//!
//! ```
//! assert_eq!(sharddb::volume::morton::encode(&[4, 4, 5], &[2, 3, 4]), Some(90));
//! ```
//!
//! # Other crates
//!
//! `sharddb-remote` looks up keys in object stores and publishes to them. `sharddb-container` gives stores, Zarr v3 arrays, bcolz
//! arrays and bloscpack files one interface.
//!
//! # Which handle
//!
//! | for | use | because |
//! |---|---|---|
//! | a loop, a batch, a request | [`ShardDb::snapshot`] | one generation throughout, borrowed values |
//! | a thread that must follow swaps | [`ShardDb::reader`] | one load per get, no shared counter |
//! | a value that outlives the lookup | [`ShardDb::get`], [`Snapshot::get_owned`] | it keeps its shard alive |
//! | a unit test | [`ShardDb::from_pairs`] | no directory, no disk |
//! | the bytes of one shard | [`Shard::from_bytes`](shard::Shard::from_bytes) | no directory needed |
//! | files that nobody edits | [`ShardDb::open_mapped`] | values are borrowed from the map |
//! | files that others edit, a network file system | [`ShardDb::open`] | no map; a file that shrinks is an error |
//! | a server that must survive a bad sector | [`ShardDb::open`] or [`ShardDb::load`] | an I/O error on a map is SIGBUS |
//! | borrowed values without the promise of `open_mapped` | [`ShardDb::load`] | the data is read into memory once |
//!
//! # Features
//!
//! - `bytes`: `From<OwnedValue> for bytes::Bytes`, without a copy.
//!
//! # Limitations
//!
//! - A change of a key rewrites its shard, in a new generation: see [`Updater`].
//! - Iteration is in storage order, by hash; [`Snapshot::range`] sorts the keys first, unless the generation has a
//!   [key file](BuildOptions::ordered) or its hash is the identity and the range narrow. [`Snapshot::iter`] keeps the shards
//!   open that it visits: with more of them than a process may map, use [`Snapshot::scan`].
//! - A kept value or snapshot pins its map and its disk space, even after the generation was removed.
//! - A swap needs the disk twice. A page fault blocks its thread: an async program should read on a blocking thread.
//! - Reading a map ends the process with SIGBUS if the file was truncated or its disk has an I/O error. Positioned reads
//!   return an `Io` error.
//! - CRC-32 detects accidents, not tampering.
//! - With [`VerifyReads::Never`], and in data sets without checks, damage inside raw bytes is detected only where it breaks a
//!   rule of the format.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

use sharddb_format::internal as format;
use sharddb_format::internal::{byte_range, error, ids, plural};

#[cfg(test)]
extern crate self as sharddb; // for what the fuzz targets share with the unit tests

#[allow(missing_docs, missing_debug_implementations, clippy::len_without_is_empty, reason = "of what is internal")]
mod bytes;
pub mod cluster;
#[cfg(test)]
#[allow(dead_code, reason = "most of it is for the integration tests")]
#[path = "../tests/common/mod.rs"]
mod common;
pub mod diff;
#[allow(missing_docs, reason = "of what is internal")]
mod fs;
pub mod plan;
mod prefetch;
pub mod read;
pub mod salvage;
pub mod store;
#[cfg(test)]
mod tests;
mod threads;
pub mod verify;
pub mod write;

/// Gives modules to other crates of this workspace.
macro_rules! whole {
    ($($module:ident)*) => { $(pub mod $module { pub use crate::$module::*; })* };
}

/// What other crates of this workspace use. Applications must not: it changes without notice.
#[doc(hidden)]
pub mod internal {
    whole!(bytes fs);

    pub use crate::cluster::build_part::PartBuild;
    pub use crate::cluster::members::{Kind, Members};
    pub use crate::cluster::part_receipt::shard_records;
    pub use crate::cluster::parts_dir::PartsDir;
    pub use crate::cluster::publish::{Job, publish_if};
    pub use crate::cluster::spill_format::{ROW_LEN, TRAILER_LEN};
    pub use crate::cluster::spill_reader::Spill;
    pub use crate::cluster::spill_receipt::{check_spill_len, lost_spill};
    pub use crate::plan::key_stats::{KeyCounts, counts_of};
    pub use crate::read::options::DEFAULT_MAX_MAPS;
    pub use crate::read::shard::{value_location, value_of};
    pub use crate::store::adopt::LocalGeneration;
    pub use crate::store::generation_id::generation_of_text;
    pub use crate::store::staging::{Staging, current_with, shards_like};
    pub use crate::threads::in_order::in_order;
    pub use crate::verify::options::progress_of;
    pub use crate::verify::report::{add_finding, report_of_files};
    pub use crate::write::candidate::check_emptied;
    #[cfg(feature = "testing")]
    pub use crate::write::options::PERMITS_LITTLE_MEMORY;
    pub use crate::write::options::{memory_of, settings_of};
    pub use sharddb_format::internal::date::time_as_iso_8601;
    pub use sharddb_format::internal::ids::shard_number;
    pub use sharddb_format::internal::locks::lock;
    pub use sharddb_format::internal::random::random_name;
    pub use sharddb_format::internal::{key, key_range, multilod};

    /// Numbers of keys that are placed at random.
    pub mod poisson {
        pub use crate::plan::poisson::{largest_of, median_above_zero};
    }
}

/// One shard by itself, without a directory: lookups, entries, keys.
pub mod shard {
    pub use crate::read::shard::{Entry, Shard, ShardEntries, ShardKeys, ValueLocation};
}

/// The sharding specification and what belongs to it: from a key to its shard and minishard.
pub mod spec {
    pub use sharddb_format::{
        Encoding, HashFunction, Layout, Location, MinishardNumber, ShardNumber, ShardingSpec, ValueAlignment,
    };
}

/// How far a long operation is.
pub mod progress {
    pub use crate::threads::progress::{Phase, Progress, Unit};
}

/// Precomputed volumes: the numbers of their chunks, which are the keys.
pub mod volume {
    #[doc(inline)]
    pub use sharddb_format::morton;
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

#[doc(inline)]
pub use plan::Profile;
#[doc(inline)]
pub use read::{
    Access, DatabaseStats, LastError, OpenOptions, OwnedValue, RangeOptions, Reader, ShardDb, Snapshot, Stats, Value,
    VerifyReads, Watch, WatchOptions,
};
#[doc(inline)]
pub use salvage::Salvage;
#[doc(inline)]
pub use sharddb_format::{Error, ErrorKind, ErrorLocation, Result};
#[doc(inline)]
pub use spec::{ShardingSpec, ValueAlignment};
#[doc(inline)]
pub use store::{GenerationId, Store, StoreWriter, WriterOptions};
#[doc(inline)]
pub use threads::progress::Progress;
#[doc(inline)]
pub use verify::{VerifyLevel, VerifyOptions, VerifyReport};
#[doc(inline)]
pub use write::{
    BuildOptions, BulkLoader, Candidate, Content, OnDuplicate, Published, UpdateOptions, UpdateReport, Updater,
};
