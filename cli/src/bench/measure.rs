//! The measurements. Sources take turns on the same keys, and all must return the same values.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::bench::page_cache::{Cold, disk_reads};
use crate::bench::random::Random;
use crate::bench::source::{Reader, Source};
use crate::context::Context;
use crate::failure::{Failure, Place, Result};

/// Rounds of measurement. In each round every source has its turn, so a disturbance affects all of them.
const ROUNDS: usize = 5;

/// Keys per batch. The row names of the table state this number.
const BATCH: usize = 256;

/// Number of lookups from a cold cache.
const COLD: usize = 1000;

/// Number of lookups between two checks for a signal.
const LOOKUPS_BETWEEN_LOOKS: usize = 64;

/// Upper bound on the time of a scan, and of the first pass over the keys.
const BUDGET: Duration = Duration::from_secs(3);

const PAGE: f64 = 4096.0;

/// The figures of one source, in nanoseconds unless the name says otherwise; `None` if not measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) open: Option<f64>,
    pub(crate) present: Option<Percentiles>,
    pub(crate) absent: Option<Percentiles>,
    pub(crate) batch_per_key: Option<f64>,
    pub(crate) scan_per_pair: Option<f64>,
    pub(crate) cold: Option<Percentiles>,
    pub(crate) cold_pages: Option<f64>,
    pub(crate) cold_batch_per_key: Option<f64>,
}

/// The keys to look up.
pub(crate) struct Keys {
    pub(crate) present: Vec<u64>,
    pub(crate) absent: Vec<u64>,
}

impl Keys {
    /// Compares the values of `present` in all sources for a few seconds, keeps the keys that were compared, and draws
    /// as many absent keys.
    ///
    /// Errors: `Malformed` if the sources have different values for a key.
    pub(crate) fn choose(mut present: Vec<u64>, sources: &[&dyn Source], context: &Context) -> Result<Keys> {
        let mut readers = open_all(sources)?;
        let agreed = agree(&present, &mut readers, context)?;
        present.truncate(agreed);
        let absent = absent_among(&present, &mut readers)?;
        Ok(Keys { present, absent })
    }
}

fn open_all<'a>(sources: &[&'a dyn Source]) -> Result<Vec<Box<dyn Reader + 'a>>> {
    sources.iter().map(|source| source.open()).collect()
}

/// Compares the values of keys byte by byte until the budget is used up; returns how many keys were compared.
/// This also brings them into memory.
fn agree(keys: &[u64], readers: &mut [Box<dyn Reader + '_>], context: &Context) -> Result<usize> {
    let begun = Instant::now();
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    for (done, &key) in keys.iter().enumerate() {
        context.check_cancel()?;
        if done > 0 && begun.elapsed() > BUDGET {
            return Ok(done);
        }
        let mut first: Option<bool> = None;
        for reader in &mut *readers {
            let buffer = if first.is_none() { &mut expected } else { &mut found };
            let there = reader.read(key, buffer)?;
            if first.is_some_and(|first| first != there || expected != found) {
                return Err(disagree(key, "all sources to have the same value"));
            }
            first = first.or(Some(there));
        }
        if first == Some(false) {
            return Err(disagree(key, "a value"));
        }
    }
    Ok(keys.len())
}

#[cold]
fn disagree(key: u64, expected: &str) -> Failure {
    Failure::Unsound(format!(
        "expected {expected} for key {key}, found otherwise: were the files changed since the store was built?"
    ))
}

/// Keys that no source has. They are drawn between the present keys where there is room, else from all numbers.
fn absent_among(present: &[u64], readers: &mut [Box<dyn Reader + '_>]) -> Result<Vec<u64>> {
    let mut random = Random::new(2);
    let (Some(first), Some(last)) = (present.iter().min(), present.iter().max()) else { return Ok(Vec::new()) };
    let mut absent = Vec::new();
    for attempt in 0..4 * present.len() {
        if absent.len() == present.len() {
            break;
        }
        // dense keys have no gaps between them
        let between = attempt < 2 * present.len();
        let key = if between { first + random.below(last - first) } else { random.next() };
        let mut there = false;
        for reader in &mut *readers {
            there |= reader.get(key)?.is_some();
        }
        if !there {
            absent.push(key);
        }
    }
    Ok(absent)
}

/// Measures lookups with everything in memory.
pub(crate) fn warm(sources: &[&dyn Source], keys: &Keys, context: &Context) -> Result<Vec<Figures>> {
    let mut figures = vec![Figures::default(); sources.len()];
    let mut readers = open_all(sources)?;
    for reader in &mut readers {
        run(reader.as_mut(), &keys.present, context)?; // warms the new reader's own caches
    }
    let present = in_turns(&keys.present, &mut readers, context)?;
    let absent = in_turns(&keys.absent, &mut readers, context)?;
    for ((figures, present), absent) in figures.iter_mut().zip(present).zip(absent) {
        figures.present = present.percentiles();
        figures.absent = absent.percentiles();
    }
    for ((figures, source), reader) in figures.iter_mut().zip(sources).zip(&mut readers) {
        figures.batch_per_key = batches(reader.as_mut(), &keys.present, context)?;
        figures.scan_per_pair = scan(reader.as_mut(), context)?;
        figures.open = Some(open_and_get(*source, &keys.present)?);
    }
    Ok(figures)
}

/// The durations of lookups for each reader.
///
/// Errors: `Malformed` if the readers return different bytes.
fn in_turns(keys: &[u64], readers: &mut [Box<dyn Reader + '_>], context: &Context) -> Result<Vec<Latencies>> {
    let mut random = Random::new(3);
    let mut latencies = vec![Latencies::default(); readers.len()];
    for _ in 0..ROUNDS {
        let keys = random.draw(keys, keys.len().div_ceil(ROUNDS));
        let mut expected = None;
        for (reader, latencies) in readers.iter_mut().zip(&mut latencies) {
            let sum = time_each(reader.as_mut(), &keys, latencies, context)?;
            check_sum(*expected.get_or_insert(sum), sum)?;
        }
    }
    Ok(latencies)
}

fn check_sum(expected: u64, found: u64) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    let message = format!("expected every source to return the byte sum {expected:#x}, found {found:#x}");
    Err(Failure::malformed("the sources", Place::Whole, message))
}

fn run(reader: &mut dyn Reader, keys: &[u64], context: &Context) -> Result<u64> {
    time_each(reader, keys, &mut Latencies::default(), context)
}

/// Times every lookup; returns the sum of all bytes that were read.
fn time_each(reader: &mut dyn Reader, keys: &[u64], latencies: &mut Latencies, context: &Context) -> Result<u64> {
    let mut sum = 0_u64;
    for keys in keys.chunks(LOOKUPS_BETWEEN_LOOKS) {
        context.check_cancel()?;
        for key in keys {
            let begun = Instant::now();
            let value = reader.get(*key)?;
            latencies.push(begun.elapsed());
            sum = sum.wrapping_add(value.unwrap_or(0));
        }
    }
    Ok(sum)
}

/// The median time per key of a batch; `None` if the source has no batches.
fn batches(reader: &mut dyn Reader, keys: &[u64], context: &Context) -> Result<Option<f64>> {
    let expected = run(reader, keys, context)?;
    let (mut latencies, mut sum) = (Latencies::default(), 0_u64);
    for batch in keys.chunks(BATCH) {
        context.check_cancel()?;
        let begun = Instant::now();
        let Some(of_batch) = reader.get_many(batch)? else { return Ok(None) };
        latencies.push(begun.elapsed() / u32::try_from(batch.len()).unwrap_or(1));
        sum = sum.wrapping_add(of_batch);
    }
    check_sum(expected, sum)?;
    Ok(latencies.percentiles().map(|found| found.median))
}

/// The mean time per pair of a scan in the source's own order; `None` if there are no pairs.
fn scan(reader: &mut dyn Reader, context: &Context) -> Result<Option<f64>> {
    let (mut pairs, mut total) = (0_u64, 0_u64);
    let begun = Instant::now();
    reader.scan(&mut |sum| {
        (pairs, total) = (pairs + 1, total.wrapping_add(sum));
        let enough = pairs.is_multiple_of(256) && (begun.elapsed() > BUDGET || context.interrupt.is_set());
        if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let elapsed = begun.elapsed();
    std::hint::black_box(total); // keeps the compiler from removing the sum
    context.check_cancel()?;
    Ok((pairs > 0).then(|| elapsed.as_nanos() as f64 / pairs as f64))
}

/// The median time of opening a source and looking up one key.
fn open_and_get(source: &dyn Source, keys: &[u64]) -> Result<f64> {
    let mut latencies = Latencies::default();
    for key in keys.iter().take(9) {
        let begun = Instant::now();
        let mut reader = source.open()?;
        reader.get(*key)?;
        latencies.push(begun.elapsed());
    }
    Ok(latencies.percentiles().map_or(0.0, |found| found.median))
}

/// Adds lookups with the files out of the page cache. Returns the reason if they cannot be measured.
pub(crate) fn cold(
    sources: &[&dyn Source],
    keys: &Keys,
    cold: Cold,
    figures: &mut [Figures],
    context: &Context,
) -> Result<Option<&'static str>> {
    let mut keys = keys.present.clone();
    Random::new(4).shuffle(&mut keys);
    keys.truncate(COLD);
    let mut expected = None;
    for (source, figures) in sources.iter().zip(figures) {
        let mut latencies = Latencies::default();
        let (sum, pages) = when_cold(*source, &keys, cold, |reader| time_each(reader, &keys, &mut latencies, context))?;
        check_sum(*expected.get_or_insert(sum), sum)?;
        if pages == 0.0 {
            return Ok(Some("nothing came from a disk (a file system in memory or of the network?)"));
        }
        figures.cold = latencies.percentiles();
        figures.cold_pages = Some(pages / keys.len() as f64);
        figures.cold_batch_per_key = when_cold(*source, &keys, cold, |reader| batches_once(reader, &keys, context))?.0;
    }
    Ok(None)
}

/// Runs `work` with a newly opened reader after dropping the pages. Also returns the bytes read from the disk.
fn when_cold<T>(
    source: &dyn Source,
    keys: &[u64],
    cold: Cold,
    work: impl FnOnce(&mut dyn Reader) -> Result<T>,
) -> Result<(T, f64)> {
    cold.drop_pages(&source.files(keys)?)?;
    let mut reader = source.open()?;
    let before = disk_reads().unwrap_or(0);
    let result = work(reader.as_mut())?;
    let read = disk_reads().unwrap_or(0).saturating_sub(before);
    Ok((result, read as f64 / PAGE))
}

/// The mean time per key in batches of keys that were not read before.
fn batches_once(reader: &mut dyn Reader, keys: &[u64], context: &Context) -> Result<Option<f64>> {
    let begun = Instant::now();
    for batch in keys.chunks(BATCH) {
        context.check_cancel()?;
        reader.read_ahead(batch);
        if reader.get_many(batch)?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(begun.elapsed().as_nanos() as f64 / keys.len() as f64))
}

/// Durations in nanoseconds.
#[derive(Clone, Debug, Default)]
struct Latencies(Vec<u64>);

/// Mean, median and 99th percentile of durations, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Percentiles {
    pub(crate) mean: f64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
}

impl Latencies {
    fn push(&mut self, duration: Duration) {
        self.0.push(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Mean, median and 99th percentile; `None` if there are no durations.
    fn percentiles(&self) -> Option<Percentiles> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = |percent: usize| sorted.get(sorted.len() * percent / 100).map(|ns| *ns as f64);
        let mean = sorted.iter().map(|ns| *ns as f64).sum::<f64>() / sorted.len() as f64;
        Some(Percentiles { mean, median: at(50)?, p99: at(99)? })
    }
}

/// The cost of reading the clock, in nanoseconds. Every measured duration includes it.
pub(crate) fn clock() -> f64 {
    let mut looks = Latencies::default();
    for _ in 0..1001 {
        looks.push(Instant::now().elapsed());
    }
    looks.percentiles().map_or(0.0, |found| found.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_durations_that_were_met() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.percentiles(), None);
        (0..200).rev().for_each(|ns| latencies.push(Duration::from_nanos(ns)));
        assert_eq!(latencies.percentiles(), Some(Percentiles { mean: 99.5, median: 100.0, p99: 198.0 }));
    }
}
