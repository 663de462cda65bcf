//! `get-many`: one line of JSON per key of a list.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use sha2::{Digest, Sha256};
use sharddb::Snapshot;
use sharddb::internal::key::Key;

use crate::chunks::Chunks;
use crate::context::{self, Context, Errors, push_json};
use crate::database::{AnyDatabase, Opened};
use crate::exit::Exit;
use crate::failure::{Failure, Result, exit_of};
use crate::input::{BadLine, KeyList};
use crate::input::{Reading, Stream};
use crate::remote::{RemoteDatabase, RemoteOpening};

/// Look up many keys: one line of JSON per key, in the order of the list
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("wanted").args(["given", "key", "keys"]).required(true).multiple(true))]
#[command(after_help = "\
Examples:
  sharddb get-many numbers 1 2 --values
  sharddb get-many numbers --keys keys.txt
  sharddb keys numbers | sharddb get-many numbers --keys - --values
  sharddb get-many trades --column price --keys chunks.txt
  sharddb get-many s3://bucket/numbers --keys keys.txt -v

A line is one of
  {\"key\":\"2\",\"len\":3,\"sha256\":\"3fc4cc...\"}                     with --values also \"value_b64\":\"dHdv\"
  {\"key\":\"3\",\"absent\":true}
  {\"key\":\"4\",\"error\":\"corrupt: expected ...\"}
  {\"key\":\"x\",\"error\":\"malformed: expected a key ...\"}              if the line is not a key
Lines are flushed as soon as all keys that have arrived are answered. Exit codes: 0 done, whether
keys are absent or not; 3 or 4 if there was an error; the other keys are still looked up.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: AnyDatabase,
    /// The keys, before those of --key and --keys
    #[arg(value_name = "KEY")]
    given: Vec<Key>,
    #[command(flatten)]
    at_url: RemoteOpening,
    /// The keys, one per line, decimal or 0x hex; - is standard input
    #[arg(long, value_name = "FILE|-")]
    keys: Option<PathBuf>,
    /// A key, before those of --keys; may be repeated
    #[arg(long, value_name = "KEY")]
    key: Vec<Key>,
    /// Add the values, in base64
    #[arg(long)]
    values: bool,
    #[command(flatten)]
    chunks: Chunks,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    Found {
        key: String,
        len: usize,
        sha256: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        value_b64: Option<String>,
    },
    Absent {
        key: String,
        absent: bool,
    },
    Failed {
        key: String,
        error: String,
    },
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let source = match self.database.open_remote(&self.at_url, context)? {
            Some(remote) => Source::Remote(remote),
            None => Source::Local(self.database.open()?),
        };
        if !matches!(source, Source::Local(Opened::Container(_))) {
            self.chunks.refuse_decoded()?;
        }
        let mut lines = Lines { args: self, errors: Errors::new(), out: context::stdout() };
        let given: Vec<u64> = self.given.iter().chain(&self.key).map(|key| key.0).collect();
        lines.of_keys(&source, &given)?;
        lines.out.flush().map_err(Failure::stdout)?;
        let Some(path) = &self.keys else { return Ok(lines.errors.exit()) };
        let mut list = KeyList::new(open_list(path, context)?);
        loop {
            let batch = list.next_batch()?;
            if batch.is_empty() {
                return Ok(lines.errors.exit());
            }
            // looks up the keys between two bad lines as one batch
            for run in batch.chunk_by(|one, next| one.is_ok() && next.is_ok()) {
                let keys: Vec<u64> = run.iter().filter_map(|line| line.as_ref().ok().copied()).collect();
                lines.of_keys(&source, &keys)?;
                run.iter().filter_map(|line| line.as_ref().err()).try_for_each(|bad| lines.of_bad_line(bad))?;
            }
            lines.out.flush().map_err(Failure::stdout)?;
        }
    }

    fn answer(&self, key: String, value: sharddb::Result<Option<impl AsRef<[u8]>>>) -> Answer {
        match value {
            Ok(Some(value)) => Answer::Found {
                key,
                len: value.as_ref().len(),
                sha256: format!("{:x}", Sha256::digest(&value)),
                value_b64: self.values.then(|| STANDARD.encode(&value)),
            },
            Ok(None) => Answer::Absent { key, absent: true },
            Err(error) => Answer::Failed { key, error: format!("{}: {error}", error.kind()) },
        }
    }
}

/// Where the values are.
enum Source {
    Local(Opened),
    Remote(RemoteDatabase),
}

/// Writes the answers.
struct Lines<'a, W> {
    args: &'a Args,
    errors: Errors,
    out: W,
}

impl<W: Write> Lines<'_, W> {
    fn of_keys(&mut self, source: &Source, keys: &[u64]) -> Result<()> {
        match source {
            _ if keys.is_empty() => Ok(()),
            Source::Remote(remote) => {
                let values = remote.run("get-many", remote.reader().get_many(keys))?;
                keys.iter().zip(values).try_for_each(|(key, value)| self.write(key.to_string(), value))
            }
            Source::Local(Opened::Sharded(snapshot)) => self.of_database(snapshot, keys),
            Source::Local(Opened::Container(container)) => {
                let form = self.args.chunks.form();
                keys.iter().try_for_each(|key| self.write(key.to_string(), container.get(*key, form)))
            }
        }
    }

    fn of_bad_line(&mut self, bad: &BadLine) -> Result<()> {
        self.errors.note(Exit::Corrupt);
        let answer = Answer::Failed { key: bad.text.clone(), error: format!("malformed: {}", bad.malformed) };
        push_json(&mut self.out, &answer)
    }

    fn of_database(&mut self, snapshot: &Snapshot, keys: &[u64]) -> Result<()> {
        let mut remaining = keys.iter();
        let written = snapshot.get_each(keys, |_, value| {
            let key = remaining.next().map_or_else(String::new, u64::to_string);
            self.write(key, value).map_or_else(ControlFlow::Break, ControlFlow::Continue)
        });
        written.break_value().map_or(Ok(()), Err)
    }

    fn write(&mut self, key: String, value: sharddb::Result<Option<impl AsRef<[u8]>>>) -> Result<()> {
        if let Err(error) = &value {
            self.errors.note(exit_of(error.kind()));
        }
        push_json(&mut self.out, &self.args.answer(key, value))
    }
}

/// Opens a list of keys; `-` is standard input.
pub(super) fn open_list(path: &Path, context: &Context) -> Result<Stream> {
    let reading = Reading::of_list(context);
    if path == Path::new("-") { Stream::stdin(&reading) } else { Stream::open(path, &reading) }
}
