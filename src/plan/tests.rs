//! What a plan predicts is what a store then has: within 10 %, for keys of every shape and both hashes.

use std::collections::BTreeMap;

use super::*;
use crate::HashFunction;

const VALUES: [fn(u64) -> u64; 2] = [|_| 100, |key| 20 + murmur(!key) % 200];

fn murmur(number: u64) -> u64 {
    HashFunction::MurmurHash3X86_128.hash(number)
}

/// Bits of the three coordinates in turn, each as long as its size needs them.
fn morton(size: [u64; 3]) -> impl Iterator<Item = u64> {
    let bits = size.map(|size| u64::BITS - (size - 1).leading_zeros());
    let code = move |position: [u64; 3]| {
        let (mut code, mut at) = (0, 0);
        for bit in 0..20 {
            for axis in 0..3 {
                if bit < bits[axis] {
                    code |= (position[axis] >> bit & 1) << at;
                    at += 1;
                }
            }
        }
        code
    };
    (0..size[0]).flat_map(move |x| (0..size[1]).flat_map(move |y| (0..size[2]).map(move |z| code([x, y, z]))))
}

/// Runs of 1 to 200 consecutive numbers at random bases of 48 bits.
fn clustered() -> impl Iterator<Item = u64> {
    (0_u64..).flat_map(|run| (0..1 + murmur(run) % 200).map(move |i| (murmur(run ^ 1 << 40) >> 16) + i))
}

fn key_sets(keys: u64) -> Vec<(&'static str, Vec<u64>)> {
    let count = usize::try_from(keys).unwrap();
    let grid = if keys >= 10_000_000 { [1000, 1000, 50] } else { [100, keys / 5000, 50] };
    vec![
        ("dense", (0..keys).collect()),
        ("multiples of 1024", (0..keys).map(|i| i * 1024).collect()),
        ("morton", morton(grid).collect()),
        ("random", (0..keys).map(|i| murmur(i) >> 8).collect()),
        ("clustered", clustered().take(count).collect()),
    ]
}

#[derive(Debug)]
struct Counted {
    median: f64,
    largest: f64,
    skew: f64,
    index: f64,
    files: f64,
    mean: f64,
}

fn gzip_len(keys: &[u64], start: u64, len: fn(u64) -> u64) -> u64 {
    let mut index = Vec::new();
    let mut last = 0;
    for key in keys {
        index.extend_from_slice(&(key - last).to_le_bytes());
        last = *key;
    }
    for i in 0..keys.len() {
        index.extend_from_slice(&(if i == 0 { start } else { 0 }).to_le_bytes());
    }
    for key in keys {
        index.extend_from_slice(&len(*key).to_le_bytes());
    }
    let mut out = vec![0; zlib_rs::compress_bound(index.len())];
    zlib_rs::compress_slice(&mut out, &index, zlib_rs::DeflateConfig::new(6)).0.len() as u64 + 12
}

/// Lays out a store as the writer does, but for the bytes themselves.
fn count(spec: ShardingSpec, keys: &[u64], len: fn(u64) -> u64) -> Counted {
    let mut placed: Vec<(u64, u64)> = keys.iter().map(|key| (spec.place(*key), *key)).collect();
    placed.sort_unstable();
    let mut shards: BTreeMap<u64, u64> = BTreeMap::new();
    let mut fills = Vec::new();
    let mut value_bytes = 0;
    for minishard in placed.chunk_by(|a, b| a.0 == b.0) {
        let keys: Vec<u64> = minishard.iter().map(|pair| pair.1).collect();
        let end = shards.entry(spec.locate(keys[0]).shard.0).or_insert(spec.shard_index_len());
        *end = end.next_multiple_of(8);
        let rows = keys.len() as u64;
        fills.push(rows);
        let values: u64 = keys.iter().map(|key| len(*key)).sum();
        value_bytes += values;
        let index = match spec.minishard_index_encoding() {
            Encoding::Raw => 24 * rows,
            Encoding::Gzip => gzip_len(&keys, *end, len),
        };
        *end += index + 4 + 4 * rows + values;
    }
    fills.sort_unstable();
    let total: u64 = shards.values().sum();
    Counted {
        median: fills[fills.len() / 2] as f64,
        largest: *fills.last().unwrap() as f64,
        skew: *shards.values().max().unwrap() as f64 * shards.len() as f64 / total as f64,
        index: (total - value_bytes) as f64 / keys.len() as f64,
        files: shards.len() as f64,
        mean: keys.len() as f64 / fills.len() as f64,
    }
}

fn stats(keys: &[u64], len: fn(u64) -> u64) -> KeyStats {
    let mut stats = KeyStats::new();
    keys.iter().for_each(|key| stats.insert(*key, 0, len(*key)));
    stats
}

#[test]
#[ignore]
fn explore() {
    for n in [300_000, 3_000_000, 10_000_000] {
        for (name, keys) in key_sets(n) {
            let len = VALUES[0];
            let t = std::time::Instant::now();
            let stats = stats(&keys, len);
            println!("== {name} {} insert {:?} ns", keys.len(), t.elapsed().as_nanos() / keys.len() as u128);
            for profile in [Profile::Local, Profile::Remote] {
                let t = std::time::Instant::now();
                let plan = Plan::new(&stats, profile);
                println!("{plan}  [{:?}]", t.elapsed());
                let bits = plan.spec().minishard_bits() + plan.spec().shard_bits();
                let sb = std::env::var("SB").map(|s| s.parse().unwrap()).unwrap_or(3u8).min(bits);
                for (hash, preshift) in [
                    (HashFunction::MurmurHash3X86_128, 0),
                    (HashFunction::Identity, 0),
                    (HashFunction::MurmurHash3X86_128, 3),
                    (HashFunction::Identity, 3),
                    (HashFunction::MurmurHash3X86_128, 9),
                    (HashFunction::Identity, 9),
                    (HashFunction::Identity, 99),
                ] {
                    let spec = if preshift == 99 {
                        plan.spec()
                    } else {
                        ShardingSpec::new(hash, preshift, bits - sb, sb).unwrap()
                    };
                    let spec = spec.with_minishard_index_encoding(plan.spec().minishard_index_encoding());
                    let p = *Plan::predict(spec, &stats).prediction();
                    let c = count(spec, &keys, len);
                    let mark = |p: f64, c: f64| if (p / c - 1.0).abs() > 0.1 { "!" } else { "" };
                    print!(
                        "{:8} {:?} {}/{}/{}:",
                        profile.as_str(),
                        spec.hash_function(),
                        spec.preshift_bits(),
                        spec.minishard_bits(),
                        spec.shard_bits()
                    );
                    for (n, p, c) in [
                        ("files", p.shard_files() as f64, c.files),
                        ("mean", p.mean_keys_per_minishard(), c.mean),
                        ("median", p.median_keys_per_minishard() as f64, c.median),
                        ("largest", p.largest_keys_per_minishard() as f64, c.largest),
                        ("skew", p.skew(), c.skew),
                        ("index", p.index_bytes_per_key(), c.index),
                    ] {
                        print!("  {n} {p:.2}/{c:.2}{}", mark(p, c));
                    }
                    println!();
                }
            }
        }
    }
}
