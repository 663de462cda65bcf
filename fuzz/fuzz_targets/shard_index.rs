//! Any bytes as a shard index with something behind it: each minishard is found, empty or refused as the text says.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sharddb_fuzz::ask;
use sharddb_fuzz::case::ShardCase;

// no hash and nothing compressed: minishard n has key n
fuzz_target!(|input: &[u8]| {
    let Some(case) = ShardCase::of_bytes(input) else { return };
    let mut naive = case.naive;
    (naive.murmur, naive.preshift_bits, naive.gzip_index, naive.gzip_data) = (false, 0, false, false);
    ask::agreement(&ShardCase::new(naive, case.bytes));
});
