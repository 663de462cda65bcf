//! `bench`: the cost of lookups on the user's own data, compared with one file per key.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;
use sharddb::{BuildOptions, Published};

use crate::bench::disk_usage::DiskUsage;
use crate::bench::measure::{self, Figures, Keys, Percentiles};
use crate::bench::page_cache::Cold;
use crate::bench::random::{Random, Sample};
use crate::bench::source::{Files, Source, Store};
use crate::bench::table::{Cell, Table, time};
use crate::commands::write_json;
use crate::context::{self, Context};
use crate::database::Opening;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::histogram::grouped;
use crate::input::{Directory, NameOptions, Reading};
use crate::number::{Count, plural};
use crate::printable;
use crate::remote::url::local_path;
use crate::scratch::Scratch;

/// Measure lookups on your own data: a store, or a directory with one file per key next to a store built from it
#[derive(Debug, clap::Args)]
#[command(mut_args(of_bench))]
#[command(group = clap::ArgGroup::new("data").args(["path", "input"]).required(true).multiple(true))]
#[command(after_help = "\
Examples:
  sharddb bench numbers                   a store: lookups, batches, scan, space
  sharddb bench numbers --storage mmap    the same, mapped, as open_mapped of the library
  sharddb bench --input meshes/           builds a store from it, measures both, removes the store
  sharddb bench numbers --input files/    both, with a store built from the directory before
  sharddb bench --input meshes/ --cold machine --temp-dir /data

Prints a Markdown table with one column for each of the two. 'times' is the first column divided by
the second: above 1, the store is faster or smaller by that factor. All times are of one thread.
Present keys are looked up in random order, then as many absent keys. A batch is get_many of 256
keys; 'all values' is one pass over everything. Half of the lookups take at most the median, 99 in
100 at most p99.

Warm lookups find everything in memory, cold lookups nothing of the files. Before the measurement,
values are compared byte by byte between the two; during it, their byte sums are. A lookup reads
every byte of the value. For reliable figures, leave the machine otherwise idle.

Files are read as 'sharddb build' reads them, with the same options for their names: 7, or 7.gz,
which is decompressed; if there are 7 and 7.index, the value is 7.index. The space of a store is
that of one generation. DB is only read. A store that was built from --input is removed afterwards,
also after SIGINT.

With --json, the members are \"keys\", \"looked_up\", \"machine\", \"cold\" and \"table\": its \"columns\", and
\"rows\" with \"name\", \"unit\" (ns, bytes or count) and \"values\", one per column, null if not measured.

Exit codes: 0 measured, 2 usage, or nothing to look up, 3 corrupt, or the two differ, 4 not found,
no space and other I/O, including missing privileges for --cold machine.")]
pub(crate) struct Args {
    /// A store, one of its generations, or any directory of shards
    #[arg(value_name = "DB", value_parser = local_path())]
    path: Option<PathBuf>,
    #[command(flatten)]
    opening: Opening,
    /// A directory with one file per key, named by the key
    #[arg(long, value_name = "DIR")]
    input: Option<PathBuf>,
    #[command(flatten)]
    names: NameOptions,
    /// Where to put the store that is built from --input. Default: next to DIR, so that both are on the same disk
    #[arg(long, value_name = "DIR", requires = "input", conflicts_with = "path")]
    temp_dir: Option<PathBuf>,
    /// Upper bound on the number of keys to look up; fewer are looked up if they take long
    #[arg(long, value_name = "N", default_value = "100000", value_parser = parse_lookups)]
    lookups: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// What to drop from memory before cold lookups
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Cold::Files)]
    cold: Cold,
}

/// Makes options of names need an input.
fn of_bench(arg: clap::Arg) -> clap::Arg {
    match arg.get_id().as_str() {
        "ignore" | "suffix" | "recursive" | "name_base" => arg.requires("input"),
        _ => arg,
    }
}

/// A temporary store.
struct Built {
    scratch: Scratch,
    published: Published,
    /// Wall time of the build in nanoseconds.
    time: f64,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        let _cleanup = context.interrupt.cleanup(); // until the temporary store is removed
        let files = self.input.as_deref().map(|path| self.open_directory(path, context)).transpose()?.map(Files);
        let built = match (&self.path, &files) {
            (None, Some(files)) => Some(self.build(&files.0, context)?),
            _ => None,
        };
        let path = self.path.as_deref().or(built.as_ref().map(|built| built.scratch.path()));
        let store = Store { path: path.unwrap_or(Path::new("")), opening: &self.opening };
        let sources: Vec<&dyn Source> =
            files.iter().map(|files| files as &dyn Source).chain([&store as &dyn Source]).collect();

        let (keys, all) = self.choose_keys(&sources, files.as_ref(), &store, context)?;
        context.say(format_args!("measuring {}", plural(keys.present.len() as u64, "key")));
        let mut figures = measure::warm(&sources, &keys, context)?;
        let cold = self.measure_cold(&sources, &keys, &mut figures, context)?;
        let usages = sources.iter().map(|source| source.disk_usage()).collect::<Result<Vec<_>>>()?;

        if self.json {
            write_json(&json!({
                "keys": all,
                "looked_up": keys.present.len(),
                "machine": method(),
                "cold": cold,
                "table": table(&sources, &figures, &usages, built.as_ref()).to_json(),
            }))?;
            return Ok(Exit::Done);
        }
        let mut out = context::stdout();
        let notes = [self.title(all, &keys, built.as_ref()), method(), format!("Cold: {cold}.")];
        let table = table(&sources, &figures, &usages, built.as_ref());
        writeln!(out, "{table}\n{}", printable::lines(notes.join("\n"))).map_err(Failure::stdout)?;
        context::flush(out)?;
        Ok(Exit::Done)
    }

    fn open_directory(&self, path: &Path, context: &Context) -> Result<Directory> {
        context.say(format_args!("reading the names in {}", path.display()));
        let mut reading = Reading::of_list(context);
        reading.names.clone_from(&self.names);
        let directory = Directory::open(path, &reading)?;
        directory.skipped().say(context);
        Ok(directory)
    }

    fn build(&self, directory: &Directory, context: &Context) -> Result<Built> {
        let absolute = fs::canonicalize(directory.path());
        let absolute = absolute.map_err(|error| Failure::io("find", directory.path(), error))?;
        let beside = absolute.parent().unwrap_or(&absolute);
        let scratch = Scratch::create(self.temp_dir.as_deref().unwrap_or(beside), ".sharddb-bench-")?;
        context.say(format_args!("building a store of {}", plural(directory.keys().len() as u64, "key")));
        let begun = Instant::now();
        let mut options = BuildOptions::new();
        let mut loader = options.progress(&context.interrupt.progress()).create(scratch.path())?;
        directory.read(&Reading::of_list(context), &mut loader)?;
        let published = loader.finish()?;
        Ok(Built { scratch, published, time: begun.elapsed().as_nanos() as f64 })
    }

    /// The keys to look up, and the number of all keys.
    fn choose_keys(
        &self,
        sources: &[&dyn Source],
        files: Option<&Files>,
        store: &Store<'_>,
        context: &Context,
    ) -> Result<(Keys, u64)> {
        let mut sample = Sample::new(usize::try_from(self.lookups).unwrap_or(usize::MAX), Random::new(1));
        match files {
            Some(files) => files.0.keys().for_each(|key| sample.offer(key)),
            None => {
                for key in self.opening.open(store.path)?.keys() {
                    sample.offer(key?);
                    if sample.seen().is_multiple_of(1 << 16) {
                        context.check_cancel()?;
                    }
                }
            }
        }
        let all = sample.seen();
        if all == 0 {
            return Err(Failure::usage("expected data with at least one key, found none: there is nothing to look up"));
        }
        Ok((Keys::choose(sample.into_items(), sources, context)?, all))
    }

    /// Measures cold lookups; returns a description of them, or the reason why there are none.
    fn measure_cold(
        &self,
        sources: &[&dyn Source],
        keys: &Keys,
        figures: &mut [Figures],
        context: &Context,
    ) -> Result<&'static str> {
        if self.cold == Cold::No {
            return Ok(self.cold.describe());
        }
        if let Some(why) = Cold::impossible() {
            return Ok(why);
        }
        Ok(measure::cold(sources, keys, self.cold, figures, context)?.unwrap_or(self.cold.describe()))
    }

    fn title(&self, all: u64, keys: &Keys, built: Option<&Built>) -> String {
        let place = self.input.as_ref().or(self.path.as_ref()).map(|path| printable::line(path.display()).to_string());
        let values = built.map_or_else(String::new, |built| {
            format!(" with values of {} on average", plural(built.published.content.value_bytes / all.max(1), "byte"))
        });
        format!(
            "{}: {}{values}; {} of them looked up in random order, and as many absent keys.",
            place.unwrap_or_default(),
            plural(all, "key"),
            grouped(keys.present.len() as u64)
        )
    }
}

fn parse_lookups(text: &str) -> Result<u32, String> {
    let Count(number) = text.parse()?;
    let lookups = u32::try_from(number).ok().filter(|lookups| *lookups > 0);
    lookups.ok_or_else(|| format!("expected 1 to {} lookups, found {text}", grouped(u64::from(u32::MAX))))
}

/// The machine, and how times were measured.
fn method() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").ok();
    let cpu = cpu.as_deref().and_then(|text| text.lines().find(|line| line.starts_with("model name")));
    let cpu = cpu.and_then(|line| line.split_once(": ")).map_or(std::env::consts::ARCH, |(_, name)| name);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "ShardDb {}, {cpu}, {} cores, {} {}; one thread, wall time; reading the clock takes {} of each lookup.",
        env!("CARGO_PKG_VERSION"),
        std::thread::available_parallelism().map_or(1, usize::from),
        std::env::consts::OS,
        kernel.trim(),
        time(measure::clock()),
    )
}

fn table(sources: &[&dyn Source], figures: &[Figures], usages: &[DiskUsage], built: Option<&Built>) -> Table {
    let mut table = Table::new(sources.iter().map(|source| source.name()).collect());
    let of_figures = |cell: &dyn Fn(&Figures) -> Cell| -> Vec<Cell> { figures.iter().map(cell).collect() };
    let median = |found: Option<Percentiles>| nanoseconds(found.map(|found| found.median));
    let p99 = |found: Option<Percentiles>| nanoseconds(found.map(|found| found.p99));
    table.row("lookup, median", of_figures(&|it| median(it.present)));
    table.row("lookup, p99", of_figures(&|it| p99(it.present)));
    table.row("absent key, median", of_figures(&|it| median(it.absent)));
    table.row("absent key, p99", of_figures(&|it| p99(it.absent)));
    table.row("batch of 256, per key", of_figures(&|it| nanoseconds(it.batch_per_key)));
    table.row("all values, each", of_figures(&|it| nanoseconds(it.scan_per_pair)));
    table.row("open and first lookup", of_figures(&|it| nanoseconds(it.open)));
    // a mean, because the first lookups may load what later ones need, and a median would hide them
    table.row("cold lookup, mean", of_figures(&|it| nanoseconds(it.cold.map(|found| found.mean))));
    table.row("cold lookup, p99", of_figures(&|it| p99(it.cold)));
    table.row("cold lookup, 4 KiB pages read", of_figures(&|it| it.cold_pages.map_or(Cell::Nothing, Cell::Mean)));
    table.row("cold batch of 256, per key", of_figures(&|it| nanoseconds(it.cold_batch_per_key)));

    let of_usages = |cell: &dyn Fn(&DiskUsage) -> Cell| -> Vec<Cell> { usages.iter().map(cell).collect() };
    table.row("bytes on disk, apparent", of_usages(&|it| Cell::Bytes(it.apparent)));
    table.row("bytes on disk, allocated", of_usages(&|it| it.allocated.map_or(Cell::Nothing, Cell::Bytes)));
    table.row("files", of_usages(&|it| Cell::Count(it.files)));
    table.row("inodes", of_usages(&|it| Cell::Count(it.inodes)));
    if let Some(built) = built {
        table.row("build, synced", vec![Cell::Nothing, Cell::Nanoseconds(built.time)]);
    }
    table
}

fn nanoseconds(found: Option<f64>) -> Cell {
    found.map_or(Cell::Nothing, Cell::Nanoseconds)
}
