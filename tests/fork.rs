//! After `fork` the locks of a database and of a writer stay with the parent: drops in a child release nothing.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_possible_truncation, reason = "tests")]

#[allow(dead_code, reason = "most of it is for tests/it")]
mod common;

use std::thread;
use std::time::Duration;

use common::generations::{self as generation, id, publish, store_of};
use common::{Scratch, Storage};
use sharddb::{ErrorKind, OpenOptions, ShardDb, Store};

/// The exit code of a child in which a check failed.
const FAILED: i32 = 1;

/// Upper bound on the run time of a child.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Runs `child` in a forked child, which then exits without running anything else. Returns its exit code; `None` if it
/// was killed, also by the watchdog.
#[expect(unsafe_code, reason = "std has no fork")]
fn forked(child: impl FnOnce() -> bool) -> Option<i32> {
    // SAFETY: the child runs the closure and ends by _exit; glibc and musl keep their allocator usable after fork.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
        // SAFETY: ends the child immediately.
        unsafe { libc::_exit(if passed { 0 } else { FAILED }) };
    }
    let (mut status, step) = (0, Duration::from_millis(5));
    for _ in 0..WATCHDOG.as_millis() / step.as_millis() {
        // SAFETY: a child of this process, waited for once.
        match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } {
            0 => thread::sleep(step),
            found => {
                assert_eq!(found, pid);
                return libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
            }
        }
    }
    // SAFETY: the child of this process.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    // SAFETY: a child of this process, which no other thread waits for.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    None
}

fn open(path: &std::path::Path) -> ShardDb {
    Storage::Mapped.open(&OpenOptions::new(), path).unwrap()
}

#[test]
fn a_child_that_drops_its_database_leaves_the_lease_to_the_parent() {
    let store = Scratch::new();
    store_of(store.path(), 1);
    let db = open(store.path());
    let mut copy = Some(db.clone());
    let mut original = Some(db);
    assert_eq!(
        forked(|| {
            drop(copy.take());
            drop(original.take());
            true
        }),
        Some(0)
    );
    publish(store.path(), 2);
    let writer = Store::open(store.path()).unwrap().writer().unwrap();
    assert_eq!(writer.gc(1).unwrap().in_use, [id(1)]);
    let db = original.take().unwrap();
    generation::check(&db.snapshot(), 1);
    drop((db, copy));
    assert_eq!(generation::collect(&writer), [1]);
}

/// A forked child has no thread that could end. It may start a watch of its own.
#[test]
fn a_child_drops_a_watch_without_waiting_for_it() {
    let store = Scratch::new();
    store_of(store.path(), 1);
    let db = open(store.path());
    let mut watch = Some(db.watch(Duration::MAX).unwrap());
    while db.stats().age == db.stats().served {
        thread::sleep(Duration::from_millis(1)); // until its first check is over, so that it holds no lock
    }
    let child = forked(|| {
        drop(watch.take());
        let own = db.watch(Duration::from_millis(1)).unwrap();
        publish(store.path(), 2);
        while db.snapshot().generation() != Some(id(2)) {
            thread::sleep(Duration::from_millis(1));
        }
        drop(own);
        true
    });
    assert_eq!(child, Some(0));
    assert_eq!(db.snapshot().generation(), Some(id(1)));
    drop(watch);
}

/// As in a server with several processes, the child retires the copied lease and takes its own.
#[test]
fn a_child_that_refreshes_holds_a_lease_of_its_own() {
    let store = Scratch::new();
    store_of(store.path(), 1);
    let db = open(store.path());
    let path = store.path();
    let child = || {
        let mut right = db.refresh().unwrap() == Some(id(1)) && db.refresh().unwrap().is_none();
        generation::check(&db.snapshot(), 1);
        let writer = publish_and_lock(path, 2);
        right &= writer.gc(1).unwrap().in_use == [id(1)];
        right &= db.refresh().unwrap() == Some(id(2));
        right && writer.gc(1).unwrap().in_use == [id(1)] // of the parent
    };
    assert_eq!(forked(child), Some(0));
    generation::check(&db.snapshot(), 1);
    assert_eq!(db.refresh().unwrap(), Some(id(2)));
    assert_eq!(generation::collect(&Store::open(path).unwrap().writer().unwrap()), [1]);
}

fn publish_and_lock(path: &std::path::Path, label: u64) -> sharddb::StoreWriter {
    let store = Store::open(path).unwrap();
    let built = Scratch::new();
    publish(built.path(), label);
    let writer = store.writer().unwrap();
    writer.adopt(built.path().join("current")).unwrap();
    writer
}

#[test]
fn a_child_that_drops_its_writer_leaves_the_lock_to_the_parent() {
    let directory = Scratch::new();
    let store = store_of(directory.path(), 2);
    let mut writer = Some(store.writer().unwrap());
    let child = || {
        let copy = writer.take().unwrap();
        let locked = |error: sharddb::Error| error.kind() == ErrorKind::Locked;
        let mut right = copy.gc(0).is_err_and(locked) && copy.rollback(None).is_err_and(locked);
        right &= copy.adopt(directory.path().join("current")).is_err_and(locked);
        drop(copy);
        right && store.writer().is_err_and(locked)
    };
    assert_eq!(forked(child), Some(0));
    assert_eq!(store.writer().unwrap_err().kind(), ErrorKind::Locked);
    assert_eq!(writer.as_ref().unwrap().rollback(None).unwrap(), id(1));
    drop(writer);
    store.writer().unwrap();
}

/// A new store is removed by the writer that made it, not by the copy of that writer in a child.
#[test]
fn a_child_that_drops_its_writer_leaves_a_new_store() {
    let directory = Scratch::new();
    let path = directory.path().join("new");
    let mut writer = Some(Store::create(&path).unwrap().writer().unwrap());
    assert_eq!(
        forked(|| {
            drop(writer.take());
            true
        }),
        Some(0)
    );
    assert!(path.join("lock").is_file());
    drop(writer);
    assert!(!path.exists());
}

/// The threads of a loader belong to the parent: a child neither waits for them nor removes their files.
#[test]
fn a_child_that_drops_its_loader_leaves_the_build_to_the_parent() {
    let directory = Scratch::new();
    let mut options = sharddb::BulkLoader::options();
    options.memory(16 << 20).threads(2);
    let value = |key: u64| vec![key as u8; if key == 7 { 3 << 20 } else { 600_000 }];
    let keys = 0..40; // more than fits into memory, and one pair larger than a batch
    let mut loader = Some(options.create(directory.path()).unwrap());
    for key in keys.clone() {
        loader.as_mut().unwrap().insert(key, value(key)).unwrap();
    }
    let dropped = forked(|| {
        drop(loader.take());
        true
    });
    let finished = forked(|| loader.take().unwrap().finish().is_err());
    assert_eq!((dropped, finished), (Some(0), Some(0)));
    assert_eq!(loader.take().unwrap().finish().unwrap().keys, 40);
    let db = open(directory.path());
    for key in keys {
        assert!(db.get(key).unwrap().unwrap() == value(key), "key {key}");
    }
}
