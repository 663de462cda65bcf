//! A batch answers like single lookups, with few requests and few bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::bucket::Bucket;
use crate::common::xorshift;
use crate::stores::{absent, build, bytes, keys, options, spec, value};
use sharddb::spec::{Encoding, Location};
use sharddb::{ErrorKind, Profile};
use sharddb_remote::{Body, Failure, RemoteOptions, RemoteReader, Response, Timing, Wanted};

const COUNT: u64 = 60_000;

fn random_keys(count: usize, seed: u64) -> Vec<u64> {
    let all: Vec<u64> = keys(COUNT).collect();
    let mut random = xorshift(seed);
    (0..count).map(|_| all[(random() % COUNT) as usize]).collect()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// What it takes to read each minishard index, with its checks, and each value by a request: requests, and bytes by the
/// format's text. The length of the checks after a gzip index is not known before, so a reader may read more of them.
fn separate(bucket: &Bucket, reader: &RemoteReader, wanted: &BTreeSet<u64>, longest: u64) -> (u64, u64) {
    let snapshot = reader.snapshot();
    let spec = snapshot.spec();
    let mut rows: BTreeMap<Location, u64> = wanted.iter().map(|key| (spec.route(*key), 0)).collect();
    for key in keys(COUNT) {
        rows.entry(spec.route(key)).and_modify(|rows| *rows += 1);
    }
    let mut shards = BTreeMap::new();
    let mut bytes: u64 = wanted.iter().map(|key| value(*key, longest).len() as u64).sum();
    for (location, rows) in &rows {
        let name = format!("gen-0000000001/{}", spec.shard_file_name(location.shard));
        let shard = shards.entry(location.shard).or_insert_with(|| bucket.object(&name));
        let entry = 16 * usize::try_from(location.minishard.get()).unwrap();
        bytes += word(shard, entry + 8) - word(shard, entry) + 4 * (rows + 1);
        if spec.minishard_index_encoding() == Encoding::Gzip {
            bytes += 4 * rows + 2000;
        }
    }
    ((wanted.len() + rows.len()) as u64, bytes)
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

/// The promise of `RemoteOptions::request_cost`, for random batches.
#[test]
fn a_batch_reads_at_most_the_cost_of_the_requests_that_it_saves() {
    for (profile, longest) in
        [(Profile::Local, 20), (Profile::Local, 1000), (Profile::Remote, 20), (Profile::Remote, 1000)]
    {
        let store = build(options().profile(profile), COUNT, longest);
        let bucket = Bucket::of(store.path());
        let shards = bucket.names().into_iter().filter(|name| name.ends_with(".shard"));
        let lens: Vec<u64> = shards.map(|name| bucket.object(&name).len() as u64).collect();
        for cost in [16 << 10, 64 << 10, 1 << 20] {
            for count in [1, 10, 100, 1000, 10_000] {
                let open = || bucket.run(RemoteOptions::new().request_cost(cost).open()).unwrap();
                let keys = random_keys(count, cost + count as u64);
                let distinct = keys.iter().copied().collect();
                let (requests, wanted) = separate(&bucket, &open(), &distinct, longest);
                let found = check(&bucket, &open(), &keys, longest);
                let saved = requests - found.requests as u64;
                assert!(found.bytes <= wanted + saved * cost, "{found:?}, {requests} of {wanted} bytes, cost {cost}");
                let most: u64 = lens.iter().map(|len| len / cost + 1).sum();
                assert!(found.requests as u64 <= most * found.rounds as u64, "{found:?}, {lens:?} bytes, cost {cost}");
                assert!(found.rounds <= if profile == Profile::Local { 1 } else { 2 }, "{found:?}");
            }
        }
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

/// The requests of an operation have at most 32 MiB in flight, whether its values come with the indexes or not, and several
/// are in flight, however much one costs.
#[test]
fn a_long_batch_has_at_most_32_mib_in_flight() {
    for (index, cost) in [(Encoding::Raw, 64 << 10), (Encoding::Gzip, 16 << 10), (Encoding::Raw, u64::MAX)] {
        let store = build(options().spec(spec(6, 2, index)), 6000, 20_000);
        let bucket = Bucket::of(store.path());
        let reader = bucket.run(RemoteOptions::new().request_cost(cost).open()).unwrap();
        let keys: Vec<u64> = keys(6000).collect();
        let mut operation = reader.get_many(&keys);
        let (mut sent, mut bytes, mut most) = (VecDeque::new(), 0, (0, 0));
        let results = loop {
            if let std::task::Poll::Ready(results) = operation.poll() {
                break results.unwrap();
            }
            while let Some((id, request)) = operation.next_request() {
                let Wanted::Bytes(range) = &request.wanted else { panic!("{request:?}") };
                bytes += range.end - range.start;
                sent.push_back((id, request));
            }
            most = (bytes.max(most.0), sent.len().max(most.1));
            let (id, request) = sent.pop_front().unwrap();
            let answer = bucket.perform(&request);
            bytes -= answer.as_ref().unwrap().body.as_slice().len() as u64;
            operation.answer(id, answer);
        };
        assert_eq!(results.iter().filter(|result| matches!(result, Ok(Some(_)))).count(), 6000);
        assert!((20 << 20..=32 << 20).contains(&most.0) && most.1 >= 8, "{most:?}");
    }
}

/// Whether a value comes with its index or not, the cap applies.
#[test]
fn the_cap_on_values_does_not_depend_on_the_requests() {
    let store = build(options().spec(spec(2, 0, Encoding::Raw)), 40, 20_000);
    let bucket = Bucket::of(store.path());
    let keys: Vec<u64> = keys(40).collect();
    for cost in [16 << 10, 1 << 20] {
        let open = || bucket.run(RemoteOptions::new().request_cost(cost).max_value_bytes(10_000).open()).unwrap();
        let results = bucket.run(open().get_many(&keys)).unwrap();
        for (key, result) in keys.iter().zip(results) {
            let expected = Some(value(*key, 20_000)).filter(|value| value.len() <= 10_000);
            for result in [result, bucket.run(open().get(*key))] {
                match (&expected, result) {
                    (Some(expected), Ok(Some(found))) => assert_eq!(&found[..], &expected[..]),
                    (None, Err(error)) => assert_eq!(error.kind(), ErrorKind::TooLarge),
                    (_, found) => panic!("{found:?} for {:?} bytes", expected.as_ref().map(Vec::len)),
                }
            }
        }
    }
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

/// With the times of responses that a slow, fast line has, a batch makes fewer requests than before they were known.
#[test]
fn a_measured_cost_decides_what_is_read() {
    let store = build(options().profile(Profile::Local), COUNT, 1000);
    let bucket = Bucket::of(store.path());
    for measures in [true, false] {
        let reader = bucket.run(RemoteOptions::new().cache_bytes(0).measure_request_cost(measures).open()).unwrap();
        let batch = |seed| check(&bucket, &reader, &random_keys(30, seed), 1000).requests;
        let before = batch(1);
        let mut operation = reader.get(keys(COUNT).next().unwrap());
        let body = Body::new(vec![0; 1 << 20]);
        while operation.poll().is_pending() {
            while let Some((id, _)) = operation.next_request() {
                let mut response = Response::new(body.clone(), None, None); // a wrong one, which counts as well
                response.timing =
                    Some(Timing { wait: Duration::from_millis(200), transfer: Duration::from_millis(100) });
                operation.answer(id, Ok(response));
            }
        }
        let after = batch(1);
        assert!(if measures { after < before } else { after == before }, "{before} requests, then {after}");
    }
}
