//! A store: the directory of generations, of which one is current.
//!
//! ```text
//! store/
//!   current -> gen-0000000003     swapped by rename; the one thing that is ever changed
//!   lock                          one writer at a time
//!   gen-0000000003/               immutable: info, manifest.json, lease, shard files, minishard_pages
//!   tmp-..                        a writer's; removed by the next one if that writer died
//! ```
//!
//! [`Store`] looks; [`StoreWriter`] has the lock and publishes, rolls back and collects. What stands in a shard is
//! nobody's business here.

mod adopt;
mod cancel;
mod current;
pub(crate) mod fs;
mod gc;
mod generation_id;
#[cfg(test)]
#[cfg(all(unix, feature = "failpoints"))]
mod kill_tests;
mod lease;
mod lock;
mod publish;
mod scratch;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::manifest;

pub(crate) use self::cancel::Cancel;
pub use self::gc::GcReport;
pub use self::generation_id::GenerationId;
pub(crate) use self::lease::{FILE_NAME as LEASE, Lease, LeasedGeneration};
pub(crate) use self::publish::PendingGeneration;

use self::adopt::Foreign;
use self::lock::Lock;
use self::publish::SharedLock;

/// The name of the file in a generation that makes it a data set.
const INFO: &str = "info";

/// A directory of generations, one of which is current.
///
/// Looking at it takes no lock and never waits for a writer.
///
/// ```
/// # let directory = std::env::temp_dir().join(format!("sharddb-doc-{}", std::process::id()));
/// use sharddb::Store;
///
/// let store = Store::create(&directory)?;
/// assert_eq!(store.current()?, None);
/// assert!(store.generations()?.is_empty());
/// let writer = store.writer()?;
/// assert!(store.writer().is_err(), "one at a time");
/// # std::fs::remove_dir_all(&directory).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Store {
    path: PathBuf,
}

/// A generation as [`Store::generations`] lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredGeneration {
    /// Its number.
    pub id: GenerationId,
    /// It has its manifest, which is written last.
    pub is_complete: bool,
    /// It is the one that `current` names.
    pub is_current: bool,
}

impl Store {
    /// Whether the directory is a store with a current generation, rather than a bare generation or anything else.
    pub fn is_at(path: impl AsRef<Path>) -> bool {
        fs::exists(&path.as_ref().join(current::FILE_NAME))
    }

    /// Opens the store at `path`, making an empty one if there is none.
    ///
    /// Errors: `InvalidInput` if the directory is a bare generation: a store would hide what is in it. `Io`.
    pub fn create(path: impl AsRef<Path>) -> Result<Store> {
        let path = fs::absolute(path.as_ref())?;
        if is_store(&path) {
            return Ok(Store { path });
        }
        if fs::exists(&path.join(INFO)) {
            let message = "expected a store or a place for one, found a data set: adopt it into a store elsewhere";
            return Err(Error::invalid_input(message).at_path(&path));
        }
        fs::create_dir_all(&path)?;
        fs::open_or_create(&path.join(lock::FILE_NAME))?;
        fs::fsync_dir(&path)?;
        Ok(Store { path })
    }

    /// Opens the store at `path`.
    ///
    /// Errors: `InvalidInput` if there is none.
    pub fn open(path: impl AsRef<Path>) -> Result<Store> {
        let path = fs::absolute(path.as_ref())?;
        if !is_store(&path) {
            let message = "expected a store, a directory with the link current, found none";
            return Err(Error::invalid_input(message).at_path(&path));
        }
        Ok(Store { path })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The current generation; `None` if nothing was published.
    ///
    /// Errors: `Corrupt` if `current` names anything but a generation of this store.
    pub fn current(&self) -> Result<Option<GenerationId>> {
        current::read(&self.path)
    }

    /// All generations, ascending. Costs one look at each.
    ///
    /// Errors: `Corrupt` if `current` names anything but a generation of this store.
    pub fn generations(&self) -> Result<Vec<StoredGeneration>> {
        let current = self.current()?;
        let stored =
            |id| StoredGeneration { id, is_complete: is_complete(&self.path, id), is_current: current == Some(id) };
        Ok(generations(&self.path)?.into_iter().map(stored).collect())
    }

    /// Locks the store for writing, without waiting, and removes what writers that died left.
    ///
    /// Readers do not notice. The lock lasts until the writer and its generations in the making are dropped.
    ///
    /// Errors: `Locked` if there is another writer.
    pub fn writer(&self) -> Result<StoreWriter> {
        let lock = Lock::acquire(&self.path)?;
        scratch::clear(&self.path)?;
        Ok(StoreWriter { path: self.path.clone(), lock: Arc::new(Mutex::new(lock)), cancel: Cancel::default() })
    }
}

/// The one writer of a store: publishes, rolls back, collects.
///
/// Readers that have a generation open keep it; those that follow `current` see the old or the new one, whole.
#[derive(Debug)]
pub struct StoreWriter {
    path: PathBuf,
    lock: SharedLock,
    cancel: Cancel,
}

impl StoreWriter {
    /// A flag that makes an adoption stop with `Cancelled` soon after it is set. Default: none.
    pub fn cancel(&mut self, cancel: Arc<AtomicBool>) -> &mut StoreWriter {
        self.cancel = Cancel::by(cancel);
        self
    }

    /// A generation in the making. Its spills go under `temp_root`, else into the store.
    ///
    /// Errors: `Corrupt` if `current` is; `Io`.
    pub(crate) fn begin(&self, temp_root: Option<&Path>) -> Result<PendingGeneration> {
        PendingGeneration::begin(&self.path, &self.lock, temp_root)
    }

    /// Publishes a copy of a generation that was built elsewhere: a directory with a `manifest.json`.
    ///
    /// Costs reading all of it once. Files that are neither shards nor `info` are not copied.
    ///
    /// Errors: `InvalidInput` if it has no manifest; `Corrupt` if the manifest, `info` and the shard files do not fit
    /// in any checksum, length or name; `Unsupported` if it is of a later version; `Cancelled`.
    pub fn adopt(&self, directory: impl AsRef<Path>) -> Result<GenerationId> {
        Foreign::open(directory.as_ref(), self.cancel.clone())?.publish_copy(&self.path, &self.lock)
    }

    /// Publishes a generation that was built elsewhere by moving its directory into the store.
    ///
    /// Costs reading all of it once. The files become read-only. On another file system it is copied as by
    /// [`adopt`](Self::adopt) and stays where it is.
    ///
    /// Errors: as of [`adopt`](Self::adopt), and `InvalidInput` if it is a generation of a store or has links for files.
    pub fn adopt_by_moving(&self, directory: impl AsRef<Path>) -> Result<GenerationId> {
        Foreign::open(directory.as_ref(), self.cancel.clone())?.publish_moved(&self.path, &self.lock)
    }

    /// Makes another generation current: `to`, or the newest complete one before the current one.
    ///
    /// Goes forward too. Also what repairs a `current` that is missing or corrupt, given a generation.
    ///
    /// Errors: `InvalidInput` if there is no such generation or it is not complete.
    pub fn rollback(&self, to: Option<GenerationId>) -> Result<GenerationId> {
        let _turn = publish::locked(&self.lock);
        let id = to.map_or_else(|| self.previous(), Ok)?;
        if !is_complete(&self.path, id) {
            let message = format!("expected a complete generation to roll back to, found no {id}/manifest.json");
            return Err(Error::invalid_input(message).at_path(&self.path));
        }
        current::swap(&self.path, id)?;
        Ok(id)
    }

    /// Removes old generations: all but the current one and the `keep` newest.
    ///
    /// The current one counts among the newest if it is, and is kept anyway. A generation that someone reads is
    /// skipped and reported. Incomplete ones do not count; they are removed if they are older than the current one.
    ///
    /// Errors: `Corrupt` if `current` names no generation that is there: then it is not known what is in use; `Io`,
    /// also where leases cannot be locked: remove generations by hand there.
    pub fn gc(&self, keep: usize) -> Result<GcReport> {
        let _turn = publish::locked(&self.lock);
        gc::gc(&self.path, keep)
    }

    /// The newest complete generation before the current one.
    fn previous(&self) -> Result<GenerationId> {
        let current = current::read(&self.path)?.ok_or_else(|| no_current(&self.path))?;
        let before = generations(&self.path)?.into_iter().rev().filter(|id| *id < current);
        before.into_iter().find(|id| is_complete(&self.path, *id)).ok_or_else(|| {
            let message = format!("expected a complete generation before {current} to roll back to, found none");
            Error::invalid_input(message).at_path(&self.path)
        })
    }
}

/// Whether the directory is a store, be it an empty one.
fn is_store(path: &Path) -> bool {
    fs::is_dir(path) && (fs::exists(&path.join(current::FILE_NAME)) || fs::is_file(&path.join(lock::FILE_NAME)))
}

/// All generations of a store, complete or not, ascending.
fn generations(store: &Path) -> Result<Vec<GenerationId>> {
    let names = fs::names(store)?; // ascending, and so are the numbers in them
    Ok(names.iter().filter_map(|name| GenerationId::from_name(name)).collect())
}

fn is_complete(store: &Path, id: GenerationId) -> bool {
    fs::is_file(&store.join(id.to_string()).join(manifest::FILE_NAME))
}

fn no_current(store: &Path) -> Error {
    let message = "expected a current generation, found that none was published yet";
    Error::invalid_input(message).at_path(&store.join(current::FILE_NAME))
}
