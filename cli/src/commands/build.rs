//! `build`: reads pairs and publishes them as a generation.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use sharddb::spec::{Encoding, ValueAlignment};
use sharddb::{BuildOptions, OnDuplicate, Profile, Published, ShardingSpec};

use crate::allow_empty::AllowEmpty;
use crate::commands::after::Keep;
use crate::commands::stages::{Stages, reading_inputs};
use crate::commands::write_json;
use crate::context::Context;
use crate::database::parse_pointer;
use crate::exit::Exit;
use crate::failure::{Failure, Place, Result};
use crate::input::{self, Columns, Format, Input, NameOptions, Reading, Skipped};
use crate::intake::{FirstSkeleton, Intake, Loading};
use crate::number::{counted, plural};
use crate::output::Sources;
use crate::plan::ValueTrial;
use crate::publication::json_of;
use crate::remote::url::path_or_url;
use crate::remote::{Call, RemoteStore};
use crate::scratch::Scratch;
use crate::size::{Size, parse_memory};
use crate::viewer::{self, Described, Kind, Values};
use crate::{duplicates, foreign, sharding};

/// Build a generation from pairs and publish it
#[derive(Clone, Debug, clap::Args)]
#[command(
    override_usage = "sharddb build [OPTIONS] <STORE> --input <PATH>...",
    after_help = "\
Examples:
  sharddb build numbers --input numbers.ndjson
  sharddb build people --input people.jsonl --key-field id        the value is the whole line
  sharddb build skeletons --input byfile/ --kind skeletons --profile remote
  sharddb build mesh --input meshes/ --info info --kind multires-mesh --ignore '*.json'
  sharddb build cells --input tree/ --recursive --suffix .json    tree/00/7.json is key 7
  sharddb build volume --input chunks/ --info volume.info --sharding-at /scales/0
  sharddb build s3://bucket/numbers --input numbers.ndjson        built in the temporary directory
  zcat dump.gz | sharddb build big --input - --format bin2 --memory 4GiB --temp-dir /scratch

Inputs (the format follows from the name: a directory, .ndjson or .jsonl, .csv, .bin, .bin2; files
ending in .gz and .zst are decompressed):
  dir     one file per key, named by the key: 7, or 7.gz, which is decompressed. If there are 7 and
          7.index, 7.index is the value and 7 its preamble, like mesh fragments before a manifest.
          --suffix .json takes 7.json (.json.gz too), --recursive 00/7, --name-base 10 0007, and
          --name-base 16 1f or 0x1F. 7:0, a mesh manifest of igneous, is the value of key 7. Skipped
          are its fragments 7:0:BOX, info, dotfiles, *.spatial, *.labels* and what --ignore names
  ndjson  {\"key\": 7, \"value_b64\": \"...\"}, or \"text\": \"...\", or \"value\": any JSON, which is stored as
          written, without white space; optional \"preamble_b64\". A key is a number or a string, and
          exact up to 2^64-1
  csv     a row with the names of the columns, then one row per key. --key-column and --value-column
          choose columns; without --value-column, the value is a JSON object of the other columns
  bin     records of key, length, bytes; numbers are u64 little endian
  bin2    records of key, preamble length, length, preamble, bytes
--format is for all inputs. FORMAT:PATH gives one input its own, such as csv:table.txt or
ndjson.gz:-, where standard input is decompressed; a file of such a name is ./csv:table.txt.

A malformed record is an error that names its place, and nothing is published. Readers see the old
generation or the new one. The same pairs and options produce the same bytes.

Inputs without a pair are an error if the store has pairs: a pipe whose writer failed looks like an
empty input. --allow-empty publishes them anyway. STORE must not be inside an input.

The info of a volume describes its scales in nested objects. --sharding-at /scales/0 builds the
first one: its shards are written to the directory that the scale's \"key\" names, and its
\"sharding\" applies unless --sharding or --profile is given. Everything else in the info is kept,
other scales too, and STORE/current is a volume for other programs. The keys of the pairs are those
of the chunks (compressed Morton codes), and the values the encoded chunks.

With --kind, an info that Neuroglancer and CloudVolume read is written, or the members of the --info
are checked, and each value must have the length that it states.

A SIZE has a unit: 64M, 1.5GiB, 3GB. K, M, G, T and P alone are binary like KiB; KB, MB and so on
are decimal.
With --json, the members are \"generation\", \"keys\", \"keys_before\" (null if there was no generation),
\"duplicates_dropped\", \"value_bytes\", \"shards\", \"file_bytes\", \"skipped_files\" and \"seconds\".

Exit codes: 0 published, 2 usage, 3 malformed or corrupt, or no pairs where the store has some,
4 not found, no space, or another writer is at work."
)]
pub(crate) struct Args {
    /// The store; created if there is none. A path, or a URL to which the generation is pushed
    #[arg(value_parser = path_or_url())]
    store: PathBuf,
    /// The inputs, as PATH or FORMAT:PATH; - is standard input
    #[arg(long, value_name = "PATH", num_args = 1.., required = true)]
    input: Vec<PathBuf>,
    #[command(flatten)]
    inputs: InputOptions,
    /// The sharding specification: a JSON object, or a file that contains it. Default: planned for the pairs
    #[arg(long, value_name = "FILE|JSON", conflicts_with = "profile")]
    sharding: Option<String>,
    /// An info whose other members are kept. Its top-level member "sharding" applies unless a specification, a profile
    /// or a size of shards is given
    #[arg(long, value_name = "FILE")]
    info: Option<PathBuf>,
    /// Where the info describes the pairs: the JSON pointer of an object with a "key", such as a scale of a volume.
    /// Default: the top level
    #[arg(long, value_name = "POINTER", value_parser = parse_pointer, requires = "info", conflicts_with = "kind")]
    sharding_at: Option<String>,
    /// What the values are: checks them, and writes the members of info that viewers need or, with --info, checks those
    #[arg(long, value_enum, value_name = "KIND")]
    kind: Option<Kind>,
    /// How the store will be read, for the plan. Default: local
    #[arg(long, value_name = "PROFILE", value_parser = profiles())]
    profile: Option<Profile>,
    /// For the plan: the mean size of a shard is at most this. An update rewrites every shard with a change, so smaller
    /// shards make cheaper updates. Default: the profile's size
    #[arg(long, value_name = "SIZE", conflicts_with = "sharding")]
    max_shard_bytes: Option<Size>,
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
    /// Align values in their file to multiples of this number
    #[arg(long, value_name = "N", default_value = "1", value_parser = alignments())]
    value_alignment: ValueAlignment,
    /// Write a key file: all keys sorted, for fast ranges under any hash
    #[arg(long)]
    ordered: bool,
    #[command(flatten)]
    keep: Keep,
    #[command(flatten)]
    allow_empty: AllowEmpty,
    /// Print one JSON object: what was published
    #[arg(long)]
    json: bool,
    /// Build even if the shard indexes take more bytes than the data (and more than 64 MiB)
    #[arg(long)]
    force: bool,
}

/// Creates a directory for a store in `directory`, by default the temporary directory. It is removed with the value.
///
/// Errors: `Io`.
pub(super) fn temporary_store(directory: Option<&Path>) -> Result<Scratch> {
    let directory = directory.map_or_else(std::env::temp_dir, Path::to_path_buf);
    fs::create_dir_all(&directory).map_err(|error| Failure::io("create the directory", &directory, error))?;
    Scratch::create(&directory, "sharddb-build-")
}

/// How inputs are read.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct InputOptions {
    /// The format of the inputs. Default: follows from their names
    #[arg(long, value_name = "FORMAT", value_parser = encodings())]
    format: Option<input::Encoded>,
    /// For ndjson: use this member as the key and the whole line as the value; a.b is member b of the object a
    #[arg(long, value_name = "MEMBER")]
    key_field: Option<String>,
    #[command(flatten)]
    names: NameOptions,
    /// For csv: the column of keys, by name or number from 1. Default: the one named key, or else the first
    #[arg(long, value_name = "COLUMN")]
    key_column: Option<String>,
    /// For csv: the column of values. Default: the other columns, as a JSON object of strings
    #[arg(long, value_name = "COLUMN")]
    value_column: Option<String>,
    /// For csv: the first row is a pair; the names of the columns are their numbers
    #[arg(long)]
    no_header: bool,
    /// The memory to use, at least 16 MiB; a line of ndjson may take a quarter of it. Default: a quarter of
    /// what the process may use, at most 4 GiB; a line may then take 256 MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub(crate) memory: Option<Size>,
}

/// The longest line of ndjson if --memory is not given. It is the same on every machine.
pub(super) const LONGEST_LINE: u64 = 256 << 20;

impl InputOptions {
    /// The inputs at these paths.
    ///
    /// Errors: those of [`Input::resolve_all`]; `Usage` if a key field is given and an input is not ndjson, or options
    /// of names are given and no input is a directory.
    pub(crate) fn resolve(&self, paths: &[PathBuf]) -> Result<Vec<Input>> {
        let inputs = Input::resolve_all(paths, self.format)?;
        let lines = inputs.iter().all(|input| input.format() == Format::Ndjson);
        if self.key_field.is_some() && !lines {
            return Err(Failure::usage("--key-field names a member of ndjson, found an input of another format"));
        }
        if let Some(option) = self.names.given()
            && inputs.iter().all(|input| input.directory().is_none())
        {
            return Err(Failure::usage(format!("{option} is for directories, found none among the inputs")));
        }
        let has_rows = inputs.iter().any(|input| input.format() == Format::Csv);
        if (self.key_column.is_some() || self.value_column.is_some() || self.no_header) && !has_rows {
            return Err(Failure::usage(
                "--key-column, --value-column and --no-header are for csv, found no input of this format",
            ));
        }
        Ok(inputs)
    }

    /// Refuses options of inputs where there are none.
    ///
    /// Errors: `Usage`.
    pub(crate) fn refuse_without_inputs(&self) -> Result<()> {
        let given = [
            self.format.map(|_| "--format"),
            self.key_field.as_ref().map(|_| "--key-field"),
            self.names.given(),
            self.memory.map(|_| "--memory"),
        ];
        given.into_iter().flatten().next().map_or(Ok(()), |option| {
            Err(Failure::usage(format!("{option} is for inputs and has no effect without --input: leave it out")))
        })
    }

    pub(crate) fn reading(&self, context: &Context) -> Reading {
        Reading {
            longest_line: self.memory.map_or(LONGEST_LINE, |memory| memory.0 / 4),
            key_field: self.key_field.clone(),
            names: self.names.clone(),
            columns: Columns {
                key: self.key_column.clone(),
                value: self.value_column.clone(),
                no_header: self.no_header,
            },
            progress: Arc::default(),
            cancel: Arc::clone(context.interrupt.cancel()),
        }
    }
}

/// What to do with a duplicate key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Duplicates {
    /// Publish nothing
    Error,
    /// Keep the first pair of a key
    First,
    /// Keep the last pair of a key
    Last,
    /// Join the values of a key, in the order of the inputs
    Concat,
}

impl Duplicates {
    pub(super) fn policy(self) -> OnDuplicate {
        match self {
            Duplicates::Error => OnDuplicate::Error,
            Duplicates::First => OnDuplicate::KeepFirst,
            Duplicates::Last => OnDuplicate::KeepLast,
            Duplicates::Concat => OnDuplicate::merge(|_, values, to| {
                while values.copy_next(to)? {}
                Ok(())
            }),
        }
    }
}

/// An encoding of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Encoded {
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
        match RemoteStore::open(&self.store)? {
            Some(remote) => self.run_at_url(&remote, context),
            None => self.build("published", context),
        }
    }

    /// Builds a store in the temporary directory, pushes it, and removes it.
    fn run_at_url(&self, remote: &RemoteStore, context: &Context) -> Result<Exit> {
        if self.keep.is_given() {
            return Err(Failure::usage("--keep is for local stores: see sharddb gc --older-than"));
        }
        remote.check_publishable()?; // before the work of building
        let _cleanup = context.interrupt.publishing(); // until the temporary store is removed
        let temporary = temporary_store(self.temp_dir.as_deref())?;
        let local = Args { store: temporary.path().to_path_buf(), json: false, ..self.clone() };
        local.build("built", context)?;
        remote.push(temporary.path(), self.allow_empty, Call { context, json: self.json })
    }

    /// Builds a generation of a local store; `done` is the verb of its message.
    fn build(&self, done: &str, context: &Context) -> Result<Exit> {
        let begun = Instant::now();
        let inputs = self.inputs.resolve(&self.input)?;
        Sources::of(inputs.iter().filter_map(Input::directory)).refuse(&self.store)?;
        let (info, values) = self.info(&inputs, context)?;
        let cleanup = context.interrupt.publishing(); // until the loader has removed its temporary files
        let mut intake = Intake { pairs: 0, values, trial: self.trial() };
        let (published, skipped) = self
            .publish(&inputs, info.as_deref(), &mut intake, context)
            .map_err(|failure| duplicates::explain(failure, &inputs, &self.inputs.reading(context)))?;
        cleanup.done();

        context.say(summary(done, &published, begun));
        if self.json {
            let mut json = to_json(&published);
            json["skipped_files"] = skipped.files().into();
            json["seconds"] = begun.elapsed().as_secs_f64().into();
            write_json(&json)?;
        }
        skipped.say(context);
        if let Some(suggestion) = intake.trial.and_then(|trial| trial.suggestion()) {
            context.say(suggestion);
        }
        self.keep.conclude(&published, &self.store, context)
    }

    /// Loads all pairs and publishes them.
    fn publish(
        &self,
        inputs: &[Input],
        info: Option<&str>,
        intake: &mut Intake,
        context: &Context,
    ) -> Result<(Published, Skipped)> {
        let reading = self.inputs.reading(context);
        let stages = Stages::new(context);
        let mut options = self.options(info)?;
        options.progress(&stages.build);
        let _progress = stages.show(context.quiet, reading_inputs(&reading.progress));
        let mut loader =
            options.create(&self.store).map_err(|error| foreign::not_a_store(error.into(), &self.store))?;
        let skipped = input::read_all(inputs, &reading, &mut Loading { loader: &mut loader, intake })?;
        stages.all_read();
        if intake.pairs == 0 {
            context.say(format_args!("found no pairs in {}", names(inputs)));
        }
        Ok((loader.finish()?, skipped))
    }

    /// The info to extend, and the form of all values if --kind states it.
    fn info(&self, inputs: &[Input], context: &Context) -> Result<(Option<String>, Option<Values>)> {
        let given = match &self.info {
            Some(path) => Some(fs::read_to_string(path).map_err(|error| Failure::io("read", path, error))?),
            None => None,
        };
        match (self.kind, given, &self.info) {
            (None, given, _) => Ok((given, None)),
            (Some(kind), Some(given), Some(path)) => {
                let name = path.display().to_string();
                let values = viewer::check(kind, &given);
                let values = values.map_err(|message| Failure::malformed(&name, Place::Whole, message))?;
                if let Some(words) = viewer::not_drawn(kind, &given) {
                    context.say(format_args!("{name}: {words}"));
                }
                Ok((Some(given), Some(values)))
            }
            (Some(kind), ..) => {
                let written = match kind {
                    Kind::Skeletons => self.describe_skeletons(inputs, context)?,
                    _ => viewer::write(kind, None).map_err(Failure::Refused)?,
                };
                context.say(format_args!("info: {}", written.words));
                Ok((Some(written.info), Some(written.values)))
            }
        }
    }

    /// Describes skeletons by the first one that has a vertex.
    fn describe_skeletons(&self, inputs: &[Input], context: &Context) -> Result<Described> {
        if !inputs.iter().all(Input::is_rereadable) {
            return Err(Failure::usage(
                "--kind skeletons without --info first reads a skeleton to find its vertex attributes, and a pipe can be \
                 read only once: give --info, or files",
            ));
        }
        let mut first = FirstSkeleton(None);
        for input in inputs {
            match input.read(&self.inputs.reading(context), &mut first) {
                Ok(_) => {}
                Err(failure) => return first.0.ok_or(failure),
            }
        }
        viewer::write(Kind::Skeletons, None).map_err(Failure::Refused)
    }

    /// A sample for a suggestion of gzip: for remote readers, if nothing says how values are stored.
    fn trial(&self) -> Option<ValueTrial> {
        let wanted = self.profile == Some(Profile::Remote) && self.data_encoding.is_none();
        wanted.then(ValueTrial::new)
    }

    fn options(&self, info: Option<&str>) -> Result<BuildOptions> {
        let mut options = BuildOptions::new();
        options.allow_sparse(self.force).allow_empty(self.allow_empty.allow_empty);
        options.on_duplicate(self.on_duplicate.policy());
        set_resources(&mut options, self.inputs.memory, self.temp_dir.as_deref(), self.threads);
        options.checks(!self.no_checks).value_alignment(self.value_alignment).ordered(self.ordered);
        if let Some(Size(bytes)) = self.max_shard_bytes {
            options.max_shard_bytes(bytes);
        }
        if let Some(encoding) = self.data_encoding {
            options.data_encoding(encoding.into());
        }
        if let Some(encoding) = self.index_encoding {
            options.minishard_index_encoding(encoding.into());
        }
        if let Some(info) = info {
            options.info(info);
        }
        if let Some(pointer) = &self.sharding_at {
            options.sharding_at(pointer);
        }
        match (self.spec(info)?, self.profile) {
            (Some(spec), _) => options.spec(with_encodings(spec, self.data_encoding, self.index_encoding)),
            (None, Some(profile)) => options.profile(profile),
            (None, None) => &mut options,
        };
        Ok(options)
    }

    /// The given specification: from --sharding or from the top level of the info; `None` if it is nested in the info, or
    /// to be planned.
    fn spec(&self, info: Option<&str>) -> Result<Option<ShardingSpec>> {
        if let Some(argument) = &self.sharding {
            return sharding::read(argument).map(Some);
        }
        let at_top = self.sharding_at.as_ref().is_none_or(String::is_empty); // the loader reads a nested one
        match info.and_then(sharding::member) {
            Some(member) if self.profile.is_none() && self.max_shard_bytes.is_none() && at_top => {
                Ok(Some(ShardingSpec::from_json(member)?))
            }
            _ => Ok(None),
        }
    }
}

/// Sets what the command line states of the memory, the directory for spills and the threads.
pub(super) fn set_resources(
    options: &mut BuildOptions,
    memory: Option<Size>,
    temp_dir: Option<&Path>,
    threads: Option<NonZero<usize>>,
) {
    if let Some(Size(bytes)) = memory {
        options.memory(bytes);
    }
    if let Some(directory) = temp_dir {
        options.temp_dir(directory);
    }
    if let Some(threads) = threads {
        options.threads(threads.get());
    }
}

/// Applies --data-encoding and --index-encoding to a given specification.
pub(super) fn with_encodings(spec: ShardingSpec, data: Option<Encoded>, index: Option<Encoded>) -> ShardingSpec {
    let data = data.map_or(spec.data_encoding(), Encoding::from);
    let index = index.map_or(spec.minishard_index_encoding(), Encoding::from);
    spec.with_data_encoding(data).with_minishard_index_encoding(index)
}

/// The names of the inputs, for a message.
pub(super) fn names(inputs: &[Input]) -> String {
    inputs.iter().map(Input::name).collect::<Vec<_>>().join(", ")
}

/// The members of JSON about what was published.
pub(super) fn to_json(published: &Published) -> serde_json::Value {
    json_of(&published.generation.to_string(), published.keys_before, &published.content)
}

/// The line about what was published or built.
pub(super) fn summary(done: &str, published: &Published, begun: Instant) -> String {
    let dropped = match published.content.dropped {
        0 => String::new(),
        dropped => format!(", {} dropped", plural(dropped, "duplicate")),
    };
    format!(
        "{done} {}: {}{dropped}, {} of values in {} of {}, in {:.1} s",
        published.generation,
        counted(published.content.keys, "key", published.keys_before),
        Size(published.content.value_bytes),
        plural(published.content.shards, "shard"),
        Size(published.content.file_bytes),
        begun.elapsed().as_secs_f64(),
    )
}

/// The parser of --format, with its values for completions.
fn encodings() -> impl TypedValueParser<Value = input::Encoded> {
    PossibleValuesParser::new(input::Encoded::NAMES)
        .try_map(|name| input::Encoded::named(&name).ok_or_else(|| format!("expected a format, found {name}")))
}

/// The parser of --profile, with its values for completions.
pub(super) fn profiles() -> impl TypedValueParser<Value = Profile> {
    PossibleValuesParser::new(Profile::ALL.map(Profile::as_str)).try_map(|name| name.parse::<Profile>())
}

/// The parser of --value-alignment, with its values for completions.
pub(super) fn alignments() -> impl TypedValueParser<Value = ValueAlignment> {
    let parse = |number: String| number.parse().map_err(|_| String::new());
    PossibleValuesParser::new(["1", "4", "8", "16", "64", "4096"]).try_map(move |number| {
        parse(number).and_then(|number| ValueAlignment::new(number).map_err(|error| error.to_string()))
    })
}
