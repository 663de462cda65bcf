//! The argument DB: a store, a generation, a bare directory or a container of another format, and how to open it.

use std::fs;
use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};

use clap::{Arg, Args, ValueEnum};
use sharddb::{ErrorKind, OpenOptions, ShardDb, ShardingSpec, Snapshot};
use sharddb_container::bcolz::{BcolzArray, BcolzTable};
use sharddb_container::bloscpack::Bloscpack;
use sharddb_container::zarr::ZarrArray;
use sharddb_container::{Container, ContainerOptions};

use crate::context::Context;
use crate::entry;
use crate::failure::{Failure, Result};
use crate::not_a_database;
use crate::output::Sources;
use crate::remote::url::{path_or_url, refuse_url, url_of};
use crate::remote::{RemoteDatabase, RemoteOpening};
use crate::sharding;
use crate::size::Size;

/// The path of a database and how to open it.
#[derive(Clone, Debug, Args)]
pub(crate) struct Database {
    /// A store, one of its generations, or any directory of shards; a path or a URL
    #[arg(value_name = "DB", value_parser = path_or_url())]
    path: PathBuf,
    #[command(flatten)]
    opening: Opening,
}

impl Database {
    /// Opens the database and pins its generation.
    pub(crate) fn open(&self) -> Result<Snapshot> {
        self.opening.open(&self.path)
    }

    /// Opens the data set in an object store or on a web server; `None` if DB is a path.
    ///
    /// Errors: `Usage` for an option that has no effect there, those of [`RemoteDatabase::open`].
    pub(crate) fn open_remote(&self, at_url: &RemoteOpening, context: &Context) -> Result<Option<RemoteDatabase>> {
        self.opening.open_remote(&self.path, at_url, context)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The path of a database or of a container of another format, and how to open it.
#[derive(Clone, Debug, Args)]
pub(crate) struct AnyDatabase {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    column: Column,
}

impl AnyDatabase {
    /// Opens the database or container; a table is opened as the named column.
    pub(crate) fn open(&self) -> Result<Opened> {
        self.database.opening.open_any(self.path(), &self.column)
    }

    /// Opens the data set in an object store or on a web server; `None` if DB is a path.
    ///
    /// Errors: `Usage` for an option that has no effect there, those of [`RemoteDatabase::open`].
    pub(crate) fn open_remote(&self, at_url: &RemoteOpening, context: &Context) -> Result<Option<RemoteDatabase>> {
        let remote = self.database.open_remote(at_url, context)?;
        match (&remote, &self.column.column) {
            (Some(remote), Some(_)) => {
                Err(Failure::usage(format!("--column is for bcolz tables, found {}", remote.url())))
            }
            _ => Ok(remote),
        }
    }

    /// Opens the table if the path is one and no column was named; otherwise `None`.
    pub(crate) fn open_table(&self) -> Result<Option<BcolzTable>> {
        let opening = &self.database.opening;
        refuse_url(self.path())?;
        match self.column.column {
            None if opening.is_table(self.path())? => opening.open_table(self.path()).map(Some),
            _ => Ok(None),
        }
    }

    /// Opens the database and pins its generation.
    pub(crate) fn open_database(&self) -> Result<Snapshot> {
        self.database.open()
    }

    /// The same database, whose walks compare each file with the manifest. With `verify` false they do not, and reads do
    /// not verify the stored checks.
    pub(crate) fn verifying(&self, verify: bool) -> AnyDatabase {
        let mut same = self.clone();
        same.database.opening.verify_files = verify;
        if !verify {
            same.database.opening.verify_reads = Some(VerifyReads::Never);
        }
        same
    }

    pub(crate) fn path(&self) -> &Path {
        self.database.path()
    }

    /// The path of what is opened: of the column, if one is named.
    pub(crate) fn opened_path(&self) -> PathBuf {
        self.column.column.as_ref().map_or_else(|| self.path().to_path_buf(), |column| self.path().join(column))
    }
}

/// Which column of a table.
#[derive(Clone, Debug, Args)]
pub(crate) struct Column {
    /// For a bcolz table: the column whose chunks the keys number. Same as DB/NAME
    #[arg(long, help_heading = HEADING, value_name = "NAME")]
    column: Option<String>,
}

/// A path, opened.
pub(crate) enum Opened {
    /// A database, pinned.
    Sharded(Snapshot),
    /// An array, or another container.
    Container(Box<dyn Container>),
}

impl Opened {
    /// What an output must not be in: what was opened at `path`, also its shards elsewhere.
    pub(crate) fn sources(&self, path: &Path) -> Sources {
        let shards = match self {
            Opened::Sharded(snapshot) => Some(snapshot.shards_directory()),
            Opened::Container(_) => None,
        };
        Sources::of(shards.into_iter().chain([path]))
    }
}

/// The help heading of the options of [`Opening`]. Each option names it, because a heading of the struct would apply
/// to all options after it too.
const HEADING: &str = "How to open DB";

/// How to open a database.
#[derive(Clone, Debug, Args)]
pub(crate) struct Opening {
    /// How the files are read. An I/O error on a mapped file, such as a bad sector, kills the process with SIGBUS; with
    /// pread and heap it is an error message
    #[arg(long, help_heading = HEADING, value_enum, value_name = "HOW", default_value_t = Storage::Pread)]
    storage: Storage,
    /// The sharding specification of a directory without an info: a JSON object, or a file that contains it
    #[arg(long, help_heading = HEADING, value_name = "FILE|JSON")]
    sharding: Option<String>,
    /// Where the info describes the data set: the JSON pointer of the object that has "sharding"
    #[arg(long, help_heading = HEADING, value_name = "POINTER", value_parser = parse_pointer, conflicts_with = "sharding")]
    sharding_at: Option<String>,
    /// When reads verify the checks that ShardDb stores; once means on first use. Only for data sets with checks.
    /// Default: once
    #[arg(long, help_heading = HEADING, value_enum, value_name = "WHEN")]
    verify_reads: Option<VerifyReads>,
    /// Upper bound on the decoded length of a compressed value
    #[arg(long, help_heading = HEADING, value_name = "SIZE", default_value = "1GiB")]
    max_value: Size,
    /// Whether walks compare each file with the manifest. Set by the subcommands that make new data of old.
    #[arg(skip)]
    verify_files: bool,
}

/// How to open a database of which a new store is made. It is read by positioned reads.
#[derive(Clone, Debug, Args)]
pub(crate) struct SourceOpening {
    /// The specification of the new store, and of a source without an info: a JSON object, or a file that contains it
    #[arg(long, value_name = "FILE|JSON")]
    sharding: Option<String>,
    /// Where the info of a source describes the data set: the JSON pointer of the object that has "sharding"
    #[arg(long, value_name = "POINTER", value_parser = parse_pointer)]
    sharding_at: Option<String>,
    /// Upper bound on the decoded length of a compressed value
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    max_value: Size,
}

impl SourceOpening {
    /// Opens a source and pins its generation.
    pub(crate) fn open(&self, path: &Path) -> Result<Snapshot> {
        let SourceOpening { sharding, sharding_at, max_value } = self.clone();
        let (storage, verify_reads, verify_files) = (Storage::Pread, None, true);
        let mut opening = Opening { storage, sharding, sharding_at, verify_reads, max_value, verify_files };
        opening.sharding_of_new_store(path)?;
        opening.open(path)
    }

    /// The specification of the new store, if it is given.
    pub(crate) fn spec(&self) -> Result<Option<ShardingSpec>> {
        self.sharding.as_deref().map(sharding::read).transpose()
    }
}

/// When reads verify checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerifyReads {
    Never,
    Once,
    Always,
}

impl From<VerifyReads> for sharddb::VerifyReads {
    fn from(verify: VerifyReads) -> sharddb::VerifyReads {
        match verify {
            VerifyReads::Never => Self::Never,
            VerifyReads::Once => Self::Once,
            VerifyReads::Always => Self::Always,
        }
    }
}

/// How files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Storage {
    /// Memory-mapped: for many lookups in files that are in memory. The files must not be edited meanwhile, and their disk
    /// must be sound
    Mmap,
    /// Positioned reads, several at a time from a disk
    Pread,
    /// Loaded into memory
    Heap,
}

/// The options of [`Opening`] under a heading for a command whose argument is not DB. Use in `#[command(mut_args(..))]`.
pub(crate) fn headed(heading: &'static str) -> impl Fn(Arg) -> Arg {
    move |arg| match arg.get_help_heading() {
        Some(HEADING) => arg.help_heading(heading),
        _ => arg,
    }
}

impl Opening {
    /// For a subcommand with several databases: opens one of them with `--sharding` only if it has no info, and with
    /// `--sharding-at` only if its info has no "sharding" at the top.
    ///
    /// Errors: those of [`open`](Opening::open).
    pub(crate) fn open_one_of_several(&self, path: &Path) -> Result<Snapshot> {
        let mut own = self.clone();
        if has_info(path)? {
            own.sharding = None;
        }
        if has_sharding_at_top(path)? {
            own.sharding_at = None;
        }
        own.open(path)
    }

    /// For a subcommand whose `--sharding` is that of a new store: returns it, and opens the source with it only if the
    /// source is shards without an info.
    ///
    /// Errors: `Io`.
    pub(crate) fn sharding_of_new_store(&mut self, source: &Path) -> Result<Option<String>> {
        let sharding = self.sharding.clone();
        if has_info(source)? || !entry::is_dir(source)? || is_container(source)? {
            self.sharding = None;
        }
        Ok(sharding)
    }

    /// The specification that `--sharding` states, if it is given.
    pub(crate) fn spec(&self) -> Result<Option<ShardingSpec>> {
        self.sharding.as_deref().map(sharding::read).transpose()
    }

    /// Makes reads not verify the stored checks.
    pub(crate) fn never_verify(&mut self) {
        self.verify_reads = Some(VerifyReads::Never);
    }

    /// Refuses options of databases for a container of another format.
    ///
    /// Errors: `Usage`.
    pub(crate) fn refuse_without_effect(&self, path: &Path) -> Result<()> {
        if !is_container(path)? || has_info(path)? {
            return Ok(());
        }
        let at = self.sharding_at.as_ref().map(|_| "--sharding-at");
        let verify = self.verify_reads.map(|_| "--verify-reads");
        at.or(verify).map_or(Ok(()), |option| {
            let path = path.display();
            Err(Failure::usage(format!(
                "{option} is for databases and has no effect on {path}, a container of another format: leave it out"
            )))
        })
    }

    /// Opens the database or container at `path`; a table is opened as the named column.
    ///
    /// Errors: `Usage` for a table without a column name, or a column name for anything else.
    pub(crate) fn open_any(&self, path: &Path, column: &Column) -> Result<Opened> {
        refuse_url(path)?;
        match (&column.column, self.is_table(path)?) {
            (Some(name), true) => {
                return Ok(Opened::Container(Box::new(self.open_table(path)?.into_column(name)?)));
            }
            (Some(_), false) => {
                let path = path.display();
                return Err(Failure::usage(format!("--column is for bcolz tables, found something else at {path}")));
            }
            (None, true) => return Err(want_column(&self.open_table(path)?)),
            (None, false) => {}
        }
        match self.open_container(path)? {
            Some(container) => Ok(Opened::Container(container)),
            None => self.open_database(path).map(Opened::Sharded),
        }
    }

    fn is_table(&self, path: &Path) -> Result<bool> {
        Ok(!self.is_described() && BcolzTable::is_at(path)?)
    }

    fn open_table(&self, path: &Path) -> Result<BcolzTable> {
        Ok(BcolzTable::open_with(path, &self.container_options())?)
    }

    /// Opens the database at `path` and pins its generation.
    ///
    /// Errors: `Usage` if the path is a container of another format.
    pub(crate) fn open(&self, path: &Path) -> Result<Snapshot> {
        refuse_url(path)?;
        if is_container(path)? {
            let path = path.display();
            return Err(Failure::usage(format!(
                "expected a database, found a container of another format: build a store from it first with sharddb \
                 import {path} STORE"
            )));
        }
        self.open_database(path)
    }

    /// Opens the data set in an object store or on a web server; `None` if the argument is a path.
    fn open_remote(
        &self,
        argument: &Path,
        at_url: &RemoteOpening,
        context: &Context,
    ) -> Result<Option<RemoteDatabase>> {
        match (url_of(argument)?, self.verify_reads) {
            (None, _) => at_url.refuse_for_path(argument)?,
            (Some(url), Some(VerifyReads::Never)) => {
                return Err(Failure::usage(format!("reads of {url} always verify: leave out --verify-reads never")));
            }
            (Some(_), _) => {}
        }
        let spec = self.spec()?;
        RemoteDatabase::open(argument, context, |options| {
            options.max_value_bytes(self.max_value.0);
            if let Some(spec) = spec {
                options.spec(spec);
            }
            if let Some(pointer) = &self.sharding_at {
                options.sharding_at(pointer);
            }
            at_url.set(options)
        })
    }

    /// Opens a container of another format; `None` if the path is not one.
    fn open_container(&self, path: &Path) -> Result<Option<Box<dyn Container>>> {
        if self.is_described() || !is_container(path)? {
            return Ok(None);
        }
        let options = self.container_options();
        let container: Box<dyn Container> = match path {
            zarr if ZarrArray::is_at(zarr)? => Box::new(ZarrArray::open_with(zarr, &options)?),
            file if Bloscpack::is_at(file)? => Box::new(Bloscpack::open_with(file, &options)?),
            array => Box::new(BcolzArray::open_with(array, &options)?),
        };
        Ok(Some(container))
    }

    /// Whether the command line states the sharding or where it is. Then the path is a database, not a container.
    fn is_described(&self) -> bool {
        self.sharding.is_some() || self.sharding_at.is_some()
    }

    fn container_options(&self) -> ContainerOptions {
        let mut options = ContainerOptions::new();
        options.max_chunk_bytes(self.max_value.0);
        match self.storage {
            Storage::Mmap => map(&mut options),
            Storage::Pread => {}
            Storage::Heap => drop(options.load()),
        }
        options
    }

    fn open_database(&self, path: &Path) -> Result<Snapshot> {
        let mut options = OpenOptions::new();
        options.check_shards(false); // subcommands report unreadable shards and continue with the others
        options.verify_files(self.verify_files && self.verify_reads != Some(VerifyReads::Never));
        options.verify_reads(self.verify_reads.unwrap_or(VerifyReads::Once).into()).max_value_bytes(self.max_value.0);
        if let Some(argument) = &self.sharding {
            options.spec(sharding::read(argument)?);
        }
        if let Some(pointer) = &self.sharding_at {
            options.sharding_at(pointer);
        }
        let opened = match self.storage {
            Storage::Mmap => open_mapped(&options, path),
            Storage::Pread => options.open(path),
            Storage::Heap => options.load(path),
        };
        let snapshot = opened.map(|db| db.snapshot()).map_err(|error| advise(path, error))?;
        self.check_verify_reads(&snapshot)?;
        Ok(snapshot)
    }

    /// Refuses an explicit --verify-reads that would verify nothing.
    fn check_verify_reads(&self, snapshot: &Snapshot) -> Result<()> {
        let has_checks = snapshot.layout().is_some_and(|layout| layout.checks);
        match self.verify_reads {
            Some(VerifyReads::Once | VerifyReads::Always) if !has_checks => Err(Failure::usage(format!(
                "--verify-reads is for data sets with checks, found none in {}",
                snapshot.directory().display()
            ))),
            _ => Ok(()),
        }
    }
}

/// Checks a JSON pointer (RFC 6901). Errors: the message.
pub(crate) fn parse_pointer(text: &str) -> std::result::Result<String, String> {
    if text.is_empty() || text.starts_with('/') {
        Ok(text.to_string())
    } else {
        Err(format!("expected a JSON pointer, which begins with /: /{text}"))
    }
}

/// Adds to an error of opening `path` what the user of the command can do.
pub(crate) fn advise(path: &Path, error: sharddb::Error) -> Failure {
    match error.kind() {
        ErrorKind::NotFound => not_a_database::failure(path),
        _ if matches!(not_a_database::is_copy_of_store(path), Ok(true)) => not_a_database::failure(path),
        _ if error.io_kind() == Some(NotFound) && matches!(has_info(path), Ok(false)) => not_a_database::failure(path),
        // the pointer is missing or wrong
        ErrorKind::InvalidInput => Failure::usage(format!("{error}: see --sharding-at")),
        _ => error.into(),
    }
}

/// Whether the path leads to a file `info`, as every database without --sharding does.
fn has_info(path: &Path) -> Result<bool> {
    Ok(entry::exists(&path.join("info"))? || entry::exists(&path.join("current/info"))?)
}

/// Whether the info has a "sharding" that is not nested.
///
/// Errors: `Io` if it cannot be read.
fn has_sharding_at_top(path: &Path) -> Result<bool> {
    for info in [path.join("current/info"), path.join("info")] {
        if entry::exists(&info)? {
            let text = fs::read_to_string(&info).map_err(|error| Failure::io("read", &info, error))?;
            return Ok(sharding::member(&text).is_some());
        }
    }
    Ok(false)
}

fn want_column(table: &BcolzTable) -> Failure {
    let names: Vec<_> = table.columns().map(|(name, _)| name).collect();
    Failure::usage(format!("expected --column with the name of a column of the table: one of {}", names.join(", ")))
}

/// Whether the path is an array, a table or a file of another format.
///
/// Errors: `Io` if that cannot be determined.
pub(crate) fn is_container(path: &Path) -> Result<bool> {
    let is_bcolz = || Ok::<_, Failure>(BcolzArray::is_at(path)? || BcolzTable::is_at(path)?);
    Ok(ZarrArray::is_at(path)? || is_bcolz()? || Bloscpack::is_at(path)?)
}

#[expect(unsafe_code, reason = "the promise of a mapped open is passed on to the user, in the help of --storage")]
fn map(options: &mut ContainerOptions) {
    // SAFETY: as in `open_mapped`; this program's own updates replace files by rename.
    unsafe { options.map() };
}

#[expect(unsafe_code, reason = "the promise of a mapped open is passed on to the user, in the help of --storage")]
fn open_mapped(options: &OpenOptions, path: &Path) -> sharddb::Result<ShardDb> {
    // SAFETY: the user promises not to truncate or edit the files while they are mapped, which is at most the
    // lifetime of this process. Published files are read-only, and --storage pread serves files that may change.
    unsafe { options.open_mapped(path) }
}
