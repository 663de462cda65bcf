//! Ordered reads agree with a `BTreeMap` under every hash, layout, encoding and storage, with and without a key file,
//! from both ends, and whatever is damaged.

use sharddb_format::internal::ids::shard_number;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};

use crate::common::{Answer, Storage, TempDir, data, directory_bytes, expected, name, sets, xorshift};
use sharddb::read::RangeOptions;
use sharddb::spec::{Encoding, HashFunction, Layout};
use sharddb::verify::FindingKind;
use sharddb::write::ShardWriter;
use sharddb::{BuildOptions, ErrorKind, OpenOptions, Progress, ShardingSpec, Snapshot, VerifyLevel, VerifyReads};

type Model = BTreeMap<u64, Vec<u8>>;

/// Dense keys, runs with wide gaps between them, keys all over, and both extremes.
fn model(seed: u64, count: u64) -> Model {
    let mut random = xorshift(seed);
    let dense = 1000..1000 + count / 3;
    let runs = (0..count / 3).map(|key| ((key / 50) << 45) | (key % 50));
    let mut keys: BTreeSet<u64> = dense.chain(runs).chain([0, u64::MAX - 1, u64::MAX]).collect();
    keys.extend((0..count / 3).map(|_| random()));
    keys.into_iter().map(|key| (key, key.to_le_bytes()[..(key % 9) as usize].to_vec())).collect()
}

fn specs() -> Vec<ShardingSpec> {
    use HashFunction::{Identity, MurmurHash3X86_128 as Murmur};
    let bits = [
        (Identity, 0, 0, 0),
        (Identity, 0, 6, 2),
        (Identity, 3, 5, 3),
        (Identity, 0, 13, 1),
        (Identity, 2, 4, 60),
        (Identity, 64, 1, 1),
        (Murmur, 0, 0, 0),
        (Murmur, 0, 6, 2),
        (Murmur, 4, 10, 0),
    ];
    let mut specs = Vec::new();
    for (number, (hash, preshift, minishard, shard)) in bits.into_iter().enumerate() {
        let encoding = |bit: usize| if number >> bit & 1 == 1 { Encoding::Gzip } else { Encoding::Raw };
        let spec = ShardingSpec::new(hash, preshift, minishard, shard).unwrap();
        specs.push(spec);
        specs.push(spec.with_minishard_index_encoding(encoding(0)).with_data_encoding(encoding(1)));
    }
    specs
}

fn build(path: &Path, spec: ShardingSpec, model: &Model, ordered: bool) {
    let mut loader = BuildOptions::new()
        .spec(spec)
        .ordered(ordered)
        .allow_sparse(true)
        .durable(false)
        .memory(64 << 20)
        .create(path)
        .unwrap();
    model.iter().for_each(|(key, value)| loader.insert(*key, value).unwrap());
    loader.finish().unwrap();
}

/// Replaces a file of a generation, which is read-only.
fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

fn key_file(store: &Path) -> PathBuf {
    store.join("gen-0000000001/keys")
}

/// Ranges that begin and end at keys, next to keys, and anywhere.
fn ranges(model: &Model, seed: u64) -> Vec<(Bound<u64>, Bound<u64>)> {
    let keys: Vec<u64> = model.keys().copied().collect();
    let mut random = xorshift(seed);
    let mut near = || match keys.len() {
        0 => random(),
        len => keys[random() as usize % len].wrapping_add(random() % 3).wrapping_sub(1),
    };
    let mut ranges = vec![
        (Bound::Unbounded, Bound::Unbounded),
        (Bound::Included(0), Bound::Included(0)),
        (Bound::Included(0), Bound::Excluded(0)),
        (Bound::Included(u64::MAX), Bound::Included(u64::MAX)),
        (Bound::Excluded(u64::MAX), Bound::Unbounded),
        (Bound::Included(1010), Bound::Excluded(1020)),
        (Bound::Included(1010), Bound::Excluded(1010 + 300)),
    ];
    for _ in 0..6 {
        let (start, end) = (near(), near());
        let (start, end) = (start.min(end), start.max(end));
        ranges.push((Bound::Included(start), Bound::Excluded(end)));
        ranges.push((Bound::Excluded(start), Bound::Included(end)));
        ranges.push((Bound::Included(start), Bound::Unbounded));
        ranges.push((Bound::Unbounded, Bound::Excluded(end)));
    }
    ranges
}

fn of_model(model: &Model, range: (Bound<u64>, Bound<u64>)) -> Vec<u64> {
    model.keys().copied().filter(|key| range.contains(key)).collect()
}

/// All ordered reads agree with the model.
fn agrees(snapshot: &Snapshot, options: &RangeOptions, model: &Model, seed: u64, place: &str) {
    for range in ranges(model, seed) {
        let place = format!("{place}, {range:?}");
        let keys = of_model(model, range);
        let found = |keys: sharddb::read::KeyRange| keys.map(Result::unwrap).collect::<Vec<u64>>();
        assert_eq!(snapshot.key_range_with(range, options).remaining(), keys.len() as u64, "{place}");
        assert_eq!(found(snapshot.key_range_with(range, options)), keys, "{place}");
        let back: Vec<u64> = snapshot.key_range_with(range, options).rev().map(Result::unwrap).collect();
        assert!(back.iter().rev().eq(&keys), "{place}: backward");
        assert_eq!(snapshot.count_range(range).unwrap(), keys.len() as u64, "{place}");
        both_ends_agree(snapshot.key_range_with(range, options), &keys, seed, &place);
        let pairs = snapshot.range_with(range, options).map(Result::unwrap);
        let pairs: Model = pairs.map(|pair| (pair.key(), pair.value().unwrap().to_vec())).collect();
        assert!(pairs.iter().eq(keys.iter().map(|key| (key, &model[key]))), "{place}: pairs");
        let last = snapshot.range_with(range, options).next_back().map(|pair| pair.unwrap().key());
        assert_eq!(last, keys.last().copied(), "{place}");
    }
    let ends = |pair: sharddb::Result<Option<sharddb::read::RangeEntry>>| pair.unwrap().map(|pair| pair.key());
    assert_eq!(ends(snapshot.first()), model.keys().next().copied(), "{place}");
    assert_eq!(ends(snapshot.last()), model.keys().next_back().copied(), "{place}");
    let keys: Vec<u64> = model.keys().copied().collect();
    for rank in [0, 1, keys.len() / 2, keys.len().saturating_sub(1), keys.len(), usize::MAX] {
        let key = keys.get(rank).copied();
        assert_eq!(snapshot.select(rank as u64).unwrap(), key, "{place}: rank {rank}");
        if let Some(key) = key {
            assert_eq!(snapshot.rank(key).unwrap(), rank as u64, "{place}: key {key}");
            assert_eq!(
                snapshot.rank(key.saturating_add(1)).unwrap(),
                rank as u64 + u64::from(key < u64::MAX),
                "{place}"
            );
        }
    }
    assert_eq!(snapshot.select(u64::MAX).unwrap(), None);
}

/// Random steps from both ends, with seeks and skips, beside positions in a sorted vector.
fn both_ends_agree(mut found: sharddb::read::KeyRange, keys: &[u64], seed: u64, place: &str) {
    let mut random = xorshift(seed ^ keys.len() as u64);
    // keys before `start` were returned by the front, and those from `end` on by the back
    let (mut start, mut end) = (0, keys.len());
    for _ in 0..40 {
        let key = match keys.len() {
            0 => random(),
            len => keys[random() as usize % len].wrapping_add(random() % 3).wrapping_sub(1),
        };
        match random() % 6 {
            0 => {
                assert_eq!(found.next().map(Result::unwrap), keys[start..end].first().copied(), "{place}");
                start = (start + 1).min(end);
            }
            1 => {
                assert_eq!(found.next_back().map(Result::unwrap), keys[start..end].last().copied(), "{place}");
                end = end.saturating_sub(1).max(start);
            }
            2 => {
                found.seek(key);
                start = keys.partition_point(|other| *other < key).min(end);
            }
            3 => {
                found.seek_back(key);
                end = keys.partition_point(|other| *other <= key).max(start);
            }
            4 if end - start > 3 => {
                assert_eq!(found.nth(2).map(Result::unwrap), Some(keys[start + 2]), "{place}");
                start += 3;
            }
            5 if end - start > 3 => {
                assert_eq!(found.nth_back(1).map(Result::unwrap), Some(keys[end - 2]), "{place}");
                end -= 2;
            }
            _ => {}
        }
        assert_eq!(found.remaining(), (end - start) as u64, "{place}");
    }
}

#[test]
fn every_range_of_every_layout() {
    for (number, spec) in specs().into_iter().enumerate() {
        let model = model(number as u64 + 1, 1500);
        for ordered in [false, true] {
            let store = TempDir::new();
            build(store.path(), spec, &model, ordered);
            for storage in Storage::ALL {
                let db = storage.open(&OpenOptions::new(), store.path()).unwrap();
                let snapshot = db.snapshot();
                assert_eq!(snapshot.is_ordered(), ordered);
                let place = format!("{spec} {storage:?} ordered {ordered}");
                agrees(&snapshot, &RangeOptions::new(), &model, number as u64 + 7, &place);
            }
        }
    }
}

#[test]
fn empty_stores_and_one_key() {
    let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 2, 2).unwrap();
    for keys in [&[][..], &[0], &[u64::MAX], &[7]] {
        let model: Model = keys.iter().map(|key| (*key, vec![1])).collect();
        for ordered in [false, true] {
            let store = TempDir::new();
            build(store.path(), spec, &model, ordered);
            for storage in Storage::ALL {
                let db = storage.open(&OpenOptions::new(), store.path()).unwrap();
                agrees(&db.snapshot(), &RangeOptions::new(), &model, 3, &format!("{keys:?} {storage:?}"));
                assert!(db.snapshot().verify(VerifyLevel::Data).unwrap().is_clean());
            }
        }
    }
}

/// Several groups of blocks, on several threads, in memory and spilled.
#[test]
fn many_keys_in_memory_and_spilled() {
    let mut random = xorshift(11);
    let model: Model = (0..300_000).map(|_| (random(), Vec::new())).collect();
    let keys: Vec<u64> = model.keys().copied().collect();
    let murmur = HashFunction::MurmurHash3X86_128;
    for (spec, ordered) in [
        (ShardingSpec::new(murmur, 0, 12, 0).unwrap(), false),
        (ShardingSpec::new(murmur, 0, 6, 4).unwrap(), true),
        (ShardingSpec::new(HashFunction::Identity, 0, 10, 1).unwrap(), false),
    ] {
        let store = TempDir::new();
        build(store.path(), spec, &model, ordered);
        let db = Storage::Mapped.open(&OpenOptions::new(), store.path()).unwrap();
        let snapshot = db.snapshot();
        for (memory, threads) in [(0, 3), (100_000, 1), (1 << 20, 2), (u64::MAX, 1), (u64::MAX, 5)] {
            let progress = Progress::new();
            let mut options = RangeOptions::new();
            options.memory(memory).threads(threads).temp_dir(store.path()).progress(&progress);
            let found: Vec<u64> = snapshot.key_range_with(.., &options).map(Result::unwrap).collect();
            assert!(found == keys, "{spec} memory {memory} threads {threads}");
            assert_eq!(progress.done(), if ordered { 0 } else { keys.len() as u64 });
            let (low, high) = (keys[1000], keys[290_000]);
            let mut range = snapshot.key_range_with(low..high, &options);
            assert_eq!(range.remaining(), 289_000);
            range.seek(keys[150_000]);
            assert_eq!(range.next().unwrap().unwrap(), keys[150_000]);
            assert!(range.rev().map(Result::unwrap).eq(keys[150_001..290_000].iter().rev().copied()));
            assert_eq!(snapshot.rank(keys[270_000]).unwrap(), 270_000);
            let names: Vec<_> = fs::read_dir(store.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert!(names.iter().all(|name| !name.to_str().unwrap().ends_with(".keys")), "{names:?}");
        }
    }
}

/// Small budgets with the shapes of [`model`], from both ends.
#[test]
fn spilled_ranges_agree() {
    for (number, spec) in specs().into_iter().enumerate().step_by(4) {
        let (store, model) = (TempDir::new(), model(number as u64, 5000));
        build(store.path(), spec, &model, false);
        let db = Storage::Positioned.open(&OpenOptions::new(), store.path()).unwrap();
        let mut options = RangeOptions::new();
        options.memory(0).threads(2);
        agrees(&db.snapshot(), &options, &model, 5, &format!("{spec}"));
    }
}

#[test]
fn a_spill_that_fails_is_the_only_item() {
    let (store, model) = (TempDir::new(), model(3, 5000));
    let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 4, 1).unwrap();
    build(store.path(), spec, &model, false);
    let snapshot = Storage::Positioned.open(&OpenOptions::new(), store.path()).unwrap().snapshot();
    let mut options = RangeOptions::new();
    options.memory(0).temp_dir(store.path().join("absent"));
    for threads in [1, 4] {
        let mut keys = snapshot.key_range_with(.., options.threads(threads));
        assert_eq!(keys.next().unwrap().unwrap_err().kind(), ErrorKind::Io);
        keys.seek(0);
        assert!(keys.next().is_none() && keys.next_back().is_none());
    }
    let progress = Progress::new();
    progress.cancel();
    let mut keys = snapshot.key_range_with(.., RangeOptions::new().progress(&progress));
    assert_eq!(keys.next().unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(keys.next().is_none());
}

/// The entropy of a set of `count` random keys of 64 bits is `log2(e * 2^64 / count)` bits per key.
#[test]
fn the_key_file_is_as_short_as_the_keys_allow() {
    let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 8, 1).unwrap();
    let bytes_per_key = |model: &Model| {
        let store = TempDir::new();
        build(store.path(), spec, model, true);
        fs::metadata(key_file(store.path())).unwrap().len() as f64 / model.len() as f64
    };
    let count = 200_000;
    let dense: Model = (5..5 + count).map(|key| (key, Vec::new())).collect();
    assert!(bytes_per_key(&dense) < 0.03);
    let runs: Model = (0..count).map(|key| (((key / 1000) << 50) | (key % 1000), Vec::new())).collect();
    assert!(bytes_per_key(&runs) < 0.05);
    let mut random = xorshift(1);
    let random: Model = (0..count).map(|_| (random(), Vec::new())).collect();
    let entropy = (std::f64::consts::E / count as f64).log2() + 64.0;
    let found = 8.0 * bytes_per_key(&random);
    assert!((entropy..entropy + 2.0).contains(&found), "{found} bits, entropy {entropy}");
}

/// Whatever byte of the key file is damaged, ordered reads return the same, and `verify` finds it.
#[test]
fn a_damaged_key_file_changes_no_result() {
    let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 3, 1).unwrap();
    let (store, model) = (TempDir::new(), model(9, 4000));
    build(store.path(), spec, &model, true);
    let path = key_file(store.path());
    let whole = fs::read(&path).unwrap();
    let damages = (0..whole.len()).step_by(97).chain(whole.len() - 60..whole.len());
    let mut damaged: Vec<Vec<u8>> = damages
        .map(|at| {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            bytes
        })
        .collect();
    damaged.extend([vec![], whole[1..].to_vec(), whole[..whole.len() - 1].to_vec(), vec![0; whole.len()]]);
    let keys: Vec<u64> = model.keys().copied().collect();
    for (number, bytes) in damaged.iter().enumerate() {
        replace(&path, bytes);
        for storage in Storage::ALL {
            let snapshot = storage.open(&OpenOptions::new(), store.path()).unwrap().snapshot();
            assert!(snapshot.key_range(..).map(Result::unwrap).eq(keys.iter().copied()), "{number} {storage:?}");
            assert!(snapshot.key_range(..).rev().map(Result::unwrap).eq(keys.iter().rev().copied()), "{number}");
            if number % 20 == 0 {
                agrees(&snapshot, &RangeOptions::new(), &model, number as u64, &format!("damage {number}"));
            }
        }
        let snapshot = Storage::Positioned.open(&OpenOptions::new(), store.path()).unwrap().snapshot();
        let report = snapshot.verify(VerifyLevel::Data).unwrap();
        let kinds: Vec<FindingKind> = report.findings().iter().map(|finding| finding.kind()).collect();
        assert_eq!(kinds, [FindingKind::AuxiliaryFile], "{number}");
    }
    fs::remove_file(&path).unwrap();
    let snapshot = Storage::Mapped.open(&OpenOptions::new(), store.path()).unwrap().snapshot();
    assert!(!snapshot.is_ordered());
    agrees(&snapshot, &RangeOptions::new(), &model, 1, "without the file");
}

/// The key file of a generation with as many keys, of as many bytes, is not used.
#[test]
fn the_key_file_of_another_generation_is_not_used() {
    let spec = ShardingSpec::new(HashFunction::Identity, 0, 3, 0).unwrap();
    let model_from = |first: u64| (first..first + 3000).map(|key| (key, vec![1])).collect::<Model>();
    let (store, other) = (TempDir::new(), TempDir::new());
    build(store.path(), spec, &model_from(100), true);
    build(other.path(), spec, &model_from(108), true);
    assert_eq!(fs::read(key_file(store.path())).unwrap().len(), fs::read(key_file(other.path())).unwrap().len());
    replace(&key_file(store.path()), &fs::read(key_file(other.path())).unwrap());
    let snapshot = Storage::Positioned.open(&OpenOptions::new(), store.path()).unwrap().snapshot();
    assert!(!snapshot.is_ordered());
    agrees(&snapshot, &RangeOptions::new(), &model_from(100), 2, "another key file");
}

/// The key file depends on the pairs only, and changes no other file except the manifest.
#[test]
fn builds_with_a_key_file_are_reproducible() {
    let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 6, 2).unwrap();
    let model = model(4, 30_000);
    let built = |ordered: bool, memory: u64, threads: usize| {
        let store = TempDir::new();
        let mut options = BuildOptions::new();
        options.spec(spec).ordered(ordered).durable(false).memory(memory).threads(threads);
        let mut loader = options.create(store.path()).unwrap();
        model.iter().rev().for_each(|(key, value)| loader.insert(*key, value).unwrap());
        loader.finish().unwrap();
        directory_bytes(&store.path().join("gen-0000000001"))
    };
    let first = built(true, 16 << 20, 1);
    assert!(first == built(true, 1 << 30, 4));
    let without = built(false, 16 << 20, 2);
    assert!(!without.contains_key("keys"), "none by default");
    for (name, bytes) in &first {
        assert!(name == "keys" || name == "manifest.json" || without[name] == *bytes, "{name}");
    }
}

/// With the identity hash a narrow range reads the minishards that can hold it, and nothing else: all others are damaged
/// or missing.
#[test]
fn a_narrow_range_reads_only_its_minishards() {
    let spec = ShardingSpec::new(HashFunction::Identity, 2, 9, 3).unwrap();
    let model: Model = (0..16_384u64).map(|key| (key, key.to_le_bytes().to_vec())).collect();
    let store = TempDir::new();
    build(store.path(), spec, &model, false);
    let generation = store.path().join("gen-0000000001");
    let range = 2 * 2048 + 600..2 * 2048 + 700; // in shard 2, minishards 150 to 174
    for shard in [0, 1, 3, 4, 5, 6, 7] {
        fs::remove_file(generation.join(format!("{shard}.shard"))).unwrap();
    }
    let path = generation.join("2.shard");
    let mut bytes = fs::read(&path).unwrap();
    let entry = |bytes: &[u8], minishard: usize| {
        let word = |at: usize| u64::from_le_bytes(bytes[16 * minishard + at..][..8].try_into().unwrap());
        16 * 512 + word(0) as usize..16 * 512 + word(8) as usize
    };
    for minishard in (0..512).filter(|minishard| !(150..=174).contains(minishard)) {
        let index = entry(&bytes, minishard);
        bytes[index].fill(0xff);
    }
    replace(&path, &bytes);
    for storage in [Storage::Mapped, Storage::Positioned] {
        let snapshot = storage.open(OpenOptions::new().check_shards(false), store.path()).unwrap().snapshot();
        let keys: Vec<u64> = snapshot.key_range(range.clone()).map(Result::unwrap).collect();
        assert_eq!(keys, range.clone().collect::<Vec<u64>>());
        assert_eq!(snapshot.count_range(range.clone()).unwrap(), 100);
        let pair = snapshot.range(range.clone()).next_back().unwrap().unwrap();
        assert_eq!((pair.key(), &*pair.value().unwrap()), (4795, &4795u64.to_le_bytes()[..]));

        // one minishard more is one error more, before all keys
        let more = snapshot.key_range(range.start..range.end + 4).collect::<Vec<_>>();
        assert_eq!((more.len(), more[0].as_ref().unwrap_err().location().minishard.unwrap().get()), (101, 175));
        assert_eq!(snapshot.count_range(range.start..range.end + 4).unwrap_err().kind(), ErrorKind::Corrupt);
        // a wide range meets the missing shards, each once
        let all = snapshot.key_range(..);
        let (keys, errors): (Vec<_>, Vec<_>) = all.partition(Result::is_ok);
        assert_eq!((keys.len(), errors.len()), (100, 7 + 512 - 25), "{storage:?}");
        assert!(snapshot.first().is_err() && snapshot.last().is_err() && snapshot.select(0).is_err());
    }
}

/// The keys of an iteration that are where lookups find them, ascending, each once.
fn walked(snapshot: &Snapshot) -> (Vec<u64>, usize) {
    let (mut keys, mut errors) = (BTreeSet::new(), 0);
    for entry in snapshot.iter() {
        match entry {
            Ok(entry) if snapshot.spec().route(entry.key()) == entry.location() => drop(keys.insert(entry.key())),
            Ok(_) => {}
            Err(_) => errors += 1,
        }
    }
    (keys.into_iter().collect(), errors)
}

#[test]
fn of_broken_and_odd_sets() {
    for directory in sets("corrupt") {
        for storage in Storage::ALL {
            for verify in [VerifyReads::Once, VerifyReads::Always] {
                let mut options = OpenOptions::new();
                options.max_value_bytes(2 << 20).max_index_bytes(2 << 20).verify_reads(verify);
                let Ok(db) = storage.open(&options, &directory) else { continue };
                let (snapshot, place) = (db.snapshot(), format!("{} {storage:?}", name(&directory)));
                let (keys, errors) = walked(&snapshot);
                let (found, failed): (Vec<_>, Vec<_>) = snapshot.key_range(..).partition(Result::is_ok);
                let found: Vec<u64> = found.into_iter().map(Result::unwrap).collect();
                assert_eq!(found, keys, "{place}");
                assert_eq!(failed.is_empty(), errors == 0, "{place}: {errors} errors, {}", failed.len());
                assert_eq!(
                    snapshot.first().is_err(),
                    errors > 0 || snapshot.range(..).next().is_some_and(|it| it.is_err())
                );
                for key in keys.iter().step_by(7) {
                    let near = snapshot.key_range(key.saturating_sub(3)..=key.saturating_add(3)).flatten();
                    let expected = keys.iter().filter(|other| other.abs_diff(*key) <= 3);
                    assert!(near.eq(expected.copied()), "{place}: near {key}");
                }
            }
        }
    }
}

/// Sets of TensorStore and CloudVolume: the keys that their lists have.
#[test]
fn of_other_writers() {
    let mut compared = 0;
    for directory in sets("public").into_iter().chain(sets("neuroglancer")) {
        if !directory.join("expected.jsonl").exists() || !data("public").exists() {
            continue;
        }
        let Ok(db) = OpenOptions::new().open(&directory) else { continue };
        let present = expected(&directory).into_iter().filter(|(_, answer)| matches!(answer, Answer::Value(_)));
        let listed: BTreeSet<u64> = present.map(|(key, _)| key).collect();
        let found: BTreeSet<u64> = db.snapshot().key_range(..).map(Result::unwrap).collect();
        assert!(found.is_superset(&listed), "{}", name(&directory));
        for key in &listed {
            let near = db.snapshot().key_range(*key..=key.saturating_add(1000)).map(Result::unwrap);
            assert!(near.eq(found.range(*key..=key.saturating_add(1000)).copied()), "{} {key}", name(&directory));
        }
        compared += 1;
    }
    assert!(compared > 0);
}

/// Ids that do not ascend, and one that is there twice: in a foreign shard, each is returned once and in order.
#[test]
fn unordered_and_repeated_ids_of_foreign_shards() {
    let spec = ShardingSpec::new(HashFunction::Identity, 8, 0, 0).unwrap();
    let directory = TempDir::new();
    fs::write(directory.path().join("info"), format!("{{\"sharding\": {spec}}}")).unwrap();
    let rows = [(30u64, b'a'), (10, b'b'), (30, b'c'), (20, b'd')];
    let mut index = Vec::new();
    let mut last = 0u64;
    for (id, _) in rows {
        index.extend(id.wrapping_sub(last).to_le_bytes());
        last = id;
    }
    for gap in [0u64; 4] {
        index.extend(gap.to_le_bytes());
    }
    index.extend([1u64; 4].iter().flat_map(|size| size.to_le_bytes()));
    let shard = [&4u64.to_le_bytes()[..], &(4 + 96u64).to_le_bytes(), b"abcd", &index].concat();
    fs::write(directory.path().join("0.shard"), shard).unwrap();
    for storage in Storage::ALL {
        let snapshot = storage.open(&OpenOptions::new(), directory.path()).unwrap().snapshot();
        let pairs: Vec<_> =
            snapshot.range(..).map(|pair| pair.unwrap()).map(|it| (it.key(), it.value().unwrap()[0])).collect();
        assert_eq!(pairs, [(10, b'b'), (20, b'd'), (30, b'a')]);
        assert_eq!((snapshot.count_range(..).unwrap(), snapshot.count_range(20..=30).unwrap()), (3, 2));
        assert_eq!(snapshot.select(2).unwrap(), Some(30));
    }
}

/// A shard of a foreign set that cannot be opened, or is too short for its shard index, is one error, also on many threads.
#[test]
fn an_unreadable_shard_is_one_error() {
    let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 14, 1).unwrap();
    let directory = TempDir::new();
    fs::write(directory.path().join("info"), format!("{{\"sharding\": {spec}}}")).unwrap();
    let mut writer =
        ShardWriter::create(directory.path().join("0.shard"), spec, shard_number(0), Layout::default()).unwrap();
    let key = (0..).find(|key| spec.route(*key).shard.get() == 0).unwrap();
    writer.insert(key, b"value").unwrap();
    writer.finish().unwrap();
    fs::write(directory.path().join("1.shard"), [0; 100]).unwrap();
    for storage in Storage::ALL {
        let snapshot = storage.open(&OpenOptions::new(), directory.path()).unwrap().snapshot();
        let found: Vec<_> = snapshot.key_range_with(.., RangeOptions::new().threads(4)).collect();
        assert_eq!(found.len(), 2, "{storage:?}: {found:?}");
        assert_eq!(found[0].as_ref().unwrap_err().location().shard, Some(shard_number(1)));
        assert_eq!(*found[1].as_ref().unwrap(), key);
    }
}
