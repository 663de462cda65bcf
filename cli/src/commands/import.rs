//! `import`: copies the chunks of another format into a store, unchanged.

use std::path::PathBuf;
use std::sync::Arc;

use sharddb::container::{Container, Form};
use sharddb::spec::Encoding;
use sharddb::{BulkLoader, Value};

use crate::allow_empty::AllowEmpty;
use crate::chunks::get_verified;
use crate::context::Context;
use crate::database::{Column, Opened, Opening, by_reading};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::histogram::grouped;
use crate::output::Sources;

/// Build a generation from the chunks of an array or another container, byte for byte, and publish it
#[derive(Debug, clap::Args)]
#[command(mut_arg("storage", by_reading))]
#[command(after_help = "\
Examples:
  sharddb import volume.zarr store
  sharddb export store --format zarr --output again.zarr
  sharddb import trades prices --column price    one column of a bcolz table

The info of the store keeps the metadata of the source, so that export restores it with every byte
of its chunks. Each chunk is decoded first, so a damaged one is an error. A chunk in a codec that is
not supported is copied without this check; with --no-verify, all are.

Exit codes: 0 published, 2 usage, 3 a corrupt chunk, or no chunk where the store has some, 4 not
found, no space, or another writer is at work.")]
pub(crate) struct Args {
    /// The array or another container
    source: PathBuf,
    /// The store; created if there is none
    store: PathBuf,
    /// Do not decode the chunks
    #[arg(long)]
    no_verify: bool,
    #[command(flatten)]
    allow_empty: AllowEmpty,
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
        Sources::of([&self.source]).refuse(&self.store)?;
        let mut options = BulkLoader::options();
        options.data_encoding(Encoding::Raw).cancel(Arc::clone(context.interrupt.cancel()));
        if let Some((member, metadata)) = source.preserved() {
            // the null is for metadata with a member "sharding": the loader refuses an info that has only a nested one
            options.info(format!("{{\"{member}\": {metadata}, \"sharding\": null}}"));
        }
        let _cleanup = context.interrupt.cleanup();
        let mut loader = options.create(&self.store)?;
        let mut chunks = 0;
        for key in source.keys() {
            context.check_cancel()?;
            let key = key?;
            if let Some(encoded) = self.chunk(&*source, key)? {
                loader.insert(key, &encoded)?;
                chunks += 1;
            }
        }
        self.allow_empty.check(chunks, &self.source.display().to_string(), &self.store)?;
        let published = loader.finish()?;
        let (keys, generation) = (grouped(published.keys), published.generation);
        context.say(format_args!("{keys} chunks in {}, {generation}", self.store.display()));
        Ok(Exit::Done)
    }

    fn chunk<'a>(&self, source: &'a dyn Container, key: u64) -> sharddb::Result<Option<Value<'a>>> {
        match self.no_verify {
            true => source.get(key, Form::Encoded),
            false => get_verified(source, key, Form::Encoded),
        }
    }
}
