//! ShardDb compared with other engines: one process, the same keys in the same order, engines in turns, and equal sums
//! of what they read.
//!
//! ```text
//! args, machine              the options, and the machine
//! random, data, input        the pairs, functions of the key's number, and their order
//! reader, slices/            the reads that every engine supports, and the units of work between two clock readings
//! engine, engines/           how an engine is loaded and opened, one per file
//! bench, workloads/          what is measured together, and how, one workload per file
//! measurement, report        rounds, ratios, tables
//! ```

mod args;
mod bench;
mod clock;
mod data;
mod engine;
mod engines;
mod groups;
mod input;
mod machine;
mod measurement;
mod process;
mod random;
mod reader;
mod report;
mod run;
mod slices;
mod workloads;

use std::process::ExitCode;

use crate::args::{Arguments, Request, USAGE};
use crate::reader::Result;
use crate::workloads::load;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((load::ARGUMENT, rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return load::run_child(rest);
    }
    match Arguments::parse(&arguments)? {
        Request::Help => println!("{USAGE}"),
        Request::Measure(arguments) => run::run(&arguments)?,
    }
    Ok(())
}
