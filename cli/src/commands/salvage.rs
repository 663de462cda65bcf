//! `salvage`: rebuilds the intact pairs of a damaged data set as a new store.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sharddb::verify::Finding;
use sharddb::{OpenOptions, Salvage, Store};

use crate::commands::stages::Stages;
use crate::context::{Context, warn};
use crate::database::{advise, is_container};
use crate::entry;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::foreign;
use crate::number::plural;
use crate::output::{Sources, Target};
use crate::progress::{self, Amount, Status};
use crate::remote::url::local_path;
use crate::sharding;
use crate::size::{Size, parse_memory};

/// Write a new store with all pairs of a damaged one that can still be proved correct
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb salvage damaged whole > lost.ndjson
  sharddb salvage damaged/gen-0000000007 whole --lost lost.ndjson
  sharddb salvage shards-without-info whole --sharding spec.json

DB is only read. sharddb verify reports what is damaged; export writes whatever is readable, without
proof. DB opens with an intact manifest or an intact info; without either, give --sharding.

A pair is proved by its check. In a data set without checks it is proved by place and bounds: its
key hashes to its minishard, and its bytes are inside the file and overlap no index. Compressed
values must decode. Known deviations of neuroglancer-scripts are accepted and reported: zlib instead
of gzip, entries in the wrong slots. A shard that is not the one of the manifest, and from which
nothing is lost, may be one of another generation: it is kept and counted.

OUT is a store with the specification of DB, and the other members of the info are kept. If
\"sharding\" is nested, for example at /scales/0, OUT is such a volume too, with the chunks of that
scale. If the info cannot be read, a message says that it is not kept.

Each loss is one line of JSON. A line without a key stands for a whole minishard or shard:
  {\"shard\":1,\"minishard\":7,\"key\":\"4\",\"reason\":\"value-check\",\"message\":\"...\",\"file\":\"...\",\"offset\":8}

FILE is replaced when OUT is published, and keeps its mode. OUT and FILE must not be in DB. An
interrupted salvage can be run again.

Exit codes: 0 nothing is lost, 3 OUT is written and something is lost, or a shard is not the one of
the manifest, or the manifest is missing, or too little is intact to begin, 2 usage, or OUT exists
already, 4 not found, no space and other I/O.")]
pub(crate) struct Args {
    /// The damaged store, one of its generations, or any directory of shards
    #[arg(value_name = "DB", value_parser = local_path())]
    damaged: PathBuf,
    /// The new store: a path that does not exist yet, or a store without a generation
    #[arg(value_name = "OUT", value_parser = local_path())]
    out: PathBuf,
    /// Where to write the losses; - is standard output
    #[arg(long, value_name = "FILE|-", default_value = "-")]
    lost: PathBuf,
    /// The sharding specification: a JSON object, or a file that contains it. Default: that of the manifest or the info
    #[arg(long, value_name = "FILE|JSON")]
    sharding: Option<String>,
    /// Where the info describes the data set: the JSON pointer of the object that has "sharding"
    #[arg(long, value_name = "POINTER", conflicts_with = "sharding")]
    sharding_at: Option<String>,
    /// Upper bound on the length of a value
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    max_value: Size,
    /// The memory to use, at least 16 MiB. Default: a quarter of what the process may use, at most 4 GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<Size>,
}

/// One loss, as a line of JSON.
#[derive(Serialize)]
struct Lost<'a> {
    shard: Option<u64>,
    minishard: Option<u64>,
    key: Option<String>,
    reason: &'a str,
    message: &'a str,
    file: Option<String>,
    offset: Option<u64>,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        self.check_out()?;
        let salvage = self.open()?;
        let sources = Sources::of([&self.damaged, salvage.directory(), salvage.shards_directory()]);
        sources.refuse(&self.out)?;
        sources.refuse(&self.lost)?;
        self.check_lost()?;
        if !salvage.keeps_info() && entry::exists(&salvage.directory().join("info"))? {
            self.warn_of_info(&salvage);
        }
        let cleanup = context.interrupt.publishing(); // until the loader has removed its temporary files
        let mut lines = Target::open(&self.lost)?;
        let mut options = salvage.build_options();
        if let Some(memory) = self.memory {
            options.memory(memory.0);
        }
        let stages = Stages::new(context);
        options.progress(&stages.build);
        let build = stages.build.clone();
        let proved = move || Status { amount: Amount::Bytes(build.done()), ..Status::of_phase("salvage", 0) };
        let shown = stages.show(context.quiet, proved);
        let mut loader = options.create(&self.out)?;
        let mut told = Ok(());
        let report = salvage.write(&mut loader, |lost| {
            if told.is_ok() {
                told = Lost::of(lost).to_line().and_then(|line| progress::apart(&self.lost, || lines.write_all(&line)));
            }
        })?;
        unless_unread(told.and_then(|()| progress::apart(&self.lost, || lines.sync())))?;
        stages.all_read();
        let published = loader.finish()?;
        cleanup.done();
        drop(shown);
        unless_unread(lines.finish())?;
        context.say(report);
        context.say(format_args!("published {} of {}", published.generation, plural(published.content.keys, "key")));
        let lacks_manifest = foreign::lacks_manifest(salvage.directory())?;
        if lacks_manifest {
            let db = salvage.directory().display();
            warn(format_args!("sharddb: {db} has no manifest.json: whether shards are missing is unknown"));
        }
        Ok(if report.losses + report.other_files == 0 && !lacks_manifest { Exit::Done } else { Exit::Corrupt })
    }

    fn open(&self) -> Result<Salvage> {
        if is_container(&self.damaged)? {
            let db = self.damaged.display();
            return Err(Failure::usage(format!(
                "expected a database, found a container of another format: sharddb verify {db} names its damaged \
                 chunks, and sharddb export {db} writes the others"
            )));
        }
        Salvage::open_with(&self.damaged, &self.opening()?).map_err(|error| advise(&self.damaged, error))
    }

    /// Accepts an empty directory, and a store without a generation, which is what a killed run leaves.
    fn check_out(&self) -> Result<()> {
        let has_nothing = || fs::read_dir(&self.out).is_ok_and(|mut entries| entries.next().is_none());
        let has_no_generation =
            || Store::open(&self.out).and_then(|store| store.generations()).is_ok_and(|all| all.is_empty());
        let is_empty = || has_nothing() || has_no_generation();
        match fs::symlink_metadata(&self.out) {
            Ok(_) if !is_empty() => {
                Err(Failure::usage(format!("expected a new store, found {} there already", self.out.display())))
            }
            _ => Ok(()),
        }
    }

    /// Compares path names only, because OUT does not exist yet.
    fn check_lost(&self) -> Result<()> {
        let absolute = |path: &Path| std::path::absolute(path).map_err(|error| Failure::io("find", path, error));
        if absolute(&self.lost)?.starts_with(absolute(&self.out)?) {
            Err(Failure::usage(format!("expected --lost outside of OUT, found {} in it", self.lost.display())))
        } else {
            Ok(())
        }
    }

    fn warn_of_info(&self, salvage: &Salvage) {
        let info = salvage.directory().join("info");
        warn(format_args!(
            "sharddb: only the sharding of {} is kept in {}: the info cannot be read, or does not describe shards in a \
             place that a store can have",
            info.display(),
            self.out.display()
        ));
    }

    fn opening(&self) -> Result<OpenOptions> {
        let mut options = OpenOptions::new();
        options.max_value_bytes(self.max_value.0);
        if let Some(argument) = &self.sharding {
            options.spec(sharding::read(argument)?);
        }
        if let Some(pointer) = &self.sharding_at {
            options.sharding_at(pointer);
        }
        Ok(options)
    }
}

/// Ignores a broken pipe: the new store is published even if nobody reads the losses to the end.
fn unless_unread(told: Result<()>) -> Result<()> {
    if let Err(Failure::BrokenPipe) = told { Ok(()) } else { told }
}

impl Lost<'_> {
    fn of(finding: &Finding) -> Lost<'_> {
        let location = finding.location();
        Lost {
            shard: location.shard.map(|shard| shard.get()),
            minishard: location.minishard.map(|minishard| minishard.get()),
            key: finding.key().map(|key| key.to_string()),
            reason: finding.kind().as_str(),
            message: finding.message(),
            file: finding.path().map(|path| path.display().to_string()),
            offset: location.offset,
        }
    }

    fn to_line(&self) -> Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self).map_err(|error| Failure::stdout(error.into()))?;
        line.push(b'\n');
        Ok(line)
    }
}
