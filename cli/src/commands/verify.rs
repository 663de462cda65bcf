//! `verify`: whether a data set keeps all rules.

use std::io::Write;

use clap::ValueEnum;
use sharddb::VerifyLevel;

use crate::context::{self, Context};
use crate::database::Database;
use crate::exit::Exit;
use crate::failure::{Failure, Result};

/// Check a database against every rule of the format, and against its manifest
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb verify numbers
  sharddb verify numbers --level data --json | jq .

A finding a line, with file, minishard and key. Exit codes: 0 nothing found, 3 findings.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// How deep to look
    #[arg(long, value_enum, default_value_t = Level::Data)]
    level: Level,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// How deep to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    /// Files, sizes, shard indexes
    Structure,
    /// Also every minishard index: placement of keys, duplicates, overlaps, gaps
    Index,
    /// Also every value: decoding and checksums
    Data,
}
