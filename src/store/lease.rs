//! `lease`: readers of a generation hold a shared lock on this file, so that gc does not remove the generation.
//!
//! ```text
//! reader:  read current -> open gen-N/lease -> lock shared -> if gen-N/lease is no longer that file, start again
//! gc:      lock gen-N/lease exclusively -> rename gen-N away -> delete
//! ```
//!
//! The first to lock wins: gc skips a locked generation; a late reader finds the lock held, or the file no longer at
//! its path. Where locking fails (no such file, no permission, a file system without locks), readers work without a
//! lock.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::fs::{self, Identity, LockedFile};
use crate::store::{CURRENT, GenerationId, LEASE, current, no_current};

/// Upper bound on attempts to lease the current generation. One fails if `current` changes in between, by a race with a
/// writer; if all fail, the cause is not a race.
const MAX_ATTEMPTS: usize = 100;

/// A reader's lease of a generation. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) enum Lease {
    /// The file is locked, so gc does not remove the generation.
    Held(LockedFile),
    /// Locking failed, so gc in another process may remove the generation.
    Unavailable {
        /// The error of the attempt.
        why: String,
        /// The identity of the generation's directory, if it exists.
        directory: Option<Identity>,
    },
}

impl Lease {
    /// Returns whether this directory has a file to lock.
    pub(crate) fn is_offered_by(generation: &Path) -> Result<bool> {
        fs::is_file(&generation.join(LEASE))
    }

    /// Leases the generation in this directory, without waiting.
    ///
    /// A generation that exists but cannot be locked is [`Lease::Unavailable`], not an error.
    ///
    /// Errors: `GenerationGone` if it is being removed or was removed; `Io`.
    pub(crate) fn acquire(generation: &Path) -> Result<Lease> {
        let path = generation.join(LEASE);
        let lease = match fs::open_file(&path).and_then(|file| fs::try_lock_shared(file, &path)) {
            Ok(Some(file)) => Lease::Held(file),
            Ok(None) => return Err(generation_gone(generation)), // only gc and `withdraw` lock exclusively
            Err(error) => Lease::Unavailable { why: error.to_string(), directory: fs::identity(generation)? },
        };
        if lease.is_of(generation)? { Ok(lease) } else { Err(generation_gone(generation)) }
    }

    /// Returns whether this is a lease of the generation that is in this directory now.
    ///
    /// If so, and the lease is held, that stays true while it is held.
    pub(crate) fn is_of(&self, generation: &Path) -> Result<bool> {
        match self {
            Lease::Held(file) => fs::is_same_file(file, &generation.join(LEASE)),
            Lease::Unavailable { directory, .. } => Ok(directory.is_some() && *directory == fs::identity(generation)?),
        }
    }

    /// Returns whether this process acquired it. A forked child cannot rely on its copy, which the parent may unlock.
    pub(crate) fn is_own(&self) -> bool {
        match self {
            Lease::Held(file) => file.is_own(),
            Lease::Unavailable { .. } => true,
        }
    }
}

/// A leased generation of a store, which was current when it was leased.
#[derive(Debug)]
pub(crate) struct LeasedGeneration {
    pub(crate) id: GenerationId,
    pub(crate) path: PathBuf,
    pub(crate) lease: Lease,
}

impl LeasedGeneration {
    /// Leases the generation that `current` names. Retries if `current` changes meanwhile.
    ///
    /// Errors: `NotFound` if nothing was published; `Corrupt` if `current` is damaged; `GenerationGone` if the
    /// generation that it names does not exist, or `current` keeps changing; `Io`.
    pub(crate) fn acquire_current(store: &Path) -> Result<LeasedGeneration> {
        LeasedGeneration::follow(store, || current::read(store)?.ok_or_else(|| no_current(store)))
    }

    fn follow(store: &Path, mut current: impl FnMut() -> Result<GenerationId>) -> Result<LeasedGeneration> {
        let mut id = current()?;
        for _ in 1..MAX_ATTEMPTS {
            let path = store.join(id.to_string());
            let gone = match Lease::acquire(&path) {
                Ok(lease) => return Ok(LeasedGeneration { id, path, lease }),
                Err(gone) => gone,
            };
            match current()? {
                // gc never removes the current generation, so this is not a race, and a retry would not help
                same if same == id => return Err(gone),
                moved => id = moved,
            }
        }
        let path = store.join(CURRENT);
        let message =
            "expected to lease the current generation, found that current changed at every attempt: open it again";
        Err(Error::new(ErrorKind::GenerationGone, message).at_path(&path))
    }
}

/// The right to remove a generation: an exclusive lock on its lease. No reader holds or acquires a lease while this
/// lives.
#[derive(Debug)]
pub(super) struct Claim(#[expect(dead_code, reason = "held for its lock")] Option<LockedFile>);

impl Claim {
    /// Claims the generation in this directory; `None` if it is leased.
    ///
    /// A generation without the file `lease` cannot be leased, so the claim succeeds.
    ///
    /// Errors: `Io` if the file exists but cannot be locked.
    pub(super) fn acquire(generation: &Path) -> Result<Option<Claim>> {
        let path = generation.join(LEASE);
        if !fs::exists(&path)? {
            return Ok(Some(Claim(None)));
        }
        Ok(fs::try_lock(fs::open_file(&path)?, &path)?.map(|file| Claim(Some(file))))
    }
}

/// The error for a generation that was removed.
pub(crate) fn generation_gone(generation: &Path) -> Error {
    let message = "expected a generation that exists, found it removed or being removed: open the store again, or \
                   roll back to a generation that exists";
    Error::new(ErrorKind::GenerationGone, message).at_path(generation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::TempDir;
    use crate::store::testing::{id, store_of};

    #[test]
    fn a_reader_follows_current_when_it_moves() {
        let directory = TempDir::new();
        let store = store_of(directory.path(), 2);
        let claim = Claim::acquire(&store.path().join(id(1).to_string())).unwrap().unwrap();
        let mut seen = [id(1), id(2)].into_iter();
        let leased = LeasedGeneration::follow(store.path(), || Ok(seen.next().unwrap())).unwrap();
        assert_eq!((leased.id, leased.path), (id(2), store.path().join("gen-0000000002")));
        drop(claim);
    }

    #[test]
    fn what_is_being_removed_is_not_leased() {
        let directory = TempDir::new();
        let store = store_of(directory.path(), 1);
        let generation = store.path().join(id(1).to_string());
        let claim = Claim::acquire(&generation).unwrap().unwrap();
        let error = LeasedGeneration::acquire_current(store.path()).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::GenerationGone, Some(&*generation)));
        drop(claim);
        let lease = Lease::acquire(&generation).unwrap();
        assert!(Claim::acquire(&generation).unwrap().is_none());
        let another = Lease::acquire(&generation).unwrap();
        drop(lease);
        assert!(Claim::acquire(&generation).unwrap().is_none(), "there is another lease");
        drop(another);
        assert!(Claim::acquire(&generation).unwrap().is_some());
    }

    /// Until it calls exec, a new process has a copy of every open file.
    #[test]
    fn ends_when_dropped_though_a_copy_of_the_file_is_open() {
        let directory = TempDir::new();
        let store = store_of(directory.path(), 1);
        let generation = store.path().join(id(1).to_string());
        let Lease::Held(file) = Lease::acquire(&generation).unwrap() else { panic!("the lease is unavailable") };
        let _copy = file.try_clone().unwrap();
        drop(file);
        assert!(Claim::acquire(&generation).unwrap().is_some());
    }

    #[test]
    fn a_current_that_keeps_changing_is_an_error() {
        let directory = TempDir::new();
        let mut number = 0;
        let changing = || {
            number += 1;
            Ok(id(number))
        };
        let error = LeasedGeneration::follow(directory.path(), changing).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::GenerationGone);
    }
}
