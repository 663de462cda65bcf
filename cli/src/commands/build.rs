//! `build`: reads pairs and publishes them as a generation.

use std::fs;
use std::io::Read;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::ValueEnum;
use sharddb::build::{BuildPhase, BuildProgress};
use sharddb::spec::{Encoding, ValueAlignment};
use sharddb::{BuildOptions, BulkLoader, OnDuplicate, Profile, Published, ShardingSpec, Store};

use crate::allow_empty::AllowEmpty;
use crate::bar::{Bar, Status};
use crate::commands::gc;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::histogram::grouped;
use crate::input::{Format, Input, InputProgress, Reading, Sink, Skipped};
use crate::output::Sources;
use crate::sharding;
use crate::size::Size;

/// Build a generation from pairs and publish it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb build numbers --input numbers.ndjson
  sharddb build people --input people.jsonl --key-field id        the value is the whole line
  sharddb build mesh --input meshes/ --info info --profile remote
  zcat dump.gz | sharddb build big --input - --format bin2 --memory 4GiB --temp-dir /scratch

Inputs (the format follows from the name: a directory, .ndjson or .jsonl, .bin, .bin2):
  dir     one file per key, named by the key: 7, or 7.gz, which is decompressed. If there are 7 and
          7.index, 7.index is the value and 7 is its prefix, like mesh fragments before a manifest.
          info, dotfiles, *.spatial and *.labels* are skipped
  ndjson  {\"key\": 7, \"value_b64\": \"...\"}, or \"text\": \"...\", or \"value\": any JSON, which is stored as
          written, without white space; optional \"prefix_b64\". A key is a number or a string, and
          exact up to 2^64-1
  bin     records of key, length, bytes; numbers are u64 little endian
  bin2    records of key, prefix length, length, prefix, bytes

A malformed record is an error that names its place, and nothing is published. Readers see the old
generation or the new one. The same pairs and options produce the same bytes.

Inputs without a pair are an error if the store has pairs: a pipe whose writer failed looks like an
empty input. --allow-empty publishes them anyway. STORE must not be inside an input. --info does not
accept the info of a volume (its \"sharding\" is nested, for example at /scales/0).

Exit codes: 0 published, 2 usage, 3 malformed or corrupt, or no pairs where the store has some,
4 not found, no space, or another writer is at work.")]
pub(crate) struct Args {
    /// The store; created if there is none
    store: PathBuf,
    /// The inputs; - is standard input
    #[arg(long, value_name = "PATH", num_args = 1.., required = true)]
    input: Vec<PathBuf>,
    #[command(flatten)]
    inputs: InputOptions,
    /// The sharding specification: a JSON object, or a file that contains it. Default: planned for the pairs
    #[arg(long, value_name = "FILE|JSON", conflicts_with = "profile")]
    sharding: Option<String>,
    /// An info whose other members are kept. Its top-level member "sharding" applies unless --sharding or --profile is
    /// given
    #[arg(long, value_name = "FILE")]
    info: Option<PathBuf>,
    /// How the store will be read, for the plan: local, remote or cloudvolume. Default: local
    #[arg(long, value_name = "PROFILE")]
    profile: Option<Profile>,
    /// Where to spill pairs that do not fit into memory. Default: the store
    #[arg(long, value_name = "DIR")]
    temp_dir: Option<PathBuf>,
    /// Number of threads. Default: one per processor
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<NonZero<usize>>,
    /// What to do with a duplicate key
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Duplicates::Error)]
    on_duplicate: Duplicates,
    /// How values are stored. Default: as the specification says, otherwise raw
    #[arg(long, value_enum, value_name = "HOW")]
    data_encoding: Option<Encoded>,
    /// How minishard indexes are stored. Default: as the specification or the profile says
    #[arg(long, value_enum, value_name = "HOW")]
    index_encoding: Option<Encoded>,
    /// Write no checksums of indexes and values
    #[arg(long)]
    no_checks: bool,
    /// Align values in their file to multiples of this number: 1, 8, 16, 64 or 4096
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_alignment)]
    value_alignment: ValueAlignment,
    /// Then remove all generations except the N newest and those that are open for reading
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    #[command(flatten)]
    allow_empty: AllowEmpty,
    /// Build even if the shard indexes take more bytes than the data (and more than 64 MiB)
    #[arg(long)]
    force: bool,
}

/// How inputs are read.
#[derive(Debug, clap::Args)]
pub(crate) struct InputOptions {
    /// The format of the inputs. Default: follows from their names
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// For ndjson: use this member as the key and the whole line as the value
    #[arg(long, value_name = "MEMBER")]
    key_field: Option<String>,
    /// The memory to use; a line of ndjson may take a quarter of it. Default: a quarter of the available memory, at
    /// least 256 MiB and at most 4 GiB; a line may then take 256 MiB
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
}

/// The longest line of ndjson if --memory is not given. It is the same on every machine.
const LONGEST_LINE: u64 = 256 << 20;

impl InputOptions {
    /// The inputs at these paths.
    ///
    /// Errors: those of [`Input::resolve_all`]; `Usage` if a key field is given and an input is not ndjson.
    pub(crate) fn resolve(&self, paths: &[PathBuf]) -> Result<Vec<Input>> {
        let inputs = Input::resolve_all(paths, self.format)?;
        let lines = inputs.iter().all(|input| input.format() == Format::Ndjson);
        if self.key_field.is_some() && !lines {
            return Err(Failure::usage("--key-field names a member of ndjson, found an input of another format"));
        }
        Ok(inputs)
    }

    pub(crate) fn reading(&self, context: &Context) -> Reading {
        Reading {
            longest_line: self.memory.map_or(LONGEST_LINE, |memory| memory.0 / 4),
            key_field: self.key_field.clone(),
            progress: Arc::default(),
            cancel: Arc::clone(context.interrupt.cancel()),
        }
    }
}

/// What to do with a duplicate key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Duplicates {
    /// Publish nothing
    Error,
    /// Keep the first pair of a key
    First,
    /// Keep the last pair of a key
    Last,
}

/// An encoding of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Encoded {
    /// Uncompressed
    Raw,
    /// Compressed
    Gzip,
}

impl From<Encoded> for Encoding {
    fn from(encoded: Encoded) -> Encoding {
        match encoded {
            Encoded::Raw => Encoding::Raw,
            Encoded::Gzip => Encoding::Gzip,
        }
    }
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let begun = Instant::now();
        let inputs = self.inputs.resolve(&self.input)?;
        Sources::of(inputs.iter().filter_map(Input::directory)).refuse(&self.store)?;
        let reading = self.inputs.reading(context);
        let progress = Progress::new(&reading);
        let mut options = self.options()?;
        options.progress(Arc::clone(&progress.build)).cancel(Arc::clone(context.interrupt.cancel()));

        let _cleanup = context.interrupt.cleanup(); // until the loader has removed its temporary files
        let bar = if context.quiet { Bar::hidden() } else { progress.bar() };
        let mut loader = options.create(&self.store)?;
        let mut counted = Counted { loader: &mut loader, pairs: 0 };
        let mut skipped = Skipped::default();
        for input in &inputs {
            skipped.files += input.read(&reading, &mut counted)?.files;
        }
        let pairs = counted.pairs;
        progress.all_read();
        let names = inputs.iter().map(Input::name).collect::<Vec<_>>().join(", ");
        self.allow_empty.check(pairs, &names, &self.store)?;
        let published = loader.finish()?;
        drop(bar);

        if pairs == 0 {
            context.say(format_args!("found no pairs in {names}"));
        }
        context.say(summary(&published, begun));
        if skipped.files > 0 {
            context.say(format_args!("skipped {} files that contain no pair", grouped(skipped.files)));
        }
        self.collect(context)
    }

    fn options(&self) -> Result<BuildOptions> {
        let mut options = BulkLoader::options();
        options.allow_sparse(self.force);
        options.on_duplicate(match self.on_duplicate {
            Duplicates::Error => OnDuplicate::Error,
            Duplicates::First => OnDuplicate::KeepFirst,
            Duplicates::Last => OnDuplicate::KeepLast,
        });
        if let Some(memory) = self.inputs.memory {
            options.memory(memory.0);
        }
        options.checks(!self.no_checks).value_alignment(self.value_alignment);
        if let Some(threads) = self.threads {
            options.threads(threads.get());
        }
        if let Some(directory) = &self.temp_dir {
            options.temp_dir(directory);
        }
        if let Some(encoding) = self.data_encoding {
            options.data_encoding(encoding.into());
        }
        if let Some(encoding) = self.index_encoding {
            options.minishard_index_encoding(encoding.into());
        }
        let info = match &self.info {
            Some(path) => Some(fs::read_to_string(path).map_err(|error| Failure::io("read", path, error))?),
            None => None,
        };
        if let Some(info) = &info {
            options.info(info);
        }
        match (self.spec(info.as_deref())?, self.profile) {
            (Some(spec), _) => options.spec(self.with_encodings(spec)),
            (None, Some(profile)) => options.profile(profile),
            (None, None) => &mut options,
        };
        Ok(options)
    }

    /// The given specification: from --sharding or from the info; `None` if it is to be planned.
    fn spec(&self, info: Option<&str>) -> Result<Option<ShardingSpec>> {
        if let Some(argument) = &self.sharding {
            return sharding::read(argument).map(Some);
        }
        match info.and_then(sharding::member) {
            Some(member) if self.profile.is_none() => Ok(Some(ShardingSpec::from_json(member)?)),
            _ => Ok(None),
        }
    }

    /// Applies --data-encoding and --index-encoding to a given specification.
    fn with_encodings(&self, spec: ShardingSpec) -> ShardingSpec {
        let data = self.data_encoding.map_or(spec.data_encoding(), Encoding::from);
        let index = self.index_encoding.map_or(spec.minishard_index_encoding(), Encoding::from);
        spec.with_data_encoding(data).with_minishard_index_encoding(index)
    }

    fn collect(&self, context: &Context) -> Result<Exit> {
        if let Some(keep) = self.keep {
            return Ok(gc::say(context, &Store::open(&self.store)?.writer()?.gc(keep)?));
        }
        Ok(Exit::Done)
    }
}

fn summary(published: &Published, begun: Instant) -> String {
    let dropped = match published.dropped {
        0 => String::new(),
        dropped => format!(", {} duplicates dropped", grouped(dropped)),
    };
    format!(
        "published {}: {} keys{dropped}, {} of values in {} shards of {}, in {:.1} s",
        published.generation,
        grouped(published.keys),
        Size(published.value_bytes),
        grouped(published.shards),
        Size(published.file_bytes),
        begun.elapsed().as_secs_f64(),
    )
}

fn parse_alignment(text: &str) -> Result<ValueAlignment, String> {
    let number: u64 = text.parse().map_err(|_| format!("expected 1, 8, 16, 64 or 4096, found \"{text}\""))?;
    ValueAlignment::new(number).map_err(|error| error.to_string())
}

/// What the bar shows: the progress of the inputs, then that of the loader.
struct Progress {
    input: Arc<InputProgress>,
    build: Arc<BuildProgress>,
    all_read: Arc<AtomicBool>,
}

impl Progress {
    fn new(reading: &Reading) -> Progress {
        Progress { input: Arc::clone(&reading.progress), build: Arc::default(), all_read: Arc::default() }
    }

    fn all_read(&self) {
        self.all_read.store(true, Ordering::Relaxed);
    }

    fn bar(&self) -> Bar {
        let (input, build, all_read) = (Arc::clone(&self.input), Arc::clone(&self.build), Arc::clone(&self.all_read));
        Bar::start(move || match all_read.load(Ordering::Relaxed) {
            false => Status { phase: "read", bytes: input.bytes(), fraction: input.fraction() },
            true => Status::of_bytes(name_of(build.phase()), build.done(), build.total()),
        })
    }
}

fn name_of(phase: BuildPhase) -> &'static str {
    match phase {
        BuildPhase::Insert => "read",
        BuildPhase::Sort => "sort",
        BuildPhase::Merge => "merge",
        BuildPhase::Write => "write",
        BuildPhase::Publish => "publish",
        _ => "build",
    }
}

/// A loader that counts the pairs it receives.
struct Counted<'a> {
    loader: &'a mut BulkLoader,
    pairs: u64,
}

impl Sink for Counted<'_> {
    fn insert(&mut self, key: u64, prefix: &[u8], value: &[u8]) -> Result<()> {
        self.pairs += 1;
        Sink::insert(self.loader, key, prefix, value)
    }

    fn insert_reader(&mut self, key: u64, prefix_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()> {
        self.pairs += 1;
        Sink::insert_reader(self.loader, key, prefix_len, value_len, reader)
    }
}

impl Sink for BulkLoader {
    fn insert(&mut self, key: u64, prefix: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.insert_with_prefix(key, prefix, value)?)
    }

    fn insert_reader(&mut self, key: u64, prefix_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()> {
        Ok(BulkLoader::insert_reader(self, key, prefix_len, value_len, reader)?)
    }
}
