//! A batch answers like single lookups, with few requests and few bytes.

use std::collections::{BTreeMap, BTreeSet};

use crate::bucket::Bucket;
use crate::common::xorshift;
use crate::stores::{absent, build, bytes, keys, options, spec, value};
use sharddb::spec::{Encoding, Location};
use sharddb::{ErrorKind, Profile};
use sharddb_remote::{Failure, RemoteOptions, RemoteReader, Wanted};

const COUNT: u64 = 60_000;

fn random_keys(count: usize, seed: u64) -> Vec<u64> {
    let all: Vec<u64> = keys(COUNT).collect();
    let mut random = xorshift(seed);
    (0..count).map(|_| all[(random() % COUNT) as usize]).collect()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The bytes of each minishard of a shard with raw indexes, by the format's text: from its index to the next index.
fn minishards(shard: &[u8], count: u64) -> BTreeMap<u64, u64> {
    let base = 16 * count;
    let entries: Vec<(u64, u64)> =
        (0..count as usize).map(|at| (word(shard, 16 * at), word(shard, 16 * at + 8))).collect();
    let mut starts: Vec<u64> = entries.iter().filter(|(start, end)| start != end).map(|(start, _)| *start).collect();
    starts.push(shard.len() as u64 - base);
    starts.sort_unstable();
    let used = entries.iter().zip(0..).filter(|((start, end), _)| start != end);
    used.map(|((start, _), number)| (number, starts[starts.partition_point(|other| other <= start)] - start)).collect()
}

fn bytes_of_minishards(bucket: &Bucket, reader: &RemoteReader, keys: &[u64]) -> u64 {
    let snapshot = reader.snapshot();
    let spec = snapshot.spec();
    let locations: BTreeSet<Location> = keys.iter().map(|key| spec.route(*key)).collect();
    let mut shards = BTreeMap::new();
    let lens = locations.iter().map(|location| {
        let shard = shards.entry(location.shard).or_insert_with(|| {
            minishards(
                &bucket.object(&format!("gen-0000000001/{}", spec.shard_file_name(location.shard))),
                spec.minishards(),
            )
        });
        shard[&location.minishard.get()]
    });
    lens.sum()
}

fn check(bucket: &Bucket, reader: &RemoteReader, keys: &[u64], longest: u64) -> crate::bucket::Cost {
    let (results, cost) = bucket.run_counted(reader.get_many(keys));
    let results = results.unwrap();
    assert_eq!(results.len(), keys.len());
    for (key, result) in keys.iter().zip(results) {
        let expected = (key % 3 != 2).then(|| value(*key, longest));
        assert_eq!(bytes(result), expected, "key {key}");
    }
    cost
}

#[test]
fn a_thousand_random_keys_read_at_most_1_3_times_their_minishards() {
    for (longest, shard_bits) in [(200, None), (20, None), (200, Some(3)), (2000, Some(0))] {
        let mut builder = options();
        match shard_bits {
            Some(bits) => builder.spec(spec(12 - bits, bits, Encoding::Raw)),
            None => builder.profile(Profile::Local),
        };
        let store = build(&mut builder, COUNT, longest);
        let bucket = Bucket::of(store.path());
        let reader = bucket.open();
        let keys = random_keys(1000, longest);
        let cost = check(&bucket, &reader, &keys, longest);
        let least = bytes_of_minishards(&bucket, &reader, &keys);
        assert!(10 * cost.bytes <= 13 * least, "{cost:?} for {least} bytes of minishards");
        assert!(cost.bytes >= least && cost.rounds == 1, "{cost:?} for {least} bytes of minishards");
        assert!(cost.requests < 1000, "{cost:?}");
    }
}

#[test]
fn all_keys_read_each_shard_in_few_requests() {
    let store = build(options().profile(Profile::Local), COUNT, 100);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    let keys: Vec<u64> = keys(COUNT).collect();
    let cost = check(&bucket, &reader, &keys, 100);
    let len: usize =
        bucket.names().iter().filter(|name| name.ends_with(".shard")).map(|name| bucket.object(name).len()).sum();
    assert!(cost.bytes <= len as u64 && cost.requests <= 100, "{cost:?} of {len} bytes");
}

/// With gzip indexes: a round for the indexes, and one for the values.
#[test]
fn the_remote_profile_takes_two_rounds() {
    let store = build(options().profile(Profile::Remote), COUNT, 200);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    let keys = random_keys(500, 1);
    let cost = check(&bucket, &reader, &keys, 200);
    assert_eq!(cost.rounds, 2);
    let again = check(&bucket, &reader, &keys, 200);
    assert_eq!(again.rounds, 1);
    assert!(again.requests < cost.requests && cost.requests < 1000, "{cost:?} {again:?}");
}

#[test]
fn duplicates_and_absent_keys_keep_their_positions() {
    let store = build(options().profile(Profile::Local), 3000, 100);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    let keys: Vec<u64> = keys(40).zip(absent(40)).flat_map(|(key, absent)| [absent, key, 0, key]).collect();
    check(&bucket, &reader, &keys, 100);
    check(&bucket, &reader, &[], 100);
}

/// Also foreign data: three rounds, whatever the number of keys.
#[test]
fn foreign_data_takes_three_rounds() {
    let store = build(options().spec(spec(6, 2, Encoding::Gzip)), 20_000, 100);
    let bucket = Bucket::default();
    for name in ["0.shard", "1.shard", "2.shard", "3.shard"] {
        bucket.put(name, Bucket::of(store.path()).object(&format!("gen-0000000001/{name}")));
    }
    let reader = bucket.run(RemoteOptions::new().spec(spec(6, 2, Encoding::Gzip)).open()).unwrap();
    let keys: Vec<u64> = keys(20_000).step_by(13).collect();
    let cost = check(&bucket, &reader, &keys, 100);
    assert_eq!(cost.rounds, 3, "{cost:?}");
    assert_eq!(check(&bucket, &reader, &keys, 100).rounds, 1);
}

#[test]
fn each_key_has_its_own_error() {
    let store = build(options().spec(spec(4, 3, Encoding::Raw)), 3000, 100);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    bucket.set_fault(|request, answer| {
        if request.object.ends_with("3.shard") {
            Err(Failure::io("read", std::io::Error::other("no route to host")))
        } else {
            answer
        }
    });
    let keys: Vec<u64> = keys(300).collect();
    let results = bucket.run(reader.get_many(&keys)).unwrap();
    let (mut failed, mut found) = (0, 0);
    for (key, result) in keys.into_iter().zip(results) {
        let is_bad = reader.snapshot().spec().route(key).shard.get() == 3;
        match result {
            Ok(found_value) => {
                assert_eq!(found_value.unwrap().to_vec(), value(key, 100));
                assert!(!is_bad);
                found += 1;
            }
            Err(error) => {
                assert!(is_bad && error.to_string().contains("no route to host"), "{error}");
                assert_eq!((error.key(), error.kind()), (Some(key), ErrorKind::Io));
                assert!(error.path().unwrap().to_str().unwrap().starts_with("s3://bucket/store/gen-"), "{error}");
                failed += 1;
            }
        }
    }
    assert!(failed > 10 && found > 100);
}

/// A shard is cut: its keys before the cut are found, also those whose ranges are read by one request with lost ones.
#[test]
fn each_key_of_a_cut_shard_has_the_result_of_get() {
    for index in [Encoding::Raw, Encoding::Gzip] {
        let store = build(options().spec(spec(4, 0, index)), 3000, 100);
        let bucket = Bucket::of(store.path());
        let shard = bucket.object("gen-0000000001/0.shard");
        bucket.put("gen-0000000001/0.shard", &shard[..shard.len() / 2]);
        let keys: Vec<u64> = keys(3000).collect();
        let results = bucket.run(bucket.open().get_many(&keys)).unwrap();
        let (mut failed, mut found) = (0, 0);
        let reader = bucket.open();
        for (key, result) in keys.into_iter().zip(results) {
            match (result, bucket.run(reader.get(key))) {
                (Ok(one), Ok(other)) => {
                    assert_eq!(one.unwrap().to_vec(), value(key, 100));
                    assert_eq!(other.unwrap().to_vec(), value(key, 100));
                    found += 1;
                }
                (Err(one), Err(other)) => {
                    assert_eq!((one.kind(), other.kind()), (ErrorKind::Corrupt, ErrorKind::Corrupt), "{one}; {other}");
                    assert_eq!((one.key(), one.path()), (Some(key), other.path()), "{one}; {other}");
                    failed += 1;
                }
                (one, other) => panic!("key {key}: {one:?} in a batch, {other:?} alone"),
            }
        }
        assert!(failed > 500 && found > 500, "{failed} failed, {found} found");
    }
}

/// A long batch is read in runs, so that its requests never have more than 32 MiB in flight.
#[test]
fn a_long_batch_is_read_in_runs() {
    let store = build(options().spec(spec(6, 2, Encoding::Raw)), 6000, 20_000);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    let keys: Vec<u64> = keys(6000).collect();
    let mut operation = reader.get_many(&keys);
    let mut most = 0;
    let results = loop {
        if let std::task::Poll::Ready(results) = operation.poll() {
            break results.unwrap();
        }
        let mut in_flight = 0;
        let requests: Vec<_> = std::iter::from_fn(|| operation.next_request()).collect();
        for (id, request) in requests {
            let Wanted::Bytes(range) = &request.wanted else { panic!("{request:?}") };
            in_flight += range.end - range.start;
            operation.answer(id, bucket.perform(&request));
        }
        most = most.max(in_flight);
    };
    assert_eq!(results.iter().filter(|result| matches!(result, Ok(Some(_)))).count(), 6000);
    assert!((20 << 20..=40 << 20).contains(&most), "{most}");
}

/// A value of a batch does not keep the bytes of its neighbours in memory: the cache may drop them.
#[test]
fn values_are_equal_without_a_cache() {
    let store = build(options().profile(Profile::Local), 5000, 100);
    let bucket = Bucket::of(store.path());
    let reader = bucket.run(RemoteOptions::new().cache_bytes(0).open()).unwrap();
    let keys: Vec<u64> = keys(5000).step_by(7).collect();
    check(&bucket, &reader, &keys, 100);
    assert_eq!(reader.stats().cache_bytes, 0);
    assert_eq!(bucket.count(reader.get(3)).1, bucket.count(reader.get(3)).1, "nothing is kept");
}
