//! The slices of a snapshot return together what the snapshot returns: each pair and each error once, on any number of
//! threads, whatever is damaged.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;

use crate::common::generations::{self as generation, a_shard_of, copy_by_hand, publish};
use crate::common::{Storage, TempDir};
use sharddb::read::Slice;
use sharddb::spec::{Encoding, HashFunction};
use sharddb::{BuildOptions, BulkLoader, OpenOptions, ShardDb, ShardingSpec, Snapshot};

fn open(storage: Storage, path: &Path) -> Snapshot {
    storage.open(&OpenOptions::new(), path).unwrap().snapshot()
}

const KEYS: u64 = 20_000;

/// One shard of 1,024 minishards.
fn one_shard(store: &Path, hash: HashFunction, index: Encoding) {
    let spec = ShardingSpec::new(hash, 0, 10, 0).unwrap().with_minishard_index_encoding(index);
    let mut loader = BuildOptions::new().spec(spec).memory(16 << 20).create(store).unwrap();
    (0..KEYS).for_each(|key| loader.insert(key, key.to_le_bytes()).unwrap());
    loader.finish().unwrap();
}

/// What a walk returned: pairs, and errors as text.
type Seen = (Vec<(u64, Vec<u8>)>, Vec<String>);

fn sequential(snapshot: &Snapshot) -> Seen {
    let mut seen = Seen::default();
    let outcome: ControlFlow<()> = snapshot.scan(|pair| {
        match pair {
            Ok((key, value)) => seen.0.push((key, value.to_vec())),
            Err(error) => seen.1.push(error.to_string()),
        }
        ControlFlow::Continue(())
    });
    assert!(outcome.is_continue());
    seen
}

fn of_slices(slices: &[Slice]) -> Seen {
    let mut seen = Seen::default();
    for slice in slices {
        let _: ControlFlow<()> = slice.scan(|pair| {
            match pair {
                Ok((key, value)) => seen.0.push((key, value.to_vec())),
                Err(error) => seen.1.push(error.to_string()),
            }
            ControlFlow::Continue(())
        });
    }
    seen
}

fn parallel(snapshot: &Snapshot, threads: usize) -> Seen {
    let seen = Mutex::new(Seen::default());
    let outcome: ControlFlow<()> = snapshot.scan_parallel(threads, |pair| {
        let mut seen = seen.lock().unwrap();
        match pair {
            Ok((key, value)) => seen.0.push((key, value.to_vec())),
            Err(error) => seen.1.push(error.to_string()),
        }
        ControlFlow::Continue(())
    });
    assert!(outcome.is_continue());
    seen.into_inner().unwrap()
}

fn sorted((mut pairs, mut errors): Seen) -> Seen {
    pairs.sort_unstable();
    errors.sort_unstable();
    (pairs, errors)
}

#[track_caller]
fn check(snapshot: &Snapshot) {
    let expected = sequential(snapshot);
    for n in [1, 2, 3, 7, 64, 5000, usize::MAX] {
        let slices = snapshot.split(n);
        assert!(slices.len() <= n && !slices.iter().any(|slice| format!("{slice:?}").contains("pieces: 0")));
        assert_eq!(of_slices(&slices).0, expected.0, "{n} slices, in order");
        assert_eq!(sorted(of_slices(&slices)), sorted(expected.clone()), "{n} slices, again");
    }
    for threads in [1, 2, 5] {
        assert_eq!(sorted(parallel(snapshot, threads)), sorted(expected.clone()), "{threads} threads");
    }
}

#[test]
fn every_specification_and_storage() {
    for label in 1..=generation::SPECS {
        let store = TempDir::new();
        publish(store.path(), label);
        for storage in Storage::ALL {
            let snapshot = open(storage, store.path());
            check(&snapshot);
            let model: BTreeMap<_, _> =
                generation::keys(label).map(|key| (key, generation::value(label, key))).collect();
            assert_eq!(parallel(&snapshot, 2).0.into_iter().collect::<BTreeMap<_, _>>(), model);
            for slice in snapshot.split(5) {
                let mut pairs = Vec::new();
                let outcome = slice.scan(|pair| {
                    pairs.push(pair.map(|(key, value)| (key, value.to_vec())).unwrap());
                    ControlFlow::<()>::Continue(())
                });
                assert!(outcome.is_continue());
                let keys: Vec<_> = slice.keys().map(Result::unwrap).collect();
                assert!(keys.iter().eq(pairs.iter().map(|(key, _)| key)));
                let entries = slice.iter().map(Result::unwrap);
                let entries: Vec<_> = entries.map(|entry| (entry.key(), entry.value().unwrap().to_vec())).collect();
                assert_eq!(entries, pairs);
            }
        }
    }
}

#[test]
fn one_shard_is_divided_evenly() {
    for hash in [HashFunction::Identity, HashFunction::MurmurHash3X86_128] {
        for index in [Encoding::Raw, Encoding::Gzip] {
            let store = TempDir::new();
            one_shard(store.path(), hash, index);
            for storage in Storage::ALL {
                let snapshot = open(storage, store.path());
                check(&snapshot);
                let slices = snapshot.split(4);
                assert_eq!(slices.len(), 4);
                let counts: Vec<_> = slices.iter().map(|slice| slice.keys().count() as u64).collect();
                assert!(counts.iter().all(|count| (KEYS / 5..KEYS / 3).contains(count)), "{counts:?}");
            }
        }
    }
}

#[test]
fn many_small_shards_are_parts_of_several() {
    let store = TempDir::new();
    let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 0, 7).unwrap();
    let mut loader = BuildOptions::new().spec(spec).memory(16 << 20).create(store.path()).unwrap();
    (0..KEYS).for_each(|key| loader.insert(key, b"").unwrap());
    loader.finish().unwrap();
    let snapshot = open(Storage::Positioned, store.path());
    let slices = snapshot.split(4);
    let counts: Vec<_> = slices.iter().map(|slice| slice.keys().count() as u64).collect();
    assert!(counts.len() == 4 && counts.iter().all(|count| (KEYS / 5..KEYS / 3).contains(count)), "{counts:?}");
    check(&snapshot);
}

#[test]
fn without_keys_and_in_memory() {
    let store = TempDir::new();
    BulkLoader::create(store.path()).unwrap().finish().unwrap();
    Storage::ALL.iter().for_each(|storage| check(&open(*storage, store.path())));
    let db = ShardDb::from_pairs((0..1000).map(|key: u64| (key, key.to_be_bytes()))).unwrap();
    check(&db.snapshot());
    check(&ShardDb::from_pairs([(u64::MAX, b"last")]).unwrap().snapshot());
}

/// Damages one file of a generation.
type Damage = (&'static str, fn(&Path));

const DAMAGES: [Damage; 6] = [
    ("nothing", |_| {}),
    ("missing", |shard| fs::remove_file(shard).unwrap()),
    ("truncated in the shard index", |shard| cut(shard, 1000)),
    ("truncated in the data", |shard| {
        let len = shard.metadata().unwrap().len();
        cut(shard, len / 2);
    }),
    ("damaged shard index", |shard| flip(shard, 8 * 1000 + 1)),
    ("damaged data", |shard| {
        let len = shard.metadata().unwrap().len();
        (0..10).for_each(|at| flip(shard, len / 2 + at * len / 25));
    }),
];

fn cut(shard: &Path, len: u64) {
    fs::File::options().write(true).open(shard).unwrap().set_len(len).unwrap();
}

fn flip(shard: &Path, at: u64) {
    let mut bytes = fs::read(shard).unwrap();
    bytes[at as usize] ^= 0x40;
    fs::write(shard, bytes).unwrap();
}

/// With and without the manifest: the option `spec` opens a bare directory.
#[test]
fn damage_is_reported_as_by_one_walk() {
    for index in [Encoding::Raw, Encoding::Gzip] {
        let store = TempDir::new();
        one_shard(store.path(), HashFunction::MurmurHash3X86_128, index);
        let spec = *open(Storage::Positioned, store.path()).spec();
        for (at, (what, damage)) in (2..).zip(DAMAGES) {
            let copy = copy_by_hand(store.path(), 1, at);
            damage(&a_shard_of(&copy));
            for storage in Storage::ALL {
                for options in [OpenOptions::new().check_shards(false), OpenOptions::new().spec(spec)] {
                    // with `spec` the shards are those that have a file
                    if let Ok(db) = storage.open(options, &copy) {
                        println!("{what}, {storage:?}");
                        check(&db.snapshot());
                    }
                }
            }
        }
    }
}

#[test]
fn a_break_ends_all_threads() {
    let store = TempDir::new();
    one_shard(store.path(), HashFunction::Identity, Encoding::Raw);
    let snapshot = open(Storage::Mapped, store.path());
    for threads in [1, 4] {
        let outcome = snapshot.scan_parallel(threads, |pair| match pair {
            Ok((key, _)) if key % 1000 == 7 => ControlFlow::Break(key),
            _ => ControlFlow::Continue(()),
        });
        assert!(matches!(outcome, ControlFlow::Break(key) if key % 1000 == 7));
    }
}

#[test]
fn a_panic_of_the_closure_is_one_of_the_call() {
    let store = TempDir::new();
    one_shard(store.path(), HashFunction::Identity, Encoding::Raw);
    let snapshot = open(Storage::Mapped, store.path());
    for threads in [1, 2, 8] {
        let scan = || {
            snapshot.scan_parallel(threads, |pair| match pair {
                Ok((key, _)) if key % 100 == 7 => panic!("planted"),
                _ => ControlFlow::<()>::Continue(()),
            })
        };
        let panic = catch_unwind(AssertUnwindSafe(scan)).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"planted"));
    }
    check(&snapshot);
}
