//! `gc`: removes old generations.

use std::path::PathBuf;

use crate::commands::open_store;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;

/// Remove old generations that nobody reads
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb gc numbers
  sharddb gc numbers --keep 3                    so that a rollback stays possible

The current generation is never removed, nor one that some process has open.")]
pub(crate) struct Args {
    /// The store
    store: PathBuf,
    /// How many of the newest generations stay
    #[arg(long, value_name = "N", default_value_t = 1)]
    keep: usize,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let report = open_store(&self.store)?.writer()?.gc(self.keep)?;
        report.removed.iter().for_each(|id| context.say(format_args!("removed {id}")));
        report.in_use.iter().for_each(|id| context.say(format_args!("kept {id}: somebody reads it")));
        Ok(Exit::Done)
    }
}
