//! `completions`: completion scripts for shells.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::commands::Cli;
use crate::context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};

/// Print the completion script of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb completions bash > ~/.local/share/bash-completion/completions/sharddb
  sharddb completions zsh > ~/.zfunc/_sharddb
  sharddb completions fish > ~/.config/fish/completions/sharddb.fish

`mkdir -p` makes the directories. The package for Debian has installed these scripts.")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

impl Args {
    pub(crate) fn run(&self) -> Result<Exit> {
        let mut script = Vec::new(); // the generator panics on write errors
        clap_complete::generate(self.shell, &mut Cli::command(), "sharddb", &mut script);
        let mut out = context::stdout();
        out.write_all(&script).map_err(Failure::stdout)?;
        context::flush(out)?;
        Ok(Exit::Done)
    }
}
