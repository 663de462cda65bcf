//! `import`: takes data that another program wrote into a store: a data set, an array or another container.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::builder::Resettable;
use clap::{Arg, Id};
use sharddb::progress::{Phase, Unit};
use sharddb::spec::Encoding;
use sharddb::{BuildOptions, BulkLoader, ErrorKind, Profile, Published, Snapshot, Store, Value, WriterOptions};
use sharddb_container::{Container, Form};

use crate::allow_empty::AllowEmpty;
use crate::chunks::get_verified;
use crate::commands::after::Keep;
use crate::commands::build::{profiles, set_resources, to_json};
use crate::commands::stages::{Stages, reading_source};
use crate::commands::write_json;
use crate::context::{Context, warn};
use crate::database::{Column, Opened, Opening, headed};
use crate::entry;
use crate::exit::Exit;
use crate::failure::{Failure, Place, Result};
use crate::number::counted;
use crate::output::Sources;
use crate::progress::Display;
use crate::remote::url::local_path;
use crate::size::{Size, parse_memory};
use crate::{foreign, sharding};

/// Take a data set, an array or another container into a store, with its metadata, and publish it
#[derive(Debug, clap::Args)]
#[command(mut_arg("sharding", of_new_store), mut_arg("sharding_at", next_to_sharding))]
#[command(mut_args(headed("How to open SOURCE")))]
#[command(after_help = "\
Examples:
  sharddb import precomputed/skeletons store
  sharddb import precomputed/skeletons store --profile remote
  sharddb import precomputed/volume store --sharding-at /scales/0
  sharddb import volume.zarr store
  sharddb export store --format zarr --output again.zarr
  sharddb import trades prices --column price    one column of a bcolz table

SOURCE is not changed. A store or generation is copied file by file, and the checksums of its
manifest are verified. A data set that another program wrote is built again with its own
specification: the same keys, values, preambles and other members of info. With --sharding or
--profile any source is built again with that specification.

If \"sharding\" is nested in the info, as in a volume, the store is such a volume: its info is that of
the source, other scales included, and the shards are in the directory of the scale. It has the
chunks of that scale only.

The chunks of an array are stored byte for byte, and the info keeps its metadata, so that export
restores it. Each chunk is decoded first, so a damaged one is an error. A chunk in a codec that is
not supported is copied without this check; with --no-verify, all are.

With --json, the members are \"generation\", \"keys\", \"keys_before\" (null if there was no generation),
\"duplicates_dropped\", \"value_bytes\", \"shards\", \"file_bytes\" and \"seconds\".

Exit codes: 0 published, 2 usage, 3 corrupt, or no keys where the store has some, 4 not found, no
space, or another writer is at work.")]
pub(crate) struct Args {
    /// A store, one of its generations, any directory of shards with an info, an array or another container
    #[arg(value_parser = local_path())]
    source: PathBuf,
    /// The store; created if there is none
    #[arg(value_parser = local_path())]
    store: PathBuf,
    /// Do not verify stored checks, and do not decode chunks
    #[arg(long, conflicts_with = "verify_reads")]
    no_verify: bool,
    /// Choose a new specification for how the store will be read
    #[arg(long, value_name = "PROFILE", value_parser = profiles(), conflicts_with = "sharding")]
    profile: Option<Profile>,
    /// The memory to use, at least 16 MiB. Default: a quarter of what the process may use, at most 4 GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<Size>,
    /// Where to spill pairs that do not fit into memory. Default: the store
    #[arg(long, value_name = "DIR")]
    temp_dir: Option<PathBuf>,
    #[command(flatten)]
    keep: Keep,
    #[command(flatten)]
    allow_empty: AllowEmpty,
    /// Print one JSON object: what was published
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    column: Column,
    #[command(flatten)]
    opening: Opening,
}

/// Makes `--sharding` the specification of the new store.
fn of_new_store(sharding: Arg) -> Arg {
    const HELP: &str = "The specification of the new store, and of a source without an info: a JSON object, or a file \
                        that contains it. Default: that of a database, otherwise planned";
    sharding.help(HELP).help_heading(None::<&str>)
}

/// Allows `--sharding-at`, which is about the source, next to `--sharding`.
fn next_to_sharding(sharding_at: Arg) -> Arg {
    sharding_at.conflicts_with(Resettable::<Id>::Reset)
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let begun = Instant::now();
        let mut opening = self.opening.clone();
        let sharding = opening.sharding_of_new_store(&self.source)?;
        opening.refuse_without_effect(&self.source)?;
        if self.no_verify {
            opening.never_verify();
        }
        let source = opening.open_any(&self.source, &self.column)?;
        Sources::of([&self.source]).refuse(&self.store)?;
        let cleanup = context.interrupt.publishing();
        let is_rebuilt = sharding.is_some() || self.profile.is_some();
        let new = self.options(sharding.as_deref(), context)?;
        let published = match &source {
            Opened::Container(container) => self.copy_chunks(&**container, new, context)?,
            Opened::Sharded(snapshot) => {
                let taken = if is_native(snapshot)? && !is_rebuilt {
                    self.copy_files(snapshot, context)
                } else {
                    self.build_again(snapshot, new, is_rebuilt, context)
                };
                match taken {
                    Err(failure) if is_damage(&failure) => return Ok(self.suggest_salvage(failure)),
                    taken => taken?,
                }
            }
        };
        cleanup.done();
        if self.json {
            let mut json = to_json(&published);
            json["seconds"] = begun.elapsed().as_secs_f64().into();
            write_json(&json)?;
        }
        self.keep.conclude(&published, &self.store, context)
    }

    /// The options of the new store that the command line states.
    fn options(&self, sharding: Option<&str>, context: &Context) -> Result<BuildOptions> {
        let mut options = BuildOptions::new();
        options.progress(&context.interrupt.progress()).allow_empty(self.allow_empty.allow_empty);
        set_resources(&mut options, self.memory, self.temp_dir.as_deref(), None);
        if let Some(profile) = self.profile {
            options.profile(profile);
        }
        if let Some(argument) = sharding {
            options.spec(sharding::read(argument)?);
        }
        Ok(options)
    }

    fn copy_chunks(&self, source: &dyn Container, mut options: BuildOptions, context: &Context) -> Result<Published> {
        options.data_encoding(Encoding::Raw);
        if let Some((member, metadata)) = source.preserved()? {
            // the null is for metadata with a member "sharding": the loader refuses an info that has only a nested one
            options.info(format!("{{\"{member}\": {metadata}, \"sharding\": null}}"));
        }
        let (stages, read) = (Stages::new(context), context.interrupt.progress());
        read.begin_counting(Phase::Copy, Unit::Chunks, 0); // their number is known when they are listed
        options.progress(&stages.build);
        let progress = stages.show(context.quiet, reading_source(&read));
        let mut loader = self.create(&options)?;
        let keys = source.keys().collect::<sharddb::Result<Vec<u64>>>()?;
        read.begin_counting(Phase::Copy, Unit::Chunks, keys.len() as u64);
        for key in keys {
            context.check_cancel()?;
            read.add(1);
            if let Some(encoded) = self.chunk(source, key)? {
                loader.insert(key, &encoded)?;
            }
        }
        stages.all_read();
        let published = loader.finish()?;
        drop(progress);
        self.say(&published, "chunk", context);
        Ok(published)
    }

    fn chunk<'a>(&self, source: &'a dyn Container, key: u64) -> sharddb::Result<Option<Value<'a>>> {
        if self.no_verify { source.get(key, Form::Encoded) } else { get_verified(source, key, Form::Encoded) }
    }

    fn suggest_salvage(&self, failure: Failure) -> Exit {
        let source = self.source.display();
        let failure = match failure {
            Failure::Library(error) if error.kind() == ErrorKind::DuplicateKey => {
                let key = error.key().map_or_else(String::new, |key| format!("key {key}"));
                let message = format!("expected each key of the source once, found {key} again");
                Failure::malformed(&source.to_string(), Place::Whole, message)
            }
            other => other,
        };
        warn(format_args!("sharddb: {failure}"));
        warn(format_args!("sharddb: nothing was published; sharddb salvage {source} OUT saves every provable pair"));
        failure.exit()
    }

    /// Publishes a copy of a generation that ShardDb wrote.
    fn copy_files(&self, source: &Snapshot, context: &Context) -> Result<Published> {
        let without_effect = [
            (self.no_verify, "--no-verify"),
            (self.memory.is_some(), "--memory"),
            (self.temp_dir.is_some(), "--temp-dir"),
        ];
        if let Some((_, option)) = without_effect.iter().find(|(given, _)| *given) {
            return Err(Failure::usage(format!(
                "{option} has no effect on a copy of a generation, whose files are verified and copied: leave it out, or \
                 rebuild with --sharding or --profile"
            )));
        }
        let copied = context.interrupt.progress();
        let mut options = WriterOptions::new();
        options.progress(&copied).allow_empty(self.allow_empty.allow_empty);
        let store = Store::create(&self.store).map_err(|error| foreign::not_a_store(error.into(), &self.store))?;
        let writer = store.writer_with(&options)?;
        let progress = Display::count(context.quiet, "copy", &copied);
        let copy = writer.adopt_unpublished(source.directory())?;
        drop(progress);
        let published = copy.publish()?;
        self.say(&published, "key", context);
        Ok(published)
    }

    /// Builds a store of the pairs of a database.
    fn build_again(
        &self,
        source: &Snapshot,
        mut options: BuildOptions,
        is_rebuilt: bool,
        context: &Context,
    ) -> Result<Published> {
        foreign::warn_if_incomplete(source)?;
        tell_about_info(source, context);
        options.like(source)?;
        if is_rebuilt {
            options.data_encoding(source.spec().data_encoding())
        } else {
            options.spec(*source.spec()).allow_sparse(true)
        };
        let (stages, read) = (Stages::new(context), context.interrupt.progress());
        read.begin_counting(Phase::Copy, Unit::Keys, source.key_count().unwrap_or(0));
        options.progress(&stages.build);
        let progress = stages.show(context.quiet, reading_source(&read));
        let mut loader = self.create(&options)?;
        for shard in source.shards() {
            for entry in shard?.iter() {
                context.check_cancel()?;
                let entry = entry?;
                if entry.location() != source.spec().route(entry.key()) {
                    return Err(misplaced(entry.key(), &self.source));
                }
                let (preamble, value) = (entry.preamble()?, entry.value()?);
                loader.insert_with_preamble(entry.key(), &preamble, &value).map_err(Failure::of_pair)?;
                read.add(1);
            }
        }
        stages.all_read();
        let published = loader.finish()?;
        drop(progress);
        self.say(&published, "key", context);
        Ok(published)
    }

    fn create(&self, options: &BuildOptions) -> Result<BulkLoader> {
        options.create(&self.store).map_err(|error| foreign::not_a_store(error.into(), &self.store))
    }

    fn say(&self, published: &Published, what: &str, context: &Context) {
        let keys = counted(published.content.keys, what, published.keys_before);
        let (store, generation) = (self.store.display(), published.generation);
        context.say(format_args!("{keys} in {store}, {generation}"));
    }
}

/// A key that no lookup in the source finds.
pub(super) fn misplaced(key: u64, source: &Path) -> Failure {
    let message = format!("expected each key in the minishard that it hashes to, found key {key} in another");
    Failure::malformed(&source.display().to_string(), Place::Whole, message)
}

/// Whether a failure is one of the source's data.
pub(super) fn is_damage(failure: &Failure) -> bool {
    match failure {
        Failure::Library(error) => matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::DuplicateKey),
        failure => matches!(failure, Failure::Malformed(_)),
    }
}

/// Whether ShardDb wrote the generation, so that its manifest proves a copy.
fn is_native(source: &Snapshot) -> Result<bool> {
    entry::is_file(&source.directory().join("manifest.json"))
}

/// Tells that a new store keeps the info of a source as a member of its own.
pub(super) fn tell_about_info(source: &Snapshot, context: &Context) {
    if !source.sharding_at().is_empty() && source.shards_directory() == source.directory() {
        context.say("the info of the source describes more than this data: it is kept as the member \"imported\"");
    }
}
