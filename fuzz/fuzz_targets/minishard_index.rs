//! The target [`minishard_index`](sharddb_fuzz::targets::minishard_index).

#![no_main]

use libfuzzer_sys::fuzz_target;
use sharddb_fuzz::targets::minishard_index;

fuzz_target!(|input: &[u8]| minishard_index::run(input));
