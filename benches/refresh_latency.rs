//! Claim: a lookup never waits for a refresh, whatever is opened, swapped and unmapped meanwhile. Its only extra cost
//! is the page faults of fresh maps, unless the refresh populated them.
//!
//! Measures single lookups of random keys, warm and mapped, through [`ShardDb::get`] and [`Reader::get`]: alone, next
//! to a thread that only computes (the cost of any neighbour), and while another thread swaps two generations back and
//! forth as fast as it can, opening, mapping and unmapping all shards each time. Every answer is checked. Prints a
//! Markdown table. All figures include the clock, which has a row of its own: its high percentiles show the noise of
//! the machine. A page fault may have to wait while the kernel maps or unmaps for another thread.
//!
//! ```text
//! cd benches && cargo bench --bench refresh_latency              1,000,000 keys, some 40 seconds
//! cd benches && cargo bench --bench refresh_latency -- --quick   100,000 keys, a few seconds
//! ```

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sharddb::spec::HashFunction;
use sharddb::{BuildOptions, GenerationId, OpenOptions, Reader, Result, ShardDb, ShardingSpec, Store};

const VALUE_BYTES: usize = 100;

/// Upper bound on the lookups of one row, which bounds the memory for their times.
const MAX_SAMPLES: usize = 20_000_000;

struct Scale {
    keys: u64,
    duration: Duration,
}

impl Scale {
    fn from_arguments() -> Scale {
        if std::env::args().any(|argument| argument == "--quick") {
            Scale { keys: 100_000, duration: Duration::from_millis(400) }
        } else {
            Scale { keys: 1_000_000, duration: Duration::from_secs(5) }
        }
    }
}

fn main() -> Result<()> {
    let scale = Scale::from_arguments();
    let scratch = Scratch::new();
    let generations = build(&scratch.0, scale.keys)?;
    let db = open(&OpenOptions::new(), &scratch.0)?;

    println!("{} keys of {VALUE_BYTES} bytes in {} shards; times in ns\n", scale.keys, db.snapshot().stats().shards);
    println!("| lookup | meanwhile | lookups | p50 | p99 | p99.9 | max | swaps |");
    println!("|---|---|--:|--:|--:|--:|--:|--:|");
    measure(&scale, |_| Ok(())).print("none: the clock", "nothing", 0);
    let row = |db: &ShardDb, neighbour: Neighbour, meanwhile| {
        lookups().into_iter().try_for_each(|(name, lookup)| {
            let (latencies, swaps) = neighbour.beside(db, generations, || {
                let mut reader = db.reader();
                measure(&scale, |key| lookup(db, &mut reader, key))
            })?;
            latencies.print(name, meanwhile, swaps);
            Ok(())
        })
    };
    row(&db, Neighbour::None, "nothing")?;
    row(&db, Neighbour::Computes, "another thread computes")?;
    row(&db, Neighbour::Swaps, "generations are swapped")?;
    let populated = open(OpenOptions::new().populate(true), &scratch.0)?;
    row(&populated, Neighbour::Swaps, "the same with `populate`")
}

#[expect(unsafe_code, reason = "mapping needs the promise")]
fn open(options: &OpenOptions, store: &Path) -> Result<ShardDb> {
    // SAFETY: only this process knows the directory, and it edits nothing in it.
    unsafe { options.open_mapped(store) }
}

/// One lookup, with its answer checked.
type Lookup = fn(&ShardDb, &mut Reader, u64) -> Result<()>;

fn lookups() -> [(&'static str, Lookup); 2] {
    [
        ("`ShardDb::get`", |db, _, key| db.get(key).map(|found| check(key, found.as_deref()))),
        ("`Reader::get`", |_, reader, key| reader.get(key).map(|found| check(key, found.as_deref()))),
    ]
}

fn check(key: u64, found: Option<&[u8]>) {
    assert!(found.is_some_and(|value| value.starts_with(&key.to_le_bytes())), "key {key}: {found:?}");
}

/// Two generations with the same keys and different specifications; the second is current.
fn build(store: &Path, keys: u64) -> Result<[GenerationId; 2]> {
    let publish = |minishard_bits| {
        let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, minishard_bits, 5)?;
        let mut loader = BuildOptions::new().spec(spec).create(store)?;
        let mut value = [0x5a; VALUE_BYTES];
        for key in 0..keys {
            value[..8].copy_from_slice(&key.to_le_bytes());
            loader.insert(key, value)?;
        }
        loader.finish().map(|published| published.generation)
    };
    let bits = u8::try_from(keys.ilog2().saturating_sub(8)).unwrap_or(0); // 32 shards, 4 to 8 keys per minishard
    Ok([publish(bits + 1)?, publish(bits)?])
}

#[derive(Clone, Copy)]
enum Neighbour {
    None,
    Computes,
    Swaps,
}

impl Neighbour {
    /// Runs `work` next to this neighbour; also returns the number of swaps meanwhile.
    fn beside<T>(self, db: &ShardDb, generations: [GenerationId; 2], work: impl FnOnce() -> T) -> Result<(T, u64)> {
        let (done, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
        let run = || -> Result<()> {
            let store = Store::open(db.path())?;
            for to in generations.into_iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                match self {
                    Self::None => break,
                    Self::Computes => compute(),
                    Self::Swaps => {
                        store.writer()?.rollback(Some(to))?;
                        swaps.fetch_add(u64::from(db.refresh()?.is_some()), Ordering::Relaxed);
                    }
                }
            }
            Ok(())
        };
        let (result, neighbour) = thread::scope(|scope| {
            let neighbour = scope.spawn(run);
            let result = work();
            done.store(true, Ordering::Relaxed);
            (result, neighbour.join())
        });
        neighbour.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((result, swaps.into_inner()))
    }
}

fn compute() {
    black_box((0..100_000).fold(1, |product: u64, n| product.wrapping_mul(n | 1)));
}

/// The times of many lookups, ascending, in nanoseconds.
struct Latencies(Vec<u32>);

/// Looks up random keys for the time of the scale.
fn measure(scale: &Scale, mut lookup: impl FnMut(u64) -> Result<()>) -> Latencies {
    let mut times = Vec::with_capacity(MAX_SAMPLES);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let begin = Instant::now();
    while times.len() < MAX_SAMPLES && begin.elapsed() < scale.duration {
        for _ in 0..1000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let key = state % scale.keys;
            let start = Instant::now();
            let answer = lookup(key);
            let time = start.elapsed();
            assert!(answer.is_ok(), "key {key}: {answer:?}");
            times.push(u32::try_from(time.as_nanos()).unwrap_or(u32::MAX));
        }
    }
    times.sort_unstable();
    Latencies(times)
}

impl Latencies {
    fn at(&self, per_mille: usize) -> u32 {
        let last = self.0.len().saturating_sub(1);
        self.0.get(last * per_mille / 1000).copied().unwrap_or_default()
    }

    fn print(&self, lookup: &str, meanwhile: &str, swaps: u64) {
        let [p50, p99, p999, max] = [500, 990, 999, 1000].map(|per_mille| self.at(per_mille));
        println!("| {lookup} | {meanwhile} | {} | {p50} | {p99} | {p999} | {max} | {swaps} |", self.0.len());
    }
}

/// A directory for the store, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        Scratch(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("refresh-latency-{}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
