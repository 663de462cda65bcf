//! The cost of updates and merges beside that of a full build: time, bytes written, peak memory.
//!
//! ```sh
//! cd benches && cargo bench --bench living_data
//! ```
//!
//! Takes some 25 GB of disk and a few minutes. Linux only: the peak memory is the kernel's, per step, without the page cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use sharddb::spec::HashFunction;
use sharddb::{BuildOptions, OnDuplicate, Result, ShardDb, ShardingSpec, Snapshot, Updater};

const KEYS: u64 = 10_000_000;
const INPUTS: u64 = 10;
const FRAGMENTS: u64 = 20_000_000;

fn main() -> Result<()> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("living-data-{}", std::process::id()));
    println!("| step | seconds | MB written | peak MiB |\n|---|--:|--:|--:|");
    let result = updates(&directory).and_then(|()| merges(&directory));
    let _ = fs::remove_dir_all(&directory);
    result
}

/// Mixes the bits of a number, as murmur does.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

fn value(key: u64) -> [u8; 100] {
    let mut value = [0x5a; 100];
    value[..8].copy_from_slice(&key.to_le_bytes());
    value
}

/// Runs a step and prints its time, the bytes that it wrote to files, and its peak memory.
fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let _ = fs::write("/proc/self/clear_refs", "5"); // resets the peak
    let (before, start) = (written_bytes(), Instant::now());
    let result = work()?;
    let (seconds, written) = (start.elapsed().as_secs_f64(), written_bytes() - before);
    println!("| {name} | {seconds:.2} | {:.1} | {:.0} |", written as f64 / 1e6, peak_kib() as f64 / 1024.0);
    Ok(result)
}

fn written_bytes() -> u64 {
    number_of("/proc/self/io", "wchar:")
}

fn peak_kib() -> u64 {
    number_of("/proc/self/status", "VmHWM:")
}

fn number_of(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

fn spec_of_64_shards() -> Result<ShardingSpec> {
    ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 15, 6)
}

fn build(options: &BuildOptions, store: &Path, keys: impl Iterator<Item = u64>) -> Result<()> {
    let mut loader = options.create(store)?;
    loader.extend(keys.map(|key| (key, value(key))))?;
    loader.finish().map(drop)
}

fn updates(directory: &Path) -> Result<()> {
    let store = directory.join("store");
    let mut options = BuildOptions::new();
    options.spec(spec_of_64_shards()?);
    step("full build, 64 shards of 10M x 100 B", || build(&options, &store, (0..KEYS).map(mix)))?;
    step("update: 1,000 upserts, 100 deletes, at random", || {
        let mut updater = Updater::open(&store)?;
        for number in 0..1000 {
            updater.put(mix(number * 7919 % (2 * KEYS)), [1; 100])?;
        }
        for number in 0..100 {
            updater.delete(mix(number * 6151 + 1))?;
        }
        updater.finish().map(drop)
    })?;
    let spec = spec_of_64_shards()?;
    let of_shard_0: Vec<u64> = (0..).map(mix).filter(|key| spec.route(*key).shard.get() == 0).take(1000).collect();
    step("update: 1,000 upserts into one shard", || {
        let mut updater = Updater::open(&store)?;
        of_shard_0.iter().try_for_each(|key| updater.put(*key, [2; 100]))?;
        let (_, report) = updater.finish()?;
        assert_eq!((report.written_shards, report.linked_shards), (1, 63));
        Ok(())
    })
}

fn merges(directory: &Path) -> Result<()> {
    let inputs: Vec<PathBuf> = (0..INPUTS).map(|number| directory.join(format!("input-{number}"))).collect();
    for (number, input) in (0..).zip(&inputs) {
        build(&BuildOptions::new(), input, (0..2_000_000).map(|key| mix(number * 2_000_000 + key)))?;
    }
    let snapshots =
        inputs.iter().map(|input| Ok(ShardDb::open(input)?.snapshot())).collect::<Result<Vec<Snapshot>>>()?;
    let mut options = BuildOptions::new();
    options.memory(256 << 20);
    step("merge of ten databases of 2M x 100 B, 256 MiB", || {
        options.merge(directory.join("merged"), &snapshots)?.publish().map(drop)
    })?;
    step("the same, one specification", || {
        let mut options = options.clone();
        options.spec(*snapshots[0].spec()).merge(directory.join("merged"), &snapshots)?.publish().map(drop)
    })?;
    drop(snapshots);
    let _ = fs::remove_dir_all(directory); // room for the next steps
    options.on_duplicate(OnDuplicate::merge(|_, values, to| {
        while values.copy_next(to)? {}
        Ok(())
    }));
    step("merge function, 20M fragments of 50 B of 1M keys, 256 MiB", || {
        let mut loader = options.create(directory.join("fragments"))?;
        (0..FRAGMENTS).try_for_each(|number| loader.insert(mix(mix(number) % 1_000_000), [3; 50]))?;
        assert_eq!(loader.finish()?.content.keys, 1_000_000);
        Ok(())
    })?;
    step("merge function, one key with 2 GiB of fragments, 256 MiB", || {
        let mut loader = options.create(directory.join("one-key"))?;
        let fragment = vec![4; 1 << 20];
        (0..2048).try_for_each(|_| loader.insert(7, &fragment))?;
        assert_eq!(loader.finish()?.content.value_bytes, 2 << 30);
        Ok(())
    })
}
