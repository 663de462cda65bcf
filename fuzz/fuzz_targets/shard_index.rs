//! The target [`shard_index`](sharddb_fuzz::targets::shard_index).

#![no_main]

use libfuzzer_sys::fuzz_target;
use sharddb_fuzz::targets::shard_index;

fuzz_target!(|input: &[u8]| shard_index::run(input));
