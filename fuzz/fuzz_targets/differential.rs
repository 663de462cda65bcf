//! A shard that was laid out as the text says and then edited: the library and a naive reader agree on every answer.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sharddb_fuzz::ask;
use sharddb_fuzz::case::DescribedShard;

fuzz_target!(|described: DescribedShard| {
    let case = described.lay_out();
    ask::everything(&case.shard(), &case.keys());
    ask::agreement(&case);
});
