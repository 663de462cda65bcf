//! `threads`: gets per second of wall time by several threads on one opened database.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use crate::bench::{Bench, Opened, check, rotated};
use crate::measurement::{Rounds, Unit};
use crate::reader::Result;
use crate::slices::{Slice, hit};

/// Numbers of threads that read together.
pub const THREADS: [usize; 4] = [1, 2, 4, 8];

/// The name of the workload with a number of threads.
pub fn name(threads: usize) -> String {
    format!("threads: {threads} (wall)")
}

/// Wall time per get of all threads together, in nanoseconds, for each number of threads.
pub fn measure(bench: &mut Bench<'_>, opened: &[Opened<'_>]) -> Result<Vec<Rounds>> {
    let mut all = THREADS.map(|threads| (threads, Rounds::new(name(threads), Unit::Nanoseconds)));
    for round in 0..bench.effort.rounds {
        for (threads, rounds) in &mut all {
            let mut draw = || -> Result<(Slice, u64)> {
                let slice = hit::draw(&mut bench.sampler, bench.effort.slice);
                let expected = bench.expected(&slice)?;
                Ok((slice, expected))
            };
            let slices = (0..*threads).map(|_| draw()).collect::<Result<Vec<_>>>()?;
            for peer in rotated(opened, round) {
                rounds.push(peer.peer.name, run_together(peer, &slices)? / (*threads * bench.effort.slice) as f64);
            }
        }
    }
    Ok(all.into_iter().map(|(_, rounds)| rounds).collect())
}

/// Wall time from the start of the first thread to the end of the last one. Each thread runs one slice.
fn run_together(peer: &Opened<'_>, slices: &[(Slice, u64)]) -> Result<f64> {
    let ready = Barrier::new(slices.len());
    let spans = thread::scope(|scope| {
        let ready = &ready;
        let threads: Vec<_> =
            slices.iter().map(|work| scope.spawn(move || run_when_ready(peer, work, ready))).collect();
        let ended = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().map_err(|_| "expected a thread to end, found that it panicked")?
        };
        threads.into_iter().map(ended).collect::<Result<Vec<Span>>>()
    })?;
    let first = spans.iter().map(|span| span.start).min();
    let last = spans.iter().map(|span| span.end).max();
    Ok(first.zip(last).map_or(0.0, |(first, last)| (last - first).as_nanos() as f64))
}

/// The time during which a thread read.
struct Span {
    start: Instant,
    end: Instant,
}

fn run_when_ready(peer: &Opened<'_>, (slice, expected): &(Slice, u64), ready: &Barrier) -> Result<Span> {
    let (mut waited, mut span) = (false, None);
    let result = peer.engine.read(&mut |reader| {
        ready.wait();
        waited = true;
        let start = Instant::now();
        let sum = reader.run(slice)?;
        span = Some(Span { start, end: Instant::now() });
        check(peer.peer, sum, *expected)
    });
    if !waited {
        ready.wait(); // this thread failed before the barrier, and the others must not wait for it
    }
    result?;
    span.ok_or_else(|| "expected a reader to run its work, found that it did not".into())
}
