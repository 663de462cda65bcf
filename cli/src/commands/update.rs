//! `update`: puts and deletes pairs of a store. Also what `put` and `delete` share with it.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Arg, ArgGroup};
use serde_json::json;
use sharddb::write::{UpdateOptions, UpdateReport};
use sharddb::{ErrorKind, Published, Snapshot, Updater};

use crate::allow_empty::AllowEmpty;
use crate::commands::after::Keep;
use crate::commands::build::{InputOptions, names};
use crate::commands::export::read_keys;
use crate::commands::new_store::{refuse_inside, suggest_salvage};
use crate::commands::stages::{Stages, reading_inputs};
use crate::commands::{get_many, write_json};
use crate::context::Context;
use crate::database::SourceOpening;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::histogram::grouped;
use crate::input::{self, Input, KeyList};
use crate::interrupt::Cleanup;
use crate::number::plural;
use crate::output::Sources;
use crate::printable::word;
use crate::progress::Display;
use crate::remote::url::local_path;
use crate::size::Size;
use crate::{foreign, not_a_database};

/// Put and delete pairs of a store, and publish the result
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("changes").args(["input", "delete"]).required(true).multiple(true)))]
#[command(mut_args(of_update))]
#[command(
    override_usage = "sharddb update [OPTIONS] <STORE> [--input <PATH>...] [--delete <FILE>]",
    after_help = "\
Examples:
  sharddb update numbers --input changed.ndjson
  sharddb update numbers --input monday.csv tuesday.csv --delete gone.txt --keep 2
  producer | sharddb update numbers --input - --format bin2
  sharddb update store --base precomputed/skeletons --input fixed/    one key of foreign data

A pair of an input adds its key, or replaces the value and the preamble. Inputs are of every kind
that build takes (see sharddb help build) and are read in their order; of two pairs with one key,
the later one counts. The keys of --delete are deleted after all inputs are put. A key to delete
that the store did not have before the update is counted, also if an input puts it; with --strict it
is an error.

Only shards with a change are written. The others are hard links to the same files, or copies where
the file system does not link them, and of a --base outside of the store whose files can be written
to: a generation is no backup of another. build --max-shard-bytes makes smaller shards, whose
updates write less. Readers see the old generation or the new one.

If nothing changes, since the store has all pairs of the inputs and no key to delete, no generation
is published. With --base the result is always published.

With --json, the members are \"published\" (the new generation, or null if nothing changed),
\"generation\" (the current one), \"keys\", \"keys_before\" (null if there was no generation), \"added\",
\"replaced\", \"deleted\", \"absent\", \"overridden\" (changes that a later one made void),
\"shards_written\", \"bytes_written\", \"shards_linked\", \"shards_copied\", \"skipped_files\" and \"seconds\".

Exit codes: 0 published, or nothing to change, 1 a key of --delete is absent with --strict, 2 usage,
3 malformed or corrupt, or no key is left, 4 not found, no space, or another writer is at work."
)]
pub(crate) struct Args {
    /// The store; with --base, created if there is none
    #[arg(value_parser = local_path())]
    store: PathBuf,
    /// The inputs, as PATH or FORMAT:PATH; - is standard input
    #[arg(long, value_name = "PATH", num_args = 1..)]
    input: Vec<PathBuf>,
    #[command(flatten)]
    inputs: InputOptions,
    /// Then delete these keys: a file with one key per line, decimal or 0x hex; - is standard input
    #[arg(long, value_name = "FILE")]
    delete: Option<PathBuf>,
    /// Publish nothing if a key to delete was absent before the update
    #[arg(long)]
    strict: bool,
    /// Change this database instead of the current generation of the store: any DB, which is not changed itself. Data
    /// that another program wrote is rewritten as a whole
    #[arg(long, value_name = "DB")]
    base: Option<PathBuf>,
    #[command(flatten)]
    opening: SourceOpening,
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

/// What an update does after it has published.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct After {
    #[command(flatten)]
    keep: Keep,
    /// Print one JSON object: what was published
    #[arg(long)]
    json: bool,
}

/// Makes options of inputs need an input, and options of a source those of the base.
fn of_update(arg: Arg) -> Arg {
    const SHARDING: &str = "The specification of a base without an info: a JSON object, or a file that contains it";
    const AT: &str =
        "Where the info of the base describes the data set: the JSON pointer of the object that has \"sharding\"";
    match arg.get_id().as_str() {
        "format" | "key_field" => arg.requires("input"),
        "sharding" => arg.requires("base").help(SHARDING),
        "sharding_at" => arg.requires("base").help(AT),
        "max_value" => arg.requires("base"),
        _ => arg,
    }
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let inputs = self.inputs.resolve(&self.input)?;
        if self.delete.as_deref() == Some(Path::new("-")) && inputs.iter().any(Input::is_stdin) {
            return Err(Failure::usage("expected standard input (-) once, found it for --input and for --delete"));
        }
        Sources::of(inputs.iter().filter_map(Input::directory)).refuse(&self.store)?;
        let open = |list: &PathBuf| get_many::open_list(list, context).map(KeyList::new);
        let deleted = self.delete.as_ref().map(open).transpose()?;
        let base = self.base.as_deref().map(|path| self.open_base(path)).transpose()?;
        let reading = self.inputs.reading(context);
        let stages = Stages::new(context);
        let mut options = self.options();
        options.progress(&stages.build);
        let mut update = Update::begin(&self.store, base, options, context)?;
        let progress = stages.show(context.quiet, reading_inputs(&reading.progress));
        let skipped = input::read_all(&inputs, &reading, &mut update.updater)?;
        if let Some(list) = deleted {
            update.delete(&read_keys(list)?)?;
        }
        stages.all_read();
        let done = update.finish(progress)?;
        if !done.has_changes() && !inputs.is_empty() {
            context.say(format_args!("found no pairs in {}", names(&inputs)));
        }
        skipped.say(context);
        done.conclude(self.after, skipped.files(), context)
    }

    /// Opens the base, with its path.
    fn open_base<'a>(&self, path: &'a Path) -> Result<(&'a Path, Snapshot)> {
        let base = self.opening.open(path)?;
        refuse_inside(&self.store, path, &base)?;
        Ok((path, base))
    }

    fn options(&self) -> UpdateOptions {
        let mut options = UpdateOptions::new();
        options.strict(self.strict).allow_empty(self.allow_empty.allow_empty);
        if let Some(Size(bytes)) = self.inputs.memory {
            options.memory(bytes);
        }
        if let Some(threads) = self.threads {
            options.threads(threads.get());
        }
        if let Some(directory) = &self.temp_dir {
            options.temp_dir(directory);
        }
        options
    }
}

/// An update that has begun. It holds the lock of the store.
pub(super) struct Update<'a> {
    store: &'a Path,
    /// The path of the base, if it is not the current generation of the store.
    base: Option<&'a Path>,
    begun: Instant,
    /// Requests the time to remove files after a signal.
    cleanup: Cleanup,
    pub(super) updater: Updater,
}

/// An update that is complete.
pub(super) struct Updated<'a> {
    store: &'a Path,
    begun: Instant,
    published: Published,
    report: UpdateReport,
}

impl<'a> Update<'a> {
    /// Begins an update of a store, or of a base at a path.
    ///
    /// Errors: those of [`UpdateOptions::open`] and [`UpdateOptions::create`], with advice.
    pub(super) fn begin(
        store: &'a Path,
        base: Option<(&'a Path, Snapshot)>,
        options: UpdateOptions,
        context: &Context,
    ) -> Result<Update<'a>> {
        let begun = Instant::now();
        let cleanup = context.interrupt.publishing();
        let updater = match &base {
            Some((_, base)) => options.create(store, base).map_err(|error| foreign::not_a_store(error.into(), store)),
            None => options.open(store).map_err(|error| not_updatable(error, store)),
        }?;
        Ok(Update { store, base: base.map(|(path, _)| path), begun, cleanup, updater })
    }

    pub(super) fn delete(&mut self, keys: &[u64]) -> Result<()> {
        Ok(keys.iter().try_for_each(|key| self.updater.delete(*key))?)
    }

    /// Applies the changes and publishes the result, unless nothing changed.
    ///
    /// Errors: `Absent` for an absent key to delete if the update is strict; `Unsound`; those of the library.
    pub(super) fn finish(self, progress: Display) -> Result<Updated<'a>> {
        self.finish_if(progress, |_| Ok(()))
    }

    /// Like [`finish`](Self::finish), unless `check` returns an error.
    pub(super) fn finish_if(
        self,
        progress: Display,
        check: impl FnOnce(&UpdateReport) -> Result<()>,
    ) -> Result<Updated<'a>> {
        let Update { store, base, begun, cleanup, updater } = self;
        let applied = updater.finish_unpublished().map_err(|error| explain(error, base.unwrap_or(store)));
        let (candidate, report) = applied?;
        check(&report)?;
        let published = candidate.publish()?;
        cleanup.done();
        drop(progress);
        Ok(Updated { store, begun, published, report })
    }
}

impl Updated<'_> {
    /// Reports what changed, and removes old generations if the command line says so.
    pub(super) fn conclude(&self, after: After, skipped_files: u64, context: &Context) -> Result<Exit> {
        let Published { generation, is_new, .. } = self.published;
        if is_new {
            context.say(self.changes());
            context.say(self.files());
        } else {
            context.say(format_args!(
                "nothing changed, {} stays at {generation}{}",
                self.store.display(),
                self.absent()
            ))
        }
        if after.json {
            write_json(&self.to_json(skipped_files))?;
        }
        after.keep.conclude(&self.published, self.store, context)
    }

    /// Whether there were any changes, with an effect or not.
    fn has_changes(&self) -> bool {
        let UpdateReport { added, replaced, deleted, absent, overridden, .. } = self.report;
        added + replaced + deleted + absent + overridden > 0
    }

    fn changes(&self) -> String {
        let UpdateReport { added, replaced, deleted, overridden, .. } = self.report;
        let [added, replaced, deleted] = [added, replaced, deleted].map(grouped);
        let overridden = match overridden {
            0 => String::new(),
            count => format!(", {} overridden by later changes", grouped(count)),
        };
        format!(
            "published {}: {}, {added} added, {replaced} replaced, {deleted} deleted{}{overridden}",
            self.published.generation,
            plural(self.published.content.keys, "key"),
            self.absent(),
        )
    }

    fn files(&self) -> String {
        let UpdateReport { written_shards, written_bytes, linked_shards, copied_shards, .. } = self.report;
        let copied = match copied_shards {
            0 => String::new(),
            count => format!(", copied {}", grouped(count)),
        };
        format!(
            "wrote {} of {}, linked {}{copied}, in {:.1} s",
            plural(written_shards, "shard"),
            Size(written_bytes),
            grouped(linked_shards),
            self.begun.elapsed().as_secs_f64(),
        )
    }

    /// The count of keys that were not there to delete, after other counts.
    fn absent(&self) -> String {
        match self.report.absent {
            0 => String::new(),
            1 => ", 1 key to delete is absent".to_string(),
            count => format!(", {} keys to delete are absent", grouped(count)),
        }
    }

    fn to_json(&self, skipped_files: u64) -> serde_json::Value {
        let Published { generation, is_new, keys_before, content, .. } = self.published;
        let written = |of: fn(&UpdateReport) -> u64| if is_new { of(&self.report) } else { 0 };
        json!({
            "published": is_new.then(|| generation.to_string()),
            "generation": generation.to_string(),
            "keys": content.keys,
            "keys_before": keys_before,
            "added": self.report.added,
            "replaced": self.report.replaced,
            "deleted": self.report.deleted,
            "absent": self.report.absent,
            "overridden": self.report.overridden,
            "shards_written": written(|report| report.written_shards),
            "bytes_written": written(|report| report.written_bytes),
            "shards_linked": written(|report| report.linked_shards),
            "shards_copied": written(|report| report.copied_shards),
            "skipped_files": skipped_files,
            "seconds": self.begun.elapsed().as_secs_f64(),
        })
    }
}

/// Adds to the failure of an update of `base` what the user can do.
fn explain(error: sharddb::Error, base: &Path) -> Failure {
    match (error.kind(), error.key()) {
        (ErrorKind::NotFound, Some(key)) => Failure::Absent(format!(
            "expected each key to delete in the store before the update, found key {key} absent: nothing was published; without --strict \
             such keys are only counted"
        )),
        _ => suggest_salvage(error.into(), base),
    }
}

/// Adds to the refusal to update a path as a store what the user can do.
fn not_updatable(error: sharddb::Error, store: &Path) -> Failure {
    match error.kind() {
        ErrorKind::InvalidInput if matches!(foreign::is_data(store), Ok(true)) => {
            let base = word(store);
            Failure::usage(format!(
                "{error}; to make a store of its data with the changes: sharddb update NEW_STORE --base {base} --input PATH"
            ))
        }
        ErrorKind::NotFound => not_a_database::failure(store), // also if nothing was published
        _ => suggest_salvage(error.into(), store),
    }
}
