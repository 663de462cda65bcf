//! The cache in memory is bounded, and a block store besides it saves requests and changes no answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::bucket::Bucket;
use crate::common::{Answer, data, expected};
use crate::stores::{build, bytes, keys, options, spec, value};
use sharddb::Profile;
use sharddb::spec::Encoding;
use sharddb_remote::{BlockId, BlockStore, RemoteOptions, RemoteReader};

/// Blocks in memory.
#[derive(Default)]
struct Blocks(Mutex<HashMap<BlockId, Vec<u8>>>);

impl BlockStore for Blocks {
    fn get(&self, block: &BlockId) -> Option<Vec<u8>> {
        self.0.lock().unwrap().get(block).cloned()
    }

    fn put(&self, block: &BlockId, bytes: &[u8]) {
        assert_eq!(bytes.len() as u64, block.range.end - block.range.start);
        self.0.lock().unwrap().insert(block.clone(), bytes.to_vec());
    }
}

fn with(blocks: &Arc<Blocks>) -> RemoteOptions {
    let mut options = RemoteOptions::new();
    options.root_name("s3://bucket/store").block_store(blocks.clone());
    options
}

fn bucket_with(bucket: &Bucket, blocks: &Arc<Blocks>) -> RemoteReader {
    bucket.run(with(blocks).open()).unwrap()
}

#[test]
fn the_cache_stays_within_its_budget() {
    let store = build(options().profile(Profile::Local), 20_000, 200);
    let bucket = Bucket::of(store.path());
    let reader = bucket.run(RemoteOptions::new().cache_bytes(50_000).open()).unwrap();
    let mut most = 0;
    for key in keys(20_000).step_by(97) {
        assert_eq!(bytes(bucket.run(reader.get(key))), Some(value(key, 200)));
        most = most.max(reader.stats().cache_bytes);
    }
    assert!((40_000..=50_000).contains(&most), "{most}");
}

/// A second reader finds the minishards of the first one, and reads only values that did not come with them.
#[test]
fn a_second_reader_starts_warm() {
    for (profile, each) in [(Profile::Local, 0), (Profile::Remote, 1)] {
        let store = build(options().profile(profile), 20_000, 600);
        let bucket = Bucket::of(store.path());
        let blocks = Arc::new(Blocks::default());
        let counts = [(); 2].map(|()| {
            let reader = bucket.run(with(&blocks).open()).unwrap();
            let counts = keys(20_000).step_by(997).map(|key| {
                let (found, requests) = bucket.count(reader.get(key));
                assert_eq!(found.unwrap().to_vec(), value(key, 600));
                requests
            });
            counts.collect::<Vec<usize>>()
        });
        let [cold, warm] = counts;
        assert!(cold.contains(&(each + 1)) && warm.contains(&each));
        assert!(cold.iter().zip(&warm).all(|(cold, warm)| *cold == warm + 1), "{cold:?} {warm:?}");
    }
}

/// A minishard that was read with its values for a batch is found by a single lookup, which would read the index alone, and the
/// other way around.
#[test]
fn a_minishard_is_found_with_and_without_its_values() {
    let store = build(options().profile(Profile::Remote), 20_000, 600);
    let bucket = Bucket::of(store.path());
    let some: Vec<u64> = keys(1000).step_by(20).collect();
    let blocks = Arc::new(Blocks::default());
    bucket.run(bucket.run(with(&blocks).open()).unwrap().get_many(&some)).unwrap();
    let reader = bucket.run(with(&blocks).open()).unwrap();
    assert_eq!(bucket.count(reader.get(some[3])).1, 0);
    let blocks = Arc::new(Blocks::default());
    assert_eq!(bucket.count(bucket.run(with(&blocks).open()).unwrap().get(some[3])).1, 2);
    let (found, cost) = bucket.run_counted(bucket.run(with(&blocks).open()).unwrap().get_many(&some[3..4]));
    assert_eq!((bytes(found.unwrap().remove(0)), cost.requests), (Some(value(some[3], 600)), 1));
}

/// Damage in the block store is found like damage in a response, and the block is read again.
#[test]
fn damaged_blocks_are_read_again() {
    let store = build(options().profile(Profile::Local), 20_000, 200);
    let bucket = Bucket::of(store.path());
    let blocks = Arc::new(Blocks::default());
    let some: Vec<u64> = keys(20_000).step_by(997).collect();
    for _ in 0..2 {
        let reader = bucket.run(with(&blocks).open()).unwrap();
        bucket.take_log();
        for (key, result) in some.iter().zip(bucket.run(reader.get_many(&some)).unwrap()) {
            assert_eq!(bytes(result), Some(value(*key, 200)));
        }
        assert!(!bucket.take_log().is_empty());
        let mut blocks = blocks.0.lock().unwrap();
        assert_eq!(blocks.len(), 21);
        blocks.values_mut().enumerate().for_each(|(at, bytes)| match at % 2 {
            0 => bytes[3] ^= 4,
            _ => bytes.truncate(20),
        });
    }
}

/// A long shard index of foreign data is kept in blocks. A shard's first request states its ETag, so that it is always made;
/// a whole shard index is not kept, which could never be found.
#[test]
fn blocks_of_foreign_shard_indexes_are_found() {
    let spec = spec(14, 0, Encoding::Raw);
    let store = build(options().spec(spec).allow_sparse(true), 4000, 20);
    let bucket = Bucket::default();
    bucket.put("0.shard", Bucket::of(store.path()).object("gen-0000000001/0.shard"));
    let block_of = |key: u64| spec.route(key).minishard.get() / 512;
    let first = 0;
    let second = keys(4000).find(|key| block_of(*key) != block_of(first)).unwrap();
    let third = keys(4000).find(|key| ![block_of(first), block_of(second)].contains(&block_of(*key))).unwrap();
    let blocks = Arc::new(Blocks::default());
    let counts = || {
        let reader = bucket.run(with(&blocks).spec(spec).open()).unwrap();
        [first, second, third].map(|key| {
            let (found, requests) = bucket.count(reader.get(key));
            assert_eq!(found.map(|found| found.to_vec()), Some(value(key, 20)));
            requests
        })
    };
    assert_eq!(counts(), [3, 3, 3], "block of the shard index, minishard index, value");
    assert_eq!(counts(), [2, 1, 1], "the first block, and the values");

    let short = Bucket::of(&data("public/ts_10k_mm3"));
    let reader = bucket_with(&short, &blocks);
    blocks.0.lock().unwrap().clear();
    let key = expected(&data("public/ts_10k_mm3")).into_iter().find(|(_, answer)| matches!(answer, Answer::Value(_)));
    assert!(short.run(reader.get(key.unwrap().0)).unwrap().is_some());
    let index_len = 16 * reader.snapshot().spec().minishards();
    let kept = blocks.0.lock().unwrap();
    assert!(!kept.is_empty() && kept.keys().all(|block| block.range.start >= index_len), "{kept:?}");
}

/// Foreign data has no checks: a block is used only for an object with the same strong ETag.
#[test]
fn foreign_blocks_belong_to_an_etag() {
    let directory = data("public/ts_10k_mm3");
    let all: Vec<(u64, Answer)> = expected(&directory).into_iter().step_by(300).collect();
    let blocks = Arc::new(Blocks::default());
    let cost_of = |bucket: &Bucket| {
        let reader = bucket.run(with(&blocks).open()).unwrap();
        bucket.take_log();
        for (key, answer) in &all {
            assert_eq!(Answer::of(bucket.run(reader.get(*key))), *answer, "key {key}");
        }
        bucket.take_log().len()
    };
    let bucket = Bucket::of(&directory);
    let (cold, warm) = (cost_of(&bucket), cost_of(&bucket));
    assert!(warm < cold, "{warm} of {cold}");
    blocks.0.lock().unwrap().clear();
    let bucket = Bucket::of(&directory).without_etags();
    assert_eq!(cost_of(&bucket), cold);
    assert!(blocks.0.lock().unwrap().is_empty());
}
