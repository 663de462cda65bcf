//! The adapters return what was stored, whatever else is in flight, and make no request twice.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use ::object_store::local::LocalFileSystem;
use ::object_store::memory::InMemory;
use ::object_store::{Attribute, Error as StoreError, ObjectStore, ObjectStoreExt, PutOptions};
use futures_util::future::{Either, FutureExt, join_all, select};
use futures_util::{StreamExt, poll, stream};
use sharddb::{BuildOptions, BulkLoader, Profile, Store};
use sharddb_format::ErrorKind;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::common::TempDir;
use crate::database::testing::{Recorder, block_on};
use crate::{BlockingDb, RemoteDb, RemoteOptions, RemoteValue};

/// Keys 0, 3, 6, .. of the generation of these tests.
const KEYS: u64 = 2000;

fn value_of(key: u64) -> Vec<u8> {
    let times = usize::try_from(1 + key % 7).unwrap();
    format!("value {key} ").repeat(times).into_bytes()
}

/// A store in memory with a native generation at `data/set`.
async fn generation() -> Arc<Recorder<InMemory>> {
    let local = TempDir::new();
    let mut loader = BulkLoader::create(local.path()).unwrap();
    (0..KEYS).for_each(|at| loader.insert(3 * at, value_of(3 * at)).unwrap());
    loader.finish().unwrap();
    let current = Store::open(local.path()).unwrap().current().unwrap().unwrap().to_string();
    let store = Recorder::new(InMemory::new());
    for file in std::fs::read_dir(local.path().join(current)).unwrap() {
        let file = file.unwrap();
        let name = format!("data/set/{}", file.file_name().display());
        store.put(&name.into(), std::fs::read(file.path()).unwrap().into()).await.unwrap();
    }
    Arc::new(store)
}

async fn opened() -> (Arc<Recorder<InMemory>>, RemoteDb) {
    let store = generation().await;
    let db = RemoteDb::open(store.clone(), "data/set").await.unwrap();
    store.take_requests();
    (store, db)
}

/// A request to a file costs less: gaps are shorter, and a minishard is read with its values only if they are.
#[test]
fn files_have_another_request_cost_than_object_stores() {
    let local = TempDir::new();
    let mut loader = BuildOptions::new().profile(Profile::Local).create(local.path()).unwrap();
    (0..3).for_each(|key| loader.insert(key, vec![b'v'; 20 << 10]).unwrap());
    loader.finish().unwrap();
    let files = Arc::new(LocalFileSystem::new_with_prefix(local.path().join("gen-0000000001")).unwrap());
    for (cost, requests) in [(None, 3), (Some(64 << 10), 1)] {
        let mut options = RemoteOptions::new();
        if let Some(cost) = cost {
            options.request_cost(cost);
        }
        let (values, stats) = block_on(async {
            let db = RemoteDb::open_with(files.clone(), "", &options).await.unwrap();
            db.run(db.reader().get_many(&[0, 2])).await
        });
        assert!(values.unwrap().into_iter().all(|value| value.unwrap().unwrap().len() == 20 << 10));
        assert_eq!(stats.requests, requests, "cost {cost:?}");
    }
}

#[test]
fn all_lookups_return_what_was_stored() {
    block_on(async {
        let (_, db) = opened().await;
        let keys: Vec<u64> = (0..3 * KEYS).step_by(5).collect();
        let values = db.get_many(&keys).await.unwrap();
        for (&key, value) in keys.iter().zip(values) {
            let expected = (key % 3 == 0).then(|| value_of(key));
            assert_eq!(value.unwrap().map(|value| value.to_vec()), expected, "{key}");
            assert_eq!(db.contains(key).await.unwrap(), expected.is_some(), "{key}");
        }
        assert_eq!(db.get(6).await.unwrap().unwrap()[..], value_of(6)[..]);
        let location = db.locate(6).await.unwrap().unwrap();
        assert!(location.object.ends_with(".shard"), "{location:?}");
        assert!(!db.refresh().await.unwrap());
        assert!(db.stats().requests > 0);
    });
}

/// Compresses bytes by another program's defaults.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut member = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    member.write_all(bytes).unwrap();
    member.finish().unwrap()
}

/// Some tools upload texts compressed, and state that as a content encoding.
#[test]
fn texts_with_a_content_encoding_of_gzip_open() {
    block_on(async {
        let store = generation().await;
        let all: Vec<_> = store.list(None).map(|object| object.unwrap().location).collect().await;
        for location in all {
            let bytes = store.get(&location).await.unwrap().bytes().await.unwrap();
            let name = location.filename().unwrap();
            let mut options = PutOptions::default();
            let bytes = match name {
                "info" | "manifest.json" => {
                    options.attributes.insert(Attribute::ContentEncoding, "gzip".into());
                    gzip(&bytes)
                }
                _ => bytes.to_vec(),
            };
            for directory in ["root", "published/gen-0000000001"] {
                let to = format!("{directory}/{name}").into();
                store.put_opts(&to, bytes.clone().into(), options.clone()).await.unwrap();
            }
        }
        let mut options = PutOptions::default();
        options.attributes.insert(Attribute::ContentEncoding, "gzip".into());
        store.put_opts(&"published/current".into(), gzip(b"gen-0000000001\n").into(), options).await.unwrap();
        for prefix in ["root", "published"] {
            let db = RemoteDb::open(store.clone(), prefix).await.unwrap();
            assert_eq!(db.snapshot().key_count(), Some(KEYS), "{prefix}");
            assert_eq!(db.get(300).await.unwrap().unwrap()[..], value_of(300)[..], "{prefix}");
            assert!(!db.refresh().await.unwrap(), "{prefix}");
        }
    });
}

#[test]
fn sixty_four_gets_of_one_block_at_once_are_one_request() {
    block_on(async {
        let (store, db) = opened().await;
        let values = join_all((0..64).map(|_| db.get(300))).await;
        assert!(values.into_iter().all(|value| value.unwrap().unwrap()[..] == value_of(300)[..]));
        assert_eq!(store.take_requests().len(), 1);
        let (store, db) = opened().await;
        let all = join_all((0..64).map(|_| db.run(db.reader().get(300)))).await;
        let costs: Vec<_> = all.into_iter().map(|(_, cost)| (cost.requests, cost.cache_hits)).collect();
        assert_eq!((costs[0], &costs[1..]), ((1, 0), &[(0, 1); 63][..]));
        assert_eq!(store.take_requests().len(), 1);
        let (value, cost) = db.run(db.reader().get(300)).await;
        assert_eq!((value.unwrap().unwrap().to_vec(), cost.requests), (value_of(300), 0));
        assert_eq!(store.take_requests(), []);
    });
}

/// Runs a test that hangs if a lookup waits for one that is not polled.
fn without_waiting<T>(test: impl Future<Output = T>) -> T {
    block_on(async { timeout(Duration::from_secs(60), test).await.expect("a lookup waits for another one") })
}

/// The body of the loop awaits lookups that the stream has begun and does not poll meanwhile.
#[test]
fn the_consumer_of_a_stream_of_lookups_may_look_up_too() {
    without_waiting(async {
        let (_, db) = opened().await;
        let lookup = |key| {
            let db = &db;
            async move { (key, db.get(key).await) }
        };
        let mut lookups = std::pin::pin!(stream::iter((0..400).map(|at| 3 * at)).map(lookup).buffered(8));
        let mut count = 0;
        while let Some((key, found)) = lookups.next().await {
            assert_eq!(found.unwrap().unwrap()[..], value_of(key)[..]);
            for begun in (key + 3..key + 24).step_by(3) {
                assert_eq!(db.get(begun).await.unwrap().unwrap()[..], value_of(begun)[..]);
            }
            count += 1;
        }
        assert_eq!(count, 400);
    });
}

#[test]
fn an_arm_of_a_select_that_is_kept_holds_up_no_lookup() {
    without_waiting(async {
        let (store, db) = opened().await;
        let kept = Box::pin(db.get(300));
        let Either::Right(((), kept)) = select(kept, Box::pin(yield_now())).await else { panic!("it has ended") };
        assert_eq!(db.get(300).await.unwrap().unwrap()[..], value_of(300)[..]);
        assert_eq!(kept.await.unwrap().unwrap()[..], value_of(300)[..]);
        assert_eq!(store.take_requests().len(), 1);
    });
}

/// Lookups and batches, each against a lookup and a batch that were polled once.
#[test]
fn a_lookup_that_is_held_holds_up_no_other() {
    without_waiting(async {
        let keys: Vec<u64> = (0..KEYS).map(|at| 3 * at).collect();
        let get = async |db: &RemoteDb| drop(db.get(300).await.unwrap().unwrap());
        let get_many = async |db: &RemoteDb| {
            let values = db.get_many(&keys).await.unwrap();
            assert!(values.into_iter().all(|value| value.unwrap().is_some()));
        };
        let (store, db) = opened().await;
        get_many(&db).await;
        let of_batch = store.take_requests().len();
        for held_is_batch in [false, true] {
            for is_batch in [false, true] {
                let (store, db) = opened().await;
                let mut held = if held_is_batch { get_many(&db).boxed_local() } else { get(&db).boxed_local() };
                assert!(poll!(&mut held).is_pending());
                if is_batch {
                    get_many(&db).await
                } else {
                    get(&db).await
                }
                held.await;
                let most = match (held_is_batch, is_batch) {
                    (true, _) => of_batch,
                    (false, true) => of_batch + 1, // the minishard of the lookup is not read with its neighbours
                    (false, false) => 1,
                };
                assert!(store.take_requests().len() <= most, "{held_is_batch} {is_batch}");
            }
        }
    });
}

#[test]
fn the_last_future_that_is_dropped_cancels_its_requests() {
    block_on(async {
        let (store, db) = opened().await;
        store.close();
        let mut lookups: Vec<_> = (0..3).map(|_| Box::pin(db.get(300))).collect();
        for _ in 0..10 {
            for lookup in &mut lookups {
                assert!(poll!(lookup).is_pending());
            }
            yield_now().await;
        }
        assert_eq!(store.in_flight(), 1);
        drop(lookups.remove(0)); // it has made the request
        assert_eq!(store.in_flight(), 1);
        store.open();
        assert_eq!(lookups.remove(0).await.unwrap().unwrap()[..], value_of(300)[..]);
        assert_eq!(lookups.remove(0).await.unwrap().unwrap()[..], value_of(300)[..]);
        assert_eq!(store.take_requests().len(), 1);
        // dropped after every number of polls, alone
        for polls in 0..200 {
            let mut lookup = Box::pin(db.get(3 * polls));
            for _ in 0..polls {
                if poll!(&mut lookup).is_ready() {
                    break;
                }
            }
            drop(lookup);
            assert_eq!(store.in_flight(), 0);
        }
        let keys: Vec<u64> = (0..KEYS).map(|at| 3 * at).collect();
        for (&key, value) in keys.iter().zip(db.get_many(&keys).await.unwrap()) {
            assert_eq!(value.unwrap().unwrap()[..], value_of(key)[..]);
        }
    });
}

#[test]
fn an_error_of_the_store_names_the_object_and_the_next_lookup_succeeds() {
    block_on(async {
        let store = generation().await;
        let mut options = RemoteOptions::new();
        options.root_name("s3://bucket/data/set");
        let db = RemoteDb::open_with(store.clone(), "data/set", &options).await.unwrap();
        store.change(|_, _, _| Err(StoreError::Generic { store: "S3", source: "no answer".into() }));
        let error = db.get(300).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        let text = error.to_string();
        assert!(text.contains("cannot read bytes ") && text.contains("no answer"), "{text}");
        assert!(text.contains("(file s3://bucket/data/set/"), "{text}");
        let values = db.get_many(&[300, 303]).await.unwrap();
        assert!(values.iter().all(Result::is_err));
        store.take_requests();
        for result in join_all((0..64).map(|_| db.get(300))).await {
            assert_eq!(result.unwrap_err().to_string(), text);
        }
        assert_eq!(store.take_requests().len(), 1);
        store.repair();
        assert_eq!(db.get(300).await.unwrap().unwrap()[..], value_of(300)[..]);
    });
}

#[test]
fn without_a_root_name_errors_name_the_store_and_the_prefix() {
    block_on(async {
        let store = Arc::new(InMemory::new());
        let error = RemoteDb::open(store, "a/b").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("InMemory/a/b"), "{error}");
    });
}

#[test]
fn a_blocking_data_set_serves_many_threads() {
    let store = block_on(generation());
    let db = BlockingDb::open(store, "data/set").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let db = db.clone();
            scope.spawn(move || {
                for at in 0..100 {
                    let key = 3 * (at * 16 + thread);
                    assert_eq!(db.get(key).unwrap().unwrap()[..], value_of(key)[..]);
                    assert!(!db.contains(key + 1).unwrap());
                }
            });
        }
    });
    assert_eq!(db.get_many(&[1, 3]).unwrap().len(), 2);
    assert_eq!(db.locate(4).unwrap(), None);
    let (value, cost) = db.run(db.snapshot().get(3));
    assert!(value.unwrap().is_some() && cost.requests <= 1);
}

#[test]
fn a_blocking_data_set_works_and_is_dropped_inside_another_runtime() {
    let store = block_on(generation());
    // a task of a runtime, which has a budget of polls; a runtime of one thread
    block_on(async {
        let store = store.clone();
        let task = async move {
            let db = BlockingDb::open(store, "data/set").unwrap();
            (0..KEYS).filter(|at| db.get(3 * at).unwrap().is_some()).count()
        };
        assert_eq!(tokio::spawn(task).await.unwrap() as u64, KEYS);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let db = BlockingDb::open(store, "data/set").unwrap();
        assert!(db.get(3).unwrap().is_some());
    });
}

#[test]
fn a_value_becomes_bytes_without_a_copy() {
    let value = RemoteValue::from(b"value".to_vec());
    let address = value.as_ptr();
    let bytes = bytes::Bytes::from(value);
    assert_eq!((bytes.as_ptr(), &bytes[..]), (address, &b"value"[..]));
}
