//! The minishard table: read as a whole or in groups of blocks, and never believed without the checks of the minishards.

use std::collections::BTreeMap;
use std::path::Path;

use crate::bucket::Bucket;
use crate::stores::{absent, build, bytes, keys, options, spec, value};
use sharddb::spec::Encoding;
use sharddb::verify::FindingKind;
use sharddb::{Error, ErrorKind, Profile, ShardDb, VerifyLevel};
use sharddb_remote::{RemoteOptions, RemoteReader};

const TABLE: &str = "gen-0000000001/minishards";

fn by_groups(bucket: &Bucket) -> RemoteReader {
    bucket.run(RemoteOptions::new().whole_table_bytes(0).open()).unwrap()
}

/// Compares lookups, one by one and as a batch, and a scan with the pairs of the store.
fn check(bucket: &Bucket, reader: &RemoteReader, count: u64) {
    let some: Vec<u64> = keys(count).step_by(211).chain(absent(count / 2).step_by(199)).collect();
    let batch = bucket.run(reader.get_many(&some)).unwrap();
    for (key, of_batch) in some.into_iter().zip(batch) {
        let expected = (key % 3 != 2).then(|| value(key, 20));
        assert_eq!(bytes(of_batch), expected, "key {key}");
        assert_eq!(bytes(bucket.run(reader.get(key))), expected, "key {key}");
    }
    let mut scan = reader.snapshot().scan();
    let mut pairs = BTreeMap::new();
    while let Some(batch) = bucket.run(scan.next_batch()).unwrap() {
        pairs.extend(batch.into_iter().map(|(key, value)| (key, value.to_vec())));
    }
    assert!(pairs.into_iter().eq(keys(count).map(|key| (key, value(key, 20)))));
}

/// The first lookup of a group takes one more request, and neighbouring shards share it.
#[test]
fn a_long_table_is_read_in_groups() {
    let store = build(options().spec(spec(8, 6, Encoding::Raw)), 60_000, 20);
    let bucket = Bucket::of(store.path());
    let table = bucket.object(TABLE).len() as u64;
    assert!(table < 64 << 10, "one group: {table}");
    let reader = by_groups(&bucket);
    let opened = reader.stats().bytes;
    let some: Vec<u64> = keys(60_000).step_by(1009).collect();
    let counts: Vec<usize> = some.iter().map(|key| bucket.count(reader.get(*key)).1).collect();
    assert_eq!((counts[0], counts[1..].iter().max()), (2, Some(&1)), "{counts:?}");
    check(&bucket, &by_groups(&bucket), 60_000);
    let whole = bucket.open();
    assert!(whole.stats().bytes > opened, "the whole table at open");
    check(&bucket, &whole, 60_000);
}

/// Of a longer table the beginning is read at open: no block is lost at its end, nor the values before a gzip index.
#[test]
fn a_table_is_in_memory_up_to_any_byte() {
    for index in [Encoding::Raw, Encoding::Gzip] {
        let store = build(options().spec(spec(9, 2, index)), 8000, 20);
        let bucket = Bucket::of(store.path());
        let len = bucket.object(TABLE).len() as u64;
        for bytes in (1..len + 600).step_by(usize::try_from(len / 12).unwrap()) {
            let reader = bucket.run(RemoteOptions::new().whole_table_bytes(bytes).open()).unwrap();
            check(&bucket, &reader, 8000);
            let last = bucket.run(RemoteOptions::new().whole_table_bytes(bytes).open()).unwrap();
            let counts = keys(8000).step_by(397).map(|key| bucket.count(last.get(key)).1);
            assert!(counts.sum::<usize>() <= if bytes < len { 22 } else { 21 }, "{bytes} of {len} bytes");
        }
    }
}

#[test]
fn a_batch_reads_the_groups_in_a_round_of_their_own() {
    let store = build(options().profile(Profile::Local), 60_000, 20);
    let bucket = Bucket::of(store.path());
    let reader = by_groups(&bucket);
    let some: Vec<u64> = keys(60_000).step_by(97).collect();
    let (results, cost) = bucket.run_counted(reader.get_many(&some));
    assert_eq!(cost.rounds, 2);
    for (key, result) in some.into_iter().zip(results.unwrap()) {
        assert_eq!(bytes(result), Some(value(key, 20)));
    }
}

/// Blocks with wrong bytes: the shard index gives the answers, whichever part of the table is damaged.
#[test]
fn damaged_blocks_cost_requests_and_no_answers() {
    let store = build(options().spec(spec(8, 2, Encoding::Raw)), 8000, 20);
    let bucket = Bucket::of(store.path());
    let intact = bucket.object(TABLE);
    for at in (0..intact.len()).step_by(61) {
        let mut damaged = intact.clone();
        damaged[at] ^= 0x10;
        bucket.put(TABLE, damaged);
        check(&bucket, &by_groups(&bucket), 8000);
        check(&bucket, &bucket.open(), 8000);
    }
}

/// A round for the table, one for the shard indexes of all minishards that it does not state, one for the minishards, and
/// one for the values of those by the shard index, which does not state where the values end.
#[test]
fn a_walk_with_damaged_blocks_takes_one_more_round() {
    let store = build(options().spec(spec(8, 2, Encoding::Raw)), 8000, 20);
    let bucket = Bucket::of(store.path());
    let intact = bucket.object(TABLE);
    let head = 16 + 4 * 40 + 4;
    for at in [head, intact.len() / 2] {
        let mut damaged = intact.clone();
        damaged[at] ^= 1;
        bucket.put(TABLE, damaged);
        let (keys, cost) = bucket.run_counted(by_groups(&bucket).snapshot().keys().next_batch());
        assert_eq!((keys.unwrap().map(|keys| keys.len()), cost.rounds), (Some(8000), 3), "byte {at}: {cost:?}");
        let (pairs, cost) = bucket.run_counted(by_groups(&bucket).snapshot().scan().next_batch());
        assert_eq!((pairs.unwrap().map(|pairs| pairs.len()), cost.rounds), (Some(8000), 4), "byte {at}: {cost:?}");
    }
}

/// All minishards are damaged: a round for them, and one for the shard index, which states the same place of the first.
#[test]
fn the_first_damaged_minishard_ends_a_walk() {
    let store = build(options().spec(spec(9, 0, Encoding::Raw)), 8000, 20);
    let bucket = Bucket::of(store.path());
    let name = "gen-0000000001/0.shard";
    let mut shard = bucket.object(name);
    shard[16 << 9..].iter_mut().for_each(|byte| *byte ^= 1);
    bucket.put(name, shard);
    let reader = bucket.run(RemoteOptions::new().cache_bytes(0).open()).unwrap();
    let (keys, cost) = bucket.run_counted(reader.snapshot().keys().next_batch());
    assert_eq!((keys.unwrap_err().kind(), cost.rounds), (ErrorKind::Corrupt, 2), "{cost:?}");
}

/// Returns the table with the places of all minishards moved by `units`, with matching checksums. It has two blocks.
fn with_wrong_places(bucket: &Bucket, units: u64) -> Vec<u8> {
    let mut table = bucket.object(TABLE);
    let manifest: serde_json::Value = serde_json::from_slice(&bucket.object("gen-0000000001/manifest.json")).unwrap();
    let shard_index_crc32 = manifest["shards"][0][4].as_u64().unwrap() as u32;
    // header 16, section 40: shard, offset, bias, widths; crc32
    let blocks = (table.len() - 16 - 40 - 4) / 2;
    for block in 0..2 {
        let start = 60 + block * blocks;
        for word in [start, start + 8] {
            let moved = u64::from_le_bytes(table[word..word + 8].try_into().unwrap()) + units;
            table[word..word + 8].copy_from_slice(&moved.to_le_bytes());
        }
        let end = start + blocks - 4;
        let place = [&0u64.to_le_bytes()[..], &(block as u64).to_le_bytes(), &shard_index_crc32.to_le_bytes()];
        let crc32 = crc32fast::hash(&[&place.concat()[..], &table[start..end]].concat());
        table[end..end + 4].copy_from_slice(&crc32.to_le_bytes());
    }
    table
}

fn assert_names_the_table(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(error.path(), Some(&*Path::new("s3://bucket/store").join(TABLE)), "{error}");
    assert!(error.message().contains("delete the file `minishards`"), "{error}");
}

/// A table that states wrong places with matching checksums, within the shard and outside of it: the checks of the minishards
/// find the first, and no read gives an answer. The advice of the message works: without the table every key is found.
#[test]
fn a_wrong_table_with_right_checksums_is_an_error_that_names_it() {
    for (index, units) in [(Encoding::Raw, 3), (Encoding::Gzip, 3), (Encoding::Raw, 1 << 40), (Encoding::Gzip, 1 << 40)]
    {
        let store = build(options().spec(spec(9, 0, index)), 8000, 20);
        let bucket = Bucket::of(store.path());
        let table = with_wrong_places(&bucket, units);
        bucket.put(TABLE, &table[..]);
        for whole_table_bytes in [0, 1 << 20] {
            let mut options = RemoteOptions::new();
            options.root_name("s3://bucket/store").whole_table_bytes(whole_table_bytes);
            let reader = bucket.run(options.open()).unwrap();
            let some: Vec<u64> = keys(8000).step_by(211).chain(absent(4000).step_by(199)).collect();
            for (key, of_batch) in some.iter().zip(bucket.run(reader.get_many(&some)).unwrap()) {
                for error in [bucket.run(reader.get(*key)).unwrap_err(), of_batch.unwrap_err()] {
                    assert_names_the_table(&error);
                    assert_eq!(error.key(), Some(*key));
                }
            }
            assert_names_the_table(&bucket.run(reader.snapshot().scan().next_batch()).unwrap_err());
        }
        let reader = bucket.open();
        let requests = if units == 3 { 2 } else { 0 };
        assert_eq!(bucket.run_counted(reader.get(3)).1.requests, requests, "the wrong place, the shard index");

        let path = store.path().join(TABLE);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, table).unwrap();
        let report = ShardDb::open(store.path()).unwrap().snapshot().verify(VerifyLevel::Index).unwrap();
        assert!(report.findings().iter().any(|finding| finding.kind() == FindingKind::WrongMinishardTable), "{report}");

        bucket.remove(TABLE);
        for reader in [bucket.open(), by_groups(&bucket)] {
            check(&bucket, &reader, 8000);
        }
    }
}
