//! `plan`: chooses a sharding specification for given pairs and explains it.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sharddb::Profile;
use sharddb::plan::Plan;
use sharddb::spec::Encoding;

use crate::commands::build::{InputOptions, profiles};
use crate::context::{self, Context, Errors};
use crate::database::{Opening, by_reading};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::input::{self, InputProgress, Sink, Skipped};
use crate::number::Count;
use crate::plan::{Explanation, PairStats, ValueTrial};
use crate::progress::{Amount, Progress, Status};
use crate::size::Size;

/// Print the sharding specification chosen for the pairs, with predictions for a store that uses it
#[derive(Debug, clap::Args)]
#[command(mut_arg("storage", by_reading), group = clap::ArgGroup::new("pairs").required(true))]
#[command(
    override_usage = "sharddb plan [OPTIONS] <DB>
       sharddb plan [OPTIONS] --input <PATH>...
       sharddb plan [OPTIONS] --keys <N> --bytes <SIZE>",
    after_help = "\
Examples:
  sharddb plan --keys 10000000 --bytes 1GB
  sharddb plan --input numbers.ndjson --profile remote
  sharddb plan numbers --json > plan.json
  sharddb build again --input numbers.ndjson --sharding plan.json

With --input or DB the plan depends on the keys themselves, which is better if they are dense.
An array or another container must be imported first: see sharddb import --help.

Exit codes: 0 planned, 2 usage, or an array or container instead of a database, 3 corrupt or
malformed pairs, 4 not found and other I/O."
)]
pub(crate) struct Args {
    /// Plan for the pairs of this database
    #[arg(group = "pairs")]
    db: Option<PathBuf>,
    /// Plan for this number of keys: 1000, 1e9 or 10M
    #[arg(long, value_name = "N", group = "pairs", requires = "bytes")]
    keys: Option<Count>,
    /// Total bytes of all values
    #[arg(long, value_name = "SIZE", requires = "keys")]
    bytes: Option<Size>,
    /// Plan for the pairs of these inputs; - is standard input
    #[arg(long, value_name = "PATH", num_args = 1.., group = "pairs")]
    input: Vec<PathBuf>,
    #[command(flatten)]
    inputs: InputOptions,
    /// How the data will be read
    #[arg(long, value_name = "PROFILE", default_value = "local", value_parser = profiles())]
    profile: Profile,
    /// Print one JSON object; its member "sharding" is the specification
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    opening: Opening,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        if self.input.is_empty() {
            self.inputs.refuse_without_inputs()?;
        }
        let mut errors = Errors::new();
        let explanation = match (&self.db, self.keys, self.bytes) {
            (Some(path), _, _) => self.explain_database(path, &mut errors)?,
            (None, Some(Count(keys)), Some(bytes)) => {
                let plan = Plan::for_counts(keys, bytes.0, self.profile);
                Explanation::new(plan, &PairStats::of_counts(keys, bytes.0), Encoding::Raw)
            }
            _ => {
                let count = self.count_inputs(context)?;
                if let Some(suggestion) = count.trial.and_then(|trial| trial.suggestion()) {
                    context.say(suggestion);
                }
                self.explain(&count.pairs, Encoding::Raw)
            }
        };
        let mut out = context::stdout();
        let text = if self.json { explanation.to_json() } else { explanation.to_string() };
        writeln!(out, "{text}").map_err(Failure::stdout)?;
        context::flush(out)?;
        Ok(errors.exit())
    }

    fn explain(&self, pairs: &PairStats, data_encoding: Encoding) -> Explanation {
        Explanation::new(Plan::new(pairs.keys(), self.profile), pairs, data_encoding)
    }

    /// Plans for values in their current encoding, with their stored lengths.
    fn explain_database(&self, path: &Path, errors: &mut Errors) -> Result<Explanation> {
        let snapshot = self.opening.open(path)?;
        let mut pairs = PairStats::new();
        for entry in snapshot.iter() {
            let lengths = entry.and_then(|entry| Ok((entry.key(), entry.prefix()?.len() as u64, entry.stored_len())));
            match lengths {
                Ok((key, prefix_len, value_len)) => pairs.insert(key, prefix_len, value_len),
                Err(error) => errors.tell(&error),
            }
        }
        Ok(self.explain(&pairs, snapshot.spec().data_encoding()))
    }

    fn count_inputs(&self, context: &Context) -> Result<Counted> {
        let inputs = self.inputs.resolve(&self.input)?;
        let reading = self.inputs.reading(context);
        input::announce(&inputs, &reading);
        let _progress = show(context.quiet, &reading.progress);
        let trial = (self.profile == Profile::Remote).then(ValueTrial::new);
        let mut count = Counted { pairs: PairStats::new(), trial };
        let mut skipped = Skipped::default();
        for input in &inputs {
            skipped.absorb(input.read(&reading, &mut count)?);
        }
        if skipped.files() > 0 {
            context.say(format_args!("skipped {skipped}"));
        }
        Ok(count)
    }
}

fn show(quiet: bool, input: &Arc<InputProgress>) -> Progress {
    let input = Arc::clone(input);
    let read =
        move || Status { phase: "read", number: 0, part: input.fraction(), amount: Amount::Bytes(input.bytes()) };
    Progress::start(quiet, read)
}

/// A sink that counts the pairs and, for remote readers, samples their values.
struct Counted {
    pairs: PairStats,
    trial: Option<ValueTrial>,
}

impl Sink for Counted {
    fn insert(&mut self, key: u64, prefix: &[u8], value: &[u8]) -> Result<()> {
        self.pairs.insert(key, prefix.len() as u64, value.len() as u64);
        if let Some(trial) = &mut self.trial {
            trial.offer(value);
        }
        Ok(())
    }

    fn insert_reader(&mut self, key: u64, prefix_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()> {
        // the input that made the reader reports its errors
        io::copy(reader, &mut io::sink()).map_err(|source| Failure::Io { what: "read".to_string(), source })?;
        self.pairs.insert(key, prefix_len, value_len);
        Ok(())
    }
}
