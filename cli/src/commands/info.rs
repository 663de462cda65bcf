//! `info`: describes a database and how its keys and bytes are distributed.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sharddb::Snapshot;
use sharddb::shard::{Entry, Shard};
use sharddb::spec::{Layout, MinishardNumber};
use sharddb_container::Container;
use sharddb_container::bcolz::{BcolzArray, BcolzTable};
use sharddb_remote::RemoteSnapshot;

use crate::commands::{write_json, write_line};
use crate::context::{self, Context, Errors};
use crate::database::{AnyDatabase, Opened};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::histogram::{Histogram, grouped};
use crate::number::plural;
use crate::output::{Sources, Target};
use crate::plot::Plot;
use crate::printable;
use crate::remote::{RemoteDatabase, RemoteOpening};
use crate::size::Size;

/// Describe a database, and how its keys and bytes are distributed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb info numbers
  sharddb info numbers --json | jq .keys
  sharddb info numbers --plot numbers.svg

The count axis of a plot is logarithmic and starts below 1, so that a bar of one is visible.

Reads all indexes and no values. The overhead is everything in the files beyond the stored values:
indexes, checks, preambles, padding.

The place is the JSON pointer of the object in the info that describes the shards, if it is not the
top level, as in a volume. With --json it is the member \"sharding_at\".

An array or another container is described by its metadata, a bcolz table by its columns, and with
--column NAME by that column. A column is also an array of its own, for example trades/price.

A data set at a URL is described by its info and its manifest; the cost is that of opening it.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: AnyDatabase,
    #[command(flatten)]
    at_url: RemoteOpening,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Draw the histograms to this SVG file, which must not be in DB; - is standard output
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        if let Some(remote) = self.database.open_remote(&self.at_url, context)? {
            return self.run_on_remote(&remote);
        }
        if let Some(table) = self.database.open_table()? {
            return self.run_on_table(&table);
        }
        match self.database.open()? {
            Opened::Sharded(snapshot) => self.run_on_database(&snapshot, context),
            Opened::Container(container) => self.run_on_container(&*container),
        }
    }

    /// Writes what is known of a data set at a URL without a walk: its specification, and what the manifest counts.
    fn run_on_remote(&self, remote: &RemoteDatabase) -> Result<Exit> {
        if self.plot.is_some() {
            let url = remote.url();
            return Err(Failure::usage(format!("--plot reads all indexes of a local database, found {url}")));
        }
        let snapshot = remote.reader().snapshot();
        let text = if self.json { remote_json(remote, &snapshot).to_string() } else { remote_text(remote, &snapshot) };
        write_line(&text)?;
        Ok(Exit::Done)
    }

    /// Writes the description of a container: one JSON object, or one line per member.
    fn run_on_container(&self, container: &dyn Container) -> Result<Exit> {
        self.check_no_plot()?;
        let description = container.describe();
        let mut members: serde_json::Map<String, Value> = serde_json::from_str(&description).unwrap_or_default();
        if self.json {
            members.insert("path".to_string(), absolute(&self.database.opened_path()).into());
            write_json(&members)?;
            return Ok(Exit::Done);
        }
        let mut out = context::stdout();
        for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
            writeln!(out, "{:16} {}", printable::line(name).to_string(), printable::line(text))
                .map_err(Failure::stdout)?;
        }
        context::flush(out)?;
        Ok(Exit::Done)
    }

    /// Writes the columns of a table: one JSON object, or one line per column.
    fn run_on_table(&self, table: &BcolzTable) -> Result<Exit> {
        self.check_no_plot()?;
        let text = if self.json { table_json(table, self.database.path()).to_string() } else { table_text(table) };
        write_line(&text)?;
        Ok(Exit::Done)
    }

    fn check_no_plot(&self) -> Result<()> {
        match self.plot {
            Some(_) => Err(Failure::usage("--plot is for databases, found a container of another format")),
            None => Ok(()),
        }
    }

    fn run_on_database(&self, snapshot: &Snapshot, context: &Context) -> Result<Exit> {
        if let Some(path) = &self.plot {
            if self.json && path == Path::new("-") {
                return Err(Failure::usage(
                    "--plot - and --json both write to standard output: name a file for one of them",
                ));
            }
            Sources::of([self.database.path(), snapshot.shards_directory()]).refuse(path)?;
            check_extension(path)?;
        }
        let mut errors = Errors::new();
        let survey = Survey::take(snapshot, &mut errors);
        if let Some(path) = &self.plot {
            let cleanup = context.interrupt.writing();
            let plot = survey.plot(&self.title(snapshot)).svg();
            let svg = plot.ok_or_else(|| Failure::Internal("cannot draw the plot".to_string()))?;
            let mut target = Target::open(path)?;
            target.write_all(svg.as_bytes())?;
            target.finish()?;
            cleanup.done();
        }
        let text = if self.json { self.json(snapshot, &survey).to_string() } else { self.text(snapshot, &survey) };
        write_line(&text)?;
        Ok(errors.exit())
    }

    /// The name of the store, and the generation if there is one.
    fn title(&self, snapshot: &Snapshot) -> String {
        let path = self.database.path();
        let full = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let named = if path.file_name().is_some() { path } else { &full }; // `.` has no name
        let name = named.file_name().unwrap_or(named.as_os_str()).display();
        snapshot.generation().map_or_else(|| name.to_string(), |id| format!("{name}, {id}"))
    }

    fn json(&self, snapshot: &Snapshot, survey: &Survey) -> Value {
        let spec = snapshot.spec();
        let buckets = |histogram: &Histogram| -> Vec<Value> {
            let bucket = |it: crate::histogram::Bucket| json!({"from": it.from, "to": it.to, "count": it.count});
            histogram.buckets().into_iter().map(bucket).collect()
        };
        let mut described = json!({
            "path": absolute(self.database.path()),
            "generation": snapshot.generation().map(|id| id.to_string()),
            "sharding": serde_json::from_str::<Value>(&spec.to_json()).unwrap_or_default(),
            "layout": layout_json(snapshot.layout()),
            "keys": survey.known(survey.keys),
            "value_bytes": survey.known(survey.value_bytes),
            "file_bytes": survey.file_bytes,
            "overhead_bytes_per_key": survey.known(survey.overhead()).flatten(),
            "shards": survey.shards,
            "key_file_bytes": snapshot.stats().key_file_bytes,
            "minishards": survey.minishards,
            "empty_minishards": survey.known(survey.minishards - survey.filled),
            "minishard_fill": buckets(&survey.fill),
            "value_size": buckets(&survey.value_size),
        });
        if !snapshot.sharding_at().is_empty() {
            described["sharding_at"] = snapshot.sharding_at().into();
        }
        described
    }

    fn text(&self, snapshot: &Snapshot, survey: &Survey) -> String {
        let place = printable::line(self.database.path().display());
        let from = snapshot.generation().map_or(format!("{place}"), |id| format!("{place}, {id}"));
        let overhead = survey.known(survey.overhead()).flatten();
        let overhead = overhead.map_or("-".to_string(), |bytes| format!("{bytes:.1} B per key"));
        let unknown = if survey.is_partial { ", and those that cannot be read" } else { "" };
        let empty = survey.known(survey.minishards - survey.filled).map_or("unknown".to_string(), grouped);
        let layout = layout_text(snapshot.layout());
        let mut lines = vec![
            format!("database   {from}"),
            format!("sharding   {}", snapshot.spec()),
            format!("layout     {layout}"),
            format!("keys       {}{unknown}", grouped(survey.keys)),
            format!(
                "values     {} ({} as stored){unknown}",
                Size(survey.value_bytes),
                plural(survey.value_bytes, "byte")
            ),
            format!("files      {} in {}", Size(survey.file_bytes), plural(survey.shards, "shard")),
            format!("overhead   {overhead}"),
            format!("minishards {}, {empty} of them empty", grouped(survey.minishards)),
        ];
        if !snapshot.sharding_at().is_empty() {
            let shards = snapshot.shards_directory();
            let shards = shards.strip_prefix(snapshot.directory()).unwrap_or(shards).display();
            let place = printable::line(format_args!("{}, shards in {shards}", snapshot.sharding_at())).to_string();
            lines.insert(2, format!("place      {place}"));
        }
        if let Some(bytes) = snapshot.stats().key_file_bytes {
            let bits = 8.0 * bytes as f64 / survey.keys.max(1) as f64;
            lines.push(format!("ordered    by a key file of {}, {bits:.1} bits per key", Size(bytes)));
        }
        lines.push("\nkeys per minishard     minishards".to_string());
        lines.extend(survey.fill.lines(|keys| keys));
        lines.push("\nstored value           keys".to_string());
        lines.extend(survey.value_size.lines(Size));
        lines.join("\n")
    }
}

/// Refuses a name that promises another format. A name without an extension, such as that of a FIFO, is accepted.
///
/// Errors: `Usage`.
fn check_extension(path: &Path) -> Result<()> {
    match path.extension() {
        Some(extension) if !extension.eq_ignore_ascii_case("svg") => {
            let (extension, path) = (extension.display(), path.display());
            Err(Failure::usage(format!("--plot writes SVG: expected a name with .svg, found .{extension} ({path})")))
        }
        _ => Ok(()),
    }
}

fn layout_json(layout: Option<Layout>) -> Value {
    let json = |layout: Layout| {
        json!({
            "checks": layout.checks,
            "preambles": layout.preambles,
            "value_alignment": layout.value_alignment.get(),
        })
    };
    layout.map_or(Value::Null, json)
}

fn layout_text(layout: Option<Layout>) -> String {
    layout.map_or("foreign".to_string(), |layout| {
        let (checks, preambles) =
            (if layout.checks { "checks" } else { "no checks" }, if layout.preambles { ", preambles" } else { "" });
        format!("{checks}{preambles}, values aligned to {}", layout.value_alignment.get())
    })
}

fn remote_json(remote: &RemoteDatabase, snapshot: &RemoteSnapshot) -> Value {
    let cost = remote.reader().stats();
    json!({
        "url": remote.url(),
        "generation": snapshot.generation(),
        "sharding": serde_json::from_str::<Value>(&snapshot.spec().to_json()).unwrap_or_default(),
        "layout": layout_json(snapshot.layout()),
        "keys": snapshot.key_count(),
        "cost": {"requests": cost.requests, "bytes": cost.bytes, "cache_hits": cost.cache_hits},
    })
}

fn remote_text(remote: &RemoteDatabase, snapshot: &RemoteSnapshot) -> String {
    let url = printable::line(remote.url());
    let from = snapshot.generation().map_or(format!("{url}"), |generation| format!("{url}, {generation}"));
    let cost = remote.reader().stats();
    [
        format!("database   {from}"),
        format!("sharding   {}", snapshot.spec()),
        format!("layout     {}", layout_text(snapshot.layout())),
        format!("keys       {}", snapshot.key_count().map_or("unknown".to_string(), grouped)),
        format!("cost       {}, {}", plural(cost.requests, "request"), plural(cost.bytes, "byte")),
    ]
    .join("\n")
}

fn table_json(table: &BcolzTable, path: &Path) -> Value {
    let column = |(name, column): (&str, &BcolzArray)| {
        json!({
            "name": name,
            "dtype": column.dtype(),
            "shape": column.shape(),
            "rows": column.rows(),
            "chunk_rows": column.chunk_rows(),
            "keys": column.nchunks(),
        })
    };
    json!({
        "path": absolute(path),
        "format": "bcolz",
        "kind": "table",
        "layout": table.layout().as_str(),
        "rows": table.rows(),
        "columns": table.columns().map(column).collect::<Vec<_>>(),
    })
}

/// The absolute path, as text.
fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}

fn table_text(table: &BcolzTable) -> String {
    let mut lines = vec![
        format!("{:16} bcolz", "format"),
        format!("{:16} table", "kind"),
        format!("{:16} {}", "layout", table.layout().as_str()),
        format!("{:16} {}", "rows", grouped(table.rows())),
        format!("\n{:16} {:12} {:>15} {:>10}", "column", "dtype", "rows", "chunks"),
    ];
    lines.extend(table.columns().map(|(name, column)| {
        let (rows, chunks) = (grouped(column.rows()), grouped(column.nchunks()));
        format!(
            "{:16} {:12} {rows:>15} {chunks:>10}",
            printable::line(name).to_string(),
            printable::line(column.dtype()).to_string()
        )
    }));
    lines.join("\n")
}

/// The result of one pass over all indexes.
#[derive(Default)]
struct Survey {
    keys: u64,
    value_bytes: u64,
    file_bytes: u64,
    shards: u64,
    /// The minishards of shards that have a file.
    minishards: u64,
    /// The minishards that have keys.
    filled: u64,
    fill: Histogram,
    value_size: Histogram,
    current: Option<(MinishardNumber, u64)>,
    /// Whether a shard or a minishard could not be read, so that the counts are too low.
    is_partial: bool,
}

impl Survey {
    fn take(snapshot: &Snapshot, errors: &mut Errors) -> Survey {
        let mut survey = Survey::default();
        for shard in snapshot.shards() {
            survey.shards += 1;
            survey.minishards = survey.minishards.saturating_add(snapshot.spec().minishards());
            match shard {
                Ok(shard) => survey.shard(&shard, errors),
                Err(error) => survey.miss(&error, errors),
            }
        }
        survey.fill.add_times(0, survey.minishards - survey.filled);
        survey.file_bytes = snapshot.stats().file_bytes.unwrap_or(survey.file_bytes);
        survey
    }

    fn shard(&mut self, shard: &Shard, errors: &mut Errors) {
        self.file_bytes = self.file_bytes.saturating_add(shard.file_bytes());
        for entry in shard.iter() {
            match entry {
                Ok(entry) => self.entry(&entry),
                Err(error) => self.miss(&error, errors),
            }
        }
        self.end_minishard();
    }

    /// Reports what could not be read.
    fn miss(&mut self, error: &sharddb::Error, errors: &mut Errors) {
        self.is_partial = true;
        errors.tell(error);
    }

    /// A count as it is known: `None` if a part of the database could not be read.
    fn known<T>(&self, count: T) -> Option<T> {
        (!self.is_partial).then_some(count)
    }

    fn entry(&mut self, entry: &Entry) {
        let minishard = entry.location().minishard;
        self.current = match self.current {
            Some((current, keys)) if current == minishard => Some((current, keys + 1)),
            _ => {
                self.end_minishard();
                Some((minishard, 1))
            }
        };
        self.keys += 1;
        self.value_bytes = self.value_bytes.saturating_add(entry.stored_len());
        self.value_size.add(entry.stored_len());
    }

    fn end_minishard(&mut self) {
        if let Some((_, keys)) = self.current.take() {
            self.fill.add(keys);
            self.filled += 1;
        }
    }

    /// The bytes of the files beyond the stored values, per key; `None` without keys.
    fn overhead(&self) -> Option<f64> {
        let overhead = || self.file_bytes.saturating_sub(self.value_bytes) as f64 / self.keys as f64;
        (self.keys > 0).then(overhead)
    }

    fn plot(&self, title: &str) -> Plot {
        let mut plot = Plot::new(title);
        plot.add("keys per minishard", "minishards", &self.fill, grouped);
        plot.add("stored size of the value", "keys", &self.value_size, Size);
        plot
    }
}
