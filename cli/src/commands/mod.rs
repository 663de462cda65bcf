//! The subcommands. Each has one file with its arguments and its code.

mod after;
mod apply;
mod bench;
mod build;
mod build_part;
mod clean_parts;
mod completions;
mod contains;
mod convert;
mod copy;
mod delete;
mod diff;
mod discard;
mod export;
mod gc;
mod generations;
mod get;
mod get_many;
mod import;
mod info;
mod keys;
mod locate;
mod man;
mod merge;
mod new_store;
mod plan;
mod publish;
mod publish_parts;
mod pull;
mod push;
mod put;
mod reshard;
mod rollback;
mod salvage;
#[cfg(feature = "serve")]
mod serve;
mod spill;
mod stages;
mod update;
mod verify;
mod zarr;

use std::path::Path;

use clap::{Parser, Subcommand};
use sharddb::Store;

use crate::context::Context;
pub(crate) use crate::context::{write_json, write_line};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::remote::RemoteStore;
use crate::remote::url::refuse_url;

/// Look up values by integer key, straight from files
///
/// A store has values of any bytes, under keys from 0 to 2^64 - 1. Its files are the Neuroglancer precomputed sharded format.
#[derive(Debug, Parser)]
#[command(name = "sharddb", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = [HELP, REMOTE, EXIT_CODES].concat())]
pub(crate) struct Cli {
    /// Print errors only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Report what each call to an object store costs: requests, bytes, cache hits, seconds, generation
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const HELP: &str = "\
Try it:
  printf '{\"key\": 1, \"text\": \"one\"}\\n{\"key\": 2, \"text\": \"two\"}\\n' > numbers.ndjson
  sharddb build numbers --input numbers.ndjson
  sharddb get numbers 2
  sharddb info numbers

DB is a store that build made, one of its generations, or any directory of shards with an info
(or with --sharding). get, get-many, keys, export, info and verify also take Zarr v3 arrays, bcolz
arrays, bloscpack files and, with --column, bcolz tables; for the other subcommands, import builds a
store from them. KEY is decimal or 0x hex.
";

const REMOTE: &str = if cfg!(feature = "remote") {
    "
get, get-many, contains, locate, keys, export and info take DB at s3://, gs://, az://, http:// and
https:// too, verify at the first three, and push and pull copy stores. There --generation reads an
older generation, and --cache-dir keeps what lookups read on the local disk. Credentials come from
the environment and the usual files; AWS_SKIP_SIGNATURE=true reads public buckets without any.
SHARDDB_REMOTE_TIMEOUT is the time in seconds, by default 30, in which a server must begin its
answer, and send each 64 KiB of it; an upload has a second more per 16 KiB. SHARDDB_REMOTE_RETRIES
is the number of retries of one request. Certificates of https:// servers are verified against
SSL_CERT_FILE or the roots of the system; a system without any uses bundled roots.
"
} else {
    "
This build lacks the feature remote: DB is a local path.
"
};

const EXIT_CODES: &str = "
Exit codes: 0 done, found or equal, 1 absent or different, 2 usage, 3 corrupt, unsupported or
malformed (or findings of verify), 4 not found, no space, locked and other I/O, 5 a publication that
was rolled back or replaced is repeated, 70 a bug in sharddb, 130 and 143 after SIGINT and SIGTERM.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Build(build::Args),
    Update(update::Args),
    Put(put::Args),
    Delete(delete::Args),
    Get(get::Args),
    GetMany(get_many::Args),
    Contains(contains::Args),
    Locate(locate::Args),
    Keys(keys::Args),
    Export(export::Args),
    Import(import::Args),
    Merge(merge::Args),
    Reshard(reshard::Args),
    Copy(copy::Args),
    Convert(convert::Args),
    Zarr(zarr::Args),
    Info(info::Args),
    Verify(verify::Args),
    Diff(diff::Args),
    Apply(apply::Args),
    Plan(plan::Args),
    Publish(publish::Args),
    Push(push::Args),
    Pull(pull::Args),
    Spill(spill::Args),
    BuildPart(build_part::Args),
    PublishParts(publish_parts::Args),
    CleanParts(clean_parts::Args),
    Rollback(rollback::Args),
    Discard(discard::Args),
    Salvage(salvage::Args),
    Generations(generations::Args),
    Gc(gc::Args),
    #[cfg(feature = "serve")]
    Serve(serve::Args),
    Bench(bench::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    /// Whether it only reads, and prints little.
    pub(crate) fn is_lookup(&self) -> bool {
        matches!(
            self,
            Command::Get(_) | Command::Contains(_) | Command::Locate(_) | Command::Info(_) | Command::Generations(_)
        )
    }

    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        match self {
            Command::Build(args) => args.run(context),
            Command::Update(args) => args.run(context),
            Command::Put(args) => args.run(context),
            Command::Delete(args) => args.run(context),
            Command::Get(args) => args.run(context),
            Command::GetMany(args) => args.run(context),
            Command::Contains(args) => args.run(context),
            Command::Locate(args) => args.run(context),
            Command::Keys(args) => args.run(context),
            Command::Export(args) => args.run(context),
            Command::Import(args) => args.run(context),
            Command::Merge(args) => args.run(context),
            Command::Reshard(args) => args.run(context),
            Command::Copy(args) => args.run(context),
            Command::Convert(args) => args.run(context),
            Command::Zarr(args) => args.run(context),
            Command::Info(args) => args.run(context),
            Command::Verify(args) => args.run(context),
            Command::Diff(args) => args.run(context),
            Command::Apply(args) => args.run(context),
            Command::Plan(args) => args.run(context),
            Command::Publish(args) => args.run(context),
            Command::Push(args) => args.run(context),
            Command::Pull(args) => args.run(context),
            Command::Spill(args) => args.run(context),
            Command::BuildPart(args) => args.run(context),
            Command::PublishParts(args) => args.run(context),
            Command::CleanParts(args) => args.run(context),
            Command::Rollback(args) => args.run(context),
            Command::Discard(args) => args.run(context),
            Command::Salvage(args) => args.run(context),
            Command::Generations(args) => args.run(context),
            Command::Gc(args) => args.run(context),
            #[cfg(feature = "serve")]
            Command::Serve(args) => args.run(context),
            Command::Bench(args) => args.run(context),
            Command::Completions(args) => args.run(),
            Command::Man(args) => args.run(context),
        }
    }
}

/// Returns the store at a URL.
///
/// Errors: `Usage` for a path.
fn at_url(argument: &Path) -> Result<RemoteStore> {
    RemoteStore::open(argument)?.ok_or_else(|| {
        let path = argument.display();
        Failure::usage(format!(
            "expected a URL such as s3://bucket/path, found the path {path}: sharddb push copies a store there, and sharddb pull \
             copies one from there"
        ))
    })
}

/// Opens a store, which must exist.
fn open_store(path: &Path) -> Result<Store> {
    refuse_url(path)?;
    path.metadata().map_err(|error| Failure::io("open", path, error))?;
    Ok(Store::open(path)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::CommandFactory;
    use sharddb::cluster::{PartPlan, SpillSet, SpillWriter, job_directory};
    use sharddb::{BuildOptions, Profile};

    use super::*;
    use crate::interrupt::Interrupt;

    #[test]
    fn a_signal_cancels_each_step_of_a_build_in_parts() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name).to_str().unwrap().to_string();
        let (store, options) = (path("store"), BuildOptions::new());
        let job = job_directory(Path::new(&store), "night").unwrap();
        let plan = PartPlan::for_counts(1, 5, Profile::Local, 1).unwrap();
        let mut spill = SpillWriter::create(&job, &plan, 0, &options).unwrap();
        spill.insert(7, "seven").unwrap();
        let spill = spill.finish().unwrap();
        let spills = SpillSet::new(&plan, &job, vec![spill.clone()]).unwrap();
        let part = spills.build_part(0, &job, &options).unwrap();
        let files = [("plan", plan.to_string()), ("spill", spill.to_string()), ("part", part.to_string())];
        files.iter().for_each(|(name, text)| fs::write(path(name), text).unwrap());
        fs::write(path("in.ndjson"), "{\"key\": 8, \"text\": \"eight\"}\n").unwrap();

        let (plan, spill, part, input) = (path("plan"), path("spill"), path("part"), path("in.ndjson"));
        let steps = [
            &["spill", &store, "night", "--plan", &plan, "--task", "1", "--input", &input][..],
            &["build-part", &store, "night", "--plan", &plan, "--spills", &spill, "--part", "0"],
            &["publish-parts", &store, "night", "--plan", &plan, "--spills", &spill, "--parts", &part],
        ];
        for step in steps {
            let context = Context { quiet: true, verbose: false, interrupt: Interrupt::default() };
            context.interrupt.cancel().store(true, std::sync::atomic::Ordering::Relaxed);
            let cli = Cli::try_parse_from([&["sharddb"], step].concat()).unwrap();
            let done = cli.command.run(&context);
            assert!(matches!(done, Err(Failure::Cancelled)), "{step:?}: {done:?}");
        }
        assert_eq!(Store::open(&store).unwrap().current().unwrap(), None);
    }

    /// Longer lines would be wrapped in the middle of a column.
    #[test]
    fn what_help_says_after_the_options_fits_its_width() {
        let mut commands = vec![Cli::command()];
        while let Some(command) = commands.pop() {
            for line in command.get_after_help().map(ToString::to_string).unwrap_or_default().lines() {
                assert!(line.chars().count() <= 100, "{}: {line}", command.get_name());
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }

    /// A help heading applies to every option after it that names no other, so each option must name its own.
    #[test]
    fn keys_and_other_options_are_not_listed_as_ways_to_open() {
        for (verb, argument) in [("contains", "key"), ("bench", "input"), ("plan", "keys"), ("info", "json")] {
            let command = Cli::command();
            let argument =
                command.find_subcommand(verb).and_then(|verb| verb.get_arguments().find(|it| it.get_id() == argument));
            assert_eq!(argument.map(clap::Arg::get_help_heading), Some(None), "{verb}");
        }
    }
}
