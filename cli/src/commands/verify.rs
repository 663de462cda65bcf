//! `verify`: checks a data set against the rules of its format.

use std::io::Write;

use clap::ValueEnum;
use serde::Serialize;
use sharddb::verify::{Finding, Severity, VerifyReport};
use sharddb::{Snapshot, VerifyLevel, VerifyOptions};

use crate::commands::write_json;
use crate::context::{self, Context};
use crate::database::{AnyDatabase, Opened};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::number::plural;
use crate::printable;
use crate::progress::{Display, Status};
use crate::remote::{Call, RemoteStore};

/// Check a database against every rule of the format and against its manifest
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb verify numbers
  sharddb verify numbers --level index
  sharddb verify numbers --json | jq '.findings[] | select(.severity == \"error\")'

Prints one finding per line: severity, what was expected and found, file, shard, minishard, key, and
the rule in brackets. An error makes some read fail; a warning is legal, but another reader may not
accept it; a note is information. An array or another container is checked in the same way, and its
chunks and files are counted; a bcolz table is checked with all columns, or with that of --column.

A store at a URL is compared with its manifest: with --level structure the lengths of all objects,
with --level data also all bytes. With --json, the members there are \"generation\", \"objects\",
\"bytes\", \"errors\" and \"findings\", an array of messages.

Exit codes: 3 with errors, and with warnings in a store that ShardDb wrote; 4 if all of them are
files that could not be read; otherwise 0.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: AnyDatabase,
    /// How much to check
    #[arg(long, value_enum, default_value_t = Level::Data)]
    level: Level,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How much to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    /// Files, their lengths, shard indexes
    Structure,
    /// Also minishard indexes: locations of keys, duplicates, overlaps, gaps
    Index,
    /// Also every byte: values, checks, entire files
    Data,
}

impl From<Level> for VerifyLevel {
    fn from(level: Level) -> VerifyLevel {
        match level {
            Level::Structure => VerifyLevel::Structure,
            Level::Index => VerifyLevel::Index,
            Level::Data => VerifyLevel::Data,
        }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    level: &'a str,
    #[serde(flatten)]
    counts: Counts,
    errors: u64,
    warnings: u64,
    notes: u64,
    /// Findings that are counted but not listed, because there are too many.
    dropped: u64,
    findings: Vec<Found<'a>>,
}

/// The totals of what was checked.
#[derive(Serialize)]
#[serde(untagged)]
enum Counts {
    Database { shards: u64, minishards: u64, keys: u64, value_bytes: u64 },
    Container { files: u64, chunks: u64, chunk_bytes: u64 },
}

#[derive(Serialize)]
struct Found<'a> {
    severity: &'a str,
    kind: &'a str,
    message: &'a str,
    file: Option<String>,
    shard: Option<u64>,
    minishard: Option<u64>,
    key: Option<String>,
    offset: Option<u64>,
}

/// Whether a file could not be read, so that nothing is known of it. A file that is missing is damage.
fn is_unread(finding: &Finding) -> bool {
    let is_absent = finding.error().io_kind() == Some(std::io::ErrorKind::NotFound);
    finding.error().raw_os_error().is_some() && !is_absent
}

/// The report of a verification, and what kind of data set it is about.
struct Verified {
    report: VerifyReport,
    is_container: bool,
    is_ours: bool,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        if let Some(remote) = RemoteStore::open(self.database.path())? {
            return self.verify_remote(&remote, context);
        }
        let Verified { report, is_container, is_ours } = self.verify(context)?;
        if self.json {
            let counts = if is_container { Counts::of_container(&report) } else { Counts::of_database(&report) };
            write_json(&Report::of(&report, counts))?;
        } else {
            let mut out = context::stdout();
            for finding in report.findings() {
                writeln!(out, "{}", printable::line(finding)).map_err(Failure::stdout)?;
            }
            context::flush(out)?;
        }
        if report.dropped() > 0 {
            context.say(format_args!("{} more counted, but not listed", plural(report.dropped(), "finding")));
        }
        context.say(&report);
        // warnings are legal in foreign data, but not in a store that ShardDb wrote
        let counts = |severity| severity == Severity::Error || is_ours && severity == Severity::Warning;
        let mut wrong = report.findings().iter().filter(|finding| counts(finding.severity()));
        Ok(match report.is_clean() && !(is_ours && report.warnings() > 0) {
            true => Exit::Done,
            false if report.dropped() == 0 && wrong.all(is_unread) => Exit::Io,
            false => Exit::Corrupt,
        })
    }

    /// Compares the objects of a generation at a URL with its manifest.
    fn verify_remote(&self, remote: &RemoteStore, context: &Context) -> Result<Exit> {
        let call = Call { context, json: self.json };
        match self.level {
            Level::Structure => remote.verify(false, call),
            Level::Data => remote.verify(true, call),
            Level::Index => Err(Failure::usage(
                "expected --level structure or data for a URL: the indexes are verified after sharddb pull",
            )),
        }
    }

    fn verify(&self, context: &Context) -> Result<Verified> {
        let of_container = |report| Verified { report, is_container: true, is_ours: false };
        if let Some(table) = self.database.open_table()? {
            let _progress = Display::start(context.quiet, || Status::of_phase("verify", 0));
            return Ok(of_container(table.verify(self.level.into())?));
        }
        match self.database.open()? {
            Opened::Sharded(snapshot) => {
                let (report, is_ours) = (self.verify_database(&snapshot, context)?, snapshot.layout().is_some());
                Ok(Verified { report, is_container: false, is_ours })
            }
            Opened::Container(container) => {
                let progress = context.interrupt.progress();
                let _shown = Display::count(context.quiet, "verify", &progress);
                Ok(of_container(container.verify_with(self.level.into(), VerifyOptions::new().progress(&progress))?))
            }
        }
    }

    fn verify_database(&self, snapshot: &Snapshot, context: &Context) -> Result<VerifyReport> {
        let progress = context.interrupt.progress();
        let _shown = Display::count(context.quiet, "verify", &progress);
        Ok(snapshot.verify_with(self.level.into(), VerifyOptions::new().progress(&progress))?)
    }
}

impl Counts {
    fn of_database(report: &VerifyReport) -> Counts {
        let VerifyReport { shards, minishards, keys, value_bytes, .. } = *report;
        Counts::Database { shards, minishards, keys, value_bytes }
    }

    fn of_container(report: &VerifyReport) -> Counts {
        let VerifyReport { shards: files, keys: chunks, value_bytes: chunk_bytes, .. } = *report;
        Counts::Container { files, chunks, chunk_bytes }
    }
}

impl Report<'_> {
    fn of(report: &VerifyReport, counts: Counts) -> Report<'_> {
        Report {
            level: report.level.as_str(),
            counts,
            errors: report.errors(),
            warnings: report.warnings(),
            notes: report.notes(),
            dropped: report.dropped(),
            findings: report.findings().iter().map(Found::of).collect(),
        }
    }
}

impl Found<'_> {
    fn of(finding: &Finding) -> Found<'_> {
        let location = finding.location();
        Found {
            severity: finding.severity().as_str(),
            kind: finding.kind().as_str(),
            message: finding.message(),
            file: finding.path().map(|path| path.display().to_string()),
            shard: location.shard.map(|shard| shard.get()),
            minishard: location.minishard.map(|minishard| minishard.get()),
            key: finding.key().map(|key| key.to_string()),
            offset: location.offset,
        }
    }
}
