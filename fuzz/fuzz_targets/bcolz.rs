//! The target [`bcolz`](sharddb_fuzz::targets::bcolz).

#![no_main]

use libfuzzer_sys::fuzz_target;
use sharddb_fuzz::targets::bcolz;

fuzz_target!(|input: &[u8]| bcolz::run(input));
