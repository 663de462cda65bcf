//! `gc`: removes old generations.

use std::path::PathBuf;

use sharddb::store::GcReport;

use crate::commands::open_store;
use crate::context::{Context, warn};
use crate::exit::Exit;
use crate::failure::Result;

/// Remove old generations that are not open for reading
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb gc numbers
  sharddb gc numbers --keep 3                    keeps two more, for a rollback

The current generation is never removed, nor one that a process has open. If a generation cannot be
removed, the others still are; it is named, and the exit code is 4.

Exit codes: 0 done, 2 no store, 3 current names a generation that does not exist, 4 a generation
could not be removed, not found, or another writer is at work.")]
pub(crate) struct Args {
    /// The store
    store: PathBuf,
    /// Number of newest generations to keep
    #[arg(long, value_name = "N", default_value_t = 1)]
    keep: usize,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        Ok(say(context, &open_store(&self.store)?.writer()?.gc(self.keep)?))
    }
}

/// Reports what was removed and what was not; returns the exit code.
pub(crate) fn say(context: &Context, report: &GcReport) -> Exit {
    report.removed.iter().for_each(|id| context.say(format_args!("removed {id}")));
    report.in_use.iter().for_each(|id| context.say(format_args!("kept {id}: it is open for reading")));
    report
        .failed
        .iter()
        .for_each(|failed| warn(format_args!("sharddb: cannot remove {}: {}", failed.id, failed.error)));
    if report.failed.is_empty() { Exit::Done } else { Exit::Io }
}
