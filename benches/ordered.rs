//! Ordered reads: a range of 1,000 keys, and all keys in order, under the identity hash, murmur, and murmur with a key
//! file.
//!
//! ```sh
//! cd benches && cargo bench --bench ordered
//! ```
//!
//! 10 million pairs of 100 B, mapped and in memory; medians of rounds at different places.

use std::fs;
use std::path::Path;
use std::time::Instant;

use sharddb::{BuildOptions, Result, ShardDb, Snapshot};

const KEYS: u64 = 10_000_000;
const ROUNDS: u64 = 21;

fn main() -> Result<()> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ordered-{}", std::process::id()));
    println!(
        "| keys | 1,000 keys of a range, us | 1,000 pairs, us | again, us | all keys, M/s | key file, bits per key |\n|---|--:|--:|--:|--:|--:|"
    );
    for (name, spread, ordered) in
        [("dense, identity", false, false), ("random, murmur", true, false), ("random, murmur, `ordered`", true, true)]
    {
        let key = |number: u64| if spread { mix(number) } else { number };
        let mut loader = BuildOptions::new().ordered(ordered).durable(false).create(&directory)?;
        loader.extend((0..KEYS).map(|number| (key(number), [0x5a; 100])))?;
        loader.finish()?;
        // SAFETY: the store is this benchmark's own, and nobody edits it.
        #[expect(unsafe_code, reason = "mapping is the caller's promise to leave the files alone")]
        let snapshot = unsafe { ShardDb::open_mapped(&directory)? }.snapshot();
        measure(name, &snapshot, if spread { u64::MAX } else { KEYS })?;
        let _ = fs::remove_dir_all(&directory);
    }
    Ok(())
}

/// Mixes the bits of a number, as murmur does.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

fn measure(name: &str, snapshot: &Snapshot, end: u64) -> Result<()> {
    let width = end / KEYS * 1000;
    let starts: Vec<u64> = (0..ROUNDS).map(|round| end / (ROUNDS + 1) * (round + 1)).collect();
    let is_fast = snapshot.is_ordered() || end == KEYS;
    let rounds = if is_fast { &starts[..] } else { &starts[..3] }; // each reads all indexes
    let keys = median(rounds, |start| {
        let keys = snapshot.key_range(start..start + width).collect::<Result<Vec<u64>>>()?;
        assert!((800..1200).contains(&keys.len()), "{}", keys.len());
        Ok(())
    })?;
    let pairs = |start: u64| {
        let mut bytes = 0;
        for pair in snapshot.range(start..start + width) {
            bytes += pair?.value()?.len();
        }
        assert!(bytes > 80_000);
        Ok(())
    };
    let (first, again) = (median(rounds, pairs)?, median(rounds, pairs)?);
    let start = Instant::now();
    let mut count = 0;
    for key in snapshot.key_range(..) {
        key?;
        count += 1;
    }
    assert_eq!(count, KEYS);
    let rate = KEYS as f64 / start.elapsed().as_secs_f64() / 1e6;
    let bits = snapshot
        .stats()
        .key_file_bytes
        .map_or_else(String::new, |bytes| format!("{:.1}", 8.0 * bytes as f64 / KEYS as f64));
    println!("| {name} | {keys:.0} | {first:.0} | {again:.0} | {rate:.1} | {bits} |");
    Ok(())
}

/// The median time of a call in microseconds.
fn median(starts: &[u64], mut call: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    let mut times = Vec::new();
    for start in starts {
        let before = Instant::now();
        call(*start)?;
        times.push(before.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
