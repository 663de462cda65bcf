//! `generations`: lists the generations of a store.

use std::io::Write;
use std::path::PathBuf;

use crate::commands::open_store;
use crate::context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};

/// List the generations of a store, oldest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  sharddb generations numbers
  gen-0000000001
  gen-0000000002  current

An incomplete generation has no manifest: its build was killed or is still running.")]
pub(crate) struct Args {
    /// The store
    store: PathBuf,
}

impl Args {
    pub(crate) fn run(&self) -> Result<Exit> {
        let mut out = context::stdout();
        for generation in open_store(&self.store)?.generations()? {
            let current = if generation.is_current { "  current" } else { "" };
            let incomplete = if generation.is_complete { "" } else { "  incomplete" };
            writeln!(out, "{}{current}{incomplete}", generation.id).map_err(Failure::stdout)?;
        }
        context::flush(out)?;
        Ok(Exit::Done)
    }
}
