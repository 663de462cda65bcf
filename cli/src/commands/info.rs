//! `info`: describes a database and how its keys and bytes are distributed.

use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};
use sharddb::Snapshot;
use sharddb::container::Container;
use sharddb::container::bcolz::{BcolzArray, BcolzTable};
use sharddb::shard::{Entry, Shard};
use sharddb::spec::MinishardNumber;

use crate::context::{self, Context, Errors};
use crate::database::{AnyDatabase, Opened, by_reading};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::histogram::{Histogram, grouped};
use crate::output::{Sources, Target};
use crate::plot::Plot;
use crate::printable;
use crate::size::Size;

/// Describe a database, and how its keys and bytes are distributed
#[derive(Debug, clap::Args)]
#[command(mut_arg("storage", by_reading))]
#[command(after_help = "\
Examples:
  sharddb info numbers
  sharddb info numbers --json | jq .keys
  sharddb info numbers --plot numbers.svg

Reads all indexes and no values. The overhead is everything in the files beyond the stored values:
indexes, checks, prefixes, padding.

An array or another container is described by its metadata, a bcolz table by its columns, and with
--column NAME by that column. A column is also an array of its own, for example trades/price.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: AnyDatabase,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Draw the histograms to this file, which must not be in DB; - is standard output
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        if let Some(table) = self.database.open_table()? {
            return self.run_on_table(&table);
        }
        match self.database.open()? {
            Opened::Sharded(snapshot) => self.run_on_database(&snapshot, context),
            Opened::Container(container) => self.run_on_container(&*container),
        }
    }

    /// Writes the description of a container: one JSON object, or one line per member.
    fn run_on_container(&self, container: &dyn Container) -> Result<Exit> {
        self.check_no_plot()?;
        let description = container.describe();
        let members: serde_json::Map<String, Value> = serde_json::from_str(&description).unwrap_or_default();
        let mut out = context::stdout();
        if self.json {
            writeln!(out, "{description}").map_err(Failure::stdout)?;
        } else {
            for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
                writeln!(out, "{:16} {}", printable::line(name).to_string(), printable::line(text))
                    .map_err(Failure::stdout)?;
            }
        }
        context::flush(out)?;
        Ok(Exit::Done)
    }

    /// Writes the columns of a table: one JSON object, or one line per column.
    fn run_on_table(&self, table: &BcolzTable) -> Result<Exit> {
        self.check_no_plot()?;
        let mut out = context::stdout();
        let text = if self.json { table_json(table).to_string() } else { table_text(table) };
        writeln!(out, "{text}").map_err(Failure::stdout)?;
        context::flush(out)?;
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
            Sources::of([self.database.path(), snapshot.shards_directory()]).refuse(path)?;
        }
        let mut errors = Errors::new();
        let survey = Survey::take(snapshot, &mut errors);
        if let Some(path) = &self.plot {
            let _cleanup = context.interrupt.cleanup();
            let mut target = Target::open(path)?;
            target.write_all(survey.plot().svg().as_bytes())?;
            target.finish()?;
        }
        let mut out = context::stdout();
        let text = if self.json { self.json(snapshot, &survey).to_string() } else { self.text(snapshot, &survey) };
        writeln!(out, "{text}").map_err(Failure::stdout)?;
        context::flush(out)?;
        Ok(errors.exit())
    }

    fn json(&self, snapshot: &Snapshot, survey: &Survey) -> Value {
        let spec = snapshot.spec();
        let layout = snapshot.layout().map(|layout| {
            json!({
                "checks": layout.checks,
                "prefixes": layout.prefixes,
                "value_alignment": layout.value_alignment.get(),
            })
        });
        let buckets = |histogram: &Histogram| -> Vec<Value> {
            let bucket = |it: crate::histogram::Bucket| json!({"from": it.from, "to": it.to, "count": it.count});
            histogram.buckets().into_iter().map(bucket).collect()
        };
        json!({
            "path": self.database.path().display().to_string(),
            "generation": snapshot.generation().map(|id| id.to_string()),
            "sharding": serde_json::from_str::<Value>(&spec.to_json()).unwrap_or_default(),
            "layout": layout,
            "keys": survey.keys,
            "value_bytes": survey.value_bytes,
            "file_bytes": survey.file_bytes,
            "overhead_bytes_per_key": survey.overhead(),
            "shards": survey.shards,
            "minishards": survey.minishards,
            "empty_minishards": survey.minishards - survey.filled,
            "minishard_fill": buckets(&survey.fill),
            "value_size": buckets(&survey.value_size),
        })
    }

    fn text(&self, snapshot: &Snapshot, survey: &Survey) -> String {
        let place = printable::line(self.database.path().display());
        let from = snapshot.generation().map_or(format!("{place}"), |id| format!("{place}, {id}"));
        let overhead = survey.overhead().map_or("-".to_string(), |bytes| format!("{bytes:.1} B per key"));
        let layout = snapshot.layout().map_or("foreign".to_string(), |layout| {
            let (checks, prefixes) =
                (if layout.checks { "checks" } else { "no checks" }, if layout.prefixes { ", prefixes" } else { "" });
            format!("{checks}{prefixes}, values aligned to {}", layout.value_alignment.get())
        });
        let mut lines = vec![
            format!("database   {from}"),
            format!("sharding   {}", snapshot.spec()),
            format!("layout     {layout}"),
            format!("keys       {}", grouped(survey.keys)),
            format!("values     {} ({} bytes as stored)", Size(survey.value_bytes), grouped(survey.value_bytes)),
            format!("files      {} in {} shards", Size(survey.file_bytes), grouped(survey.shards)),
            format!("overhead   {overhead}"),
            format!(
                "minishards {}, {} of them empty",
                grouped(survey.minishards),
                grouped(survey.minishards - survey.filled)
            ),
        ];
        lines.push("\nkeys per minishard     minishards".to_string());
        lines.extend(survey.fill.lines(|keys| keys));
        lines.push("\nstored value           keys".to_string());
        lines.extend(survey.value_size.lines(Size));
        lines.join("\n")
    }
}

fn table_json(table: &BcolzTable) -> Value {
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
        "format": "bcolz",
        "kind": "table",
        "layout": table.layout().as_str(),
        "rows": table.rows(),
        "columns": table.columns().map(column).collect::<Vec<_>>(),
    })
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
}

impl Survey {
    fn take(snapshot: &Snapshot, errors: &mut Errors) -> Survey {
        let mut survey = Survey {
            keys: 0,
            value_bytes: 0,
            file_bytes: 0,
            shards: 0,
            minishards: 0,
            filled: 0,
            fill: Histogram::new(),
            value_size: Histogram::new(),
            current: None,
        };
        for shard in snapshot.shards() {
            survey.shards += 1;
            survey.minishards = survey.minishards.saturating_add(snapshot.spec().minishards());
            match shard {
                Ok(shard) => survey.shard(&shard, errors),
                Err(error) => errors.tell(&error),
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
                Err(error) => errors.tell(&error),
            }
        }
        self.end_minishard();
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

    fn plot(&self) -> Plot {
        let mut plot = Plot::new();
        plot.add("minishards by number of keys", &self.fill, |keys| keys);
        plot.add("keys by size of the stored value", &self.value_size, Size);
        plot
    }
}
