//! Any bytes as a shard, with every call on it: no panic, no walk without end, and the naive reader's answers.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sharddb_fuzz::ask;
use sharddb_fuzz::case::ShardCase;

fuzz_target!(|input: &[u8]| {
    let Some(case) = ShardCase::of_bytes(input) else { return };
    ask::everything(&case.shard(), &case.keys());
    ask::agreement(&case);
});
