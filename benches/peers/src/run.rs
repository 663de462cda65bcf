//! Runs a benchmark from its arguments: each set, each group of engines, each workload.

use std::fs;
use std::path::PathBuf;

use crate::args::Arguments;
use crate::bench::{Bench, Opened};
use crate::data::{DataSet, Sampler};
use crate::engine::Peer;
use crate::engines::{REFERENCE, sharddb};
use crate::groups::groups;
use crate::machine::Machine;
use crate::measurement::{Measurement, Rounds, Unit, ratios};
use crate::process::mapped_under;
use crate::reader::Result;
use crate::report::{self, SetReport};
use crate::slices::KINDS;
use crate::workloads::cold::{Evict, evict_files};
use crate::workloads::{cold, load, open, service, threads, warm};

/// The share of the machine's memory for engines that are measured together.
const SHARE_OF_MEMORY: f64 = 0.6;

/// Rounds that read less than this from the disk count as warm.
const WARM: f64 = (1 << 20) as f64;

/// Runs the requested measurements; prints a table after each set.
pub fn run(arguments: &Arguments) -> Result<()> {
    let machine = Machine::this();
    println!("{}", report::heading(&machine));
    let memory = (machine.memory_bytes as f64 * SHARE_OF_MEMORY) as u64;
    let mut sets = Vec::new();
    for data in &arguments.sets {
        let set = run_set(arguments, data, memory)?;
        println!("{}", set.to_markdown());
        sets.push(set);
        if let Some(path) = &arguments.json {
            fs::write(path, report::to_json(&machine, &sets))?; // after each set, because the next one may take an hour
        }
    }
    Ok(())
}

fn run_set(arguments: &Arguments, data: &DataSet, memory: u64) -> Result<SetReport> {
    let mut set = SetReport { data: *data, measurements: Vec::new() };
    let peers = arguments.peers(data);
    for (number, group) in groups(&peers, data, memory).into_iter().enumerate() {
        let measured = run_group(arguments, data, group)?;
        // the reference is in every group, for the ratios; it is reported once
        set.measurements.extend(measured.into_iter().filter(|it| number == 0 || it.engine != REFERENCE));
    }
    Ok(set)
}

fn run_group(arguments: &Arguments, data: &DataSet, peers: Vec<&Peer>) -> Result<Vec<Measurement>> {
    let place = Place::new(arguments.directory.join(data.to_string()), arguments.keep)?;
    let sampler = Sampler::new(*data);
    let mut bench = Bench { sampler, effort: &arguments.effort, peers, directory: place.directory.clone() };
    let progress = |what: &str| eprintln!("{data}: {what}");
    let mut measured = Vec::new();
    let mut take = |rounds: Rounds| measured.extend(rounds.measurements(REFERENCE));

    if arguments.wants("sorted-load") {
        progress("sorted-load");
        load::measure_ascending(&bench)?.into_iter().for_each(&mut take);
    }
    progress("load");
    load::measure(&bench)?.into_iter().for_each(&mut take);
    if arguments.wants("open") {
        progress("open");
        take(open::measure(&mut bench)?);
    }

    progress("warm up");
    let (opened, mapped) = open_warm(&bench, arguments.restart.then_some(arguments.evict))?;
    mapped.into_iter().for_each(&mut take);
    for kind in KINDS.into_iter().filter(|(name, _)| arguments.wants(name)) {
        progress(kind.0);
        let (times, reads) = warm::measure(&mut bench, &opened, kind)?;
        take(times);
        if reads.maximum() > WARM {
            progress("read from the disk: there is too little memory for a warm cache");
            take(reads);
        }
    }
    if arguments.wants("threads") {
        progress("threads");
        threads::measure(&mut bench, &opened)?.into_iter().for_each(&mut take);
    }
    if arguments.wants("service") {
        progress("service");
        service::measure(&mut bench, &opened)?.into_iter().for_each(&mut take);
    }
    drop(opened);

    if arguments.wants("service") && bench.peers.iter().any(|peer| peer.name == sharddb::PEER.name) {
        progress("service, swaps");
        service::measure_during_swaps(&mut bench)?.into_iter().for_each(&mut take);
    }
    if arguments.wants("cold") {
        progress("cold");
        cold::measure(&mut bench, arguments.evict)?.into_iter().for_each(&mut take);
    }
    measured.extend(derived(&measured));
    Ok(measured)
}

/// Opens all engines, after emptying the page cache by `restart` if given; reads all pages that will be measured, and
/// records the mapped bytes.
fn open_warm<'a>(bench: &Bench<'a>, restart: Option<Evict>) -> Result<(Vec<Opened<'a>>, [Rounds; 2])> {
    let mut resident = Rounds::new("mapped", Unit::Bytes);
    let mut huge = Rounds::new("mapped in huge pages", Unit::Bytes);
    let mut opened = Vec::new();
    if let Some(evict) = restart {
        // before any is opened: eviction also drops the warm pages of engines that map nothing
        bench.readable().into_iter().try_for_each(|peer| evict_files(bench, peer, evict))?;
    }
    for peer in bench.readable() {
        opened.push(match restart {
            Some(_) => warm::open_after_restart(bench, peer)?,
            None => bench.open(peer)?,
        });
        warm::warm_up(bench, &opened[opened.len() - 1..])?;
        let mapped = mapped_under(&bench.files_of(peer))?;
        resident.push(peer.name, mapped.resident as f64);
        huge.push(peer.name, mapped.huge as f64);
    }
    Ok((opened, [resident, huge]))
}

/// Measurements derived from two others.
fn derived(measured: &[Measurement]) -> Vec<Measurement> {
    let rounds = |workload: &str, engine: &str| {
        let found = measured.iter().find(|it| it.workload == workload && it.engine == engine);
        found.map(|it| it.rounds.as_slice())
    };
    let ratio = |name: &str, engine, numbers: Option<&[f64]>, to: Option<&[f64]>| {
        let (workload, rounds) = (name.to_string(), ratios(numbers?, to?));
        Some(Measurement { workload, engine, unit: Unit::Ratio, rounds, reference: None })
    };
    let engines: Vec<_> = measured.iter().filter(|it| it.workload == "mapped").map(|it| it.engine).collect();
    let mut derived = Vec::new();
    for engine in &engines {
        derived.extend(ratio("batch to own hit", engine, rounds("batch", engine), rounds("hit", engine)));
        let one = rounds(&threads::name(1), engine);
        for threads in threads::THREADS.into_iter().skip(1) {
            let name = format!("gets a second, {threads} threads to one");
            derived.extend(ratio(&name, engine, one, rounds(&threads::name(threads), engine)));
        }
    }
    let (once, never) = (sharddb::PEER.name, sharddb::NEVER.name);
    for (name, _) in KINDS {
        derived.extend(ratio(&format!("{name}, once to never"), once, rounds(name, once), rounds(name, never)));
    }
    derived
}

/// The directory of a set: emptied at the start, removed at the end.
struct Place {
    directory: PathBuf,
    keep: bool,
}

impl Place {
    fn new(directory: PathBuf, keep: bool) -> Result<Place> {
        if directory.try_exists()? {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
        Ok(Place { directory, keep })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.keep
            && let Err(error) = fs::remove_dir_all(&self.directory)
        {
            eprintln!("peers: {} stays: {error}", self.directory.display());
        }
    }
}
