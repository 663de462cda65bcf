//! Whatever a server answers, a lookup of a native store returns the right value or an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bucket::Bucket;
use crate::common::data;
use crate::stores::{absent, build, keys, options, spec, value};
use sharddb::spec::Encoding;
use sharddb::{ErrorKind, Profile};
use sharddb_remote::{Body, RemoteOptions, Response, Wanted};

fn with_body(response: Response, body: Vec<u8>) -> Response {
    Response::new(Body::new(body), response.etag, response.object_len)
}

/// Opens the store with one answer changed, and looks up keys. Returns the number of errors.
fn look_up(bucket: &Bucket, some: &[u64]) -> usize {
    let reader = match bucket.run(RemoteOptions::new().open()) {
        Ok(reader) => reader,
        Err(error) => {
            assert_ne!(error.kind(), ErrorKind::Internal, "{error}");
            return 1;
        }
    };
    let batch = bucket.run(reader.get_many(some)).unwrap_or_else(|error| {
        assert_ne!(error.kind(), ErrorKind::Internal, "{error}");
        Vec::new()
    });
    let single = some.iter().map(|key| (*key, bucket.run(reader.get(*key))));
    let all: Vec<_> = some.iter().copied().zip(batch).chain(single).collect();
    let mut errors = 0;
    for (key, result) in all {
        match result {
            Ok(found) => {
                let expected = (key % 3 != 2).then(|| value(key, 30));
                assert_eq!(found.map(|value| value.to_vec()), expected, "key {key}");
            }
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::Internal, "{error}");
                errors += 1;
            }
        }
    }
    errors
}

/// Flips each byte of each object, wherever it is in a response.
#[test]
fn a_flipped_byte_is_never_a_wrong_value() {
    let stores = [
        build(options().spec(spec(2, 1, Encoding::Raw)), 40, 30),
        build(options().spec(spec(2, 1, Encoding::Gzip)), 40, 30),
        build(options().spec(spec(1, 0, Encoding::Raw)).data_encoding(Encoding::Gzip), 16, 30),
        build(options().spec(spec(8, 1, Encoding::Raw)), 60, 30), // with a minishard table
    ];
    let some: Vec<u64> = keys(16).step_by(3).chain(absent(16).step_by(5)).collect();
    let mut errors = 0;
    for store in stores {
        for root in [store.path().to_path_buf(), store.path().join("gen-0000000001")] {
            let bucket = Bucket::of(&root);
            assert_eq!(look_up(&bucket, &some), 0);
            let used: Vec<String> = bucket.take_log().into_iter().map(|request| request.object).collect();
            for name in bucket.names().into_iter().filter(|name| used.contains(name)) {
                let intact = bucket.object(&name);
                let step = intact.len().div_ceil(400);
                for at in (0..intact.len()).step_by(step) {
                    let mut damaged = intact.clone();
                    damaged[at] ^= 1 << (at % 8);
                    bucket.put(&name, damaged);
                    errors += look_up(&bucket, &some);
                }
                bucket.put(&name, intact);
            }
        }
    }
    assert!(errors > 1000, "{errors}");
}

/// A store with one table, so that a lookup makes one request, and the error of a lookup whose answer is changed.
fn error_of(
    profile: Profile,
    change: impl Fn(Response) -> Response + Send + 'static,
) -> (sharddb::Error, Bucket, sharddb_remote::RemoteReader) {
    let store = build(options().profile(profile), 20_000, 30);
    let bucket = Bucket::of(store.path());
    let reader = bucket.open();
    bucket.set_fault(move |_, answer| answer.map(&change));
    let error = bucket.run(reader.get(3)).unwrap_err();
    bucket.clear_fault();
    assert_eq!(bucket.run(reader.get(3)).unwrap().unwrap().to_vec(), value(3, 30), "nothing wrong is kept");
    (error, bucket, reader)
}

#[test]
fn short_long_and_empty_bodies_are_errors_with_object_and_range() {
    let changes: [fn(Vec<u8>) -> Vec<u8>; 4] = [
        |body| body[..body.len() - 1].to_vec(),
        |body| [&body[..], &[0]].concat(),
        |_| Vec::new(),
        |body| body.repeat(1000),
    ];
    for profile in [Profile::Local, Profile::Remote] {
        for change in changes {
            let (error, _, reader) = error_of(profile, move |response| {
                with_body(response.clone(), change(response.body.as_slice().to_vec()))
            });
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            assert!(error.to_string().contains(".shard") && error.to_string().contains(".."), "{error}");
            assert!(reader.stats().bytes > 0);
        }
    }
}

/// A server that ignores the range and sends another one of the same length.
#[test]
fn bytes_of_another_range_are_corrupt() {
    for profile in [Profile::Local, Profile::Remote] {
        let (error, ..) = error_of(profile, |response| {
            let mut body = response.body.as_slice().to_vec();
            body.rotate_left(8);
            with_body(response, body)
        });
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

/// The object is replaced between the read of the index and that of the value: of native and of foreign data.
#[test]
fn an_etag_that_changes_between_two_ranges_is_an_error() {
    let native = build(options().profile(Profile::Remote), 20_000, 30);
    let foreign = data("public/ts_10k_mm3");
    for (directory, key) in [(native.path(), 3), (&foreign, 3_398_895)] {
        for weak in ["", "W/"] {
            let bucket = Bucket::of(directory);
            let reader = bucket.open();
            let snapshot = reader.snapshot();
            let count = Arc::new(AtomicUsize::new(0));
            bucket.set_fault(move |_, answer| {
                let number = count.fetch_add(1, Ordering::Relaxed);
                answer.map(|response| {
                    Response::new(response.body, Some(format!("{weak}\"{number}\"")), response.object_len)
                })
            });
            let error = bucket.run(snapshot.get(key)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::GenerationGone, "{error}");
            assert!(error.to_string().contains("ETag") && error.to_string().contains(".shard"), "{error}");
        }
    }
}

/// The bucket itself compares `If-Match`.
#[test]
fn a_replaced_object_of_foreign_data_is_read_again_and_never_mixed() {
    let (one, two) = (
        build(options().spec(spec(2, 0, Encoding::Gzip)), 400, 30),
        build(options().spec(spec(2, 0, Encoding::Gzip)), 900, 60),
    );
    let shard = |store: &crate::common::TempDir| Bucket::of(store.path()).object("gen-0000000001/0.shard");
    let bucket = Bucket::default();
    bucket.put("0.shard", shard(&one));
    let reader = bucket.run(RemoteOptions::new().spec(spec(2, 0, Encoding::Gzip)).open()).unwrap();
    let snapshot = reader.snapshot();
    assert_eq!(bucket.run(reader.get(3)).unwrap().unwrap().to_vec(), value(3, 30));
    bucket.put("0.shard", shard(&two));
    let error = bucket.run(snapshot.get(3)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GenerationGone);
    assert_eq!(bucket.run(reader.get(3)).unwrap().unwrap().to_vec(), value(3, 60), "opened again");
    let results = bucket.run(reader.get_many(&[0, 1, 3, 4])).unwrap();
    for (key, result) in [0, 1, 3, 4].into_iter().zip(results) {
        assert_eq!(result.unwrap().unwrap().to_vec(), value(key, 60));
    }
    bucket.put("0.shard", shard(&one));
    let results = bucket.run(reader.get_many(&[0, 1, 3, 4])).unwrap();
    for (key, result) in [0, 1, 3, 4].into_iter().zip(results) {
        assert_eq!(result.unwrap().unwrap().to_vec(), value(key, 30), "the whole batch of one state");
    }
}

/// A minishard table that is damaged or missing costs a request for the shard index, and changes no answer.
#[test]
fn without_its_table_a_store_is_read_by_the_shard_indexes() {
    let store = build(options().profile(Profile::Local), 20_000, 30);
    let name = "gen-0000000001/minishards";
    let damages: [fn(&Bucket, Vec<u8>); 4] = [
        |bucket, _| bucket.remove(name_of_table()),
        |bucket, table| bucket.put(name_of_table(), &table[..table.len() - 1]),
        |bucket, table| bucket.put(name_of_table(), vec![0; table.len()]),
        |bucket, mut table| {
            let middle = table.len() - 100;
            table[middle] ^= 1; // the last block
            bucket.put(name_of_table(), table);
        },
    ];
    for damage in damages {
        let bucket = Bucket::of(store.path());
        let table = bucket.object(name);
        damage(&bucket, table);
        let reader = bucket.open();
        for key in keys(20_000).step_by(501) {
            let (found, requests) = bucket.count(reader.get(key));
            assert_eq!(found.unwrap().to_vec(), value(key, 30), "key {key}");
            assert!(requests <= 3, "{requests}");
        }
        let some: Vec<u64> = keys(20_000).step_by(301).collect();
        for (key, result) in some.iter().zip(bucket.run(reader.get_many(&some)).unwrap()) {
            assert_eq!(result.unwrap().unwrap().to_vec(), value(*key, 30), "key {key}");
        }
    }
}

fn name_of_table() -> &'static str {
    "gen-0000000001/minishards"
}

/// Numbers in foreign data are not trusted: nothing is requested or allocated by them beyond the caps.
#[test]
fn ranges_beyond_the_caps_are_not_requested() {
    let spec = spec(0, 0, Encoding::Raw);
    let bucket = Bucket::default();
    let huge = 1u64 << 50;
    let entry: Vec<u8> = [0, 24 * huge].into_iter().flat_map(u64::to_le_bytes).collect();
    bucket.put("0.shard", entry);
    let bucket = bucket.without_etags();
    let reader = bucket.run(RemoteOptions::new().spec(spec).open()).unwrap();
    let error = bucket.run(reader.get(7)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    // a value of 2^50 bytes
    let row: Vec<u8> = [0, 24, 7, 0, huge].into_iter().flat_map(u64::to_le_bytes).collect();
    bucket.put("0.shard", row);
    let reader = bucket.run(RemoteOptions::new().spec(spec).open()).unwrap();
    bucket.take_log();
    let error = bucket.run(reader.get(7)).unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::TooLarge, Some(7)), "{error}");
    for request in bucket.take_log() {
        let Wanted::Bytes(range) = request.wanted else { panic!("no range") };
        assert!(range.end <= 64, "{range:?}");
    }
}
