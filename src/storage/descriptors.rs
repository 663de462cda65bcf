//! File descriptors: how many are kept open for positioned reads, and what happens when the process has no more.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwapOption;

use crate::disk;

/// The most descriptors that a process keeps open for positioned reads; other files are opened for each read.
///
/// A quarter of those that it may have, as of the first file, and 256 at most.
static MAX_KEPT: LazyLock<usize> = LazyLock::new(|| (disk::open_files_limit() / 4).min(256));

/// The kept files, the oldest first.
static KEPT: Mutex<VecDeque<Weak<ArcSwapOption<File>>>> = Mutex::new(VecDeque::new());

fn kept() -> MutexGuard<'static, VecDeque<Weak<ArcSwapOption<File>>>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open file that is closed when the process needs its descriptor for another one.
pub(super) struct KeptFile(Arc<ArcSwapOption<File>>);

impl KeptFile {
    /// Keeps a file open, or closes it if enough are kept.
    pub(super) fn new(file: File) -> KeptFile {
        let mut kept = kept();
        if kept.len() >= *MAX_KEPT {
            return KeptFile(Arc::default());
        }
        let file = Arc::new(ArcSwapOption::from_pointee(file));
        kept.push_back(Arc::downgrade(&file));
        KeptFile(file)
    }

    /// The file, unless it was closed.
    pub(super) fn get(&self) -> arc_swap::Guard<Option<Arc<File>>> {
        self.0.load()
    }
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        let this = Arc::as_ptr(&self.0);
        kept().retain(|kept| !std::ptr::eq(kept.as_ptr(), this));
    }
}

/// Opens a file for reading. If the process has no descriptor left, closes the oldest kept file and tries again.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    loop {
        match File::open(path) {
            Err(error) if disk::is_out_of_descriptors(&error) && close_oldest() => {}
            opened => return opened,
        }
    }
}

/// Whether a kept file was closed.
fn close_oldest() -> bool {
    while let Some(oldest) = kept().pop_front() {
        if oldest.upgrade().is_some_and(|file| file.swap(None).is_some()) {
            return true;
        }
    }
    false
}
