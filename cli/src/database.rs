//! DB: a store, a generation or a bare directory, or a container of another format; and how to open it.

use std::path::{Path, PathBuf};

use clap::{Arg, Args, ValueEnum};
use sharddb::container::bcolz::{BcolzArray, BcolzTable};
use sharddb::container::bloscpack::Bloscpack;
use sharddb::container::zarr::ZarrArray;
use sharddb::container::{Container, ContainerOptions};
use sharddb::{OpenOptions, ShardDb, Snapshot};

use crate::failure::{Failure, Result};
use crate::sharding;
use crate::size::Size;

/// The path of a database and how to open it.
#[derive(Clone, Debug, Args)]
pub(crate) struct Database {
    /// A store, one of its generations, or any directory of shards
    #[arg(value_name = "DB")]
    path: PathBuf,
    #[command(flatten)]
    opening: Opening,
}

impl Database {
    /// Opens the database and pins its generation.
    pub(crate) fn open(&self) -> Result<Snapshot> {
        self.opening.open(&self.path)
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
    /// Opens whatever is there; of a table the column that was named.
    pub(crate) fn open(&self) -> Result<Opened> {
        self.database.opening.open_any(self.path(), &self.column)
    }

    /// Opens the table that is there, if all of it is meant; `None` if there is none, or a column was named.
    pub(crate) fn open_table(&self) -> Result<Option<BcolzTable>> {
        let opening = &self.database.opening;
        match self.column.column {
            None if opening.is_table(self.path()) => opening.open_table(self.path()).map(Some),
            _ => Ok(None),
        }
    }

    /// Opens the database and pins its generation.
    pub(crate) fn open_database(&self) -> Result<Snapshot> {
        self.database.open()
    }

    /// The same database; without `verify`, no read compares the stored checks.
    pub(crate) fn verifying(&self, verify: bool) -> AnyDatabase {
        let mut same = self.clone();
        if !verify {
            same.database.opening.verify_reads = VerifyReads::Never;
        }
        same
    }

    pub(crate) fn path(&self) -> &Path {
        self.database.path()
    }
}

/// Which column of a table.
#[derive(Clone, Debug, Args)]
pub(crate) struct Column {
    /// The column, where DB is a bcolz table: its chunks are what the keys stand for. Same as DB/NAME
    #[arg(long, help_heading = HEADING, value_name = "NAME")]
    column: Option<String>,
}

/// What was found at a path.
pub(crate) enum Opened {
    /// A database, pinned.
    Sharded(Snapshot),
    /// An array, or another container.
    Container(Box<dyn Container>),
}

/// Where the help lists the options of [`Opening`]; each names it, since a heading for all of them would hold for what
/// follows them too.
const HEADING: &str = "How to open DB";

/// How to open a database.
///
/// Verbs that look up values map the files. Verbs that walk through all of a database read them, with
/// `#[command(mut_arg("storage", by_reading))]`: they are what one runs on damaged data, and just as fast.
#[derive(Clone, Debug, Args)]
pub(crate) struct Opening {
    /// How the files are read. An I/O error on a mapped file, such as a bad sector, ends the process with SIGBUS; with
    /// pread and heap it is an error message. A server that must not end so opens with open_pread or load
    #[arg(long, help_heading = HEADING, value_enum, value_name = "HOW", default_value_t = Storage::Mmap)]
    storage: Storage,
    /// The sharding specification of a directory without an info: the JSON object, or a file that is or has it
    #[arg(long, help_heading = HEADING, value_name = "FILE|JSON")]
    sharding: Option<String>,
    /// Where in the info the data set is described: the JSON pointer of the object that has "sharding"
    #[arg(long, help_heading = HEADING, value_name = "POINTER", conflicts_with = "sharding")]
    sharding_at: Option<String>,
    /// When the bytes that are read are compared with the checks that ShardDb stores: once is when they are first used
    #[arg(long, help_heading = HEADING, value_enum, value_name = "WHEN", default_value_t = VerifyReads::Once)]
    verify_reads: VerifyReads,
    /// The most bytes that a compressed value may have when decoded
    #[arg(long, help_heading = HEADING, value_name = "SIZE", default_value = "1GiB")]
    max_value: Size,
}

/// When reads compare bytes with their checks.
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

/// Where bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Storage {
    /// Mapped: nothing is copied; the files must not be edited meanwhile, and their disk must be sound
    Mmap,
    /// Positioned reads: for damaged disks, network file systems, and files that change
    Pread,
    /// All in memory
    Heap,
}

/// Makes positioned reads the default of an argument `--storage`.
pub(crate) fn by_reading(storage: Arg) -> Arg {
    storage.default_value("pread")
}

impl Opening {
    /// Opens whatever is at `path`; of a table the column that was named.
    ///
    /// Errors: `Usage` for a table without a column, or a column of something else.
    pub(crate) fn open_any(&self, path: &Path, column: &Column) -> Result<Opened> {
        match (&column.column, self.is_table(path)) {
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

    fn is_table(&self, path: &Path) -> bool {
        !self.is_described() && BcolzTable::is_at(path)
    }

    fn open_table(&self, path: &Path) -> Result<BcolzTable> {
        Ok(BcolzTable::open_with(path, &self.container_options())?)
    }

    /// Opens the database at `path` and pins its generation.
    ///
    /// Errors: `Usage` if there is a container of another format.
    pub(crate) fn open(&self, path: &Path) -> Result<Snapshot> {
        if is_container(path) {
            let path = path.display();
            return Err(Failure::usage(format!(
                "expected a database, found a container of another format: first make a store of it with sharddb \
                 import {path} STORE"
            )));
        }
        self.open_database(path)
    }

    /// Opens a container of another format; `None` if there is none.
    fn open_container(&self, path: &Path) -> Result<Option<Box<dyn Container>>> {
        if self.is_described() || !is_container(path) {
            return Ok(None);
        }
        let options = self.container_options();
        let container: Box<dyn Container> = match path {
            zarr if ZarrArray::is_at(zarr) => Box::new(ZarrArray::open_with(zarr, &options)?),
            file if Bloscpack::is_at(file) => Box::new(Bloscpack::open_with(file, &options)?),
            array => Box::new(BcolzArray::open_with(array, &options)?),
        };
        Ok(Some(container))
    }

    /// Whether it is said where or what the sharding is: then it is a data set of ours.
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
        path.metadata().map_err(|error| Failure::io("open", path, error))?;
        let mut options = OpenOptions::new();
        options.check_shards(false); // the verbs name what cannot be read, and read the rest
        options.verify_reads(self.verify_reads.into()).max_value_bytes(self.max_value.0);
        if let Some(argument) = &self.sharding {
            options.spec(sharding::read(argument)?);
        }
        if let Some(pointer) = &self.sharding_at {
            options.pointer(pointer);
        }
        let db = match self.storage {
            Storage::Mmap => open_mapped(&options, path)?,
            Storage::Pread => options.open_pread(path)?,
            Storage::Heap => options.load(path)?,
        };
        Ok(db.snapshot())
    }
}

fn want_column(table: &BcolzTable) -> Failure {
    let names: Vec<_> = table.columns().map(|(name, _)| name).collect();
    Failure::usage(format!("expected --column with a table of columns: one of {}", names.join(", ")))
}

fn is_container(path: &Path) -> bool {
    ZarrArray::is_at(path) || BcolzArray::is_at(path) || BcolzTable::is_at(path) || Bloscpack::is_at(path)
}

#[expect(unsafe_code, reason = "the promise of a mapped open is passed on to the user, in the help of --storage")]
fn map(options: &mut ContainerOptions) {
    // SAFETY: as below; our own updates replace files by rename.
    unsafe { options.map() };
}

#[expect(unsafe_code, reason = "the promise of a mapped open is passed on to the user, in the help of --storage")]
fn open_mapped(options: &OpenOptions, path: &Path) -> Result<ShardDb> {
    // SAFETY: the user promises that nobody truncates or edits the files while they are mapped, which lasts as long
    // as this process at most; published files are read-only, and --storage pread is there for others.
    Ok(unsafe { options.open(path) }?)
}
