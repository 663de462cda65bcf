//! The code of each fuzz target, which also runs without a fuzzer.

pub mod bcolz;
pub mod blosc;
pub mod data_set;
pub mod differential;
pub mod directory;
pub mod info_json;
pub mod inputs;
pub mod minishard_index;
pub mod requests;
pub mod shard_index;
pub mod spec_json;
pub mod whole_shard;
pub mod zarr;

/// All targets by name, except `loader`, whose input is a plan and not a file.
pub const ALL: &[(&str, fn(&[u8]))] = &[
    ("bcolz", bcolz::run),
    ("blosc", blosc::run),
    ("data_set", data_set::run),
    ("differential", differential::run),
    ("directory", directory::run),
    ("info_json", info_json::run),
    ("inputs", inputs::run),
    ("minishard_index", minishard_index::run),
    ("requests", requests::run),
    ("shard_index", shard_index::run),
    ("spec_json", spec_json::run),
    ("whole_shard", whole_shard::run),
    ("zarr", zarr::run),
];
