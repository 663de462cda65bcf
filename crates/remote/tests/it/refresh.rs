//! A reader serves one generation at a time; a snapshot keeps its own.

use std::path::Path;

use crate::bucket::Bucket;
use crate::common::TempDir;
use crate::stores::{bytes, options, spec};
use sharddb::ErrorKind;
use sharddb::spec::Encoding;
use sharddb_remote::{Failure, RemoteOptions, Response};

/// Adds a generation in which every value states its number.
fn publish(store: &Path, number: u64) {
    let mut loader = options().spec(spec(4, 2, Encoding::Raw)).create(store).unwrap();
    for key in 0..500u64 {
        loader.insert(key, format!("{number}:{key}").as_bytes()).unwrap();
    }
    loader.finish().unwrap();
}

fn expected(number: u64, key: u64) -> Option<Vec<u8>> {
    Some(format!("{number}:{key}").into_bytes())
}

fn store() -> (TempDir, Bucket) {
    let store = TempDir::new();
    publish(store.path(), 1);
    let bucket = Bucket::of(store.path());
    (store, bucket)
}

#[test]
fn a_refresh_without_a_change_is_one_request_and_serves_the_same() {
    let (_store, bucket) = store();
    let reader = bucket.open();
    bucket.take_log();
    assert_eq!(bucket.count(reader.refresh()), (false, 1));
    let request = bucket.take_log().pop().unwrap();
    assert_eq!(request.object, "current");
    assert!(request.if_none_match.is_some());
    let bucket = bucket.without_etags();
    let reader = bucket.open();
    assert_eq!(bucket.count(reader.refresh()), (false, 1), "by its text");
}

#[test]
fn a_refresh_serves_the_new_generation_and_a_snapshot_keeps_its_own() {
    let (store, bucket) = store();
    let reader = bucket.open();
    let old = reader.snapshot();
    publish(store.path(), 2);
    bucket.add(store.path(), "");
    assert_eq!(bytes(bucket.run(reader.get(5))), expected(1, 5), "without a refresh");
    assert!(bucket.run(reader.refresh()).unwrap());
    assert!(!bucket.run(reader.refresh()).unwrap());
    assert_eq!(bytes(bucket.run(reader.get(5))), expected(2, 5));
    assert_eq!(bytes(bucket.run(old.get(6))), expected(1, 6));
    assert_eq!((old.generation(), reader.snapshot().generation()), (Some("gen-0000000001"), Some("gen-0000000002")));
}

/// `get` refreshes once after 404; a pinned snapshot returns `GenerationGone`.
#[test]
fn after_gc_a_lookup_refreshes_once_and_a_snapshot_is_gone() {
    let (store, bucket) = store();
    let reader = bucket.open();
    let old = reader.snapshot();
    publish(store.path(), 2);
    bucket.add(store.path(), "");
    bucket.remove("gen-0000000001/");
    let error = bucket.run(old.get(5)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GenerationGone, "{error}");
    assert!(error.to_string().contains("gen-0000000001/"), "{error}");
    let results = bucket.run(old.get_many(&[5, 6])).unwrap();
    assert!(results.iter().all(|result| result.as_ref().is_err_and(|error| error.kind() == ErrorKind::GenerationGone)));
    assert_eq!(bytes(bucket.run(reader.get(5))), expected(2, 5));
    assert_eq!(reader.snapshot().generation(), Some("gen-0000000002"));
}

#[test]
fn a_batch_a_contains_and_a_locate_refresh_too() {
    let (store, bucket) = store();
    let readers = [bucket.open(), bucket.open(), bucket.open()];
    publish(store.path(), 2);
    bucket.add(store.path(), "");
    bucket.remove("gen-0000000001/");
    let [one, two, three] = readers;
    for (key, result) in (0..).zip(bucket.run(one.get_many(&[0, 1, 2, 3, 4, 5, 6])).unwrap()) {
        assert_eq!(bytes(result), expected(2, key));
    }
    assert!(bucket.run(two.contains(5)).unwrap());
    assert!(bucket.run(three.locate(5)).unwrap().unwrap().object.starts_with("gen-0000000002/"));
}

/// A shard of the current generation is missing: the refresh does not help.
#[test]
fn a_missing_shard_of_the_current_generation_is_an_error() {
    let (_store, bucket) = store();
    let reader = bucket.open();
    (0..4).for_each(|shard| bucket.remove(&format!("gen-0000000001/{shard}.shard")));
    let (result, cost) = bucket.run_counted(reader.get(5));
    assert_eq!(result.unwrap_err().kind(), ErrorKind::GenerationGone);
    assert!(cost.requests < 20, "{cost:?}");
    let error = bucket.run(RemoteOptions::new().open()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GenerationGone, "its shard indexes are read at open");
}

/// A shard is missing from the generation that is current: its lookups cost two requests each, and the cache stays.
#[test]
fn a_missing_shard_does_not_open_the_generation_again() {
    let (_store, bucket) = store();
    let reader = bucket.open();
    let snapshot = reader.snapshot();
    let shard_of = |key: &u64| snapshot.spec().route(*key).shard.get();
    let lost: Vec<u64> = (0..500).filter(|key| shard_of(key) == 1).take(5).collect();
    let kept: Vec<u64> = (0..500).filter(|key| shard_of(key) != 1).take(20).collect();
    bucket.remove("gen-0000000001/1.shard");
    for key in &kept {
        assert_eq!(bytes(bucket.run(reader.get(*key))), expected(1, *key));
    }
    for key in &lost {
        bucket.take_log();
        let error = bucket.run(reader.get(*key)).unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::GenerationGone, Some(*key)), "{error}");
        let names: Vec<String> = bucket.take_log().into_iter().map(|request| request.object).collect();
        assert_eq!(names, ["gen-0000000001/1.shard", "current"]);
    }
    for key in &kept {
        assert_eq!(bucket.count(reader.get(*key)).1, 0, "key {key} is in the cache");
    }
    let both: Vec<u64> = kept.iter().chain(&lost).copied().collect();
    let (results, cost) = bucket.run_counted(reader.get_many(&both));
    for (key, result) in both.iter().zip(results.unwrap()) {
        if lost.contains(key) {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::GenerationGone)
        } else {
            assert_eq!(bytes(result), expected(1, *key))
        }
    }
    assert!(cost.requests <= lost.len() + 1, "{cost:?}");
}

/// The objects of a generation have other ETags: it was copied again, and has the same bytes.
#[test]
fn a_generation_that_was_copied_again_is_opened_again() {
    let (store, bucket) = store();
    let reader = bucket.open();
    let old = reader.snapshot();
    assert_eq!(bytes(bucket.run(reader.get(5))), expected(1, 5));
    let copy = Bucket::of(store.path()).without_etags();
    bucket.set_fault(move |request, _| {
        let etag = format!("\"other-{}\"", request.object);
        let mut request = request.clone();
        match request.if_match.take() {
            Some(condition) if condition != etag => Err(Failure::Replaced),
            _ => copy.perform(&request).map(|response| Response::new(response.body, Some(etag), response.object_len)),
        }
    });
    let cold = (0..500).find(|key| bucket.run(old.get(*key)).is_err()).unwrap();
    assert_eq!(bytes(bucket.run(reader.get(cold))), expected(1, cold));
}

/// A new generation that cannot be opened is not served.
#[test]
fn a_refresh_that_fails_keeps_the_old_generation() {
    let (store, bucket) = store();
    let reader = bucket.open();
    publish(store.path(), 2);
    bucket.add(store.path(), "");
    let manifest = bucket.object("gen-0000000002/manifest.json");
    bucket.put("gen-0000000002/manifest.json", &manifest[1..]);
    assert_eq!(bucket.run(reader.refresh()).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(bytes(bucket.run(reader.get(5))), expected(1, 5));
    bucket.put("gen-0000000002/manifest.json", manifest);
    assert!(bucket.run(reader.refresh()).unwrap());
    assert_eq!(bytes(bucket.run(reader.get(5))), expected(2, 5));
}

/// Two refreshes at the same time, and lookups meanwhile: no mix, and the new generation is served at the end.
#[test]
fn refreshes_at_the_same_time() {
    let (store, bucket) = store();
    let reader = bucket.open();
    publish(store.path(), 2);
    bucket.add(store.path(), "");
    let (mut one, mut two) = (reader.refresh(), reader.refresh());
    let mut lookup = reader.get(7);
    assert!(one.poll().is_pending() && two.poll().is_pending() && lookup.poll().is_pending());
    assert!(bucket.run(one).unwrap());
    assert!(bucket.run(two).unwrap());
    assert_eq!(bytes(bucket.run(lookup)), expected(1, 7), "it began in the old generation");
    assert_eq!(bytes(bucket.run(reader.get(7))), expected(2, 7));
}

/// The generation is removed between the read of `current` and that of its files.
#[test]
fn a_generation_that_vanishes_while_it_is_opened() {
    let (store, bucket) = store();
    let mut operation = RemoteOptions::new().open();
    assert!(operation.poll().is_pending());
    let first: Vec<_> = std::iter::from_fn(|| operation.next_request()).collect();
    assert!(first.iter().any(|(_, request)| request.object == "current"));
    first.into_iter().for_each(|(id, request)| operation.answer(id, bucket.perform(&request)));
    publish(store.path(), 2);
    bucket.add(store.path(), "");
    bucket.remove("gen-0000000001/");
    let reader = bucket.run(operation).unwrap();
    assert_eq!(bytes(bucket.run(reader.get(7))), expected(2, 7));
}

/// Stores without the permission to list answer "no permission" for a missing object.
#[test]
fn a_root_without_current_opens_where_missing_objects_are_forbidden() {
    let (store, _) = store();
    let bucket = Bucket::of(&store.path().join("gen-0000000001"));
    bucket.set_fault(|_, answer| match answer {
        Err(Failure::NotFound) => Err(Failure::io("read", std::io::ErrorKind::PermissionDenied.into())),
        answer => answer,
    });
    let reader = bucket.open();
    assert_eq!(bytes(bucket.run(reader.get(7))), expected(1, 7));
    bucket.remove("info");
    let error = bucket.run(RemoteOptions::new().open()).unwrap_err();
    assert_eq!(error.io_kind(), Some(std::io::ErrorKind::PermissionDenied));
}

/// Only "no permission" may mean that `current` is missing: any other failure does not serve the directory at the root.
#[test]
fn a_current_that_cannot_be_read_is_an_error() {
    let (store, bucket) = store();
    bucket.add(&store.path().join("gen-0000000001"), "");
    let failures: [fn() -> Failure; 3] = [
        || Failure::io("read", std::io::ErrorKind::TimedOut.into()),
        || Failure::io("read", std::io::Error::other("status 500")),
        || Failure::too_large(1, 2),
    ];
    for failure in failures {
        bucket.set_fault(move |request, answer| if request.object == "current" { Err(failure()) } else { answer });
        bucket.take_log();
        let error = bucket.run(RemoteOptions::new().open()).unwrap_err();
        assert!(error.path().is_some_and(|path| path.ends_with("current")), "{error}");
        assert_eq!(bucket.take_log().len(), 3, "{error}");
    }
}

/// The JSON `current` of a bucket, written by hand; its crc32 by another implementation of CRC-32.
#[test]
fn current_of_a_bucket() {
    let (_store, bucket) = store();
    let name = "gen-0000000001-0123456789abcdef0123456789abcdef";
    for object in bucket.names().into_iter().filter(|object| object.starts_with("gen-")) {
        bucket.put(&object.replace("gen-0000000001", name), bucket.object(&object));
    }
    bucket.remove("gen-0000000001/");
    let id = "00112233445566778899aabbccddeeff";
    let head = format!(
        "{{\n\"format_version\": 1,\n\"generation\": \"{name}\",\n\"id\": \"{id}\",\n\"history\": [\n{{\"generation\": \
         \"{name}\", \"replaced\": null}}\n],\n"
    );
    bucket.put("current", format!("{head}\"crc32\": {}\n}}\n", crc32(head.as_bytes())));
    let reader = bucket.open();
    assert_eq!(reader.snapshot().generation(), Some(name));
    assert_eq!(bytes(bucket.run(reader.get(7))), expected(1, 7));
    // written again with another id, for the same generation
    let head = head.replace("0011", "1100");
    bucket.put("current", format!("{head}\"crc32\": {}\n}}\n", crc32(head.as_bytes())));
    assert!(!bucket.run(reader.refresh()).unwrap());
    assert_eq!(bucket.count(reader.refresh()), (false, 1));
    bucket.put("current", head);
    assert_eq!(bucket.run(reader.refresh()).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// CRC-32 (IEEE), bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}
