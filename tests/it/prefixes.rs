//! The prefix of a value is all bytes between it and the extent before it, and no byte of another value.

use crate::common::verify_both::VerifyBoth;
use crate::common::{Scratch, Storage};
use sharddb::shard::Shard;
use sharddb::spec::{Encoding, HashFunction, ShardNumber};
use sharddb::{BulkLoader, OpenOptions, ShardingSpec, VerifyLevel, VerifyReads};

/// The bytes before an empty value are its prefix, and not also the prefix of a value that begins at the same offset. A
/// value nested in another one has no prefix.
#[test]
fn prefixes_of_values_that_are_empty_or_nested() {
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
        3, // starts 98 (after 2 bytes of prefix), 98, 99, 104 (after 2 bytes that no index names)
        0,
        4,
        2,
        1, // sizes: the third value is nested in the second
    ];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(b"<>1234()5");
    let shard = Shard::from_bytes(spec, ShardNumber(0), bytes);
    let rows: Vec<(u64, Vec<u8>, Vec<u8>)> = shard
        .iter()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.key(), entry.value().unwrap().to_vec(), entry.prefix().unwrap().to_vec()))
        .collect();
    let expected: [(u64, &[u8], &[u8]); 4] = [(1, b"", b"<>"), (2, b"1234", b""), (3, b"23", b""), (4, b"5", b"()")];
    assert_eq!(rows, expected.map(|(key, value, prefix)| (key, value.to_vec(), prefix.to_vec())));
}

/// An empty value and the next one begin at the same offset: each keeps its own prefix, and the checks agree.
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
            let scratch = Scratch::new();
            let mut loader = BulkLoader::options().spec(spec).create(scratch.path()).unwrap();
            for (key, prefix, value) in pairs {
                loader.insert_with_prefix(key, prefix, value).unwrap();
            }
            loader.finish().unwrap();
            for storage in Storage::ALL {
                let db = storage.open(OpenOptions::new().verify_reads(VerifyReads::Always), scratch.path()).unwrap();
                let snapshot = db.snapshot();
                for (key, prefix, value) in pairs {
                    let found = snapshot.get_prefix(key, prefix.len() as u64).unwrap().unwrap();
                    assert_eq!(found, prefix, "key {key} {storage:?}");
                    assert_eq!(snapshot.get(key).unwrap().unwrap(), value, "key {key} {storage:?}");
                }
                let report = snapshot.verify_both(VerifyLevel::Data).unwrap();
                assert_eq!(report.errors(), 0, "{:?}", report.findings());
            }
        }
    }
}
