//! Stores for the tests.

use std::fmt::Debug;

use crate::common::{TempDir, xorshift};
use sharddb::spec::{Encoding, HashFunction};
use sharddb::{BuildOptions, ShardingSpec};

/// The value of a key: its digits and up to `longest` more bytes.
pub(crate) fn value(key: u64, longest: u64) -> Vec<u8> {
    let mut random = xorshift(key);
    let len = random() % (longest + 1);
    let filler = (0..len).map(|_| b'a' + (random() % 26) as u8);
    key.to_string().into_bytes().into_iter().chain(filler).collect()
}

/// Keys with gaps, in which every third number is absent.
pub(crate) fn keys(count: u64) -> impl Iterator<Item = u64> + Clone {
    (0..count).map(|number| number / 2 * 3 + number % 2)
}

pub(crate) fn absent(count: u64) -> impl Iterator<Item = u64> + Clone {
    (0..count).map(|number| number * 3 + 2)
}

/// Builds a store with values of up to `longest` bytes.
pub(crate) fn build(options: &mut BuildOptions, count: u64, longest: u64) -> TempDir {
    let scratch = TempDir::new();
    let mut loader = options.create(scratch.path()).unwrap();
    for key in keys(count) {
        loader.insert(key, value(key, longest)).unwrap();
    }
    loader.finish().unwrap();
    scratch
}

/// A specification of hashed keys, raw, or gzip indexes.
pub(crate) fn spec(minishard_bits: u8, shard_bits: u8, index: Encoding) -> ShardingSpec {
    let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, minishard_bits, shard_bits).unwrap();
    spec.with_minishard_index_encoding(index)
}

pub(crate) fn options() -> BuildOptions {
    BuildOptions::new()
}

/// The value of a result that succeeded, as bytes.
pub(crate) fn bytes<T: AsRef<[u8]>, E: Debug>(result: Result<Option<T>, E>) -> Option<Vec<u8>> {
    result.unwrap().map(|value| value.as_ref().to_vec())
}
