//! The target [`requests`](sharddb_fuzz::targets::requests).

#![no_main]

use libfuzzer_sys::fuzz_target;
use sharddb_fuzz::targets::requests;

fuzz_target!(|input: &[u8]| requests::run(input));
