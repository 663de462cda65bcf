//! `rollback`: makes another generation current.

use std::path::PathBuf;

use serde_json::json;
use sharddb::GenerationId;

use crate::commands::{open_store, write_json};
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
discard and gc.

With --json, the members are \"current\" and \"previous\", the generations after and before; previous is
null if none was current.

Exit codes: 0 done, 2 no store, or no earlier generation, 3 a damaged current or history, 4 no such
generation, not found, or another writer is at work.")]
pub(crate) struct Args {
    /// The store
    store: PathBuf,
    /// The generation: gen-0000000003, gen-3 or 3
    #[arg(value_parser = parse_generation)]
    generation: Option<GenerationId>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let store = open_store(&self.store)?;
        let previous = store.current().unwrap_or_default(); // a rollback may repair it
        let id = store.writer()?.rollback(self.generation)?;
        if self.json {
            let previous = previous.map(|id| id.to_string());
            write_json(&json!({"current": id.to_string(), "previous": previous}))?;
        }
        context.say(format_args!("{id} is current"));
        Ok(Exit::Done)
    }
}
