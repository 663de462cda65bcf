//! Merges of databases against a `BTreeMap` that does the same, and against a build of the merged pairs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::common::{TempDir, sets};
use crate::format::hash::HashFunction;
use crate::format::spec::{Encoding, ShardingSpec};
use crate::write::{BuildOptions, OnDuplicate};
use crate::{ErrorKind, ShardDb, Snapshot, VerifyLevel};

type Pairs = BTreeMap<u64, Vec<u8>>;

fn spec(minishard_bits: u8, shard_bits: u8) -> ShardingSpec {
    ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, minishard_bits, shard_bits).unwrap()
}

/// The pairs of the `n`-th input: two thirds of its keys are also those of the one before.
fn pairs(n: u64) -> Pairs {
    (n * 300..n * 300 + 900).map(|key| (key * 3, format!("input {n}, key {key}").into_bytes())).collect()
}

fn build(options: &BuildOptions, store: &Path, pairs: &Pairs) -> Snapshot {
    let mut loader = options.create(store).unwrap();
    loader.extend(pairs.iter().map(|(key, value)| (*key, value))).unwrap();
    loader.finish().unwrap();
    ShardDb::open(store).unwrap().snapshot()
}

fn options(memory: u64, threads: usize) -> BuildOptions {
    let mut options = BuildOptions::new();
    options.memory(memory).threads(threads).durable(false).allow_sparse(true);
    options
}

fn concatenate() -> OnDuplicate {
    OnDuplicate::merge(|_, values, to| {
        while values.copy_next(to)? {}
        Ok(())
    })
}

fn merged(inputs: &[Pairs], policy: &OnDuplicate) -> Pairs {
    let mut all = Pairs::new();
    for (key, value) in inputs.iter().flatten() {
        let old = all.entry(*key);
        match (old, policy) {
            (std::collections::btree_map::Entry::Occupied(_), OnDuplicate::KeepFirst) => {}
            (std::collections::btree_map::Entry::Occupied(mut old), OnDuplicate::Merge(_)) => {
                old.get_mut().extend(value);
            }
            (old, _) => drop(old.insert_entry(value.clone())),
        }
    }
    all
}

fn check(store: &Path, expected: &Pairs) {
    let snapshot = ShardDb::open(store).unwrap().snapshot();
    assert_eq!(snapshot.key_count(), Some(expected.len() as u64));
    for (key, value) in expected {
        assert_eq!(snapshot.get(*key).unwrap().unwrap(), value[..], "key {key}");
    }
    assert!(snapshot.verify(VerifyLevel::Data).unwrap().is_clean());
}

fn files_of(store: &Path) -> BTreeMap<String, Vec<u8>> {
    let generation = store.join(crate::Store::open(store).unwrap().current().unwrap().unwrap().to_string());
    let files = fs::read_dir(generation).unwrap().map(|entry| entry.unwrap());
    let files = files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()));
    files.filter(|(name, _)| name != "lease").collect()
}

/// Inputs of one specification, of more bits than the new one, of fewer, of another hash and of other encodings.
#[test]
fn a_merge_has_the_bytes_of_a_build_of_the_merged_pairs() {
    let gzip =
        |spec: ShardingSpec| spec.with_data_encoding(Encoding::Gzip).with_minishard_index_encoding(Encoding::Gzip);
    let identity = ShardingSpec::new(HashFunction::Identity, 2, 3, 3).unwrap();
    let inputs = [
        [spec(3, 4), spec(3, 4), spec(3, 4)],
        [spec(3, 4), spec(1, 6), spec(5, 5)],
        [spec(3, 4), spec(2, 2), identity],
        [gzip(spec(3, 4)), gzip(spec(4, 3)), gzip(spec(0, 7))],
        [gzip(spec(3, 4)), spec(3, 4), identity],
    ];
    let outputs = [Some(spec(3, 4)), Some(gzip(spec(2, 3))), Some(identity), None];
    let directory = TempDir::new();
    for (case, specs) in inputs.iter().enumerate() {
        let maps: Vec<Pairs> = (0..3).map(pairs).collect();
        let databases: Vec<Snapshot> = (specs.iter().zip(&maps).enumerate())
            .map(|(n, (spec, map))| {
                build(options(16 << 20, 1).spec(*spec), &directory.path().join(format!("{case}-{n}")), map)
            })
            .collect();
        for (output, spec) in outputs.iter().enumerate() {
            for policy in [OnDuplicate::KeepFirst, OnDuplicate::KeepLast, concatenate()] {
                let expected = merged(&maps, &policy);
                for (memory, threads) in [(1 << 14, 1), (64 << 20, 3)] {
                    let what = format!("case {case}, output {output}, {policy:?}, {memory} bytes");
                    let store = directory.path().join("merged");
                    let mut options = options(memory, threads);
                    options.on_duplicate(policy.clone());
                    if let Some(spec) = spec {
                        options.spec(*spec);
                    }
                    let candidate = options.merge(&store, &databases).unwrap();
                    let dropped = candidate.content().dropped;
                    let published = candidate.publish().unwrap();
                    match policy {
                        OnDuplicate::Merge(_) => assert_eq!(dropped, 0, "{what}"),
                        _ => assert_eq!(dropped, 1200, "{what}"),
                    }
                    check(&store, &expected);
                    let whole = directory.path().join("whole");
                    build(self::options(memory, threads).spec(published.content.spec), &whole, &expected);
                    assert!(files_of(&store) == files_of(&whole), "{what}");
                    fs::remove_dir_all(&store).unwrap();
                    fs::remove_dir_all(&whole).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_key_of_two_inputs_is_an_error_by_default() {
    let directory = TempDir::new();
    for other in [spec(3, 4), spec(1, 1)] {
        let databases = [
            build(options(16 << 20, 1).spec(spec(3, 4)), &directory.path().join("a"), &pairs(0)),
            build(options(16 << 20, 1).spec(other), &directory.path().join("b"), &Pairs::from([(600, vec![1])])),
        ];
        let error = options(16 << 20, 2).spec(spec(3, 4)).merge(directory.path().join("out"), &databases).unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::DuplicateKey, Some(600)));
        assert!(!directory.path().join("out").exists());
    }
}

/// Foreign data sets, written by TensorStore and CloudVolume, merge with each other and with a native database.
#[test]
fn foreign_inputs_are_merged() {
    let sets = sets("public");
    let directory = TempDir::new();
    for (n, some) in sets.chunks(7).enumerate() {
        let native = pairs(0);
        let mut maps = vec![native.clone()];
        let mut databases = vec![build(&options(16 << 20, 1), &directory.path().join(format!("native-{n}")), &native)];
        for set in some {
            let database = ShardDb::open(set).unwrap().snapshot();
            let pairs = database.iter().map(Result::unwrap);
            let map = pairs.map(|entry| (entry.key(), entry.value().unwrap().to_vec())).collect();
            maps.push(map);
            databases.push(database);
        }
        let store = directory.path().join(format!("merged-{n}"));
        let merge = options(16 << 20, 2).on_duplicate(OnDuplicate::KeepLast).merge(&store, &databases);
        merge.unwrap().publish().unwrap();
        check(&store, &merged(&maps, &OnDuplicate::KeepLast));
    }
}

#[test]
fn damage_of_an_input_is_an_error_with_its_key() {
    let directory = TempDir::new();
    let store = directory.path().join("a");
    let database = build(options(16 << 20, 1).spec(spec(3, 0)), &store, &pairs(0));
    let shard = store.join("gen-0000000001").join("0.shard");
    let mut bytes = fs::read(&shard).unwrap();
    let text = b"input 0, key 100";
    let at = bytes.windows(text.len()).position(|window| window == text).unwrap();
    bytes[at] ^= 1;
    fs::remove_file(&shard).unwrap();
    fs::write(&shard, bytes).unwrap();
    for spec in [spec(3, 0), spec(3, 5)] {
        let error = options(16 << 20, 1)
            .spec(spec)
            .merge(directory.path().join("out"), std::slice::from_ref(&database))
            .unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::Corrupt, Some(300)), "{error}");
    }
}

#[test]
fn nothing_merges_to_an_empty_generation() {
    let directory = TempDir::new();
    let store = directory.path().join("store");
    let published = options(16 << 20, 1).merge(&store, &[]).unwrap().publish().unwrap();
    assert_eq!(published.content.keys, 0);
    let empty = ShardDb::open(&store).unwrap().snapshot();
    let published = options(16 << 20, 1).merge(&store, &[empty.clone(), empty]).unwrap().publish().unwrap();
    assert_eq!((published.content.keys, published.generation.get()), (0, 2));
}

/// Shards with one key each become minishards of one shard, so the reader is several shards ahead of the copies.
#[test]
fn shards_of_one_key_are_copied_from_their_own_file() {
    let identity =
        |minishard_bits, shard_bits| ShardingSpec::new(HashFunction::Identity, 0, minishard_bits, shard_bits).unwrap();
    let directory = TempDir::new();
    for (keys, checks) in [(3, true), (4, true), (16, true), (16, false)] {
        let pairs: Pairs = (0_u64..)
            .zip(1..=keys)
            .map(|(key, times)| (key, format!("value {key}").repeat(times).into_bytes()))
            .collect();
        let input = directory.path().join("input");
        let database = build(options(16 << 20, 1).spec(identity(0, 4)).checks(checks), &input, &pairs);
        for (minishard_bits, shard_bits) in [(4, 0), (3, 1), (2, 2), (2, 0)] {
            let store = directory.path().join("store");
            let mut options = options(16 << 20, 2);
            options.spec(identity(minishard_bits, shard_bits)).checks(checks);
            options.merge(&store, std::slice::from_ref(&database)).unwrap().publish().unwrap();
            check(&store, &pairs);
        }
        fs::remove_dir_all(input).unwrap();
    }
}
