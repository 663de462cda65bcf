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

#![allow(missing_docs, clippy::len_without_is_empty, clippy::new_without_default, reason = "of what is internal")]

#[warn(missing_docs)]
pub mod morton;

pub use error::{Error, ErrorKind, ErrorLocation, Result};
pub use hash::HashFunction;
pub use ids::{Location, MinishardNumber, ShardNumber};
pub use layout::{Layout, ValueAlignment};
pub use spec::{Encoding, ShardingSpec};

mod byte_range;
mod candidates;
mod checks;
mod checksum;
mod date;
mod description;
mod digest;
#[warn(missing_docs)]
mod error;
mod gzip;
#[warn(missing_docs)]
mod hash;
#[warn(missing_docs)]
mod ids;
mod info;
mod json;
mod key;
mod key_bounds;
mod key_file;
mod key_range;
#[warn(missing_docs)]
mod layout;
mod locks;
mod manifest;
mod minishard;
mod minishard_index;
mod minishard_table;
mod multilod;
mod nested;
mod plural;
mod random;
mod shard_index;
#[warn(missing_docs)]
mod spec;

/// Gives modules to the other crates of ShardDb.
macro_rules! whole {
    ($($module:ident)*) => { $(pub mod $module { pub use crate::$module::*; })* };
}

/// What the other crates of ShardDb use. Applications must not: it changes without notice.
#[doc(hidden)]
pub mod internal {
    whole!(
        byte_range candidates checks checksum date description digest error gzip hash ids info json key
        key_bounds key_file key_range layout locks manifest minishard minishard_index minishard_table multilod
        nested plural random shard_index spec
    );
}
