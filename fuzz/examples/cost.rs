//! The cost model for hostile inputs: memory of at most 64 MiB plus 12 times the input, and time linear in the input.
//!
//! ```text
//! cargo run --release --example cost -- model [FAMILY...]   each family at n and 2n: at most 2.3 times the cost
//! cargo run --release --example cost -- files DATA DIR...   the memory of DIR/TARGET/* and of the data sets in DATA
//! cargo run --release --example cost -- run TARGET FILE...  one process, which prints its peak memory in KiB
//! ```
//!
//! DATA is `work/data`, which `./unpack.sh` makes from `tests/data`.
//!
//! Instructions are counted, not timed: by `perf` if the processor supports it, else by `valgrind`. The count of a
//! process with an empty input is subtracted. The last line is `N passed, N failed`; exit: 1 if anything failed.

#[path = "cost/count.rs"]
mod count;
#[path = "cost/families.rs"]
mod families;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use count::{Counter, peak_of};
use families::{FAMILIES, Family};
use sharddb_fuzz::targets::ALL;
use sharddb_fuzz::{container, scratch};

/// Upper bound on the peak memory of a process: `CONSTANT` plus `PER_BYTE` times its largest input.
const CONSTANT: u64 = 64 << 20;
const PER_BYTE: u64 = 12;

/// Upper bound on the cost ratio of an input of twice the size: twice as much, plus sorting and noise.
const MOST: f64 = 2.3;

/// An input that takes fewer instructions than this was refused immediately.
const NOTHING: f64 = 100_000.0;

/// Inputs per process.
const AT_ONCE: usize = 1000;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let verdicts = match args.as_slice() {
        ["run", target, files @ ..] => return run(target, files),
        ["model", names @ ..] => model(names),
        ["files", data, directories @ ..] => files(Path::new(data), directories),
        _ => panic!("usage: cost model [FAMILY..] | files DATA DIR.. | run TARGET FILE.."),
    };
    let failed = verdicts.iter().filter(|passed| !**passed).count();
    println!("{} passed, {failed} failed", verdicts.len() - failed);
    ExitCode::from(u8::from(failed > 0))
}

fn run(target: &str, files: &[&str]) -> ExitCode {
    let (_, run) = ALL.iter().find(|(name, _)| *name == target).expect("a target");
    files.iter().for_each(|file| run(&fs::read(file).expect("a file")));
    scratch::remove();
    println!("{}", count::own_peak_kib());
    ExitCode::SUCCESS
}

/// Measures each family at its size and at twice that, two at a time.
fn model(names: &[&str]) -> Vec<bool> {
    let work = scratch::directory("cost");
    let counter = Counter::find();
    println!("instructions by {counter:?}");
    println!(
        "{:30} {:>9} {:>8} {:>14} {:>6} {:>8} {:>8}",
        "family", "input", "target", "instructions", "ratio", "KiB", "at most"
    );
    let families: Vec<&Family> =
        FAMILIES.iter().filter(|family| names.is_empty() || names.contains(&family.name)).collect();
    let next = AtomicUsize::new(0);
    let one_after_another = || {
        let mut verdicts = Vec::new();
        while let Some(family) = families.get(next.fetch_add(1, Ordering::Relaxed)) {
            verdicts.push(is_linear(family, counter, &work));
        }
        verdicts
    };
    let verdicts = thread::scope(|scope| {
        let other = scope.spawn(one_after_another);
        let mut verdicts = one_after_another();
        verdicts.extend(other.join().expect("a thread"));
        verdicts
    });
    scratch::remove();
    verdicts
}

fn is_linear(family: &Family, counter: Counter, work: &Path) -> bool {
    let [empty, once, twice] = [0, 1, 2].map(|times| {
        let path = work.join(format!("{}-{times}", family.name));
        let input = if times == 0 { Vec::new() } else { (family.make)(family.size * times) };
        fs::write(&path, &input).expect("a file");
        (path, input.len() as u64)
    });
    let count = |path: &PathBuf| counter.count(family.target, path) as f64;
    let base = count(&empty.0);
    let [first, second] = [&once, &twice].map(|(path, _)| (count(path) - base).max(0.0));
    let growth = twice.1 as f64 / once.1 as f64 / 2.0;
    let ratio = if second < NOTHING { 0.0 } else { second / first.max(NOTHING) / growth };
    let (peak, most) = (peak_of(family.target, &[twice.0]), CONSTANT + PER_BYTE * twice.1);
    let passed = ratio <= MOST && peak <= most;
    println!(
        "{:30} {:>9} {:>8} {second:>14} {ratio:>6.2} {:>8} {:>8} {}",
        family.name,
        twice.1,
        family.target,
        peak >> 10,
        most >> 10,
        if passed { "ok" } else { "FAIL" }
    );
    passed
}

/// Measures the memory of the committed inputs and data sets.
fn files(data: &Path, directories: &[&str]) -> Vec<bool> {
    let work = scratch::directory("cost");
    let mut verdicts = Vec::new();
    for (target, _) in ALL {
        let mut inputs: Vec<PathBuf> =
            directories.iter().flat_map(|it| files_in(&Path::new(it).join(target))).collect();
        if *target == "data_set" {
            inputs = data_sets(data, &work);
        }
        for inputs in inputs.chunks(AT_ONCE) {
            verdicts.push(is_within_bounds(target, inputs));
        }
    }
    scratch::remove();
    verdicts
}

fn is_within_bounds(target: &str, inputs: &[PathBuf]) -> bool {
    let largest = inputs.iter().map(|path| path.metadata().expect("a file").len()).max().unwrap_or(0);
    let (peak, most) = (peak_of(target, inputs), CONSTANT + PER_BYTE * largest);
    let verdict = if peak <= most { "ok" } else { "FAIL" };
    println!("{target:16} {:>6} files, {:>8} KiB of {:>8}: {verdict}", inputs.len(), peak >> 10, most >> 10);
    peak <= most
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    files
}

/// The mutants and broken data sets of `data`, as inputs.
fn data_sets(data: &Path, work: &Path) -> Vec<PathBuf> {
    let mut inputs = Vec::new();
    let mut put = |info: Vec<u8>, shard: Vec<u8>| {
        let path = work.join(inputs.len().to_string());
        fs::write(&path, container::join(0, &[info, shard])).expect("a file");
        inputs.push(path);
    };
    let results = fs::read_to_string(data.join("fuzz/results.jsonl")).expect("a list of mutants");
    for line in results.lines() {
        let mutant: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let read = |name: String| fs::read(data.join("fuzz").join(name)).expect("a file");
        put(read(format!("{}.info", mutant["base"].as_str().unwrap())), read(mutant["file"].as_str().unwrap().into()));
    }
    for set in ["corrupt", "public"].iter().flat_map(|sets| fs::read_dir(data.join(sets)).expect("data sets")) {
        let set = set.expect("an entry").path();
        let Ok(info) = fs::read(set.join("info")) else { continue };
        for shard in files_in(&set).iter().filter(|path| path.extension().is_some_and(|it| it == "shard")) {
            put(info.clone(), fs::read(shard).expect("a file"));
        }
    }
    inputs
}
