//! `cold`: gets when no page of the files is in the page cache. Bytes read from the disk are counted too.
//!
//! An engine is opened after its files were dropped from the cache. Opening is not timed.

use std::fs::{self, File};

use rustix::fs::{Advice, fadvise, sync};

use crate::bench::{Bench, check, files_under, rotated};
use crate::clock::on_wall;
use crate::data::Sampler;
use crate::engine::Peer;
use crate::measurement::{Rounds, Unit};
use crate::process::disk_reads;
use crate::reader::Result;
use crate::slices::{Slice, batch, hit};

const PAGE: f64 = 4096.0;

/// The ways to empty the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evict {
    /// Advises the kernel to drop the engine's own files. Needs no privileges and does not affect other programs.
    Files,
    /// Drops the cache of the entire machine, directories included. Needs root.
    Machine,
}

/// Wall time in nanoseconds and pages of 4096 bytes from the disk, per get: one by one, then in batches.
pub fn measure(bench: &mut Bench<'_>, evict: Evict) -> Result<Vec<Rounds>> {
    let mut rounds = measure_kind(bench, evict, "cold", hit::draw)?;
    rounds.extend(measure_kind(bench, evict, "cold batch", batch::draw_cold)?);
    Ok(rounds)
}

fn measure_kind(
    bench: &mut Bench<'_>,
    evict: Evict,
    name: &str,
    draw: fn(&mut Sampler, usize) -> Slice,
) -> Result<Vec<Rounds>> {
    let mut times = Rounds::new(name, Unit::Nanoseconds);
    let mut pages = Rounds::new(format!("{name}, pages read a get"), Unit::Count);
    let peers = bench.readable();
    for round in 0..bench.effort.rounds {
        let slice = draw(&mut bench.sampler, bench.effort.cold);
        let expected = bench.expected(&slice)?;
        for peer in rotated(&peers, round) {
            evict_files(bench, peer, evict)?;
            let (ns, bytes) = run_cold(bench, peer, &slice, expected)?;
            let gets = bench.effort.cold as f64;
            times.push(peer.name, ns / gets);
            pages.push(peer.name, bytes as f64 / PAGE / gets);
        }
    }
    Ok(vec![times, pages])
}

fn run_cold<'a>(bench: &Bench<'a>, peer: &'a Peer, slice: &Slice, expected: u64) -> Result<(f64, u64)> {
    let opened = bench.open(peer)?;
    let mut measured = (0.0, 0);
    opened.engine.read(&mut |reader| {
        let before = disk_reads()?;
        let (sum, ns) = on_wall(|| reader.run(slice))?;
        measured = (ns, disk_reads()?.saturating_sub(before));
        check(peer, sum, expected)
    })?;
    Ok(measured)
}

/// Empties the page cache.
pub fn evict_files(bench: &Bench<'_>, peer: &Peer, evict: Evict) -> Result<()> {
    match evict {
        Evict::Files => {
            for file in files_under(&bench.files_of(peer))? {
                fadvise(File::open(file)?, 0, None, Advice::DontNeed)?;
            }
        }
        Evict::Machine => {
            sync();
            fs::write("/proc/sys/vm/drop_caches", "3")
                .map_err(|error| format!("expected to drop the machine's caches, which takes root: {error}"))?;
        }
    }
    Ok(())
}
