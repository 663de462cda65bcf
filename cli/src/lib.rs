//! The command `sharddb`: build, look up, verify, export and publish ShardDb stores.
//!
//! Data goes to standard output, messages to standard error. A run ends with one of the exit codes that `sharddb help` lists.
//!
//! `cargo install sharddb-cli` installs it. The Python package calls [`run`]. Programs use the crate [`sharddb`].

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod age;
mod allow_empty;
mod bench;
mod chunks;
mod commands;
mod context;
mod database;
mod duplicates;
mod entry;
mod exit;
mod failure;
mod foreign;
mod freed;
mod histogram;
mod in_order;
mod input;
mod intake;
mod interrupt;
mod leases;
mod limits;
mod not_a_database;
mod number;
mod order;
mod output;
mod plan;
mod plot;
mod position;
mod printable;
mod progress;
mod publication;
mod receipts;
mod remote;
mod scratch;
mod secrets;
mod sharding;
mod size;
#[cfg(test)]
mod testing;
mod tip;
mod url_text;
mod viewer;

use std::ffi::OsString;
use std::io::{self, Write};

use clap::Parser;

use crate::commands::Cli;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;

/// Runs the command and returns its exit code. The first argument is the name of the program.
///
/// It owns its process, which is to end afterwards: it raises the limit of open files, handles SIGINT, SIGTERM and SIGXFSZ, and
/// some runs end the process themselves after a signal. Standard input, output and error must be open, and SIGPIPE must be
/// ignored, as Rust's `main` provides.
///
/// ```
/// assert_eq!(sharddb_cli::run(&["sharddb".into(), "--version".into()]), 0);
/// ```
#[must_use]
pub fn run(arguments: &[OsString]) -> u8 {
    limits::raise_open_files();
    progress::clear_on_panic();
    arguments.iter().for_each(|argument| secrets::learn_url(argument));
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return reject(arguments, &error),
    };
    let exit = match std::panic::catch_unwind(|| run_parsed(cli)) {
        Err(_) => Exit::Internal, // the hook has printed where and why
        Ok(Ok(exit)) => exit,
        Ok(Err(Failure::BrokenPipe)) => Exit::Done,
        Ok(Err(failure)) => {
            context::warn(format_args!("sharddb: {failure}"));
            failure.exit()
        }
    };
    let _ = io::stdout().flush(); // a run that succeeded has done it, and reported the error
    exit.code()
}

/// Ends a run on a clap error: exit code 2 for a wrong command line, 0 for `--help` and `--version`.
fn reject(arguments: &[OsString], error: &clap::Error) -> u8 {
    // clap prints arguments verbatim between its own color codes, so the message is made from the escaped arguments
    let escaped = arguments.iter().map(|arg| printable::line(url_text::shown(&arg.to_string_lossy())).to_string());
    match Cli::try_parse_from(escaped) {
        Err(mut harmless) => {
            tip::add(&mut harmless, arguments);
            let _ = harmless.print(); // there is no other place to report a failure
        }
        // the escaped arguments parse, which happens only if an argument is not UTF-8
        Ok(_) => context::warn_lines(error.render().to_string().trim_end()),
    }
    u8::try_from(error.exit_code()).unwrap_or(Exit::Usage.code())
}

fn run_parsed(cli: Cli) -> Result<Exit> {
    let interrupt = match Interrupt::install() {
        // without a thread that waits for signals, the operating system ends the process, which has nothing to remove
        Err(_) if cli.command.is_lookup() => Interrupt::default(),
        installed => installed.map_err(Failure::signals)?,
    };
    let context = Context { quiet: cli.quiet, verbose: cli.verbose, interrupt };
    let outcome = cli.command.run(&context);
    context.interrupt.wait_for_end();
    let Some(exit) = context.interrupt.exit() else { return outcome };
    let is_done = context.interrupt.is_done();
    if is_done || outcome.is_err() {
        context::warn(context.interrupt.message());
    }
    match outcome {
        Err(Failure::Cancelled) if is_done => Ok(Exit::Done),
        // the signal decides the exit code, whatever error it caused
        Err(_) if !is_done => Ok(exit),
        outcome => outcome,
    }
}
