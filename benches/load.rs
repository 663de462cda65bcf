//! Building and publishing a generation with sync: pairs in random order, all in memory.

mod common;

use criterion::{Criterion, Throughput};
use sharddb::{Result, ShardDb};

use common::{Scratch, VALUE_LEN, expected_sum, head, load, scramble};

const KEYS: u64 = 100_000;

fn main() -> Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    bench(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

fn bench(criterion: &mut Criterion) -> Result<()> {
    let scratch = Scratch::new("load");
    let keys: Vec<u64> = (0..KEYS).map(scramble).collect();
    load(scratch.path(), &keys)?;
    let snapshot = ShardDb::open(scratch.path())?.snapshot();
    let sum = snapshot.iter().try_fold(0_u64, |sum, entry| Ok(sum.wrapping_add(head(&entry?.value()?))));
    assert_eq!((snapshot.key_count(), sum?), (Some(KEYS), expected_sum(&keys)));

    let mut group = criterion.benchmark_group("load");
    group.sample_size(10).throughput(Throughput::Bytes(KEYS * (8 + VALUE_LEN as u64)));
    group.bench_function("sorted by the loader", |bencher| {
        bencher.iter_batched(
            || scratch.clear(),
            |()| assert!(load(scratch.path(), &keys).is_ok()),
            criterion::BatchSize::PerIteration,
        )
    });
    Ok(())
}
