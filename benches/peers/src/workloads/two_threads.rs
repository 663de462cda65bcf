//! `two threads`: gets per second of wall time by two threads on one opened database, against one thread.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use crate::bench::{Bench, Opened, check, rotated};
use crate::clock::on_wall;
use crate::measurement::{Rounds, Unit};
use crate::reader::Result;
use crate::slices::{Slice, hit};

/// Wall time per get in nanoseconds, for one thread and for two together.
pub fn measure(bench: &mut Bench<'_>, opened: &[Opened<'_>]) -> Result<[Rounds; 2]> {
    let mut one = Rounds::new("one thread (wall)", Unit::Nanoseconds);
    let mut two = Rounds::new("two threads (wall)", Unit::Nanoseconds);
    for round in 0..bench.effort.rounds {
        let mut draw = || -> Result<(Slice, u64)> {
            let slice = hit::draw(&mut bench.sampler, bench.effort.slice);
            let expected = bench.expected(&slice)?;
            Ok((slice, expected))
        };
        let (alone, first, second) = (draw()?, draw()?, draw()?);
        let operations = bench.effort.slice as f64;
        for peer in rotated(opened, round) {
            one.push(peer.peer.name, peer.run(&alone.0, alone.1, |work| on_wall(work))? / operations);
            two.push(peer.peer.name, run_two(peer, [&first, &second])? / (2.0 * operations));
        }
    }
    Ok([one, two])
}

/// Wall time from the start of the first thread to the end of the last one.
fn run_two(peer: &Opened<'_>, slices: [&(Slice, u64); 2]) -> Result<f64> {
    let ready = Barrier::new(2);
    let spans = thread::scope(|scope| {
        let threads = slices.map(|(slice, expected)| scope.spawn(|| run_when_ready(peer, slice, *expected, &ready)));
        threads.map(|thread| thread.join().map_err(|_| "expected a thread to end, found that it panicked"))
    });
    let [first, second] = spans;
    let (first, second) = (first??, second??);
    let (start, end) = (first.start.min(second.start), first.end.max(second.end));
    Ok((end - start).as_nanos() as f64)
}

/// The time during which a thread read.
struct Span {
    start: Instant,
    end: Instant,
}

fn run_when_ready(peer: &Opened<'_>, slice: &Slice, expected: u64, ready: &Barrier) -> Result<Span> {
    let (mut waited, mut span) = (false, None);
    let result = peer.engine.read(&mut |reader| {
        ready.wait();
        waited = true;
        let start = Instant::now();
        let sum = reader.run(slice)?;
        span = Some(Span { start, end: Instant::now() });
        check(peer.peer, sum, expected)
    });
    if !waited {
        ready.wait(); // this thread failed before the barrier, and the other one must not wait for it
    }
    result?;
    span.ok_or_else(|| "expected a reader to run its work, found that it did not".into())
}
