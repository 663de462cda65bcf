//! Calls of the file system. Each error names the operation and the path.
//!
//! This module hides what platforms lack: syncing of directories, symbolic links. Calls that change the file system go
//! through [`disk`], where tests record them or make them fail.

pub mod descriptors;
pub mod disk;
pub mod entry;
pub(crate) mod identity;
pub mod owning_process;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::format::checksum::{Checksum, ChecksumHasher};
use crate::fs::descriptors::open as open_descriptor;
use crate::fs::entry::own_metadata_if_there;
pub(crate) use crate::fs::entry::{
    exists, is_dir, is_dir_if_there, is_file, is_link, is_real_dir, is_real_file, is_real_file_if_there,
};
pub(crate) use crate::fs::identity::Identity;
use crate::fs::owning_process::OwningProcess;
use crate::threads::progress::Progress;

/// Size of a read when a file is copied or its checksum is computed.
const CHUNK: usize = 1 << 20;

/// Upper bound on the bytes read from a text file that replaces a link; longer than any path.
const LONGEST_LINK: u64 = 1 << 16;

pub(crate) fn create_dir(path: &Path) -> Result<()> {
    disk::create_dir(path).map_err(|error| Error::io("create the directory", path, error))
}

/// Creates a directory and its parents, durably; returns false if the directory exists already.
pub(crate) fn create_dir_all(path: &Path) -> Result<bool> {
    let Some(parent) = path.parent() else { return Ok(false) };
    if is_dir(path)? {
        return Ok(false);
    }
    create_dir_all(parent)?;
    let created = match disk::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_dir(path)? => false, // created concurrently
        created => created.map(|()| true).map_err(|error| Error::io("create the directory", path, error))?,
    };
    fsync_dir(parent)?;
    Ok(created)
}

/// Creates a new directory in `parent`: `prefix`, the process id, and the time in nanoseconds.
pub(crate) fn create_unique_dir(parent: &Path, prefix: &str) -> Result<PathBuf> {
    loop {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let path = parent.join(format!("{prefix}{}-{nanos:x}", std::process::id()));
        match disk::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {} // retry with a later time
            Err(error) => return Err(Error::io("create the directory", &path, error)),
            Ok(()) => return Ok(path),
        }
    }
}

/// Returns the names in a directory, ascending. Omits names that are not UTF-8, which are foreign.
pub(crate) fn names(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    find_entry(directory, |name, _| {
        names.extend(name.to_str().map(str::to_string));
        Ok(false)
    })?;
    names.sort_unstable();
    Ok(names)
}

/// Returns the path of an entry of a directory for which `is_wanted` holds: the first in the order of the file system.
///
/// Errors: `Io`; those of `is_wanted`.
pub(crate) fn find_entry(
    directory: &Path,
    mut is_wanted: impl FnMut(&OsStr, &Path) -> Result<bool>,
) -> Result<Option<PathBuf>> {
    let fail = |error| Error::io("list the directory", directory, error);
    for entry in disk::inspect(directory, || fs::read_dir(directory)).map_err(fail)? {
        let entry = disk::inspect(directory, || entry).map_err(fail)?;
        if is_wanted(&entry.file_name(), &entry.path())? {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// Returns the absolute path, which stays valid when the working directory changes. Does not resolve links.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Error::io("find", path, error))
}

/// Returns the absolute path with all links resolved.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf> {
    disk::inspect(path, || path.canonicalize()).map_err(|error| Error::io("find", path, error))
}

/// Creates a file with these bytes, synced and read-only.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let file = disk::create_new(path).map_err(|error| Error::io("create", path, error))?;
    disk::write_all_at(&file, path, 0, bytes).map_err(|error| Error::io("write", path, error))?;
    seal(&file, path)
}

/// Copies the file `from`, whose bytes are stated, to a new file, synced and read-only.
///
/// Errors, which leave a partial or wrong copy: `Corrupt` with the path of `from`; `Io`; `Cancelled`.
pub(crate) fn copy_new(from: &Path, to: &Path, stated: Checksum, progress: &Progress) -> Result<()> {
    let file = disk::create_new(to).map_err(|error| Error::io("create", to, error))?;
    let mut written = 0;
    let write = |bytes: &[u8]| {
        disk::write_all_at(&file, to, written, bytes).map_err(|error| Error::io("write", to, error))?;
        written += bytes.len() as u64;
        Ok(())
    };
    let found = stream(from, stated.hasher(), write, progress)?;
    stated.check(found).map_err(|error| error.at_path(from))?;
    seal(&file, to)
}

/// Computes what is stated about a file. Cost: reads the file.
///
/// Errors: `Io`; `Cancelled`.
pub(crate) fn checksum(path: &Path, stated: Checksum, progress: &Progress) -> Result<Checksum> {
    stream(path, stated.hasher(), |_| Ok(()), progress)
}

/// Returns whether two files have the same bytes. Cost: reads both, up to the first block that differs.
pub(crate) fn have_equal_bytes(one: &Path, other: &Path) -> Result<bool> {
    if file_len(one)? != file_len(other)? {
        return Ok(false);
    }
    let (files, mut blocks) = ([(one, open_file(one)?), (other, open_file(other)?)], [Vec::new(), Vec::new()]);
    loop {
        for ((path, file), block) in files.iter().zip(&mut blocks) {
            block.clear();
            let read = disk::inspect(path, || file.take(CHUNK as u64).read_to_end(block));
            read.map_err(|error| Error::io("read", path, error))?;
        }
        match &blocks {
            [one, other] if one != other => return Ok(false),
            [one, _] if one.is_empty() => return Ok(true),
            _ => {}
        }
    }
}

/// Returns the length of a regular file or of one that a link names.
pub(crate) fn file_len(path: &Path) -> Result<u64> {
    let metadata = disk::inspect(path, || path.metadata()).map_err(|error| Error::io("find", path, error))?;
    if metadata.is_file() { Ok(metadata.len()) } else { Err(not_a_file(path)) }
}

/// Opens a regular file for reading. Checks the type first, since opening a FIFO would block.
pub(crate) fn open_file(path: &Path) -> Result<File> {
    file_len(path)?;
    disk::inspect(path, || open_descriptor(path)).map_err(|error| Error::io("open", path, error))
}

/// Removes the write permissions of a file: 0644 becomes 0444, 0600 becomes 0400.
pub(crate) fn set_read_only(path: &Path) -> Result<()> {
    disk::set_read_only(path).map_err(|error| Error::io("make read-only", path, error))
}

/// Syncs a file that another program wrote. Does nothing for a read-only file on platforms that sync only files that
/// are open for writing.
pub(crate) fn fsync_file(path: &Path) -> Result<()> {
    let file = if cfg!(unix) { File::open(path) } else { File::options().append(true).open(path) };
    match file.and_then(|file| disk::sync_file(&file, path)) {
        Err(error) if !cfg!(unix) && error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced.map_err(|error| Error::io("sync", path, error)),
    }
}

/// Number of files from which on one sync of their file system takes less time than one of each.
#[cfg(target_os = "linux")]
const MANY_FILES: usize = if cfg!(test) { 3 } else { 16 };

/// Syncs files of one file system that were perhaps never synced.
///
/// Cost: below [`MANY_FILES`], one sync for each; else one sync of the file system, also of what other programs wrote.
pub(crate) fn sync_files(paths: &[PathBuf]) -> Result<()> {
    #[cfg(target_os = "linux")]
    if paths.len() >= MANY_FILES
        && let Some(directory) = paths.first().and_then(|path| path.parent())
    {
        match File::open(directory).and_then(|opened| disk::sync_file_system(&opened, directory)) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {} // ENOSYS
            synced => return synced.map_err(|error| Error::io("sync the file system of", directory, error)),
        }
    }
    paths.iter().try_for_each(|path| fsync_file(path))
}

/// Syncs the entries of a directory. Does nothing where the platform or the file system cannot.
pub fn fsync_dir(path: &Path) -> Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    match File::open(path).and_then(|directory| disk::sync_dir(&directory, path)) {
        // EINVAL and ENOTSUP: this file system does not sync directories
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        result => result.map_err(|error| Error::io("sync the directory", path, error)),
    }
}

/// Renames `from` to `to`. Replaces a file at `to`.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    disk::rename(from, to).map_err(|error| Error::io(&format!("rename to {}", to.display()), from, error))
}

/// Returns whether a [`rename`] failed because the two paths are on different file systems.
pub(crate) fn crosses_devices(error: &Error) -> bool {
    error.io_kind() == Some(io::ErrorKind::CrossesDevices)
}

/// Creates a link to `target`: a symbolic link, or a text file where symbolic links are not supported.
pub(crate) fn write_link(target: &Path, link: &Path) -> Result<()> {
    #[cfg(unix)]
    match disk::symlink(target, link) {
        // EPERM and ENOTSUP: this file system has no symbolic links
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) => {}
        linked => return linked.map_err(|error| Error::io("create the link", link, error)),
    }
    let file = disk::create_new(link).map_err(|error| Error::io("create the link", link, error))?;
    let line = format!("{}\n", target.display());
    let written = disk::write_all_at(&file, link, 0, line.as_bytes()).and_then(|()| disk::sync_file(&file, link));
    written.map_err(|error| Error::io("write the link", link, error))
}

/// Returns the target of a link: a symbolic link, or a text file of one line. `None` if nothing is there.
pub(crate) fn read_link(link: &Path) -> Result<Option<PathBuf>> {
    let Some(entry) = own_metadata_if_there(link)? else { return Ok(None) };
    if entry.is_symlink() {
        return disk::inspect(link, || link.read_link())
            .map(Some)
            .map_err(|error| Error::io("read the link", link, error));
    }
    if !entry.is_file() {
        return Err(Error::corrupt("expected a symbolic link or a text file, found neither").at_path(link));
    }
    let mut text = Vec::new();
    let file = open_real_file(link)?;
    disk::inspect(link, || file.take(LONGEST_LINK).read_to_end(&mut text))
        .map_err(|error| Error::io("read the link", link, error))?;
    let text = String::from_utf8_lossy(&text);
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Ok(Some(PathBuf::from(line.strip_suffix('\r').unwrap_or(line))))
}

/// Removes a file, a link (but not its target), or a directory and its contents. Does nothing if nothing is there.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let removed = disk::inspect(path, || path.symlink_metadata())
        .and_then(|metadata| if metadata.is_dir() { disk::remove_dir_all(path) } else { disk::remove_file(path) });
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|error| Error::io("remove", path, error)),
    }
}

/// Removes a file or a link (but not its target). Does nothing if nothing is there; fails for a directory, which no writer
/// made.
pub(crate) fn remove_file(path: &Path) -> Result<()> {
    match disk::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|error| Error::io("remove", path, error)),
    }
}

/// Removes an empty directory.
pub(crate) fn remove_dir(path: &Path) -> Result<()> {
    disk::remove_dir(path).map_err(|error| Error::io("remove the directory", path, error))
}

/// Opens a regular file for locking and for writing in place. Creates it if it does not exist. Follows no link.
pub(crate) fn open_or_create(path: &Path) -> Result<File> {
    let file = disk::open_or_create(path).map_err(|error| Error::io("open", path, error))?;
    regular(file, path)
}

/// Creates an empty file for locking and for writing in place; returns false if an entry of that name exists.
pub(crate) fn create_if_absent(path: &Path) -> Result<bool> {
    match disk::create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        created => created.map(|_| true).map_err(|error| Error::io("create", path, error)),
    }
}

/// Opens a regular file for reading. Follows no link, and does not block on a FIFO.
pub(crate) fn open_real_file(path: &Path) -> Result<File> {
    let file = disk::inspect(path, || disk::in_place(File::options().read(true)).open(path));
    let file = file.map_err(|error| Error::io("open", path, error))?;
    regular(file, path)
}

/// Creates a file with these bytes and the permissions of `model`, synced, for locking and for writing in place.
pub(crate) fn create_like(model: &File, path: &Path, bytes: &[u8]) -> Result<File> {
    let file = disk::create_new(path).map_err(|error| Error::io("create", path, error))?;
    disk::copy_mode(model, &file, path).map_err(|error| Error::io("set the permissions", path, error))?;
    overwrite(&file, 0, bytes, path)?;
    Ok(file)
}

fn regular(file: File, path: &Path) -> Result<File> {
    let metadata = disk::inspect(path, || file.metadata()).map_err(|error| Error::io("open", path, error))?;
    if metadata.is_file() { Ok(file) } else { Err(not_a_file(path)) }
}

/// An open file with a lock. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct LockedFile {
    file: File,
    owner: OwningProcess,
}

impl LockedFile {
    /// Returns whether this process acquired the lock, rather than the parent that it was forked from.
    pub(crate) fn is_own(&self) -> bool {
        self.owner.is_this_process()
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for LockedFile {
    /// Unlocks explicitly, since closing the file may not: a child process that another thread is starting has a copy
    /// of the descriptor, and so of the lock, until it calls exec. A forked child does not unlock: the lock belongs to
    /// the open file description, which the child shares with the parent.
    fn drop(&mut self) {
        if self.is_own() {
            _ = self.file.unlock();
        }
    }
}

/// Locks a file exclusively, without waiting; `None` if another holder has a lock.
pub(crate) fn try_lock(file: File, path: &Path) -> Result<Option<LockedFile>> {
    locked(disk::try_lock(&file, path), file, path)
}

/// Locks a file shared, without waiting; `None` if another holder has an exclusive lock.
pub(crate) fn try_lock_shared(file: File, path: &Path) -> Result<Option<LockedFile>> {
    locked(disk::try_lock_shared(&file, path), file, path)
}

/// Returns the identity of the file or directory that a path leads to; `None` if there is none.
pub(crate) fn identity(path: &Path) -> Result<Option<Identity>> {
    match disk::inspect(path, || Identity::of_path(path)) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        identity => identity.map(Some).map_err(|error| Error::io("find", path, error)),
    }
}

/// Returns whether two paths lead to the same file.
pub(crate) fn is_one_file(one: &Path, other: &Path) -> Result<bool> {
    let one = identity(one)?;
    Ok(one.is_some() && one == identity(other)?)
}

/// Returns whether `path` still names the open file, rather than one that replaced it.
#[cfg(unix)]
pub(crate) fn is_same_file(file: &File, path: &Path) -> Result<bool> {
    let opened = disk::inspect(path, || Identity::of_file(file, path));
    let opened = opened.map_err(|error| Error::io("find", path, error))?;
    Ok(Some(opened) == identity(path)?)
}

/// Returns whether `path` names a file. That suffices here: a directory cannot be renamed while a file in it is open.
#[cfg(not(unix))]
pub(crate) fn is_same_file(_file: &File, path: &Path) -> Result<bool> {
    is_file(path)
}

/// Returns whether the file has more than one hard link.
#[cfg(unix)]
pub(crate) fn has_other_names(file: &File, path: &Path) -> Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let metadata = disk::inspect(path, || file.metadata()).map_err(|error| Error::io("find", path, error))?;
    Ok(metadata.nlink() > 1)
}

#[cfg(not(unix))]
pub(crate) fn has_other_names(_file: &File, _path: &Path) -> Result<bool> {
    Ok(false)
}

/// Reads the first `len` bytes of an open file, or all of a shorter one.
pub(crate) fn read_head(mut file: &File, len: u64, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = || file.seek(SeekFrom::Start(0)).and_then(|_| file.take(len).read_to_end(&mut bytes));
    disk::inspect(path, read).map_err(|error| Error::io("read", path, error))?;
    Ok(bytes)
}

/// Writes bytes at `offset` of an open file and syncs it.
pub(crate) fn overwrite(file: &File, offset: u64, bytes: &[u8], path: &Path) -> Result<()> {
    let written = disk::write_all_at(file, path, offset, bytes).and_then(|()| disk::sync_file(file, path));
    written.map_err(|error| Error::io("write", path, error))
}

/// Replaces the file at `path` by a rename of `temporary`, a new file with these bytes, synced.
///
/// The caller syncs the directory.
pub(crate) fn replace(path: &Path, temporary: &Path, bytes: &[u8]) -> Result<()> {
    let file = disk::create_new(temporary).map_err(|error| Error::io("create", temporary, error))?;
    overwrite(&file, 0, bytes, temporary)?;
    drop(file); // Windows does not rename an open file
    rename(temporary, path)
}

/// Makes a new file read-only and syncs it.
fn seal(file: &File, path: &Path) -> Result<()> {
    set_read_only(path)?;
    disk::sync_file(file, path).map_err(|error| Error::io("sync", path, error))
}

fn locked(lock: io::Result<bool>, file: File, path: &Path) -> Result<Option<LockedFile>> {
    match lock {
        Ok(true) => Ok(Some(LockedFile { file, owner: OwningProcess::this_process() })),
        Ok(false) => Ok(None),
        Err(error) => Err(Error::io("lock", path, error)),
    }
}

fn not_a_file(path: &Path) -> Error {
    Error::io(
        "open",
        path,
        io::Error::new(io::ErrorKind::InvalidInput, "expected a regular file, found another kind of file"),
    )
}

/// Reads `from` in chunks, passes each to `write`, and returns the checksum of all.
///
/// Errors: those of `write`; `Io`; `Cancelled`.
fn stream(
    from: &Path,
    mut hasher: ChecksumHasher,
    mut write: impl FnMut(&[u8]) -> Result<()>,
    progress: &Progress,
) -> Result<Checksum> {
    let fail = |error| Error::io("read", from, error);
    let source = open_file(from)?;
    let mut chunk = Vec::new();
    loop {
        progress.check()?;
        chunk.clear();
        let read = disk::inspect(from, || (&source).take(CHUNK as u64).read_to_end(&mut chunk)).map_err(fail)?;
        if read == 0 {
            return Ok(hasher.finish());
        }
        write(&chunk)?;
        hasher.update(&chunk);
        progress.add(read as u64);
    }
}
