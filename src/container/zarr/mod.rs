//! Zarr v3: arrays in chunks, many chunks in a shard (the codec `sharding_indexed`, specification 1.0).
//!
//! A key is the number of a chunk in C order. Reading decodes the codecs bytes, gzip, zstd, blosc, crc32c, transpose and nested
//! sharding, in shards and around them. Writing moves encoded chunks as they are: [`ZarrWriter`] and
//! [`ZarrShardWriter`] stream an array or one shard, [`copy`] packs, reshards and unpacks, [`rechunk`] cuts other chunks, [`export`] gives an imported array back, [`ShardUpdate`]
//! replaces chunks of a shard, and [`PrecomputedOptions`] makes a volume of an array. What is on disk is replaced by rename, never edited.
//!
//! Not here: Zarr v2, groups, other chunk grids than the regular one, and remote stores.

mod array;
mod as_container;
mod chunk_key;
mod codec;
mod copy;
mod data_type;
mod elements;
mod endian;
mod extension;
mod grid;
mod keys;
mod lazy_slots;
mod metadata;
mod nd;
mod precomputed;
mod rechunk;
mod region;
mod shard;
mod shard_index;
mod update;
mod verify;
mod writer;

pub use array::ZarrArray;
pub use copy::{copy, export};
pub use metadata::{INFO_MEMBER, ZarrMetadata};
pub use precomputed::PrecomputedOptions;
pub use rechunk::rechunk;
pub use shard_index::IndexLocation;
pub use update::{ShardUpdate, UpdateStrategy};
pub use writer::{ZarrShardWriter, ZarrWriter};
