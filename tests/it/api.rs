//! Everyday use in an embedding program: owned values, `?` in iteration, databases in memory, standard traits, errors.

use std::collections::{BTreeMap, HashSet};
use std::error::Error as _;
use std::io;
use std::thread;

use crate::common::generations::{self as generation, id, store_of};
use crate::common::{Storage, TempDir};
use sharddb::{BuildOptions, ErrorKind, OpenOptions, OwnedValue, ShardDb, ShardingSpec, Store, Value};

/// A store of `keys` pairs.
fn store(keys: u64) -> TempDir {
    let store = TempDir::new();
    let mut loader = BuildOptions::new().durable(false).create(store.path()).unwrap();
    loader.extend((0..keys).map(|key| (key, value(key)))).unwrap();
    loader.finish().unwrap();
    store
}

fn value(key: u64) -> Vec<u8> {
    format!("value {key}").repeat(1 + key as usize % 3).into_bytes()
}

#[test]
fn an_owned_value_outlives_its_snapshot() {
    let store = store(1000);
    for storage in Storage::ALL {
        let db = storage.open(&OpenOptions::new(), store.path()).unwrap();
        let snapshot = db.snapshot();
        let keys: Vec<u64> = (0..1100).rev().collect();
        let many: Vec<_> = snapshot.get_many_owned(&keys).into_iter().map(Result::unwrap).collect();
        let one = snapshot.get_owned(7).unwrap().unwrap();
        let moved = snapshot.get(9).unwrap().unwrap().into_owned();
        let copied = Vec::from(snapshot.get(9).unwrap().unwrap());
        drop((snapshot, db));
        for (key, found) in keys.iter().zip(&many) {
            assert_eq!(found.as_deref(), (*key < 1000).then(|| value(*key)).as_deref(), "key {key}");
        }
        let in_thread = thread::spawn(move || one.to_vec()).join().unwrap();
        assert_eq!((in_thread, &moved[..], copied), (value(7), &value(9)[..], value(9)));
        assert_eq!(many[0..2].iter().flatten().count(), 0);
    }
}

#[test]
fn values_are_made_for_tests() {
    let owned = OwnedValue::from(vec![1, 2]);
    assert_eq!(owned, owned.clone());
    assert_eq!(HashSet::from([owned.clone(), owned]).len(), 1);
    assert!(Value::from(&b"x"[..]).is_borrowed());
    assert_eq!(Value::from(vec![7]), [7]);
}

/// Compared with a map: present keys, absent keys, batches, iteration and ranges.
#[test]
fn a_database_in_memory_answers_like_any_other() {
    for count in [0, 1, 7, 8, 1000] {
        let pairs: BTreeMap<u64, Vec<u8>> = (0..count).map(|key| (key * 977, value(key))).collect();
        let db = ShardDb::from_pairs(pairs.clone()).unwrap();
        let snapshot = db.snapshot();
        for key in 0..count * 977 + 5 {
            let found = snapshot.get(key).unwrap().map(Vec::from);
            assert_eq!(found.as_ref(), pairs.get(&key));
            assert_eq!(snapshot.contains(key).unwrap(), pairs.contains_key(&key));
        }
        let ranged: BTreeMap<_, _> = snapshot
            .range(..)
            .map(|pair| pair.and_then(|pair| Ok((pair.key(), pair.value()?.into()))))
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(ranged, pairs);
        assert_eq!((snapshot.count().unwrap(), db.refresh().unwrap()), (count, None));
    }
    let error = ShardDb::from_pairs([(1, "a"), (2, "b"), (1, "c")]).unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::DuplicateKey, Some(1)));
}

#[test]
fn iteration_meets_the_question_mark() {
    let store = store(100);
    let snapshot = ShardDb::open(store.path()).unwrap().snapshot();
    let keys: HashSet<u64> =
        (&snapshot).into_iter().map(|entry| entry.map(|entry| entry.key())).collect::<Result<_, _>>().unwrap();
    assert_eq!(keys.len(), 100);

    // a missing shard is returned as an error
    let shard = store.path().join("current/0.shard");
    let broken = OpenOptions::new().check_shards(false).open(store.path()).unwrap().snapshot();
    std::fs::remove_file(&shard).unwrap();
    let error = broken.iter().find_map(Result::err).unwrap();
    assert_eq!((error.kind(), error.io_kind()), (ErrorKind::Corrupt, Some(std::io::ErrorKind::NotFound)));
}

#[test]
fn the_loader_takes_iterators() {
    let store = TempDir::new();
    let mut loader = BuildOptions::new().durable(false).create(store.path()).unwrap();
    loader.insert(1, String::from("one")).unwrap();
    loader.extend(BTreeMap::from([(2, "two"), (3, "three")])).unwrap();
    assert_eq!(loader.finish().unwrap().content.keys, 3);
}

/// `open` and `refresh` refuse the same generations, and accept them with `check_shards(false)`.
#[test]
fn a_missing_shard_is_noticed_by_open_and_refresh() {
    let damages: [fn(&std::path::Path); 2] = [
        |shard| std::fs::remove_file(shard).unwrap(),
        |shard| {
            let bytes = std::fs::read(shard).unwrap();
            std::fs::remove_file(shard).unwrap();
            std::fs::write(shard, &bytes[1..]).unwrap();
        },
    ];
    for damage in damages {
        let directory = TempDir::new();
        store_of(directory.path(), 1);
        let strict = ShardDb::open(directory.path()).unwrap();
        let lenient = OpenOptions::new().check_shards(false).open(directory.path()).unwrap();
        generation::publish(directory.path(), 2);
        let shard = generation::a_shard_of(&directory.path().join("gen-0000000002"));
        damage(&shard);
        for storage in Storage::ALL {
            let error = storage.open(&OpenOptions::new(), directory.path()).unwrap_err();
            assert_eq!(error.path(), Some(&*shard.canonicalize().unwrap_or(shard.clone())), "{error}");
            storage.open(OpenOptions::new().check_shards(false), directory.path()).unwrap();
        }
        assert!(strict.refresh().is_err());
        assert_eq!(strict.snapshot().generation(), Some(id(1)));
        assert_eq!(lenient.refresh().unwrap(), Some(id(2)));
    }
}

#[test]
fn what_is_no_database_is_not_found_and_named_as_it_was_given() {
    let scratch = TempDir::new();
    let (file, empty, store) =
        (scratch.path().join("file"), scratch.path().join("empty"), scratch.path().join("store"));
    std::fs::write(&file, "x").unwrap();
    std::fs::create_dir(&empty).unwrap();
    let created = Store::create(&store).unwrap();
    let cases = [
        (scratch.path().join("none"), "found nothing"),
        (file.clone(), "found a file"),
        (empty, "found a directory without a file `info`"),
        (store, "found a store without a published generation"),
        (file.join("below"), "found nothing"),
    ];
    for (path, found) in cases {
        let error = ShardDb::open(&path).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::NotFound, Some(&*path)), "{error}");
        assert!(error.message().contains(found), "{error}");
        assert!(error.source().is_none());
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);
    }
    drop(created);
    let removed = TempDir::new();
    store_of(removed.path(), 1);
    std::fs::remove_file(removed.path().join("current")).unwrap();
    assert_eq!(ShardDb::open(removed.path()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_generation_of_a_store_knows_its_number() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 2);
    let old = store.open_generation(id(1), &OpenOptions::new()).unwrap();
    assert_eq!((old.snapshot().generation(), old.refresh().unwrap()), (Some(id(1)), None));
    generation::check(&old.snapshot(), 1);
    assert_eq!(store.open_generation(id(9), &OpenOptions::new()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn names_are_parsed_as_they_are_displayed() {
    let spec = ShardDb::from_pairs([(1, "one")]).unwrap().snapshot().spec().to_string();
    assert_eq!(spec.parse::<ShardingSpec>().unwrap().to_string(), spec);
    assert_eq!(id(3).to_string().parse::<sharddb::GenerationId>().unwrap(), id(3));
}
