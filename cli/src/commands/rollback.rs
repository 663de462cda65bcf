//! `rollback`: makes another generation current.

use std::path::PathBuf;

use sharddb::GenerationId;

use crate::commands::open_store;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::generation::parse_generation;

/// Make another generation current: the previous one, or the one named
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb rollback numbers
  sharddb rollback numbers gen-0000000001
  sharddb rollback numbers 3                     also to a newer generation

Without a number, the generation that was current before becomes current; generations that were
rolled back are skipped. Readers that refresh see the change at once. Nothing is deleted: see
discard and gc.")]
pub(crate) struct Args {
    /// The store
    store: PathBuf,
    /// The generation: gen-0000000003, or just 3
    #[arg(value_parser = parse_generation)]
    generation: Option<GenerationId>,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let id = open_store(&self.store)?.writer()?.rollback(self.generation)?;
        context.say(format_args!("{id} is current"));
        Ok(Exit::Done)
    }
}
