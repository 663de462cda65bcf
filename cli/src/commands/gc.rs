//! `gc`: removes old generations.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use sharddb::store::{GcReport, MovedIn};
use sharddb::{GenerationId, Store, WriterOptions};

use crate::age::Age;
use crate::commands::{open_store, write_json};
use crate::context::{Context, warn};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::freed::Files;
use crate::leases::Leases;
use crate::number::plural;
use crate::progress::Display;
use crate::remote::url::path_or_url;
use crate::remote::{Call, RemoteStore};
use crate::size::Size;

/// Remove old generations that are not open for reading
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb gc numbers --dry-run                   what would be removed, and how much that frees
  sharddb gc numbers
  sharddb gc numbers --keep 3                    keeps two more, for a rollback
  sharddb gc s3://bucket/numbers --older-than 7d

The current generation is never removed, nor one that a process has open. A generation that was
rolled back does not count for --keep, and a damaged one only while fewer than N are intact; a
message says so. A directory that publish --move has moved in, and that has not become current
because the disk failed, is kept and named. If a generation cannot be removed, the others still are;
it is named, and the exit code is 4.
What is freed is the size of the files without another name: those that a generation shares with one
that stays are not counted.

At a URL, the parts of an object that a killed push was sending are no object yet, and stay: set a
lifecycle rule for incomplete multipart uploads on S3 and Google; Azure removes them after a week.

With --json, the members are \"dry_run\", \"removed\" (each with \"generation\", \"bytes\", \"rolled_back\"
and \"damage\", which is why it cannot be opened, or null), \"in_use\" (names), \"failed\" (each with
\"generation\" and \"error\"), \"moved_in\" (each with \"generation\" and \"from\") and \"freed_bytes\". With
--dry-run, 'removed' is what would be removed. At a URL they are \"dry_run\", \"removed\" (names),
\"objects\" (their number) and \"freed_bytes\", and the first failure ends the run.

Exit codes: 0 done, 2 no store, 3 current names a generation that does not exist, 4 a generation
could not be removed, not found, or another writer is at work.")]
pub(crate) struct Args {
    /// The store; a path or a URL
    #[arg(value_parser = path_or_url())]
    store: PathBuf,
    /// Number of newest generations to keep. The current one counts, those that were rolled back do not. Default: 1
    #[arg(long, value_name = "N", conflicts_with = "older_than", value_parser = number_to_keep)]
    keep: Option<usize>,
    /// At a URL: remove what was replaced at least this long ago, by the clock of the server, and the objects of
    /// interrupted pushes of that age: 7d, 12h, 30m or 0s
    #[arg(long, value_name = "AGE")]
    older_than: Option<Age>,
    /// Remove nothing, and say what would be removed. At a URL nothing is written, and ages count by the clock of this
    /// machine
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What was removed, or would be.
#[derive(Debug, Serialize)]
struct Collected {
    dry_run: bool,
    removed: Vec<Removed>,
    in_use: Vec<String>,
    failed: Vec<NotRemoved>,
    moved_in: Vec<Moved>,
    freed_bytes: u64,
}

/// A user's directory that was moved into the store and has not become current.
#[derive(Debug, Serialize)]
struct Moved {
    generation: String,
    from: PathBuf,
    #[serde(skip)]
    message: String,
}

#[derive(Debug, Serialize)]
struct Removed {
    generation: String,
    bytes: u64,
    /// Whether it did not count among those to keep, since a rollback left it or it never became current.
    rolled_back: bool,
    /// Why it could not be opened, so that it did not count among those to keep.
    damage: Option<String>,
}

#[derive(Debug, Serialize)]
struct NotRemoved {
    generation: String,
    error: String,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        if let Some(remote) = RemoteStore::open(&self.store)? {
            return remote.gc(self.age()?, self.dry_run, Call { context, json: self.json });
        }
        if self.older_than.is_some() {
            return Err(Failure::usage("--older-than is for stores at a URL: see --keep"));
        }
        let (store, keep) = (open_store(&self.store)?, self.keep.unwrap_or(1));
        let collected = if self.dry_run { predict(&store, keep)? } else { collect(context, &store, keep)? };
        if self.json {
            write_json(&collected)?;
        }
        Ok(collected.say(context))
    }

    /// How long ago a generation must have been replaced. There are no leases at a URL, so the user decides.
    fn age(&self) -> Result<Duration> {
        match (self.older_than, self.keep) {
            (Some(Age(age)), _) => Ok(age),
            (None, Some(_)) => Err(Failure::usage("--keep is for local stores: see --older-than")),
            (None, None) => Err(Failure::usage(
                "expected --older-than AGE, such as 7d: nothing else shows whether somebody still reads a generation at a URL",
            )),
        }
    }
}

/// The parser of `--keep`.
pub(super) fn number_to_keep(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("the current generation is always kept and counts: expected at least 1, found 0".to_string()),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("expected a whole number from 1, found {text}")),
    }
}

/// Removes all but the newest generations; returns the exit code.
pub(super) fn keep(keep: usize, store: &Path, context: &Context) -> Result<Exit> {
    Ok(collect(context, &Store::open(store)?, keep)?.say(context))
}

/// Removes all but the newest generations.
fn collect(context: &Context, store: &Store, keep: usize) -> Result<Collected> {
    let progress = context.interrupt.progress();
    let writer = store.writer_with(WriterOptions::new().progress(&progress))?;
    let (files, uncounted) = examine(store, &store.removable(keep)?)?;
    let shown = Display::count(context.quiet, "remove", &progress);
    let report = writer.gc(keep)?;
    drop(shown);
    Collected::of(store, &report, &files, &uncounted)
}

/// What [`collect`] would do now.
fn predict(store: &Store, keep: usize) -> Result<Collected> {
    let (removable, leases) = (store.removable(keep)?, Leases::read());
    let is_held = |id: &GenerationId| leases.is_held(&store.generation_path(*id)) == Some(true);
    let (in_use, removed) = removable.into_iter().partition::<Vec<_>, _>(is_held);
    let (files, uncounted) = examine(store, &removed)?;
    let mut report = GcReport::default();
    (report.removed, report.in_use) = (removed, in_use);
    Ok(Collected { dry_run: true, ..Collected::of(store, &report, &files, &uncounted)? })
}

/// Why a generation did not count for `--keep`.
enum Uncounted {
    /// It is not in the history.
    RolledBack,
    Damaged(String),
}

/// The files of generations, and which of them did not count for `--keep`.
fn examine(store: &Store, ids: &[GenerationId]) -> Result<(Files, BTreeMap<GenerationId, Uncounted>)> {
    let (mut files, mut uncounted, history) = (Files::default(), BTreeMap::new(), store.history()?);
    for id in ids {
        files.add(*id, &store.generation_path(*id));
        if !history.contains(id) {
            if store.totals(*id).is_ok() {
                uncounted.insert(*id, Uncounted::RolledBack);
            }
        } else if let Some(error) = store.damage_of(*id).unwrap_or_else(Some) {
            uncounted.insert(*id, Uncounted::Damaged(error.to_string()));
        }
    }
    Ok((files, uncounted))
}

impl Collected {
    fn of(
        store: &Store,
        report: &GcReport,
        files: &Files,
        uncounted: &BTreeMap<GenerationId, Uncounted>,
    ) -> Result<Collected> {
        let removed = |id: &GenerationId| {
            let (rolled_back, damage) = match uncounted.get(id) {
                Some(Uncounted::RolledBack) => (true, None),
                Some(Uncounted::Damaged(why)) => (false, Some(why.clone())),
                None => (false, None),
            };
            Removed { generation: id.to_string(), bytes: files.bytes_of(*id), rolled_back, damage }
        };
        let removed = report.removed.iter().map(removed).collect();
        let failed = report.failed.iter();
        let failed = failed.map(|it| NotRemoved { generation: it.id.to_string(), error: it.error.to_string() });
        let moved = |it: MovedIn| Moved { generation: it.id.to_string(), message: it.to_string(), from: it.from };
        Ok(Collected {
            dry_run: false,
            freed_bytes: files.freed_by(&report.removed),
            removed,
            in_use: report.in_use.iter().map(GenerationId::to_string).collect(),
            failed: failed.collect(),
            moved_in: store.moved_in()?.into_iter().map(moved).collect(),
        })
    }

    /// Reports what was removed and what was not; returns the exit code.
    fn say(&self, context: &Context) -> Exit {
        let verb = if self.dry_run { "would remove" } else { "removed" };
        for Removed { generation, bytes, rolled_back, damage } in &self.removed {
            let why = if *rolled_back { ": it was rolled back, so --keep does not count it" } else { "" };
            context.say(format_args!("{verb} {generation}, {}{why}", Size(*bytes)));
            if let Some(damage) = damage {
                warn(format_args!(
                    "sharddb: {generation} was not counted by --keep, since it cannot be opened: {damage}"
                ));
            }
        }
        for id in &self.in_use {
            context.say(format_args!("kept {id}: it is open for reading"));
        }
        for Moved { message, .. } in &self.moved_in {
            warn(format_args!("sharddb: not removed: {message}"));
        }
        for NotRemoved { generation, error } in &self.failed {
            warn(format_args!("sharddb: cannot remove {generation}: {error}"));
        }
        let (number, freed) = (plural(self.removed.len() as u64, "generation"), Size(self.freed_bytes));
        match self.dry_run {
            _ if self.removed.is_empty() => context.say("nothing to remove"),
            true => context.say(format_args!("would free {freed} of {number}")),
            false => context.say(format_args!("freed {freed} of {number}")),
        }
        if self.failed.is_empty() { Exit::Done } else { Exit::Io }
    }
}
