//! The preamble of a value is all bytes between it and the extent before it, and no byte of another value.

use crate::common::verify_both::VerifyBoth;
use sharddb_format::internal::ids::shard_number;
use std::io::Read;

use crate::common::{Storage, TempDir, data};
use sharddb::shard::Shard;
use sharddb::spec::{Encoding, HashFunction, ValueAlignment};
use sharddb::write::UpdateOptions;
use sharddb::{BuildOptions, ErrorKind, OpenOptions, ShardingSpec, Store, VerifyLevel, VerifyReads};

/// The bytes before an empty value are its preamble, and not also the preamble of a value that begins at the same offset. A
/// value nested in another one has no preamble.
#[test]
fn preambles_of_values_that_are_empty_or_nested() {
    let spec = ShardingSpec::new(HashFunction::Identity, 0, 0, 0).unwrap();
    let words: [u64; 14] = [
        0,
        96, // the shard index: one minishard index
        1,
        1,
        1,
        1, // ids 1, 2, 3, 4
        98,
        0,
        0u64.wrapping_sub(3),
        3, // starts 98 (after 2 bytes of preamble), 98, 99, 104 (after 2 bytes that no index names)
        0,
        4,
        2,
        1, // sizes: the third value is nested in the second
    ];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(b"<>1234()5");
    let shard = Shard::from_bytes(spec, shard_number(0), bytes);
    let rows: Vec<(u64, Vec<u8>, Vec<u8>)> = shard
        .iter()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.key(), entry.value().unwrap().to_vec(), entry.preamble().unwrap().to_vec()))
        .collect();
    let expected: [(u64, &[u8], &[u8]); 4] = [(1, b"", b"<>"), (2, b"1234", b""), (3, b"23", b""), (4, b"5", b"()")];
    assert_eq!(rows, expected.map(|(key, value, preamble)| (key, value.to_vec(), preamble.to_vec())));
}

/// An empty value and the next one begin at the same offset: each keeps its own preamble, and the checks agree.
#[test]
fn empty_values_among_others_keep_what_was_loaded_with_them() {
    let pairs: [(u64, &[u8], &[u8]); 7] = [
        (1, b"<1>", b""),
        (2, b"", b"two"),
        (3, b"", b""),
        (4, b"", b""),
        (5, b"<5>", b"five"),
        (6, b"<6>", b""),
        (7, b"<7>", b"seven"),
    ];
    for index in [Encoding::Raw, Encoding::Gzip] {
        for data in [Encoding::Raw, Encoding::Gzip] {
            let spec = ShardingSpec::new(HashFunction::Identity, 0, 0, 0).unwrap();
            let spec = spec.with_minishard_index_encoding(index).with_data_encoding(data);
            let scratch = TempDir::new();
            let mut loader = BuildOptions::new().spec(spec).create(scratch.path()).unwrap();
            for (key, preamble, value) in pairs {
                loader.insert_with_preamble(key, preamble, value).unwrap();
            }
            loader.finish().unwrap();
            for storage in Storage::ALL {
                let db = storage.open(OpenOptions::new().verify_reads(VerifyReads::Always), scratch.path()).unwrap();
                let snapshot = db.snapshot();
                for (key, preamble, value) in pairs {
                    let found = snapshot.get_preamble(key, preamble.len() as u64).unwrap().unwrap();
                    assert_eq!(found, preamble, "key {key} {storage:?}");
                    assert_eq!(snapshot.get(key).unwrap().unwrap(), value, "key {key} {storage:?}");
                }
                let report = snapshot.verify_both(VerifyLevel::Data).unwrap();
                assert_eq!(report.errors(), 0, "{:?}", report.findings());
            }
        }
    }
}

/// Where values are aligned, padding and preamble are one gap: a preamble that begins with a zero byte is refused, and every other
/// one stays what it is, however often its shard is copied.
#[test]
fn preambles_of_aligned_values_stay_as_they_are() {
    for index in [Encoding::Raw, Encoding::Gzip] {
        let spec = ShardingSpec::new(HashFunction::Identity, 0, 1, 0).unwrap().with_minishard_index_encoding(index);
        let scratch = TempDir::new();
        let (store, merged) = (scratch.path().join("store"), scratch.path().join("merged"));
        let mut options = BuildOptions::new();
        options.spec(spec).durable(false).value_alignment(ValueAlignment::SixtyFour);
        let mut loader = options.create(&store).unwrap();
        let preambles: [(u64, &[u8]); 6] =
            [(1, b""), (2, b"abc"), (3, b"a\0\0"), (4, &[7; 64]), (5, &[7; 63]), (6, &[8; 200])];
        for (key, preamble) in preambles {
            loader.insert_with_preamble(key, preamble, if key == 5 { b"" } else { b"value" }).unwrap();
        }
        for preamble in [&[0][..], &[0, 0, 0], b"\0abc"] {
            let refused = loader.insert_reader(9, preamble.len() as u64, 0, &mut &*preamble).unwrap_err();
            assert_eq!((refused.kind(), refused.key()), (ErrorKind::InvalidInput, Some(9)), "{refused}");
        }
        drop(loader);
        let mut loader = options.create(&store).unwrap();
        for (key, preamble) in preambles {
            loader.insert_reader(key, preamble.len() as u64, 1, &mut preamble.chain(&b"v"[..])).unwrap();
        }
        loader.finish().unwrap();
        for round in 0..40_usize {
            let mut updater = UpdateOptions::new().durable(false).open(&store).unwrap();
            updater.put(1, vec![b'x'; 1 + round % 2 * 40]).unwrap();
            let refused = updater.put_with_preamble(8, b"\0", b"").unwrap_err();
            assert_eq!((refused.kind(), refused.key()), (ErrorKind::InvalidInput, Some(8)), "{refused}");
            drop(updater);
            let mut updater = UpdateOptions::new().durable(false).open(&store).unwrap();
            updater.put(1, vec![b'x'; 1 + round % 2 * 40]).unwrap();
            updater.finish().unwrap();
        }
        let updated = OpenOptions::new().open(&store).unwrap().snapshot();
        options.merge(&merged, std::slice::from_ref(&updated)).unwrap().publish().unwrap();
        for place in [&store, &merged] {
            let snapshot = OpenOptions::new().load(place).unwrap().snapshot();
            let found: Vec<(u64, Vec<u8>)> = snapshot
                .iter()
                .map(Result::unwrap)
                .map(|entry| (entry.key(), entry.preamble().unwrap().to_vec()))
                .collect();
            let mut found = found;
            found.sort_unstable();
            assert_eq!(found, preambles.map(|(key, preamble)| (key, preamble.to_vec())));
            assert!(snapshot.verify_both(VerifyLevel::Data).unwrap().is_clean());
        }
    }
}

/// Version 0.1.0 wrote preambles that begin with zeros after padding, too. Such a gap is refused by what copies preambles.
#[test]
fn preambles_of_unknown_length_are_refused() {
    let scratch = TempDir::new();
    let store = scratch.path().join("store");
    Store::create(&store).unwrap().writer().unwrap().adopt(data("store-v1/store/gen-0000000001")).unwrap();
    let snapshot = OpenOptions::new().open(&store).unwrap().snapshot();
    let (mut known, mut refused) = (0, 0);
    for entry in snapshot.iter() {
        let entry = entry.unwrap();
        match entry.preamble() {
            Ok(_) => known += 1,
            Err(error) => {
                assert_eq!((error.kind(), error.key()), (ErrorKind::Unsupported, Some(entry.key())), "{error}");
                refused += 1;
            }
        }
    }
    assert!(known > 10 && refused > 10, "{known} {refused}");
    let mut updater = UpdateOptions::new().durable(false).open(&store).unwrap();
    (0..50).for_each(|key| updater.put(key, "new").unwrap());
    assert_eq!(updater.finish().unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(Store::open(&store).unwrap().generations().unwrap().len(), 1);
}
