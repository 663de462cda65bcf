//! `export`: writes pairs in a format that `build` reads, or restores an imported array.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use sharddb::internal::key::Key;
use sharddb::progress::{Phase, Unit};
use sharddb::read::{Range, RangeEntry};
use sharddb::shard::Entry;
use sharddb::spec::ShardNumber;
use sharddb::{ErrorKind, Progress, Snapshot, Value};
use sharddb_container::{Container, bcolz, zarr};
use sharddb_remote::RemoteValue;

use crate::chunks::{self, Chunks};
use crate::commands::get_many;
use crate::commands::zarr::with_progress;
use crate::context::{Context, Errors, warn};
use crate::database::{AnyDatabase, Opened};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::histogram::grouped;
use crate::in_order::{self, Event};
use crate::input::{Compression, Format, KeyList};
use crate::number::plural;
use crate::order::Order;
use crate::output::{Form, Output, Sources, Values};
use crate::printable::word;
use crate::progress::Display;
use crate::remote::url::url_of;
use crate::remote::{RemoteDatabase, RemoteOpening};

/// Write the pairs in a format that build reads
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb export numbers --format ndjson
  sharddb export numbers --format dir --output numbers.d
  sharddb export numbers --format ndjson --as json --key 1 --key 2
  sharddb export numbers --format ndjson --keys some.txt
  sharddb export numbers --format ndjson --range 100..200
  sharddb export numbers --output numbers.ndjson.gz
  sharddb export numbers --format bin | ssh host sharddb build numbers --input - --format bin
  sharddb export volume.zarr --format dir --output chunks --decoded
  sharddb export trades --column price --format dir --output prices
  sharddb export store --format zarr --output volume.zarr            the array that was imported

Pairs are written in storage order, or in that of their keys with --range, --sorted or --reverse,
which looks each pair up and is slower on a cold disk. They keep their preambles: dir writes a
preamble to file 7 and the value to 7.index; bin cannot store preambles and fails. build of an
export, with the same options and --info, produces the same bytes.

Every stored check is verified and every chunk of an array decoded, because a build of the export
would compute new checks for damaged bytes. --no-verify skips that. A bad entry is left out and
named on standard error, and the export continues; the exit code is then 3. With --key or --keys the
exit code is 1 if some keys are absent.

At a URL, objects are not compared with the manifest first: sharddb verify URL does that, and pull.
There the export ends with the first bad entry, and a file at --output is not written. After bad
values, sharddb keys URL | sharddb get-many URL --keys - writes the others.

--as text writes values that are UTF-8 as \"text\"; --as json also writes JSON as \"value\", unless it
has white space between its parts, which build would drop. Other values stay \"value_b64\".

A file at --output is replaced when everything is written, and keeps its mode; a symbolic link is
followed. It must not be in DB. If its name ends in .gz, it is compressed, as build reads it.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: AnyDatabase,
    #[command(flatten)]
    at_url: RemoteOpening,
    /// The format to write. Default: as the name of the output says
    #[arg(long, value_enum)]
    format: Option<Target>,
    /// A file, or a new directory for dir; - is standard output
    #[arg(long, short, value_name = "PATH|-", default_value = "-")]
    output: PathBuf,
    /// Only these keys: a file with one key per line, decimal or 0x hex; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["range", "sorted", "reverse"])]
    keys: Option<PathBuf>,
    /// Only this key, and those of --keys; may be repeated
    #[arg(long, value_name = "KEY", conflicts_with_all = ["range", "sorted", "reverse"])]
    key: Vec<Key>,
    #[command(flatten)]
    order: Order,
    /// For ndjson: how values are written. Default: base64
    #[arg(long = "as", value_enum, value_name = "HOW")]
    values: Option<Values>,
    /// Do not verify the stored checks, and do not decode the chunks of an array
    #[arg(long, conflicts_with = "verify_reads")]
    no_verify: bool,
    #[command(flatten)]
    chunks: Chunks,
}

/// The formats that `export` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Target {
    /// One file per key, named by the key
    Dir,
    /// One JSON object per line
    Ndjson,
    /// Key, length (u64 little endian), bytes
    Bin,
    /// Key, preamble length, length, preamble, bytes
    Bin2,
    /// The Zarr v3 array that was imported
    Zarr,
    /// The bcolz array or bloscpack file that was imported
    Bcolz,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let target = self.target()?;
        if self.values.is_some() && target != Target::Ndjson {
            return Err(Failure::usage("--as is for --format ndjson, found another format"));
        }
        let format = match target {
            Target::Dir => Form::Dir,
            Target::Ndjson => Form::Ndjson(self.values.unwrap_or(Values::Base64)),
            Target::Bin => Form::Bin,
            Target::Bin2 => Form::Bin2,
            Target::Zarr | Target::Bcolz => {
                if url_of(self.database.path())?.is_none() {
                    self.at_url.refuse_for_path(self.database.path())?;
                }
                return self.give_back(target, context);
            }
        };
        self.order.check()?;
        if let Some(remote) = self.database.open_remote(&self.at_url, context)? {
            return self.run_remote(&remote, format, context);
        }
        self.run_local(format, context)
    }

    /// The format of --format, or of the name of the output.
    ///
    /// Errors: `Usage` if neither says one.
    fn target(&self) -> Result<Target> {
        let of_name = || match Format::of_name(Compression::of_name(&self.output).1)? {
            Format::Ndjson => Some(Target::Ndjson),
            Format::Bin => Some(Target::Bin),
            Format::Bin2 => Some(Target::Bin2),
            Format::Dir | Format::Csv => None,
        };
        self.format.or_else(of_name).ok_or_else(|| {
            Failure::usage(
                "expected --format, or an --output whose name ends in .ndjson, .jsonl, .bin or .bin2, perhaps with .gz",
            )
        })
    }

    /// Writes pairs of a database, or chunks of another container.
    fn run_local(&self, format: Form, context: &Context) -> Result<Exit> {
        let opened = self.database.verifying(!self.no_verify).open()?;
        match opened {
            Opened::Sharded(_) => self.chunks.refuse_decoded()?,
            Opened::Container(_) => self.order.refuse_container()?,
        }
        opened.sources(self.database.path()).refuse(&self.output)?;
        let wanted = self.wanted(context)?;
        // until a partial output is removed or renamed; standard output has some of the pairs
        let _cleanup =
            if self.output == Path::new("-") { context.interrupt.cleanup() } else { context.interrupt.writing() };
        let pairs = match &opened {
            Opened::Sharded(snapshot) if self.order.is_given() => Some(self.order.pairs(snapshot, context)),
            _ => None,
        };
        let output = Output::open(&self.output, format)?;
        let (unit, all) = match &opened {
            Opened::Sharded(snapshot) => (Unit::Keys, snapshot.key_count().unwrap_or(0)),
            Opened::Container(_) => (Unit::Chunks, 0), // known when they are listed
        };
        let read = context.interrupt.progress();
        let some = wanted.as_ref().map(|wanted| wanted.len() as u64).or(pairs.as_ref().map(Range::remaining));
        read.begin_counting(Phase::Copy, unit, some.unwrap_or(all));
        let shown = Display::beside(&self.output, context.quiet, "export", &read);
        let mut export = Export { context, output, errors: Errors::new(), read };
        match (&opened, wanted) {
            (Opened::Sharded(snapshot), Some(wanted)) => export.some(snapshot, wanted)?,
            (Opened::Sharded(snapshot), None) => match pairs {
                Some(pairs) => export.in_order(self.order.directed(pairs))?,
                None => export.all(snapshot)?,
            },
            (Opened::Container(container), Some(wanted)) => {
                export.chunks(&|key| self.chunk(&**container, key), &mut wanted.into_iter().map(Ok))?;
            }
            (Opened::Container(container), None) => {
                let keys: Vec<_> = container.keys().collect();
                export.read.begin_counting(Phase::Copy, unit, keys.len() as u64);
                export.chunks(&|key| self.chunk(&**container, key), &mut keys.into_iter())?;
            }
        }
        export.output.finish()?;
        drop(shown);
        if matches!(opened, Opened::Sharded(_)) && export.errors.has_damage() {
            self.suggest_salvage();
        }
        Ok(export.errors.exit())
    }

    /// Writes pairs of a data set at a URL.
    fn run_remote(&self, remote: &RemoteDatabase, format: Form, context: &Context) -> Result<Exit> {
        self.chunks.refuse_decoded()?;
        let (url, snapshot, bounds) = (remote.url(), remote.reader().snapshot(), self.order.bounds_at_url()?);
        if self.no_verify {
            return Err(Failure::usage(format!("reads of {url} always verify: leave out --no-verify")));
        }
        if snapshot.has_preambles() {
            return Err(Failure::usage(format!(
                "expected a data set without preambles, found {url}: export a copy, made by sharddb pull {url} STORE"
            )));
        }
        let wanted = self.wanted(context)?;
        let _cleanup =
            if self.output == Path::new("-") { context.interrupt.cleanup() } else { context.interrupt.writing() };
        let (read, all) = (context.interrupt.progress(), snapshot.key_count().unwrap_or(0));
        read.begin_counting(Phase::Copy, Unit::Keys, wanted.as_ref().map_or(all, |wanted| wanted.len() as u64));
        let output = Output::open(&self.output, format)?;
        let shown = Display::beside(&self.output, context.quiet, "export", &read);
        let mut export = Export { context, output, errors: Errors::new(), read };
        match (wanted, bounds) {
            (Some(wanted), _) => export.some_remote(remote, wanted)?,
            (None, Some(bounds)) => {
                let mut pairs = snapshot.range(bounds);
                export.batches(|| remote.run("export", pairs.next_batch()))?;
            }
            (None, None) => {
                let mut pairs = snapshot.scan();
                export.batches(|| remote.run("export", pairs.next_batch()))?;
            }
        }
        export.output.finish()?;
        drop(shown);
        Ok(export.errors.exit())
    }

    /// The keys of --key and --keys; `None` without either.
    fn wanted(&self, context: &Context) -> Result<Option<Vec<u64>>> {
        let is_given = self.keys.is_some() || !self.key.is_empty();
        is_given.then(|| wanted_keys(&self.key, self.keys.as_deref(), context)).transpose()
    }

    fn chunk<'a>(&self, container: &'a dyn Container, key: u64) -> sharddb::Result<Option<Value<'a>>> {
        if self.no_verify {
            container.get(key, self.chunks.form())
        } else {
            chunks::get_verified(container, key, self.chunks.form())
        }
    }

    fn suggest_salvage(&self) {
        let db = word(self.database.path());
        warn(format_args!("sharddb: {db} is partly damaged: sharddb salvage {db} OUT saves every provable pair"));
    }

    /// Restores the array that was imported into the store.
    fn give_back(&self, target: Target, context: &Context) -> Result<Exit> {
        if self.keys.is_some() || !self.key.is_empty() || self.order.is_given() || self.output == Path::new("-") {
            let message = "expected --output with a new directory, and no keys, range or order, for an array";
            return Err(Failure::usage(message));
        }
        let snapshot = self.database.verifying(!self.no_verify).open_database()?;
        Sources::of([self.database.path(), snapshot.shards_directory()]).refuse(&self.output)?;
        let _cleanup = context.interrupt.writing();
        let written = with_progress(context, "export", |next| match target {
            Target::Bcolz => bcolz::export(&snapshot, &self.output, next),
            _ => zarr::export(&snapshot, &self.output, next),
        });
        let chunks = match written {
            Ok(chunks) => chunks,
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let mut errors = Errors::new();
                errors.tell(&error);
                self.suggest_salvage();
                return Ok(errors.exit());
            }
            Err(error) => return Err(error.into()),
        };
        context.say(format_args!("{} in {}", plural(chunks, "chunk"), self.output.display()));
        Ok(Exit::Done)
    }
}

/// The keys of --key and --keys.
///
/// Errors: those of opening and reading the list.
pub(super) fn wanted_keys(key: &[Key], list: Option<&Path>, context: &Context) -> Result<Vec<u64>> {
    let mut keys: Vec<u64> = key.iter().map(|key| key.0).collect();
    if let Some(path) = list {
        keys.extend(read_keys(KeyList::new(get_many::open_list(path, context)?))?);
    }
    Ok(keys)
}

/// Reads a list of keys to its end.
///
/// Errors: `Malformed` for a line that is not a key; those of the stream.
pub(super) fn read_keys(mut list: KeyList) -> Result<Vec<u64>> {
    let mut keys = Vec::new();
    loop {
        let batch = list.next_batch()?;
        if batch.is_empty() {
            return Ok(keys);
        }
        for line in batch {
            keys.push(line.map_err(|bad| Failure::Malformed(bad.malformed))?);
        }
    }
}

/// Keys that are looked up together at a URL. Their values are in memory at once.
const REMOTE_BATCH: usize = 256;

struct Export<'a> {
    context: &'a Context,
    output: Output,
    errors: Errors,
    /// Counts the pairs that are read.
    read: Progress,
}

impl Export<'_> {
    fn all(&mut self, snapshot: &Snapshot) -> Result<()> {
        let (encoder, context, read) = (self.output.encoder(), self.context, self.read.clone());
        let encode = |entry: sharddb::Result<Entry<'_>>, block: &mut Vec<u8>| {
            context.check_cancel()?;
            read.add(1);
            let pair = entry.and_then(|entry| Ok((entry, entry.preamble()?)));
            match pair.and_then(|(entry, preamble)| Ok((entry.key(), preamble, entry.value()?))) {
                Ok((key, preamble, value)) => encoder.encode(key, &preamble, &value, block).map(|()| None),
                Err(error) => Ok(Some(error)),
            }
        };
        in_order::encode_all(snapshot, in_order::all_cores(), &encode, &mut |event| match event {
            Event::Block(block) => self.output.write_block(&block),
            Event::Error(error) => {
                self.errors.tell(&error);
                Ok(())
            }
        })
    }

    /// Writes pairs of a data set at a URL, in batches.
    fn batches(&mut self, mut next: impl FnMut() -> Result<Option<Vec<(u64, RemoteValue)>>>) -> Result<()> {
        while let Some(pairs) = next()? {
            self.context.check_cancel()?;
            self.read.add(pairs.len() as u64);
            pairs.iter().try_for_each(|(key, value)| self.output.write(*key, &[], value))?;
        }
        Ok(())
    }

    /// Writes the pairs of the given keys of a data set at a URL.
    fn some_remote(&mut self, remote: &RemoteDatabase, mut wanted: Vec<u64>) -> Result<()> {
        let (snapshot, mut absent) = (remote.reader().snapshot(), Absent::default());
        wanted.sort_unstable_by_key(|&key| (snapshot.spec().route(key), key)); // storage order, as for a local database
        wanted.dedup();
        for keys in wanted.chunks(REMOTE_BATCH) {
            self.context.check_cancel()?;
            let values = remote.run("export", snapshot.get_many(keys))?;
            for (&key, value) in keys.iter().zip(values) {
                match value {
                    Ok(Some(value)) => self.output.write(key, &[], &value)?,
                    Ok(None) => absent.add(key),
                    Err(error) => self.errors.tell(&error),
                }
            }
            self.read.add(keys.len() as u64);
        }
        self.errors.note(absent.tell());
        Ok(())
    }

    /// Writes pairs in the order of their keys.
    fn in_order(&mut self, pairs: impl Iterator<Item = sharddb::Result<RangeEntry>>) -> Result<()> {
        for pair in pairs {
            self.context.check_cancel()?;
            self.read.add(1);
            match pair {
                Ok(pair) => {
                    let both = pair.preamble().and_then(|preamble| pair.value().map(|value| (preamble, value)));
                    self.write_both(pair.key(), both)?;
                }
                Err(error) => self.errors.tell(&error),
            }
        }
        Ok(())
    }

    /// Writes the chunks of a container for those of `keys` that are present.
    fn chunks<'a>(
        &mut self,
        get: &dyn Fn(u64) -> sharddb::Result<Option<Value<'a>>>,
        keys: &mut dyn Iterator<Item = sharddb::Result<u64>>,
    ) -> Result<()> {
        let mut absent = Absent::default();
        for key in keys {
            self.context.check_cancel()?;
            self.read.add(1);
            match key.and_then(|key| Ok((key, get(key)?))) {
                Ok((key, Some(chunk))) => self.output.write(key, &[], &chunk)?,
                Ok((key, None)) => absent.add(key),
                Err(error) => self.errors.tell(&error),
            }
        }
        self.errors.note(absent.tell());
        Ok(())
    }

    /// Writes the pairs of the given keys. Opens only the shards of these keys.
    fn some(&mut self, snapshot: &Snapshot, wanted: Vec<u64>) -> Result<()> {
        let mut by_shard: BTreeMap<ShardNumber, Vec<u64>> = BTreeMap::new();
        for key in wanted {
            by_shard.entry(snapshot.spec().route(key).shard).or_default().push(key);
        }
        let mut absent = Absent::default();
        for (number, mut keys) in by_shard {
            keys.sort_unstable();
            keys.dedup();
            self.some_of_shard(snapshot, number, &keys, &mut absent)?;
            self.read.add(keys.len() as u64);
        }
        self.errors.note(absent.tell());
        Ok(())
    }

    /// Writes the pairs of `keys`, which are ascending, that the shard has, and adds the others to `absent`.
    fn some_of_shard(
        &mut self,
        snapshot: &Snapshot,
        number: ShardNumber,
        keys: &[u64],
        absent: &mut Absent,
    ) -> Result<()> {
        let shard = match snapshot.shard(number) {
            Ok(Some(shard)) => shard,
            Ok(None) => {
                keys.iter().for_each(|key| absent.add(*key));
                return Ok(());
            }
            Err(error) => {
                self.errors.tell(&error);
                return Ok(());
            }
        };
        let mut met = vec![false; keys.len()];
        for entry in shard.iter() {
            self.context.check_cancel()?;
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.errors.tell(&error);
                    continue;
                }
            };
            // the entry that a lookup finds: in the right minishard, and the first one with its id
            let misplaced = entry.location() != snapshot.spec().route(entry.key());
            let at = keys.binary_search(&entry.key()).ok().filter(|_| !misplaced);
            let Some(met) = at.and_then(|at| met.get_mut(at)).filter(|met| !**met) else { continue };
            *met = true;
            self.write(&entry)?;
        }
        keys.iter().zip(met).filter(|(_, met)| !met).for_each(|(key, _)| absent.add(*key));
        Ok(())
    }

    fn write(&mut self, entry: &Entry) -> Result<()> {
        self.write_both(entry.key(), entry.preamble().and_then(|preamble| entry.value().map(|value| (preamble, value))))
    }

    /// Writes a pair of which preamble and value are read.
    fn write_both(&mut self, key: u64, both: sharddb::Result<(Value<'_>, Value<'_>)>) -> Result<()> {
        match both {
            Ok((preamble, value)) => self.output.write(key, &preamble, &value),
            Err(error) => {
                self.errors.tell(&error);
                Ok(())
            }
        }
    }
}

/// The keys that are absent: their number, and the first ones for a message.
#[derive(Default)]
pub(super) struct Absent {
    keys: u64,
    first: Vec<u64>,
}

impl Absent {
    /// The number of keys in a message.
    const NAMED: usize = 10;

    pub(super) fn add(&mut self, key: u64) {
        self.keys += 1;
        if self.first.len() < Absent::NAMED {
            self.first.push(key);
        }
    }

    /// Reports the keys, if there are any; returns the exit code.
    pub(super) fn tell(&self) -> Exit {
        if self.keys == 0 {
            return Exit::Done;
        }
        warn(format_args!("sharddb: {self}"));
        Exit::Absent
    }
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first: Vec<_> = self.first.iter().map(u64::to_string).collect();
        let verb = if self.keys == 1 { "is" } else { "are" };
        write!(f, "{} of the keys {verb} absent: {}", grouped(self.keys), first.join(", "))?;
        match self.keys - self.first.len() as u64 {
            0 => Ok(()),
            more => write!(f, " and {} more", grouped(more)),
        }
    }
}
