//! `get-many`: a line of JSON for each key of a list.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use sha2::{Digest, Sha256};
use sharddb::Value;

use crate::context::{self, Context, Errors};
use crate::database::Database;
use crate::exit::Exit;
use crate::failure::{Failure, Result, exit_of};
use crate::input::{Reading, Stream};
use crate::key::KeyList;

/// Look up many keys: a line of JSON for each, in the order of the list
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb get-many numbers --keys keys.txt
  sharddb keys numbers | sharddb get-many numbers --keys - --values

A line is one of
  {\"key\":\"2\",\"len\":3,\"sha256\":\"3fc4cc...\"}                     with --values also \"value_b64\":\"dHdv\"
  {\"key\":\"3\",\"absent\":true}
  {\"key\":\"4\",\"error\":\"corrupt: expected ...\"}
and is written as soon as the lines that have arrived are answered. Exit codes: 0 done, be keys absent
or not; 3 or 4 if there was an error, after all other keys.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// The keys, one a line, decimal or 0x hex; - is standard input
    #[arg(long, value_name = "FILE|-")]
    keys: PathBuf,
    /// Add the values, in base64
    #[arg(long)]
    values: bool,
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
        let snapshot = self.database.open()?;
        let mut list = KeyList::new(open_list(&self.keys, context)?);
        let mut errors = Errors::new();
        let mut out = context::stdout();
        loop {
            let keys = list.next_batch()?;
            if keys.is_empty() {
                return Ok(errors.exit());
            }
            let mut remaining = keys.iter();
            let written = snapshot.get_many_with(&keys, |_, value| {
                let key = remaining.next().map_or_else(String::new, u64::to_string);
                if let Err(error) = &value {
                    errors.note(exit_of(error.kind()));
                }
                match write_line(&mut out, &self.answer(key, value)) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(failure) => ControlFlow::Break(failure),
                }
            });
            if let ControlFlow::Break(failure) = written {
                return Err(failure);
            }
            out.flush().map_err(Failure::stdout)?;
        }
    }

    fn answer(&self, key: String, value: sharddb::Result<Option<Value<'_>>>) -> Answer {
        match value {
            Ok(Some(value)) => Answer::Found {
                key,
                len: value.len(),
                sha256: format!("{:x}", Sha256::digest(&*value)),
                value_b64: self.values.then(|| STANDARD.encode(&*value)),
            },
            Ok(None) => Answer::Absent { key, absent: true },
            Err(error) => Answer::Failed { key, error: format!("{}: {error}", error.kind()) },
        }
    }
}

/// Opens a list of keys; `-` is standard input.
pub(super) fn open_list(path: &Path, context: &Context) -> Result<Stream> {
    let reading = Reading::of_list(context);
    if path == Path::new("-") { Stream::stdin(&reading) } else { Stream::open(path, &reading) }
}

fn write_line(out: &mut impl Write, answer: &Answer) -> Result<()> {
    serde_json::to_writer(&mut *out, answer).map_err(|error| Failure::stdout(error.into()))?;
    out.write_all(b"\n").map_err(Failure::stdout)
}
