//! `locate`: prints where a key belongs and where its value is.

use serde::Serialize;
use sharddb::ShardingSpec;
use sharddb_container::Container;

use crate::commands::write_json;
use crate::context::Context;
use crate::database::Database;
use crate::exit::Exit;
use crate::failure::Result;
use crate::position::KeyOrPosition;
use crate::remote::{RemoteDatabase, RemoteOpening};

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
    at_url: RemoteOpening,
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
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let report = match self.database.open_remote(&self.at_url, context)? {
            Some(remote) => self.locate_remote(&remote)?,
            None => self.locate()?,
        };
        write_json(&report)?;
        Ok(if report.stored.is_some() { Exit::Done } else { Exit::Absent })
    }

    fn locate_remote(&self, remote: &RemoteDatabase) -> Result<Report> {
        let key = self.key.resolve(|| remote.key_space())?;
        let found = remote.run("locate", remote.reader().locate(key))?;
        let snapshot = remote.reader().snapshot();
        let spec = snapshot.spec();
        let file = match &found {
            Some(location) => remote.object_url(&location.object),
            None => remote.shard_url(&snapshot, &spec.shard_file_name(spec.route(key).shard)),
        };
        let stored = found.map(|it| Stored { offset: it.range.start, stored_len: it.range.end - it.range.start });
        Ok(Report::new(spec, key, file, stored))
    }

    fn locate(&self) -> Result<Report> {
        let snapshot = self.database.open()?;
        let key = self.key.resolve(|| Container::key_space(&snapshot))?;
        let spec = snapshot.spec();
        let place = spec.route(key);
        let found = snapshot.locate(key)?;
        let file = match &found {
            Some(location) => location.path.clone(),
            None => snapshot.shards_directory().join(spec.shard_file_name(place.shard)),
        };
        let stored =
            found.as_ref().map(|location| Stored { offset: location.range.start, stored_len: location.stored_len() });
        Ok(Report::new(spec, key, file.display().to_string(), stored))
    }
}

impl Report {
    fn new(spec: &ShardingSpec, key: u64, file: String, stored: Option<Stored>) -> Report {
        let place = spec.route(key);
        Report {
            key: key.to_string(),
            hash: format!("{:#018x}", spec.hash(key)),
            shard: place.shard.get(),
            minishard: place.minishard.get(),
            file,
            stored,
        }
    }
}
