//! A reader that has leased a generation finds all its files until it releases the lease. A reader that opens while
//! others publish, roll back and collect gets a generation that `current` named meanwhile.

use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;
use sharddb_loom::error::ErrorKind;
use sharddb_loom::fs::{Flaw, break_by, leftovers};
use sharddb_loom::store::{Reader, collect, id, publish, roll_to};

/// Runs `f` in all orders with at most this many preemptions.
fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let orders = Arc::new(AtomicUsize::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    let count = orders.clone();
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        f();
    });
    println!("{} orders", orders.load(Ordering::Relaxed));
}

/// Opens and reads twice.
fn read(labels: RangeInclusive<u64>) {
    let reader = Reader::open().unwrap();
    assert!(reader.is_held() && labels.contains(&reader.id()));
    for _ in 0..2 {
        assert_eq!(reader.get(), Some(reader.id()), "a generation that is leased is there");
    }
}

fn only_the_current_is_left(number: u64) {
    collect(0);
    let current = id(number).to_string();
    let mut others = leftovers();
    others.retain(|path| !path.to_str().unwrap().contains(&current) && !path.ends_with("current"));
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn a_reader_and_a_writer_that_publishes_and_collects() {
    model(5, || {
        publish(1);
        let reader = thread::spawn(|| read(1..=2));
        publish(2);
        collect(0);
        reader.join().unwrap();
        only_the_current_is_left(2);
    });
}

#[test]
fn a_reader_and_a_writer_that_rolls_back_and_collects() {
    model(5, || {
        publish(1);
        publish(2);
        let reader = thread::spawn(|| read(1..=2));
        roll_to(1);
        collect(0);
        reader.join().unwrap();
        only_the_current_is_left(1);
    });
}

/// The number of a generation that a reader saw is never reused, but its directory may be removed and newer ones come.
#[test]
fn a_reader_and_a_writer_that_is_two_generations_ahead() {
    model(5, || {
        publish(1);
        let reader = thread::spawn(|| read(1..=3));
        for number in 2..=3 {
            publish(number);
            collect(0);
        }
        reader.join().unwrap();
        only_the_current_is_left(3);
    });
}

#[test]
fn two_readers_and_a_writer() {
    model(3, || {
        publish(1);
        let readers = [thread::spawn(|| read(1..=2)), thread::spawn(|| read(1..=2))];
        publish(2);
        collect(0);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        only_the_current_is_left(2);
    });
}

/// The lock of the store permits one collector at a time, but one may run while the first reader releases its lease.
#[test]
fn what_a_reader_lets_go_is_collected_or_reported() {
    model(5, || {
        publish(1);
        let reader = Reader::open().unwrap();
        publish(2);
        let reader = thread::spawn(move || drop(reader));
        let report = collect(0);
        let both: Vec<_> = report.removed.iter().chain(&report.in_use).collect();
        assert_eq!(both, [&id(1)]);
        reader.join().unwrap();
        only_the_current_is_left(2);
    });
}

/// Without locks (a network file system) a reader may lose its generation, but it gets no wrong answer.
#[test]
fn without_locks_a_generation_is_there_or_gone() {
    model(5, || {
        break_by(Flaw::NoLocks);
        publish(1);
        let reader = thread::spawn(|| match Reader::open() {
            Ok(reader) => {
                assert!(!reader.is_held());
                assert!(reader.get().is_none_or(|found| found == reader.id()));
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::GenerationGone),
        });
        publish(2);
        reader.join().unwrap();
    });
}

/// The models detect a lock, or a check of identity, that does nothing.
#[test]
fn a_flaw_is_found() {
    for flaw in [Flaw::LocksDoNothing, Flaw::FilesLookAlike] {
        let found = catch_unwind(AssertUnwindSafe(|| {
            model(5, move || {
                break_by(flaw);
                publish(1);
                let reader = thread::spawn(|| read(1..=2));
                publish(2);
                collect(0);
                reader.join().unwrap();
            });
        }));
        assert!(found.is_err());
    }
}
