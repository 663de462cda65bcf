//! Whatever is legal is read: data sets in no particular order or place give what was put into them, from every storage,
//! with every option that changes how they are read and not what.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
#[path = "common/synthesis.rs"]
mod synthesis;

use std::fs;

use common::{Scratch, Storage};
use quickcheck::{Gen, QuickCheck};
use sharddb::{HashFunction, OpenOptions, Shard, ShardNumber, ShardingSpec, Snapshot};
use synthesis::{Listed, Synthesis};

#[test]
fn few_pairs() {
    QuickCheck::new().rng(Gen::new(40)).tests(100).quickcheck(reads_back as fn(Vec<(u64, Vec<u8>)>, u64));
}

/// Minishards of more keys than are scanned without help: checkpoints and sorted indexes come in.
#[test]
fn many_pairs() {
    fn property(first: u64, step: u8, value: Vec<u8>, seed: u64) {
        let pairs: Vec<_> = (0..300u64)
            .map(|at| {
                (
                    first.wrapping_add(at * u64::from(step)),
                    value.iter().map(|byte| byte ^ at.to_le_bytes()[0]).collect(),
                )
            })
            .collect();
        reads_back(pairs, seed);
    }
    QuickCheck::new().tests(8).quickcheck(property as fn(u64, u8, Vec<u8>, u64));
}

/// What precedes an empty value is its prefix, and not again that of a value that begins where it stands; a value
/// within another has none.
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
        3, // starts 98 (behind 2 bytes of prefix), 98, 99, 104 (behind 2 of nobody's)
        0,
        4,
        2,
        1, // sizes: the third lies within the second
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

fn reads_back(pairs: Vec<(u64, Vec<u8>)>, seed: u64) {
    let synthesis = Synthesis::new(&pairs, seed);
    let scratch = Scratch::new();
    let info = serde_json::json!({ "sharding": synthesis.sharding });
    fs::write(scratch.path().join("info"), info.to_string()).unwrap();
    for (name, bytes) in &synthesis.files {
        fs::write(scratch.path().join(name), bytes).unwrap();
    }
    for storage in Storage::ALL {
        for options in [&mut OpenOptions::new(), OpenOptions::new().cache_bytes(0).max_maps(1).verify_on_read(true)] {
            let snapshot = storage.open(options, scratch.path()).unwrap().snapshot();
            lookups_agree(&snapshot, &synthesis);
            listings_agree(&snapshot, &synthesis);
        }
    }
}

fn lookups_agree(snapshot: &Snapshot, synthesis: &Synthesis) {
    let near = |key: u64| [key, key.wrapping_add(1)];
    let keys: Vec<u64> = synthesis.listing.iter().flat_map(|row| near(row.id)).chain([0, u64::MAX]).collect();
    for (key, value) in keys.iter().zip(snapshot.get_many(&keys)) {
        let expected = synthesis.pairs.get(key).map(Vec::as_slice);
        assert_eq!(value.unwrap().as_deref(), expected, "key {key} of many");
        assert_eq!(snapshot.get(*key).unwrap().as_deref(), expected, "key {key}");
        assert_eq!(snapshot.contains(*key).unwrap(), expected.is_some(), "key {key}");
    }
}

fn listings_agree(snapshot: &Snapshot, synthesis: &Synthesis) {
    let listing: Vec<Listed> = snapshot
        .iter()
        .map(|entry| entry.unwrap())
        .map(|entry| Listed {
            id: entry.key(),
            value: entry.value().unwrap().to_vec(),
            prefix: entry.prefix().unwrap().to_vec(),
        })
        .collect();
    assert_eq!(listing, synthesis.listing);
    assert_eq!(snapshot.count().unwrap(), listing.len() as u64);
    let range: Vec<_> = snapshot.range(..).map(|pair| pair.unwrap().key()).collect();
    assert!(range.iter().eq(synthesis.pairs.keys()), "ascending, each key once, none that lookups do not find");
}
