//! `merge`: makes one store of several databases.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Map, Value};
use sharddb::{BuildOptions, Snapshot, Store};

use crate::commands::build::Duplicates;
use crate::commands::import::tell_about_info;
use crate::commands::new_store::{NewStore, refuse_inside, suggest_salvage};
use crate::context::Context;
use crate::duplicates::duplicate_key;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::printable::word;
use crate::remote::url::local_path;

/// Make one store of several databases and publish it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb merge all worker-1 worker-2 worker-3
  sharddb merge all worker-* --on-duplicate concat --memory 1GiB --temp-dir /scratch
  sharddb merge numbers numbers more --on-duplicate last         adds the pairs of more to numbers
  sharddb merge skeletons part1 part2 --profile remote --data-encoding gzip

IN is any DB: a store, one of its generations, or a directory of shards with an info, whose
specifications may differ. It is not changed; OUT may be one of them, since its generation is kept.

A key in several inputs is an error, unless --on-duplicate states which of its pairs to keep, in the
order of the inputs; concat joins its values, in this order too. Pairs with preambles cannot be
joined.

Without --sharding a specification is planned for all pairs. Inputs that ShardDb wrote with the
hash, the preshift and at least the bits of the new specification are merged as they are read;
others are sorted first, within --memory. Values are decoded only if their encoding changes.

With --json, the members are \"generation\", \"keys\", \"keys_before\" (null if there was no generation),
\"duplicates_dropped\", \"value_bytes\", \"shards\", \"file_bytes\" and \"seconds\".

Exit codes: 0 published, 2 usage, 3 corrupt, a key in several inputs, or no keys where OUT has some,
4 not found, no space, or another writer is at work.")]
pub(crate) struct Args {
    /// The store; created if there is none
    #[arg(value_parser = local_path())]
    out: PathBuf,
    /// The databases
    #[arg(value_name = "IN", required = true, value_parser = local_path())]
    inputs: Vec<PathBuf>,
    /// What to do with a key that several inputs have
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Duplicates::Error)]
    on_duplicate: Duplicates,
    /// An info whose members are kept, except for "sharding". Default: that of the first input
    #[arg(long, value_name = "FILE")]
    info: Option<PathBuf>,
    #[command(flatten)]
    new: NewStore,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let begun = Instant::now();
        let open = |input: &PathBuf| self.new.opening.open(input).map_err(|failure| self.explain_order(input, failure));
        let sources: Vec<Snapshot> = self.inputs.iter().map(open).collect::<Result<_>>()?;
        for (path, source) in self.inputs.iter().zip(&sources) {
            refuse_inside(&self.out, path, source)?;
        }
        let mut options = self.new.options(context)?;
        options.on_duplicate(self.on_duplicate.policy());
        self.keep_info(&sources, &mut options, context)?;
        let cleanup = context.interrupt.publishing();
        let merged = self.new.merge(&self.out, options, &sources, context);
        let published = merged.map_err(|failure| self.explain(failure, &sources))?;
        cleanup.done();
        drop(sources); // so that --keep can remove the generation of an input
        self.new.conclude(&published, begun, &self.out, context)
    }

    /// Explains an input that is no database if it is perhaps the store to write, given last.
    fn explain_order(&self, input: &Path, failure: Failure) -> Failure {
        let is_last = self.inputs.last().is_some_and(|last| last == input);
        match (failure, Store::is_at(&self.out)) {
            (Failure::NotADatabase(message), Ok(true)) if is_last => {
                let others = self.inputs.split_last().map_or(&[][..], |(_, others)| others);
                let words =
                    [input].into_iter().chain([&*self.out]).chain(others.iter().map(PathBuf::as_path)).map(word);
                let line: String = words.map(|word| format!(" {word}")).collect();
                Failure::NotADatabase(format!(
                    "{message}; the store to write comes first: did you mean 'sharddb merge{line}'?"
                ))
            }
            (failure, _) => failure,
        }
    }

    /// Makes the given info that of the new store, or that of the first input.
    fn keep_info(&self, sources: &[Snapshot], options: &mut BuildOptions, context: &Context) -> Result<()> {
        if let Some(path) = &self.info {
            options.info(fs::read_to_string(path).map_err(|error| Failure::io("read", path, error))?);
            return Ok(());
        }
        let Some(first) = sources.first() else { return Ok(()) };
        tell_about_info(first, context);
        options.info_of(first)?;
        let kept = described(first)?;
        for (other, source) in self.inputs.iter().zip(sources) {
            if described(source)? != kept {
                let (first, other) = (self.inputs.first().unwrap_or(other).display(), other.display());
                context
                    .say(format_args!("the info of {first} is kept, and {other} has another: --info FILE states one"));
                break;
            }
        }
        Ok(())
    }

    /// Explains a failed merge if a key is in several inputs, or an input is damaged: which inputs, and what to do.
    fn explain(&self, failure: Failure, sources: &[Snapshot]) -> Failure {
        let Some(key) = duplicate_key(&failure) else { return suggest_salvage(failure, Path::new("IN")) };
        let having = self.inputs.iter().zip(sources).filter(|(_, source)| source.contains(key).unwrap_or(false));
        let having: Vec<&Path> = having.map(|(path, _)| &**path).collect();
        match having[..] {
            [first, second, ..] => Failure::Unsound(format!(
                "expected each key in one input, found key {key} in {} and {}: nothing was published; --on-duplicate \
                 first or --on-duplicate last keeps one of the pairs, --on-duplicate concat joins their values",
                first.display(),
                second.display()
            )),
            _ => suggest_salvage(failure, having.first().copied().unwrap_or(Path::new("IN"))), // it has the key twice
        }
    }
}

/// The members of the info of a source that describe the data set and not its files; `None` if it has none.
///
/// Errors: those of reading it.
fn described(source: &Snapshot) -> Result<Option<Map<String, Value>>> {
    let info = source.info()?;
    let mut members: Option<Map<String, Value>> = info.and_then(|info| serde_json::from_str(&info).ok());
    for of_files in ["sharding", "sharddb"] {
        members.as_mut().and_then(|members| members.remove(of_files));
    }
    Ok(members)
}
