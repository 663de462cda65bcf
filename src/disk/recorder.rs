//! The file system of the crash tests: the real one, with somebody who takes notes or says no.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use super::Operation;

/// Those who watch, each another directory: tests run side by side, and a build writes from several threads.
static WATCHED: Mutex<Vec<(PathBuf, Arc<Mutex<Notes>>)>> = Mutex::new(Vec::new());

/// One change that was made; paths are relative to the watched directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    CreateDir(PathBuf),
    CreateFile(PathBuf),
    Write { path: PathBuf, offset: u64, bytes: Vec<u8> },
    SyncFile(PathBuf),
    SyncDir(PathBuf),
    Rename { from: PathBuf, to: PathBuf },
    Symlink { target: PathBuf, link: PathBuf },
    Remove(PathBuf),
}

/// How the disk fails, from one operation on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// One operation fails (EIO), those after it do not.
    Once,
    /// Everything fails from there on (EIO).
    Broken,
    /// From there on nothing can be created or written (ENOSPC), everything else can.
    Full,
}

#[derive(Default)]
struct Notes {
    steps: Vec<Step>,
    /// Operations that were asked for, whatever became of them.
    reached: usize,
    /// How the disk fails, from which operation on.
    fault: Option<(Fault, usize)>,
    faults: usize,
}

/// Watches the operations below a directory for as long as it lives.
pub(crate) struct Watch {
    root: PathBuf,
    notes: Arc<Mutex<Notes>>,
}

impl Watch {
    pub(crate) fn on(root: &Path) -> Watch {
        let notes = Arc::<Mutex<Notes>>::default();
        lock(&WATCHED).push((root.to_path_buf(), notes.clone()));
        Watch { root: root.to_path_buf(), notes }
    }

    /// The steps since it was asked before.
    pub(crate) fn take_steps(&self) -> Vec<Step> {
        std::mem::take(&mut lock(&self.notes).steps)
    }

    /// Lets the disk fail from the `nth` operation from now on, counted from 0.
    pub(crate) fn fail(&self, fault: Fault, nth: usize) {
        let mut notes = lock(&self.notes);
        notes.fault = Some((fault, notes.reached + nth));
        notes.faults = 0;
    }

    /// The disk is sound again; the number of operations that failed.
    pub(crate) fn heal(&self) -> usize {
        let mut notes = lock(&self.notes);
        notes.fault = None;
        notes.faults
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock(&WATCHED).retain(|(root, _)| *root != self.root);
    }
}

/// In the environment of a process: it ends before its change of this number, counted from 0.
pub(crate) const END_BEFORE: &str = "SHARDDB_TEST_END_BEFORE";

/// Ends the process as SIGKILL would, without destructors and flushes, where it was told to.
fn end_if_told() {
    static END: LazyLock<Option<usize>> = LazyLock::new(|| std::env::var(END_BEFORE).ok()?.parse().ok());
    static REACHED: AtomicUsize = AtomicUsize::new(0);
    if let Some(end) = *END
        && REACHED.fetch_add(1, Ordering::Relaxed) == end
    {
        std::process::abort();
    }
}

/// Makes the change and notes it, or does not.
pub(super) fn perform<T>(operation: Operation<'_>, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    end_if_told();
    let Some((root, notes)) = watcher_of(operation.path()) else { return call() };
    let mut notes = lock(&notes); // until it is made, so that steps are noted in their order
    if let Some(error) = notes.fault_of(&operation) {
        operation.begin();
        return Err(error);
    }
    let steps = operation.steps(&root);
    let made = call()?;
    notes.steps.extend(steps);
    Ok(made)
}

fn watcher_of(path: &Path) -> Option<(PathBuf, Arc<Mutex<Notes>>)> {
    lock(&WATCHED).iter().find(|(root, _)| path.starts_with(root)).cloned()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Notes {
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
            Operation::Rename { to, .. } => to,
            #[cfg(unix)]
            Operation::Symlink { link, .. } => link,
        }
    }

    fn takes_space(&self) -> bool {
        match self {
            Operation::CreateDir(_) | Operation::CreateFile(_) | Operation::Write { .. } => true,
            #[cfg(unix)]
            Operation::Symlink { .. } => true,
            _ => false,
        }
    }

    /// What an operation that fails has done by then: half of what was to be written.
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
            Operation::Rename { from, to } => vec![Step::Rename { from: of(from), to: of(to) }],
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

/// A directory and all in it, each after what is in it: the order in which they are removed.
fn list_inside_out(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => list_inside_out(&entry.path(), into),
            false => into.push(entry.path()),
        }
    }
    into.push(directory.to_path_buf());
}
