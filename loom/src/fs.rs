//! The functions of the library's `src/fs/mod.rs` on a disk in memory. Each takes as many atomic steps as it makes
//! system calls.
//!
//! Names refer to files. A file without a name exists as long as it is open. Locks belong to the file and are shared or
//! exclusive, as with flock(2). A directory is renamed with its content.

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
    /// Locked files, with the number of shared holders; `None` for an exclusive lock.
    locks: BTreeMap<u64, Option<u64>>,
    /// The flaw of the disk, for the tests of the model itself.
    flaw: Option<Flaw>,
}

#[derive(Clone)]
enum Node {
    File { inode: u64, content: u64 },
    Link(PathBuf),
}

/// A way in which a disk breaks the rules. The models must detect it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Every lock is granted.
    LocksDoNothing,
    /// A file that replaces another one has the same identity.
    FilesLookAlike,
    /// No lock is granted, as on some network file systems.
    NoLocks,
}

loom::lazy_static! {
    static ref DISK: Mutex<Disk> = Mutex::new(Disk::default());
}

/// Runs one system call as an atomic step.
fn step<T>(call: impl FnOnce(&mut Disk) -> T) -> T {
    call(&mut DISK.lock().unwrap())
}

pub fn break_by(flaw: Flaw) {
    step(|disk| disk.flaw = Some(flaw));
}

/// Places a complete generation under its name in one step. Its shard contains `content`.
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

/// All names below the store.
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

pub(super) fn is_file(path: &Path) -> Result<bool> {
    Ok(step(|disk| matches!(disk.names.get(path), Some(Node::File { .. }))))
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

/// Removes a directory file by file.
pub(super) fn remove(path: &Path) -> Result<()> {
    let doomed = step(|disk| disk.names.keys().filter(|name| name.starts_with(path)).cloned().collect::<Vec<_>>());
    for name in doomed {
        step(|disk| disk.names.remove(&name));
    }
    Ok(())
}

/// Does nothing: the model has no crashes.
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
    /// Always true: the model has no forks.
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

/// The identity of a file; for a directory, that of its first file.
pub(super) fn identity(path: &Path) -> Result<Option<Identity>> {
    Ok(step(|disk| {
        disk.names.iter().filter(|(name, _)| name.starts_with(path)).find_map(|(_, node)| match node {
            Node::File { inode, .. } => Some(Identity(*inode)),
            Node::Link(_) => None,
        })
    }))
}

pub(super) fn is_same_file(file: &File, path: &Path) -> Result<bool> {
    Ok(step(|disk| match disk.names.get(path) {
        Some(Node::File { inode, .. }) => *inode == file.inode || disk.flaw == Some(Flaw::FilesLookAlike),
        _ => disk.flaw == Some(Flaw::FilesLookAlike),
    }))
}

impl Disk {
    fn has_below(&self, path: &Path) -> bool {
        self.names.keys().any(|name| name != path && name.starts_with(path))
    }

    /// Locks a file if `held`, its current lock, permits it.
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
