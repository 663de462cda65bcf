//! `export`: the pairs out again, in a format that `build` reads.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sharddb::{Entry, Shard, ShardNumber, Snapshot};

use crate::commands::get_many;
use crate::context::{Context, Errors, warn};
use crate::database::Database;
use crate::exit::Exit;
use crate::failure::Result;
use crate::input::Format;
use crate::key::KeyList;
use crate::output::{self, Output};

/// Write the pairs out again, in a format that build reads
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb export numbers --format ndjson
  sharddb export numbers --format dir --output numbers.d
  sharddb export numbers --format bin --keys some.txt | ssh host sharddb build some --input - --format bin

Pairs come in storage order. Bytes that belong before a value are exported too: dir writes them to
a file 7 beside 7.index, bin cannot hold them and says so. build of an export, with the same options
and --info, gives the same bytes.

A bad entry is told on standard error, and the rest goes on; the exit code is 3 then. With --keys it is
1 if some were absent.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// How the pairs are written
    #[arg(long, value_enum)]
    format: Format,
    /// A file, for dir a new directory; - is standard output
    #[arg(long, short, value_name = "PATH|-", default_value = "-")]
    output: PathBuf,
    /// Only these keys, one a line, decimal or 0x hex; - is standard input
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let snapshot = self.database.open()?;
        let wanted = match &self.keys {
            Some(path) => Some(read_keys(KeyList::new(get_many::open_list(path, context)?))?),
            None => None,
        };
        let _cleanup = context.interrupt.cleanup(); // until a partial output is removed or has its name
        let mut export = Export { context, output: output::open(&self.output, self.format)?, errors: Errors::new() };
        match wanted {
            Some(wanted) => export.some(&snapshot, wanted)?,
            None => export.all(&snapshot)?,
        }
        export.output.finish()?;
        Ok(export.errors.exit())
    }
}

fn read_keys(mut list: KeyList) -> Result<Vec<u64>> {
    let mut keys = Vec::new();
    loop {
        let batch = list.next_batch()?;
        if batch.is_empty() {
            return Ok(keys);
        }
        keys.extend(batch);
    }
}

struct Export<'a> {
    context: &'a Context,
    output: Box<dyn Output>,
    errors: Errors,
}

impl Export<'_> {
    fn all(&mut self, snapshot: &Snapshot) -> Result<()> {
        // not `snapshot.iter()`: that would keep every shard open
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

    /// Goes through the shards of these keys only.
    fn some(&mut self, snapshot: &Snapshot, wanted: Vec<u64>) -> Result<()> {
        let mut by_shard: BTreeMap<ShardNumber, Vec<u64>> = BTreeMap::new();
        for key in wanted {
            by_shard.entry(snapshot.spec().locate(key).shard).or_default().push(key);
        }
        let mut absent = 0;
        for (number, mut keys) in by_shard {
            keys.sort_unstable();
            keys.dedup();
            absent += self.some_of_shard(snapshot, number, &keys)?;
        }
        if absent > 0 {
            warn(format_args!("sharddb: {absent} of the keys are not there"));
            self.errors.note(Exit::Absent);
        }
        Ok(())
    }

    /// Writes those of `keys`, ascending, that the shard has; the number of those that it has not.
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
            // what a lookup finds: at its place, and the first of its id
            let misplaced = entry.location() != snapshot.spec().locate(entry.key());
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
