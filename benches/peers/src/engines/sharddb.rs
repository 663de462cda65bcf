//! ShardDb mapped with default options, and opened in other ways.

use std::ops::ControlFlow;
use std::path::Path;

use sharddb::{BuildOptions, OpenOptions, ShardDb, Snapshot, VerifyReads};

use crate::engine::{Engine, Peer};
use crate::input::Input;
use crate::reader::{Reader, Result, head};
use crate::slices::AnyReader;

/// Defaults: each byte is verified on first use.
pub const PEER: Peer = Peer { open_and_warm: Some(open_populated), ..Peer::new("sharddb", load, open) };

/// Verifies nothing.
pub const NEVER: Peer =
    Peer { open_and_warm: Some(open_never_populated), ..Peer::new("sharddb-never", load, open_never) };

/// Verifies on every read. Like all variants it has its own files: with shared files, one variant would find in the
/// processor's cache what another one has read.
pub const ALWAYS: Peer = Peer::new("sharddb-always", load, open_always);

/// Positioned reads: what is safe by default.
pub const OPEN: Peer = Peer { open_and_warm: Some(open_safe_populated), ..Peer::new("sharddb-open", load, open_safe) };

/// Loaded into memory.
pub const LOADED: Peer = Peer { open_and_warm: Some(open_loaded), ..Peer::new("sharddb-load", load, open_loaded) };

/// Prefetches the shard indexes on open, which pays if they are cold.
pub const READING_AHEAD: Peer = Peer::new("sharddb-ahead", load, open_reading_ahead);

/// Files without checks, to measure the disk space of checks.
pub const UNCHECKED: Peer = Peer { open: None, memory: |_| 0, ..Peer::new("sharddb-unchecked", load_unchecked, open) };

/// The opened database itself, for the workload that swaps generations.
pub fn open_db(directory: &Path) -> Result<ShardDb> {
    Ok(mapped(directory, &OpenOptions::new())?)
}

fn load(directory: &Path, input: &Input) -> Result<()> {
    load_with(&BuildOptions::new(), directory, input)
}

fn load_unchecked(directory: &Path, input: &Input) -> Result<()> {
    load_with(BuildOptions::new().checks(false), directory, input)
}

fn load_with(options: &BuildOptions, directory: &Path, input: &Input) -> Result<()> {
    let mut loader = options.create(directory)?;
    input.for_each(|key, value| Ok(loader.insert(key, value)?))?;
    loader.finish()?;
    Ok(())
}

fn open(directory: &Path) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Opened(open_db(directory)?)))
}

fn open_safe(directory: &Path) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Opened(ShardDb::open(directory)?)))
}

fn open_safe_populated(directory: &Path) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Opened(OpenOptions::new().populate(true).open(directory)?)))
}

fn open_populated(directory: &Path) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Opened(mapped(directory, OpenOptions::new().populate(true))?)))
}

fn open_never(directory: &Path) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Opened(mapped(directory, OpenOptions::new().verify_reads(VerifyReads::Never))?)))
}

fn open_never_populated(directory: &Path) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Opened(mapped(directory, OpenOptions::new().verify_reads(VerifyReads::Never).populate(true))?)))
}

fn open_always(directory: &Path) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Opened(mapped(directory, OpenOptions::new().verify_reads(VerifyReads::Always))?)))
}

fn open_loaded(directory: &Path) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Opened(OpenOptions::new().load(directory)?)))
}

fn open_reading_ahead(directory: &Path) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Opened(mapped(directory, OpenOptions::new().read_ahead_index(true))?)))
}

#[expect(unsafe_code, reason = "mapping is the caller's promise to leave the files alone")]
fn mapped(directory: &Path, options: &OpenOptions) -> sharddb::Result<ShardDb> {
    // SAFETY: the files are in a directory that this program created and does not edit.
    unsafe { options.open_mapped(directory) }
}

struct Opened(ShardDb);

impl Engine for Opened {
    fn read(&self, work: &mut dyn FnMut(&mut dyn AnyReader) -> Result<()>) -> Result<()> {
        work(&mut SnapshotReader(self.0.snapshot()))
    }

    fn request(&self, key: u64) -> Result<Option<u64>> {
        Ok(self.0.get(key)?.as_deref().map(head))
    }
}

struct SnapshotReader(Snapshot);

impl Reader for SnapshotReader {
    #[inline]
    fn get<T>(&mut self, key: u64, f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        Ok(self.0.get(key)?.map(|value| f(&value)))
    }

    fn get_many(&mut self, keys: &[u64], mut f: impl FnMut(Option<&[u8]>)) -> Result<()> {
        let failed = self.0.get_each(keys, |_, value| match value {
            Ok(value) => {
                f(value.as_deref());
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        });
        match failed {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error.into()),
        }
    }

    fn get_many_cold(&mut self, keys: &[u64], f: impl FnMut(Option<&[u8]>)) -> Result<()> {
        self.0.read_ahead(keys);
        self.get_many(keys, f)
    }

    fn scan(&mut self, mut f: impl FnMut(u64, &[u8])) -> Result<()> {
        let failed = self.0.scan(|pair| match pair {
            Ok((key, value)) => {
                f(key, &value);
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        });
        match failed {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error.into()),
        }
    }
}
