//! Operations share the requests for blocks: each block is read once at a time, and no operation waits for another.

use std::io::ErrorKind as ErrorSource;
use std::sync::Arc;

use crate::bucket::Bucket;
use crate::common::TempDir;
use crate::stores::{build, bytes, keys, options, spec, value};
use sharddb::spec::Encoding;
use sharddb::{ErrorKind, Profile};
use sharddb_remote::{Failure, RemoteReader, RemoteValue, Wanted};

/// A store whose minishards have longer values than a request costs.
fn store() -> (TempDir, Bucket, RemoteReader) {
    let store = build(options().profile(Profile::Remote), 20_000, 600);
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

fn check(found: sharddb::Result<Option<RemoteValue>>, key: u64) {
    assert_eq!(bytes(found), Some(value(key, 600)), "key {key}");
}

#[test]
fn two_operations_share_one_request_for_a_block() {
    let (_store, bucket, reader) = store();
    let (one, two) = neighbours(&reader);
    let (mut first, mut second) = (reader.get(one), reader.get(two));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    let ((id, request), (joined_id, joined)) = (first.next_request().unwrap(), second.next_request().unwrap());
    assert_eq!(request, joined);
    assert_eq!([id.shared(|| 1), joined_id.shared(|| 2), id.shared(|| 3)], [1; 3]);
    assert_eq!(joined_id.shared(|| "another adapter"), "another adapter");
    // either may be answered alone
    second.answer(joined_id, bucket.perform(&joined));
    let (found, cost) = bucket.run_sharing(second);
    check(found, two);
    assert_eq!((cost.requests, cost.bytes < 700, cost.cache_hits), (1, true, 1), "its value");
    first.answer(id, bucket.perform(&request));
    let (found, cost) = bucket.run_sharing(first);
    check(found, one);
    assert_eq!((cost.requests, cost.cache_hits), (2, 0));
}

#[test]
fn sixty_four_gets_of_one_block_are_one_request() {
    let store = build(options().profile(Profile::Local), 20_000, 600);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    bucket.take_log();
    let mut operations: Vec<_> = (0..64).map(|_| reader.get(3)).collect();
    operations.iter_mut().for_each(|operation| assert!(operation.poll().is_pending()));
    let before = reader.stats();
    let mut requests = 0;
    for operation in operations {
        let (found, cost) = bucket.run_sharing(operation);
        check(found, 3);
        requests += cost.requests;
    }
    assert_eq!((bucket.take_log().len(), requests), (1, 1));
    let after = reader.stats();
    assert_eq!((after.requests, after.cache_hits), (before.requests, before.cache_hits + 63));
}

/// What an adapter keeps for a request lives as long as an operation waits for the answer.
#[test]
fn the_last_operation_that_is_dropped_drops_the_read() {
    let (_store, bucket, reader) = store();
    let (mut first, mut second) = (reader.get(0), reader.get(0));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    let (first_id, _) = first.next_request().unwrap();
    let (second_id, request) = second.next_request().unwrap();
    let read = Arc::downgrade(&first_id.shared(|| Arc::new("read")));
    drop(first);
    assert!(read.upgrade().is_some_and(|read| Arc::ptr_eq(&read, &second_id.shared(|| Arc::new("another")))));
    let mut third = reader.get(0);
    assert!(third.poll().is_pending());
    assert!(read.upgrade().is_some_and(|read| {
        let (id, _) = third.next_request().unwrap();
        Arc::ptr_eq(&read, &id.shared(|| Arc::new("another")))
    }));
    second.answer(second_id.clone(), bucket.perform(&request));
    assert!(second.poll().is_pending(), "it has used the answer");
    assert!(read.upgrade().is_some());
    drop(third);
    assert!(read.upgrade().is_none());
    assert_eq!(*second_id.shared(|| Arc::new("new")), "new");
    check(bucket.run(second), 0);
}

/// An operation that nobody drives holds up no other, and ends later.
#[test]
fn no_operation_waits_for_another() {
    let (_store, bucket, reader) = store();
    let all: Vec<u64> = keys(20_000).step_by(11).collect();
    let (mut get, mut batch) = (reader.get(all[5]), reader.get_many(&all));
    assert!(get.poll().is_pending() && batch.poll().is_pending());
    check(bucket.run_sharing(reader.get(all[5])).0, all[5]);
    check(bucket.run_sharing(reader.get(all[6])).0, all[6]);
    for results in [bucket.run_sharing(reader.get_many(&all)).0, bucket.run_sharing(batch).0] {
        all.iter().zip(results.unwrap()).for_each(|(key, result)| check(result, *key));
    }
    check(bucket.run_sharing(get).0, all[5]);
}

/// Each operation has the error of the request that it shares, and the next one makes another.
#[test]
fn a_failure_is_that_of_all_operations_that_share_the_request() {
    let (_store, bucket, reader) = store();
    let mut operations: Vec<_> = (0..10).map(|_| reader.get(0)).collect();
    operations.iter_mut().for_each(|operation| assert!(operation.poll().is_pending()));
    for mut operation in operations {
        let (id, _) = operation.next_request().unwrap();
        operation.answer(id, Err(Failure::io("read", ErrorSource::TimedOut.into())));
        let error = bucket.run(operation).unwrap_err();
        assert_eq!((error.kind(), error.io_kind()), (ErrorKind::Io, Some(ErrorSource::TimedOut)));
    }
    check(bucket.run(reader.get(0)), 0);
}

/// Batches of the same keys in another order, and of a part of them, read no index that another one reads.
#[test]
fn batches_share_requests() {
    let store = build(options().spec(spec(6, 1, Encoding::Gzip)), 5000, 600);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    let all: Vec<u64> = keys(5000).step_by(3).collect();
    let reversed: Vec<u64> = all.iter().rev().copied().collect();
    let third: Vec<u64> = all.iter().skip(all.len() / 3).copied().collect();
    let lists = [&all, &reversed, &third];
    let mut operations: Vec<_> = lists.iter().map(|keys| reader.get_many(keys)).collect();
    operations.iter_mut().for_each(|operation| assert!(operation.poll().is_pending()));
    let requests = operations.iter().map(|operation| operation.stats().requests).collect::<Vec<_>>();
    assert!(requests[0] > 0 && requests[1..] == [0, 0], "{requests:?}");
    for (keys, operation) in lists.iter().zip(operations) {
        let (results, _) = bucket.run_sharing(operation);
        keys.iter().zip(results.unwrap()).for_each(|(key, result)| check(result, *key));
    }
}

/// Lookups on many threads read each block once.
#[test]
fn threads_share_blocks() {
    let store = build(options().profile(Profile::Local), 5000, 600);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    bucket.take_log();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (reader, bucket) = (&reader, &bucket);
            scope.spawn(move || {
                for key in keys(5000).skip(thread / 2).step_by(11) {
                    check(bucket.run_sharing(reader.get(key)).0, key);
                }
            });
        }
    });
    let mut ranges: Vec<(String, u64)> = Vec::new();
    for request in bucket.take_log() {
        let Wanted::Bytes(range) = request.wanted else { panic!("no range") };
        ranges.push((request.object, range.start));
    }
    let count = ranges.len();
    ranges.sort();
    ranges.dedup();
    assert!(count > 10 && ranges.len() == count, "{count} requests, {} different ones", ranges.len());
}
