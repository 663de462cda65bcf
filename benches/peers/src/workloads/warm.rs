//! Slices of 200,000 operations from a warm cache. Engines take turns, so that a disturbance affects all of them.

use std::fs::File;
use std::io;

use crate::bench::{Bench, Opened, files_under, rotated};
use crate::clock::on_cpu;
use crate::engine::Peer;
use crate::measurement::{Rounds, Unit};
use crate::process::disk_reads;
use crate::reader::Result;
use crate::slices::{Kind, Slice};

/// This many gets touch every page of a larger set, and every key of a smaller one.
const WARM_UP: u64 = 20_000_000;

/// Reads all pages that will be measured: maps get their pages, caches are filled.
pub fn warm_up(bench: &Bench<'_>, opened: &[Opened<'_>]) -> Result<()> {
    let data = bench.data();
    let step = usize::try_from(data.keys.div_ceil(WARM_UP))?;
    let slice = Slice::Whole(data.keys().step_by(step).collect());
    let expected = bench.expected(&slice)?;
    opened.iter().try_for_each(|peer| peer.run(&slice, expected, |work| on_cpu(work)).map(drop))
}

/// Opens an engine whose files are not in memory and warms it as its documentation advises: by a function of its own,
/// or else by reading the files sequentially.
pub fn open_after_restart<'a>(bench: &Bench<'a>, peer: &'a Peer) -> Result<Opened<'a>> {
    if let Some(open) = peer.open_and_warm {
        return Ok(Opened { peer, engine: open(&bench.files_of(peer))? });
    }
    for file in files_under(&bench.files_of(peer))? {
        io::copy(&mut File::open(file)?, &mut io::sink())?;
    }
    bench.open(peer)
}

/// Processor time per operation in nanoseconds, and the bytes that were still read from the disk.
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
