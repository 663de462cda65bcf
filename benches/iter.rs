//! Walking through an entire mapped store in storage order: its keys alone, and with its values.

mod common;

use std::ops::ControlFlow;

use criterion::{Criterion, Throughput};
use sharddb::{Result, ShardDb, Snapshot};

use common::{Scratch, expected_sum, head, load, scramble};

const KEYS: u64 = 200_000;

fn main() -> Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    bench(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

fn bench(criterion: &mut Criterion) -> Result<()> {
    let scratch = Scratch::new("iter");
    let keys: Vec<u64> = (0..KEYS).map(scramble).collect();
    load(scratch.path(), &keys)?;
    // SAFETY: only this benchmark uses the store, and it does not edit it while it is mapped.
    #[expect(unsafe_code, reason = "mapping is the caller's promise to leave the files alone")]
    let snapshot = unsafe { ShardDb::open_mapped(scratch.path())? }.snapshot();

    let mut group = criterion.benchmark_group("iter");
    group.sample_size(20).throughput(Throughput::Elements(KEYS));
    let sum_of_keys = keys.iter().fold(0_u64, |sum, key| sum.wrapping_add(*key));
    group.bench_function("keys", |bencher| {
        bencher.iter(|| assert_eq!(sum_keys(&snapshot).ok(), Some(sum_of_keys)));
    });
    let sum_of_heads = expected_sum(&keys);
    group.bench_function("pairs", |bencher| {
        bencher.iter(|| assert_eq!(sum_heads(&snapshot).ok(), Some(sum_of_heads)));
    });
    group.bench_function("scan", |bencher| {
        bencher.iter(|| assert_eq!(scan_heads(&snapshot).ok(), Some(sum_of_heads)));
    });
    Ok(())
}

fn sum_keys(snapshot: &Snapshot) -> Result<u64> {
    snapshot.keys().try_fold(0_u64, |sum, key| Ok(sum.wrapping_add(key?)))
}

fn sum_heads(snapshot: &Snapshot) -> Result<u64> {
    snapshot.iter().try_fold(0_u64, |sum, entry| Ok(sum.wrapping_add(head(&entry?.value()?))))
}

fn scan_heads(snapshot: &Snapshot) -> Result<u64> {
    let mut sum = 0_u64;
    let end = snapshot.scan(|pair| match pair {
        Ok((_, value)) => {
            sum = sum.wrapping_add(head(&value));
            ControlFlow::Continue(())
        }
        Err(error) => ControlFlow::Break(error),
    });
    match end {
        ControlFlow::Continue(()) => Ok(sum),
        ControlFlow::Break(error) => Err(error),
    }
}
