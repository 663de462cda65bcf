//! A store: the directory of generations, of which one is current.
//!
//! ```text
//! store/
//!   current -> gen-0000000003     swapped by rename
//!   history                       which generations were current, oldest first
//!   lock                          one writer at a time
//!   gen-0000000003/               immutable: info, manifest.json, lease, shard files, minishards
//!   tmp-..                        a writer's; removed by the next one if that writer died
//! ```
//!
//! [`Store`] looks; [`StoreWriter`] has the lock and publishes, rolls back and collects. What is in a shard is not known
//! here. Nothing is changed before a directory is recognised as a store (`place`), and nothing is removed but what has a
//! name and contents that only this program makes (`contents`, `scratch`).

mod adopt;
mod cancel;
mod contents;
mod current;
mod current_copy;
pub(crate) mod fs;
mod gc;
mod generation_id;
mod history;
#[cfg(test)]
#[cfg(unix)]
mod kill_tests;
mod lease;
mod lines;
mod lock;
mod lock_file;
mod names;
mod place;
mod publish;
mod scratch;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::{Error, ErrorKind, Result};
use crate::format::manifest::{self, Manifest};

pub(crate) use self::cancel::Cancel;
pub(crate) use self::current::read as read_current;
pub use self::gc::{GcFailure, GcReport};
pub use self::generation_id::GenerationId;
pub(crate) use self::lease::{Lease, LeasedGeneration};
pub(crate) use self::names::LEASE;
pub(crate) use self::publish::{CompleteGeneration, PendingGeneration};

use self::adopt::Foreign;
use self::lock::Lock;
use self::names::CURRENT;
use self::place::Made;
use self::publish::SharedLock;

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
    /// What was made for it; `None` if it must be there.
    made: Option<Made>,
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
    ///
    /// Also false for a directory that may not be searched; [`open`](Store::open) says so.
    pub fn is_at(path: impl AsRef<Path>) -> bool {
        has_current(path.as_ref()).unwrap_or(false)
    }

    /// The directory of a generation, whether it is there or not.
    ///
    /// To map a generation that is not current: `options.open(store.generation_path(id))`.
    pub fn generation_path(&self, id: GenerationId) -> PathBuf {
        self.path.join(id.to_string())
    }

    /// Opens the store at `path`, making an empty one if there is nothing or an empty directory.
    ///
    /// What was made is removed again when a [`writer`](Self::writer) of it is dropped that published nothing, and nothing
    /// else is there; the directories on the way to it stay. `lost+found` and names that begin with a dot do not count.
    ///
    /// Cost: reading a link; without a current generation, the names in the directory.
    ///
    /// Errors: `InvalidInput` if the directory is not empty and not a store: a data set, an array, or any other files. `Io`.
    pub fn create(path: impl AsRef<Path>) -> Result<Store> {
        let path = fs::absolute(path.as_ref())?;
        let made = Made::make(&path)?;
        Ok(Store { path, made: Some(made) })
    }

    /// Opens the store at `path`.
    ///
    /// A directory is a store if its `current` names a generation, or if it has a `lock` of a store and nothing but names
    /// that a store has. So a `current` that is damaged can be repaired by [`rollback`](StoreWriter::rollback), and one of
    /// somebody else is left alone.
    ///
    /// # Errors
    ///
    /// `NotFound` if nothing is there, `InvalidInput` if there is something else; `Io`.
    pub fn open(path: impl AsRef<Path>) -> Result<Store> {
        let path = fs::absolute(path.as_ref())?;
        place::check_store(&path)?;
        Ok(Store { path, made: None })
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

    /// The generations that were current, oldest first; the last is the current one.
    ///
    /// Some may have been removed since. Without the ones that were rolled back, and at most 1,000. In a store of an
    /// earlier version, which has no file `history`: its complete generations up to the current one.
    ///
    /// # Errors
    ///
    /// `Corrupt` if `history` or `current` is damaged, `Io`.
    pub fn history(&self) -> Result<Vec<GenerationId>> {
        history::read(&self.path)
    }

    /// Locks the store for writing, without waiting, and removes what writers that died left: exactly the names that
    /// a writer makes, where they hold nothing else than what a writer puts there.
    ///
    /// Readers do not notice. The lock lasts until the writer and its generations in the making are dropped.
    ///
    /// Errors: `Locked` if there is another writer; `InvalidInput` if there is no store any more, or `lock` is a file of
    /// something else.
    pub fn writer(&self) -> Result<StoreWriter> {
        let lock = Lock::acquire(&self.path, || self.prepare())?;
        scratch::clear(&self.path)?;
        Ok(StoreWriter { path: self.path.clone(), lock: SharedLock::new(&self.path, lock), cancel: Cancel::default() })
    }

    /// Checks that the store is there; one that was created is made again if a writer of it has removed it.
    fn prepare(&self) -> Result<Made> {
        match self.made {
            Some(made) => Ok(made.and(Made::make(&self.path)?)),
            None => place::check_store(&self.path).map(|()| Made::default()),
        }
    }
}

/// The one writer of a store: publishes, rolls back, collects.
///
/// Readers that have a generation open keep it; those that follow `current` see the old or the new one, whole.
///
/// # Fork
///
/// The lock belongs to the process that took it. A forked child may drop its copy of a writer, which changes nothing, but
/// not use it: every operation is `Locked`. As long as the child has the copy, and the parent dies without dropping the
/// writer, the store stays locked.
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
    /// Errors: `Corrupt` if `current` is; `InvalidInput` if there is no number left for it; `Io`.
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
        self.copy(directory.as_ref())?.1.publish()
    }

    /// A complete copy of a generation that was built elsewhere, with its manifest.
    pub(crate) fn copy(&self, directory: &Path) -> Result<(Manifest, CompleteGeneration)> {
        let foreign = Foreign::open(directory, self.cancel.clone())?;
        let copy = foreign.copy(&self.path, &self.lock)?;
        Ok((foreign.into_manifest(), copy))
    }

    /// Publishes a generation that was built elsewhere by moving its directory into the store.
    ///
    /// Costs reading all of it once. The files become read-only, hard links to them too; `lease` becomes a new file. On
    /// another file system it is copied as by [`adopt`](Self::adopt) and stays where it is.
    ///
    /// Errors: those of [`adopt`](Self::adopt), and `InvalidInput` if it is a generation of a store, has links for files,
    /// or has anything that no generation has; then nothing of it has changed.
    pub fn adopt_by_moving(&self, directory: impl AsRef<Path>) -> Result<GenerationId> {
        Foreign::open(directory.as_ref(), self.cancel.clone())?.publish_moved(&self.path, &self.lock)
    }

    /// Makes another generation current: `to`, or the one that was current before.
    ///
    /// With `to` it goes forward too, and adds an entry to the [`history`](Store::history). Without, it goes to the entry before
    /// the current one whose generation is complete, and the entry that it leaves does not count any more: after 1, 2, 3, a rollback
    /// to 2 and 4, the one before is 2. Given a generation, it repairs a `current` that is missing or corrupt: a text of something
    /// else, or the copy of a generation that is also here under its name, as copying without links leaves it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is no such generation or it is not complete, or if `current` is anything that would be lost;
    /// `Corrupt` if `history` is damaged; `Io`.
    pub fn rollback(&self, to: Option<GenerationId>) -> Result<GenerationId> {
        let _turn = self.lock.turn()?;
        let id = to.map_or_else(|| self.previous(), Ok)?;
        self.check_complete(id)?;
        current_copy::check(&self.path)?;
        if to.is_some() {
            history::append(&self.path, id)?;
        }
        current_copy::swap(&self.path, id)?;
        Ok(id)
    }

    fn check_complete(&self, id: GenerationId) -> Result<()> {
        if is_complete(&self.path, id) {
            return Ok(());
        }
        let message = format!("expected a complete generation to roll back to, found no {id}/manifest.json");
        Err(Error::invalid_input(message).at_path(&self.path))
    }

    /// Removes one generation, which must not be the current one: a bad one that was rolled back, for example.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if it is the current one, is not there, or holds something that no generation has; `Locked` if someone
    /// reads it; `Corrupt` if `current` is damaged; `Io`.
    pub fn discard(&self, id: GenerationId) -> Result<()> {
        let _turn = self.lock.turn()?;
        let path = self.path.join(id.to_string());
        if current::read(&self.path)? == Some(id) {
            let message = format!("expected a generation that is not current, found that {id} is: roll back first");
            return Err(Error::invalid_input(message).at_path(&path));
        }
        if !fs::exists(&path)? {
            return Err(Error::invalid_input(format!("expected the generation {id}, found none")).at_path(&path));
        }
        match gc::remove(&self.path, id)? {
            true => Ok(()),
            false => {
                let message =
                    "expected a generation that nobody reads, found a reader that holds its lease: try again later";
                Err(Error::new(ErrorKind::Locked, message).at_path(&path))
            }
        }
    }

    /// Removes old generations: all but the current one and the `keep` newest of the [`history`](Store::history).
    ///
    /// The current one is the newest, and is kept anyway. Generations that were rolled back, or never became current, are
    /// not in the history and are removed. A generation that someone reads is
    /// skipped and reported. Incomplete ones do not count; they are removed if they are older than the current one.
    /// One that cannot be removed is reported with the error ([`GcReport::failed`]), and the others are removed all the
    /// same: one that holds anything that no generation has, or where leases cannot be locked. Remove it by hand.
    ///
    /// Errors: `Corrupt` if `current` names no generation that is there: then it is not known what is in use; `Io`.
    pub fn gc(&self, keep: usize) -> Result<GcReport> {
        let _turn = self.lock.turn()?;
        gc::gc(&self.path, keep)
    }

    /// The newest complete generation before the current one in the history.
    fn previous(&self) -> Result<GenerationId> {
        let current = current::read(&self.path)?.ok_or_else(|| no_current(&self.path))?;
        let before = history::read(&self.path)?.into_iter().rev().filter(|id| *id != current);
        before.into_iter().find(|id| is_complete(&self.path, *id)).ok_or_else(|| {
            let message = format!("expected a complete generation that was current before {current}, found none");
            Error::invalid_input(message).at_path(&self.path)
        })
    }
}

/// Whether a directory has the link `current`.
///
/// Errors: `Io` if it is not known.
pub(crate) fn has_current(path: &Path) -> Result<bool> {
    fs::exists(&path.join(CURRENT))
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
    Error::new(ErrorKind::NotFound, message).at_path(store)
}
