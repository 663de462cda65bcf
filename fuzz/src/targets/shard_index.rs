//! Arbitrary bytes as a shard index with bytes after it: each minishard is found, empty or refused by the text of the
//! format.

use crate::ask;
use crate::case::ShardCase;

/// Runs the target on an input, with the identity hash and no compression: minishard n has key n.
pub fn run(input: &[u8]) {
    let Some(case) = ShardCase::of_bytes(input) else { return };
    let mut naive = case.naive;
    (naive.murmur, naive.preshift_bits, naive.gzip_index, naive.gzip_data) = (false, 0, false, false);
    ask::agreement(&ShardCase::new(naive, case.bytes));
}
