//! File descriptors of positioned reads: limits how many stay open, and closes some when the process runs out.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, Weak};

use arc_swap::ArcSwapOption;

use crate::format::locks::lock;
use crate::fs::disk;

static KEPT: LazyLock<Mutex<Kept>> =
    LazyLock::new(|| Mutex::new(Kept { max: (disk::open_files_limit() / 4).min(256), files: VecDeque::new() }));

/// The files that are kept open. Other files are opened per read.
struct Kept {
    /// Upper bound on `files`. Initially a quarter of the descriptor limit, at most 256.
    max: usize,
    /// Oldest first.
    files: VecDeque<Weak<ArcSwapOption<File>>>,
}

/// An open file that may be closed when the process needs the descriptor for another file.
pub(crate) struct KeptFile(Arc<ArcSwapOption<File>>);

impl KeptFile {
    /// Keeps a file open, or closes it if `max` files are open already.
    pub(crate) fn new(file: File) -> KeptFile {
        let mut kept = lock(&KEPT);
        if kept.files.len() >= kept.max {
            return KeptFile(Arc::default());
        }
        let file = Arc::new(ArcSwapOption::from_pointee(file));
        kept.files.push_back(Arc::downgrade(&file));
        KeptFile(file)
    }

    /// Keeps a file open for as long as this value lives.
    pub(crate) fn always(file: Arc<File>) -> KeptFile {
        KeptFile(Arc::new(ArcSwapOption::new(Some(file))))
    }

    /// Returns the file, unless it was closed.
    pub(crate) fn get(&self) -> arc_swap::Guard<Option<Arc<File>>> {
        self.0.load()
    }
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        let this = Arc::as_ptr(&self.0);
        lock(&KEPT).files.retain(|kept| !std::ptr::eq(kept.as_ptr(), this));
    }
}

/// Opens a file for reading. If no descriptor is left, closes half of the kept files and retries.
pub fn open(path: &Path) -> io::Result<File> {
    loop {
        match File::open(path) {
            Err(error) if disk::is_out_of_descriptors(&error) && close_half() => {}
            opened => return opened,
        }
    }
}

/// Closes the older half of the kept files, at least one, and lowers `max` to the other half, so that the rest of the
/// program has descriptors too. Returns whether a file was closed.
fn close_half() -> bool {
    let mut kept = lock(&KEPT);
    kept.max = kept.files.len() / 2;
    let closed = kept.files.len() - kept.max;
    kept.files.drain(..closed).filter_map(|file| file.upgrade()).filter_map(|file| file.swap(None)).count() > 0
}
