//! The file system of the crash tests: the real one, with a recorder that logs operations or makes them fail.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::Duration;

use crate::format::locks::lock;

use super::Operation;

/// The active watches, one per directory: tests run in parallel, and a build writes from several threads.
static WATCHED: Mutex<Vec<(PathBuf, Arc<Mutex<Notes>>)>> = Mutex::new(Vec::new());

/// A change that was made. Paths are relative to the watched directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    CreateDir(PathBuf),
    CreateFile(PathBuf),
    Write { path: PathBuf, offset: u64, bytes: Vec<u8> },
    SyncFile(PathBuf),
    SyncDir(PathBuf),
    SyncFileSystem,
    Rename { from: PathBuf, to: PathBuf },
    HardLink { file: PathBuf, link: PathBuf },
    Symlink { target: PathBuf, link: PathBuf },
    Remove(PathBuf),
}

/// How operations fail, from a given operation on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// One operation fails (EIO). Later ones succeed.
    Once,
    /// All operations fail (EIO).
    Broken,
    /// Creations and writes fail (ENOSPC). All other operations succeed.
    Full,
}

#[derive(Default)]
struct Notes {
    steps: Vec<Step>,
    /// The number of operations so far, including failed ones.
    reached: usize,
    /// The fault, and the number of the operation at which it begins.
    fault: Option<(Fault, usize)>,
    /// The number of reads so far, including failed ones.
    reads: usize,
    /// The error number of the read that fails, and the number of that read.
    failing_read: Option<(i32, usize)>,
    /// The operations and reads that failed.
    faults: usize,
    /// The time that each read takes.
    delay: Duration,
    reads_in_flight: usize,
    /// The most reads that were in flight at the same time.
    most_in_flight: usize,
}

/// Records the operations below a directory until it is dropped.
pub struct Watch {
    root: PathBuf,
    notes: Arc<Mutex<Notes>>,
}

impl Watch {
    pub fn on(root: &Path) -> Watch {
        let notes = Arc::<Mutex<Notes>>::default();
        lock(&WATCHED).push((root.to_path_buf(), notes.clone()));
        Watch { root: root.to_path_buf(), notes }
    }

    /// Returns the steps since the last call.
    pub fn take_steps(&self) -> Vec<Step> {
        std::mem::take(&mut lock(&self.notes).steps)
    }

    /// Begins a fault at the `nth` operation from now, counted from 0.
    pub fn fail(&self, fault: Fault, nth: usize) {
        let mut notes = lock(&self.notes);
        notes.fault = Some((fault, notes.reached + nth));
        notes.faults = 0;
    }

    /// Lets the `nth` read from now, counted from 0, fail once with this error number.
    pub fn fail_read(&self, error: i32, nth: usize) {
        let mut notes = lock(&self.notes);
        notes.failing_read = Some((error, notes.reads + nth));
        notes.faults = 0;
    }

    /// Lets each read wait, like that of a disk. Returns the most reads that were in flight since the last call.
    #[cfg(test)]
    pub(crate) fn delay_reads(&self, delay: Duration) -> usize {
        let mut notes = lock(&self.notes);
        notes.delay = delay;
        std::mem::take(&mut notes.most_in_flight)
    }

    /// Ends the fault. Returns the number of operations and reads that failed.
    pub fn heal(&self) -> usize {
        let mut notes = lock(&self.notes);
        (notes.fault, notes.failing_read) = (None, None);
        notes.faults
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock(&WATCHED).retain(|(root, _)| *root != self.root);
    }
}

/// Environment variable: the process aborts before its change of this number, counted from 0.
pub(crate) const END_BEFORE: &str = "SHARDDB_TEST_END_BEFORE";

/// Aborts the process, without destructors and flushes, before the change that [`END_BEFORE`] selects.
fn abort_if_selected() {
    static END: LazyLock<Option<usize>> = LazyLock::new(|| std::env::var(END_BEFORE).ok()?.parse().ok());
    static REACHED: AtomicUsize = AtomicUsize::new(0);
    if let Some(end) = *END
        && REACHED.fetch_add(1, Ordering::Relaxed) == end
    {
        std::process::abort();
    }
}

/// Makes a change and records it, or fails it if a fault is active.
pub(super) fn perform<T>(operation: Operation<'_>, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    abort_if_selected();
    let Some((root, notes)) = watcher_of(operation.path()) else { return call() };
    let mut notes = lock(&notes); // held during the call, so that steps are recorded in their order
    if let Some(error) = notes.fault_of(&operation) {
        operation.begin();
        return Err(error);
    }
    let steps = operation.steps(&root);
    let made = call()?;
    notes.steps.extend(steps);
    Ok(made)
}

/// Makes a read, or fails it if it is the one that shall fail.
pub fn inspect<T>(path: &Path, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Some((_, notes)) = watcher_of(path) else { return call() };
    let delay = lock(&notes).begin_read()?;
    thread::sleep(delay);
    let result = call();
    lock(&notes).reads_in_flight -= 1;
    result
}

fn watcher_of(path: &Path) -> Option<(PathBuf, Arc<Mutex<Notes>>)> {
    lock(&WATCHED).iter().find(|(root, _)| path.starts_with(root)).cloned()
}

impl Notes {
    /// Begins a read, and returns how long it waits, or the error that it fails with.
    fn begin_read(&mut self) -> io::Result<Duration> {
        let now = self.reads;
        self.reads += 1;
        if let Some((error, _)) = self.failing_read.filter(|(_, nth)| now == *nth) {
            self.faults += 1;
            return Err(io::Error::from_raw_os_error(error));
        }
        self.reads_in_flight += 1;
        self.most_in_flight = self.most_in_flight.max(self.reads_in_flight);
        Ok(self.delay)
    }

    fn fault_of(&mut self, operation: &Operation<'_>) -> Option<io::Error> {
        const EIO: i32 = 5;
        const ENOSPC: i32 = 28;
        let now = self.reached;
        self.reached += 1;
        let error = match self.fault? {
            (Fault::Once, nth) if now == nth => EIO,
            (Fault::Broken, nth) if now >= nth => EIO,
            (Fault::Full, nth) if now >= nth && operation.takes_space() => ENOSPC,
            _ => return None,
        };
        self.faults += 1;
        Some(io::Error::from_raw_os_error(error))
    }
}

impl Operation<'_> {
    fn path(&self) -> &Path {
        match self {
            Operation::CreateDir(path)
            | Operation::CreateFile(path)
            | Operation::Write { path, .. }
            | Operation::SetMode(path)
            | Operation::SyncFile(path)
            | Operation::SyncDir(path)
            | Operation::RemoveFile(path)
            | Operation::RemoveDir(path)
            | Operation::RemoveDirAll(path)
            | Operation::Lock(path) => path,
            #[cfg(target_os = "linux")]
            Operation::SyncFileSystem(path) => path,
            Operation::Rename { to, .. } => to,
            Operation::HardLink { link, .. } => link,
            #[cfg(unix)]
            Operation::Symlink { link, .. } => link,
        }
    }

    fn takes_space(&self) -> bool {
        match self {
            Operation::CreateDir(_)
            | Operation::CreateFile(_)
            | Operation::Write { .. }
            | Operation::HardLink { .. } => true,
            #[cfg(unix)]
            Operation::Symlink { .. } => true,
            _ => false,
        }
    }

    /// Makes the part of a failing operation that a crash may leave behind: the first half of a write.
    fn begin(&self) {
        if let Operation::Write { path, offset, bytes } = self {
            let file = fs::File::options().write(true).open(path).unwrap();
            super::write_all_at_position(&file, *offset, &bytes[..bytes.len() / 2]).unwrap();
        }
    }

    fn steps(&self, root: &Path) -> Vec<Step> {
        let of = |path: &Path| path.strip_prefix(root).unwrap().to_path_buf();
        match *self {
            Operation::CreateDir(path) => vec![Step::CreateDir(of(path))],
            Operation::CreateFile(path) if path.exists() => vec![],
            Operation::CreateFile(path) => vec![Step::CreateFile(of(path))],
            Operation::Write { path, offset, bytes } => {
                vec![Step::Write { path: of(path), offset, bytes: bytes.to_vec() }]
            }
            Operation::SyncFile(path) => vec![Step::SyncFile(of(path))],
            Operation::SyncDir(path) => vec![Step::SyncDir(of(path))],
            #[cfg(target_os = "linux")]
            Operation::SyncFileSystem(_) => vec![Step::SyncFileSystem],
            Operation::Rename { from, to } => vec![Step::Rename { from: of(from), to: of(to) }],
            Operation::HardLink { file, link } => vec![Step::HardLink { file: of(file), link: of(link) }],
            #[cfg(unix)]
            Operation::Symlink { target, link } => vec![Step::Symlink { target: target.into(), link: of(link) }],
            Operation::RemoveFile(path) | Operation::RemoveDir(path) => vec![Step::Remove(of(path))],
            Operation::RemoveDirAll(path) => {
                let mut paths = Vec::new();
                list_inside_out(path, &mut paths);
                paths.iter().map(|path| Step::Remove(of(path))).collect()
            }
            Operation::SetMode(_) | Operation::Lock(_) => vec![],
        }
    }
}

/// Lists a directory and its contents in the order of their removal: contents first.
fn list_inside_out(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() { list_inside_out(&entry.path(), into) } else { into.push(entry.path()) }
    }
    into.push(directory.to_path_buf());
}
