//! `open + first get`: from a path to a value, with the files in the page cache.

use crate::bench::{Bench, check, rotated};
use crate::clock::on_wall;
use crate::measurement::{Rounds, Unit};
use crate::reader::Result;
use crate::slices::hit;

/// Wall time in nanoseconds.
pub fn measure(bench: &mut Bench<'_>) -> Result<Rounds> {
    let mut rounds = Rounds::new("open + first get", Unit::Nanoseconds);
    let peers = bench.readable();
    for round in 0..bench.effort.rounds {
        let slice = hit::draw(&mut bench.sampler, 1);
        let expected = bench.expected(&slice)?;
        for peer in rotated(&peers, round) {
            let (opened, ns) = on_wall(|| {
                let opened = bench.open(peer)?;
                opened.engine.read(&mut |reader| check(peer, reader.run(&slice)?, expected))?;
                Ok(opened)
            })?;
            drop(opened); // not timed
            rounds.push(peer.name, ns);
        }
    }
    Ok(rounds)
}
