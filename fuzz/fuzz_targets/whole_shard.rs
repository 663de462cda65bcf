//! The target [`whole_shard`](sharddb_fuzz::targets::whole_shard).

#![no_main]

use libfuzzer_sys::fuzz_target;
use sharddb_fuzz::targets::whole_shard;

fuzz_target!(|input: &[u8]| whole_shard::run(input));
