//! The functions of the library's `store/fs.rs` on a disk in memory: each is one step to those who run beside it, or as
//! many as it is to the system.
//!
//! Names lead to files; a file lives on without a name while somebody has it open; locks are of the file, shared or alone,
//! as flock(2) gives them. A directory is renamed with all in it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use loom::sync::Mutex;

use crate::error::{Error, Result};

#[derive(Default)]
struct Disk {
    names: BTreeMap<PathBuf, Node>,
    files: u64,
    /// Files that are locked, by how many shared holders; `None` is one that has it alone.
    locks: BTreeMap<u64, Option<u64>>,
    /// For the tests of the tests: what is broken.
    flaw: Option<Flaw>,
}

#[derive(Clone)]
enum Node {
    File { inode: u64, content: u64 },
    Link(PathBuf),
}

/// A disk that does not keep to the rules: the models have to notice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Locks are given to everybody.
    LocksDoNothing,
    /// A file that took another's place passes for it.
    FilesLookAlike,
    /// No lock can be had at all, as on some network file systems.
    NoLocks,
}

loom::lazy_static! {
    static ref DISK: Mutex<Disk> = Mutex::new(Disk::default());
}

/// One call to the system.
fn step<T>(call: impl FnOnce(&mut Disk) -> T) -> T {
    call(&mut DISK.lock().unwrap())
}

pub fn break_by(flaw: Flaw) {
    step(|disk| disk.flaw = Some(flaw));
}

/// A generation, complete, under its name at once; its shard holds its number.
pub(super) fn place_generation(path: &Path, content: u64) {
    step(|disk| {
        for name in ["0.shard", "info", "lease", "manifest.json"] {
            disk.files += 1;
            let inode = disk.files;
            disk.names.insert(path.join(name), Node::File { inode, content });
        }
    });
}

pub(super) fn content(path: &Path) -> Option<u64> {
    step(|disk| match disk.names.get(path) {
        Some(Node::File { content, .. }) => Some(*content),
        _ => None,
    })
}

/// The names below a store, whatever they are.
pub fn leftovers() -> Vec<PathBuf> {
    step(|disk| disk.names.keys().cloned().collect())
}

pub(super) fn names(directory: &Path) -> Result<Vec<String>> {
    let first = |path: &PathBuf| Some(path.strip_prefix(directory).ok()?.iter().next()?.to_str()?.to_string());
    Ok(step(|disk| disk.names.keys().filter_map(first).collect::<BTreeSet<_>>()).into_iter().collect())
}

pub(super) fn exists(path: &Path) -> Result<bool> {
    Ok(step(|disk| disk.names.contains_key(path) || disk.has_below(path)))
}

pub(super) fn is_dir(path: &Path) -> bool {
    step(|disk| disk.has_below(path))
}

pub(super) fn is_file(path: &Path) -> bool {
    step(|disk| matches!(disk.names.get(path), Some(Node::File { .. })))
}

pub(super) fn open_file(path: &Path) -> Result<File> {
    step(|disk| match disk.names.get(path) {
        Some(Node::File { inode, .. }) => Ok(File { inode: *inode }),
        _ => Err(Error::io("open", path, io::ErrorKind::NotFound.into())),
    })
}

pub(super) fn read_link(link: &Path) -> Result<Option<PathBuf>> {
    Ok(step(|disk| match disk.names.get(link) {
        Some(Node::Link(target)) => Some(target.clone()),
        _ => None,
    }))
}

pub(super) fn write_link(target: &Path, link: &Path) -> Result<()> {
    step(|disk| disk.names.insert(link.to_path_buf(), Node::Link(target.to_path_buf())));
    Ok(())
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<()> {
    step(|disk| {
        let moved: Vec<PathBuf> = disk.names.keys().filter(|path| path.starts_with(from)).cloned().collect();
        assert!(!moved.is_empty(), "nothing to rename: {from:?}");
        for path in moved {
            let below = path.strip_prefix(from).unwrap();
            let new = if below.as_os_str().is_empty() { to.to_path_buf() } else { to.join(below) };
            let node = disk.names.remove(&path).unwrap();
            disk.names.insert(new, node);
        }
    });
    Ok(())
}

/// A directory goes file by file.
pub(super) fn remove(path: &Path) -> Result<()> {
    let doomed = step(|disk| disk.names.keys().filter(|name| name.starts_with(path)).cloned().collect::<Vec<_>>());
    for name in doomed {
        step(|disk| disk.names.remove(&name));
    }
    Ok(())
}

/// Nothing crashes here.
pub(super) fn fsync_dir(_: &Path) -> Result<()> {
    Ok(())
}

/// An open file.
#[derive(Debug)]
pub(crate) struct File {
    inode: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(u64);

#[derive(Debug)]
pub(crate) struct LockedFile(File);

impl LockedFile {
    /// Nobody forks here.
    pub(crate) fn is_own(&self) -> bool {
        true
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        step(|disk| {
            let others = disk.locks.remove(&self.0.inode).flatten().unwrap_or(1) - 1;
            if others > 0 {
                disk.locks.insert(self.0.inode, Some(others));
            }
        });
    }
}

pub(super) fn try_lock(file: File, path: &Path) -> Result<Option<LockedFile>> {
    step(|disk| disk.lock(file, path, |held| if held.is_none() { Some(None) } else { None }))
}

pub(super) fn try_lock_shared(file: File, path: &Path) -> Result<Option<LockedFile>> {
    step(|disk| {
        disk.lock(file, path, |held| match held {
            None => Some(Some(1)),
            Some(Some(others)) => Some(Some(others + 1)),
            Some(None) => None,
        })
    })
}

/// Of a directory, that of its first file.
pub(super) fn identity(path: &Path) -> Option<Identity> {
    step(|disk| {
        disk.names.iter().filter(|(name, _)| name.starts_with(path)).find_map(|(_, node)| match node {
            Node::File { inode, .. } => Some(Identity(*inode)),
            Node::Link(_) => None,
        })
    })
}

pub(super) fn is_same_file(file: &File, path: &Path) -> bool {
    step(|disk| match disk.names.get(path) {
        Some(Node::File { inode, .. }) => *inode == file.inode || disk.flaw == Some(Flaw::FilesLookAlike),
        _ => disk.flaw == Some(Flaw::FilesLookAlike),
    })
}

impl Disk {
    fn has_below(&self, path: &Path) -> bool {
        self.names.keys().any(|name| name != path && name.starts_with(path))
    }

    /// Locks a file if `held`, how it is locked now, allows it.
    fn lock(
        &mut self,
        file: File,
        path: &Path,
        allowed: impl FnOnce(Option<Option<u64>>) -> Option<Option<u64>>,
    ) -> Result<Option<LockedFile>> {
        let held = self.locks.get(&file.inode).copied();
        let lock = match self.flaw {
            Some(Flaw::NoLocks) => return Err(Error::io("lock", path, io::ErrorKind::Unsupported.into())),
            Some(Flaw::LocksDoNothing) => Some(Some(1)),
            _ => allowed(held),
        };
        let Some(lock) = lock else { return Ok(None) };
        self.locks.insert(file.inode, lock);
        Ok(Some(LockedFile(file)))
    }
}
