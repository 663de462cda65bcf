//! `rollback`: makes another generation current.

use sharddb::internal::generation_of_text;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::json;

use crate::commands::{open_store, write_json};
use crate::context::{Context, warn};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::remote::url::path_or_url;
use crate::remote::{Call, RemoteStore};

/// Make another generation current: the previous one, or the one named
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb rollback numbers
  sharddb rollback numbers gen-0000000001
  sharddb rollback numbers 3                     also to a newer generation
  sharddb rollback s3://bucket/numbers

Without a number, the generation that was current before becomes current; generations that were
rolled back are skipped, and so are damaged ones, which a message names. Readers that refresh see
the change at once. Nothing is deleted: see discard and gc. Where current is a directory, as after
cp -L, it is removed if a generation has all of its bytes, and else kept under another name.

With --json, the members are \"current\" and \"previous\", the generations after and before; previous is
null if none was current.

Exit codes: 0 done, 2 no store, or no earlier generation, 3 a damaged current or history, 4 no such
generation, not found, or another writer is at work.")]
pub(crate) struct Args {
    /// The store; a path or a URL
    #[arg(value_parser = path_or_url())]
    store: PathBuf,
    /// The generation: gen-0000000003, gen-3 or 3; at a URL its whole name
    generation: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        if let Some(remote) = RemoteStore::open(&self.store)? {
            return remote.rollback(self.generation.as_deref(), Call { context, json: self.json });
        }
        let generation = self.generation.as_deref().map(generation_of_text).transpose()?;
        let store = open_store(&self.store)?;
        let previous = store.current().unwrap_or_default(); // a rollback may repair it
        let history = if generation.is_none() { store.history()? } else { Vec::new() };
        let kept = copies(store.path())?;
        let cleanup = context.interrupt.publishing();
        let id = store.writer()?.rollback(generation)?;
        cleanup.done();
        for copy in copies(store.path())?.difference(&kept) {
            warn(format_args!(
                "sharddb: current was a directory that differs from the generation it copies, and is kept as {}: sharddb verify \
                 shows which is intact",
                copy.display()
            ));
        }
        let there: Vec<_> = store.generations()?.iter().map(|stored| stored.id).collect();
        let skipped = history.iter().rev().skip(1).take_while(|earlier| **earlier != id);
        for skipped in skipped.filter(|skipped| there.contains(skipped)) {
            if let Some(damage) = store.damage_of(*skipped).unwrap_or_else(Some) {
                warn(format_args!("sharddb: skipped {skipped}, which cannot be opened: {damage}"));
            }
        }
        if self.json {
            let previous = previous.map(|id| id.to_string());
            write_json(&json!({"current": id.to_string(), "previous": previous}))?;
        }
        context.say(format_args!("{id} is current"));
        Ok(Exit::Done)
    }
}

/// Returns the entries `current.N`, which are copies of generations that a rollback has kept.
fn copies(store: &Path) -> Result<BTreeSet<PathBuf>> {
    let entries = fs::read_dir(store).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let entries = entries.map_err(|error| Failure::io("list", store, error))?;
    let is_copy = |path: &PathBuf| path.file_stem() == Some("current".as_ref()) && path.extension().is_some();
    Ok(entries.iter().map(fs::DirEntry::path).filter(is_copy).collect())
}
