//! Claim: at one swap a second, the p99 of `ShardDb::get` stays within twice that without swaps.
//!
//! Measures single lookups of random keys, warm and mapped, while a watch follows a store whose current generation
//! changes once a second. Every answer is checked. Prints a Markdown table; `ratio` is p99 beside that of the first row.
//!
//! - `as built`: the new generation has files of its own. Its first lookups pay for page faults and verification.
//! - `read before the swap`: the hook `before_swap` has read and verified all of it.
//! - `1 of 64 shards is new`: as after an update; the others are hard links to the same files, which the refresh takes
//!   over with their maps and what is verified.
//!
//! ```text
//! cd benches && cargo bench --bench swaps              10,000,000 keys in 64 shards, some two minutes, 5 GiB of disk
//! cd benches && cargo bench --bench swaps -- --quick   500,000 keys, some 15 seconds
//! ```

mod common;

use std::error::Error;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Scratch, head, scramble, value};
use sharddb::read::WatchOptions;
use sharddb::spec::HashFunction;
use sharddb::{BuildOptions, GenerationId, OpenOptions, Result, ShardDb, ShardingSpec, Snapshot, Store};

/// The time between two swaps.
const SECOND: Duration = Duration::from_secs(1);

/// How often the watch checks the store.
const INTERVAL: Duration = Duration::from_millis(50);

const SHARD_BITS: u8 = 6;

/// Reads and verifies all pairs.
fn read_all(db: &Snapshot) -> Result<()> {
    let scanned = db.scan(|pair| pair.map_or_else(ControlFlow::Break, |_| ControlFlow::Continue(())));
    scanned.break_value().map_or(Ok(()), Err)
}

struct Scale {
    keys: u64,
    duration: Duration,
}

fn main() -> Result<(), Box<dyn Error>> {
    let scale = if std::env::args().any(|argument| argument == "--quick") {
        Scale { keys: 500_000, duration: Duration::from_secs(3) }
    } else {
        Scale { keys: 10_000_000, duration: Duration::from_secs(20) }
    };
    let scratch = Scratch::new("swaps");
    let path = scratch.path();
    let [first, second, linked] = [publish(path, scale.keys)?, publish(path, scale.keys)?, publish(path, scale.keys)?];
    link_all_but_one(path, first, linked)?;

    println!("{} keys of {} bytes in {} shards; times in ns\n", scale.keys, common::VALUE_LEN, 1 << SHARD_BITS);
    println!("| meanwhile | lookups | p50 | p99 | p99.9 | max | swaps | ratio |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    let reads_all = |new: &Snapshot| {
        read_all(new)?;
        new.warm()?.wait();
        Ok(())
    };
    let plain = || WatchOptions::new().interval(INTERVAL).clone();
    let mut baseline = None;
    for (name, to, options) in [
        ("nothing", None, plain()),
        ("swaps, as built", Some(second), plain()),
        ("swaps, read before the swap", Some(second), plain().before_swap(reads_all).clone()),
        ("swaps, 1 of 64 shards is new", Some(linked), plain()),
    ] {
        let (times, swaps) = run(&scale, path, first, to, &options)?;
        let p99 = at(&times, 990);
        let ratio = f64::from(p99) / f64::from(*baseline.get_or_insert(p99));
        let [p50, p999, max] = [500, 999, 1000].map(|per_mille| at(&times, per_mille));
        println!("| {name} | {} | {p50} | {p99} | {p999} | {max} | {swaps} | {ratio:.2} |", times.len());
    }
    Ok(())
}

/// Publishes a generation with the keys from 0 on. All have the same bytes.
fn publish(store: &Path, keys: u64) -> Result<GenerationId> {
    let minishard_bits = u8::try_from(keys.ilog2().saturating_sub(u32::from(SHARD_BITS) + 3)).unwrap_or(0);
    let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, minishard_bits, SHARD_BITS)?;
    let mut loader = BuildOptions::new().spec(spec).create(store)?;
    for key in 0..keys {
        loader.insert(key, value(key))?;
    }
    loader.finish().map(|published| published.generation)
}

/// Replaces all shard files of a generation except the first by hard links to those of another one.
fn link_all_but_one(store: &Path, from: GenerationId, to: GenerationId) -> io::Result<()> {
    let [from, to] = [from, to].map(|id| store.join(id.to_string()));
    let names = fs::read_dir(&to)?.map(|entry| entry.map(|entry| entry.file_name()));
    let mut shards = names.collect::<io::Result<Vec<_>>>()?;
    shards.retain(|name| name.to_string_lossy().ends_with(".shard"));
    shards.sort();
    for name in shards.iter().skip(1) {
        fs::remove_file(to.join(name))?;
        fs::hard_link(from.join(name), to.join(name))?;
    }
    Ok(())
}

/// Measures lookups while the current generation changes between two once a second. Returns the times, ascending, and
/// the number of swaps.
fn run(
    scale: &Scale,
    store: &Path,
    from: GenerationId,
    to: Option<GenerationId>,
    options: &WatchOptions,
) -> Result<(Vec<u32>, u64)> {
    Store::open(store)?.writer()?.rollback(Some(from))?;
    let db = open(store)?;
    read_all(&db.snapshot())?; // warm
    (0..scale.keys).try_for_each(|key| db.contains(key).map(drop))?;
    let watch = options.start([db.clone()])?;
    let done = AtomicBool::new(false);
    let times = thread::scope(|scope| {
        let publisher = scope.spawn(|| -> Result<()> {
            for id in to.into_iter().flat_map(|to| [to, from]).cycle() {
                let next = Instant::now() + SECOND;
                while Instant::now() < next {
                    if done.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    thread::sleep(Duration::from_millis(5));
                }
                Store::open(store)?.writer()?.rollback(Some(id))?;
            }
            Ok(())
        });
        let times = measure(scale, &db);
        done.store(true, Ordering::Relaxed);
        publisher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map(|()| times)
    })?;
    drop(watch);
    Ok((times, db.stats().swaps))
}

#[expect(unsafe_code, reason = "mapping needs the promise")]
fn open(store: &Path) -> Result<ShardDb> {
    // SAFETY: only this process knows the directory, and it edits no file in it.
    unsafe { OpenOptions::new().open_mapped(store) }
}

/// Looks up random keys for the time of the scale. Returns the times in nanoseconds, ascending.
fn measure(scale: &Scale, db: &ShardDb) -> Vec<u32> {
    let mut times = Vec::with_capacity(64 << 20);
    let begin = Instant::now();
    let mut number = 0;
    while begin.elapsed() < scale.duration && times.len() + 1000 < times.capacity() {
        for _ in 0..1000 {
            number += 1;
            let key = scramble(number) % scale.keys;
            let start = Instant::now();
            let answer = db.get(key);
            let time = start.elapsed();
            assert!(matches!(&answer, Ok(Some(found)) if head(found) == scramble(key)), "key {key}: {answer:?}");
            times.push(u32::try_from(time.as_nanos()).unwrap_or(u32::MAX));
        }
    }
    times.sort_unstable();
    times
}

fn at(times: &[u32], per_mille: usize) -> u32 {
    let last = times.len().saturating_sub(1);
    times.get(last * per_mille / 1000).copied().unwrap_or_default()
}
