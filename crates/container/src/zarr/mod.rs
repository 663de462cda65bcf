//! Zarr v3: chunked arrays with many chunks per shard (the codec `sharding_indexed`, specification 1.0).
//!
//! A key is the number of a chunk in C order. [`ZarrArray`] reads the codecs bytes, gzip, zstd, blosc, crc32c,
//! transpose and nested sharding, inside shards and around them.
//!
//! - [`ZarrWriter`] and [`ZarrShardWriter`] write an array or one shard from encoded chunks.
//! - [`copy`] packs, reshards and unpacks an array; chunks keep their bytes. [`export`] does so for an imported array.
//! - [`rechunk`] writes an array with chunks of a different shape.
//! - [`ShardUpdate`] replaces chunks of a shard.
//! - [`PrecomputedOptions`] converts an array to a Neuroglancer volume.
//!
//! Files are replaced by rename, never edited in place.
//!
//! Not supported: Zarr v2, groups, chunk grids other than the regular one, and remote stores.

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
