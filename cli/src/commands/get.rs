//! `get`: the bytes of one value.

use std::io::Write;

use crate::context::{self, Context};
use crate::database::Database;
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

Exit codes: 0 found (an empty value too), 1 absent.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// Decimal or 0x hex
    key: Key,
    /// Write the N bytes that lie directly before the value instead
    #[arg(long, value_name = "N")]
    prefix: Option<u64>,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let snapshot = self.database.open()?;
        let value = match self.prefix {
            Some(n) => snapshot.get_prefix(self.key.0, n)?,
            None => snapshot.get(self.key.0)?,
        };
        let Some(value) = value else {
            context.say(format_args!("key {} is not there", self.key.0));
            return Ok(Exit::Absent);
        };
        let mut out = context::stdout();
        out.write_all(&value).map_err(Failure::stdout)?;
        context::flush(out)?;
        Ok(Exit::Done)
    }
}
