//! `publish`: makes a generation that was built elsewhere the current one of a store.

use std::path::PathBuf;
use std::sync::Arc;

use sharddb::Store;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::Sources;

/// Publish a generation that was built elsewhere
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rsync -aL build-host:/data/numbers/current/ incoming/
  sharddb publish numbers --from incoming
  sharddb publish numbers --from incoming --move

The manifest and the size and checksum of every file are verified before anything changes. Readers
see the old generation or the new one, never a mixture. A signal during the copy leaves the store
unchanged.

Exit codes: 0 published, 2 no generation that ShardDb wrote, 3 corrupt, 4 not found, no space, or
another writer is at work.")]
pub(crate) struct Args {
    /// The store; created if there is none
    store: PathBuf,
    /// The directory of the generation
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// Move the directory into the store instead of copying it
    #[arg(long = "move")]
    moving: bool,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        self.from.metadata().map_err(|error| Failure::io("open", &self.from, error))?;
        Sources::of([&self.from]).refuse(&self.store)?;
        let _cleanup = context.interrupt.cleanup();
        let mut writer = Store::create(&self.store)?.writer()?;
        writer.cancel(Arc::clone(context.interrupt.cancel()));
        let id = if self.moving { writer.adopt_by_moving(&self.from) } else { writer.adopt(&self.from) }?;
        context.say(format_args!("published {id}"));
        Ok(Exit::Done)
    }
}
