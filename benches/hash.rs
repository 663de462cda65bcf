//! The cost of placing a key, in nanoseconds: its hash alone, and its shard and minishard.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use sharddb::spec::HashFunction;
use sharddb::{Result, ShardingSpec};

const KEYS: u64 = 1000;

fn main() -> Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    bench(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

fn bench(criterion: &mut Criterion) -> Result<()> {
    let mut group = criterion.benchmark_group("place");
    group.throughput(Throughput::Elements(KEYS));

    let murmur = HashFunction::MurmurHash3X86_128;
    assert_eq!(murmur.hash(42), 0xc20b_94f9_5119_f47a);
    group.bench_function("hash", |bencher| {
        bencher.iter(|| (0..KEYS).fold(0, |sum, key| sum ^ murmur.hash(black_box(key))))
    });
    // each key depends on the hash of the one before
    group.bench_function("hash, dependent", |bencher| {
        bencher.iter(|| (0..KEYS).fold(black_box(0), |hash, key| murmur.hash(hash ^ key)))
    });

    let spec = ShardingSpec::new(murmur, 6, 8, 10)?;
    let location = spec.route(10_001); // from a public data set of meshes
    assert_eq!((location.minishard.get(), location.shard.get()), (196, 0x27c));
    group.bench_function("locate", |bencher| {
        bencher.iter(|| {
            (0..KEYS).fold(0, |sum, key| {
                let location = spec.route(black_box(key));
                sum ^ location.shard.get() ^ location.minishard.get()
            })
        })
    });
    Ok(())
}
