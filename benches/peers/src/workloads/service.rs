//! `service`: requests that share nothing but the opened database, each with its own latency; for ShardDb also while
//! another thread swaps generations as fast as it can.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use ::sharddb::{ShardDb, Store};

use crate::bench::{Bench, Opened, check, rotated};
use crate::engines::sharddb;
use crate::measurement::{Rounds, Unit};
use crate::reader::{Result, absent, head};
use crate::slices::Slice;

const PERCENTILES: [(&str, f64); 3] = [("p50", 0.50), ("p99", 0.99), ("p99.9", 0.999)];

/// Wall time in nanoseconds: percentiles of the requests of a round, including the cost of the clock.
pub fn measure(bench: &mut Bench<'_>, opened: &[Opened<'_>]) -> Result<Vec<Rounds>> {
    let mut percentiles = Percentiles::new("service");
    for round in 0..bench.effort.rounds {
        let keys = bench.sampler.present(bench.effort.slice);
        let expected = bench.expected(&Slice::Hit(keys.clone()))?;
        for peer in rotated(opened, round) {
            let (sum, latencies) = latencies(&keys, |key| peer.engine.request(key))?;
            check(peer.peer, sum, expected)?;
            percentiles.push(peer.peer.name, latencies);
        }
    }
    Ok(percentiles.0)
}

/// Like `measure`, for `ShardDb::get` during swaps of generations. Makes the second generation that it needs.
pub fn measure_during_swaps(bench: &mut Bench<'_>) -> Result<Vec<Rounds>> {
    let directory = bench.files_of(&sharddb::PEER);
    let store = Store::open(&directory)?;
    let current = store.current()?.ok_or("expected a generation to be current, found none")?;
    store.writer()?.adopt(directory.join(current.to_string()))?;

    let db = sharddb::open_db(&directory)?;
    let mut percentiles = Percentiles::new("service, swaps");
    let mut swaps = Rounds::new("service, swaps a second", Unit::Count);
    for _ in 0..bench.effort.rounds {
        let keys = bench.sampler.present(bench.effort.slice);
        let expected = bench.expected(&Slice::Hit(keys.clone()))?;
        let start = Instant::now();
        let ((sum, latencies), swapped) =
            while_swapping(&store, &db, || latencies(&keys, |key| Ok(db.get(key)?.as_deref().map(head))))?;
        check(&sharddb::PEER, sum, expected)?;
        percentiles.push(sharddb::PEER.name, latencies);
        swaps.push(sharddb::PEER.name, swapped as f64 / start.elapsed().as_secs_f64());
    }
    Ok(percentiles.0.into_iter().chain([swaps]).collect())
}

/// Runs `work` while another thread swaps two generations back and forth; also returns the number of swaps.
fn while_swapping<T>(store: &Store, db: &ShardDb, work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let swapping = scope.spawn(|| swap_until(&stop, store, db));
        let result = work();
        stop.store(true, Ordering::Relaxed);
        let swaps = swapping.join().map_err(|_| "expected the swapping thread to end, found that it panicked")?;
        Ok((result?, swaps?))
    })
}

fn swap_until(stop: &AtomicBool, store: &Store, db: &ShardDb) -> Result<u64> {
    let writer = store.writer()?;
    let generations = store.generations()?;
    let mut swaps = 0;
    for generation in generations.iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
        writer.rollback(Some(generation.id))?;
        swaps += u64::from(db.refresh()?.is_some());
    }
    Ok(swaps)
}

/// The sum of what was read, and the latency of each request.
fn latencies(keys: &[u64], mut request: impl FnMut(u64) -> Result<Option<u64>>) -> Result<(u64, Vec<u64>)> {
    let (mut sum, mut latencies) = (0_u64, Vec::with_capacity(keys.len()));
    for key in keys {
        let start = Instant::now();
        let value = request(*key)?;
        latencies.push(start.elapsed().as_nanos() as u64);
        sum = sum.wrapping_add(value.ok_or_else(|| absent(*key))?);
    }
    Ok((sum, latencies))
}

struct Percentiles(Vec<Rounds>);

impl Percentiles {
    fn new(workload: &str) -> Percentiles {
        Percentiles(PERCENTILES.map(|(name, _)| Rounds::new(format!("{workload} {name}"), Unit::Nanoseconds)).into())
    }

    fn push(&mut self, engine: &'static str, mut latencies: Vec<u64>) {
        latencies.sort_unstable();
        for (rounds, (_, share)) in self.0.iter_mut().zip(PERCENTILES) {
            rounds.push(engine, latencies[(latencies.len() as f64 * share) as usize] as f64);
        }
    }
}
