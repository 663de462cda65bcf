//! Arbitrary bytes as a shard, with every call on it: no panic, no endless walk, and the answers of the naive reader.

use crate::ask;
use crate::case::ShardCase;

/// Runs the target on an input.
pub fn run(input: &[u8]) {
    let Some(case) = ShardCase::of_bytes(input) else { return };
    ask::everything(&case.shard(), &case.keys());
    ask::agreement(&case);
}
