//! After `fork` the locks of a database and of a writer stay with the parent: drops in a child release nothing.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_possible_truncation, reason = "tests")]

#[allow(dead_code, reason = "most of it is for tests/it")]
mod common;

use std::io::{Read, Write};
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use common::generations::{self as generation, id, publish, store_of};
use common::{Storage, TempDir};
use sharddb::read::WatchOptions;
use sharddb::{ErrorKind, OpenOptions, ShardDb, Store};

/// What a child reports that found nothing wrong.
const DONE: &str = "done";

/// Upper bound on the run time of a child. It only ends a child that hangs.
const WATCHDOG: Duration = Duration::from_secs(300);

/// The tests run one at a time: a lock that another test holds during a fork would be held in the child forever.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `child` in a forked child, which then exits without running anything else. Panics with what the child reports if
/// it returns false, panics, is killed, or is not done within the limit.
#[track_caller]
#[expect(unsafe_code, reason = "std has no fork")]
fn forked(child: impl FnOnce() -> bool) {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: the child runs the closure and ends by _exit; glibc and musl keep their allocator usable after fork.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        let report = match std::panic::catch_unwind(AssertUnwindSafe(child)) {
            Ok(true) => DONE.to_string(),
            Ok(false) => "it found something wrong".to_string(),
            Err(panic) => panic.downcast_ref::<String>().map_or("it panicked", String::as_str).to_string(),
        };
        _ = writer.write_all(report.as_bytes());
        // SAFETY: ends the child immediately.
        unsafe { libc::_exit(0) };
    }
    drop(writer);
    let (done, wait) = channel();
    thread::spawn(move || {
        let mut report = String::new();
        reader.read_to_string(&mut report).unwrap(); // to the end of the child
        _ = done.send(report);
    });
    let report = wait.recv_timeout(WATCHDOG);
    let mut status = 0;
    // SAFETY: a child of this process, which is waited for once and below, so that no other process has its id.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    // SAFETY: a child of this process, which no other thread waits for.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(report.as_deref(), Ok(DONE), "the child ended with status {status:#x}");
}

fn open(path: &std::path::Path) -> ShardDb {
    Storage::Mapped.open(&OpenOptions::new(), path).unwrap()
}

#[test]
fn a_child_that_drops_its_database_leaves_the_lease_to_the_parent() {
    let _alone = alone();
    let store = TempDir::new();
    store_of(store.path(), 1);
    let db = open(store.path());
    let mut copy = Some(db.clone());
    let mut original = Some(db);
    forked(|| {
        drop(copy.take());
        drop(original.take());
        true
    });
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
    let _alone = alone();
    let store = TempDir::new();
    store_of(store.path(), 1);
    let db = open(store.path());
    let in_hook = Arc::new(Barrier::new(2));
    let hook = in_hook.clone();
    let watch = WatchOptions::new()
        .interval(Duration::MAX)
        .after_swap(move |_, _| {
            hook.wait(); // in the hook, the thread holds no lock of the database
            hook.wait();
        })
        .start([db.clone()]);
    let mut watch = Some(watch.unwrap());
    publish(store.path(), 2);
    watch.as_ref().unwrap().check_now();
    in_hook.wait();
    forked(|| {
        drop(watch.take());
        let own = db.watch(Duration::from_millis(1)).unwrap();
        publish(store.path(), 3);
        while db.snapshot().generation() != Some(id(3)) {
            thread::sleep(Duration::from_millis(1));
        }
        drop(own);
        true
    });
    assert_eq!(db.snapshot().generation(), Some(id(2)));
    in_hook.wait();
    drop(watch);
}

/// As in a server with several processes, the child retires the copied lease and takes its own.
#[test]
fn a_child_that_refreshes_holds_a_lease_of_its_own() {
    let _alone = alone();
    let store = TempDir::new();
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
    forked(child);
    generation::check(&db.snapshot(), 1);
    assert_eq!(db.refresh().unwrap(), Some(id(2)));
    assert_eq!(generation::collect(&Store::open(path).unwrap().writer().unwrap()), [1]);
}

fn publish_and_lock(path: &std::path::Path, label: u64) -> sharddb::StoreWriter {
    let store = Store::open(path).unwrap();
    let built = TempDir::new();
    publish(built.path(), label);
    let writer = store.writer().unwrap();
    writer.adopt(built.path().join("current")).unwrap();
    writer
}

#[test]
fn a_child_that_drops_its_writer_leaves_the_lock_to_the_parent() {
    let _alone = alone();
    let directory = TempDir::new();
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
    forked(child);
    assert_eq!(store.writer().unwrap_err().kind(), ErrorKind::Locked);
    assert_eq!(writer.as_ref().unwrap().rollback(None).unwrap(), id(1));
    drop(writer);
    store.writer().unwrap();
}

/// A new store is removed by the writer that made it, not by the copy of that writer in a child.
#[test]
fn a_child_that_drops_its_writer_leaves_a_new_store() {
    let _alone = alone();
    let directory = TempDir::new();
    let path = directory.path().join("new");
    let mut writer = Some(Store::create(&path).unwrap().writer().unwrap());
    forked(|| {
        drop(writer.take());
        true
    });
    assert!(path.join("lock").is_file());
    drop(writer);
    assert!(!path.exists());
}

/// The threads of a loader belong to the parent: a child neither waits for them nor removes their files.
#[test]
fn a_child_that_drops_its_loader_leaves_the_build_to_the_parent() {
    let _alone = alone();
    let directory = TempDir::new();
    let mut options = sharddb::BuildOptions::new();
    options.memory(16 << 20).threads(2);
    let value = |key: u64| vec![key as u8; if key == 7 { 3 << 20 } else { 600_000 }];
    let keys = 0..40; // more than fits into memory, and one pair larger than a batch
    let mut loader = Some(options.create(directory.path()).unwrap());
    for key in keys.clone() {
        loader.as_mut().unwrap().insert(key, value(key)).unwrap();
    }
    forked(|| {
        drop(loader.take());
        true
    });
    forked(|| loader.take().unwrap().finish().is_err());
    assert_eq!(loader.take().unwrap().finish().unwrap().content.keys, 40);
    let db = open(directory.path());
    for key in keys {
        assert!(db.get(key).unwrap().unwrap() == value(key), "key {key}");
    }
}
