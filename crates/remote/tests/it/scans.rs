//! Iteration in storage order and in key order returns the pairs of the data set, each once, in bounded requests.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

use crate::bucket::Bucket;
use crate::common::{sets, xorshift};
use crate::stores::{build, keys, options, spec, value};
use sharddb::spec::{Encoding, HashFunction};
use sharddb::{ErrorKind, Profile, ShardDb, ShardingSpec};
use sharddb_remote::{RemoteOptions, RemoteSnapshot, Wanted};

type Pairs = Vec<(u64, Vec<u8>)>;

/// Runs an iterator to its end.
fn all<T>(mut next: impl FnMut() -> Option<Vec<T>>) -> Vec<T> {
    let mut items = Vec::new();
    while let Some(batch) = next() {
        assert!(!batch.is_empty());
        items.extend(batch);
    }
    items
}

fn all_keys(bucket: &Bucket, snapshot: &RemoteSnapshot) -> Vec<u64> {
    let mut keys = snapshot.keys();
    all(|| bucket.run(keys.next_batch()).unwrap())
}

fn all_pairs(bucket: &Bucket, snapshot: &RemoteSnapshot) -> Pairs {
    let mut scan = snapshot.scan();
    let pairs = all(|| bucket.run(scan.next_batch()).unwrap());
    pairs.into_iter().map(|(key, value)| (key, value.to_vec())).collect()
}

fn range_keys(bucket: &Bucket, snapshot: &RemoteSnapshot, range: impl RangeBounds<u64>) -> Vec<u64> {
    let mut keys = snapshot.key_range(range);
    all(|| bucket.run(keys.next_batch()).unwrap())
}

fn range_pairs(bucket: &Bucket, snapshot: &RemoteSnapshot, range: impl RangeBounds<u64>) -> Pairs {
    let mut pairs = snapshot.range(range);
    let pairs = all(|| bucket.run(pairs.next_batch()).unwrap());
    pairs.into_iter().map(|(key, value)| (key, value.to_vec())).collect()
}

/// Stores of every kind whose iteration differs, with a name for messages, of the keys of `stores::keys`.
fn stores(count: u64, longest: u64) -> Vec<(&'static str, Bucket)> {
    let identity = |preshift| ShardingSpec::new(HashFunction::Identity, preshift, 3, 2).unwrap();
    let gzip = spec(4, 2, Encoding::Gzip).with_data_encoding(Encoding::Gzip);
    let built = [
        ("local", build(options().profile(Profile::Local), count, longest)),
        ("local, with a key file", build(options().profile(Profile::Local).ordered(true), count, longest)),
        ("remote", build(options().profile(Profile::Remote), count, longest)),
        ("one minishard", build(options().spec(spec(0, 0, Encoding::Raw)), count, longest)),
        ("gzip", build(options().spec(gzip), count, longest)),
        ("identity", build(options().spec(identity(0)), count, longest)),
        ("identity, preshift", build(options().spec(identity(5)), count, longest)),
        ("without checks", build(options().spec(spec(3, 3, Encoding::Raw)).checks(false), count, longest)),
    ];
    built.iter().map(|(name, store)| (*name, Bucket::of(store.path()))).collect()
}

#[test]
fn a_scan_has_every_pair_once_in_the_order_of_the_keys() {
    for (name, bucket) in stores(3000, 300) {
        let snapshot = bucket.open().snapshot();
        let (stored, pairs) = (all_keys(&bucket, &snapshot), all_pairs(&bucket, &snapshot));
        assert!(pairs.iter().map(|(key, _)| key).eq(&stored), "{name}");
        let expected: BTreeMap<u64, Vec<u8>> = keys(3000).map(|key| (key, value(key, 300))).collect();
        assert_eq!(pairs.len(), expected.len(), "{name}");
        assert_eq!(BTreeMap::from_iter(pairs), expected, "{name}");
    }
}

/// Other writers put indexes and values in other orders. The local reader is tested against what they read.
#[test]
fn a_scan_of_foreign_data_has_the_pairs_of_the_local_reader() {
    let mut compared = 0;
    for directory in sets("public").into_iter().chain(sets("neuroglancer")) {
        let Ok(local) = ShardDb::open(&directory) else { continue };
        let spec = *local.snapshot().spec();
        if spec.shard_bits() > 20 {
            continue; // see `too_many_shards_to_look_for_are_an_error`
        }
        let bucket = Bucket::of(&directory);
        let snapshot = bucket.open().snapshot();
        let local = local.snapshot();
        let pairs = local.iter().map(Result::unwrap);
        let mut expected: Pairs = pairs.map(|entry| (entry.key(), entry.value().unwrap().to_vec())).collect();
        expected.sort();
        let mut found = all_pairs(&bucket, &snapshot);
        found.sort();
        assert_eq!(found, expected, "{}", directory.display());
        let mut keys = all_keys(&bucket, &snapshot);
        keys.sort_unstable();
        assert!(keys.iter().eq(expected.iter().map(|(key, _)| key)), "{}", directory.display());
        let sorted = range_pairs(&bucket, &snapshot, ..);
        let reachable = expected.iter().filter(|(key, _)| local.contains(*key).unwrap());
        assert!(sorted.iter().eq(reachable), "{}", directory.display());
        compared += 1;
    }
    assert!(compared >= 5, "{compared} sets");
}

#[test]
fn a_range_has_its_pairs_in_ascending_order() {
    let model: BTreeMap<u64, Vec<u8>> = keys(3000).map(|key| (key, value(key, 300))).collect();
    let last = *model.last_key_value().unwrap().0;
    for (name, bucket) in stores(3000, 300) {
        let snapshot = bucket.open().snapshot();
        let mut random = xorshift(7);
        let mut ranges: Vec<(Bound<u64>, Bound<u64>)> = vec![
            (Bound::Unbounded, Bound::Unbounded),
            (Bound::Included(last), Bound::Unbounded),
            (Bound::Excluded(last), Bound::Unbounded),
            (Bound::Unbounded, Bound::Excluded(0)),
            (Bound::Included(u64::MAX), Bound::Included(u64::MAX)),
            (Bound::Included(9), Bound::Excluded(9)),
        ];
        for _ in 0..8 {
            let start = random() % (last + 10);
            ranges.push((Bound::Included(start), Bound::Included(start + random() % 900)));
        }
        for range in ranges {
            let is_empty = matches!(range, (Bound::Included(start), Bound::Excluded(end)) if start >= end);
            let expected: Pairs = if is_empty {
                Vec::new()
            } else {
                model.range(range).map(|(key, value)| (*key, value.clone())).collect()
            };
            assert_eq!(range_pairs(&bucket, &snapshot, range), expected, "{name} {range:?}");
            let keys = range_keys(&bucket, &snapshot, range);
            assert!(keys.iter().eq(expected.iter().map(|(key, _)| key)), "{name} {range:?}");
        }
    }
}

#[test]
fn a_key_file_makes_a_range_a_few_requests() {
    let spec = spec(11, 2, Encoding::Raw);
    let store = build(options().spec(spec).ordered(true), 60_000, 20);
    let bucket = Bucket::of(store.path());
    let snapshot = bucket.open().snapshot();
    let mut keys = snapshot.key_range(30_000..30_100);
    let (batch, cost) = bucket.run_counted(keys.next_batch());
    assert_eq!(batch.unwrap().unwrap().len(), 67);
    assert_eq!(cost.requests, 5, "the tail, a directory, a block for each end, and the batch");
    assert!(cost.bytes < 100_000, "{cost:?}");

    let without = build(options().spec(spec), 60_000, 20);
    let bucket = Bucket::of(without.path());
    let mut keys = bucket.open().snapshot().key_range(30_000..30_100);
    let (batch, cost) = bucket.run_counted(keys.next_batch());
    assert_eq!(batch.unwrap().unwrap().len(), 67);
    assert!(cost.bytes > 1_000_000, "all indexes: {cost:?}");
}

/// The tail, a directory, and each block of 1,024 keys once, 16 by one request: for keys, and for pairs.
#[test]
fn a_range_reads_the_key_file_once() {
    let store = build(options().profile(Profile::Local).ordered(true), 20_000, 20);
    let bucket = Bucket::of(store.path());
    let snapshot = bucket.open().snapshot();
    let count = |bucket: &Bucket| bucket.take_log().iter().filter(|request| request.object.ends_with("/keys")).count();
    assert_eq!(count(&bucket), 0);
    assert_eq!(range_keys(&bucket, &snapshot, ..).len(), 20_000);
    assert_eq!(count(&bucket), 4);
    assert_eq!(range_pairs(&bucket, &snapshot, ..).len(), 20_000);
    assert_eq!(count(&bucket), 4);
}

#[test]
fn a_damaged_key_file_changes_no_result() {
    let store = build(options().profile(Profile::Local).ordered(true), 20_000, 20);
    let bucket = Bucket::of(store.path());
    let [name] =
        bucket.names().into_iter().filter(|name| name.ends_with("/keys")).collect::<Vec<_>>().try_into().unwrap();
    let intact = bucket.object(&name);
    let expected: Vec<u64> = keys(20_000).collect();
    let mut random = xorshift(3);
    for round in 0..24 {
        let mut damaged = intact.clone();
        let at = usize::try_from(random()).unwrap_or_default() % damaged.len();
        damaged[at] ^= 1 << (random() % 8);
        if round % 8 == 0 {
            damaged.truncate(at);
        }
        bucket.put(&name, damaged);
        let snapshot = bucket.open().snapshot();
        assert_eq!(range_keys(&bucket, &snapshot, ..), expected, "byte {at}");
    }
}

#[test]
fn a_narrow_range_of_identity_hashed_keys_reads_few_minishards() {
    let spec = ShardingSpec::new(HashFunction::Identity, 6, 8, 4).unwrap();
    let store = build(options().spec(spec), 100_000, 20);
    let bucket = Bucket::of(store.path());
    let snapshot = bucket.open().snapshot();
    let mut range = snapshot.range(50_000..50_200);
    let (batch, cost) = bucket.run_counted(range.next_batch());
    assert_eq!(batch.unwrap().unwrap().len(), 133);
    // the indexes of the four minishards that can hold the range, and these with their values
    assert!(cost.requests == 2 && cost.bytes < 15_000, "{cost:?}");
}

/// A scan does not request minishards one by one, nor much more than all bytes of the shards.
#[test]
fn a_scan_reads_the_shards_once_by_long_requests() {
    let store = build(options().profile(Profile::Local), 100_000, 100);
    let bucket = Bucket::of(store.path());
    let of_shards = |name: &String| name.ends_with(".shard");
    let bytes: usize = bucket.names().iter().filter(|name| of_shards(name)).map(|name| bucket.object(name).len()).sum();
    let snapshot = bucket.open().snapshot();
    bucket.take_log();
    all_pairs(&bucket, &snapshot);
    let log = bucket.take_log();
    let read: u64 = log
        .iter()
        .map(|request| match &request.wanted {
            Wanted::Bytes(range) => range.end - range.start,
            _ => 0,
        })
        .sum();
    let read = usize::try_from(read).unwrap();
    assert!(read <= bytes + bytes / 20 && read > bytes / 2, "{read} of {bytes} bytes");
    assert!(log.len() <= bytes / (1 << 20) + 20, "{} requests", log.len());
}

#[test]
fn a_damaged_value_ends_the_scan_with_its_place() {
    let store = build(options().spec(spec(2, 0, Encoding::Raw)), 200, 2000);
    let bucket = Bucket::of(store.path());
    let name = bucket.names().into_iter().find(|name| name.ends_with("0.shard")).unwrap();
    let mut shard = bucket.object(&name);
    let last = shard.len() - 1;
    shard[last] ^= 1;
    bucket.put(&name, shard);
    let snapshot = bucket.open().snapshot();
    let mut scan = snapshot.scan();
    let error = std::iter::repeat_with(|| bucket.run(scan.next_batch())).find_map(Result::err).unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.key().is_some() && error.location().minishard.is_some(), "{error}");
    assert_eq!(bucket.run(scan.next_batch()).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_dropped_operation_skips_nothing_silently() {
    let store = build(options().profile(Profile::Local), 1000, 10);
    let bucket = Bucket::of(store.path());
    let snapshot = bucket.open().snapshot();
    let mut keys = snapshot.keys();
    let mut operation = keys.next_batch();
    assert!(operation.poll().is_pending());
    drop(operation);
    let error = bucket.run(keys.next_batch()).unwrap_err();
    assert!(error.to_string().contains("begin again"), "{error}");
}

#[test]
fn an_iterator_of_a_generation_that_is_gone_says_so() {
    let store = build(options().profile(Profile::Local), 5000, 10);
    let bucket = Bucket::of(store.path());
    let snapshot = bucket.open().snapshot();
    bucket.remove("gen-");
    let error = bucket.run(snapshot.scan().next_batch()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GenerationGone, "{error}");
}

#[test]
fn an_empty_store_has_no_batch() {
    let store = build(&mut options(), 0, 0);
    let bucket = Bucket::of(store.path());
    let snapshot = bucket.open().snapshot();
    assert!(all_keys(&bucket, &snapshot).is_empty() && all_pairs(&bucket, &snapshot).is_empty());
    assert!(range_keys(&bucket, &snapshot, ..).is_empty() && range_pairs(&bucket, &snapshot, 5..).is_empty());
}

/// A data set without a manifest does not state which shards it has.
#[test]
fn too_many_shards_to_look_for_are_an_error() {
    let bucket = Bucket::default();
    bucket.put(
        "info",
        format!(r#"{{"@type": "neuroglancer_skeletons", "sharding": {}}}"#, spec(4, 40, Encoding::Raw).to_json()),
    );
    let reader = bucket.run(RemoteOptions::new().open()).unwrap();
    let error = bucket.run(reader.snapshot().keys().next_batch()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    let few = Bucket::default();
    few.put("info", format!(r#"{{"sharding": {}}}"#, spec(4, 8, Encoding::Raw).to_json()));
    let reader = few.run(RemoteOptions::new().open()).unwrap();
    assert_eq!(few.run(reader.snapshot().keys().next_batch()).unwrap(), None);
}

#[test]
fn operations_of_iterators_move_between_threads() {
    fn of_any_thread<T: Send>(value: T) -> T {
        value
    }
    let store = build(options().profile(Profile::Local), 10, 10);
    let bucket = Bucket::of(store.path());
    let (mut scan, mut range) = (bucket.open().snapshot().scan(), bucket.open().snapshot().range(..));
    assert_eq!(bucket.run(of_any_thread(scan.next_batch())).unwrap().unwrap().len(), 10);
    assert_eq!(bucket.run(of_any_thread(range.next_batch())).unwrap().unwrap().len(), 10);
}
