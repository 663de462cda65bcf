//! `import`: the chunks of another format into a store, as they are.

use std::path::PathBuf;
use std::sync::Arc;

use sharddb::container::Form;
use sharddb::{BulkLoader, Encoding};

use crate::context::Context;
use crate::database::{Column, Opened, Opening};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::histogram::grouped;

/// Build a generation from the chunks of an array or another container, byte for byte, and publish it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb import volume.zarr store
  sharddb export store --format zarr --output again.zarr
  sharddb import trades prices --column price    of a bcolz table one column

The info of the store keeps what the source says of itself, so that export gives it back with every
byte of its chunks.")]
pub(crate) struct Args {
    /// The array or other container
    source: PathBuf,
    /// The store; made if there is none
    store: PathBuf,
    #[command(flatten)]
    column: Column,
    #[command(flatten)]
    opening: Opening,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let Opened::Container(source) = self.opening.open_any(&self.source, &self.column)? else {
            return Err(Failure::usage(format!(
                "expected an array or another container, found the database {}: use publish, or export and build",
                self.source.display()
            )));
        };
        let mut options = BulkLoader::options();
        options.data_encoding(Encoding::Raw).cancel(Arc::clone(context.interrupt.cancel()));
        if let Some((member, metadata)) = source.preserved() {
            options.info(format!("{{\"{member}\": {metadata}}}"));
        }
        let _cleanup = context.interrupt.cleanup();
        let mut loader = options.create(&self.store)?;
        for key in source.keys() {
            context.check_cancel()?;
            let key = key?;
            if let Some(encoded) = source.get(key, Form::Encoded)? {
                loader.insert(key, &encoded)?;
            }
        }
        let published = loader.finish()?;
        let (keys, generation) = (grouped(published.keys), published.generation);
        context.say(format_args!("{keys} chunks in {}, {generation}", self.store.display()));
        Ok(Exit::Done)
    }
}
