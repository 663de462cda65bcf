//! Lookups in a mapped store that is larger than the processor's caches: find, get, get_many, on one and on all
//! processors.
//!
//! Keys are in random order, and none repeats before all were used, so that every lookup pays for its cache misses.

mod common;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use sharddb::{Reader, Result, ShardDb, Snapshot};

use common::{Scratch, expected_sum, head, load, scramble};

const KEYS: u64 = 1_000_000;
/// Lookups per iteration.
const WINDOW: usize = 10_000;

fn main() -> Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    bench(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

fn bench(criterion: &mut Criterion) -> Result<()> {
    let scratch = Scratch::new("lookup");
    let present: Vec<u64> = (0..KEYS).map(scramble).collect();
    let absent: Vec<u64> = (KEYS..2 * KEYS).map(scramble).collect();
    load(scratch.path(), &present)?;
    // SAFETY: only this benchmark uses the store, and it does not edit it while it is mapped.
    #[expect(unsafe_code, reason = "mapping is the caller's promise to leave the files alone")]
    let db = unsafe { ShardDb::open_mapped(scratch.path())? };
    let snapshot = db.snapshot();

    let mut group = criterion.benchmark_group("lookup");
    group.throughput(Throughput::Elements(WINDOW as u64));
    each_window(&mut group, "find", &present, |keys| keys.len() as u64, |keys| find(&snapshot, keys));
    each_window(&mut group, "find, absent", &absent, |_| 0, |keys| find(&snapshot, keys));
    each_window(&mut group, "get", &present, expected_sum, |keys| get(&snapshot, keys));
    each_window(&mut group, "get, absent", &absent, |_| 0, |keys| get(&snapshot, keys));
    let mut reader = db.reader();
    each_window(&mut group, "get, reader", &present, expected_sum, |keys| get_by_reader(&mut reader, keys));
    each_window(&mut group, "get, owned", &present, expected_sum, |keys| get_owned(&db, keys));
    each_window(&mut group, "get_many", &present, expected_sum, |keys| get_many(&snapshot, keys));
    each_window(&mut group, "get_each_parallel", &present, expected_sum, |keys| get_parallel(&snapshot, keys, 0));
    each_window(&mut group, "get_each_parallel, one thread", &present, expected_sum, |keys| {
        get_parallel(&snapshot, keys, 1)
    });
    Ok(())
}

/// Runs a lookup over one window of the keys after another, and checks every sum.
fn each_window(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    keys: &[u64],
    expected: impl Fn(&[u64]) -> u64,
    mut lookup: impl FnMut(&[u64]) -> Result<u64>,
) {
    let windows: Vec<_> = keys.chunks(WINDOW).map(|window| (window, expected(window))).collect();
    let mut windows = windows.iter().cycle();
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            if let Some((window, expected)) = windows.next() {
                assert_eq!(lookup(window).ok(), Some(*expected));
            }
        })
    });
}

/// Counts the keys that are present.
fn find(snapshot: &Snapshot, keys: &[u64]) -> Result<u64> {
    keys.iter().try_fold(0, |found, key| Ok(found + u64::from(snapshot.contains(*key)?)))
}

fn get(snapshot: &Snapshot, keys: &[u64]) -> Result<u64> {
    keys.iter().try_fold(0_u64, |sum, key| Ok(sum.wrapping_add(snapshot.get(*key)?.as_deref().map_or(0, head))))
}

fn get_by_reader(reader: &mut Reader, keys: &[u64]) -> Result<u64> {
    keys.iter().try_fold(0_u64, |sum, key| Ok(sum.wrapping_add(reader.get(*key)?.as_deref().map_or(0, head))))
}

fn get_owned(db: &ShardDb, keys: &[u64]) -> Result<u64> {
    keys.iter().try_fold(0_u64, |sum, key| Ok(sum.wrapping_add(db.get(*key)?.as_deref().map_or(0, head))))
}

fn get_parallel(snapshot: &Snapshot, keys: &[u64], threads: usize) -> Result<u64> {
    let sum = AtomicU64::new(0);
    let end = snapshot.get_each_parallel(keys, threads, |_, value| match value {
        Ok(value) => {
            sum.fetch_add(value.as_deref().map_or(0, head), Ordering::Relaxed);
            ControlFlow::Continue(())
        }
        Err(error) => ControlFlow::Break(error),
    });
    match end {
        ControlFlow::Continue(()) => Ok(sum.into_inner()),
        ControlFlow::Break(error) => Err(error),
    }
}

fn get_many(snapshot: &Snapshot, keys: &[u64]) -> Result<u64> {
    let mut sum = 0_u64;
    let failed = snapshot.get_each(keys, |_, value| match value {
        Ok(value) => {
            sum = sum.wrapping_add(value.as_deref().map_or(0, head));
            ControlFlow::Continue(())
        }
        Err(error) => ControlFlow::Break(error),
    });
    match failed {
        ControlFlow::Continue(()) => Ok(sum),
        ControlFlow::Break(error) => Err(error),
    }
}
