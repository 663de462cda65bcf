//! A watch follows `current` on its thread: hooks decide and learn, errors keep the old generation, and its end is its
//! drop. No test depends on how long anything takes.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::generations::{self as generation, directory_of, id, publish, roll_to, store_of};
use crate::common::{Storage, TempDir};
use sharddb::read::{Watch, WatchOptions};
use sharddb::{ErrorKind, OpenOptions, ShardDb, Store};

const OFTEN: Duration = Duration::from_millis(1);

/// An interval that does not end within a test.
const NEVER: Duration = Duration::MAX;

fn mapped(path: &Path) -> ShardDb {
    Storage::Mapped.open(&OpenOptions::new(), path).unwrap()
}

/// Waits for another thread. The limit only ends a test that hangs.
#[track_caller]
fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(300), "it does not happen");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until the first check of a watch is over.
#[track_caller]
fn until_checked(db: &ShardDb) {
    until(|| {
        let stats = db.stats();
        stats.age < stats.served
    });
}

#[track_caller]
fn until_serves(db: &ShardDb, number: u64) {
    until(|| db.snapshot().generation() == Some(id(number)));
}

fn last_error(db: &ShardDb) -> String {
    db.stats().last_error.map(|last| last.error.to_string()).unwrap_or_default()
}

#[test]
fn follows_forwards_and_backwards() {
    let store = TempDir::new();
    publish(store.path(), 1);
    let databases = Storage::ALL.map(|storage| storage.open(&OpenOptions::new(), store.path()).unwrap());
    let watch = WatchOptions::new().interval(OFTEN).start(databases.clone()).unwrap();
    for label in 2..=4 {
        publish(store.path(), label);
        databases.iter().for_each(|db| until_serves(db, label));
    }
    roll_to(&Store::open(store.path()).unwrap(), 2);
    for db in &databases {
        until_serves(db, 2);
        generation::check(&db.snapshot(), 2);
        let stats = db.stats();
        assert_eq!((stats.generation, stats.swaps, stats.failures), (Some(id(2)), 4, 0));
        assert!(stats.last_error.is_none());
        assert!(stats.age <= stats.served);
    }
    drop(watch);
    publish(store.path(), 5);
    assert_eq!(databases[0].snapshot().generation(), Some(id(2)), "the thread has ended");
}

/// The interval never ends: a check happens only at the start, and when it is requested.
#[test]
fn checks_at_once_and_when_told() {
    let store = TempDir::new();
    publish(store.path(), 1);
    let db = mapped(store.path());
    publish(store.path(), 2);
    let watch = db.watch(NEVER).unwrap();
    until_serves(&db, 2);
    publish(store.path(), 3);
    watch.check_now();
    until_serves(&db, 3);
    drop(watch); // does not wait for the interval
}

#[test]
fn hooks_see_both_generations_in_order() {
    let store = TempDir::new();
    publish(store.path(), 1);
    let db = mapped(store.path());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (before, after, served) = (seen.clone(), seen.clone(), db.clone());
    let watch = WatchOptions::new()
        .interval(OFTEN)
        .before_swap(move |new| {
            let number = new.generation().unwrap().get();
            new.warm()?.wait();
            generation::check_keys(new, number);
            assert_eq!(served.snapshot().generation(), Some(id(number - 1)), "not served yet");
            before.lock().unwrap().push(("before", number - 1, number));
            Ok(())
        })
        .after_swap(move |old, new| {
            let [old, new] = [old, new].map(|snapshot| snapshot.generation().unwrap().get());
            after.lock().unwrap().push(("after", old, new));
        })
        .start([db.clone()])
        .unwrap();
    for label in [2, 3] {
        publish(store.path(), label);
        until(|| seen.lock().unwrap().last() == Some(&("after", label - 1, label)));
    }
    drop(watch);
    let expected = [("before", 1, 2), ("after", 1, 2), ("before", 2, 3), ("after", 2, 3)];
    assert_eq!(*seen.lock().unwrap(), expected);
    assert!(db.stats().last_error.is_none());
}

/// A watch whose hook fails for generation 2 until `allowed` is 1.
fn refusing(
    db: &ShardDb,
    allowed: &Arc<AtomicU64>,
    fail: fn() -> Result<(), Box<dyn std::error::Error + Send + Sync>>,
) -> Watch {
    let allowed = allowed.clone();
    let refuse = move |new: &sharddb::Snapshot| match new.generation() == Some(id(2)) {
        true if allowed.load(Ordering::SeqCst) == 0 => fail(),
        _ => Ok(()),
    };
    WatchOptions::new().interval(OFTEN).before_swap(refuse).start([db.clone()]).unwrap()
}

#[test]
fn what_the_hook_refuses_is_not_served_and_tried_again() {
    let panics: fn() -> Result<(), Box<dyn std::error::Error + Send + Sync>> = || panic!("planted");
    let of_ours = || Err(sharddb::Error::corrupt("no such sample").into());
    for (fail, kind, text) in [
        ((|| Err("too few keys".into())) as fn() -> _, ErrorKind::Cancelled, "too few keys"),
        (of_ours, ErrorKind::Corrupt, "no such sample"),
        (panics, ErrorKind::Internal, "planted"),
    ] {
        let store = TempDir::new();
        store_of(store.path(), 1);
        let (db, allowed) = (mapped(store.path()), Arc::new(AtomicU64::new(0)));
        let old = db.snapshot();
        let watch = refusing(&db, &allowed, fail);
        publish(store.path(), 2);
        until(|| db.stats().failures >= 3);
        assert_eq!(db.snapshot().generation(), Some(id(1)));
        generation::check(&db.snapshot(), 1);
        let last = db.stats().last_error.unwrap().error;
        assert!(last.kind() == kind && last.to_string().contains(text), "{last:?}");
        assert!(old.locate(0).unwrap().unwrap().path.starts_with(directory_of(store.path(), 1)));
        allowed.store(1, Ordering::SeqCst);
        watch.check_now();
        until_serves(&db, 2);
        assert_eq!(db.stats().failures, 0);
        assert!(last_error(&db).contains(text), "the last error stays, with its age");
        drop(watch);
    }
}

/// The pause after failures ends when `current` changes.
#[test]
fn the_generation_after_a_refused_one_is_followed() {
    let store = TempDir::new();
    publish(store.path(), 1);
    let db = mapped(store.path());
    let watch = refusing(&db, &Arc::default(), || Err("never".into()));
    publish(store.path(), 2);
    until(|| db.stats().failures >= 2);
    publish(store.path(), 3);
    until_serves(&db, 3);
    drop(watch);
}

#[cfg(unix)]
#[test]
fn a_broken_generation_is_an_error_and_the_next_one_followed() {
    let store = TempDir::new();
    publish(store.path(), 1);
    let db = mapped(store.path());
    let watch = db.watch(OFTEN).unwrap();
    let broken = generation::copy_by_hand(store.path(), 1, 2);
    std::fs::remove_file(generation::a_shard_of(&broken)).unwrap();
    generation::point_current_to(store.path(), &id(2).to_string());
    until(|| db.stats().failures > 0);
    assert!(last_error(&db).contains("gen-0000000002"), "{}", last_error(&db));
    generation::check(&db.snapshot(), 1);
    publish(store.path(), 3);
    until_serves(&db, 3);
    generation::check(&db.snapshot(), 3);
    drop(watch);
}

/// The store disappears for a while, as on a network file system.
#[test]
fn a_store_that_is_gone_and_comes_back() {
    let place = TempDir::new();
    let (path, away) = (place.path().join("store"), place.path().join("away"));
    publish(&path, 1);
    let db = mapped(&path);
    generation::check_keys(&db.snapshot(), 1); // opens all shards
    let watch = db.watch(OFTEN).unwrap();
    std::fs::rename(&path, &away).unwrap();
    until(|| db.stats().failures > 0);
    generation::check_keys(&db.snapshot(), 1);
    std::fs::rename(&away, &path).unwrap();
    publish(&path, 2);
    until_serves(&db, 2);
    drop(watch);
}

#[test]
fn a_panic_after_the_swap_is_recorded() {
    let store = TempDir::new();
    publish(store.path(), 1);
    let db = mapped(store.path());
    let watch = WatchOptions::new().interval(OFTEN).after_swap(|_, _| panic!("planted")).start([db.clone()]).unwrap();
    for label in [2, 3] {
        publish(store.path(), label);
        until_serves(&db, label);
        until(|| last_error(&db).contains("planted"));
    }
    assert_eq!(db.stats().failures, 0, "the refresh did not fail");
    drop(watch);
}

/// Neither waits for itself.
#[test]
fn a_hook_may_refresh_and_drop_the_watch() {
    let store = TempDir::new();
    publish(store.path(), 1);
    let db = mapped(store.path());
    let (result, watch) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None::<Watch>)));
    let (in_hook, kept, to_drop) = (db.clone(), result.clone(), watch.clone());
    let mut options = WatchOptions::new();
    options.interval(OFTEN);
    options.before_swap(move |_| {
        *kept.lock().unwrap() = Some(in_hook.refresh().unwrap_err().kind());
        Ok(())
    });
    options.after_swap(move |_, _| drop(to_drop.lock().unwrap().take()));
    *watch.lock().unwrap() = Some(options.start([db.clone()]).unwrap());
    publish(store.path(), 2);
    until_serves(&db, 2);
    until(|| watch.lock().unwrap().is_none());
    assert_eq!(*result.lock().unwrap(), Some(ErrorKind::InvalidInput));
    publish(store.path(), 3);
    assert_eq!(db.refresh().unwrap(), Some(id(3)), "by hand");
}

#[test]
fn what_does_not_follow_a_store_is_refused() {
    let store = TempDir::new();
    store_of(store.path(), 1);
    let directory = directory_of(store.path(), 1);
    let bare = TempDir::new();
    for name in generation::names(&directory).iter().filter(|name| *name != "lease") {
        std::fs::copy(directory.join(name), bare.path().join(name)).unwrap();
    }
    let databases = [
        mapped(&directory),
        mapped(bare.path()),
        ShardDb::from_pairs([(1, b"one")]).unwrap(),
        Store::open(store.path()).unwrap().open_generation(id(1), &OpenOptions::new()).unwrap(),
    ];
    for db in databases {
        let error = db.watch(OFTEN).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("open the store"), "{error}");
    }
}

/// One thread for all of them.
#[test]
fn many_databases() {
    let stores: Vec<_> = (0..30).map(|_| TempDir::new()).collect();
    let publish_all = |label| {
        stores.iter().for_each(|store| {
            assert_eq!(publish(store.path(), label).content.keys, generation::keys(label).count() as u64)
        })
    };
    publish_all(3);
    let databases: Vec<_> = stores.iter().map(|store| mapped(store.path())).collect();
    let watch = WatchOptions::new().interval(OFTEN).start(databases.iter().cloned()).unwrap();
    publish_all(4);
    databases.iter().for_each(|db| until(|| db.stats().swaps == 1));
    databases.iter().for_each(|db| generation::check(&db.snapshot(), 4));
    drop(watch);
}

/// The watch unmaps what a reader has left, without a call of `refresh` and before the end of the interval.
#[cfg(target_os = "linux")]
#[test]
fn retired_generations_are_unmapped_by_the_watch() {
    let store = TempDir::new();
    publish(store.path(), 5);
    let db = mapped(store.path());
    let snapshot = db.snapshot();
    generation::check_keys(&snapshot, 5);
    let watch = db.watch(NEVER).unwrap();
    until_checked(&db);
    publish(store.path(), 3);
    watch.check_now();
    until_serves(&db, 2);
    let maps = || generation::maps_below(&directory_of(store.path(), 1)).len();
    assert_eq!((maps(), db.open_generations()), (snapshot.stats().shards, 2));
    drop(snapshot);
    until(|| maps() == 0);
    assert_eq!(db.open_generations(), 1);
    drop(watch);
}

/// A database and a watch may be dropped in any order; the watch keeps the database open.
#[test]
fn outlives_the_handles_of_its_database() {
    let store = TempDir::new();
    publish(store.path(), 1);
    let db = mapped(store.path());
    let (mut reader, watch) = (db.reader(), db.watch(OFTEN).unwrap());
    drop(db);
    publish(store.path(), 2);
    until(|| reader.snapshot().generation() == Some(id(2)));
    drop(watch);
    generation::check(&reader.snapshot(), 2);
}
