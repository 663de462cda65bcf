//! `apply`: applies the changes that `diff` has written to a store.

use std::num::NonZero;
use std::path::PathBuf;

use serde_json::json;
use sharddb::write::{UpdateOptions, UpdateReport};
use sharddb::{Published, Snapshot, Updater};

use crate::commands::build::LONGEST_LINE;
use crate::commands::stages::{Stages, reading_inputs};
use crate::commands::{gc, open_store, write_json};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::input::ndjson::Bytes;
use crate::input::patch::{self, Edit};
use crate::input::{Input, Reading};
use crate::number::plural;
use crate::remote::url::local_path;
use crate::size::{Size, parse_memory};

/// Apply the changes that diff has written to a store, as a new generation
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb diff old new --format ndjson | sharddb apply store -
  sharddb apply store changes.ndjson
  sharddb apply store changes.ndjson.gz --force

PATCH has a line for each key, with its pair before and after, null where it is absent:
  {\"key\": 3, \"old\": {\"text\": \"three\"}, \"new\": {\"text\": \"THREE\"}}
  {\"key\": \"4\", \"old\": null, \"new\": {\"value_b64\": \"Zm91cg==\", \"preamble_b64\": \"cA==\"}}
  {\"key\": 2, \"old\": {\"value\": {\"a\": [1, 2]}}, \"new\": null}
The members of a pair are those of a line of ndjson: see sharddb build --help. Each key has one
line.

Every key must have its old pair in the current generation. If one does not, the store was changed
since: the key and its line are named, and nothing is applied. With --force, old pairs are not
compared, and a removed key that is absent already is only counted.

Readers see the old generation or the new one. Only shards with a change are written; the others are
hard links to the files of the old generation. With --json, the members are \"generation\", \"keys\",
\"added\", \"replaced\", \"deleted\", \"absent\", \"written_shards\", \"linked_shards\" and \"copied_shards\".

Exit codes: 0 published, 2 usage, 3 malformed or corrupt, or old pairs that do not match, 4 not
found, no space, or another writer is at work.")]
pub(crate) struct Args {
    /// The store
    #[arg(value_parser = local_path())]
    store: PathBuf,
    /// A file of changes, which may be compressed (.gz, .zst); - is standard input
    #[arg(value_name = "PATCH")]
    patch: PathBuf,
    /// Do not compare the old pairs with those of the store
    #[arg(long)]
    force: bool,
    /// The memory to use, at least 16 MiB; a line may take a quarter of it. Default: a quarter of what the process
    /// may use, at most 4 GiB; a line may then take 256 MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<Size>,
    /// Where to spill changes that do not fit into memory. Default: the store
    #[arg(long, value_name = "DIR")]
    temp_dir: Option<PathBuf>,
    /// Number of threads. Default: one per processor
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<NonZero<usize>>,
    /// Then remove all generations except the N newest and those that are open for reading
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Print one JSON object: what was published
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let patch = Input::of_patch(&self.patch)?;
        open_store(&self.store)?;
        let cleanup = context.interrupt.publishing(); // until the updater has removed its temporary files
        let Some((published, report)) = self.apply(&patch, context)? else {
            context.say(format_args!("found no changes in {}: nothing published", patch.name()));
            return Ok(Exit::Done);
        };
        cleanup.done();
        context.say(summary(&published, &report));
        if self.json {
            write_json(&to_json(&published, &report))?;
        }
        gc::keep(self.keep, &self.store, context)
    }

    /// Applies the changes and publishes the result; `None` if there are none.
    fn apply(&self, patch: &Input, context: &Context) -> Result<Option<(Published, UpdateReport)>> {
        let longest_line = self.memory.map_or(LONGEST_LINE, |memory| memory.0 / 4);
        let reading = Reading { longest_line, ..Reading::of_list(context) };
        let stages = Stages::new(context);
        let mut options = UpdateOptions::new();
        options.progress(&stages.build);
        if let Some(memory) = self.memory {
            options.memory(memory.0);
        }
        if let Some(threads) = self.threads {
            options.threads(threads.get());
        }
        if let Some(directory) = &self.temp_dir {
            options.temp_dir(directory);
        }
        let _progress = stages.show(context.quiet, reading_inputs(&reading.progress));
        let mut updater = Updater::new(&self.store, &options)?;
        let mut changes: u64 = 0;
        patch::read(&mut patch.open(&reading)?, reading.longest_line, &mut |edit| {
            reading.check_cancel()?;
            if !self.force {
                check_old(updater.base(), &edit)?;
            }
            changes += 1;
            match &edit.new {
                Some(Bytes { preamble, value }) => updater.put_with_preamble(edit.key, preamble, value)?,
                None => updater.delete(edit.key)?,
            }
            Ok(())
        })?;
        stages.all_read();
        if changes == 0 {
            return Ok(None);
        }
        let (candidate, report) = updater.finish_unpublished()?;
        if report.overridden > 0 && !self.force {
            let message =
                "expected one line per key, found several: nothing was published; with --force the last line counts";
            return Err(Failure::Refused(message.to_string()));
        }
        Ok(Some((candidate.publish()?, report)))
    }
}

/// Checks that a key has the pair that a change begins with.
///
/// Errors: `Refused` if it has another one; damage of the pair.
fn check_old(base: &Snapshot, edit: &Edit<'_>) -> Result<()> {
    let old = edit.old.as_ref().map(|Bytes { preamble, value }| (preamble.as_slice(), &**value));
    if base.holds(edit.key, old)? {
        return Ok(());
    }
    let (expected, found) = match (old, base.contains(edit.key)?) {
        (Some(_), true) => ("with the pair of \"old\"", "it with another"),
        (Some(_), false) => ("with the pair of \"old\"", "it absent"),
        (None, _) => ("to be absent, as \"old\" is null", "it with a pair"),
    };
    Err(Failure::Refused(format!(
        "expected key {} {expected}, found {found}: the store was changed since, and nothing is applied; --force does not \
         compare old pairs",
        edit.key
    )))
}

fn to_json(published: &Published, report: &UpdateReport) -> serde_json::Value {
    json!({
        "generation": published.generation.to_string(),
        "keys": published.keys,
        "added": report.added,
        "replaced": report.replaced,
        "deleted": report.deleted,
        "absent": report.absent,
        "written_shards": report.written_shards,
        "linked_shards": report.linked_shards,
        "copied_shards": report.copied_shards,
    })
}

fn summary(published: &Published, report: &UpdateReport) -> String {
    let absent = match report.absent {
        0 => String::new(),
        absent => format!(", {absent} absent already"),
    };
    format!(
        "published {}: {}; {} added, {} replaced, {} deleted{absent}; {} written, {} linked, {} copied",
        published.generation,
        plural(published.keys, "key"),
        report.added,
        report.replaced,
        report.deleted,
        plural(report.written_shards, "shard"),
        report.linked_shards,
        report.copied_shards,
    )
}
