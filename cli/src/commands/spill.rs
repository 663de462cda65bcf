//! `spill`: reads the pairs of one task of a partitioned build, and writes them divided by part.

use std::path::PathBuf;

use sharddb::BuildOptions;
use sharddb::cluster::{SpillWriter, job_directory};

use crate::commands::build::{InputOptions, temporary_store};
use crate::commands::stages::{Stages, reading_inputs};
use crate::commands::write_line;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::input::{self, Input};
use crate::number::plural;
use crate::output::Sources;
use crate::receipts;
use crate::remote::RemoteStore;
use crate::remote::url::path_or_url;
use crate::scratch::Scratch;
use crate::size::Size;

/// Build in parts, step 1: divide the pairs of one task by part
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "sharddb spill [OPTIONS] <STORE> <JOB> --plan <FILE> --task <N> --input <PATH>...",
    after_help = "\
A build in parts runs as many processes, on hosts that share a file system or an object store. Its
result has the bytes of a single build. JOB is any name; the files are in STORE/parts-JOB, and STORE
may be a URL such as s3://bucket/store for all four steps.

  plan           once        number of parts -> the plan
  spill          per task    pairs of the task -> one file, divided by part; a receipt
  build-part     per part    receipts of all tasks -> shards; a receipt
  publish-parts  once        receipts of all parts -> a generation, which becomes current
  clean-parts    at the end  removes what failed attempts left

Example: 1,000 input files on Slurm, 64 parts. Arrays begin with 0, like tasks and parts.
  sharddb plan --keys 2e9 --bytes 300GB --parts 64 > plan.json
  mkdir spills parts
  sbatch --array=0-999 --wait --wrap 'n=$SLURM_ARRAY_TASK_ID;
    sharddb spill store night --plan plan.json --task $n --input chunks/$n.bin > spills/$n'
  sbatch --array=0-63 --wait --wrap 'n=$SLURM_ARRAY_TASK_ID;
    sharddb build-part store night --plan plan.json --spills spills/* --part $n > parts/$n'
  sharddb publish-parts store night --plan plan.json --spills spills/* --parts parts/*
  sharddb clean-parts store

Standard output is the receipt: one line of JSON, which names the file by a digest of its content,
with random bytes: the name of a build may be used again, also with the same input. Keep one receipt
per task. A task that is killed, repeated or run twice at once does no harm: a file gets its name
when it is complete, and only the file of the receipt counts. Its pairs stay in the order of the
inputs, and the tasks in the order of their numbers: --on-duplicate of build-part refers to that.

Inputs are described by sharddb build --help. A task may have no pairs.

Exit codes: 0 written, 2 usage, 3 malformed, 4 not found, no space and other I/O."
)]
pub(crate) struct Args {
    /// The store, a path or a URL; it need not exist yet
    #[arg(value_parser = path_or_url())]
    store: PathBuf,
    /// The name of the build: letters, digits, ".", "_" and "-"
    job: String,
    /// The plan, as plan --parts printed it
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,
    /// The number of this task: any, but another for each task
    #[arg(long, value_name = "N")]
    task: u64,
    /// The inputs, as PATH or FORMAT:PATH; - is standard input
    #[arg(long, value_name = "PATH", num_args = 1.., required = true)]
    input: Vec<PathBuf>,
    #[command(flatten)]
    inputs: InputOptions,
    /// Where to write the file, which must be seen by all hosts. Default: the directory of the job. At a URL: where to
    /// write it before it is uploaded; default: the temporary directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let plan = receipts::plan(&self.plan)?;
        let remote = RemoteStore::open(&self.store)?;
        let job = job_directory(&self.store, &self.job)?;
        let inputs = self.inputs.resolve(&self.input)?;
        let temporary = remote.as_ref().map(|_| temporary_store(self.dir.as_deref())).transpose()?;
        let directory = temporary.as_ref().map_or(self.dir.as_ref().unwrap_or(&job).as_path(), Scratch::path);
        Sources::of(inputs.iter().filter_map(Input::directory)).refuse(directory)?;
        let cleanup = context.interrupt.writing();
        let reading = self.inputs.reading(context);
        let stages = Stages::new(context);
        let mut options = BuildOptions::new();
        options.progress(&stages.build);
        if let Some(memory) = self.inputs.memory {
            options.memory(memory.0);
        }
        let progress = stages.show(context.quiet, reading_inputs(&reading.progress));
        let mut spill = SpillWriter::create(directory, &plan, self.task, &options)?;
        let skipped = input::read_all(&inputs, &reading, &mut spill)?;
        let receipt = spill.finish()?;
        remote.map_or(Ok(()), |remote| remote.put_spill(&self.job, directory, &receipt, &options, context))?;
        drop(temporary);
        cleanup.done();
        drop(progress);
        write_line(&receipt)?;
        context.say(format_args!(
            "task {}: {} in {}",
            receipt.task(),
            plural(receipt.pairs(), "pair"),
            Size(receipt.bytes())
        ));
        skipped.say(context);
        Ok(Exit::Done)
    }
}
