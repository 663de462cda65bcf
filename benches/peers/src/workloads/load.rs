//! `load`: from pairs in random order to files that survive a crash: wall time, peak memory, bytes on disk.
//!
//! Each load is a process of its own, to measure its peak memory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::bench::{Bench, files_under, rotated};
use crate::clock::on_wall;
use crate::data::{DataSet, Values};
use crate::engine::Peer;
use crate::engines::PEERS;
use crate::input::{Input, Order};
use crate::measurement::{Rounds, Unit};
use crate::process::peak_memory;
use crate::reader::Result;

/// The argument that makes the program run a single load.
pub const ARGUMENT: &str = "load-one";

/// Loads pairs in random order: wall time in nanoseconds, peak memory in bytes, bytes on disk, and bytes per key beyond
/// the value. Keeps the files.
pub fn measure(bench: &Bench<'_>) -> Result<[Rounds; 4]> {
    let mut times = Rounds::new("load", Unit::Nanoseconds);
    let mut peaks = Rounds::new("load, peak memory", Unit::Bytes);
    let mut disks = Rounds::new("on disk", Unit::Bytes);
    let mut overheads = Rounds::new("on disk beyond the value, a key", Unit::Bytes);
    for round in 0..bench.effort.loads {
        for peer in rotated(&bench.peers, round).filter(|peer| round == 0 || !peer.loads_once) {
            let directory = bench.files_of(peer);
            let (ns, peak) = load_in_child(peer, &bench.data(), Order::Any, &directory)?;
            let disk = bytes_on_disk(&directory)? as f64;
            times.push(peer.name, ns);
            peaks.push(peer.name, peak);
            disks.push(peer.name, disk);
            overheads.push(peer.name, disk / bench.data().keys as f64 - mean_value_len(&bench.data()));
        }
    }
    Ok([times, peaks, disks, overheads])
}

/// Loads pairs in ascending order, once: the best case of engines that append. Peak memory includes the keys (8 bytes
/// each).
pub fn measure_ascending(bench: &Bench<'_>) -> Result<[Rounds; 2]> {
    let mut times = Rounds::new("load, sorted input", Unit::Nanoseconds);
    let mut peaks = Rounds::new("load, sorted input, peak memory", Unit::Bytes);
    for peer in bench.peers.iter().filter(|peer| !peer.loads_once) {
        let (ns, peak) = load_in_child(peer, &bench.data(), Order::Ascending, &bench.files_of(peer))?;
        times.push(peer.name, ns);
        peaks.push(peer.name, peak);
    }
    Ok([times, peaks])
}

fn load_in_child(peer: &Peer, data: &DataSet, order: Order, directory: &Path) -> Result<(f64, f64)> {
    if directory.try_exists()? {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(directory)?;
    let mut child = Command::new(std::env::current_exe()?);
    child.args([ARGUMENT, peer.name, &data.to_string(), name_of(order)]).arg(directory);
    let output = child.output()?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: expected the load to succeed, found: {}", peer.name, words.trim()).into());
    }
    let said: Value = serde_json::from_slice(&output.stdout)?;
    let number = |name| said[name].as_f64().ok_or_else(|| format!("expected {name:?} from the load, found {said}"));
    Ok((number("ns")?, number("peak_memory")?))
}

/// Runs one load in its own process and prints its figures.
pub fn run_child(arguments: &[String]) -> Result<()> {
    let [name, data, order, directory] = arguments else {
        return Err(format!("expected engine, set, order and directory, found {arguments:?}").into());
    };
    let peer =
        PEERS.iter().find(|peer| peer.name == name).ok_or_else(|| format!("expected an engine, found {name}"))?;
    let order = [Order::Any, Order::Ascending].into_iter().find(|known| name_of(*known) == order);
    let input = Input::new(data.parse()?, order.ok_or("expected an order of pairs, found another word")?);
    let ((), ns) = on_wall(|| (peer.load)(Path::new(directory), &input))?;
    println!("{}", json!({ "ns": ns, "peak_memory": peak_memory()? }));
    Ok(())
}

fn name_of(order: Order) -> &'static str {
    match order {
        Order::Any => "any",
        Order::Ascending => "ascending",
    }
}

/// Allocated bytes, not lengths: a small file takes a block, a sparse one only its allocated blocks.
fn bytes_on_disk(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for file in files_under(directory)? {
        bytes += fs::metadata(file)?.blocks() * 512;
    }
    Ok(bytes)
}

fn mean_value_len(data: &DataSet) -> f64 {
    match data.values {
        Values::Fixed(len) => len as f64,
        Values::LogNormal => data.keys().map(|key| data.value_len(key)).sum::<u64>() as f64 / data.keys as f64,
    }
}
