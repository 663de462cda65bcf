//! A lookup makes exactly the requests that its data set needs.

use crate::bucket::{Bucket, Cost};
use crate::common::{Answer, data, expected};
use crate::stores::{absent, build, bytes, keys, options, spec, value};
use sharddb::Profile;
use sharddb::spec::Encoding;
use sharddb_remote::{RemoteOptions, Wanted};

/// Enough for a minishard table of several blocks.
const COUNT: u64 = 40_000;

/// The counts of requests of lookups with a new reader each.
fn cold(bucket: &Bucket, keys: impl Iterator<Item = u64>) -> Vec<usize> {
    let counts = keys.map(|key| {
        let reader = bucket.open();
        let (found, requests) = bucket.count(reader.get(key));
        let expected = (!is_absent(key)).then(|| value(key, 200));
        assert_eq!(found.map(|value| value.to_vec()), expected, "key {key}");
        requests
    });
    counts.collect()
}

fn is_absent(key: u64) -> bool {
    key % 3 == 2
}

fn some<T>(keys: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    keys.step_by(397).take(60)
}

#[test]
fn local_profile_one_request_per_cold_get() {
    let store = build(options().profile(Profile::Local), COUNT, 200);
    let bucket = Bucket::of(store.path());
    assert!(bucket.names().iter().any(|name| name.ends_with("/minishards")), "{:?}", bucket.names());
    assert_eq!(cold(&bucket, some(keys(COUNT))), [1; 60]);
    let counts = cold(&bucket, some(absent(COUNT / 2)));
    assert!(counts.iter().all(|count| *count <= 1), "{counts:?}");
}

#[test]
fn local_profile_opens_in_four_requests_and_three_rounds() {
    let store = build(options().profile(Profile::Local), COUNT, 200);
    let bucket = Bucket::of(store.path());
    let (reader, cost) = bucket.run_counted(RemoteOptions::new().open());
    assert_eq!((cost.requests, cost.rounds), (4, 3));
    let names: Vec<String> = bucket.take_log().into_iter().map(|request| request.object).collect();
    let generation = "gen-0000000001";
    assert_eq!(
        names,
        [
            "current".to_string(),
            format!("{generation}/info"),
            format!("{generation}/manifest.json"),
            format!("{generation}/minishards")
        ]
    );
    let snapshot = reader.unwrap().snapshot();
    assert_eq!((snapshot.key_count(), snapshot.generation()), (Some(COUNT), Some(generation)));
}

#[test]
fn remote_profile_two_requests_then_one() {
    let store = build(options().profile(Profile::Remote), COUNT, 200);
    let bucket = Bucket::of(store.path());
    assert_eq!(cold(&bucket, some(keys(COUNT))), [2; 60]);
    let counts = cold(&bucket, some(absent(COUNT / 2)));
    assert!(counts.iter().all(|count| *count <= 1), "{counts:?}");
    let reader = bucket.open();
    for key in some(keys(COUNT)) {
        assert!(bucket.count(reader.get(key)).0.is_some());
        assert_eq!(bucket.count(reader.get(key)).1, 1, "key {key}");
        assert_eq!(bucket.count(reader.contains(key)), (true, 0));
    }
}

/// Without a minishard table, the shard indexes are read at open.
#[test]
fn a_small_store_one_request_per_cold_get() {
    for index in [Encoding::Raw, Encoding::Gzip] {
        let store = build(options().spec(spec(5, 2, index)), 1000, 200);
        let bucket = Bucket::of(store.path());
        assert!(!bucket.names().iter().any(|name| name.ends_with("/minishards")));
        let (_, cost) = bucket.run_counted(RemoteOptions::new().open());
        assert_eq!((cost.requests, cost.rounds), (7, 3), "current, info, manifest, 4 shard indexes");
        let each = if index == Encoding::Raw { 1 } else { 2 };
        let counts = cold(&bucket, keys(1000).step_by(37));
        assert!(counts.iter().all(|count| *count == each), "{counts:?}");
        assert!(cold(&bucket, absent(500).step_by(37)).iter().all(|count| *count <= 1));
    }
}

/// Above 64 KiB the index is read first, and then the value.
#[test]
fn a_long_minishard_takes_a_request_for_the_index_and_one_per_value() {
    let store = build(options().spec(spec(1, 0, Encoding::Raw)), 3000, 200);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    let first = bucket.run_counted(reader.get(0)).1;
    assert_eq!(first.requests, 2);
    assert_eq!(bucket.run_counted(reader.get(0)).1.requests, 1);
    assert!(first.bytes < 60 << 10, "the index of 1,500 keys takes 42 KB: {first:?}");
}

#[test]
fn a_short_value_is_in_the_cache_with_its_minishard() {
    let store = build(options().profile(Profile::Local), COUNT, 200);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    assert_eq!(bucket.count(reader.get(3)).1, 1);
    let before = reader.stats();
    assert_eq!(bucket.count(reader.get(3)).1, 0);
    let after = reader.stats();
    assert_eq!((after.requests, after.cache_hits), (before.requests, before.cache_hits + 1));
    assert!(after.cache_bytes > 0);
}

#[test]
fn a_key_of_an_empty_minishard_or_shard_takes_no_request() {
    let store = build(options().spec(spec(6, 4, Encoding::Raw)), 40, 10);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    let route = |key| reader.snapshot().spec().route(key);
    let used: Vec<_> = keys(40).map(route).collect();
    let empty: Vec<u64> = absent(300).filter(|key| !used.contains(&route(*key))).collect();
    assert!(empty.len() > 100);
    for key in empty {
        assert_eq!(bucket.count(reader.get(key)).1, 0, "key {key}");
    }
}

/// Fixtures of TensorStore and CloudVolume with raw and gzip indexes, with one to many shards.
#[test]
fn foreign_data_three_requests_then_two_then_one() {
    let mut all = [0; 4];
    for name in ["ts_10k_mm3", "cv_10k_id", "ts_18_id_p0_m3_s5_ir_dg", "cv_11_mm3_p0_m3_s11_ir_dr"] {
        let directory = data(&format!("public/{name}"));
        let bucket = Bucket::of(&directory);
        let present = expected(&directory).into_iter().filter(|(_, answer)| matches!(answer, Answer::Value(_)));
        let present: Vec<(u64, Answer)> = present.take(200).collect();
        let reader = bucket.open();
        let spec = *reader.snapshot().spec();
        let (mut shards, mut minishards) = (Vec::new(), Vec::new());
        let mut seen = [0; 4];
        for (key, answer) in present {
            let location = spec.route(key);
            let expected = match (shards.contains(&location.shard), minishards.contains(&location)) {
                (false, _) => 3,
                (true, false) => 2,
                (true, true) => 1,
            };
            shards.push(location.shard);
            minishards.push(location);
            let (value, requests) = bucket.count(reader.get(key));
            assert_eq!(Answer::of(Ok(value.as_deref())), answer, "{name} key {key}");
            let is_stored_empty = value.is_some_and(|value| value.is_empty()) && spec.data_encoding() == Encoding::Raw;
            assert_eq!(requests, expected - usize::from(is_stored_empty), "{name} key {key}");
            seen[expected] += 1;
        }
        all.iter_mut().zip(seen).for_each(|(all, seen)| *all += seen);
    }
    assert!(all[1..].iter().all(|count| *count > 5), "{all:?}");
}

#[test]
fn foreign_data_opens_in_three_requests_and_two_rounds() {
    let bucket = Bucket::of(&data("public/ts_10k_mm3"));
    let cost = bucket.run_counted(RemoteOptions::new().open()).1;
    assert_eq!((cost.requests, cost.rounds), (3, 2), "current, then info and manifest");
}

/// A missing shard of foreign data is empty, and that is remembered.
#[test]
fn an_absent_foreign_shard_takes_one_request_once() {
    let bucket = Bucket::of(&data("public/cv_06_mm3_p9_m9_s5_ig_dr"));
    let reader = bucket.open();
    let spec = *reader.snapshot().spec();
    let exists = |key| bucket.names().contains(&spec.shard_file_name(spec.route(key).shard));
    let key = (0..1 << 20).step_by(512).find(|key| !exists(*key)).unwrap();
    for requests in [1, 0] {
        let (found, count) = bucket.count(reader.get(key));
        assert_eq!((found.is_none(), count), (true, requests));
    }
    assert_eq!(bucket.count(reader.contains(key)), (false, 0));
}

/// A long shard index is read in blocks of 8 KiB.
#[test]
fn a_long_foreign_shard_index_is_read_in_blocks() {
    let store = build(options().spec(spec(14, 0, Encoding::Raw)).allow_sparse(true), 4000, 20);
    let bucket = Bucket::default();
    bucket.put("0.shard", Bucket::of(store.path()).object("gen-0000000001/0.shard"));
    let spec = spec(14, 0, Encoding::Raw);
    let reader = bucket.run(RemoteOptions::new().spec(spec).open()).unwrap();
    let (found, cost) = bucket.run_counted(reader.get(0));
    assert_eq!(bytes(found), Some(value(0, 20)));
    assert_eq!(cost.requests, 3);
    assert!((8 << 10..10 << 10).contains(&cost.bytes), "{cost:?}");
}

#[test]
fn a_range_is_never_empty_and_conditions_are_sent() {
    let store = build(options().profile(Profile::Remote), 2000, 0);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    bucket.take_log();
    for key in keys(2000).step_by(100) {
        bucket.run(reader.get(key)).unwrap();
    }
    let log = bucket.take_log();
    assert!(log.iter().all(|request| matches!(&request.wanted, Wanted::Bytes(range) if range.start < range.end)));
    assert!(log.iter().all(|request| request.if_match.is_some()), "the shard indexes were read at open");
}

#[test]
fn counts_are_those_of_the_bucket() {
    let store = build(options().profile(Profile::Local), 2000, 50);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    let opened = bucket.take_log().len() as u64;
    assert_eq!(reader.stats().requests, opened);
    let Cost { requests, bytes, .. } = bucket.run_counted(reader.get(0)).1;
    let stats = reader.stats();
    assert_eq!(stats.requests, opened + requests as u64);
    assert!(stats.bytes > bytes && bytes > 0);
}
