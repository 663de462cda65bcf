//! The file formats, as bytes and text: shards, `info`, the manifest, the minishard table and
//! the key file. Does no I/O.
//!
//! ```text
//! | shard index      2^minishard_bits x (start u64le, end u64le)      shard_index
//! | minishard index  [3, n] u64le, raw or gzip                         minishard_index, gzip
//! | checks           crc32 of the index, of each value, of each prefix checks (native shards only)
//! | values           raw or gzip                                       gzip
//! ```
//!
//! Offsets in both indexes are relative to the end of the shard index. No number is trusted: a view is as long as the
//! bytes it borrows, and a range is a claim ([`RelativeRange`](crate::byte_range)) until it is resolved against a file.

pub(crate) mod candidates;
pub(crate) mod checks;
pub(crate) mod checksum;
pub(crate) mod description;
pub(crate) mod digest;
pub(crate) mod gzip;
pub(crate) mod hash;
pub(crate) mod info;
pub(crate) mod json;
pub(crate) mod key_bounds;
pub(crate) mod key_file;
pub(crate) mod layout;
pub(crate) mod manifest;
pub(crate) mod minishard;
pub(crate) mod minishard_index;
pub(crate) mod minishard_table;
pub mod morton;
pub(crate) mod nested;
pub(crate) mod shard_index;
pub(crate) mod spec;
