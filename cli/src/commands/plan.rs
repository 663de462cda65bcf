//! `plan`: chooses a sharding specification for given pairs and explains it.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sharddb::cluster::PartPlan;
use sharddb::plan::Plan;
use sharddb::spec::Encoding;
use sharddb::{Profile, ShardingSpec};

use crate::commands::build::{Encoded, InputOptions, profiles};
use crate::commands::stages::reading_inputs;
use crate::commands::write_line;
use crate::context::{Context, Errors};
use crate::database::Opening;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::input::{self, Sink};
use crate::number::{Count, plural};
use crate::plan::{Explanation, PairStats, ValueTrial};
use crate::progress::Display;
use crate::size::Size;

/// Print the sharding specification chosen for the pairs, with predictions for a store that uses it
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("pairs").required(true))]
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
  sharddb plan --input sample.ndjson --parts 64 > plan.json

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
    /// Print the plan of a build in this number of parts instead; see spill. --sharding, without DB, is then the
    /// specification
    #[arg(long, value_name = "N", conflicts_with = "json")]
    parts: Option<u64>,
    /// For --parts: how values are stored. Default: as the specification says, otherwise raw
    #[arg(long, value_enum, value_name = "HOW", requires = "parts")]
    data_encoding: Option<Encoded>,
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
        let (pairs, data_encoding) = match (&self.db, self.keys, self.bytes) {
            (Some(path), _, _) => self.count_database(path, &mut errors)?,
            (None, Some(Count(keys)), Some(bytes)) => (PairStats::of_counts(keys, bytes.0), Encoding::Raw),
            _ => {
                let count = self.count_inputs(context)?;
                if let Some(suggestion) = count.trial.and_then(|trial| trial.suggestion()) {
                    context.say(suggestion);
                }
                (count.pairs, Encoding::Raw)
            }
        };
        let plan = match (self.keys, self.bytes) {
            (Some(Count(keys)), Some(bytes)) => Plan::for_counts(keys, bytes.0, self.profile),
            _ => Plan::new(pairs.keys(), self.profile),
        };
        let text = match self.parts {
            Some(parts) => self.divide(parts, plan.spec().with_data_encoding(data_encoding), &pairs, context)?,
            None if self.json => Explanation::new(plan, &pairs, data_encoding).to_json(),
            None => Explanation::new(plan, &pairs, data_encoding).to_string(),
        };
        write_line(&text)?;
        Ok(errors.exit())
    }

    /// Returns the plan of a partitioned build: for the planned specification, or for the given one if that is not the one
    /// of the database.
    fn divide(&self, parts: u64, planned: ShardingSpec, pairs: &PairStats, context: &Context) -> Result<String> {
        let given = if self.db.is_none() { self.opening.spec()? } else { None };
        let spec = given.unwrap_or(planned);
        let spec = spec.with_data_encoding(self.data_encoding.map_or(spec.data_encoding(), Encoding::from));
        let plan = PartPlan::by_sample(spec, pairs.keys(), parts)?;
        let shards = u128::from(plan.spec().max_shard().get()) + 1;
        context.say(format_args!("planned {shards} shards in {}", plural(parts, "part")));
        Ok(plan.to_string())
    }

    /// Counts values in their current encoding, with their stored lengths.
    fn count_database(&self, path: &Path, errors: &mut Errors) -> Result<(PairStats, Encoding)> {
        let snapshot = self.opening.open(path)?;
        let mut pairs = PairStats::new();
        for entry in snapshot.iter() {
            let lengths = entry.and_then(|entry| Ok((entry.key(), entry.preamble()?.len() as u64, entry.stored_len())));
            match lengths {
                Ok((key, preamble_len, value_len)) => pairs.insert(key, preamble_len, value_len),
                Err(error) => errors.tell(&error),
            }
        }
        Ok((pairs, snapshot.spec().data_encoding()))
    }

    fn count_inputs(&self, context: &Context) -> Result<Counted> {
        let inputs = self.inputs.resolve(&self.input)?;
        let reading = self.inputs.reading(context);
        let _progress = Display::start(context.quiet, reading_inputs(&reading.progress));
        let trial = (self.profile == Profile::Remote).then(ValueTrial::new);
        let mut count = Counted { pairs: PairStats::new(), trial };
        input::read_all(&inputs, &reading, &mut count)?.say(context);
        Ok(count)
    }
}

/// A sink that counts the pairs and, for remote readers, samples their values.
struct Counted {
    pairs: PairStats,
    trial: Option<ValueTrial>,
}

impl Sink for Counted {
    fn insert(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> Result<()> {
        self.pairs.insert(key, preamble.len() as u64, value.len() as u64);
        if let Some(trial) = &mut self.trial {
            trial.offer(value);
        }
        Ok(())
    }

    fn insert_reader(&mut self, key: u64, preamble_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()> {
        // the input that made the reader reports its errors
        io::copy(reader, &mut io::sink()).map_err(|source| Failure::Io { what: "read".to_string(), source })?;
        self.pairs.insert(key, preamble_len, value_len);
        Ok(())
    }
}
