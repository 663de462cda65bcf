//! `clean-parts`: removes the files of partitioned builds.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sharddb::cluster::clean;

use crate::age::Age;
use crate::context::{Context, warn};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::printable::word;
use crate::remote::RemoteStore;
use crate::remote::url::path_or_url;

/// Build in parts, at the end: remove what is left of builds
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb clean-parts store                      of all builds that were published
  sharddb clean-parts store night                of one build, also if it was given up
  sharddb clean-parts s3://bucket/store --older-than 7d

Removes the files of STORE/parts-JOB: output of failed and repeated attempts, and the mark by which
publish-parts finds that it was done. A build that is removed cannot be published any more. Its
processes must have ended. Without a JOB, builds that have spills or parts stay, since they may be
at work, and are named. Files that no build makes stay and are named.

Exit codes: 0 removed, 2 usage, 4 no such build, or another writer is at work.")]
pub(crate) struct Args {
    /// The store, a path or a URL
    #[arg(value_parser = path_or_url())]
    store: PathBuf,
    /// The name of the build. Default: all that were published and have no spills or parts; at a URL, all that are old enough
    job: Option<String>,
    /// At a URL: remove builds whose newest object is at least this old, by the clock of the server: 7d, 12h, 30m or 0s.
    /// Default with JOB: 0s
    #[arg(long, value_name = "AGE")]
    older_than: Option<Age>,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        if let Some(remote) = RemoteStore::open(&self.store)? {
            return remote.clean_parts(self.job.as_deref(), self.age()?, context);
        }
        if self.older_than.is_some() {
            return Err(Failure::usage("--older-than is for stores at a URL"));
        }
        let cleaned = clean(&self.store, self.job.as_deref())?;
        for file in &cleaned.foreign {
            warn(format_args!("left in place: {}", file.display()));
        }
        if cleaned.jobs.is_empty() {
            context.say("nothing to remove")
        } else {
            context.say(format_args!("removed {}", cleaned.jobs.join(", ")))
        }
        for job in &cleaned.left {
            let command = format!("sharddb clean-parts {} {}", word(&self.store), word(Path::new(job)));
            context.say(format_args!(
                "left: {job}, with spills or parts; once its processes have ended, {command} removes it"
            ));
        }
        Ok(Exit::Done)
    }

    /// How old the objects must be. Nothing else shows whether the processes of a build have ended.
    fn age(&self) -> Result<Duration> {
        match (self.older_than, &self.job) {
            (Some(Age(age)), _) => Ok(age),
            (None, Some(_)) => Ok(Duration::ZERO),
            (None, None) => {
                Err(Failure::usage("expected a JOB or --older-than AGE, such as 7d: a build may be at work"))
            }
        }
    }
}
