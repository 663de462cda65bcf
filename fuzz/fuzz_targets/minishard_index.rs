//! Any bytes as a minishard index, raw, as gzip and in gzip: every row is found, or refused, as the text says.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sharddb_fuzz::ask;
use sharddb_fuzz::case::{ShardCase, encoded};
use sharddb_fuzz::naive;

fuzz_target!(|input: &[u8]| {
    let Some((how, index)) = input.split_first() else { return };
    let (gzip_index, stored) = match how % 3 {
        0 => (false, index.to_vec()),
        1 => (true, index.to_vec()),
        _ => (true, encoded(index, true)),
    };
    let naive =
        naive::Spec { murmur: false, preshift_bits: 0, minishard_bits: 0, shard_bits: 0, gzip_index, gzip_data: false };
    let entry = [0, stored.len() as u64].map(u64::to_le_bytes).concat();
    ask::agreement(&ShardCase::new(naive, [entry, stored, vec![0x55; 512]].concat()));
});
