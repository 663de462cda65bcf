//! `put`: puts one pair into a store.

use std::io::Read;
use std::path::PathBuf;

use sharddb::write::UpdateOptions;
use sharddb_container::Container;

use crate::commands::stages::status_of;
use crate::commands::update::{After, Update};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::input::{Reading, Stream};
use crate::position::KeyOrPosition;
use crate::progress::Display;
use crate::remote::url::local_path;
use crate::size::Size;

/// Put one pair into a store: add the key, or replace its value, and publish the result
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb put numbers 3 < three.bin
  sharddb put numbers 3 --value three
  sharddb put volume --at 3,0,7 < chunk          a chunk by its position in the grid

The value is standard input to its end, byte for byte; an empty one is a value too. The key has no
preamble then. The shard of the key is written again, and the others are linked, as by sharddb
update, which puts many pairs at once, and values of more than 1 GiB.

With --json, the members are those of sharddb update.

Exit codes: 0 published, 2 usage, 3 corrupt, 4 not found, no space, or another writer is at work.")]
pub(crate) struct Args {
    /// The store
    #[arg(value_parser = local_path())]
    store: PathBuf,
    #[command(flatten)]
    key: KeyOrPosition,
    /// The value, as text. Default: standard input
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    value: Option<String>,
    #[command(flatten)]
    after: After,
}

/// The most bytes of a value, which is held in memory.
const LARGEST: Size = Size(1 << 30);

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let build = context.interrupt.progress();
        let mut options = UpdateOptions::new();
        options.progress(&build);
        let mut update = Update::begin(&self.store, None, options, context)?;
        let key = self.key.resolve(|| Container::key_space(update.updater.base()))?;
        let value = match &self.value {
            Some(text) => text.clone().into_bytes(),
            None => read_value(context)?,
        };
        let progress = Display::start(context.quiet, move || status_of(&build));
        update.updater.put(key, value)?;
        update.finish(progress)?.conclude(self.after, 0, context)
    }
}

/// Reads standard input to its end.
fn read_value(context: &Context) -> Result<Vec<u8>> {
    let mut stream = Stream::stdin(&Reading::of_list(context))?;
    let mut value = Vec::new();
    let read = (&mut stream).take(LARGEST.0 + 1).read_to_end(&mut value);
    read.map_err(|error| stream.failure(error))?;
    if value.len() as u64 > LARGEST.0 {
        Err(Failure::usage(format!(
            "expected a value of at most {LARGEST} on standard input, found a longer one: write it to the file DIR/KEY, \
             then run sharddb update STORE --input DIR"
        )))
    } else {
        Ok(value)
    }
}
