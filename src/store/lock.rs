//! `lock`: one writer of a store at a time, and the last number that a generation was given.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::store::fs::{self, LockedFile};
use crate::store::generation_id::GenerationId;

/// The name of the file.
pub(super) const FILE_NAME: &str = "lock";

/// The length of a line of the file: the name of a generation and a line feed.
const LINE: usize = 15;

/// The file `lock`, locked until it is dropped or the process ends.
///
/// It has up to two lines, each the name of a generation; the greater is the last one. The other is overwritten with
/// the next, so that a torn write takes nothing away. What is no such line does not count: then the generations
/// that are there have to tell.
#[derive(Debug)]
pub(super) struct Lock {
    file: LockedFile,
    path: PathBuf,
}

impl Lock {
    /// Locks a store for writing, without waiting.
    ///
    /// Errors: `Locked` if another writer has it, in this process or another.
    pub(super) fn acquire(store: &Path) -> Result<Lock> {
        let path = store.join(FILE_NAME);
        if let Some(file) = fs::try_lock(fs::open_or_create(&path)?, &path)? {
            return Ok(Lock { file, path });
        }
        let message = "expected to be the only writer of the store, found another that holds its lock: \
                       wait until it ends, or look who has this file open (lslocks or fuser on Linux)";
        Err(Error::new(ErrorKind::Locked, message).at_path(&path))
    }

    /// The last number given, as far as the file tells.
    pub(super) fn last(&self) -> Result<Option<GenerationId>> {
        let (first, second) = self.lines()?;
        Ok(first.max(second))
    }

    /// Records that `id` is given; survives a crash from here on.
    pub(super) fn set_last(&mut self, id: GenerationId) -> Result<()> {
        let (first, second) = self.lines()?;
        let offset = if first > second { LINE as u64 } else { 0 };
        fs::overwrite(&self.file, offset, format!("{id}\n").as_bytes(), &self.path)
    }

    fn lines(&self) -> Result<(Option<GenerationId>, Option<GenerationId>)> {
        let bytes = fs::read_head(&self.file, 2 * LINE as u64, &self.path)?;
        let (first, second) = bytes.split_at_checked(LINE).unwrap_or((&bytes, &[]));
        Ok((line(first), line(second)))
    }
}

/// The generation on a line, if it is a whole one.
fn line(bytes: &[u8]) -> Option<GenerationId> {
    GenerationId::from_name(std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?)
}

#[cfg(test)]
mod tests {
    use std::fs::{read_to_string, write};

    use super::*;
    use crate::store::testing::TempDir;

    fn id(number: u64) -> GenerationId {
        GenerationId::new(number).unwrap()
    }

    #[test]
    fn the_second_writer_is_told_at_once_where_to_look() {
        let store = TempDir::new();
        let first = Lock::acquire(store.path()).unwrap();
        let error = Lock::acquire(store.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked);
        assert_eq!(error.path(), Some(&*store.path().join("lock")));
        assert!(error.message().contains("another"), "{error}");
        drop(first);
        Lock::acquire(store.path()).unwrap();
    }

    /// For a moment a process that is being started has a copy of every open file.
    #[test]
    fn is_free_when_dropped_though_a_copy_of_the_file_is_open() {
        let store = TempDir::new();
        let lock = Lock::acquire(store.path()).unwrap();
        let _copy = lock.file.try_clone().unwrap();
        drop(lock);
        Lock::acquire(store.path()).unwrap();
    }

    #[test]
    fn remembers_the_last_number_in_two_lines() {
        let store = TempDir::new();
        let mut lock = Lock::acquire(store.path()).unwrap();
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
        assert_eq!(Lock::acquire(store.path()).unwrap().last().unwrap(), Some(id(10)));
    }

    /// A write cut short anywhere leaves the number before it or the new one.
    #[test]
    fn a_torn_write_takes_nothing_away() {
        for cut in 0..15 {
            let store = TempDir::new();
            let new = "gen-0000000012\n";
            let torn = new[..cut].to_string() + &"gen-0000000010\n"[cut..] + "gen-0000000011\n";
            write(store.path().join("lock"), torn).unwrap();
            let mut lock = Lock::acquire(store.path()).unwrap();
            assert!([Some(id(11)), Some(id(12))].contains(&lock.last().unwrap()), "cut at {cut}");
            lock.set_last(id(13)).unwrap();
            assert_eq!(lock.last().unwrap(), Some(id(13)));
        }
    }

    #[test]
    fn what_is_no_number_does_not_block() {
        let zeros = "\0".repeat(30);
        for garbage in
            ["", "\n", "7", "gen-0000000001", "gen-000000000", &zeros, "any other text of some length, no number"]
        {
            let store = TempDir::new();
            write(store.path().join("lock"), garbage).unwrap();
            let mut lock = Lock::acquire(store.path()).unwrap();
            assert_eq!(lock.last().unwrap(), None, "{garbage:?}");
            lock.set_last(id(5)).unwrap();
            assert_eq!(lock.last().unwrap(), Some(id(5)), "{garbage:?}");
        }
    }
}
