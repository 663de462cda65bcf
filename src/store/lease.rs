//! `lease`: readers of a generation hold it locked shared, so that gc leaves the generation alone.
//!
//! ```text
//! reader:  read current -> open gen-N/lease -> lock shared -> is gen-N/lease still that file? else start again
//! gc:      lock gen-N/lease exclusively -> rename gen-N away -> delete
//! ```
//!
//! Whichever locks first wins: gc skips what is locked; a reader that was late finds the lock taken, or the file gone
//! from its place. Where a lock cannot be had (a read-only mount, no such file, a file system without locks), reading
//! works without.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::store::fs::{self, Identity, LockedFile};
use crate::store::generation_id::GenerationId;
use crate::store::names::{CURRENT, LEASE};
use crate::store::{current, no_current};

/// More swaps than this between two steps of one reader are no coincidence.
const MAX_ATTEMPTS: usize = 100;

/// A reader's hold on a generation, for as long as it lives.
#[derive(Debug)]
pub(crate) enum Lease {
    /// gc will not remove the generation.
    Held(LockedFile),
    /// There is no lock to be had, and why: gc elsewhere may remove the generation.
    Unavailable {
        why: String,
        /// The directory of the generation, if it is there.
        directory: Option<Identity>,
    },
}

impl Lease {
    /// Whether there is something to lock in this directory.
    pub(crate) fn is_offered_by(generation: &Path) -> bool {
        fs::is_file(&generation.join(LEASE))
    }

    /// Leases the generation in this directory, without waiting.
    ///
    /// Errors: `GenerationGone` if it is being removed or was.
    pub(crate) fn acquire(generation: &Path) -> Result<Lease> {
        let lease = match lock_shared(&generation.join(LEASE)) {
            Ok(Some(file)) => Lease::Held(file),
            Ok(None) => return Err(gone(generation)), // gc alone locks exclusively
            Err(error) => Lease::Unavailable { why: error.to_string(), directory: fs::identity(generation) },
        };
        match lease.is_of(generation) {
            true => Ok(lease),
            false => Err(gone(generation)),
        }
    }

    /// Whether this is a lease of the generation that is in this directory now. If it is and it is held, this stays so.
    pub(crate) fn is_of(&self, generation: &Path) -> bool {
        match self {
            Lease::Held(file) => fs::is_same_file(file, &generation.join(LEASE)),
            Lease::Unavailable { directory, .. } => directory.is_some() && *directory == fs::identity(generation),
        }
    }

    /// Whether it was acquired by this process; the parent of a forked child may release what the child has a copy of.
    pub(crate) fn is_own(&self) -> bool {
        match self {
            Lease::Held(file) => file.is_own(),
            Lease::Unavailable { .. } => true,
        }
    }
}

/// The current generation of a store, leased.
#[derive(Debug)]
pub(crate) struct LeasedGeneration {
    pub(crate) id: GenerationId,
    pub(crate) path: PathBuf,
    pub(crate) lease: Lease,
}

impl LeasedGeneration {
    /// Leases the generation that `current` names, following it when it moves in between.
    ///
    /// Errors: `InvalidInput` if nothing was published; `Corrupt` if `current` names no generation; `GenerationGone`
    /// if the generation that it names is not there.
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
                // gc never removes what is current: this is no race, trying again does not help
                same if same == id => return Err(gone),
                moved => id = moved,
            }
        }
        let path = store.join(CURRENT);
        Err(Error::new(ErrorKind::GenerationGone, "expected current to rest, found it moving all the time")
            .at_path(&path))
    }
}

/// The right to remove a generation: nobody holds or gets a lease of it while this lives.
#[derive(Debug)]
pub(super) struct Claim(#[expect(dead_code, reason = "held for its lock")] Option<LockedFile>);

impl Claim {
    /// Claims the generation in this directory; `None` if it is leased. One without the file `lease` cannot be.
    ///
    /// Errors: `Io` if it has the file but it cannot be locked.
    pub(super) fn acquire(generation: &Path) -> Result<Option<Claim>> {
        let path = generation.join(LEASE);
        if !fs::exists(&path)? {
            return Ok(Some(Claim(None)));
        }
        Ok(fs::try_lock(fs::open_file(&path)?, &path)?.map(|file| Claim(Some(file))))
    }
}

fn lock_shared(path: &Path) -> Result<Option<LockedFile>> {
    fs::try_lock_shared(fs::open_file(path)?, path)
}

fn gone(generation: &Path) -> Error {
    let message = "expected the generation's directory, found it removed or being removed: open the store again, or \
                   roll back to a generation that is there";
    Error::new(ErrorKind::GenerationGone, message).at_path(generation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::{TempDir, id, store_of};

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

    /// For a moment a process that is being started has a copy of every open file.
    #[test]
    fn ends_when_dropped_though_a_copy_of_the_file_is_open() {
        let directory = TempDir::new();
        let store = store_of(directory.path(), 1);
        let generation = store.path().join(id(1).to_string());
        let Lease::Held(file) = Lease::acquire(&generation).unwrap() else { panic!("no lease to be had") };
        let _copy = file.try_clone().unwrap();
        drop(file);
        assert!(Claim::acquire(&generation).unwrap().is_some());
    }

    #[test]
    fn a_current_that_never_rests_is_an_error() {
        let directory = TempDir::new();
        let mut number = 0;
        let restless = || {
            number += 1;
            Ok(id(number))
        };
        let error = LeasedGeneration::follow(directory.path(), restless).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::GenerationGone);
    }
}
