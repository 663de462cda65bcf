//! The file formats of [ShardDb](https://docs.rs/sharddb) as bytes and text: shards, `info`, the manifest, the minishard
//! table and the key file. Does no I/O. Programs use the crate `sharddb`, which has all public names of this one.
//!
//! ```text
//! | shard index      2^minishard_bits x (start u64le, end u64le)      shard_index
//! | minishard index  [3, n] u64le, raw or gzip                         minishard_index, gzip
//! | checks           crc32 of the index, of each value, of each preamble checks (native shards only)
//! | values           raw or gzip                                       gzip
//! ```
//!
//! Offsets in both indexes are relative to the end of the shard index. No number is trusted: a view is as long as the
//! bytes it borrows, and a range is a claim (`RelativeRange`) until it is resolved against a file.

#![allow(clippy::len_without_is_empty, clippy::new_without_default, reason = "the hidden modules have what is used")]

pub mod morton;

pub use error::{Error, ErrorKind, ErrorLocation, Result};
pub use hash::HashFunction;
pub use ids::{Location, MinishardNumber, ShardNumber};
pub use layout::{Layout, ValueAlignment};
pub use spec::{Encoding, ShardingSpec};

// What the other crates of ShardDb use. Applications must not: it changes without notice.
#[doc(hidden)]
pub mod byte_range;
#[doc(hidden)]
pub mod candidates;
#[doc(hidden)]
pub mod checks;
#[doc(hidden)]
pub mod checksum;
#[doc(hidden)]
pub mod date;
#[doc(hidden)]
pub mod description;
#[doc(hidden)]
pub mod digest;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod gzip;
#[doc(hidden)]
pub mod hash;
#[doc(hidden)]
pub mod ids;
#[doc(hidden)]
pub mod info;
#[doc(hidden)]
pub mod json;
#[doc(hidden)]
pub mod key;
#[doc(hidden)]
pub mod key_bounds;
#[doc(hidden)]
pub mod key_file;
#[doc(hidden)]
pub mod key_range;
#[doc(hidden)]
pub mod layout;
#[doc(hidden)]
pub mod locks;
#[doc(hidden)]
pub mod manifest;
#[doc(hidden)]
pub mod minishard;
#[doc(hidden)]
pub mod minishard_index;
#[doc(hidden)]
pub mod minishard_table;
#[doc(hidden)]
pub mod multilod;
#[doc(hidden)]
pub mod nested;
#[doc(hidden)]
pub mod plural;
#[doc(hidden)]
pub mod random;
#[doc(hidden)]
pub mod shard_index;
#[doc(hidden)]
pub mod spec;
