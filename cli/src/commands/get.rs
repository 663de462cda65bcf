//! `get`: writes the bytes of one value.

use std::io::Write;

use sharddb::Snapshot;
use sharddb::container::{Container, KeySpace};

use crate::chunks::Chunks;
use crate::context::{self, Context};
use crate::database::{AnyDatabase, Opened};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::key::Key;

/// Write the value of a key to standard output, and nothing else
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb get numbers 2
  sharddb get numbers 0x2 > value.bin
  sharddb get mesh 720575940 --prefix 18324      the fragments before a mesh manifest
  sharddb get volume --at 3,0,7                  a chunk by its position in the grid
  sharddb get volume.zarr 42 --decoded           the elements of a chunk of an array
  sharddb get trades 0 --column price --decoded  the first rows of a column of a bcolz table

Exit codes: 0 found (an empty value too), 1 absent.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: AnyDatabase,
    /// Decimal or 0x hex
    #[arg(required_unless_present = "at")]
    key: Option<Key>,
    /// The position of the key in the grid of chunks: x, y, z in a volume, otherwise the axes of the array
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', conflicts_with = "key")]
    at: Option<Vec<u64>>,
    /// Write the N bytes directly before the value instead of the value
    #[arg(long, value_name = "N")]
    prefix: Option<u64>,
    #[command(flatten)]
    chunks: Chunks,
    /// For an absent chunk of an array, write its fill value
    #[arg(long, requires = "decoded")]
    fill: bool,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        match self.database.open()? {
            Opened::Sharded(snapshot) => self.run_on_database(&snapshot, context),
            Opened::Container(container) => self.run_on_container(&*container, context),
        }
    }

    fn run_on_database(&self, snapshot: &Snapshot, context: &Context) -> Result<Exit> {
        let key = self.key(|| Container::key_space(snapshot))?;
        match self.prefix {
            Some(n) => write(snapshot.get_prefix(key, n)?, key, context),
            None => write(snapshot.get(key)?, key, context),
        }
    }

    fn run_on_container(&self, container: &dyn Container, context: &Context) -> Result<Exit> {
        if self.prefix.is_some() {
            return Err(Failure::usage("--prefix is for databases, found a container of another format"));
        }
        let key = self.key(|| container.key_space())?;
        match container.get(key, self.chunks.form())? {
            None if self.fill => write(container.fill_chunk(key)?, key, context),
            value => write(value, key, context),
        }
    }

    fn key(&self, space: impl FnOnce() -> KeySpace) -> Result<u64> {
        match (&self.at, self.key) {
            (Some(position), _) => Ok(space().key_at(position)?),
            (None, Some(key)) => Ok(key.0),
            (None, None) => Err(Failure::usage("expected a key, or a position with --at")),
        }
    }
}

fn write(value: Option<impl AsRef<[u8]>>, key: u64, context: &Context) -> Result<Exit> {
    let Some(value) = value else {
        context.say(format_args!("key {key} is absent"));
        return Ok(Exit::Absent);
    };
    let mut out = context::stdout();
    out.write_all(value.as_ref()).map_err(Failure::stdout)?;
    context::flush(out)?;
    Ok(Exit::Done)
}
