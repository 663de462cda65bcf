//! `diff`: prints the keys that were added, removed or changed between two databases.

use sharddb::internal::generation_of_text;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::json;
use sharddb::diff::{Change, ChangeKind, Diff, DiffOptions, DiffTotals};
use sharddb::{ErrorKind, GenerationId, Snapshot, Store, Value};

use crate::commands::{open_store, write_json, write_line};
use crate::context::{Context, Errors};
use crate::database::{Opening, headed};
use crate::entry;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::input::{self, Compression};
use crate::number::plural;
use crate::output::{Sources, Target, Values};
use crate::progress::Display;

/// Print the keys that were added, removed or changed between two databases or generations
#[derive(Debug, clap::Args)]
#[command(mut_args(headed("How to open OLD and NEW")))]
#[command(after_help = "\
Examples:
  sharddb diff numbers                           what the last build or update changed
  + 4
  - 2
  ~ 3
  sharddb diff numbers --from 3 --to 5           between two generations of a store
  sharddb diff precomputed/skeletons store       between any two databases
  sharddb diff old new --count
  sharddb diff old new --format ndjson > changes.ndjson; sharddb apply store changes.ndjson

The lines of keys begin with + for an added key, - for a removed and ~ for a changed one. ndjson has
a line for each key, with its pair before and after, null where it is absent:
  {\"key\":\"3\",\"old\":{\"value_b64\":\"dGhyZWU=\"},\"new\":{\"value_b64\":\"VEhSRUU=\"}}

A pair is changed if its value or its preamble is another one, however it is stored: encodings,
specifications and layouts do not matter. Of a foreign data set, the bytes before a value that no
index names are its preamble, except zeros.

Not everything is read: shards that are hard links to one file are equal, and so are shards with the
same digest in both manifests. The values of all other shards are compared byte by byte.

Lines are in storage order if both specifications agree in hash and bits. Otherwise the added and
changed keys come first, in the order of NEW, and then the removed ones, in the order of OLD.

Damage is named on standard error, and its keys are left out; the comparison goes on, and the exit
code is then 3. With --json, the members are \"added\", \"removed\", \"changed\", \"unchanged\" (without
the keys of equal foreign shards), \"equal_shards\" (not read) and \"errors\".

Exit codes: 0 equal, 1 different, 2 usage, 3 corrupt, 4 not found and other I/O.")]
pub(crate) struct Args {
    /// The database before: a store, one of its generations, or any directory of shards. Without NEW, a store, whose
    /// generations are compared
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The database after
    #[arg(value_name = "NEW", conflicts_with_all = ["from", "to"])]
    new: Option<PathBuf>,
    /// The generation before: gen-0000000003, gen-3 or 3. Default: the one that was current before that of --to
    #[arg(long, value_name = "GENERATION", value_parser = generation_of_text)]
    from: Option<GenerationId>,
    /// The generation after. Default: the current one
    #[arg(long, value_name = "GENERATION", value_parser = generation_of_text)]
    to: Option<GenerationId>,
    /// What to print for each key. Default: keys, or ndjson for an output whose name ends in .ndjson or .jsonl
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// For ndjson: how values are written. Default: base64
    #[arg(long = "as", value_enum, value_name = "HOW")]
    values: Option<Values>,
    /// A file for the lines, compressed if it is ndjson and its name ends in .gz; - is standard output
    #[arg(long, short, value_name = "PATH|-", default_value = "-")]
    output: PathBuf,
    /// Print only the numbers of keys
    #[arg(long, conflicts_with_all = ["format", "json", "output"])]
    count: bool,
    /// Print only one JSON object, with the numbers of keys
    #[arg(long, conflicts_with_all = ["format", "output"])]
    json: bool,
    /// Number of threads. Default: one per processor
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<NonZero<usize>>,
    #[command(flatten)]
    opening: Opening,
}

/// What is printed for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A sign and the key
    Keys,
    /// The key, with its pair before and after, as apply reads it
    Ndjson,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let format = self.format();
        if self.values.is_some() && format != Format::Ndjson {
            return Err(Failure::usage("--as is for --format ndjson, found another format"));
        }
        let (old, new) = self.open()?;
        let given = [&self.old].into_iter().chain(&self.new).map(PathBuf::as_path);
        Sources::of(given.chain([old.shards_directory(), new.shards_directory()])).refuse(&self.output)?;
        // until a partial output is removed or renamed; standard output has some of the lines
        let _cleanup =
            if self.output == Path::new("-") { context.interrupt.cleanup() } else { context.interrupt.writing() };
        let mut lines = match (self.count || self.json, format) {
            (true, _) => Lines::None,
            (false, Format::Keys) => Lines::Keys(Target::open(&self.output)?),
            (false, Format::Ndjson) => {
                Lines::Patch(Target::by_name(&self.output)?, self.values.unwrap_or(Values::Base64))
            }
        };
        let mut errors = Errors::new();
        let totals = self.compare(&old, &new, &mut lines, &mut errors, context)?;
        lines.finish()?;
        match (self.json, self.count) {
            (true, _) => write_json(&to_json(&totals))?,
            (_, true) => print_counts(&totals)?,
            _ => {}
        }
        context.say(summary(&totals));
        if totals.differ() {
            errors.note(Exit::DIFFERENT);
        }
        Ok(errors.exit())
    }

    fn format(&self) -> Format {
        let of_name = || match input::Format::of_name(Compression::of_name(&self.output).1) {
            Some(input::Format::Ndjson) => Format::Ndjson,
            _ => Format::Keys,
        };
        self.format.unwrap_or_else(of_name)
    }

    /// Opens both databases: those that are named, or two generations of one store.
    fn open(&self) -> Result<(Snapshot, Snapshot)> {
        let open = |path: &Path| self.opening.open_one_of_several(path);
        if let Some(new) = &self.new {
            return Ok((open(&self.old)?, open(new)?));
        }
        let store = open_store(&self.old).map_err(want_new)?;
        let (from, to) = self.generations(&store)?;
        let of_store = |id| {
            let path = store.generation_path(id);
            let missing = || format!("expected a generation of {}, found no {id}", self.old.display());
            if entry::is_dir(&path)? { open(&path) } else { Err(Failure::NotADatabase(missing())) }
        };
        Ok((of_store(from)?, of_store(to)?))
    }

    /// The generations to compare.
    ///
    /// Errors: `Usage` if one is not given and does not follow from the history.
    fn generations(&self, store: &Store) -> Result<(GenerationId, GenerationId)> {
        let history = store.history()?;
        let to = self.to.or_else(|| history.last().copied()).ok_or_else(|| {
            let store = self.old.display();
            Failure::usage(format!("expected a second database after {store}, or a store with generations, found none"))
        })?;
        let at = history.iter().position(|id| *id == to);
        let before = at.and_then(|at| history.get(at.checked_sub(1)?)).copied();
        let from = self.from.or(before).ok_or_else(|| {
            Failure::usage(format!("expected a generation that was current before {to}, found none: give --from"))
        })?;
        Ok((from, to))
    }

    fn compare(
        &self,
        old: &Snapshot,
        new: &Snapshot,
        lines: &mut Lines,
        errors: &mut Errors,
        context: &Context,
    ) -> Result<DiffTotals> {
        let progress = context.interrupt.progress();
        let _shown = Display::beside(&self.output, context.quiet, "compare", &progress);
        let mut options = DiffOptions::new();
        options.threads(self.threads.map_or(0, NonZero::get)).progress(&progress);
        let compared = Diff::between_with(old, new, &options).run(|change| {
            let written = match change {
                Ok(change) => lines.write(&change, errors),
                Err(error) if error.kind() == ErrorKind::Cancelled => Err(error.into()),
                Err(error) => {
                    errors.tell(&error);
                    Ok(())
                }
            };
            written.map_or_else(ControlFlow::Break, ControlFlow::Continue)
        });
        match compared {
            ControlFlow::Continue(totals) => Ok(totals),
            ControlFlow::Break(failure) => Err(failure),
        }
    }
}

/// Adds to the refusal of OLD as a store that NEW is missing. Any other failure stays as it is.
fn want_new(failure: Failure) -> Failure {
    match failure {
        Failure::Library(error) if error.kind() == ErrorKind::InvalidInput => {
            Failure::usage(format!("{error}; to compare it with another database, give NEW"))
        }
        other => other,
    }
}

/// Where the lines of changes go.
enum Lines {
    None,
    Keys(Target),
    /// Lines of JSON, which `apply` reads back.
    Patch(Target, Values),
}

impl Lines {
    /// Writes the line of a change. A value that cannot be read is reported, and its line left out.
    fn write(&mut self, change: &Change, errors: &mut Errors) -> Result<()> {
        match self {
            Lines::None => Ok(()),
            Lines::Keys(target) => {
                let sign = match change.kind() {
                    ChangeKind::Added => '+',
                    ChangeKind::Removed => '-',
                    ChangeKind::Changed => '~',
                };
                target.write_all(format!("{sign} {}\n", change.key()).as_bytes())
            }
            Lines::Patch(target, values) => {
                let read = || {
                    let old = change.old_preamble()?.zip(change.old_value()?);
                    Ok((old, change.new_preamble()?.zip(change.new_value()?)))
                };
                match read() {
                    Ok((old, new)) => target.write_all(&patch_line(*values, change.key(), old, new)?),
                    Err(error) => {
                        errors.tell(&error);
                        Ok(())
                    }
                }
            }
        }
    }

    fn finish(self) -> Result<()> {
        match self {
            Lines::None => Ok(()),
            Lines::Keys(target) | Lines::Patch(target, _) => target.finish(),
        }
    }
}

/// A preamble and a value; `None` where the key is absent.
type Pair<'a> = Option<(Value<'a>, Value<'a>)>;

/// `{"key":"..","old":{"value_b64":".."},"new":null}`: the pair of a key before and after a change.
fn patch_line(values: Values, key: u64, old: Pair<'_>, new: Pair<'_>) -> Result<Vec<u8>> {
    let mut line = format!("{{\"key\":\"{key}\"").into_bytes();
    for (name, pair) in [("old", old), ("new", new)] {
        line.extend_from_slice(format!(",\"{name}\":").as_bytes());
        match pair {
            None => line.extend_from_slice(b"null"),
            Some((preamble, value)) => {
                line.push(b'{');
                values.push_members(&preamble, &value, &mut line)?;
                line.push(b'}');
            }
        }
    }
    line.extend_from_slice(b"}\n");
    Ok(line)
}

fn print_counts(totals: &DiffTotals) -> Result<()> {
    let DiffTotals { added, removed, changed, unchanged, .. } = *totals;
    write_line(&format_args!("added {added}\nremoved {removed}\nchanged {changed}\nunchanged {unchanged}"))
}

fn to_json(totals: &DiffTotals) -> serde_json::Value {
    json!({
        "added": totals.added,
        "removed": totals.removed,
        "changed": totals.changed,
        "unchanged": totals.unchanged,
        "equal_shards": totals.equal_shards,
        "errors": totals.errors,
    })
}

fn summary(totals: &DiffTotals) -> String {
    let DiffTotals { added, removed, changed, unchanged, equal_shards, errors, .. } = *totals;
    let counts = format!("{} added, {removed} removed, {changed} changed, {unchanged} unchanged", plural(added, "key"));
    let equal = match equal_shards {
        0 => String::new(),
        shards => format!("; {} equal without reading", plural(shards, "shard")),
    };
    let errors = match errors {
        0 => String::new(),
        errors => format!("; {}", plural(errors, "error")),
    };
    counts + &equal + &errors
}
