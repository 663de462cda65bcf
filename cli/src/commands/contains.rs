//! `contains`: whether a key is present.

use crate::database::Database;
use crate::exit::Exit;
use crate::failure::Result;
use crate::key::Key;

/// Report by the exit code whether a key is present: 0 yes, 1 no
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  sharddb contains numbers 2 && echo present

Reads indexes, never the value. An array or another container must be imported first: see
sharddb import --help.

Exit codes: 0 present, 1 absent, 2 usage, or an array or container instead of a database, 3 corrupt,
4 not found and other I/O.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// Decimal or 0x hex
    key: Key,
}

impl Args {
    pub(crate) fn run(&self) -> Result<Exit> {
        let found = self.database.open()?.contains(self.key.0)?;
        Ok(if found { Exit::Done } else { Exit::Absent })
    }
}
