//! `locate`: prints where a key belongs and where its value is.

use std::io::Write;

use serde::Serialize;
use sharddb::container::Container;

use crate::context;
use crate::database::Database;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::position::KeyOrPosition;

/// Print as JSON where a key belongs and, if it is present, where its value is
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  sharddb locate numbers 2
  {\"key\":\"2\",\"hash\":\"0x...\",\"shard\":0,\"minishard\":1,\"file\":\"...\",\"offset\":56,\"stored_len\":3}

An absent key has no offset and no stored_len. An array or another container must be imported first:
see sharddb import --help.

Exit codes: 0 found, 1 absent, 2 usage, or an array or container instead of a database, 3 corrupt,
4 not found and other I/O.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    key: KeyOrPosition,
}

#[derive(Serialize)]
struct Report {
    key: String,
    hash: String,
    shard: u64,
    minishard: u64,
    file: String,
    #[serde(flatten)]
    stored: Option<Stored>,
}

#[derive(Serialize)]
struct Stored {
    offset: u64,
    stored_len: u64,
}

impl Args {
    pub(crate) fn run(&self) -> Result<Exit> {
        let snapshot = self.database.open()?;
        let key = self.key.resolve(|| Container::key_space(&snapshot))?;
        let spec = snapshot.spec();
        let place = spec.route(key);
        let found = snapshot.locate(key)?;
        let file = match &found {
            Some(location) => location.path().to_path_buf(),
            None => snapshot.shards_directory().join(spec.shard_file_name(place.shard)),
        };
        let report = Report {
            key: key.to_string(),
            hash: format!("{:#018x}", spec.hash(key)),
            shard: place.shard.0,
            minishard: place.minishard.0,
            file: file.display().to_string(),
            stored: found.as_ref().map(|location| Stored { offset: location.offset(), stored_len: location.len() }),
        };
        let mut out = context::stdout();
        serde_json::to_writer(&mut out, &report).map_err(|error| Failure::stdout(error.into()))?;
        out.write_all(b"\n").map_err(Failure::stdout)?;
        context::flush(out)?;
        Ok(if found.is_some() { Exit::Done } else { Exit::Absent })
    }
}
