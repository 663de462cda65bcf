//! `generations`: lists the generations of a store.

use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;
use sharddb::Store;
use sharddb::internal::time_as_iso_8601;
use sharddb::store::{GenerationTotals, StoredGeneration};

use crate::bench::disk_usage::DiskUsage;
use crate::commands::{open_store, write_json};
use crate::context::{self, Context, Errors, warn};
use crate::entry;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::histogram::grouped;
use crate::leases::Leases;
use crate::remote::url::path_or_url;
use crate::remote::{Call, RemoteStore};
use crate::size::Size;

/// List the generations of a store, oldest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb generations numbers
  gen-0000000001  2026-11-20T08:15:00Z  2,000,000 keys   231.9 MiB  in use
  gen-0000000002  2026-11-21T08:15:00Z  2,000,100 keys   231.9 MiB  current
  gen-0000000003  2026-11-22T08:15:00Z          3 keys       312 B  rolled back
  sharddb generations numbers --json | jq -r '.[] | select(.state == \"current\") | .generation'

The date, in UTC, is when the generation was complete; the size is that of all its files. 'rolled
back' is a generation that a rollback left and that rollback without a number skips. 'moved in' is
the directory of a publish --move that failed after the move; gc keeps it. 'incomplete' is one
without a manifest: its build was killed or is still running. 'in use' is one that a process has
open, so gc keeps it.

With --json, the members of a generation are \"generation\", \"state\" (current, earlier, rolled-back,
moved-in, incomplete), \"in_use\" (null where the operating system does not list locks), \"completed\",
\"keys\", \"value_bytes\", \"shards\" (null if the manifest is missing or damaged) and \"bytes\".

At a URL, the date is when the successor of a generation became current, by the clock of the server,
and 'incomplete' is an upload under way or interrupted. With --json, the members there are
\"generation\", \"state\" (current, earlier, incomplete), \"replaced\", \"objects\" and \"bytes\".

Exit codes: 0 listed, 2 no store, 3 a damaged current, history or manifest, 4 not found.")]
pub(crate) struct Args {
    /// The store; a path or a URL
    #[arg(value_parser = path_or_url())]
    store: PathBuf,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// What a generation is to its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Current,
    /// It was current before, and a rollback goes back to it.
    Earlier,
    /// A directory that was moved in and has not become current.
    MovedIn,
    /// It is complete and not in the history.
    RolledBack,
    Incomplete,
}

/// A generation and what is known of it.
#[derive(Serialize)]
struct Listed {
    generation: String,
    state: State,
    in_use: Option<bool>,
    completed: Option<String>,
    keys: Option<u64>,
    value_bytes: Option<u64>,
    shards: Option<u64>,
    bytes: u64,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        if let Some(remote) = RemoteStore::open(&self.store)? {
            return remote.generations(Call { context, json: self.json });
        }
        let mut errors = Errors::new();
        let listed = list(&open_store(&self.store)?, &mut errors)?;
        if self.json {
            write_json(&listed)?
        } else {
            write_lines(&listed)?
        }
        Ok(errors.exit())
    }
}

/// Describes the generations. A manifest that cannot be read is reported, and its generation listed without totals.
fn list(store: &Store, errors: &mut Errors) -> Result<Vec<Listed>> {
    let (history, moved, leases) = (store.history()?, store.moved_in()?, Leases::read());
    let mut listed = Vec::new();
    for stored in store.generations()? {
        let totals = stored.is_complete.then(|| store.totals(stored.id));
        let path = store.generation_path(stored.id);
        if !entry::is_dir(&path)? {
            // if nothing is there, gc has removed it since
            if entry::exists(&path)? {
                warn(format_args!("sharddb: expected a directory, found something else (file {})", path.display()));
                errors.note(Exit::Corrupt);
            }
            continue;
        }
        if let Some(Err(error)) = &totals {
            errors.tell(error);
        }
        let totals = totals.and_then(std::result::Result::ok);
        let state = match (stored.is_complete, stored.is_current) {
            (false, _) => State::Incomplete,
            (true, true) => State::Current,
            // first: without `current`, the history has its line, too
            (true, false) if moved.iter().any(|moved| moved.id == stored.id) => State::MovedIn,
            (true, false) if history.contains(&stored.id) => State::Earlier,
            (true, false) => State::RolledBack,
        };
        listed.push(Listed::of(store, &stored, state, totals, &leases)?);
    }
    Ok(listed)
}

impl Listed {
    fn of(
        store: &Store,
        stored: &StoredGeneration,
        state: State,
        totals: Option<GenerationTotals>,
        leases: &Leases,
    ) -> Result<Listed> {
        let path = store.generation_path(stored.id);
        let completed = path.join("manifest.json").metadata().and_then(|metadata| metadata.modified()).ok();
        Ok(Listed {
            generation: stored.id.to_string(),
            state,
            in_use: leases.is_held(&path),
            completed: completed.map(time_as_iso_8601),
            keys: totals.map(|totals| totals.keys),
            value_bytes: totals.map(|totals| totals.value_bytes),
            shards: totals.map(|totals| totals.shards),
            bytes: DiskUsage::of(&path)?.apparent,
        })
    }

    fn states(&self) -> String {
        let state = match self.state {
            State::Current => Some("current"),
            State::Earlier => None,
            State::MovedIn => Some("moved in"),
            State::RolledBack => Some("rolled back"),
            State::Incomplete => Some("incomplete"),
        };
        let in_use = (self.in_use == Some(true)).then_some("in use");
        state.into_iter().chain(in_use).collect::<Vec<_>>().join(", ")
    }

    /// The number of keys and its noun; `-` if it is unknown.
    fn keys(&self) -> (String, &'static str) {
        match self.keys {
            Some(1) => ("1".to_string(), "key "),
            Some(keys) => (grouped(keys), "keys"),
            None => ("-".to_string(), "keys"),
        }
    }
}

fn write_lines(listed: &[Listed]) -> Result<()> {
    let most = listed.iter().map(|it| it.keys().0.len()).max().unwrap_or(0);
    let mut out = context::stdout();
    for it in listed {
        let ((keys, noun), size) = (it.keys(), Size(it.bytes).to_string());
        let completed = it.completed.as_deref().unwrap_or("-");
        let line = format!("{}  {completed:20}  {keys:>most$} {noun}  {size:>9}  {}", it.generation, it.states());
        writeln!(out, "{}", line.trim_end()).map_err(Failure::stdout)?;
    }
    context::flush(out)
}
