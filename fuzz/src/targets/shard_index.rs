//! Any bytes as a shard index with something behind it: each minishard is found, empty or refused as the text says.

use crate::ask;
use crate::case::ShardCase;

/// no hash and nothing compressed: minishard n has key n
pub fn run(input: &[u8]) {
    let Some(case) = ShardCase::of_bytes(input) else { return };
    let mut naive = case.naive;
    (naive.murmur, naive.preshift_bits, naive.gzip_index, naive.gzip_data) = (false, 0, false, false);
    ask::agreement(&ShardCase::new(naive, case.bytes));
}
