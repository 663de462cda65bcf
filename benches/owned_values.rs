//! From which length on an owned value that shares its shard is faster than a copy, on one thread and on two.
//!
//! ```sh
//! cd benches && cargo bench --bench owned_values
//! ```
//!
//! Nanoseconds per key of mapped data in memory, medians of interleaved rounds; every value's first bytes are added up and the
//! sum is compared.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use sharddb::{BuildOptions, OwnedValue, Result, ShardDb, Snapshot};

const LENGTHS: [usize; 4] = [100, 1024, 4096, 16 << 10];
/// Bytes of all values of one length.
const BYTES: usize = 256 << 20;
const ROUNDS: usize = 7;

/// A way to get a value that outlives its lookup; returns the sum of what the values begin with.
type Way = fn(&Snapshot, &[u64]) -> u64;

const WAYS: [(&str, Way); 3] = [
    ("get, copied", |snapshot, keys| sum(keys, |key| snapshot.get(key).ok().flatten().map(|value| value.to_vec()))),
    ("get_owned", |snapshot, keys| sum(keys, |key| snapshot.get_owned(key).ok().flatten())),
    ("get_many_owned of 256", |snapshot, keys| {
        let batches = keys.chunks(256).flat_map(|keys| snapshot.get_many_owned(keys));
        batches.flatten().flatten().map(|value: OwnedValue| head(&value)).fold(0, u64::wrapping_add)
    }),
];

fn main() -> Result<()> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("owned-values-{}", std::process::id()));
    println!("| value | | one thread | two threads |\n|---|---|--:|--:|");
    for length in LENGTHS {
        let keys: Vec<u64> =
            (0..(BYTES / length) as u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let mut loader = BuildOptions::new().durable(false).create(&directory)?;
        let mut value = vec![0x5a; length];
        for key in &keys {
            value[..8].copy_from_slice(&key.to_le_bytes());
            loader.insert(*key, &value)?;
        }
        loader.finish()?;
        // SAFETY: the store is this benchmark's own, and nobody edits it.
        #[expect(unsafe_code, reason = "mapping is the caller's promise to leave the files alone")]
        let snapshot = unsafe { ShardDb::open_mapped(&directory)? }.snapshot();
        let mut times: [[Vec<Duration>; 2]; WAYS.len()] = Default::default();
        for round in 0..=ROUNDS {
            for ((_, way), times) in WAYS.iter().zip(&mut times) {
                for (threads, times) in (1..).zip(times) {
                    let time = measure(&snapshot, &keys, *way, threads);
                    if round > 0 {
                        times.push(time); // the first round warms up
                    }
                }
            }
        }
        for ((name, _), times) in WAYS.iter().zip(&mut times) {
            let [one, two] = times.each_mut().map(|times| median(times).as_nanos() as f64 / keys.len() as f64);
            println!("| {length} B | {name} | {one:.0} | {two:.0} |");
        }
        std::fs::remove_dir_all(&directory).ok();
    }
    Ok(())
}

/// The time for all keys on that many threads, each with its share.
fn measure(snapshot: &Snapshot, keys: &[u64], way: Way, threads: usize) -> Duration {
    let share = keys.len().div_ceil(threads);
    let start = Instant::now();
    let sums = thread::scope(|scope| {
        let threads: Vec<_> = keys.chunks(share).map(|keys| scope.spawn(move || way(snapshot, keys))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).fold(0, u64::wrapping_add)
    });
    let time = start.elapsed();
    assert_eq!(sums, keys.iter().copied().fold(0, u64::wrapping_add), "a value is wrong or missing");
    time
}

fn sum<V: std::ops::Deref<Target = [u8]>>(keys: &[u64], get: impl Fn(u64) -> Option<V>) -> u64 {
    keys.iter().filter_map(|key| get(*key)).map(|value| head(&value)).fold(0, u64::wrapping_add)
}

fn head(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
