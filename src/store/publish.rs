//! From a temporary directory to the current generation, so that a crash at any moment leaves the old one or the new.
//!
//! ```text
//! shard files         written and synced by the caller, auxiliary files too
//! info, lease         written, synced          all files 0444
//! manifest.json       written last, synced     from here on the directory is a generation
//! the directory       synced
//! lock                records the number, synced
//! tmp-gen-.. -> gen-N renamed; store synced
//! current -> gen-N    renamed; store synced    from here on it is published
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::owner::Owner;
use crate::error::{Error, ErrorKind, Result};
use crate::format::info;
use crate::format::manifest::{self, Manifest};
use crate::store::generation_id::GenerationId;
use crate::store::lease::Claim;
use crate::store::lock::Lock;
use crate::store::names::LEASE;
use crate::store::{current, fs, generations, history, scratch};

/// The lock of a store, shared by its writer and the generations in the making.
#[derive(Clone, Debug)]
pub(super) struct SharedLock {
    owner: Owner,
    store: PathBuf,
    lock: Arc<Mutex<Lock>>,
}

impl SharedLock {
    pub(super) fn new(store: &Path, lock: Lock) -> SharedLock {
        SharedLock { owner: Owner::this_process(), store: store.to_path_buf(), lock: Arc::new(Mutex::new(lock)) }
    }

    /// The lock for one operation, which publishes, rolls back or collects; operations through one writer take turns.
    ///
    /// Errors: `Locked` in a forked child, since the parent holds the lock.
    pub(super) fn turn(&self) -> Result<MutexGuard<'_, Lock>> {
        if !self.is_own() {
            let message = "expected the process that locked the store, found a forked child of it: \
                           take a writer in the child, once that of the parent is dropped";
            return Err(Error::new(ErrorKind::Locked, message).at_path(&self.store));
        }
        Ok(self.lock.lock().unwrap_or_else(PoisonError::into_inner)) // it holds no state that a panic could break
    }

    /// Whether this process took the lock, and not the parent that it was forked from.
    fn is_own(&self) -> bool {
        self.owner.is_this_process()
    }
}

/// A generation in the making: a temporary directory that becomes a generation or is removed.
///
/// Holds the lock of the store. Dropped before it is published, everything of it is removed, unless it is
/// the copy of a forked child.
#[derive(Debug)]
pub(crate) struct PendingGeneration {
    store: PathBuf,
    lock: SharedLock,
    path: PathBuf,
    spill_dir: PathBuf,
}

impl PendingGeneration {
    pub(super) fn begin(store: &Path, lock: &SharedLock, temp_root: Option<&Path>) -> Result<PendingGeneration> {
        check_room(store, lock)?; // not only after hours of loading
        let path = scratch::create(store)?;
        let (store, lock) = (store.to_path_buf(), lock.clone());
        let mut pending = PendingGeneration { store, lock, path, spill_dir: PathBuf::new() };
        pending.spill_dir = scratch::create_spill(&pending.path, temp_root)?;
        Ok(pending)
    }

    /// The directory to write the shard files to, under their names and nothing else.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// An empty directory for spills; it is removed before the generation is published.
    pub(crate) fn spill_dir(&self) -> &Path {
        &self.spill_dir
    }

    /// Completes the generation: adds `info`, `lease` and the manifest, and syncs the directory.
    ///
    /// The caller vouches for the shard files that the manifest lists: written, synced, with those checksums. Their
    /// names and lengths are checked, their bytes are not read again.
    ///
    /// Errors: `Corrupt` if the files are not those of the manifest, `Io`.
    pub(crate) fn complete(self, info: &[u8], manifest: &Manifest) -> Result<CompleteGeneration> {
        self.complete_with(info, manifest, manifest.to_json().as_bytes())
    }

    /// Like [`complete`](Self::complete), with the text of the manifest.
    pub(super) fn complete_with(self, info: &[u8], manifest: &Manifest, text: &[u8]) -> Result<CompleteGeneration> {
        drop(self.lock.turn()?); // a forked child changes nothing
        scratch::remove_spill(&self.path)?;
        manifest.check_info(info)?;
        check_len(text)?;
        check_files(&self.path, manifest)?;
        fs::write_new(&self.path.join(info::FILE_NAME), info)?;
        fs::write_new(&self.path.join(LEASE), b"")?;
        for file in &manifest.auxiliary {
            fs::set_read_only(&self.path.join(&file.name))?;
        }
        for shard in &manifest.shards {
            fs::set_read_only(&self.path.join(manifest.sharding.shard_file_name(shard.number)))?;
        }
        fs::write_new(&self.path.join(manifest::FILE_NAME), text)?;
        fs::fsync_dir(&self.path)?;
        Ok(CompleteGeneration(self))
    }
}

/// A generation in the making that is complete and can be opened in its temporary directory.
///
/// Dropped without [`publish`](Self::publish), it is removed.
#[derive(Debug)]
pub(crate) struct CompleteGeneration(PendingGeneration);

impl CompleteGeneration {
    /// The temporary directory.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Publishes the generation under the next number and makes it current.
    ///
    /// Errors: `Io`. After an error nothing is published and `current` names what it named before; on a disk that fails
    /// for good, that or the new generation, whole.
    pub(crate) fn publish(self) -> Result<GenerationId> {
        install(&self.0.store, &mut *self.0.lock.turn()?, &self.0.path)
    }
}

impl Drop for PendingGeneration {
    /// Removes what was not published; where that fails, the next writer tries again.
    fn drop(&mut self) {
        if self.lock.is_own() {
            _ = scratch::remove(&self.path);
        }
    }
}

/// Checks that a generation could be published now.
///
/// Errors: `Corrupt` if `current` is; `InvalidInput` if there is no number left, or something in the way; `Locked`.
pub(super) fn check_room(store: &Path, lock: &SharedLock) -> Result<()> {
    current::read(store)?;
    next_id(store, &*lock.turn()?)?;
    history::check(store)?;
    scratch::check_native(&store.join(scratch::TEMPORARY_LINK))
}

/// Makes a complete directory, synced, the next generation and the current one.
///
/// Errors: `Io`; then the directory is where it was, unless the disk fails for good.
pub(super) fn install(store: &Path, lock: &mut Lock, directory: &Path) -> Result<GenerationId> {
    let id = next_id(store, lock)?;
    lock.set_last(id)?;
    fs::rename(directory, &store.join(id.to_string()))?;
    if let Err(error) = make_current(store, id) {
        _ = withdraw(store, id, directory);
        return Err(error);
    }
    Ok(id)
}

fn make_current(store: &Path, id: GenerationId) -> Result<()> {
    history::append(store, id)?;
    fs::fsync_dir(store)?; // `current` must not survive a crash that takes what it names
    current::swap(store, id)
}

/// Takes a generation that could not be made current back to where it was built: a later rollback must not come
/// upon what its builder was told is not published.
fn withdraw(store: &Path, id: GenerationId, directory: &Path) -> Result<()> {
    fs::fsync_dir(store)?; // nor must `current` name it after a crash
    let generation = store.join(id.to_string());
    if current::read(store)? == Some(id) {
        return Ok(()); // it could not be taken back
    }
    let Some(claim) = Claim::acquire(&generation)? else { return Ok(()) }; // a reader was there at once
    let claim = (!cfg!(windows)).then_some(claim); // which renames no directory while a file in it is open
    fs::rename(&generation, directory)?;
    drop(claim);
    fs::fsync_dir(store)
}

/// The number after all that were ever given, as far as `lock`, the directories and `current` have them.
///
/// Errors: `InvalidInput` if the last number is taken.
fn next_id(store: &Path, lock: &Lock) -> Result<GenerationId> {
    let taken = [lock.last()?, generations(store)?.pop(), current::read(store)?];
    let Some(last) = taken.into_iter().flatten().max() else { return GenerationId::new(1) };
    last.next().map_err(|_| {
        let by = taken.into_iter().zip(["the file lock", "a directory of that name", "current"]);
        let by: Vec<_> = by.filter(|(id, _)| *id == Some(last)).map(|(_, by)| by).collect();
        let message = format!(
            "expected a free number for the next generation, found the last one, {last}, taken by {}: remove that, if \
             nothing is in it, before anything is published",
            by.join(" and ")
        );
        Error::invalid_input(message).at_path(&store.join(last.to_string()))
    })
}

/// Errors: `TooLarge` if no reader would take the manifest.
fn check_len(manifest: &[u8]) -> Result<()> {
    let (most, found) = (manifest::MAX_BYTES, manifest.len());
    if found as u64 > most {
        let message =
            format!("expected a manifest of at most {most} bytes, found {found}: take a specification of fewer shards");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    Ok(())
}

/// Errors: `Corrupt` unless the directory has the files of the manifest's shards, in their lengths, and no others.
fn check_files(directory: &Path, manifest: &Manifest) -> Result<()> {
    let mut found: BTreeSet<String> = fs::names(directory)?.into_iter().collect();
    for shard in &manifest.shards {
        let name = manifest.sharding.shard_file_name(shard.number);
        let path = directory.join(&name);
        check_file_len(&path, shard.bytes).map_err(|error| error.at_shard(shard.number))?;
        found.remove(&name);
    }
    for file in &manifest.auxiliary {
        check_file_len(&directory.join(&file.name), file.bytes)?;
        found.remove(&file.name);
    }
    match found.first() {
        Some(name) => {
            Err(Error::corrupt("expected the manifest's files, found another").at_path(&directory.join(name)))
        }
        None => Ok(()),
    }
}

fn check_file_len(path: &Path, stated: u64) -> Result<()> {
    let len = fs::file_len(path)?;
    if len != stated {
        let message = format!("expected a file of {stated} bytes by the manifest, found {len}");
        return Err(Error::corrupt(message).at_path(path));
    }
    Ok(())
}
