//! Loads synthetic pairs and prints the cost: time, peak memory, bytes spilled.
//!
//! ```text
//! cargo run --release --example bulk_load -- STORE KEYS VALUE_BYTES MEMORY_MIB [ORDER] [SPEC]
//!   ORDER   random (default), sorted, reversed, same (one key, keep last)
//!   SPEC    planned (default), murmur, one-shard, one-minishard, gzip
//! ```
//!
//! Fails if the peak memory of the process exceeds the budget by more than 64 MiB.

use std::path::PathBuf;
use std::time::Instant;

use sharddb::spec::{Encoding, HashFunction};
use sharddb::{BuildOptions, OnDuplicate, Result, ShardingSpec};

/// The memory of a process beyond the loader's budget: code, stacks, the allocator's slack.
const ALLOWANCE_KIB: u64 = 64 << 10;

fn main() -> Result<std::process::ExitCode> {
    let mut args = std::env::args().skip(1);
    let mut next = |default: &str| args.next().unwrap_or_else(|| default.to_string());
    let store = PathBuf::from(next("target/bulk_load"));
    let mut number = |default: &str| next(default).parse::<u64>().unwrap_or(0);
    let (keys, value_bytes, memory) = (number("1000000"), number("100"), number("1024") << 20);
    let (order, spec) = (next("random"), next("planned"));

    let mut options = BuildOptions::new();
    options.memory(memory);
    let murmur =
        |minishard_bits, shard_bits| ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, minishard_bits, shard_bits);
    match spec.as_str() {
        "murmur" => drop(options.spec(murmur(18, 4)?)),
        "one-shard" => drop(options.spec(murmur(20, 0)?)),
        "one-minishard" => drop(options.spec(murmur(0, 0)?)),
        "gzip" => drop(options.spec(murmur(0, 0)?.with_minishard_index_encoding(Encoding::Gzip))),
        _ => {}
    }
    if order == "same" {
        options.on_duplicate(OnDuplicate::KeepLast);
    }

    let before = io_bytes();
    let start = Instant::now();
    let mut loader = options.create(&store)?;
    let mut value = vec![0; usize::try_from(value_bytes).unwrap_or(0)];
    for at in 0..keys {
        let key = match order.as_str() {
            "sorted" => at,
            "reversed" => keys - at,
            "same" => 42,
            _ => scramble(at),
        };
        let head = value.len().min(8);
        value[..head].copy_from_slice(&scramble(key).to_le_bytes()[..head]);
        loader.insert(key, &value)?;
    }
    let inserted = start.elapsed();
    let published = loader.finish()?;
    let elapsed = start.elapsed();

    let after = io_bytes();
    let input = keys * (16 + value_bytes);
    println!("{} keys in {} shards, {}", published.content.keys, published.content.shards, published.content.spec);
    println!("time        {elapsed:.1?}, of which inserting {inserted:.1?}");
    println!(
        "file bytes  {:.1} a key over the value",
        over(published.content.file_bytes - published.content.value_bytes, published.content.keys)
    );
    println!("peak memory {} MiB of {} MiB", peak_memory_kib() >> 10, memory >> 20);
    println!(
        "spilled     {:.2} x the input written, {:.2} x read",
        over(after.1 - before.1 - published.content.file_bytes, input),
        over(after.0 - before.0, input)
    );
    let within = peak_memory_kib() <= (memory >> 10) + ALLOWANCE_KIB;
    Ok(if within { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE })
}

/// A bijection of `u64`: distinct keys over the entire range (splitmix64).
fn scramble(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn over(bytes: u64, by: u64) -> f64 {
    bytes as f64 / by.max(1) as f64
}

/// Bytes that this process has read and written by system calls so far (Linux).
fn io_bytes() -> (u64, u64) {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    (field(&io, "rchar:"), field(&io, "wchar:"))
}

/// The peak memory of this process so far (Linux).
fn peak_memory_kib() -> u64 {
    field(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), "VmHWM:")
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}
