//! `contains`: whether a key is present.

use sharddb_container::Container;

use crate::context::Context;
use crate::database::Database;
use crate::exit::Exit;
use crate::failure::Result;
use crate::position::KeyOrPosition;
use crate::remote::RemoteOpening;

/// Report by the exit code whether a key is present: 0 yes, 1 no
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb contains numbers 2 && echo present
  sharddb contains volume --at 3,0,7 && echo present
  sharddb contains s3://bucket/numbers 2 -v

Reads indexes, never the value. An array or another container must be imported first: see
sharddb import --help.

Exit codes: 0 present, 1 absent, 2 usage, or an array or container instead of a database, 3 corrupt,
4 not found and other I/O.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    at_url: RemoteOpening,
    #[command(flatten)]
    key: KeyOrPosition,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let found = match self.database.open_remote(&self.at_url, context)? {
            Some(remote) => {
                let key = self.key.resolve(|| remote.key_space())?;
                remote.run("contains", remote.reader().contains(key))?
            }
            None => self.find()?,
        };
        Ok(if found { Exit::Done } else { Exit::Absent })
    }

    fn find(&self) -> Result<bool> {
        let snapshot = self.database.open()?;
        let key = self.key.resolve(|| Container::key_space(&snapshot))?;
        Ok(snapshot.contains(key)?)
    }
}
