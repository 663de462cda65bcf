//! Compared with one file per key, on the same data: the gain of converting.
//!
//! Everything is in the page cache for both. With a cold cache the difference is larger.

mod common;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use criterion::{Criterion, Throughput};
use sharddb::{Result, ShardDb, Snapshot};

use common::{Scratch, expected_sum, head, load, scramble, value};

const KEYS: u64 = 20_000;
const DIRECTORIES: u64 = 100;

type BoxedError = Box<dyn std::error::Error>;

fn main() -> std::result::Result<(), BoxedError> {
    let mut criterion = Criterion::default().configure_from_args();
    bench(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

fn bench(criterion: &mut Criterion) -> std::result::Result<(), BoxedError> {
    let (store, files) = (Scratch::new("one-store"), Scratch::new("one-file-a-key"));
    let keys: Vec<u64> = (0..KEYS).map(scramble).collect();
    load(store.path(), &keys)?;
    write_files(files.path(), &keys)?;
    // SAFETY: only this benchmark uses the store, and it does not edit it while it is mapped.
    #[expect(unsafe_code, reason = "mapping is the caller's promise to leave the files alone")]
    let mapped = unsafe { ShardDb::open_mapped(store.path())? }.snapshot();
    let positioned = ShardDb::open(store.path())?.snapshot();

    let expected = expected_sum(&keys);
    let mut group = criterion.benchmark_group("one file a key");
    group.sample_size(20).throughput(Throughput::Elements(KEYS));
    group.bench_function("files", |bencher| {
        bencher.iter(|| assert_eq!(read_files(files.path(), &keys).ok(), Some(expected)));
    });
    group.bench_function("store, positioned reads", |bencher| {
        bencher.iter(|| assert_eq!(read_store(&positioned, &keys).ok(), Some(expected)));
    });
    group.bench_function("store, mapped", |bencher| {
        bencher.iter(|| assert_eq!(read_store(&mapped, &keys).ok(), Some(expected)));
    });
    Ok(())
}

fn read_store(snapshot: &Snapshot, keys: &[u64]) -> Result<u64> {
    keys.iter().try_fold(0_u64, |sum, key| Ok(sum.wrapping_add(snapshot.get(*key)?.as_deref().map_or(0, head))))
}

fn read_files(directory: &Path, keys: &[u64]) -> io::Result<u64> {
    keys.iter().try_fold(0_u64, |sum, key| Ok(sum.wrapping_add(head(&fs::read(path_of(directory, *key))?))))
}

fn write_files(directory: &Path, keys: &[u64]) -> io::Result<()> {
    for number in 0..DIRECTORIES {
        fs::create_dir_all(directory.join(number.to_string()))?;
    }
    keys.iter().try_for_each(|key| fs::write(path_of(directory, *key), value(*key)))
}

fn path_of(directory: &Path, key: u64) -> PathBuf {
    directory.join(format!("{}/{key}", key % DIRECTORIES))
}
