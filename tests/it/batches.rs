//! A batch returns the same answer for each key however it is looked up (one by one, on several threads, with pages
//! prefetched), and broken files change that no more than they change a single lookup.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Mutex;

use crate::common::{self, Answer, Storage, TempDir, shuffled};
use sharddb::spec::Encoding;
use sharddb::{BuildOptions, OpenOptions, Snapshot, VerifyReads};

/// Some thousand keys with values from empty to several pages.
fn build(store: &Path, encoding: Encoding) {
    let mut options = BuildOptions::new();
    let mut loader = options.data_encoding(encoding).minishard_index_encoding(encoding).create(store).unwrap();
    for key in 0..5000_u64 {
        let len = if key % 50 == 0 { 20_000 } else { key % 200 };
        loader.insert(key * 3, key.to_le_bytes().repeat(usize::try_from(len).unwrap() / 8)).unwrap();
    }
    loader.finish().unwrap();
}

/// Keys in random order. A third of them is present, and some occur twice.
fn keys() -> Vec<u64> {
    let mut keys = shuffled((0..15_000).collect(), 7);
    keys.extend_from_within(..500);
    keys
}

fn one_by_one(snapshot: &Snapshot, keys: &[u64]) -> Vec<Answer> {
    keys.iter().map(|key| Answer::of(snapshot.get(*key))).collect()
}

fn parallel(snapshot: &Snapshot, keys: &[u64], count: usize) -> Vec<Answer> {
    let answers: Vec<_> = keys.iter().map(|_| std::sync::OnceLock::new()).collect();
    let end = snapshot.get_each_parallel(keys, count, |at, value| {
        assert!(answers[at].set(Answer::of(value)).is_ok(), "each position comes once");
        ControlFlow::<()>::Continue(())
    });
    assert!(end.is_continue());
    answers.into_iter().map(|answer| answer.into_inner().unwrap()).collect()
}

#[test]
fn several_threads_give_the_answers_of_one_in_the_order_of_the_keys() {
    for encoding in [Encoding::Raw, Encoding::Gzip] {
        let scratch = TempDir::new();
        build(scratch.path(), encoding);
        for storage in Storage::ALL {
            let snapshot = storage.open(&OpenOptions::new(), scratch.path()).unwrap().snapshot();
            let keys = keys();
            let expected = one_by_one(&snapshot, &keys);
            assert!(expected.contains(&Answer::Absent) && expected.iter().any(|it| *it != Answer::Absent));
            for count in [1, 2, 7, 1000] {
                assert!(parallel(&snapshot, &keys, count) == expected, "{encoding:?} {storage:?} {count} threads");
            }
            // one more than a block, one less, and none
            for len in [0, 1, 1023, 1024, 1025] {
                assert!(parallel(&snapshot, &keys[..len], 3) == expected[..len], "{len} keys");
            }
        }
    }
}

#[test]
fn each_position_is_handed_out_once() {
    let scratch = TempDir::new();
    build(scratch.path(), Encoding::Raw);
    let snapshot = Storage::Mapped.open(&OpenOptions::new(), scratch.path()).unwrap().snapshot();
    let keys = keys();
    let found = Mutex::new(Vec::new());
    let end = snapshot.get_each_parallel(&keys, 3, |at, value| {
        found.lock().unwrap().push((at, Answer::of(value)));
        ControlFlow::<()>::Continue(())
    });
    assert!(end.is_continue());
    let mut found = found.into_inner().unwrap();
    found.sort_by_key(|(at, _)| *at);
    assert!(found.into_iter().eq(one_by_one(&snapshot, &keys).into_iter().enumerate()));
}

#[test]
fn a_break_ends_all_threads() {
    let scratch = TempDir::new();
    build(scratch.path(), Encoding::Raw);
    let snapshot = Storage::Mapped.open(&OpenOptions::new(), scratch.path()).unwrap().snapshot();
    let keys = [3_u64].repeat(200_000);
    let calls = Mutex::new(0_usize);
    let end = snapshot.get_each_parallel(&keys, 2, |at, _| {
        *calls.lock().unwrap() += 1;
        ControlFlow::Break(at)
    });
    let ControlFlow::Break(at) = end else { panic!("expected a break, found that all was done") };
    assert_eq!(at % 1024, 0, "the first of a block");
    let calls = calls.into_inner().unwrap();
    assert!((1..=2).contains(&calls), "each thread breaks once, found {calls} calls");
}

#[test]
fn what_was_asked_for_ahead_has_the_same_answers() {
    for encoding in [Encoding::Raw, Encoding::Gzip] {
        let scratch = TempDir::new();
        build(scratch.path(), encoding);
        for storage in Storage::ALL {
            let expected = one_by_one(&storage.open(&OpenOptions::new(), scratch.path()).unwrap().snapshot(), &keys());
            let options = [
                OpenOptions::new(),
                OpenOptions::new().read_ahead_index(true).clone(),
                OpenOptions::new().populate(true).clone(),
                OpenOptions::new().verify_reads(VerifyReads::Always).clone(),
            ];
            for options in options {
                let snapshot = storage.open(&options, scratch.path()).unwrap().snapshot();
                snapshot.read_ahead(&[]);
                snapshot.read_ahead(&keys());
                assert!(one_by_one(&snapshot, &keys()) == expected, "{encoding:?} {storage:?} {options:?}");
            }
        }
    }
}

/// Prefetching ignores errors in the files; the lookup reports them.
#[test]
fn broken_files_have_the_answers_of_single_lookups() {
    let mut errors = 0;
    for directory in common::sets("corrupt") {
        for storage in Storage::ALL {
            let keys: Vec<u64> = common::expected(&directory).into_iter().map(|(key, _)| key).collect();
            // small caps, because some of these files inflate to gigabytes
            let mut options = OpenOptions::new();
            options.max_value_bytes(1 << 20).max_index_bytes(1 << 20);
            let open = || storage.open(&options, &directory).map(|db| db.snapshot());
            let (Ok(plain), Ok(ahead)) = (open(), open()) else { continue };
            let expected = one_by_one(&plain, &keys);
            errors += expected.iter().filter(|answer| **answer == Answer::Error).count();
            ahead.read_ahead(&keys);
            assert_eq!(one_by_one(&ahead, &keys), expected, "{} {storage:?}", directory.display());
            assert_eq!(parallel(&ahead, &keys, 2), expected, "{} {storage:?}", directory.display());
        }
    }
    assert!(errors > 0, "the fixtures are broken");
}
