//! Arbitrary bytes as a minishard index, raw, as gzip and inside gzip: every row is found, or refused, by the text of
//! the format.

use crate::ask;
use crate::case::{ShardCase, encoded};
use crate::naive;

/// Runs the target on an input.
pub fn run(input: &[u8]) {
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
}
