//! Operations share the loads of blocks: one request in flight for each, and no operation waits forever.

use std::io::ErrorKind as ErrorSource;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::bucket::{Bucket, poll};
use crate::common::Scratch;
use crate::stores::{build, bytes, keys, options, spec, value};
use sharddb::remote::{Failure, Operation, RemoteReader, RemoteValue};
use sharddb::spec::Encoding;
use sharddb::{ErrorKind, Profile};

/// A store with one minishard table, and two keys of one minishard.
fn store() -> (Scratch, Bucket, RemoteReader) {
    let store = build(options().profile(Profile::Remote), 20_000, 100);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    (store, bucket, reader)
}

/// Two keys of one minishard.
fn neighbours(reader: &RemoteReader) -> (u64, u64) {
    let snapshot = reader.snapshot();
    let route = |key| snapshot.spec().route(key);
    let other = keys(20_000).skip(1).find(|key| route(*key) == route(0)).unwrap();
    (0, other)
}

/// Counts its wakes.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn poll_with<T>(operation: &mut Operation<'_, T>, wakes: &Arc<Wakes>) -> Poll<sharddb::Result<T>> {
    operation.poll(&mut Context::from_waker(&Waker::from(wakes.clone())))
}

fn check(found: sharddb::Result<Option<RemoteValue>>, key: u64) {
    assert_eq!(bytes(found), Some(value(key, 100)), "key {key}");
}

#[test]
fn two_operations_share_one_request_for_a_block() {
    let (_store, bucket, reader) = store();
    let (one, two) = neighbours(&reader);
    let (mut first, mut second) = (reader.get(one), reader.get(two));
    let wakes = Arc::default();
    assert!(poll(&mut first).is_pending() && poll_with(&mut second, &wakes).is_pending());
    let (id, request) = first.next_request().unwrap();
    assert!(second.next_request().is_none(), "it waits for the first one");
    first.answer(id, bucket.perform(&request));
    assert_eq!(wakes.count(), 0);
    assert!(poll(&mut first).is_pending(), "now it reads its value");
    assert_eq!(wakes.count(), 1);
    assert!(poll_with(&mut second, &wakes).is_pending());
    let (id, request) = second.next_request().unwrap();
    second.answer(id, bucket.perform(&request));
    check(bucket.run(second), two);
    check(bucket.run(first), one);
}

#[test]
fn sixty_four_gets_of_one_block_send_one_request() {
    let store = build(options().profile(Profile::Local), 20_000, 100);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    let mut operations: Vec<_> = (0..64).map(|_| reader.get(3)).collect();
    operations.iter_mut().for_each(|operation| assert!(poll(operation).is_pending()));
    let requests: Vec<_> = operations.iter_mut().filter_map(Operation::next_request).collect();
    assert_eq!(requests.len(), 1);
    operations[0].answer(requests[0].0, bucket.perform(&requests[0].1));
    for operation in operations {
        let (found, cost) = bucket.run_counted(operation);
        check(found, 3);
        assert_eq!(cost.requests, 0);
    }
}

#[test]
fn a_dropped_leader_hands_over() {
    let (_store, bucket, reader) = store();
    let (one, two) = neighbours(&reader);
    let (mut first, mut second, mut third) = (reader.get(one), reader.get(two), reader.get(one));
    let (wakes, more) = (Arc::default(), Arc::default());
    assert!(poll(&mut first).is_pending());
    assert!(poll_with(&mut second, &wakes).is_pending() && poll_with(&mut third, &more).is_pending());
    drop(first);
    assert_eq!((wakes.count(), more.count()), (1, 1));
    assert!(poll_with(&mut second, &wakes).is_pending() && poll_with(&mut third, &more).is_pending());
    assert!(third.next_request().is_none(), "it waits for the second one");
    check(bucket.run(second), two);
    assert_eq!(more.count(), 2);
    check(bucket.run(third), one);
}

/// A dropped operation that waits changes nothing for the others.
#[test]
fn a_dropped_waiter_leaves_the_leader_alone() {
    let (_store, bucket, reader) = store();
    let (mut first, mut second) = (reader.get(0), reader.get(0));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    drop(second);
    check(bucket.run(first), 0);
}

/// The first failure hands over, and the second one is that of all: a server that is down costs two requests.
#[test]
fn a_failed_leader_hands_over_once() {
    let (_store, bucket, reader) = store();
    let mut operations: Vec<_> = (0..10).map(|_| reader.get(0)).collect();
    let (mut failed, mut requests) = (0, 0);
    while !operations.is_empty() {
        operations.retain_mut(|operation| match poll(operation) {
            Poll::Ready(result) => {
                let error = result.unwrap_err();
                assert_eq!((error.kind(), error.io_kind()), (ErrorKind::Io, Some(ErrorSource::TimedOut)));
                failed += 1;
                false
            }
            Poll::Pending => true,
        });
        for operation in &mut operations {
            if let Some((id, _)) = operation.next_request() {
                operation.answer(id, Err(Failure::io("read", ErrorSource::TimedOut.into())));
                requests += 1;
            }
        }
    }
    assert_eq!((failed, requests), (10, 2));
    check(bucket.run(reader.get(0)), 0);
}

/// Each batch leads the loads of some blocks and waits for others: neither waits before its own are answered.
#[test]
fn batches_that_need_blocks_of_each_other_end() {
    let store = build(options().spec(spec(6, 1, Encoding::Gzip)), 5000, 100);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    let all: Vec<u64> = keys(5000).step_by(3).collect();
    let reversed: Vec<u64> = all.iter().rev().copied().collect();
    let third: Vec<u64> = all.iter().skip(all.len() / 3).copied().collect();
    let lists = [&all, &reversed, &third];
    let mut operations: Vec<_> = lists.iter().map(|keys| Some(reader.get_many(keys))).collect();
    let mut single = Some(reader.get(all[7]));
    let mut left = 4;
    for round in 0.. {
        assert!(round < 20_000, "no progress");
        for (keys, slot) in lists.iter().zip(&mut operations) {
            let Some(operation) = slot else { continue };
            if let Poll::Ready(results) = poll(operation) {
                keys.iter().zip(results.unwrap()).for_each(|(key, result)| check(result, *key));
                (*slot, left) = (None, left - 1);
            } else if let Some((id, request)) = operation.next_request() {
                operation.answer(id, bucket.perform(&request)); // one request per round
            }
        }
        if let Some(operation) = &mut single
            && let Poll::Ready(result) = poll(operation)
        {
            check(result, all[7]);
            (single, left) = (None, left - 1);
        }
        if let Some(operation) = &mut single
            && let Some((id, request)) = operation.next_request()
        {
            operation.answer(id, bucket.perform(&request));
        }
        if left == 0 {
            break;
        }
    }
    let objects = bucket.take_log().into_iter().filter(|request| request.object.ends_with(".shard")).count();
    assert!(objects > 4);
}

/// Lookups of one block on many threads.
#[test]
fn threads_share_blocks() {
    let store = build(options().profile(Profile::Local), 5000, 100);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (reader, bucket) = (&reader, &bucket);
            scope.spawn(move || {
                for key in keys(5000).skip(thread).step_by(11) {
                    check(bucket.run_waiting(reader.get(key)), key);
                }
            });
        }
    });
    assert!(reader.stats().requests <= 4 + 5000);
}
