//! File descriptors of positioned reads: limits how many stay open, and closes some when the process runs out.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, Weak};

use arc_swap::ArcSwapOption;

use crate::format::locks::lock;
use crate::fs::disk;

static KEPT: LazyLock<Mutex<Kept>> =
    LazyLock::new(|| Mutex::new(Kept { max: disk::open_files_limit() / 4, next: 0, files: BTreeMap::new() }));

/// The files that are kept open. Other files are opened per read.
struct Kept {
    /// Upper bound on `files`. Initially a quarter of the descriptor limit.
    max: usize,
    /// The number of the next file.
    next: u64,
    /// By their numbers, so that the oldest is first.
    files: BTreeMap<u64, Weak<ArcSwapOption<File>>>,
}

/// An open file that may be closed when the process needs the descriptor for another file.
pub(crate) struct KeptFile {
    file: Arc<ArcSwapOption<File>>,
    /// Its number in `Kept`; `None` if it is not there.
    number: Option<u64>,
}

impl KeptFile {
    /// Keeps a file open, or closes it if `max` files are open already.
    pub(crate) fn new(file: File) -> KeptFile {
        let mut kept = lock(&KEPT);
        if kept.files.len() >= kept.max {
            return KeptFile { file: Arc::default(), number: None };
        }
        let (file, number) = (Arc::new(ArcSwapOption::from_pointee(file)), kept.next);
        kept.next += 1;
        kept.files.insert(number, Arc::downgrade(&file));
        KeptFile { file, number: Some(number) }
    }

    /// Keeps a file open for as long as this value lives.
    pub(crate) fn always(file: Arc<File>) -> KeptFile {
        KeptFile { file: Arc::new(ArcSwapOption::new(Some(file))), number: None }
    }

    /// Returns the file, unless it was closed.
    pub(crate) fn get(&self) -> arc_swap::Guard<Option<Arc<File>>> {
        self.file.load()
    }
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            lock(&KEPT).files.remove(&number);
        }
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
    let older = kept.files.len() - kept.max;
    let older: Vec<_> = (0..older).filter_map(|_| kept.files.pop_first()).collect();
    older.iter().filter_map(|(_, file)| file.upgrade()?.swap(None)).count() > 0
}
