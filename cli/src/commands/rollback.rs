//! `rollback`: an older generation becomes the current one again.

use std::path::PathBuf;

use sharddb::GenerationId;

use crate::commands::open_store;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;

/// Make another generation current: the one before, or the one named
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb rollback numbers
  sharddb rollback numbers gen-0000000001
  sharddb rollback numbers 3                     forward works too

Readers that follow the store see the change at once; nothing is deleted.")]
pub(crate) struct Args {
    /// The store
    store: PathBuf,
    /// gen-0000000003, or just 3
    #[arg(value_parser = parse_generation)]
    generation: Option<GenerationId>,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let id = open_store(&self.store)?.writer()?.rollback(self.generation)?;
        context.say(format_args!("{id} is current"));
        Ok(Exit::Done)
    }
}

fn parse_generation(text: &str) -> Result<GenerationId, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let id = match text.parse::<u64>() {
        Ok(number) if digits => GenerationId::new(number),
        _ => text.parse(),
    };
    id.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_named_or_numbered() {
        for text in ["3", "0000000003", "gen-0000000003"] {
            assert_eq!(parse_generation(text).map(GenerationId::get), Ok(3), "{text}");
        }
        for text in ["", "-3", "+3", "gen-3", "gen-0000000003/", "99999999999", "current"] {
            assert!(parse_generation(text).is_err(), "{text}");
        }
    }
}
