//! A store: a directory of generations, one of which is current.
//!
//! ```text
//! store/
//!   current -> gen-0000000003     replaced by rename
//!   history                       the generations that were current, oldest first
//!   lock                          locked by the one writer
//!   gen-0000000003/               immutable: info, manifest.json, lease, shard files, minishards
//!   parts-*/                      a partitioned build; writers do not change it
//!   moved-gen-0000000004          says that a user's directory was moved in, and has not become current
//!   tmp-*                         temporary files of a writer; the next writer removes them if that writer died
//! ```
//!
//! [`Store`] reads the directory. [`StoreWriter`] holds the lock; it publishes, rolls back and removes generations.
//! This module does not interpret the contents of shards.
//!
//! Nothing is changed before a directory is recognised as a store (`path_class`). A file is removed only if both its
//! name and its contents are those that a writer of this program makes (`contents`, `scratch`).

pub(crate) mod adopt;
pub(crate) mod contents;
mod current;
mod current_copy;
mod gc;
pub(crate) mod generation_id;
mod history;
mod intact;
#[cfg(test)]
#[cfg(unix)]
mod kill_tests;
mod lease;
mod lines;
pub(crate) mod link;
mod lock;
mod moved;
pub(crate) mod parts_entry;
mod path_class;
mod publish;
pub(crate) mod scratch;
pub(crate) mod staging;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crate::bytes::read_whole;
use crate::error::{Error, ErrorKind, Result};
use crate::format::manifest::{self, Manifest};
use crate::fs;
use crate::threads::progress::Progress;

pub(crate) use self::current::read as read_current;
pub use self::gc::{GcFailure, GcReport};
pub use self::generation_id::GenerationId;
pub(crate) use self::lease::{Lease, LeasedGeneration, generation_gone};
pub(crate) use self::link::Shared;
pub use self::moved::MovedIn;
pub(crate) use self::publish::{CompleteGeneration, PendingGeneration, Replaced};
pub(crate) use self::scratch::is_candidate;

use self::adopt::Foreign;
use self::lock::Lock;
use self::path_class::Made;
use self::publish::SharedLock;

/// The link that names the current generation.
pub(crate) const CURRENT: &str = "current";

/// The file that the writer locks.
pub(crate) const LOCK: &str = "lock";

/// The file in a generation that its readers lock.
pub(crate) const LEASE: &str = "lease";

/// The file that lists the generations that were current.
pub(crate) const HISTORY: &str = "history";

/// Prefix of the directories of partitioned builds.
pub(crate) const PARTS_PREFIX: &str = "parts-";

/// A directory of generations, one of which is current.
///
/// Its methods take no lock and never wait for a writer. [`writer`](Store::writer) takes the lock.
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
    /// What [`create`](Store::create) made; `None` for a store that was opened and so must exist.
    made: Option<Made>,
}

/// A generation as listed by [`Store::generations`].
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// for generation in sharddb::Store::open("store")?.generations()? {
///     println!("{} complete: {}", generation.id, generation.is_complete);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredGeneration {
    /// Its number.
    pub id: GenerationId,
    /// Whether it has a manifest, which is written last.
    pub is_complete: bool,
    /// Whether `current` names it.
    pub is_current: bool,
}

/// What became of a generation that a publication began to make current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Current,
    /// It was current before.
    Earlier,
    /// The first generation of a store, before others: it was current, or a crash kept it from becoming current.
    Unknown,
    /// A crash kept it from becoming current.
    Interrupted,
    /// It was rolled back, or another generation was published after a crash.
    RolledBack,
}

/// The totals of a generation; see [`Store::totals`].
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let store = sharddb::Store::open("store")?;
/// for id in store.history()? {
///     println!("{id}: {} keys", store.totals(id)?.keys);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GenerationTotals {
    /// The number of keys.
    pub keys: u64,
    /// The stored bytes of all values.
    pub value_bytes: u64,
    /// The number of shards that have a file.
    pub shards: u64,
}

impl Store {
    /// Returns whether the directory has an entry `current`, as a store with a published generation has.
    ///
    /// A bare generation has none. The entry is not read, so it may be damaged.
    ///
    /// # Errors
    ///
    /// `Io` if the directory cannot be searched.
    pub fn is_at(path: impl AsRef<Path>) -> Result<bool> {
        has_current(path.as_ref())
    }

    /// Returns the path of a generation's directory, which need not exist.
    ///
    /// To map a generation that is not current: `options.open_mapped(store.generation_path(id))`.
    pub fn generation_path(&self, id: GenerationId) -> PathBuf {
        self.path.join(id.to_string())
    }

    /// Opens the store at `path`. Creates an empty one if nothing or an empty directory is there.
    ///
    /// What was created is removed when a [`writer`](Self::writer) is dropped that has published nothing, unless the
    /// directory has other files by then. Parent directories stay. `lost+found` and names that begin with a dot are
    /// ignored.
    ///
    /// Cost: reads one link; without a current generation, also lists the directory.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the directory is neither empty nor a store: a data set, an array, or any other files; also if
    /// its `lock` is a foreign file. `Io`.
    pub fn create(path: impl AsRef<Path>) -> Result<Store> {
        let path = fs::absolute(path.as_ref())?;
        let made = Made::make(&path)?;
        Ok(Store { path, made: Some(made) })
    }

    /// Opens the store at `path`.
    ///
    /// A directory is a store if its `current` names a generation. Otherwise every name in it must be one that a store
    /// has, and it must have a `lock`, or else a `current` and a generation. So a store whose `current` is damaged
    /// opens, and [`rollback`](StoreWriter::rollback) can repair it, while a foreign directory with a `current` is
    /// refused.
    ///
    /// # Errors
    ///
    /// `NotFound` if nothing or an empty directory is there, `InvalidInput` if anything else is; `Io`.
    pub fn open(path: impl AsRef<Path>) -> Result<Store> {
        let path = fs::absolute(path.as_ref())?;
        path_class::check_store(&path)?;
        Ok(Store { path, made: None })
    }

    /// Returns the absolute path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the current generation; `None` if nothing was published.
    ///
    /// # Errors
    ///
    /// `Corrupt` if `current` is anything but the name of one generation; `Io`.
    pub fn current(&self) -> Result<Option<GenerationId>> {
        current::read(&self.path)
    }

    /// Returns the current generation; without `current`, which a copy may have left out, the newest complete one, to which a
    /// rollback is possible. `None` if there is neither.
    ///
    /// Cost: reads one link; without it, lists the directory.
    ///
    /// # Errors
    ///
    /// Those of [`current`](Self::current).
    pub fn current_or_newest(&self) -> Result<Option<GenerationId>> {
        current_or_newest(&self.path)
    }

    /// Returns all generations, ascending.
    ///
    /// Cost: lists the directory, and one `stat` call per generation.
    ///
    /// # Errors
    ///
    /// `Corrupt` if `current` is anything but the name of one generation; `Io`.
    pub fn generations(&self) -> Result<Vec<StoredGeneration>> {
        let current = self.current()?;
        let stored = |id| {
            let is_complete = is_complete(&self.path, id)?;
            Ok(StoredGeneration { id, is_complete, is_current: current == Some(id) })
        };
        generations(&self.path)?.into_iter().map(stored).collect()
    }

    /// Returns the generations that were current, oldest first; the last is the current one.
    ///
    /// At most 1,000, without those that were rolled back. Some may have been removed since. A store written by an
    /// earlier version has no file `history`; its history is its complete generations up to the current one, by number.
    ///
    /// # Errors
    ///
    /// `Corrupt` if `history` or `current` is damaged, `Io`.
    pub fn history(&self) -> Result<Vec<GenerationId>> {
        history::read(&self.path)
    }

    /// Returns why a generation cannot be opened; `None` if it can, or a later version wrote it.
    ///
    /// Such a generation does not count for `gc`, and a rollback without a number skips it. Values are not read.
    ///
    /// Cost: reads the manifest and `info`, and looks up each shard.
    ///
    /// # Errors
    ///
    /// `Io` if that cannot be determined.
    pub fn damage_of(&self, id: GenerationId) -> Result<Option<Error>> {
        intact::damage_of(&self.path, id)
    }

    /// Returns the totals of a generation, as its manifest states them.
    ///
    /// Cost: reads the manifest, whose size depends on the number of shards.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such generation, or it is not complete; `Corrupt`, `Unsupported` or `TooLarge` for a
    /// manifest that cannot be read; `Io`.
    pub fn totals(&self, id: GenerationId) -> Result<GenerationTotals> {
        totals(&self.path, id)
    }

    /// Returns the directories that [`adopt_by_moving`](StoreWriter::adopt_by_moving) has moved into the store and that have
    /// not become current, because the disk failed or the process was killed. They are not collected or discarded.
    ///
    /// Cost: lists the directory.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn moved_in(&self) -> Result<Vec<MovedIn>> {
        moved::read_all(&self.path)
    }

    /// Returns the generations that [`gc`](StoreWriter::gc) would remove if no reader has them open, ascending.
    ///
    /// # Errors
    ///
    /// `Corrupt` if `history` is damaged, or if `current` names no existing generation; `Io`.
    pub fn removable(&self, keep: usize) -> Result<Vec<GenerationId>> {
        gc::removable(&self.path, keep)
    }

    /// Locks the store for writing, without waiting, and removes the temporary files of writers that died.
    ///
    /// A temporary file is removed only if its name and its contents are those that a writer makes. Readers are not
    /// affected. The lock is held until the writer and its unpublished generations are dropped.
    ///
    /// Cost: one sync of the directory.
    ///
    /// # Errors
    ///
    /// `Locked` if there is another writer; `NotFound` if the store no longer exists; `InvalidInput` if the directory
    /// is no longer a store, or `lock` is a foreign file; `Io`.
    pub fn writer(&self) -> Result<StoreWriter> {
        self.writer_with(&WriterOptions::new())
    }

    /// Like [`writer`](Store::writer), with options.
    ///
    /// # Errors
    ///
    /// Those of [`writer`](Store::writer).
    pub fn writer_with(&self, options: &WriterOptions) -> Result<StoreWriter> {
        let lock = Lock::acquire(&self.path, || self.prepare())?;
        scratch::clear(&self.path)?;
        // a writer that was killed after its last rename may have left the names unsynced
        fs::fsync_dir(&self.path)?;
        moved::clear(&self.path)?;
        Ok(StoreWriter {
            path: self.path.clone(),
            lock: SharedLock::new(&self.path, lock),
            progress: options.progress.clone(),
            allow_empty: options.allow_empty,
        })
    }

    /// Checks that the store exists. Creates it again if it was created by `self` and a writer has removed it since.
    fn prepare(&self) -> Result<Made> {
        match self.made {
            Some(made) => Ok(made.and(Made::make(&self.path)?)),
            None => path_class::check_store(&self.path).map(|()| Made::default()),
        }
    }
}

/// Returns the totals of a generation, like [`Store::totals`].
fn totals(store: &Path, id: GenerationId) -> Result<GenerationTotals> {
    let path = store.join(id.to_string()).join(manifest::FILE_NAME);
    if !is_complete(store, id)? {
        return Err(Error::new(ErrorKind::NotFound, "expected a complete generation, found none").at_path(&path));
    }
    let text = read_whole(&path, manifest::MAX_BYTES)?;
    let manifest = Manifest::parse(&text).map_err(|error| error.at_path(&path))?;
    let shards = manifest.shards.len() as u64;
    Ok(GenerationTotals { keys: manifest.keys, value_bytes: manifest.value_bytes, shards })
}

/// The one writer of a store: publishes, rolls back and removes generations.
///
/// Open readers keep their generation. Readers that follow `current` see either the old or the new generation,
/// complete.
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let writer = sharddb::Store::create("store")?.writer()?;
/// let id = writer.adopt("built elsewhere")?;
/// println!("published {id}");
/// println!("removed {:?}", writer.gc(2)?.removed);
/// # Ok(()) }
/// ```
///
/// # Fork
///
/// The lock belongs to the process that took it. A forked child may drop its copy of a writer, which changes nothing,
/// but must not use it: every operation returns `Locked`. If the parent dies without dropping the writer, the store
/// stays locked for as long as the child has its copy.
#[derive(Debug)]
pub struct StoreWriter {
    path: PathBuf,
    lock: SharedLock,
    progress: Progress,
    pub(crate) allow_empty: bool,
}

/// Options of a [`StoreWriter`]; see [`Store::writer_with`].
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// use sharddb::{Progress, Store, WriterOptions};
///
/// let progress = Progress::new(); // a clone of it shows another thread how far this is
/// let writer = Store::open("store")?.writer_with(WriterOptions::new().progress(&progress))?;
/// writer.gc(2)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct WriterOptions {
    progress: Progress,
    allow_empty: bool,
}

impl WriterOptions {
    /// Creates the default options.
    pub fn new() -> WriterOptions {
        WriterOptions::default()
    }

    /// Sets the progress that an adoption or a garbage collection reports, and that cancels it: before another block of a
    /// file, or before another generation is removed. Default: none.
    pub fn progress(&mut self, progress: &Progress) -> &mut WriterOptions {
        self.progress = progress.clone();
        self
    }

    /// Sets whether a candidate of [`adopt_unpublished`](StoreWriter::adopt_unpublished) may replace a generation with keys
    /// although it has none, like [`BuildOptions::allow_empty`](crate::BuildOptions::allow_empty). Default: false.
    pub fn allow_empty(&mut self, allow: bool) -> &mut WriterOptions {
        self.allow_empty = allow;
        self
    }
}

impl StoreWriter {
    /// Begins a new generation. Its spill files are written under `temp_root` if given, else into the store.
    ///
    /// Errors: `Corrupt` if `current` or `history` is damaged; `InvalidInput` if no number is left, or a foreign file
    /// has a temporary name; `Locked` in a forked child; `Io`.
    pub(crate) fn begin(&self, temp_root: Option<&Path>) -> Result<PendingGeneration> {
        PendingGeneration::begin(&self.path, &self.lock, temp_root)
    }

    /// Publishes a copy of a generation that was built elsewhere: a directory with a `manifest.json`.
    ///
    /// Copies `info`, the manifest and the files that the manifest lists, and no others. Verifies their checksums.
    ///
    /// Cost: reads and writes the generation once.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if it has no manifest; `Corrupt` if a checksum, length or name of the manifest, `info` or a
    /// listed file does not match, or if the store's `current` or `history` is damaged; `InvalidSpec` if `info` has no
    /// valid specification; `TooLarge`; `Unsupported` if a later version wrote it; `Cancelled`; `Io`.
    pub fn adopt(&self, directory: impl AsRef<Path>) -> Result<GenerationId> {
        self.copy(directory.as_ref())?.1.publish()
    }

    /// Copies a generation that was built elsewhere. Returns its manifest and the complete, unpublished copy.
    pub(crate) fn copy(&self, directory: &Path) -> Result<(Manifest, CompleteGeneration)> {
        let foreign = Foreign::open(directory, self.progress.clone())?;
        let copy = foreign.copy(&self.path, &self.lock)?;
        Ok((foreign.manifest, copy))
    }

    /// Publishes a generation that was built elsewhere by moving its directory into the store.
    ///
    /// The files become read-only, which hard links to them share; `lease` becomes a new file. A directory on another
    /// file system, or with files of another user, is copied as by [`adopt`](Self::adopt) and stays in place.
    ///
    /// If the disk fails, or the process is killed, between the move and the change of `current`, the directory is a
    /// generation that has not become current: [`moved_in`](Store::moved_in) returns it, and it is not removed.
    ///
    /// Cost: reads the generation once; across file systems also what [`adopt`](Self::adopt) costs.
    ///
    /// # Errors
    ///
    /// Those of [`adopt`](Self::adopt), and `InvalidInput` if the directory is a generation of a store, or has a
    /// symbolic link or a foreign file; the directory is unchanged then.
    pub fn adopt_by_moving(&self, directory: impl AsRef<Path>) -> Result<GenerationId> {
        Foreign::open(directory.as_ref(), self.progress.clone())?.publish_moved(&self.path, &self.lock)
    }

    /// Makes another generation current: `to`, or the previous one of the history. Returns its number.
    ///
    /// `to` may be older or newer than the current generation, and is appended to the [`history`](Store::history).
    /// Without `to`, the newest intact generation before the current one in the history becomes current, and the
    /// entries after it no longer count: after publishing 1, 2 and 3, a rollback, and publishing 4, the generation
    /// before 4 is 2.
    ///
    /// With `to`, a missing or damaged `current` is repaired. A `current` that is a short text is replaced, and so is a
    /// directory with the bytes of a generation of the store, as a copy that follows links leaves it. If the directory has
    /// the manifest of a generation and any other byte, it is renamed to `current.1`, or the next free number, and stays:
    /// the generation may be the damaged one.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such generation, or without `to` if no generation is current; `InvalidInput` if it is
    /// not complete, or if replacing `current` would lose data; `Corrupt` if `to` could not be opened, if `history` is
    /// damaged, or without `to` if `current` is; `Locked` in a forked child; `Io`.
    pub fn rollback(&self, to: Option<GenerationId>) -> Result<GenerationId> {
        let _operation = self.lock.begin_operation()?;
        let id = to.map_or_else(|| self.previous(), Ok)?;
        self.check_complete(id)?;
        let found = current_copy::examine(&self.path)?;
        scratch::check_own(&self.path.join(scratch::TEMPORARY_LINK))?; // before the history is changed
        intact::sync(&self.path, id)?; // a copy or a restore may have left it in the page cache
        match to {
            Some(_) => history::append(&self.path, id)?,
            // a line after that of the current generation would mean that a crash kept it from becoming current
            None => history::end_with(&self.path, id)?,
        }
        current_copy::swap(&self.path, id, &found)?;
        moved::forget(&self.path, id);
        Ok(id)
    }

    fn check_complete(&self, id: GenerationId) -> Result<()> {
        if is_complete(&self.path, id)? {
            return intact::check(&self.path, id);
        }
        if !fs::exists(&self.path.join(id.to_string()))? {
            let message =
                format!("expected a generation to roll back to, found no {id}: `sharddb generations` lists them");
            return Err(Error::new(ErrorKind::NotFound, message).at_path(&self.path));
        }
        let message = format!("expected a complete generation to roll back to, found no {id}/manifest.json");
        Err(Error::invalid_input(message).at_path(&self.path))
    }

    /// Returns what the history says of a generation that a publication began to make current.
    ///
    /// Errors: `Corrupt` if `history` or `current` is damaged; `Locked` in a forked child; `Io`.
    pub(crate) fn fate_of(&self, id: GenerationId) -> Result<Fate> {
        let lock = self.lock.begin_operation()?;
        let current = current::read(&self.path)?;
        if current == Some(id) {
            return Ok(Fate::Current);
        }
        let entries = history::read(&self.path)?;
        // without `current`, all lines are entries
        let was_current = current.is_some() && entries.contains(&id);
        Ok(match history::has_line(&self.path, id)? {
            // the line of the first publication of a store looks the same if a crash kept it from becoming current
            true if was_current && entries.first() == Some(&id) => Fate::Unknown,
            true if was_current => Fate::Earlier,
            true => Fate::Interrupted,
            // the first publication of a store failed, which removes the history
            false if current.is_none() && !history::exists(&self.path)? => Fate::Interrupted,
            // the number is used up after the line is written
            false if publish::next_id(&self.path, &lock)? <= id => Fate::Interrupted,
            false => Fate::RolledBack,
        })
    }

    /// Returns whether a generation of this number was published, or is in the store.
    ///
    /// Errors: `Corrupt` if `lock` or `current` is damaged; `Locked` in a forked child; `Io`.
    pub(crate) fn has_used(&self, id: GenerationId) -> Result<bool> {
        Ok(publish::next_id(&self.path, &*self.lock.begin_operation()?)? > id)
    }

    /// Removes one generation that is not current, for example a bad one that was rolled back.
    ///
    /// # Errors
    ///
    /// `NotFound` if it does not exist; `InvalidInput` if it is the current one, has a foreign file, or is
    /// [`moved_in`](Store::moved_in); `Locked` if a reader holds its
    /// lease, or in a forked child; `Corrupt` if `current` is damaged; `Io`.
    pub fn discard(&self, id: GenerationId) -> Result<()> {
        let _operation = self.lock.begin_operation()?;
        let path = self.path.join(id.to_string());
        if current::read(&self.path)? == Some(id) {
            let message =
                format!("expected a generation that is not current, found the current one, {id}: roll back first");
            return Err(Error::invalid_input(message).at_path(&path));
        }
        if !fs::exists(&path)? {
            let message = format!("expected generation {id}, found none: `sharddb generations` lists them");
            return Err(Error::new(ErrorKind::NotFound, message).at_path(&path));
        }
        if let Some(moved) = moved::read_all(&self.path)?.iter().find(|moved| moved.id == id) {
            return Err(Error::invalid_input(moved.to_string()).at_path(&path));
        }
        if gc::remove(&self.path, id)? {
            Ok(())
        } else {
            let message = "expected a generation without readers, found one that holds its lease: try again later";
            Err(Error::new(ErrorKind::Locked, message).at_path(&path))
        }
    }

    /// Removes old generations: all but the `keep` newest complete ones of the [`history`](Store::history), of which the
    /// current one is the newest. Damaged ones count only if fewer than `keep` are intact. Complete generations that are
    /// no longer among its 1,000 entries count as earlier ones.
    ///
    /// The current generation is kept even if `keep` is 0. Generations that were
    /// rolled back, or never became current, are not in the history and are removed, except those that were
    /// [`moved_in`](Store::moved_in). Incomplete generations do not
    /// count towards `keep`; they are removed if they are older than the current one.
    ///
    /// A generation whose lease a reader holds is skipped and reported in [`GcReport::in_use`]. One that cannot be
    /// removed is reported in [`GcReport::failed`], and the others are removed nevertheless. That is a generation that
    /// has a foreign file, or whose lease cannot be locked; remove it by hand.
    ///
    /// # Errors
    ///
    /// `Corrupt` if `history` is damaged, or if `current` names no existing generation, since then it is unknown which
    /// one is in use; `Locked` in a forked child; `Cancelled`; `Io`.
    pub fn gc(&self, keep: usize) -> Result<GcReport> {
        let _operation = self.lock.begin_operation()?;
        gc::gc(&self.path, keep, &self.progress)
    }

    /// Returns the newest complete generation before the current one in the history.
    ///
    /// Errors: `NotFound` without a current generation; `InvalidInput` if there is none before it; `Corrupt`; `Io`.
    fn previous(&self) -> Result<GenerationId> {
        let current = current::read(&self.path)?.ok_or_else(|| no_current(&self.path))?;
        for id in history::read(&self.path)?.into_iter().rev().filter(|id| *id != current) {
            if intact::damage_of(&self.path, id)?.is_none() {
                return Ok(id);
            }
        }
        let message = format!("expected an intact generation that was current before {current}, found none");
        Err(Error::invalid_input(message).at_path(&self.path))
    }
}

/// Returns whether a directory has an entry `current`.
///
/// Errors: `Io` if that cannot be determined.
pub(crate) fn has_current(path: &Path) -> Result<bool> {
    fs::exists(&path.join(CURRENT))
}

/// Returns all generations of a store, complete or not, ascending.
fn generations(store: &Path) -> Result<Vec<GenerationId>> {
    let names = fs::names(store)?; // ascending, and so are the numbers, which have leading zeros
    Ok(names.iter().filter_map(|name| GenerationId::from_name(name)).collect())
}

fn current_or_newest(store: &Path) -> Result<Option<GenerationId>> {
    if let Some(current) = current::read(store)? {
        return Ok(Some(current));
    }
    for id in generations(store)?.into_iter().rev() {
        if is_complete(store, id)? {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

fn is_complete(store: &Path, id: GenerationId) -> Result<bool> {
    fs::is_file(&store.join(id.to_string()).join(manifest::FILE_NAME))
}

fn no_current(store: &Path) -> Error {
    let message =
        "expected a store with a current generation, found none: publish one, or roll back to one by its number";
    Error::new(ErrorKind::NotFound, message).at_path(store)
}
