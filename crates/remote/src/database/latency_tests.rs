//! A lookup makes exactly the requests that its data set needs, one after another: in virtual time, in which each takes 25 ms.

use std::sync::Arc;
use std::time::Duration;

use ::object_store::ObjectStoreExt;
use ::object_store::memory::InMemory;
use futures_util::poll;
use sharddb::{BuildOptions, Profile, Store};
use sharddb_format::ShardingSpec;
use sharddb_format::{Encoding, HashFunction};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use crate::common::TempDir;
use crate::database::testing::Recorder;
use crate::{RemoteDb, RemoteOptions};

const LATENCY: Duration = Duration::from_millis(25);

/// Enough for a minishard table.
const KEYS: u64 = 40_000;

type Slow = Arc<Recorder<InMemory>>;

/// The values of a minishard of the remote profile take more than a request costs.
fn value_of(key: u64) -> Vec<u8> {
    format!("value {key:0>200}").into_bytes()
}

/// The files of a generation with the even numbers as keys, and only its shards if it is to be foreign data.
async fn store(options: &mut BuildOptions, is_foreign: bool) -> Slow {
    let local = TempDir::new();
    let mut loader = options.create(local.path()).unwrap();
    (0..KEYS).for_each(|at| loader.insert(2 * at, value_of(2 * at)).unwrap());
    loader.finish().unwrap();
    let current = Store::open(local.path()).unwrap().current().unwrap().unwrap().to_string();
    let store = Recorder::with_latency(InMemory::new(), LATENCY);
    for file in std::fs::read_dir(local.path().join(current)).unwrap() {
        let (path, name) = file.map(|file| (file.path(), file.file_name().into_string().unwrap())).unwrap();
        if !is_foreign || name.ends_with(".shard") {
            store.put(&name.into(), std::fs::read(path).unwrap().into()).await.unwrap();
        }
    }
    Arc::new(store)
}

async fn open(store: &Slow, options: &RemoteOptions) -> RemoteDb {
    let db = RemoteDb::open_with(store.clone(), "", options).await.unwrap();
    store.take_requests();
    db
}

/// Gets a key, present if it is even, and returns the number of requests. They do not overlap.
async fn requests_of_get(store: &Slow, db: &RemoteDb, key: u64) -> u32 {
    let start = Instant::now();
    let (found, cost) = db.run(db.reader().get(key)).await;
    let (found, elapsed) = (found.unwrap(), start.elapsed());
    assert!(cost.elapsed > Duration::ZERO);
    assert_eq!(found.map(|value| value.to_vec()), key.is_multiple_of(2).then(|| value_of(key)), "key {key}");
    let requests = u32::try_from(store.take_requests().len()).unwrap();
    assert_eq!(elapsed, requests * LATENCY, "key {key}: {requests} requests");
    requests
}

/// A runtime with virtual time: it passes only while all tasks wait for it.
fn virtual_time() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

fn in_virtual_time<T>(future: impl Future<Output = T>) -> T {
    virtual_time().block_on(future)
}

fn some_keys(first: u64) -> impl Iterator<Item = u64> {
    (first..2 * KEYS).step_by(3994).take(20)
}

#[test]
fn local_profile_one_request_per_cold_get_and_at_most_one_for_an_absent_key() {
    in_virtual_time(async {
        let store = store(BuildOptions::new().profile(Profile::Local), false).await;
        for key in some_keys(0) {
            let db = open(&store, &RemoteOptions::new()).await;
            assert_eq!(requests_of_get(&store, &db, key).await, 1, "key {key}");
            assert_eq!(requests_of_get(&store, &db, key).await, 0, "key {key}, in the cache");
        }
        for key in some_keys(1) {
            let db = open(&store, &RemoteOptions::new()).await;
            assert!(requests_of_get(&store, &db, key).await <= 1, "key {key}");
        }
    });
}

#[test]
fn remote_profile_two_requests_then_one() {
    in_virtual_time(async {
        let store = store(BuildOptions::new().profile(Profile::Remote), false).await;
        for key in some_keys(0) {
            let db = open(&store, &RemoteOptions::new()).await;
            assert_eq!(requests_of_get(&store, &db, key).await, 2, "key {key}");
            assert_eq!(requests_of_get(&store, &db, key).await, 1, "key {key}");
        }
        for key in some_keys(1) {
            let db = open(&store, &RemoteOptions::new()).await;
            assert!(requests_of_get(&store, &db, key).await <= 1, "key {key}");
        }
    });
}

#[test]
fn foreign_data_three_requests_then_two_then_one() {
    in_virtual_time(async {
        for index in [Encoding::Raw, Encoding::Gzip] {
            let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 6, 2).unwrap();
            let spec = spec.with_minishard_index_encoding(index);
            let store = store(BuildOptions::new().spec(spec), true).await;
            let location = |key: u64| spec.route(key);
            let keys = || (0..KEYS).map(|at| 2 * at);
            let of_shard =
                keys().find(|key| location(*key).shard == location(0).shard && location(*key) != location(0));
            let of_minishard = keys().skip(1).find(|key| location(*key) == location(0));
            let db = open(&store, RemoteOptions::new().spec(spec)).await;
            for (key, requests) in [(0, 3), (of_shard.unwrap(), 2), (of_minishard.unwrap(), 1)] {
                assert_eq!(requests_of_get(&store, &db, key).await, requests, "key {key}");
            }
        }
    });
}

/// The requests of a batch overlap: index and value of many keys take the time of two requests.
#[test]
fn a_batch_takes_the_time_of_its_rounds() {
    in_virtual_time(async {
        let store = store(BuildOptions::new().profile(Profile::Remote), false).await;
        let db = open(&store, &RemoteOptions::new()).await;
        let keys: Vec<u64> = some_keys(0).collect();
        let start = Instant::now();
        let values = db.get_many(&keys).await.unwrap();
        assert_eq!(start.elapsed(), 2 * LATENCY);
        for (key, value) in keys.into_iter().zip(values) {
            assert_eq!(value.unwrap().unwrap()[..], value_of(key)[..]);
        }
        assert!(store.take_requests().len() > 20);
    });
}

/// A lookup has begun on a runtime that does not run any more, so that its timers do not fire.
#[test]
fn a_lookup_does_not_wait_for_another_runtime() {
    let (stopped, running) = (virtual_time(), virtual_time());
    let (store, db) = stopped.block_on(async {
        let store = store(BuildOptions::new().profile(Profile::Local), false).await;
        let db = open(&store, &RemoteOptions::new()).await;
        (store, db)
    });
    let mut held = Box::pin(db.get(0));
    stopped.block_on(async {
        for _ in 0..100 {
            assert!(poll!(&mut held).is_pending());
            yield_now().await; // the runtime is never idle: no time passes
        }
    });
    let found = running.block_on(async { timeout(1000 * LATENCY, db.get(0)).await });
    let found = found.expect("it waits for another runtime");
    assert_eq!(found.unwrap().unwrap()[..], value_of(0)[..]);
    assert_eq!(stopped.block_on(held).unwrap().unwrap()[..], value_of(0)[..]);
    assert_eq!(store.take_requests().len(), 2);
}
