//! The command `sharddb`: build, look up, verify, export and publish ShardDb stores.
//!
//! Data goes to standard output, words to standard error. What a run ends with is an [`Exit`].

mod bar;
mod bench;
mod chunks;
mod commands;
mod context;
mod database;
mod exit;
mod failure;
mod histogram;
mod input;
mod interrupt;
mod key;
mod output;
mod plot;
mod sharding;
mod size;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Cli;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;

fn main() -> ExitCode {
    let cli = Cli::parse(); // a mistake on the command line ends here, with 2
    match run(cli) {
        Ok(exit) => exit.into(),
        Err(Failure::BrokenPipe) => Exit::Done.into(),
        Err(failure) => {
            context::warn(format_args!("sharddb: {failure}"));
            failure.exit().into()
        }
    }
}

fn run(cli: Cli) -> Result<Exit> {
    let interrupt = Interrupt::install().map_err(Failure::signals)?;
    let context = Context { quiet: cli.quiet, interrupt };
    match cli.command.run(&context) {
        Err(failure) => match context.interrupt.exit() {
            // whatever else it says, it was the signal that ended it
            Some(exit) => Ok(exit),
            None => Err(failure),
        },
        done => done,
    }
}
