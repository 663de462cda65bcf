//! `lock`: excludes a second writer of a store, and records the last generation number.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::fs::{self, LockedFile};
use crate::store::lines::{LINE_LEN, MAX_LOCK_LEN, check_lock, check_lock_content, parse};
use crate::store::path_class::Made;
use crate::store::{GenerationId, LOCK, scratch};

/// Maximum number of attempts to open and lock the file. One fails if the file is replaced in between, by a race with
/// another writer; if all fail, the cause is not a race.
const MAX_ATTEMPTS: usize = 100;

/// The locked file `lock`. The lock is held until this is dropped or the process ends.
///
/// The file has up to two lines, each the name of a generation; the greater is the last number. The next number
/// overwrites the other line, so that a torn write loses nothing. A torn line is ignored; numbers then continue after
/// those of the existing generations. A file with any other contents is not a lock of a store, and is never written to.
#[derive(Debug)]
pub(super) struct Lock {
    file: LockedFile,
    path: PathBuf,
    made: Made,
}

impl Lock {
    /// Locks a store for writing, without waiting.
    ///
    /// `prepare` checks that the directory is a store, or creates one. What it created is removed when the lock is
    /// dropped and nothing was published.
    ///
    /// Errors: `Locked` if another writer, of this process or another, holds the lock; `InvalidInput` if the file is
    /// not a lock; `Io`; those of `prepare`.
    pub(super) fn acquire(store: &Path, mut prepare: impl FnMut() -> Result<Made>) -> Result<Lock> {
        let path = store.join(LOCK);
        for _ in 0..MAX_ATTEMPTS {
            let made = prepare()?;
            check_lock(&path)?;
            let Some(file) = fs::try_lock(fs::open_or_create(&path)?, &path)? else { return Err(locked(&path)) };
            // a writer that published nothing may have removed the file meanwhile
            if fs::is_same_file(&file, &path)? {
                check_lock_content(&file, &path)?;
                let file = with_one_name(file, store, &path)?;
                return Ok(Lock { file, path, made });
            }
        }
        let message =
            "expected to lock the store, found that its lock file was replaced at every attempt: try again later";
        Err(Error::new(ErrorKind::Locked, message).at_path(&path))
    }

    /// Returns the last number that the file records; `None` if both lines are missing or torn.
    pub(super) fn last(&self) -> Result<Option<GenerationId>> {
        let (first, second) = self.lines()?;
        Ok(first.max(second))
    }

    /// Records `id` as the last number, durably.
    pub(super) fn set_last(&mut self, id: GenerationId) -> Result<()> {
        let (first, second) = self.lines()?;
        let offset = if first > second { LINE_LEN as u64 } else { 0 };
        fs::overwrite(&self.file, offset, format!("{id}\n").as_bytes(), &self.path)
    }

    /// Reads the generations on both lines; `None` for a line that is missing or torn.
    fn lines(&self) -> Result<(Option<GenerationId>, Option<GenerationId>)> {
        let bytes = fs::read_head(&self.file, MAX_LOCK_LEN, &self.path)?;
        let (first, second) = bytes.split_at_checked(LINE_LEN).unwrap_or((&bytes, &[]));
        Ok((parse(first), parse(second)))
    }

    fn is_unused(&self) -> Result<bool> {
        Ok(fs::is_same_file(&self.file, &self.path)? && fs::read_head(&self.file, 1, &self.path)?.is_empty())
    }
}

impl Drop for Lock {
    /// Removes the store that was created for this writer, if nothing was published.
    ///
    /// The lock is still held, so no other writer can have begun.
    fn drop(&mut self) {
        if self.made.lock && self.file.is_own() && self.is_unused().unwrap_or(false) {
            _ = self.made.remove(&self.path);
        }
    }
}

fn locked(path: &Path) -> Error {
    let message = "expected to be the only writer of the store, found another that holds its lock: \
                   wait until it ends, or find the process that has this file open (on Linux with lslocks or fuser)";
    Error::new(ErrorKind::Locked, message).at_path(path)
}

/// Replaces a file with several hard links, such as those of a backup, by a copy, since writing to it would change all.
///
/// A process that has the old file open finds, once it holds the lock, that the path names another file.
fn with_one_name(file: LockedFile, store: &Path, path: &Path) -> Result<LockedFile> {
    if !fs::has_other_names(&file, path)? {
        return Ok(file);
    }
    let temporary = store.join(scratch::TEMPORARY_LOCK);
    scratch::remove_own(&temporary)?;
    let copy = fs::create_like(&file, &temporary, &fs::read_head(&file, MAX_LOCK_LEN, path)?)?;
    let Some(copy) = fs::try_lock(copy, &temporary)? else { return Err(locked(&temporary)) };
    fs::rename(&temporary, path)?;
    fs::fsync_dir(store)?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use std::fs::{read_to_string, write};

    use super::*;
    use crate::common::TempDir;

    fn acquire(store: &Path) -> Result<Lock> {
        Lock::acquire(store, || Ok(Made::default()))
    }

    fn id(number: u64) -> GenerationId {
        GenerationId::new(number).unwrap()
    }

    #[test]
    fn a_second_writer_gets_an_error_with_the_path_of_the_lock() {
        let store = TempDir::new();
        let first = acquire(store.path()).unwrap();
        let error = acquire(store.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked);
        assert_eq!(error.path(), Some(&*store.path().join("lock")));
        assert!(error.message().contains("another"), "{error}");
        drop(first);
        acquire(store.path()).unwrap();
    }

    /// Until it calls exec, a new process has a copy of every open file.
    #[test]
    fn is_free_when_dropped_though_a_copy_of_the_file_is_open() {
        let store = TempDir::new();
        let lock = acquire(store.path()).unwrap();
        let _copy = lock.file.try_clone().unwrap();
        drop(lock);
        acquire(store.path()).unwrap();
    }

    #[test]
    fn remembers_the_last_number_in_two_lines() {
        let store = TempDir::new();
        let mut lock = acquire(store.path()).unwrap();
        assert_eq!(lock.last().unwrap(), None);
        let mut text_after = |number| {
            lock.set_last(id(number)).unwrap();
            assert_eq!(lock.last().unwrap(), Some(id(number)));
            read_to_string(store.path().join("lock")).unwrap()
        };
        assert_eq!(text_after(1), "gen-0000000001\n");
        assert_eq!(text_after(2), "gen-0000000001\ngen-0000000002\n");
        assert_eq!(text_after(3), "gen-0000000003\ngen-0000000002\n");
        assert_eq!(text_after(9), "gen-0000000003\ngen-0000000009\n", "the greater line stays, whichever it is");
        assert_eq!(text_after(10), "gen-0000000010\ngen-0000000009\n");
        drop(lock);
        assert_eq!(acquire(store.path()).unwrap().last().unwrap(), Some(id(10)));
    }

    /// A write that is torn at any byte leaves the previous number or the new one.
    #[test]
    fn a_torn_write_takes_nothing_away() {
        for cut in 0..15 {
            let store = TempDir::new();
            let new = "gen-0000000012\n";
            let torn = new[..cut].to_string() + &"gen-0000000010\n"[cut..] + "gen-0000000011\n";
            write(store.path().join("lock"), torn).unwrap();
            let mut lock = acquire(store.path()).unwrap();
            assert!([Some(id(11)), Some(id(12))].contains(&lock.last().unwrap()), "cut at {cut}");
            lock.set_last(id(13)).unwrap();
            assert_eq!(lock.last().unwrap(), Some(id(13)));
        }
    }

    #[test]
    fn what_a_crash_leaves_does_not_block() {
        let zeros = "\0".repeat(30);
        for torn in ["", "\0", "g", "gen-0000000001", "gen-000000000", "gen-00\0\0", &zeros] {
            let store = TempDir::new();
            write(store.path().join("lock"), torn).unwrap();
            let mut lock = acquire(store.path()).unwrap();
            assert_eq!(lock.last().unwrap(), None, "{torn:?}");
            lock.set_last(id(5)).unwrap();
            assert_eq!(lock.last().unwrap(), Some(id(5)), "{torn:?}");
        }
    }

    #[test]
    fn a_file_of_something_else_is_refused_and_left_as_it_is() {
        let third = "gen-0000000001\ngen-0000000002\ngen-0000000003\n";
        let zeros = "\0".repeat(31);
        for foreign in
            ["\n", "7", "pid=4711", "gen-0000000001\r\n", "gen-000000000a\n", "gen-0000000001\nx", third, &zeros]
        {
            let store = TempDir::new();
            let path = store.path().join("lock");
            write(&path, foreign).unwrap();
            let error = acquire(store.path()).unwrap_err();
            assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidInput, Some(&*path)), "{foreign:?}");
            assert_eq!(read_to_string(&path).unwrap(), foreign);
        }
    }

    /// A backup of hard links (cp -al) keeps its number, and its lock is independent of the store's.
    #[cfg(unix)]
    #[test]
    fn a_hard_link_is_replaced_by_a_file_of_its_own() {
        let (store, backup) = (TempDir::new(), TempDir::new());
        let (path, other) = (store.path().join("lock"), backup.path().join("lock"));
        acquire(store.path()).unwrap().set_last(id(1)).unwrap();
        std::fs::hard_link(&path, &other).unwrap();
        let mut lock = acquire(store.path()).unwrap();
        let _of_the_backup = acquire(backup.path()).unwrap();
        assert_eq!(lock.last().unwrap(), Some(id(1)));
        lock.set_last(id(2)).unwrap();
        assert_eq!(read_to_string(&other).unwrap(), "gen-0000000001\n");
        assert_eq!(acquire(store.path()).unwrap_err().kind(), ErrorKind::Locked);
        assert_eq!(store.names(), ["lock"]);
    }

    /// A file that was removed after it was opened is not the lock, even though no other process holds it.
    #[test]
    fn a_lock_that_is_removed_meanwhile_is_not_held() {
        let store = TempDir::new();
        let path = store.path().join("lock");
        let mut first = Some(acquire(store.path()).unwrap());
        drop(first.take());
        let file = fs::open_or_create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let file = fs::try_lock(file, &path).unwrap().unwrap();
        acquire(store.path()).unwrap();
        assert!(!fs::is_same_file(&file, &path).unwrap());
    }
}
