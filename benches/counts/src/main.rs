//! One operation of ShardDb, many times, for `scripts/count_instructions.py`, which counts the instructions of `measured`,
//! or of the whole program if it is `load`.
//!
//! Usage: `counts load|hit|miss|dependent|batch|open DIRECTORY`. `load` builds the store; the others read it, mapped except
//! `open`, after one lookup of every key. Every answer is compared with the pairs, which are functions of their number.

use std::hint::black_box;
use std::ops::ControlFlow;

use sharddb::{BuildOptions, Result, ShardDb, Snapshot};

/// The pairs of the store, and the operations. `count_instructions.py` divides by it.
const PAIRS: u64 = 100_000;

const VALUE_LEN: usize = 100;

/// Keys per call of `get_each`.
const BATCH: usize = 1000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [operation, directory] = &arguments[..] else { panic!("expected OPERATION DIRECTORY, found {arguments:?}") };
    if operation == "load" {
        return load(directory);
    }
    let db = match operation.as_str() {
        "open" => ShardDb::open(directory)?,
        // SAFETY: nobody edits the files of this store, which `load` has built for this run.
        _ => unsafe { ShardDb::open_mapped(directory)? },
    };
    let snapshot = db.snapshot();
    // in another order than they were inserted
    let keys: Vec<u64> = (0..PAIRS).map(|number| key(number * 7919 % PAIRS)).collect();
    keys.iter().try_for_each(|key| snapshot.get(*key).map(drop))?;
    let found = match operation.as_str() {
        "hit" | "open" => measured(|| hits(&snapshot, &keys))?,
        "miss" => measured(|| misses(&snapshot, &keys))?,
        "dependent" => measured(|| dependent(&snapshot))?,
        "batch" => measured(|| batches(&snapshot, &keys))?,
        other => panic!("expected an operation, found {other}"),
    };
    let sum = match operation.as_str() {
        "miss" => PAIRS,
        "dependent" => (0..PAIRS).fold(key(0), |last, _| key(last % PAIRS)),
        _ => keys.iter().fold(0u64, |sum, key| sum.wrapping_add(*key)),
    };
    assert_eq!(found, sum, "{operation}");
    Ok(())
}

/// What is counted: a function of its own, by whose name callgrind begins and ends.
#[inline(never)]
fn measured<T>(operation: impl FnOnce() -> T) -> T {
    black_box(operation())
}

fn load(directory: &str) -> Result<()> {
    // one thread: the instructions of several depend on which of them waits
    let mut loader = BuildOptions::new().threads(1).create(directory)?;
    for number in 0..PAIRS {
        let mut value = [0x5a; VALUE_LEN];
        value[..8].copy_from_slice(&key(number).to_le_bytes());
        loader.insert(key(number), value)?;
    }
    loader.finish().map(drop)
}

fn hits(snapshot: &Snapshot, keys: &[u64]) -> Result<u64> {
    keys.iter().try_fold(0, |sum: u64, key| Ok(sum.wrapping_add(snapshot.get(*key)?.map_or(0, |value| head(&value)))))
}

/// The keys of pairs that do not exist.
fn misses(snapshot: &Snapshot, keys: &[u64]) -> Result<u64> {
    keys.iter().try_fold(0, |sum, key| Ok(sum + u64::from(snapshot.get(key ^ 1 << 63)?.is_none())))
}

/// Each key is computed from the value before.
fn dependent(snapshot: &Snapshot) -> Result<u64> {
    (0..PAIRS).try_fold(key(0), |last, _| Ok(snapshot.get(key(last % PAIRS))?.map_or(0, |value| head(&value))))
}

fn batches(snapshot: &Snapshot, keys: &[u64]) -> Result<u64> {
    let mut sum = 0u64;
    for keys in keys.chunks(BATCH) {
        let failed = snapshot.get_each(keys, |_, value| match value {
            Ok(value) => {
                sum = sum.wrapping_add(value.map_or(0, |value| head(&value)));
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        });
        failed.break_value().map_or(Ok(()), Err)?;
    }
    Ok(sum)
}

/// The key of a pair: a bijection without a pattern (splitmix64).
fn key(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The head of a value: its first 8 bytes as a number, which is its key.
fn head(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
