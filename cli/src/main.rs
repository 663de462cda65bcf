//! The program `sharddb`.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    sharddb_cli::run(&arguments).into()
}
