//! bcolz: arrays and tables of columns in compressed chunks, read, verified and written.
//!
//! ```text
//! as bcolz writes it (shipped)                    as bcolz's RFC describes it (superchunks)
//!
//! root/meta/sizes      shape, nbytes, cbytes      root/meta/sizes
//! root/meta/storage    dtype, chunklen, cparams   root/meta/storage       dtype, chunkshape, superchunksize,
//! root/__attrs__       user attributes                                    endianness, order, compression
//! root/data/__0.blp    one chunk per file         root/meta/attributes    user attributes
//! root/data/__1.blp                               root/data/__1__.bin     several chunks per file
//!
//! a table: root/__rootdirs__ names directories    a table: dtype maps names to types, root/data/name/__1__.bin
//! that are arrays themselves
//! ```
//!
//! Meta files are read as JSON, or as the subset of YAML that the RFC's examples use. They are written as JSON, which
//! is valid YAML. Unknown members and unknown files are kept.

mod array;
mod as_container;
mod attributes;
mod chunks;
mod dtype;
mod encoding;
mod imported;
mod meta;
mod open;
mod options;
mod table;
#[cfg(feature = "zarr")]
mod to_zarr;
mod verify;
mod writer;
mod yaml;

pub use array::BcolzArray;
pub use attributes::Attributes;
pub use dtype::ByteOrder;
pub use imported::export;
pub use meta::{Order, RootdirLayout};
pub use options::BcolzOptions;
pub use table::BcolzTable;
#[cfg(feature = "zarr")]
pub use to_zarr::{Converted, ToZarrOptions};
pub use writer::{BcolzTableWriter, BcolzWriter};
