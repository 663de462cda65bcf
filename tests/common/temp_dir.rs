//! Temporary directories of tests.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::archives::copy_all;
use super::generations::names;

/// A temporary directory of one test, in `$TMPDIR` or else in cargo's directory for tests; removed on drop.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> TempDir {
        let parent = std::env::var_os("TMPDIR").map(PathBuf::from);
        let parent = parent.or_else(|| option_env!("CARGO_TARGET_TMPDIR").map(PathBuf::from));
        TempDir::new_in(&parent.unwrap_or_else(std::env::temp_dir))
    }

    /// In a file system in memory if there is one, for tests that check what is requested of a disk, not the disk.
    pub(crate) fn in_memory() -> TempDir {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }
    }

    pub(crate) fn new_in(parent: &Path) -> TempDir {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(parent).unwrap();
        let parent = parent.canonicalize().unwrap();
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("sharddb-test-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                // of a killed process that had this id, or of a live one in another container
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => {
                    created.unwrap();
                    return TempDir(path);
                }
            }
        }
    }

    /// A copy of a directory, which a test may change.
    pub(crate) fn copy_of(directory: &Path) -> TempDir {
        let copy = TempDir::new();
        copy_all(directory, copy.path());
        copy
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the names in it, ascending.
    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.0)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
