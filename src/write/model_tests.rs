//! Builds agree with a naive model, and have the same bytes for any memory and number of threads: thousands of random
//! cases with duplicates and sizes around every threshold.
//!
//! A failure prints the seed of the case, and the case reduced to the pairs that the failure needs. Seeds begin at 0,
//! or at `SHARDDB_SEED`:
//!
//! ```text
//! SHARDDB_SEED=1000000 cargo test --release --lib write::model_tests -- --ignored
//! ```

#[path = "../../tests/model/mod.rs"]
#[allow(clippy::cast_possible_truncation, reason = "lengths of a few MiB, and random numbers that are cut")]
mod model;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::common::TempDir;
use crate::format::locks::lock;
use crate::write::memory_split::MemorySplit;
use crate::write::options::MIN_MEMORY;
use crate::write::run_pairs::FanIn;
use model::case::{Case, Random, SMALL, Size};
use model::{Difference, check, check_published, insert_all};

/// Block sizes for writing and reading runs and shards.
const BLOCKS: [u64; 2] = [1 << 20, 2 << 20];

#[test]
fn agrees_with_the_model() {
    rounds(300, &SMALL, check);
}

#[test]
#[ignore = "minutes: run with --release"]
fn agrees_with_the_model_in_many_cases() {
    rounds(10_000, &SMALL, check);
}

#[test]
#[ignore = "minutes: run with --release"]
fn agrees_with_the_model_with_the_least_memory() {
    let thresholds = [thresholds(MIN_MEMORY), BLOCKS.to_vec()].concat();
    rounds(200, &Size { memory: MIN_MEMORY, thresholds: &thresholds, most_bytes: 56 << 20 }, check);
}

/// With memory for only two sources per merge, dozens of runs take many levels of merges.
#[test]
fn the_order_of_insertion_survives_merges_of_many_levels() {
    const MEMORY: u64 = 16 << 10;
    assert_eq!(FanIn::new(MemorySplit::new(MEMORY, 1).merge, 512).sources, 2);
    let of_many_levels = AtomicU64::new(0);
    let check = |case: &Case, directory: &Path| {
        let store = directory.join("store");
        let mut loader = case.options(case.settings[0]).create(&store).unwrap();
        let inserted = insert_all(case, &mut loader);
        of_many_levels.fetch_add(u64::from(loader.spilled_runs() > 1 << 4), Ordering::Relaxed);
        check_published(case, inserted.and_then(|()| loader.finish()), &store).map(drop)
    };
    rounds(100, &Size { memory: MEMORY, thresholds: &thresholds(MEMORY), most_bytes: 1 << 20 }, check);
    let count = of_many_levels.into_inner();
    assert!(count > 30, "expected many cases of five levels and more, found {count}");
}

/// Returns the lengths at which the loader changes its behaviour, for one to four threads.
fn thresholds(memory: u64) -> Vec<u64> {
    let budgets = (1..=4).map(|threads| MemorySplit::new(memory, threads));
    budgets.flat_map(|it| [it.batch, it.max_pair(), it.max_run(), it.batches]).map(|it| it as u64).collect()
}

/// The fuzz target cannot access the budget, so `SMALL` repeats its thresholds.
#[test]
fn the_thresholds_of_small_cases_are_those_of_the_budget() {
    for threshold in thresholds(SMALL.memory) {
        assert!(SMALL.thresholds.contains(&threshold), "{threshold} of {:?}", thresholds(SMALL.memory));
    }
}

/// Tests the cases of `count` seeds on all cores, each in its own directory.
fn rounds(count: u64, size: &Size, check: impl Fn(&Case, &Path) -> Result<(), Difference> + Sync) {
    let first_seed = std::env::var("SHARDDB_SEED").map_or(0, |seed| seed.parse().unwrap());
    let seeds = Mutex::new(first_seed..first_seed + count);
    let next_seed = || lock(&seeds).next();
    let case_of = |seed| Case::draw(&mut Random(seed), size);
    let try_case = |case: &Case| check(case, TempDir::in_memory().path());
    let work = || {
        while let Some(seed) = next_seed() {
            if let Err(difference) = try_case(&case_of(seed)) {
                while next_seed().is_some() {}
                return Some((seed, difference));
            }
        }
        None
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let failed = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).min()
    });
    if let Some((seed, difference)) = failed {
        let (case, smaller) = shrunk(case_of(seed), difference.clone(), try_case);
        let round = seed - first_seed + 1;
        panic!("seed {seed}, round {round}: {difference}\nwith fewer pairs: {smaller}\n{case}");
    }
}

/// Reduces a failing case: removes pairs, first many at once, as long as the case fails and attempts remain.
fn shrunk(
    mut case: Case,
    mut difference: Difference,
    try_case: impl Fn(&Case) -> Result<(), Difference>,
) -> (Case, Difference) {
    const ATTEMPTS: usize = 300;
    let mut attempts = 0;
    let mut count = case.pairs.len();
    while count > 0 {
        let mut start = 0;
        while start < case.pairs.len() && attempts < ATTEMPTS {
            let mut smaller = case.clone();
            smaller.pairs.drain(start..(start + count).min(case.pairs.len()));
            match try_case(&smaller) {
                Err(found) => (case, difference) = (smaller, found),
                Ok(()) => start += count,
            }
            attempts += 1;
        }
        count /= 2;
    }
    (case, difference)
}
