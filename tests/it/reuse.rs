//! A refresh takes over the open shards whose files both generations have, by hard links, and no others. Nothing about
//! them depends on the generation that opened them first.

#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::generations::{
    self as generation, collect, copy_by_hand, directory_of, id, link_by_hand, point_current_to, publish,
};
use crate::common::{Storage, TempDir};
use sharddb::{OpenOptions, ShardDb, Snapshot, Store};

/// 32 shards with the identity hash, raw.
const LABEL: u64 = 5;

fn open(storage: Storage, path: &Path) -> ShardDb {
    storage.open(&OpenOptions::new(), path).unwrap()
}

fn go_to(db: &ShardDb, store: &Path, number: u64) {
    point_current_to(store, &id(number).to_string());
    assert_eq!(db.refresh().unwrap(), Some(id(number)));
}

fn verified(db: &ShardDb) -> u64 {
    db.snapshot().stats().verified_minishards
}

/// The shard files of a generation, ascending.
fn shard_files(generation: &Path) -> Vec<PathBuf> {
    let names = generation::names(generation);
    names.into_iter().filter(|name| name.ends_with(".shard")).map(|name| generation.join(name)).collect()
}

/// The number of maps of files that were opened in a generation.
#[cfg(target_os = "linux")]
fn maps(store: &Path, number: u64) -> usize {
    generation::maps_below(&directory_of(store, number)).len()
}

#[cfg(target_os = "linux")]
#[test]
fn linked_shards_keep_their_maps_and_what_is_verified() {
    let store = TempDir::new();
    publish(store.path(), LABEL);
    let db = open(Storage::Mapped, store.path());
    generation::check_keys(&db.snapshot(), LABEL);
    let (shards, before) = (db.snapshot().stats().shards, verified(&db));
    assert!(before > 0);

    link_by_hand(store.path(), 1, 2);
    go_to(&db, store.path(), 2);
    assert_eq!(verified(&db), before, "without a lookup");
    assert_eq!((maps(store.path(), 1), maps(store.path(), 2)), (shards, 0));
    assert_eq!(db.open_generations(), 1, "the old one is closed though its shards are in use");
    generation::check(&db.snapshot(), LABEL);

    let writer = Store::open(store.path()).unwrap().writer().unwrap();
    assert_eq!(collect(&writer), [1]);
    generation::check(&db.snapshot(), LABEL);
    assert!(db.snapshot().verify(sharddb::VerifyLevel::Data).unwrap().is_clean());

    drop(writer);
    publish(store.path(), 3);
    db.refresh().unwrap();
    assert_eq!((maps(store.path(), 1), maps(store.path(), 2)), (0, 0), "nothing of them is left");
}

/// The file is edited after it was loaded, so that a second load would fail.
#[test]
fn linked_shards_are_loaded_once() {
    let store = TempDir::new();
    publish(store.path(), LABEL);
    let db = open(Storage::Loaded, store.path());
    let linked = link_by_hand(store.path(), 1, 2);
    for shard in shard_files(&linked) {
        let mut bytes = fs::read(&shard).unwrap();
        bytes.fill(0xff);
        let mut permissions = fs::metadata(&shard).unwrap().permissions();
        #[expect(clippy::permissions_set_readonly_false, reason = "a file of this test")]
        permissions.set_readonly(false);
        fs::set_permissions(&shard, permissions).unwrap();
        fs::write(&shard, bytes).unwrap();
    }
    go_to(&db, store.path(), 2);
    generation::check(&db.snapshot(), LABEL);
}

/// A loaded shard that was damaged is loaded again: its file may have been repaired in place.
#[test]
fn a_damaged_loaded_shard_is_not_kept() {
    let store = TempDir::new();
    publish(store.path(), LABEL);
    let copy = copy_by_hand(store.path(), 1, 2); // writable
    let shard = generation::a_shard_of(&copy);
    let good = fs::read(&shard).unwrap();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    fs::write(&shard, &bad).unwrap();
    point_current_to(store.path(), &id(2).to_string());
    let db = open(Storage::Loaded, store.path());
    let errors = |snapshot: &Snapshot| generation::keys(LABEL).filter(|key| snapshot.get(*key).is_err()).count();
    assert!(errors(&db.snapshot()) > 0);
    link_by_hand(store.path(), 2, 3);
    fs::write(&shard, good).unwrap();
    go_to(&db, store.path(), 3);
    generation::check(&db.snapshot(), LABEL);
}

#[test]
fn copies_and_positioned_reads_start_again() {
    for storage in Storage::ALL {
        let store = TempDir::new();
        publish(store.path(), LABEL);
        let db = open(storage, store.path());
        generation::check_keys(&db.snapshot(), LABEL);
        copy_by_hand(store.path(), 1, 2);
        go_to(&db, store.path(), 2);
        assert_eq!(verified(&db), 0, "{storage:?}");
        generation::check(&db.snapshot(), LABEL);
        link_by_hand(store.path(), 2, 3);
        go_to(&db, store.path(), 3);
        generation::check(&db.snapshot(), LABEL);
    }
}

/// Every second shard is linked, and the others are equal files of their own.
#[cfg(target_os = "linux")]
#[test]
fn some_shards_are_linked() {
    let store = TempDir::new();
    publish(store.path(), LABEL);
    publish(store.path(), LABEL);
    let (old, new) = (directory_of(store.path(), 1), directory_of(store.path(), 2));
    let mut linked = 0;
    for (from, to) in shard_files(&old).iter().zip(shard_files(&new)).step_by(2) {
        fs::remove_file(&to).unwrap();
        fs::hard_link(from, to).unwrap();
        linked += 1;
    }
    point_current_to(store.path(), &id(1).to_string());
    let db = open(Storage::Mapped, store.path());
    let shards = db.snapshot().stats().shards;
    generation::check_keys(&db.snapshot(), LABEL);
    go_to(&db, store.path(), 2);
    assert_eq!((maps(store.path(), 1), maps(store.path(), 2)), (linked, shards - linked));
    generation::check(&db.snapshot(), LABEL);
}

/// The same file with another record is another shard: of another specification, here.
#[test]
fn another_specification_takes_nothing() {
    let store = TempDir::new();
    publish(store.path(), LABEL);
    let db = open(Storage::Mapped, store.path());
    generation::check_keys(&db.snapshot(), LABEL);
    for label in [LABEL + generation::SPECS, 0, 1] {
        publish(store.path(), label);
        db.refresh().unwrap();
        assert_eq!(verified(&db), 0);
        generation::check(&db.snapshot(), label);
    }
}

/// Paths are those of the generation that was opened last, so that they exist when the older one is removed.
#[test]
fn places_are_those_of_the_newest_generation() {
    let store = TempDir::new();
    publish(store.path(), LABEL);
    let db = open(Storage::Mapped, store.path());
    let old = db.snapshot();
    let path = |snapshot: &Snapshot| snapshot.locate(0).unwrap().unwrap().path;
    assert!(path(&old).starts_with(directory_of(store.path(), 1)));
    link_by_hand(store.path(), 1, 2);
    go_to(&db, store.path(), 2);
    assert!(path(&db.snapshot()).starts_with(directory_of(store.path(), 2)));
    assert_eq!(path(&old), path(&db.snapshot()), "they have one open shard");
    go_to(&db, store.path(), 1);
    assert!(path(&db.snapshot()).starts_with(directory_of(store.path(), 1)), "rolled back");
}

/// Generations that have the same shards are closed in every order, and no map is left.
#[cfg(target_os = "linux")]
#[test]
fn no_order_of_closing_leaves_a_map() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let store = TempDir::new();
        publish(store.path(), LABEL);
        let db = open(Storage::Mapped, store.path());
        generation::check_keys(&db.snapshot(), LABEL);
        let value = db.get(0).unwrap();
        let mut pinned = vec![Some(db.snapshot())];
        for number in [2, 3] {
            link_by_hand(store.path(), 1, number);
            go_to(&db, store.path(), number);
            pinned.push(Some(db.snapshot()));
        }
        publish(store.path(), 3);
        db.refresh().unwrap();
        assert_eq!(db.open_generations(), 4);
        for at in order {
            generation::check_keys(pinned[at].as_ref().unwrap(), LABEL);
            pinned[at] = None;
            db.refresh().unwrap();
        }
        assert_eq!((db.open_generations(), maps(store.path(), 1)), (1, 1), "{order:?}: the shard with the value");
        assert_eq!(generation::label_of(0, &value.unwrap()), LABEL);
        db.refresh().unwrap();
        let of_store: usize = (1..=3).map(|number| maps(store.path(), number)).sum();
        assert_eq!(of_store, 0, "{order:?}");
    }
}
