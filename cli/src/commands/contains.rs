//! `contains`: whether a key is present.

use sharddb::container::Container;

use crate::database::Database;
use crate::exit::Exit;
use crate::failure::Result;
use crate::position::KeyOrPosition;

/// Report by the exit code whether a key is present: 0 yes, 1 no
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb contains numbers 2 && echo present
  sharddb contains volume --at 3,0,7 && echo present

Reads indexes, never the value. An array or another container must be imported first: see
sharddb import --help.

Exit codes: 0 present, 1 absent, 2 usage, or an array or container instead of a database, 3 corrupt,
4 not found and other I/O.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    key: KeyOrPosition,
}

impl Args {
    pub(crate) fn run(&self) -> Result<Exit> {
        let snapshot = self.database.open()?;
        let key = self.key.resolve(|| Container::key_space(&snapshot))?;
        let found = snapshot.contains(key)?;
        Ok(if found { Exit::Done } else { Exit::Absent })
    }
}
