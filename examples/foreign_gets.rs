//! Looks up the keys of a data set in random order, on several threads, and prints the nanoseconds per get.
//!
//! ```text
//! cargo run --release --example foreign_gets -- SET THREADS
//! ```
//!
//! The values are those of `scripts/foreign.py`, in which each value begins with its key.

use std::path::Path;
use std::time::Instant;

use sharddb::{Result, ShardDb, Snapshot};

/// Timed gets per thread, after one get of every key.
const GETS: usize = 2_000_000;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let set = args.next().unwrap_or_else(|| "target/foreign".to_string());
    let threads = args.next().and_then(|number| number.parse().ok()).unwrap_or(1);
    let snapshot = open(Path::new(&set))?.snapshot();
    let keys = snapshot.keys().collect::<Result<Vec<u64>>>()?;
    keys.iter().try_for_each(|key| check(&snapshot, *key))?;

    let nanoseconds: f64 = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads)
            .map(|seed| {
                scope.spawn({
                    let (snapshot, keys) = (&snapshot, &keys);
                    move || run(snapshot, keys, seed)
                })
            })
            .collect();
        runs.into_iter()
            .map(|run| run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .sum::<Result<f64>>()
    })?;
    println!("{:.0}", nanoseconds / f64::from(threads));
    Ok(())
}

#[expect(unsafe_code, reason = "mapping is the caller's promise to leave the files alone")]
fn open(set: &Path) -> Result<ShardDb> {
    // SAFETY: no program edits the set while this one runs.
    unsafe { ShardDb::open_mapped(set) }
}

/// The nanoseconds per get.
fn run(snapshot: &Snapshot, keys: &[u64], seed: u32) -> Result<f64> {
    let mut state = u64::from(seed) + 1;
    let start = Instant::now();
    for _ in 0..GETS {
        // xorshift: cheap, and uniform over the keys
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = (u128::from(state) * keys.len() as u128) >> 64;
        check(snapshot, keys[usize::try_from(at).unwrap_or(0)])?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / GETS as f64)
}

fn check(snapshot: &Snapshot, key: u64) -> Result<()> {
    let value = snapshot.get(key)?;
    let head = value.as_ref().and_then(|value| value.first_chunk()).map(|bytes| u64::from_le_bytes(*bytes));
    assert_eq!(head, Some(key), "the value begins with its key");
    Ok(())
}
