//! `copy`: makes a store of some of the pairs of a database.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::ArgGroup;
use sharddb::internal::key::Key;
use sharddb::internal::key_range::ParsedKeyRange;
use sharddb::progress::{Phase, Unit};
use sharddb::shard::Entry;
use sharddb::spec::ShardNumber;
use sharddb::{BulkLoader, Progress, Snapshot};

use crate::commands::export::{Absent, wanted_keys};
use crate::commands::import::{misplaced, tell_about_info};
use crate::commands::new_store::{NewStore, refuse_inside, suggest_salvage};
use crate::commands::stages::{Stages, reading_source};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::foreign;
use crate::remote::url::local_path;

/// Make a store of some of the pairs of a database
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("wanted").args(["keys", "key", "range"]).required(true).multiple(true)))]
#[command(after_help = "\
Examples:
  sharddb copy skeletons some --keys segments.txt
  sharddb copy numbers few --key 1 --key 0x2
  sharddb copy numbers low --range ..1000
  sharddb copy precomputed/skeletons part --range 100..=200 --profile remote

DB is not changed. Pairs keep their preambles, and the info its other members. A specification is
planned for the pairs that are copied, unless --sharding states one.

Keys of --keys and --key that are absent are counted, and the first ones are named; the others are
copied and published, and the exit code is 1.

With --json, the members are \"generation\", \"keys\", \"keys_before\" (null if there was no generation),
\"duplicates_dropped\", \"value_bytes\", \"shards\", \"file_bytes\" and \"seconds\".

Exit codes: 0 published, 1 published and a key was absent, 2 usage, 3 corrupt, or no pairs where OUT
has some, 4 not found, no space, or another writer is at work.")]
pub(crate) struct Args {
    /// A store, one of its generations, or any directory of shards
    #[arg(value_parser = local_path())]
    db: PathBuf,
    /// The store; created if there is none
    #[arg(value_parser = local_path())]
    out: PathBuf,
    /// The keys to copy: a file with one key per line, decimal or 0x hex; - is standard input
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Copy this key, and those of --keys; may be repeated
    #[arg(long, value_name = "KEY")]
    key: Vec<Key>,
    /// Copy the keys of this range: A..B ends before B, A..=B with it; A.. and ..B are open. Keys are decimal or 0x hex
    #[arg(long, value_name = "A..B", conflicts_with_all = ["keys", "key"])]
    range: Option<ParsedKeyRange>,
    #[command(flatten)]
    new: NewStore,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let begun = Instant::now();
        let source = self.new.opening.open(&self.db)?;
        refuse_inside(&self.out, &self.db, &source)?;
        let wanted = self.wanted(context)?;
        let mut options = self.new.options(context)?;
        foreign::warn_if_incomplete(&source)?;
        tell_about_info(&source, context);
        options.like(&source)?;
        if self.new.data_encoding.is_none() && self.new.opening.spec()?.is_none() {
            options.data_encoding(source.spec().data_encoding());
        }
        if source.is_ordered() {
            options.ordered(true);
        }
        let cleanup = context.interrupt.publishing();
        let (stages, read) = (Stages::new(context), context.interrupt.progress());
        read.begin_counting(Phase::Copy, Unit::Keys, 0);
        options.progress(&stages.build);
        let progress = stages.show(context.quiet, reading_source(&read));
        let loader = options.create(&self.out).map_err(|error| foreign::not_a_store(error.into(), &self.out))?;
        let mut copy = Copy { context, source: &source, path: &self.db, loader, read, absent: Absent::default() };
        let copied = match wanted {
            Wanted::Keys(keys) => copy.keys(keys),
            Wanted::Range(range) => copy.range(range),
        };
        let Copy { loader, absent, .. } = copy;
        stages.all_read();
        let published = copied.and_then(|()| Ok(loader.finish()?));
        drop(progress);
        let published = published.map_err(|failure| suggest_salvage(failure, &self.db))?;
        cleanup.done();
        drop(source); // so that --keep can remove its generation
        let done = self.new.conclude(&published, begun, &self.out, context)?;
        Ok(done.max(absent.tell()))
    }

    fn wanted(&self, context: &Context) -> Result<Wanted> {
        if let Some(range) = self.range {
            return Ok(Wanted::Range(range));
        }
        Ok(Wanted::Keys(wanted_keys(&self.key, self.keys.as_deref(), context)?))
    }
}

/// The keys to copy.
enum Wanted {
    Keys(Vec<u64>),
    Range(ParsedKeyRange),
}

/// A loader and the database whose pairs it gets.
struct Copy<'a> {
    context: &'a Context,
    source: &'a Snapshot,
    path: &'a Path,
    loader: BulkLoader,
    /// Counts the keys that are copied.
    read: Progress,
    absent: Absent,
}

impl Copy<'_> {
    /// Copies the pairs whose keys are in a range. Reads all indexes.
    fn range(&mut self, range: ParsedKeyRange) -> Result<()> {
        self.read.begin_counting(Phase::Copy, Unit::Keys, self.source.key_count().unwrap_or(0));
        for shard in self.source.shards() {
            for entry in shard?.iter() {
                self.context.check_cancel()?;
                self.read.add(1);
                let entry = entry?;
                if range.contains(entry.key()) {
                    self.pair(&entry)?;
                }
            }
        }
        Ok(())
    }

    /// Copies the pairs of some keys. Reads the indexes of their shards.
    fn keys(&mut self, wanted: Vec<u64>) -> Result<()> {
        let mut by_shard: BTreeMap<ShardNumber, BTreeSet<u64>> = BTreeMap::new();
        for key in wanted {
            by_shard.entry(self.source.spec().route(key).shard).or_default().insert(key);
        }
        let wanted = by_shard.values().map(|keys| keys.len() as u64).sum();
        self.read.begin_counting(Phase::Copy, Unit::Keys, wanted);
        for (number, mut keys) in by_shard {
            if let Some(shard) = self.source.shard(number)? {
                for entry in shard.iter() {
                    self.context.check_cancel()?;
                    let entry = entry?;
                    if keys.remove(&entry.key()) {
                        self.pair(&entry)?;
                        self.read.add(1);
                    }
                }
            }
            keys.into_iter().for_each(|key| self.absent.add(key));
        }
        Ok(())
    }

    fn pair(&mut self, entry: &Entry) -> Result<()> {
        if entry.location() != self.source.spec().route(entry.key()) {
            return Err(misplaced(entry.key(), self.path));
        }
        let (preamble, value) = (entry.preamble()?, entry.value()?);
        self.loader.insert_with_preamble(entry.key(), &preamble, &value).map_err(Failure::of_pair)
    }
}
