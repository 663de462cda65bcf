//! `delete`: deletes keys of a store.

use std::path::PathBuf;

use clap::Arg;
use sharddb::write::UpdateOptions;
use sharddb_container::Container;

use crate::allow_empty::AllowEmpty;
use crate::commands::stages::status_of;
use crate::commands::update::{After, Update};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::position::KeysOrPosition;
use crate::progress::Display;
use crate::remote::url::local_path;

/// Delete keys of a store and publish the result
#[derive(Debug, clap::Args)]
#[command(mut_arg("keys", of_pairs))]
#[command(after_help = "\
Examples:
  sharddb delete numbers 3
  sharddb delete numbers 1 0x2 3 --strict
  sharddb delete volume --at 3,0,7               a chunk by its position in the grid
  sharddb update numbers --delete gone.txt       the keys of a list

The shards of the keys are written again, and the others are linked, as by sharddb update. A key
that the store does not have is counted; if it has none of them, no generation is published.

With --json, the members are those of sharddb update.

Exit codes: 0 published, or no key was there, 1 a key is absent with --strict, 2 usage, 3 corrupt,
or no key is left, 4 not found, no space, or another writer is at work.")]
pub(crate) struct Args {
    /// The store
    #[arg(value_parser = local_path())]
    store: PathBuf,
    #[command(flatten)]
    keys: KeysOrPosition,
    /// Publish nothing if a key is absent
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    allow_empty: AllowEmpty,
    #[command(flatten)]
    after: After,
}

fn of_pairs(keys: Arg) -> Arg {
    keys.help("The keys, decimal or 0x hex")
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let build = context.interrupt.progress();
        let mut options = UpdateOptions::new();
        options.strict(self.strict).allow_empty(self.allow_empty.allow_empty).progress(&build);
        let mut update = Update::begin(&self.store, None, options, context)?;
        let progress = Display::start(context.quiet, move || status_of(&build));
        let keys = self.keys.resolve(|| Container::key_space(update.updater.base()))?;
        update.delete(&keys)?;
        update.finish(progress)?.conclude(self.after, 0, context)
    }
}
