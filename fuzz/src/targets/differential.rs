//! A shard that was laid out by the text of the format and then edited: library and naive reader agree on every answer.

use arbitrary::{Arbitrary, Unstructured};

use crate::ask;
use crate::case::DescribedShard;

/// Runs the target on an input, which describes the shard.
pub fn run(input: &[u8]) {
    let Ok(described) = DescribedShard::arbitrary_take_rest(Unstructured::new(input)) else { return };
    let case = described.lay_out();
    ask::everything(&case.shard(), &case.keys());
    ask::agreement(&case);
}
