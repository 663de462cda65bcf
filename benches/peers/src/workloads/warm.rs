//! Slices of 200,000 operations from a warm cache: the engines take turns, so that what disturbs one disturbs all.

use crate::bench::{Bench, Opened, rotated};
use crate::clock::on_cpu;
use crate::measurement::{Rounds, Unit};
use crate::process::disk_reads;
use crate::reader::Result;
use crate::slices::{Kind, Slice};

/// So many gets touch nearly every page of a set that is larger, and all of one that is not.
const WARM_UP: u64 = 2_500_000;

/// Touches what will be read: maps have their pages, caches are filled.
pub fn warm_up(bench: &Bench<'_>, opened: &[Opened<'_>]) -> Result<()> {
    let data = bench.data();
    let step = usize::try_from(data.keys.div_ceil(WARM_UP))?;
    let slice = Slice::Whole(data.keys().step_by(step).collect());
    let expected = bench.expected(&slice)?;
    opened.iter().try_for_each(|peer| peer.run(&slice, expected, |work| on_cpu(work)).map(drop))
}

/// Nanoseconds of processor time an operation; and what came from the disk all the same, in bytes.
pub fn measure(bench: &mut Bench<'_>, opened: &[Opened<'_>], (name, draw): Kind) -> Result<(Rounds, Rounds)> {
    let mut times = Rounds::new(name, Unit::Nanoseconds);
    let mut reads = Rounds::new(format!("{name}, from the disk"), Unit::Bytes);
    for round in 0..bench.effort.rounds {
        let slice = draw(&mut bench.sampler, bench.effort.slice);
        let expected = bench.expected(&slice)?;
        for peer in rotated(opened, round) {
            let before = disk_reads()?;
            let ns = peer.run(&slice, expected, |work| on_cpu(work))?;
            times.push(peer.peer.name, ns / slice.operations() as f64);
            reads.push(peer.peer.name, disk_reads()?.saturating_sub(before) as f64);
        }
    }
    Ok((times, reads))
}
