//! ShardDb beside the engines that one would otherwise take: one process, the same keys in the same order, the
//! engines taking turns, the sums of what they read compared.
//!
//! ```text
//! args, machine              what is asked for, and where
//! random, data, input        the pairs, a function of the key's number, and their order
//! reader, slices/            what every engine can be asked, and what it is asked between two looks at the clock
//! engine, engines/           how an engine is loaded and opened, one a file
//! bench, workloads/          what is measured together, and how, one workload a file
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
