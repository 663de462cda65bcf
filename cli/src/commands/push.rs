//! `push`: publishes a local generation to an object store.

use std::path::PathBuf;

use crate::allow_empty::AllowEmpty;
use crate::commands::at_url;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::remote::Call;
use crate::remote::url::{path_or_url, refuse_url};

/// Publish the current generation of a store to an object store
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb push numbers s3://bucket/numbers
  sharddb push numbers/gen-0000000003 gs://bucket/numbers
  sharddb push numbers az://container/numbers --json | jq -r .layer

Copies the files of the generation under a name of its own, then replaces the object `current`, so
readers see the old generation or the new one, never a mixture. A push that was interrupted is
continued by the next one of the same generation, unless another program has replaced an object. Of
two publishers at once one loses, with exit code 4. The object store must support conditional
writes; others are refused.

Prints the layer source of the new generation for Neuroglancer. With --json, the members are
\"generation\", \"published\" (null if nothing changed), \"keys\", \"keys_before\", \"objects\", \"bytes\",
\"skipped\" (objects that were there) and \"layer\". A push of the generation that is current at the URL
publishes nothing: its objects are counted, and sharddb verify compares their bytes.
With -v, the numbers of requests, of bytes sent and received and of skipped objects are reported.

Credentials come from the environment and the usual files: AWS_ACCESS_KEY_ID, AWS_PROFILE,
AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME and so on.

Exit codes: 0 published, 2 no store, or a URL that cannot be published to, 3 corrupt, no key is
left, or an object store without conditional writes, 4 not found, no permission, or another
publisher was first.")]
pub(crate) struct Args {
    /// A store, or one of its generations
    store: PathBuf,
    /// Where the store is in the bucket: s3://, gs:// or az://
    #[arg(value_name = "URL", value_parser = path_or_url())]
    url: PathBuf,
    #[command(flatten)]
    allow_empty: AllowEmpty,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        refuse_url(&self.store)?;
        at_url(&self.url)?.push(&self.store, self.allow_empty, Call { context, json: self.json })
    }
}
