//! `reshard`: makes a store of the data of a database under another specification, encoding or profile.

use std::path::PathBuf;
use std::time::Instant;

use crate::commands::import::tell_about_info;
use crate::commands::new_store::{NewStore, refuse_inside, suggest_salvage};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::remote::url::local_path;

/// Make a store of the same data under another specification, encoding or profile
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb reshard numbers remote --profile remote
  sharddb reshard skeletons small --data-encoding gzip           only the values differ
  sharddb reshard numbers live --max-shard-bytes 4MiB            for cheap updates
  sharddb reshard precomputed/skeletons store --sharding sharding.json
  sharddb reshard numbers numbers --profile local --keep 1       in place: a new generation
  sharddb reshard numbers numbers --ordered                      adds a key file, for fast ranges

DB is not changed; OUT may be the same store, whose new generation is then the resharded one. Keys,
values and preambles stay, and so do the other members of the info. Without --sharding, --profile
and --max-shard-bytes the specification stays too, with the encodings that are stated.

If only bits of the specification become fewer, pairs are merged as they are read; otherwise they
are sorted, within --memory. Values are decoded only if their encoding changes.

With --json, the members are \"generation\", \"keys\", \"keys_before\" (null if there was no generation),
\"duplicates_dropped\", \"value_bytes\", \"shards\", \"file_bytes\" and \"seconds\".

Exit codes: 0 published, 2 usage, 3 corrupt, or no keys where OUT has some, 4 not found, no space,
or another writer is at work.")]
pub(crate) struct Args {
    /// A store, one of its generations, or any directory of shards
    #[arg(value_parser = local_path())]
    db: PathBuf,
    /// The store; created if there is none
    #[arg(value_parser = local_path())]
    out: PathBuf,
    #[command(flatten)]
    new: NewStore,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let begun = Instant::now();
        let given = self.new.opening.spec()?;
        if given.is_none() && !self.new.is_planned() && !self.new.has_change() {
            return Err(Failure::usage(
                "expected what to change: --sharding, --profile, --max-shard-bytes, --data-encoding, --index-encoding or --ordered; \
                 sharddb import copies a database as it is",
            ));
        }
        let source = self.new.opening.open(&self.db)?;
        refuse_inside(&self.out, &self.db, &source)?;
        let mut options = self.new.options(context)?;
        tell_about_info(&source, context);
        options.like(&source)?;
        if given.is_none() && !self.new.is_planned() {
            self.new.fix_spec(&mut options, *source.spec());
            options.allow_sparse(true); // as the source is
        }
        let cleanup = context.interrupt.publishing();
        let sources = [source];
        let merged = self.new.merge(&self.out, options, &sources, context);
        let published = merged.map_err(|failure| suggest_salvage(failure, &self.db))?;
        cleanup.done();
        drop(sources); // so that --keep can remove its generation
        self.new.conclude(&published, begun, &self.out, context)
    }
}
