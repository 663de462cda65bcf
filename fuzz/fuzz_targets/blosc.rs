//! The target [`blosc`](sharddb_fuzz::targets::blosc).

#![no_main]

use libfuzzer_sys::fuzz_target;
use sharddb_fuzz::targets::blosc;

fuzz_target!(|input: &[u8]| blosc::run(input));
