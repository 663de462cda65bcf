//! Remote lookups give the answers of local ones: on data of other programs, and on native stores of every kind.

use std::path::Path;

use crate::bucket::Bucket;
use crate::common::{Answer, TempDir, data, expected, name, sets};
use crate::stores::{absent, build, bytes, keys, options, spec, value};
use sharddb::spec::{Encoding, HashFunction, ValueAlignment};
use sharddb::{ErrorKind, OpenOptions, Profile, ShardDb, ShardingSpec};
use sharddb_remote::RemoteOptions;

/// Compares lookups of keys, one by one and as a batch, with those of a local database.
fn compare(local: &ShardDb, bucket: &Bucket, options: &RemoteOptions, keys: &[u64], what: &str) {
    let reader = bucket.run(options.open()).unwrap();
    let snapshot = reader.snapshot();
    assert_eq!(snapshot.spec(), local.snapshot().spec());
    let batch = bucket.run(snapshot.get_many(keys)).unwrap();
    for (key, of_batch) in keys.iter().zip(batch) {
        let expected = local.get(*key).map(|value| value.map(|value| value.to_vec())).map_err(|error| error.kind());
        for answer in [bucket.run(reader.get(*key)), of_batch] {
            let answer = answer.map(|value| value.map(|value| value.to_vec())).map_err(|error| error.kind());
            assert_eq!(answer, expected, "{what}: key {key}");
        }
        let location = local.snapshot().locate(*key).map_err(|error| error.kind());
        let remote = bucket.run(reader.locate(*key)).map_err(|error| error.kind());
        let expected = location.map(|location| location.map(|location| (location.range.start, location.stored_len())));
        let remote = remote
            .map(|location| location.map(|location| (location.range.start, location.range.end - location.range.start)));
        assert_eq!(remote, expected, "{what}: key {key}");
        let contains = bucket.run(reader.contains(*key)).map_err(|error| error.kind());
        assert_eq!(contains, local.contains(*key).map_err(|error| error.kind()), "{what}: key {key}");
    }
}

/// The fixtures that TensorStore and CloudVolume wrote.
#[test]
fn fixtures_of_other_programs() {
    let mut compared = 0;
    for directory in sets("public") {
        let local = ShardDb::open(&directory).unwrap();
        let mut expected = expected(&directory);
        if expected.len() > 600 {
            expected = expected.into_iter().step_by(31).collect();
        }
        let keys: Vec<u64> = expected.iter().map(|(key, _)| *key).collect();
        for bucket in [Bucket::of(&directory), Bucket::of(&directory).without_etags()] {
            compare(&local, &bucket, &RemoteOptions::new(), &keys, name(&directory));
            let reader = bucket.open();
            for (key, answer) in &expected {
                assert_eq!(Answer::of(bucket.run(reader.get(*key))), *answer, "{directory:?}: key {key}");
            }
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}

fn compare_store(directory: &Path, options: &RemoteOptions, what: &str) {
    let local = ShardDb::open(directory).unwrap();
    let some: Vec<u64> = keys(3000).step_by(7).chain(absent(3000).step_by(11)).chain([u64::MAX]).collect();
    for bucket in [Bucket::of(directory), Bucket::of(directory).without_etags()] {
        compare(&local, &bucket, options, &some, what);
    }
    let present = some.iter().filter(|key| local.contains(**key).unwrap()).count();
    assert!(present > 300, "{what}");
}

#[test]
fn native_stores_of_every_kind() {
    let none = RemoteOptions::new();
    for profile in [Profile::Local, Profile::Remote, Profile::CloudVolume] {
        let store = build(options().profile(profile), 3000, 300);
        compare_store(store.path(), &none, profile.as_str());
        let store = build(options().profile(profile).checks(false), 3000, 300);
        compare_store(store.path(), &none, "without checks");
        let store = build(options().profile(profile).data_encoding(Encoding::Gzip), 3000, 300);
        compare_store(store.path(), &none, "gzip data");
        let store = build(options().profile(profile).value_alignment(ValueAlignment::SixtyFour), 3000, 300);
        compare_store(store.path(), &none, "aligned values");
    }
    let identity = ShardingSpec::new(HashFunction::Identity, 2, 5, 4).unwrap();
    for index in [Encoding::Raw, Encoding::Gzip] {
        let store = build(options().spec(identity.with_minishard_index_encoding(index)), 3000, 300);
        compare_store(store.path(), &none, "identity hash");
        let store = build(options().spec(spec(0, 0, index)), 3000, 300);
        compare_store(store.path(), &none, "one minishard");
        let store = build(options().spec(spec(12, 2, index)).allow_sparse(true), 3000, 300);
        compare_store(store.path(), &none, "sparse");
    }
}

#[test]
fn a_store_with_preambles() {
    for index in [Encoding::Raw, Encoding::Gzip] {
        let scratch = TempDir::new();
        let mut loader = options().spec(spec(5, 1, index)).create(scratch.path()).unwrap();
        for key in keys(3000) {
            loader.insert_with_preamble(key, &[b'p'; 40][..(key % 40) as usize], &value(key, 50)).unwrap();
        }
        loader.finish().unwrap();
        compare_store(scratch.path(), &RemoteOptions::new(), "prefixes");
    }
}

#[test]
fn a_scale_of_a_volume() {
    let info = r#"{"scales": [{"key": "4_4_4"}, {"key": "8_8_8/x", "resolution": [8, 8, 8]}]}"#;
    let store = build(options().profile(Profile::Local).info(info).sharding_at("/scales/1"), 3000, 100);
    compare_store(store.path(), &RemoteOptions::new(), "volume");
    compare_store(store.path(), RemoteOptions::new().sharding_at("/scales/1"), "volume by pointer");
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    let location = bucket.run(reader.locate(0)).unwrap().unwrap();
    assert!(location.object.starts_with("gen-0000000001/8_8_8/x/"), "{location:?}");
    let error = bucket.run(RemoteOptions::new().sharding_at("/scales/0").open()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

/// A generation opened by its own directory, and a store without keys.
#[test]
fn a_generation_by_itself_and_an_empty_store() {
    let store = build(options().profile(Profile::Local), 3000, 100);
    let generation = store.path().join("gen-0000000001");
    compare_store(&generation, &RemoteOptions::new(), "generation");
    let bucket = Bucket::of(&generation);
    assert_eq!(bucket.open().snapshot().generation(), None);
    let empty = build(options().spec(spec(3, 3, Encoding::Raw)), 0, 0);
    let bucket = Bucket::of(empty.path());
    let reader = bucket.open();
    assert_eq!((reader.snapshot().key_count(), bytes(bucket.run(reader.get(1)))), (Some(0), None));
}

/// Values around 64 KiB and far above, raw and gzip.
#[test]
fn long_values() {
    for (index, encoding) in
        [(Encoding::Raw, Encoding::Raw), (Encoding::Raw, Encoding::Gzip), (Encoding::Gzip, Encoding::Raw)]
    {
        let scratch = TempDir::new();
        let mut loader = options().spec(spec(2, 0, index)).data_encoding(encoding).create(scratch.path()).unwrap();
        let lens = [0, 1, 65_000, 65_500, 65_536, 66_000, 1 << 20, 3 << 20];
        for (key, len) in (0..).zip(lens) {
            loader.insert(key, value(key, 10).into_iter().cycle().take(len).collect::<Vec<u8>>()).unwrap();
        }
        loader.finish().unwrap();
        let local = ShardDb::open(scratch.path()).unwrap();
        let all: Vec<u64> = (0..10).collect();
        compare(&local, &Bucket::of(scratch.path()), &RemoteOptions::new(), &all, "long values");
        let capped = OpenOptions::new().max_value_bytes(65_500).open(scratch.path()).unwrap();
        let mut remote = RemoteOptions::new();
        remote.max_value_bytes(65_500);
        if encoding == Encoding::Gzip {
            let bucket = Bucket::of(scratch.path());
            let reader = bucket.run(remote.open()).unwrap();
            let error = bucket.run(reader.get(7)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooLarge);
            assert_eq!(capped.get(7).unwrap_err().kind(), ErrorKind::TooLarge);
        } else {
            compare(&capped, &Bucket::of(scratch.path()), &remote, &all, "capped values");
        }
    }
}

#[test]
fn errors_of_opening() {
    let bucket = Bucket::default();
    let error = bucket.run(RemoteOptions::new().root_name("s3://bucket/x").open()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("s3://bucket/x"), "{error}");
    bucket.put("info", "{");
    assert_eq!(bucket.run(RemoteOptions::new().open()).unwrap_err().kind(), ErrorKind::InvalidSpec);
    bucket.put("current", "gen-1");
    assert_eq!(bucket.run(RemoteOptions::new().open()).unwrap_err().kind(), ErrorKind::Corrupt);
    bucket.put("current", "gen-0000000007\n");
    assert_eq!(bucket.run(RemoteOptions::new().open()).unwrap_err().kind(), ErrorKind::GenerationGone);
    let directory = data("public/ts_10k_mm3");
    let bucket = Bucket::of(&directory);
    bucket.put("current", "gen-0000000001");
    bucket.put("gen-0000000001/info", std::fs::read(directory.join("info")).unwrap());
    let error = bucket.run(RemoteOptions::new().open()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GenerationGone, "a generation of a store has a manifest");
}
