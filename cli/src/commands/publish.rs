//! `publish`: makes a generation that was built elsewhere the current one of a store.

use std::io;
use std::path::{PathBuf, absolute};

use serde_json::json;
use sharddb::{Store, WriterOptions};

use crate::commands::after::warn_if_few;
use crate::commands::write_json;
use crate::context::{Context, warn};
use crate::entry;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::foreign;
use crate::number::counted;
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
unchanged. A directory that cannot be moved, since it is on another file system or has files of
another user, is copied, and stays. If the disk fails right after --move has moved the directory, it
is a generation that is not current; a message says so, and neither gc nor discard removes it.

Data that another program wrote, or a whole store, is taken by sharddb import.
With --json, the members are \"generation\", \"keys\", \"keys_before\" (null if there was no generation),
\"value_bytes\" and \"shards\".

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
        self.from.metadata().map_err(|error| self.not_opened(error))?;
        self.check_source()?;
        Sources::of([&self.from]).refuse(&self.store)?;
        let cleanup = context.interrupt.publishing();
        let store = Store::create(&self.store).map_err(|error| foreign::not_a_store(error.into(), &self.store))?;
        let read = context.interrupt.progress();
        let writer = store.writer_with(WriterOptions::new().progress(&read))?;
        let before =
            store.current_or_newest()?.and_then(|current| store.totals(current).ok()).map(|totals| totals.keys);
        let progress = Display::count(context.quiet, if self.moving { "check" } else { "copy" }, &read);
        let id = if self.moving { writer.adopt_by_moving(&self.from) } else { writer.adopt(&self.from) }?;
        cleanup.done();
        drop(progress);
        let totals = store.totals(id)?;
        if self.json {
            write_json(&json!({
                "generation": id.to_string(),
                "keys": totals.keys,
                "keys_before": before,
                "value_bytes": totals.value_bytes,
                "shards": totals.shards,
            }))?;
        }
        context.say(format_args!("published {id}: {}", counted(totals.keys, "key", before)));
        if self.moving && entry::is_dir(&self.from)? {
            let from = self.from.display();
            warn(format_args!(
                "sharddb: {from} was copied and is still there: it is on another file system, or not all of its files are yours"
            ));
        }
        warn_if_few(totals.keys, before, &self.store);
        Ok(Exit::Done)
    }

    /// The error for a directory that cannot be opened: an earlier call may have moved it into the store.
    fn not_opened(&self, error: io::Error) -> Failure {
        let moved = || {
            let from = absolute(&self.from).ok()?;
            let from = from.parent()?.canonicalize().ok()?.join(from.file_name()?);
            let moved = Store::open(&self.store).ok()?.moved_in().ok()?;
            moved.into_iter().find(|moved| moved.from == from)
        };
        match moved().filter(|_| error.kind() == io::ErrorKind::NotFound) {
            Some(moved) => Failure::usage(moved.to_string()),
            None => Failure::io("open", &self.from, error),
        }
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
            () if foreign::lacks_manifest(&self.from)? => {
                format!("{expected}: ShardDb wrote its info, so the copy is incomplete; copy all files again")
            }
            () if foreign::is_data(&self.from)? => {
                format!("{expected}: for data that another program wrote, use {import}")
            }
            () => expected,
        }))
    }
}
