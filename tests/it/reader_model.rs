//! Every legal data set is read: sets in any order and placement return what was put into them, from every storage,
//! with every option that changes how they are read.

use std::fs;

use crate::common::{Storage, TempDir};
use crate::synthesis::{Listed, Synthesis};
use quickcheck::{Gen, QuickCheck};
use sharddb::{OpenOptions, Snapshot, VerifyReads};

#[test]
fn few_pairs() {
    QuickCheck::new().rng(Gen::new(40)).tests(100).quickcheck(reads_back as fn(Vec<(u64, Vec<u8>)>, u64));
}

/// Minishards of more keys than are scanned in place, which need checkpoints and sorted indexes.
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

fn reads_back(pairs: Vec<(u64, Vec<u8>)>, seed: u64) {
    let synthesis = Synthesis::new(&pairs, seed);
    let scratch = TempDir::new();
    let info = serde_json::json!({ "sharding": synthesis.sharding });
    fs::write(scratch.path().join("info"), info.to_string()).unwrap();
    for (name, bytes) in &synthesis.files {
        fs::write(scratch.path().join(name), bytes).unwrap();
    }
    for storage in Storage::ALL {
        for options in
            [&mut OpenOptions::new(), OpenOptions::new().cache_bytes(0).max_maps(1).verify_reads(VerifyReads::Always)]
        {
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
            preamble: entry.preamble().unwrap().to_vec(),
        })
        .collect();
    assert_eq!(listing, synthesis.listing);
    assert_eq!(snapshot.count().unwrap(), listing.len() as u64);
    let range: Vec<_> = snapshot.range(..).map(|pair| pair.unwrap().key()).collect();
    assert!(range.iter().eq(synthesis.pairs.keys()), "ascending, each key once, none that lookups do not find");
}
