//! `pull`: copies a generation from an object store into a local store.

use std::path::PathBuf;

use crate::allow_empty::AllowEmpty;
use crate::commands::at_url;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::remote::Call;
use crate::remote::url::{path_or_url, refuse_url};

/// Copy a generation from an object store into a local store, and publish it there
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb pull s3://bucket/numbers numbers
  sharddb pull https://data.example.org/numbers numbers
  sharddb pull s3://bucket/numbers numbers --generation gen-0000000002-9f..

Only shards that no local generation has are downloaded, by their checksums. Everything is compared
with the manifest before readers of the local store see it. A pull that was interrupted is continued
by the next one of the same generation. If the current local generation has the same manifest and
its shards are there, nothing is pulled, and their bytes are not compared: sharddb verify does that.

With --json, the members are \"generation\" (of the local store), \"pulled\" (its name in the
bucket), \"is_new\" (false if it was current already), \"downloaded\", \"bytes\", \"resumed\" and \"shared\"
(numbers of objects). With -v, the numbers of requests, of bytes sent and received and of skipped
objects (resumed and shared) are reported.

Exit codes: 0 the generation is current, 2 no store, 3 an object is missing or damaged, or no key is
left, 4 not found, no permission, no space, or another writer is at work.")]
pub(crate) struct Args {
    /// The store in a bucket or on a web server
    #[arg(value_name = "URL", value_parser = path_or_url())]
    url: PathBuf,
    /// The local store; created if there is none
    store: PathBuf,
    /// The generation, by its name in the bucket. Default: the current one
    #[arg(long, value_name = "NAME")]
    generation: Option<String>,
    #[command(flatten)]
    allow_empty: AllowEmpty,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        refuse_url(&self.store)?;
        let call = Call { context, json: self.json };
        at_url(&self.url)?.pull(&self.store, self.generation.as_deref(), self.allow_empty, call)
    }
}
