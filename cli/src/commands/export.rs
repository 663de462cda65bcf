//! `export`: writes pairs in a format that `build` reads, or restores an imported array.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use sharddb::container::{Container, bcolz, zarr};
use sharddb::shard::{Entry, Shard};
use sharddb::spec::ShardNumber;
use sharddb::{ErrorKind, Snapshot, Value};

use crate::chunks::{self, Chunks};
use crate::commands::get_many;
use crate::commands::zarr::go_on;
use crate::context::{Context, Errors, warn};
use crate::database::{AnyDatabase, Opened, by_reading};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::histogram::grouped;
use crate::input::Format;
use crate::input::KeyList;
use crate::output::{self, Output, Sources};

/// Write the pairs in a format that build reads
#[derive(Debug, clap::Args)]
#[command(mut_arg("storage", by_reading))]
#[command(after_help = "\
Examples:
  sharddb export numbers --format ndjson
  sharddb export numbers --format dir --output numbers.d
  sharddb export numbers --format ndjson --keys some.txt
  sharddb export numbers --format bin | ssh host sharddb build numbers --input - --format bin
  sharddb export volume.zarr --format dir --output chunks --decoded
  sharddb export trades --column price --format dir --output prices
  sharddb export store --format zarr --output volume.zarr            the array that was imported

Pairs are written in storage order, with their prefixes: dir writes a prefix to file 7 and the value
to 7.index; bin cannot store prefixes and fails. build of an export, with the same options and
--info, produces the same bytes.

Every stored check is verified and every chunk of an array decoded, because a build of the export
would compute new checks for damaged bytes. --no-verify skips that. A bad entry is left out and
named on standard error, and the export continues; the exit code is then 3. With --keys the exit
code is 1 if some keys are absent.

A file at --output is replaced when everything is written, and keeps its mode; a symbolic link is
followed. It must not be in DB.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: AnyDatabase,
    /// The format to write
    #[arg(long, value_enum)]
    format: Target,
    /// A file, or a new directory for dir; - is standard output
    #[arg(long, short, value_name = "PATH|-", default_value = "-")]
    output: PathBuf,
    /// Only these keys: a file with one key per line, decimal or 0x hex; - is standard input
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
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
    /// Key, prefix length, length, prefix, bytes
    Bin2,
    /// The Zarr v3 array that was imported
    Zarr,
    /// The bcolz array or bloscpack file that was imported
    Bcolz,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let format = match self.format {
            Target::Dir => Format::Dir,
            Target::Ndjson => Format::Ndjson,
            Target::Bin => Format::Bin,
            Target::Bin2 => Format::Bin2,
            Target::Zarr | Target::Bcolz => return self.give_back(context),
        };
        let opened = self.database.verifying(!self.no_verify).open()?;
        self.sources(&opened).refuse(&self.output)?;
        let wanted = match &self.keys {
            Some(path) => Some(read_keys(KeyList::new(get_many::open_list(path, context)?))?),
            None => None,
        };
        let _cleanup = context.interrupt.cleanup(); // until a partial output is removed or renamed
        let mut export = Export { context, output: output::open(&self.output, format)?, errors: Errors::new() };
        match (&opened, wanted) {
            (Opened::Sharded(snapshot), Some(wanted)) => export.some(snapshot, wanted)?,
            (Opened::Sharded(snapshot), None) => export.all(snapshot)?,
            (Opened::Container(container), Some(wanted)) => {
                export.chunks(&|key| self.chunk(&**container, key), &mut wanted.into_iter().map(Ok))?;
            }
            (Opened::Container(container), None) => {
                export.chunks(&|key| self.chunk(&**container, key), &mut container.keys())?;
            }
        }
        export.output.finish()?;
        if let (Opened::Sharded(_), Exit::Corrupt) = (&opened, export.errors.exit()) {
            self.suggest_salvage();
        }
        Ok(export.errors.exit())
    }

    fn sources(&self, opened: &Opened) -> Sources {
        let shards = match opened {
            Opened::Sharded(snapshot) => Some(snapshot.shards_directory()),
            Opened::Container(_) => None,
        };
        Sources::of(shards.into_iter().chain([self.database.path()]))
    }

    fn chunk<'a>(&self, container: &'a dyn Container, key: u64) -> sharddb::Result<Option<Value<'a>>> {
        match self.no_verify {
            true => container.get(key, self.chunks.form()),
            false => chunks::get_verified(container, key, self.chunks.form()),
        }
    }

    fn suggest_salvage(&self) {
        let db = self.database.path().display();
        warn(format_args!("sharddb: {db} is partly damaged: sharddb salvage {db} OUT saves every provable pair"));
    }

    /// Restores the array that was imported into the store.
    fn give_back(&self, context: &Context) -> Result<Exit> {
        if self.keys.is_some() || self.output == Path::new("-") {
            return Err(Failure::usage("expected --output with a new directory, and no --keys, for an array"));
        }
        let snapshot = self.database.verifying(!self.no_verify).open_database()?;
        Sources::of([self.database.path(), snapshot.shards_directory()]).refuse(&self.output)?;
        let _cleanup = context.interrupt.cleanup();
        let written = match self.format {
            Target::Bcolz => bcolz::export(&snapshot, &self.output, |_, _| go_on(context)),
            _ => zarr::export(&snapshot, &self.output, |_, _| go_on(context)),
        };
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
        context.say(format_args!("{} chunks in {}", grouped(chunks), self.output.display()));
        Ok(Exit::Done)
    }
}

fn read_keys(mut list: KeyList) -> Result<Vec<u64>> {
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

struct Export<'a> {
    context: &'a Context,
    output: Box<dyn Output>,
    errors: Errors,
}

impl Export<'_> {
    fn all(&mut self, snapshot: &Snapshot) -> Result<()> {
        // not `snapshot.iter()`, which would keep every shard open
        for shard in snapshot.shards() {
            match shard {
                Ok(shard) => self.all_of_shard(&shard)?,
                Err(error) => self.errors.tell(&error),
            }
        }
        Ok(())
    }

    fn all_of_shard(&mut self, shard: &Shard) -> Result<()> {
        for entry in shard.iter() {
            self.context.check_cancel()?;
            match entry {
                Ok(entry) => self.write(&entry)?,
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
        let mut absent = 0;
        for key in keys {
            self.context.check_cancel()?;
            match key.and_then(|key| Ok((key, get(key)?))) {
                Ok((key, Some(chunk))) => self.output.write(key, &[], &chunk)?,
                Ok((_, None)) => absent += 1,
                Err(error) => self.errors.tell(&error),
            }
        }
        self.note_absent(absent);
        Ok(())
    }

    fn note_absent(&mut self, absent: usize) {
        if absent > 0 {
            warn(format_args!("sharddb: {absent} of the keys are absent"));
            self.errors.note(Exit::Absent);
        }
    }

    /// Writes the pairs of the given keys. Opens only the shards of these keys.
    fn some(&mut self, snapshot: &Snapshot, wanted: Vec<u64>) -> Result<()> {
        let mut by_shard: BTreeMap<ShardNumber, Vec<u64>> = BTreeMap::new();
        for key in wanted {
            by_shard.entry(snapshot.spec().route(key).shard).or_default().push(key);
        }
        let mut absent = 0;
        for (number, mut keys) in by_shard {
            keys.sort_unstable();
            keys.dedup();
            absent += self.some_of_shard(snapshot, number, &keys)?;
        }
        self.note_absent(absent);
        Ok(())
    }

    /// Writes the pairs of `keys`, which are ascending, that the shard has; returns the number of absent ones.
    fn some_of_shard(&mut self, snapshot: &Snapshot, number: ShardNumber, keys: &[u64]) -> Result<usize> {
        let shard = match snapshot.shard(number) {
            Ok(Some(shard)) => shard,
            Ok(None) => return Ok(keys.len()),
            Err(error) => {
                self.errors.tell(&error);
                return Ok(0);
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
        Ok(met.iter().filter(|met| !**met).count())
    }

    fn write(&mut self, entry: &Entry) -> Result<()> {
        let both = entry.prefix().and_then(|prefix| entry.value().map(|value| (prefix, value)));
        match both {
            Ok((prefix, value)) => self.output.write(entry.key(), &prefix, &value),
            Err(error) => {
                self.errors.tell(&error);
                Ok(())
            }
        }
    }
}
