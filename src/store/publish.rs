//! Publishing: turns a temporary directory into the current generation. A crash at any step leaves the old generation
//! or the new one current.
//!
//! ```text
//! shards, auxiliary   written and synced by the caller; links to those of another generation are synced
//! info, lease         written, synced          all files made read-only
//! directory of shards synced, if it is another one
//! manifest.json       written last, synced     from here on the directory is a generation
//! the directory       synced
//! history             replaced; store synced
//! lock                records the number, synced
//! tmp-gen-* -> gen-N  renamed; store synced
//! current -> gen-N    replaced; store synced   from here on it is published
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::error::{Error, ErrorKind, Result};
use crate::format::info;
use crate::format::locks::lock;
use crate::format::manifest::{self, Manifest};
use crate::format::nested::NestedSharding;
use crate::fs;
use crate::fs::owning_process::OwningProcess;
use crate::store::lease::Claim;
use crate::store::lock::Lock;
use crate::store::{GenerationId, LEASE, current, current_or_newest, generations, history, intact, scratch, totals};

/// The lock of a store, shared by its writer and that writer's unpublished generations.
#[derive(Clone, Debug)]
pub(super) struct SharedLock {
    /// The process that took the lock, and not one that was forked from it.
    owner: OwningProcess,
    store: PathBuf,
    lock: Arc<Mutex<Lock>>,
}

impl SharedLock {
    pub(super) fn new(store: &Path, lock: Lock) -> SharedLock {
        SharedLock {
            owner: OwningProcess::this_process(),
            store: store.to_path_buf(),
            lock: Arc::new(Mutex::new(lock)),
        }
    }

    /// Waits until no other operation of this writer changes the store. Returns a guard of the lock, which ends the new
    /// operation when it is dropped.
    ///
    /// Errors: `Locked` in a forked child, since the parent holds the lock.
    pub(super) fn begin_operation(&self) -> Result<MutexGuard<'_, Lock>> {
        if !self.owner.is_this_process() {
            let message = "expected the process that locked the store, found a forked child of it: \
                           create a writer in the child after the parent has dropped its own";
            return Err(Error::new(ErrorKind::Locked, message).at_path(&self.store));
        }
        Ok(lock(&self.lock)) // a panic cannot leave it inconsistent
    }
}

/// An unpublished generation: a temporary directory that becomes a generation or is removed.
///
/// Holds the lock of the store. Dropping it before it is published removes its files, except in a forked child.
#[derive(Debug)]
pub(crate) struct PendingGeneration {
    store: PathBuf,
    lock: SharedLock,
    path: PathBuf,
    /// The place of the shards, if they are in another directory than `path`, which is `shards_path`.
    nested: Option<NestedSharding>,
    shards_path: PathBuf,
    spill_dir: PathBuf,
    /// The files that are links to those of another generation.
    pub(super) linked: Mutex<Vec<PathBuf>>,
}

impl PendingGeneration {
    pub(super) fn begin(store: &Path, lock: &SharedLock, temp_root: Option<&Path>) -> Result<PendingGeneration> {
        check_publishable(store, lock)?; // fails before the load rather than after it
        let path = scratch::create(store)?;
        let (store, lock) = (store.to_path_buf(), lock.clone());
        let mut pending = PendingGeneration {
            store,
            lock,
            nested: None,
            shards_path: path.clone(),
            path,
            spill_dir: PathBuf::new(),
            linked: Mutex::default(),
        };
        pending.spill_dir = scratch::create_spill(&pending.path, temp_root)?;
        Ok(pending)
    }

    /// Creates the directory for the shards of a generation with a nested specification. Does nothing without one.
    pub(crate) fn with_shards_in(mut self, nested: Option<NestedSharding>) -> Result<PendingGeneration> {
        for name in nested.iter().flat_map(NestedSharding::names) {
            self.shards_path.push(name);
            fs::create_dir(&self.shards_path)?;
        }
        self.nested = nested;
        Ok(self)
    }

    /// Returns the directory for the auxiliary files and, unless their place is nested, the shards. When
    /// [`complete`](Self::complete) is called, it must contain only the files that the manifest lists, and the spill
    /// Returns the path of the store.
    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    /// directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory for the shards: [`path`](Self::path), or one below it if their place is nested.
    pub(crate) fn shards_path(&self) -> &Path {
        &self.shards_path
    }

    /// Returns the place of the shards if it is nested.
    pub(crate) fn nested(&self) -> Option<&NestedSharding> {
        self.nested.as_ref()
    }

    /// Returns the directory for spill files, empty at first. It is removed before the generation is published.
    pub(crate) fn spill_dir(&self) -> &Path {
        &self.spill_dir
    }

    /// Completes the generation: removes the spill files, adds `info`, `lease` and the manifest, makes the files
    /// read-only, and syncs the directory.
    ///
    /// The caller guarantees that the files that the manifest lists, but for links, are written and synced, with the stated
    /// checksums.
    /// Their names and lengths are checked; their bytes are not read.
    ///
    /// Errors: `Corrupt` if the files are not those of the manifest; `TooLarge` if the manifest is; `Locked` in a
    /// forked child; `Io`.
    pub(crate) fn complete(self, info: &[u8], manifest: &Manifest) -> Result<CompleteGeneration> {
        self.complete_with(info, manifest, manifest.to_json().as_bytes())
    }

    /// Like [`complete`](Self::complete), with the text of the manifest, which may have members that [`Manifest`]
    /// lacks.
    pub(super) fn complete_with(self, info: &[u8], manifest: &Manifest, text: &[u8]) -> Result<CompleteGeneration> {
        drop(self.lock.begin_operation()?); // fails in a forked child
        scratch::remove_spill(&self.path)?;
        manifest.check_info(info)?;
        check_len(text)?;
        check_files(&self.path, manifest)?;
        fs::sync_files(&lock(&self.linked))?;
        fs::write_new(&self.path.join(info::FILE_NAME), info)?;
        fs::write_new(&self.path.join(LEASE), b"")?;
        for file in &manifest.auxiliary {
            fs::set_read_only(&self.path.join(&file.name))?;
        }
        for shard in &manifest.shards {
            fs::set_read_only(&manifest.shard_path(&self.path, shard.number))?;
        }
        intact::sync_nested(&self.path, manifest)?;
        fs::write_new(&self.path.join(manifest::FILE_NAME), text)?;
        fs::fsync_dir(&self.path)?;
        Ok(CompleteGeneration(self))
    }
}

/// An unpublished generation that is complete. It can be opened in its temporary directory.
///
/// Dropping it without [`publish`](Self::publish) removes it.
#[derive(Debug)]
pub(crate) struct CompleteGeneration(PendingGeneration);

/// The generation that a publication replaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replaced {
    pub(crate) id: GenerationId,
    /// The number of its keys; `None` if its manifest cannot be read.
    pub(crate) keys: Option<u64>,
}

impl CompleteGeneration {
    /// Returns the temporary directory.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns what would be replaced: the [current generation, or the newest](crate::Store::current_or_newest).
    ///
    /// Errors: `Corrupt` if `current` is damaged; `Io`.
    pub(crate) fn replaced(&self) -> Result<Option<Replaced>> {
        let store = &self.0.store;
        let keys = |id| totals(store, id).ok().map(|totals| totals.keys);
        Ok(current_or_newest(store)?.map(|id| Replaced { id, keys: keys(id) }))
    }

    /// Publishes the generation under the next number and makes it current.
    ///
    /// Errors: `Locked` in a forked child, and those of [`install`]. After an error the generation is removed, unless
    /// [`install`] leaves it in the store.
    pub(crate) fn publish(self) -> Result<GenerationId> {
        self.publish_after(|_| Ok(()))
    }

    /// Publishes like [`publish`](Self::publish). Calls `before` with the number first; its error is returned and
    /// nothing is published.
    pub(crate) fn publish_after(self, before: impl FnOnce(GenerationId) -> Result<()>) -> Result<GenerationId> {
        let lock = &mut *self.0.lock.begin_operation()?;
        before(next_id(&self.0.store, lock)?)?;
        install(&self.0.store, lock, &self.0.path)
    }
}

impl Drop for PendingGeneration {
    /// Removes the files, if the generation is not published. Ignores errors, since the next writer removes what
    /// remains.
    fn drop(&mut self) {
        if self.lock.owner.is_this_process() {
            // does nothing after `install`, which renamed the directory
            _ = scratch::remove(&self.path);
        }
    }
}

/// Checks that a generation can be published.
///
/// Errors: `Corrupt` if `current` or `history` is damaged; `InvalidInput` if no number is left, or a foreign file has a
/// temporary name; `Locked` in a forked child; `Io`.
pub(super) fn check_publishable(store: &Path, lock: &SharedLock) -> Result<()> {
    current::read(store)?;
    next_id(store, &*lock.begin_operation()?)?;
    history::check(store)?;
    scratch::check_own(&store.join(scratch::TEMPORARY_LINK))
}

/// Renames a complete, synced directory to the next generation and makes it current.
///
/// Errors: `Corrupt` if `current` or `history` is damaged; `InvalidInput` if no number is left or a
/// foreign file has a temporary name; `Io`.
///
/// After an error the old generation is current and the directory has its old path, with two exceptions, in which
/// [`withdraw`] cannot rename the directory back:
///
/// - A reader has leased the new generation already: it remains in the store, but is not current.
/// - Another `Io` error follows the first: the new generation remains in the store, complete, and `current` names the
///   old generation or the new one.
pub(super) fn install(store: &Path, lock: &mut Lock, directory: &Path) -> Result<GenerationId> {
    let id = next_id(store, lock)?;
    let had_history = history::exists(store)?;
    let installed = install_as(id, store, lock, directory);
    if installed.is_err() && !had_history && current::read(store).is_ok_and(|current| current != Some(id)) {
        // otherwise the lock could not remove a store that was created for this build, since it would not be empty
        _ = history::remove(store);
    }
    installed.map(|()| id)
}

fn install_as(id: GenerationId, store: &Path, lock: &mut Lock, directory: &Path) -> Result<()> {
    history::append(store, id)?; // first, because it may fail on a full disk, and `set_last` uses up the number
    fs::fsync_dir(store)?; // a used number without a line means that its generation was rolled back
    lock.set_last(id)?;
    fs::rename(directory, &store.join(id.to_string()))?;
    let synced = fs::fsync_dir(store); // the generation must be durable before `current` names it
    synced.and_then(|()| current::swap(store, id)).inspect_err(|_| _ = withdraw(store, id, directory))
}

/// Renames a generation that could not be made current back to its old path, so that a later rollback does not find it.
///
/// Leaves it in the store if a reader has leased it, or if `current` still names it because it could not be restored.
fn withdraw(store: &Path, id: GenerationId, directory: &Path) -> Result<()> {
    // makes the restored `current` durable: otherwise it could name gen-N after a crash, when gen-N no longer exists
    fs::fsync_dir(store)?;
    let generation = store.join(id.to_string());
    if current::read(store)? == Some(id) {
        return Ok(()); // restoring `current` failed
    }
    let Some(claim) = Claim::acquire(&generation)? else { return Ok(()) }; // a reader has leased it
    let claim = (!cfg!(windows)).then_some(claim); // Windows does not rename a directory with an open file in it
    fs::rename(&generation, directory)?;
    drop(claim);
    fs::fsync_dir(store)
}

/// Returns the number after the greatest one in `lock`, the names of directories and `current`.
///
/// Errors: `InvalidInput` if no greater number has ten digits; `Corrupt` if `current` is damaged; `Io`.
pub(super) fn next_id(store: &Path, lock: &Lock) -> Result<GenerationId> {
    let taken = [lock.last()?, generations(store)?.pop(), current::read(store)?];
    let Some(last) = taken.into_iter().flatten().max() else { return GenerationId::new(1) };
    last.next().map_err(|_| {
        let by = taken.into_iter().zip(["the file `lock`", "a directory of that name", "`current`"]);
        let by: Vec<_> = by.filter(|(id, _)| *id == Some(last)).map(|(_, by)| by).collect();
        let message = format!(
            "expected a free number for the next generation, found the last one, {last}, taken by {}: \
             move that away if nothing needs it, or build into a new store",
            by.join(" and ")
        );
        Error::invalid_input(message).at_path(&store.join(last.to_string()))
    })
}

/// Errors: `TooLarge` if the manifest is longer than readers accept.
fn check_len(manifest: &[u8]) -> Result<()> {
    let (most, found) = (manifest::MAX_BYTES, manifest.len());
    if found as u64 > most {
        let message = format!(
            "expected a manifest of at most {most} bytes, found {found}: choose a specification with fewer shards"
        );
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    Ok(())
}

/// Checks that a directory has the files that the manifest lists, with their lengths, and no others.
///
/// Errors: `Corrupt` if it has not; `Io`.
fn check_files(directory: &Path, manifest: &Manifest) -> Result<()> {
    intact::for_each_file(manifest, |name, stated| intact::check_len(&directory.join(name), stated.bytes))?;
    let mut directory = directory.to_path_buf();
    let mut expected: BTreeSet<String> = manifest.auxiliary.iter().map(|file| file.name.clone()).collect();
    for name in manifest.nested.iter().flat_map(NestedSharding::names) {
        expected.insert(name.to_string());
        check_names(&directory, &expected)?;
        expected.clear();
        directory.push(name);
    }
    expected.extend(manifest.shards.iter().map(|shard| manifest.sharding.shard_file_name(shard.number)));
    check_names(&directory, &expected)
}

fn check_names(directory: &Path, expected: &BTreeSet<String>) -> Result<()> {
    match fs::names(directory)?.into_iter().find(|name| !expected.contains(name)) {
        Some(name) => {
            let message = "expected only the files that the manifest lists, found another";
            Err(Error::corrupt(message).at_path(&directory.join(name)))
        }
        None => Ok(()),
    }
}
