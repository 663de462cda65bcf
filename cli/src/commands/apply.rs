//! `apply`: applies the changes that `diff` has written to a store.

use std::num::NonZero;
use std::path::PathBuf;

use sharddb::write::{UpdateOptions, UpdateReport};
use sharddb::{Snapshot, Updater};

use crate::allow_empty::AllowEmpty;
use crate::commands::build::LONGEST_LINE;
use crate::commands::open_store;
use crate::commands::stages::{Stages, reading_inputs};
use crate::commands::update::{After, Update};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::input::ndjson::Bytes;
use crate::input::patch::{self, Edit};
use crate::input::{Input, Reading};
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
hard links to the files of the old generation. If nothing changes, nothing is published. With
--json, the members are those of sharddb update.

Exit codes: 0 published, or nothing to change, 2 usage, 3 malformed or corrupt, old pairs that do
not match, or no key is left, 4 not found, no space, or another writer is at work.")]
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
    #[command(flatten)]
    allow_empty: AllowEmpty,
    #[command(flatten)]
    after: After,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let patch = Input::of_patch(&self.patch)?;
        open_store(&self.store)?;
        let (stages, longest_line) = (Stages::new(context), self.memory.map_or(LONGEST_LINE, |memory| memory.0 / 4));
        let reading = Reading { longest_line, ..Reading::of_list(context) };
        let mut update = Update::begin(&self.store, None, self.options(&stages), context)?;
        let progress = stages.show(context.quiet, reading_inputs(&reading.progress));
        self.read(&patch, &reading, &mut update.updater)?;
        stages.all_read();
        let is_once = |report: &UpdateReport| match report.overridden {
            1.. if !self.force => Err(Failure::Refused(
                "expected one line per key, found several: nothing was published; with --force the last line counts"
                    .to_string(),
            )),
            _ => Ok(()),
        };
        update.finish_if(progress, is_once)?.conclude(self.after, 0, context)
    }

    fn options(&self, stages: &Stages) -> UpdateOptions {
        let mut options = UpdateOptions::new();
        options.progress(&stages.build).allow_empty(self.allow_empty.allow_empty);
        if let Some(memory) = self.memory {
            options.memory(memory.0);
        }
        if let Some(threads) = self.threads {
            options.threads(threads.get());
        }
        if let Some(directory) = &self.temp_dir {
            options.temp_dir(directory);
        }
        options
    }

    /// Reads the changes into an update.
    fn read(&self, patch: &Input, reading: &Reading, updater: &mut Updater) -> Result<()> {
        patch::read(&mut patch.open(reading)?, reading.longest_line, &mut |edit| {
            reading.check_cancel()?;
            if !self.force {
                check_old(updater.base(), &edit)?;
            }
            match &edit.new {
                Some(Bytes { preamble, value }) => {
                    updater.put_with_preamble(edit.key, preamble, value).map_err(Failure::of_pair)?
                }
                None => updater.delete(edit.key)?,
            }
            Ok(())
        })
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
