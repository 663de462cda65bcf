//! The target [`zarr`](sharddb_fuzz::targets::zarr).

#![no_main]

use libfuzzer_sys::fuzz_target;
use sharddb_fuzz::targets::zarr;

fuzz_target!(|input: &[u8]| zarr::run(input));
