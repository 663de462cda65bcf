//! `build-part`: writes the shards of one part of a partitioned build.

use std::num::NonZero;
use std::path::PathBuf;

use sharddb::BuildOptions;
use sharddb::cluster::{SpillSet, job_directory};
use sharddb::spec::ValueAlignment;

use crate::commands::build::{Duplicates, alignments, set_resources};
use crate::commands::stages::status_of;
use crate::commands::write_line;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::number::plural;
use crate::progress::Display;
use crate::receipts;
use crate::remote::RemoteStore;
use crate::remote::url::path_or_url;
use crate::size::{Size, parse_memory};

/// Build in parts, step 2: write the shards of one part
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: part 3 of the pairs of all tasks
  sharddb build-part store night --plan plan.json --spills spills/* --part 3 > parts/3

All parts need the same receipts of the tasks, one per task, and the same options, which decide the
bytes: --on-duplicate, --no-checks, --value-alignment. Of the pairs of a key, the first is the one
of the task with the lowest number. Opens at most 64 files and reads the sections of its part alone.

Standard output is the receipt: one line of JSON, which names the directory of the shards. A part
that is killed, repeated or run twice at once does no harm. See sharddb spill --help for all steps.

Exit codes: 0 written, 2 usage, or receipts that do not belong together, 3 malformed, corrupt, or a
duplicate key, 4 a lost file, no space and other I/O.")]
pub(crate) struct Args {
    /// The store, a path or a URL; it need not exist yet
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
    /// The number of the part, from 0
    #[arg(long, value_name = "N")]
    part: u64,
    /// Where the tasks wrote their files. Default: the directory of the job
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// What to do with a duplicate key
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Duplicates::Error)]
    on_duplicate: Duplicates,
    /// Write no checksums of indexes and values
    #[arg(long)]
    no_checks: bool,
    /// Align values in their file to multiples of this number
    #[arg(long, value_name = "N", default_value = "1", value_parser = alignments())]
    value_alignment: ValueAlignment,
    /// The memory to use, at least 16 MiB. Default: a quarter of what the process may use, at most 4 GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<Size>,
    /// Where to spill pairs that do not fit into memory: a local disk. Default: the directory of the job. At a URL: also
    /// for the shards; default: the temporary directory
    #[arg(long, value_name = "DIR")]
    temp_dir: Option<PathBuf>,
    /// Number of threads, of which at most 6 are used. Default: one per processor
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<NonZero<usize>>,
    /// Build even if the shard indexes take more bytes than the data (and more than 64 MiB)
    #[arg(long)]
    force: bool,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let plan = receipts::plan(&self.plan)?;
        let job = job_directory(&self.store, &self.job)?;
        let remote = RemoteStore::open(&self.store)?;
        if remote.is_some() && self.dir.is_some() {
            return Err(Failure::usage("--dir is for local stores: the spills of a store at a URL are next to it"));
        }
        let spills = receipts::read(&self.spills)?;
        let mut options = self.options();
        let build = context.interrupt.progress();
        options.progress(&build);
        let cleanup = context.interrupt.writing();
        let progress = Display::start(context.quiet, move || status_of(&build));
        let receipt = match &remote {
            Some(remote) => remote.build_part(&self.job, &plan, spills, self.part, &options, context)?,
            None => {
                let spills = SpillSet::new(&plan, self.dir.as_ref().unwrap_or(&job), spills)?;
                spills.build_part(self.part, &job, &options)?
            }
        };
        cleanup.done();
        drop(progress);
        write_line(&receipt)?;
        let dropped = match receipt.dropped() {
            0 => String::new(),
            dropped => format!(", {} dropped", plural(dropped, "duplicate")),
        };
        context.say(format_args!(
            "part {}: {}{dropped}, {} in {}",
            receipt.part(),
            plural(receipt.keys(), "key"),
            plural(receipt.shards(), "shard"),
            Size(receipt.file_bytes()),
        ));
        Ok(Exit::Done)
    }

    fn options(&self) -> BuildOptions {
        let mut options = BuildOptions::new();
        options.allow_sparse(self.force).on_duplicate(self.on_duplicate.policy());
        options.checks(!self.no_checks).value_alignment(self.value_alignment);
        set_resources(&mut options, self.memory, self.temp_dir.as_deref(), self.threads);
        options
    }
}
