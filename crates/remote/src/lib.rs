//! Lookups in an object store or on a web server: the same answers as from a local directory, over byte ranges of named
//! objects.
//!
//! Only [`DiskCache`], `Bucket`, `RemoteDb` and `BlockingDb` do I/O.
//!
#![cfg_attr(feature = "bucket", doc = include_str!("example.md"))]
//! # Features
//!
//! - `object_store`: `RemoteDb` and `BlockingDb`, lookups over a store of the crate `object_store`.
//! - `bucket`: `Bucket`, publishing to such a store, and from there into local stores.

// module        what it has                                     its parts
//
// request       a read of an object, its answer, a value
// operation     the state machine of one call, without I/O      shared_request
// options       what is opened                                  open
// reader        lookups in the current generation               snapshot
// generation    an open generation, and how it is stored        objects, identity, table
// lookup        the lookup of one key                           place, minishard
// batch         lookups of many keys                            rounds, plan, request_cost
// scan          iteration in storage order                      walk, locations
// range         iteration in key order                          key_range, key_file
// acquire       blocks of a generation, by cache or requests    block, block_cache, block_store
// store_error   errors of the crate `object_store` (feature `object_store`)
// unknown_length  a mark of responses of that crate (feature `object_store`)
// disk_cache    a block store in a local directory
// bucket_current  the text that names the current generation of a bucket
// bucket        publishing to an object store (feature `bucket`)
// database      databases over stores of the crate `object_store` (feature `object_store`)

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod acquire;
mod batch;
mod block;
mod block_cache;
mod block_store;
#[cfg(feature = "bucket")]
mod bucket;
#[cfg_attr(not(feature = "bucket"), allow(dead_code, reason = "publishing needs all of it, reading a part"))]
mod bucket_current;
#[cfg(test)]
#[allow(dead_code, reason = "most of it is for the integration tests")]
#[path = "../../../tests/common/mod.rs"]
mod common;
#[cfg(feature = "object_store")]
mod database;
mod disk_cache;
mod generation;
mod identity;
mod key_file;
mod key_range;
mod locations;
mod lookup;
mod minishard;
mod objects;
mod open;
mod operation;
mod options;
mod place;
mod plan;
mod range;
mod reader;
mod request;
mod request_cost;
mod rounds;
mod scan;
mod shared_request;
mod snapshot;
#[cfg(feature = "object_store")]
mod store_error;
mod table;
#[cfg(feature = "object_store")]
mod unknown_length;
mod walk;

pub use block_store::{BlockId, BlockStore};
#[cfg(feature = "bucket")]
pub use bucket::{
    Bucket, BucketCleaned, BucketGcOptions, BucketGcReport, BucketGeneration, BucketState, BucketVerifyLevel,
    BucketVerifyOptions, BucketVerifyReport, BucketVersion, PublishedParts, PullOptions, Pulled, PushOptions, Pushed,
    layer_source,
};
#[cfg(feature = "object_store")]
pub use database::{BlockingDb, RemoteDb};
pub use disk_cache::DiskCache;
pub use key_range::RemoteKeyRange;
pub use lookup::RemoteLocation;
/// The crate of object stores, in the version of this crate's functions.
#[cfg(feature = "object_store")]
pub use object_store;
pub use operation::{Operation, OperationStats};
pub use options::RemoteOptions;
pub use range::RemoteRange;
pub use reader::{RemoteReader, RemoteStats};
pub use request::{Body, Failure, RemoteValue, Request, Response, Timing, Wanted};
pub use scan::{RemoteKeys, RemoteScan};
pub use shared_request::RequestId;
pub use snapshot::RemoteSnapshot;
#[cfg(feature = "object_store")]
pub use unknown_length::UnknownLength;

/// What other crates of this workspace use. Applications must not: it changes without notice.
#[cfg(feature = "bucket")]
#[doc(hidden)]
pub mod internal {
    pub use crate::bucket::{pull_if, push_if};
}
