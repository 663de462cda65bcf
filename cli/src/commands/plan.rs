//! `plan`: a sharding specification for given pairs, and why.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sharddb::{KeyStats, Plan, PlanOptions, Profile};

use crate::bar::{Bar, Status};
use crate::commands::build::InputOptions;
use crate::context::{self, Context, Errors};
use crate::database::{Opening, by_reading};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::input::{InputProgress, Sink};
use crate::size::Size;

/// Print the sharding specification that fits the pairs, and what a store with it will be like
#[derive(Debug, clap::Args)]
#[command(mut_arg("storage", by_reading), group = clap::ArgGroup::new("pairs").required(true), after_help = "\
Examples:
  sharddb plan --keys 10000000 --bytes 1GB
  sharddb plan --input numbers.ndjson --profile remote
  sharddb plan numbers --json > plan.json
  sharddb build again --input numbers.ndjson --sharding plan.json

With --input or DB the planner looks at the keys themselves, which is better where they are dense.
Chunks of an array or another container have to be imported first: see sharddb import --help.

Exit codes: 0 planned, 2 usage, or an array or container in place of a database, 3 corrupt or
malformed pairs, 4 not found and other I/O.")]
pub(crate) struct Args {
    /// Plan for the pairs of this database
    #[arg(group = "pairs")]
    db: Option<PathBuf>,
    /// Plan for so many keys
    #[arg(long, value_name = "N", group = "pairs", requires = "bytes")]
    keys: Option<u64>,
    /// The bytes of all values together
    #[arg(long, value_name = "SIZE", requires = "keys")]
    bytes: Option<Size>,
    /// Plan for the pairs of these inputs; - is standard input
    #[arg(long, value_name = "PATH", num_args = 1.., group = "pairs")]
    input: Vec<PathBuf>,
    #[command(flatten)]
    inputs: InputOptions,
    /// What the reads will be like: local, remote or cloudvolume
    #[arg(long, value_name = "PROFILE", default_value_t = Profile::Local)]
    profile: Profile,
    /// Print one JSON object; its member "sharding" is the specification
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    opening: Opening,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let mut errors = Errors::new();
        let plan = match (&self.db, self.keys, self.bytes) {
            (Some(path), _, _) => self.plan_of_database(path, &mut errors)?,
            (None, Some(keys), Some(bytes)) => Plan::for_counts(keys, bytes.0, self.profile),
            _ => Plan::new(&self.stats_of_inputs(context)?, self.profile),
        };
        let mut out = context::stdout();
        let text = if self.json { plan.to_json() } else { plan.to_string() };
        writeln!(out, "{text}").map_err(Failure::stdout)?;
        context::flush(out)?;
        Ok(errors.exit())
    }

    /// The values stay encoded as they are: their stored lengths are what counts.
    fn plan_of_database(&self, path: &Path, errors: &mut Errors) -> Result<Plan> {
        let snapshot = self.opening.open(path)?;
        let mut stats = KeyStats::new();
        for entry in snapshot.iter() {
            let lengths = entry.and_then(|entry| Ok((entry.key(), entry.prefix()?.len() as u64, entry.stored_len())));
            match lengths {
                Ok((key, prefix_len, value_len)) => stats.insert(key, prefix_len, value_len),
                Err(error) => errors.tell(&error),
            }
        }
        Ok(PlanOptions::new().data_encoding(snapshot.spec().data_encoding()).plan(&stats, self.profile))
    }

    fn stats_of_inputs(&self, context: &Context) -> Result<KeyStats> {
        let inputs = self.inputs.resolve(&self.input)?;
        let reading = self.inputs.reading(context);
        let _bar = if context.quiet { Bar::hidden() } else { bar(&reading.progress) };
        let mut count = Count(KeyStats::new());
        for input in &inputs {
            input.read(&reading, &mut count)?;
        }
        Ok(count.0)
    }
}

fn bar(progress: &Arc<InputProgress>) -> Bar {
    let progress = Arc::clone(progress);
    Bar::start(move || Status { phase: "read", bytes: progress.bytes(), fraction: progress.fraction() })
}

/// Counts pairs and forgets them.
struct Count(KeyStats);

impl Sink for Count {
    fn insert(&mut self, key: u64, prefix: &[u8], value: &[u8]) -> Result<()> {
        self.0.insert(key, prefix.len() as u64, value.len() as u64);
        Ok(())
    }

    fn insert_reader(&mut self, key: u64, prefix_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()> {
        // an error of the reader is told by the input that made it
        io::copy(reader, &mut io::sink()).map_err(|source| Failure::Io { what: "read".to_string(), source })?;
        self.0.insert(key, prefix_len, value_len);
        Ok(())
    }
}
