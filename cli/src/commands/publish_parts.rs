//! `publish-parts`: publishes a generation of all parts of a partitioned build.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use sharddb::cluster::{SpillSet, job_directory};
use sharddb::{BuildOptions, Store};

use crate::allow_empty::AllowEmpty;
use crate::commands::build::{set_resources, summary, to_json};
use crate::commands::stages::status_of;
use crate::commands::write_json;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::progress::Display;
use crate::receipts;
use crate::remote::url::path_or_url;
use crate::remote::{Call, RemoteStore};
use crate::size::{Size, parse_memory};

/// Build in parts, step 3: publish a generation of all parts
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  sharddb publish-parts store night --plan plan.json --spills spills/* --parts parts/*

Needs one receipt of each part, and the receipts of the tasks that the parts were built of. The
shards become hard links, and then the files that the receipts name are removed. Readers see the old
generation or the new one. The receipts are checked, and the length and the checksum of the index of
every shard; sharddb verify checks everything. At a URL the server copies the shards, --ordered is
not supported, and the fragments of meshes are not looked for: pull the generation and verify it.

The same command with the same receipts again changes nothing, also after another build, and also if
the first run was killed; it says if another generation is current by then. If the first run was
killed and a rollback without a number left its generation, the exit code is 5, and it does not
become current again. A job that runs again from sharddb spill on has other receipts, and its
generation becomes current. After sharddb clean-parts the command fails.

With --json, the members are \"generation\", \"current\", \"keys\", \"keys_before\" (null if there was no
generation, or at a URL if an earlier run published), \"duplicates_dropped\", \"value_bytes\",
\"shards\" and \"file_bytes\". See sharddb spill --help for all steps.

Exit codes: 0 published, 2 usage, or receipts that are incomplete or do not belong together, 3
malformed, corrupt or without a pair, 4 a lost file, no space, or another writer is at work, 5 the
generation of an earlier run was rolled back or replaced.")]
pub(crate) struct Args {
    /// The store, a path or a URL; created if there is none
    #[arg(value_parser = path_or_url())]
    store: PathBuf,
    /// The name of the build
    job: String,
    /// The plan, as plan --parts printed it
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,
    /// The receipts of all tasks, one per line; - is standard input
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    spills: Vec<PathBuf>,
    /// The receipts of all parts, one per line
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    parts: Vec<PathBuf>,
    /// Where the tasks wrote their files. Default: the directory of the job
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// An info whose other members are kept
    #[arg(long, value_name = "FILE")]
    info: Option<PathBuf>,
    /// Where the info describes the pairs: the JSON pointer of an object with a "key", such as a scale of a volume.
    /// Default: the top level
    #[arg(long, value_name = "POINTER", requires = "info")]
    sharding_at: Option<String>,
    /// Write a key file: all keys sorted, for fast ranges under any hash
    #[arg(long)]
    ordered: bool,
    /// The memory for sorting the keys, at least 16 MiB. Default: a quarter of what the process may use, at most
    /// 4 GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, requires = "ordered")]
    memory: Option<Size>,
    /// Where to spill keys that do not fit into memory. Default: the store
    #[arg(long, value_name = "DIR", requires = "ordered")]
    temp_dir: Option<PathBuf>,
    #[command(flatten)]
    allow_empty: AllowEmpty,
    /// Print one JSON object: what was published
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let begun = Instant::now();
        let plan = receipts::plan(&self.plan)?;
        let job = job_directory(&self.store, &self.job)?;
        let remote = RemoteStore::open(&self.store)?;
        if remote.is_some() && self.dir.is_some() {
            return Err(Failure::usage("--dir is for local stores: the spills of a store at a URL are next to it"));
        }
        let (spills, parts) = (receipts::read(&self.spills)?, receipts::read(&self.parts)?);
        let mut options = self.options()?;
        let build = context.interrupt.progress();
        options.progress(&build);
        let cleanup = context.interrupt.publishing(); // until the temporary files are removed
        let progress = Display::start(context.quiet, move || status_of(&build));
        if let Some(remote) = remote {
            let call = Call { context, json: self.json };
            return remote.publish_parts(&self.job, &plan, (spills, parts), &options, call);
        }
        let spills = SpillSet::new(&plan, self.dir.as_ref().unwrap_or(&job), spills)?;
        let published = spills.publish(&self.store, &self.job, parts, &options)?;
        cleanup.done();
        drop(progress);
        let (generation, current) = (published.generation.to_string(), Store::open(&self.store)?.current()?);
        let current = current.map(|current| current.to_string());
        if current.as_ref() == Some(&generation) {
            context.say(summary("published", &published, begun))
        } else {
            receipts::say_not_current(&generation, current.as_deref())
        }
        if self.json {
            let mut json = to_json(&published);
            json["current"] = current.into();
            write_json(&json)?;
        }
        Ok(Exit::Done)
    }

    fn options(&self) -> Result<BuildOptions> {
        let mut options = BuildOptions::new();
        options.ordered(self.ordered).allow_empty(self.allow_empty.allow_empty);
        set_resources(&mut options, self.memory, self.temp_dir.as_deref(), None);
        if let Some(path) = &self.info {
            options.info(fs::read_to_string(path).map_err(|error| Failure::io("read", path, error))?);
        }
        if let Some(pointer) = &self.sharding_at {
            options.sharding_at(pointer);
        }
        Ok(options)
    }
}
