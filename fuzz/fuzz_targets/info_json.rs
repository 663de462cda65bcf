//! The target [`info_json`](sharddb_fuzz::targets::info_json).

#![no_main]

use libfuzzer_sys::fuzz_target;
use sharddb_fuzz::targets::info_json;

fuzz_target!(|input: &[u8]| info_json::run(input));
