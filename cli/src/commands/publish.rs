//! `publish`: makes a generation that was built elsewhere the current one of a store.

use std::path::PathBuf;

use serde_json::json;
use sharddb::Store;

use crate::commands::write_json;
use crate::context::Context;
use crate::entry;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::foreign;
use crate::output::Sources;
use crate::progress::Display;
use crate::remote::url::local_path;

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

Data that another program wrote, or a whole store, is taken by sharddb import.
With --json, the members are \"generation\", \"keys\", \"value_bytes\" and \"shards\".

Exit codes: 0 published, 2 no generation that ShardDb wrote, 3 corrupt, 4 not found, no space, or
another writer is at work.")]
pub(crate) struct Args {
    /// The store; created if there is none
    #[arg(value_parser = local_path())]
    store: PathBuf,
    /// The directory of the generation
    #[arg(long, value_name = "DIR", value_parser = local_path())]
    from: PathBuf,
    /// Move the directory into the store instead of copying it
    #[arg(long = "move")]
    moving: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        self.from.metadata().map_err(|error| Failure::io("open", &self.from, error))?;
        self.check_source()?;
        Sources::of([&self.from]).refuse(&self.store)?;
        let cleanup = context.interrupt.publishing();
        let store = Store::create(&self.store).map_err(|error| foreign::not_a_store(error.into(), &self.store))?;
        let mut writer = store.writer()?;
        let read = context.interrupt.progress();
        writer.progress(&read);
        let progress = Display::count(context.quiet, if self.moving { "check" } else { "copy" }, &read);
        let id = if self.moving { writer.adopt_by_moving(&self.from) } else { writer.adopt(&self.from) }?;
        cleanup.done();
        drop(progress);
        if self.json {
            let totals = store.totals(id)?;
            write_json(&json!({
                "generation": id.to_string(),
                "keys": totals.keys,
                "value_bytes": totals.value_bytes,
                "shards": totals.shards,
            }))?;
        }
        context.say(format_args!("published {id}"));
        Ok(Exit::Done)
    }

    /// Errors: `Usage` if ShardDb did not write the directory, or it is a store; `Io`.
    fn check_source(&self) -> Result<()> {
        if entry::is_file(&self.from.join("manifest.json"))? {
            return Ok(());
        }
        let from = self.from.display();
        let import = foreign::import(&self.from, &self.store);
        let expected = format!("expected a generation that ShardDb wrote, with a manifest.json, found none in {from}");
        Err(Failure::usage(match () {
            () if Store::is_at(&self.from)? => {
                format!("expected a generation, found the store {from}: use --from {from}/current, or {import}")
            }
            () if foreign::is_data(&self.from)? => {
                format!("{expected}: for data that another program wrote, use {import}")
            }
            () => expected,
        }))
    }
}
