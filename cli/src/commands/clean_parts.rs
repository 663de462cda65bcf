//! `clean-parts`: removes the files of partitioned builds.

use std::path::PathBuf;

use sharddb::parts::clean;

use crate::context::{Context, warn};
use crate::exit::Exit;
use crate::failure::Result;

/// Build in parts, at the end: remove what is left of builds
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb clean-parts store                      of all builds that were published
  sharddb clean-parts store night                of one build, also if it was given up

Removes the files of STORE/parts-JOB: output of failed and repeated attempts, and the mark by which
publish-parts finds that it was done. A build that is removed cannot be published any more. Its
processes must have ended. Files that no build makes stay and are named.

Exit codes: 0 removed, 2 usage, 4 no such build, or another writer is at work.")]
pub(crate) struct Args {
    /// The store
    store: PathBuf,
    /// The name of the build. Default: all that were published
    job: Option<String>,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let cleaned = clean(&self.store, self.job.as_deref())?;
        for file in &cleaned.foreign {
            warn(format_args!("left in place: {}", file.display()));
        }
        match cleaned.jobs.is_empty() {
            true => context.say("nothing to remove"),
            false => context.say(format_args!("removed {}", cleaned.jobs.join(", "))),
        }
        Ok(Exit::Done)
    }
}
