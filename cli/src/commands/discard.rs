//! `discard`: removes one generation.

use sharddb::internal::generation_of_text;
use std::path::PathBuf;

use sharddb::GenerationId;

use crate::commands::open_store;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;

/// Remove one generation that is not current
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  sharddb rollback numbers
  sharddb discard numbers gen-0000000003         the bad generation that was rolled back

Exit codes: 0 removed, 2 no store, or the current generation, 3 a damaged current, 4 no such
generation, one that is open for reading, or another writer is at work.")]
pub(crate) struct Args {
    /// The store
    store: PathBuf,
    /// The generation: gen-0000000003, gen-3 or 3
    #[arg(value_parser = generation_of_text)]
    generation: GenerationId,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        open_store(&self.store)?.writer()?.discard(self.generation)?;
        context.say(format_args!("removed {}", self.generation));
        Ok(Exit::Done)
    }
}
