//! The target [`spec_json`](sharddb_fuzz::targets::spec_json).

#![no_main]

use libfuzzer_sys::fuzz_target;
use sharddb_fuzz::targets::spec_json;

fuzz_target!(|input: &[u8]| spec_json::run(input));
