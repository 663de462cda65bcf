//! `man`: manual pages.

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;

use crate::commands::Cli;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::number::plural;

/// Write the manual pages, one per subcommand
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb man ~/.local/share/man/man1 && man sharddb-build
  sharddb man /usr/local/share/man/man1

The pages are sharddb.1, sharddb-build.1, sharddb-zarr-pack.1 and so on. Files of these names are
replaced.

Exit codes: 0 written, 4 no space and other I/O.")]
pub(crate) struct Args {
    /// The directory for the pages; created if there is none
    dir: PathBuf,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        fs::create_dir_all(&self.dir).map_err(|error| Failure::io("create", &self.dir, error))?;
        let mut sharddb = Cli::command().disable_help_subcommand(true);
        sharddb.build();
        let pages = write_pages(sharddb, &self.dir)?;
        context.say(format_args!("{} in {}", plural(pages, "page"), self.dir.display()));
        Ok(Exit::Done)
    }
}

/// Writes the pages of a command and of all below it; returns their number.
fn write_pages(command: clap::Command, dir: &Path) -> Result<u64> {
    let mut pages = 1;
    for below in command.get_subcommands() {
        pages += write_pages(below.clone(), dir)?;
    }
    let man = clap_mangen::Man::new(command).source(concat!("sharddb ", env!("CARGO_PKG_VERSION")));
    let path = dir.join(man.get_filename());
    let mut page = Vec::new();
    let written = man.render(&mut page).and_then(|()| fs::write(&path, with_lines(&String::from_utf8_lossy(&page))));
    written.map_err(|error| Failure::io("write", &path, error))?;
    Ok(pages)
}

/// A page whose examples and tables keep their lines, as in the help.
fn with_lines(page: &str) -> String {
    let Some((before, extra)) = page.split_once(".SH EXTRA\n") else { return page.to_string() };
    let (extra, after) = extra.split_at(extra.find("\n.SH ").unwrap_or(extra.len()));
    format!("{before}.SH \"EXAMPLES AND NOTES\"\n.nf\n{extra}\n.fi\n{}", after.trim_start())
}
