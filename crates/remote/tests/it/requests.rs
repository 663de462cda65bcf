//! A lookup makes exactly the requests that its data set needs.

use crate::bucket::{Bucket, Cost};
use crate::common::{Answer, TempDir, data, expected};
use crate::stores::{absent, build, bytes, keys, options, spec, value};
use sharddb::spec::{Encoding, HashFunction};
use sharddb::{Profile, ShardingSpec, ValueAlignment};
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
fn a_store_opens_in_two_rounds_and_a_chosen_generation_in_one() {
    let store = build(options().profile(Profile::Local), COUNT, 200);
    let bucket = Bucket::of(store.path());
    let generation = "gen-0000000001";
    let of_generation = ["info", "manifest.json", "minishards", "0.shard"].map(|name| format!("{generation}/{name}"));
    let of_root = ["info", "manifest.json", "current"].map(str::to_string);
    for (options, rounds, objects) in [
        (RemoteOptions::new(), 2, [&of_root[..], &of_generation].concat()),
        (RemoteOptions::new().generation(generation).clone(), 1, [&of_generation[..], &of_root[2..]].concat()),
    ] {
        bucket.take_log();
        let (reader, cost) = bucket.run_counted(options.open());
        let names: Vec<String> = bucket.take_log().into_iter().map(|request| request.object).collect();
        assert_eq!((names, cost.rounds), (objects, rounds));
        let reader = reader.unwrap();
        assert_eq!((reader.snapshot().key_count(), reader.snapshot().generation()), (Some(COUNT), Some(generation)));
        assert_eq!(bucket.count(reader.get(3)).1, 1);
    }
}

/// A small store has no table, and its shard index is read with the manifest.
#[test]
fn stores_of_all_sizes_open_in_two_rounds() {
    for profile in [Profile::Local, Profile::Remote] {
        for count in [1, 1000, 5000, COUNT] {
            let store = build(options().profile(profile), count, 20);
            let bucket = Bucket::of(store.path());
            let (reader, cost) = bucket.run_counted(RemoteOptions::new().open());
            assert_eq!((cost.requests, cost.rounds), (7, 2), "{count} keys");
            assert_eq!(bucket.count(reader.unwrap().get(0)).1, 1, "{count} keys");
        }
    }
}

#[test]
fn remote_profile_two_requests_then_one() {
    let store = build(options().profile(Profile::Remote), COUNT, 600);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    for key in some(keys(COUNT)) {
        let first = bucket.count(reader.get(key));
        assert!(first.0.is_some() && first.1 <= 2);
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
        assert_eq!((cost.requests, cost.rounds), (10, 3), "the shard indexes of three more shards");
        assert_eq!(cold(&bucket, keys(1000).step_by(37)), [1; 28]);
        assert!(cold(&bucket, absent(500).step_by(37)).iter().all(|count| *count <= 1));
    }
}

/// If the values take more than a request costs, the index is read first, and then the value.
#[test]
fn a_long_minishard_takes_a_request_for_the_index_and_one_per_value() {
    let store = build(options().spec(spec(1, 0, Encoding::Raw)), 3000, 200);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    let first = bucket.run_counted(reader.get(0)).1;
    assert_eq!(first.requests, 2);
    assert_eq!(bucket.run_counted(reader.get(0)).1.requests, 1);
    assert!(first.bytes < 60 << 10, "the index of 1,500 keys takes 42 KB: {first:?}");
    let reader = bucket.run(RemoteOptions::new().request_cost(512 << 10).open()).unwrap();
    assert_eq!(bucket.run_counted(reader.get(0)).1.requests, 1);
    assert_eq!(bucket.run_counted(reader.get(0)).1.requests, 0);
}

/// Every cold get of a native store: one request if the values of the minishard take less than a request costs, else two. The
/// rows of an index, and so the length of its checks, are estimated well enough for all kinds of keys.
#[test]
fn no_cold_get_takes_three_requests() {
    let dense = |at: u64| at;
    let sparse = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let runs = |at: u64| at / 1000 * 1_000_003 + at % 1000;
    type Kind = (&'static str, fn(u64) -> u64);
    let kinds: [Kind; 3] = [("dense", dense), ("sparse", sparse), ("runs", runs)];
    for (name, key_of) in kinds {
        for (profile, len, requests) in
            [(Profile::Local, 40, 1), (Profile::Remote, 8, 1), (Profile::Remote, 300, 2), (Profile::CloudVolume, 8, 1)]
        {
            for count in [1_000, 30_000, 300_000, 1_000_000] {
                if profile == Profile::CloudVolume && count > 30_000 {
                    continue; // the values of its minishards take more than a request costs
                }
                let scratch = TempDir::new();
                let mut loader = options().profile(profile).create(scratch.path()).unwrap();
                (0..count).for_each(|at| loader.insert(key_of(at), vec![b'v'; len]).unwrap());
                loader.finish().unwrap();
                let bucket = Bucket::of(scratch.path());
                for at in (0..count).step_by(usize::try_from(count / 61).unwrap()) {
                    let reader = bucket.open();
                    let (found, cost) = bucket.run_counted(reader.get(key_of(at)));
                    assert_eq!(bytes(found), Some(vec![b'v'; len]));
                    let least = if count < 1_000_000 { requests } else { 1 }; // a minishard of dense keys may have few
                    assert!(
                        (least..=requests).contains(&cost.requests),
                        "{name}, {profile:?}, {count} keys of {len} bytes: key {at}, {cost:?}"
                    );
                }
            }
        }
    }
}

/// Keys that compress to any length, and padding between values, which hide how many rows a gzip index has.
#[test]
fn the_rows_of_unusual_indexes_are_estimated() {
    let gzip = |hash, preshift| {
        let spec = ShardingSpec::new(hash, preshift, 4, 0).unwrap();
        spec.with_minishard_index_encoding(Encoding::Gzip)
    };
    let mixed =
        |at: u64| 16 * (if at % 16 == 3 { at / 16 } else { at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 }) + at % 16;
    let some = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut aligned = options();
    aligned.value_alignment(ValueAlignment::SixtyFour);
    for (mut options, spec, key_of) in [
        (options(), gzip(HashFunction::Identity, 0), mixed as fn(u64) -> u64),
        (aligned, gzip(HashFunction::MurmurHash3X86_128, 0), some),
    ] {
        let scratch = TempDir::new();
        let mut loader = options.spec(spec).create(scratch.path()).unwrap();
        (0..32_000).for_each(|at| loader.insert(key_of(at), vec![b'v'; 100]).unwrap());
        loader.finish().unwrap();
        let bucket = Bucket::of(scratch.path());
        for at in (0..32_000).step_by(499) {
            let (found, cost) = bucket.run_counted(bucket.open().get(key_of(at)));
            assert_eq!((bytes(found), cost.requests), (Some(vec![b'v'; 100]), 2), "{spec:?}: key {at}");
        }
    }
}

/// Without a manifest the rows cannot be estimated: the rest of the checks is requested, and nothing twice.
#[test]
fn only_the_missing_tail_of_a_minishard_is_read() {
    let store = build(options().spec(spec(4, 0, Encoding::Gzip)), 8000, 20);
    let bucket = Bucket::of(&store.path().join("gen-0000000001"));
    bucket.remove("manifest.json");
    for key in keys(8000).step_by(499) {
        let reader = bucket.open();
        bucket.take_log();
        assert_eq!(bytes(bucket.run(reader.get(key))), Some(value(key, 20)));
        let ranges: Vec<_> = bucket.take_log().into_iter().map(|request| request.wanted).collect();
        let [_, Wanted::Bytes(head), Wanted::Bytes(tail), Wanted::Bytes(_)] = &ranges[..] else { panic!("{ranges:?}") };
        assert_eq!(head.end, tail.start);
        assert_eq!(bytes(bucket.run(reader.get(key))), Some(value(key, 20)), "from the cache");
    }
    let all: Vec<u64> = keys(8000).collect();
    let values = bucket.run(bucket.open().get_many(&all)).unwrap();
    assert!(all.iter().zip(values).all(|(key, found)| bytes(found) == Some(value(*key, 20))));
}

/// A manifest that states wrong numbers of keys: the checks of an index are read, however many are expected.
#[test]
fn lookups_do_not_depend_on_the_number_of_keys() {
    let store = build(options().spec(spec(4, 0, Encoding::Gzip)), 8000, 20);
    let bucket = Bucket::of(store.path());
    let name = "gen-0000000001/manifest.json";
    let text = String::from_utf8(bucket.object(name)).unwrap();
    let (text, _) = text.rsplit_once("\"crc32\"").unwrap();
    for count in [1, 7999, u64::MAX] {
        let other =
            text.replace("\"keys\": 8000", &format!("\"keys\": {count}")).replace(",8000,", &format!(",{count},"));
        bucket.put(name, format!("{other}\"crc32\": {}\n}}\n", crc32fast::hash(other.as_bytes())));
        let reader = bucket.run(RemoteOptions::new().max_index_bytes(u64::MAX).open()).unwrap();
        assert_eq!(reader.snapshot().key_count(), Some(count));
        for key in keys(8000).step_by(499) {
            assert_eq!(bytes(bucket.run(reader.get(key))), Some(value(key, 20)), "key {key} of {count}");
        }
    }
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
fn foreign_data_opens_in_three_requests_and_one_round() {
    let bucket = Bucket::of(&data("public/ts_10k_mm3"));
    let cost = bucket.run_counted(RemoteOptions::new().open()).1;
    assert_eq!((cost.requests, cost.rounds), (3, 1), "info, manifest and current");
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
