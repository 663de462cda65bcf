//! Every call of the store to the file system, each with what it was for in its error.
//!
//! Nothing here knows what a generation is. Where a platform lacks something (syncing of directories, symbolic
//! links), the difference is settled here. What changes something goes through [`disk`], where tests stand in between.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::disk::owner::Owner;
use crate::disk::{self, Output};
use crate::error::{Error, Result};
use crate::storage::open_descriptor;
use crate::store::cancel::Cancel;

/// Files are read and copied in pieces of this size.
const CHUNK: usize = 1 << 20;

/// Longer than any path that a link holds.
const LONGEST_LINK: u64 = 1 << 16;

/// The length and the crc32 of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checksum {
    pub(crate) bytes: u64,
    pub(crate) crc32: u32,
}

impl Checksum {
    /// Errors: `Corrupt` unless what was found is this.
    pub(crate) fn check(self, found: Checksum) -> Result<()> {
        if found != self {
            return Err(Error::corrupt(format!(
                "expected a file of {} bytes with the crc32 {} as the manifest says, found {} bytes with the crc32 {}",
                self.bytes, self.crc32, found.bytes, found.crc32
            )));
        }
        Ok(())
    }
}

pub(super) fn create_dir(path: &Path) -> Result<()> {
    disk::create_dir(path).map_err(|error| Error::io("create the directory", path, error))
}

/// Creates a directory and those on the way to it, which survive a crash from here on; false if it is there.
pub(super) fn create_dir_all(path: &Path) -> Result<bool> {
    let Some(parent) = path.parent().filter(|_| !is_dir(path)) else { return Ok(false) };
    create_dir_all(parent)?;
    let created = match disk::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_dir(path) => false, // somebody was faster
        created => created.map(|()| true).map_err(|error| Error::io("create the directory", path, error))?,
    };
    fsync_dir(parent)?;
    Ok(created)
}

/// A new directory in `parent` whose name begins with `prefix` and was not there before.
pub(super) fn create_unique_dir(parent: &Path, prefix: &str) -> Result<PathBuf> {
    loop {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let path = parent.join(format!("{prefix}{}-{nanos:x}", std::process::id()));
        match disk::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {} // the clock moves on
            Err(error) => return Err(Error::io("create the directory", &path, error)),
            Ok(()) => return Ok(path),
        }
    }
}

/// The names in a directory, ascending. A name that is not UTF-8 is none of ours and left out.
pub(super) fn names(directory: &Path) -> Result<Vec<String>> {
    let fail = |error| Error::io("list the directory", directory, error);
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(fail)? {
        names.extend(entry.map_err(fail)?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

/// The path of the first entry of a directory for which `is_wanted` holds, in no particular order.
pub(super) fn find_entry(
    directory: &Path,
    mut is_wanted: impl FnMut(&OsStr, &Path) -> bool,
) -> Result<Option<PathBuf>> {
    let fail = |error| Error::io("list the directory", directory, error);
    for entry in fs::read_dir(directory).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if is_wanted(&entry.file_name(), &entry.path()) {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// Whether anything of that name is there, be it a dangling link.
///
/// Errors: `Io` if it is not known, such as in a directory that may not be searched.
pub(super) fn exists(path: &Path) -> Result<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(Error::io("find", path, error)),
    }
}

/// Whether it is a directory or a link to one.
pub(super) fn is_dir(path: &Path) -> bool {
    path.is_dir()
}

/// Whether it is a directory itself, not a link to one.
pub(super) fn is_real_dir(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
}

/// Whether it is a regular file or a link to one.
pub(super) fn is_file(path: &Path) -> bool {
    path.is_file()
}

/// Whether a regular file, not a link to one, or nothing is at a path: one look, so a file that goes away is no difference.
pub(super) fn is_real_file_or_nothing(path: &Path) -> bool {
    path.symlink_metadata().map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |metadata| metadata.is_file())
}

/// Whether it is a regular file itself, not a link to one.
pub(super) fn is_real_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_file())
}

/// Whether it is a symbolic link, be it a dangling one.
pub(super) fn is_link(path: &Path) -> bool {
    path.is_symlink()
}

/// The absolute path, whatever becomes of the working directory.
pub(super) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Error::io("find", path, error))
}

/// The absolute path without links.
pub(super) fn canonical(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| Error::io("find", path, error))
}

/// A new file of these bytes, synced and read-only.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let file = disk::create_new(path).map_err(|error| Error::io("create", path, error))?;
    disk::write_all_at(&file, path, 0, bytes).map_err(|error| Error::io("write", path, error))?;
    seal(&file, path)
}

/// A new copy of the file `from`, synced and read-only, with the checksum of the bytes that were copied.
///
/// Errors: `Io`; `Cancelled` in the midst of it.
pub(super) fn copy_new(from: &Path, to: &Path, cancel: &Cancel) -> Result<Checksum> {
    let file = disk::create_new(to).map_err(|error| Error::io("create", to, error))?;
    let mut output = Output::new(&file, to);
    let write = |bytes: &[u8]| output.write_all(bytes).map_err(|error| Error::io("write", to, error));
    let checksum = pour(from, write, cancel)?;
    seal(&file, to)?;
    Ok(checksum)
}

/// The checksum of a file, by reading all of it.
///
/// Errors: `Io`; `Cancelled` in the midst of it.
pub(crate) fn checksum(path: &Path, cancel: &Cancel) -> Result<Checksum> {
    pour(path, |_| Ok(()), cancel)
}

/// The length of a regular file.
pub(super) fn file_len(path: &Path) -> Result<u64> {
    let metadata = path.metadata().map_err(|error| Error::io("find", path, error))?;
    match metadata.is_file() {
        true => Ok(metadata.len()),
        false => Err(not_a_file(path)),
    }
}

/// Opens a regular file for reading; anything else is an error at once (opening a FIFO would block).
pub(super) fn open_file(path: &Path) -> Result<File> {
    file_len(path)?;
    open_descriptor(path).map_err(|error| Error::io("open", path, error))
}

/// Takes the permission to write from a file (0644 becomes 0444; what the umask took stays taken).
pub(super) fn set_read_only(path: &Path) -> Result<()> {
    disk::set_read_only(path).map_err(|error| Error::io("make read-only", path, error))
}

/// Syncs a file that somebody else wrote. Where a platform syncs only what is open for writing, a read-only file is
/// left as it is.
pub(super) fn fsync_file(path: &Path) -> Result<()> {
    let file = if cfg!(unix) { File::open(path) } else { File::options().append(true).open(path) };
    match file.and_then(|file| disk::sync_file(&file, path)) {
        Err(error) if !cfg!(unix) && error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced.map_err(|error| Error::io("sync", path, error)),
    }
}

/// Syncs the names in a directory. Nothing happens where the platform or the file system has no such thing.
pub(crate) fn fsync_dir(path: &Path) -> Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    match File::open(path).and_then(|directory| disk::sync_dir(&directory, path)) {
        // EINVAL and ENOTSUP: this file system does not sync directories
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        result => result.map_err(|error| Error::io("sync the directory", path, error)),
    }
}

/// Renames; a file at `to` is replaced.
pub(super) fn rename(from: &Path, to: &Path) -> Result<()> {
    disk::rename(from, to).map_err(|error| Error::io(&format!("rename to {}", to.display()), from, error))
}

/// Whether a [`rename`] failed because the two places are on different file systems.
pub(super) fn crosses_devices(error: &Error) -> bool {
    error.io_kind() == Some(io::ErrorKind::CrossesDevices)
}

/// A new link to `target`: a symbolic link, or where there are none a text file.
pub(super) fn write_link(target: &Path, link: &Path) -> Result<()> {
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

/// What a link names, be it a symbolic link or a text file of one line; `None` if there is nothing.
pub(super) fn read_link(link: &Path) -> Result<Option<PathBuf>> {
    let metadata = match link.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata.map_err(|error| Error::io("find", link, error))?,
    };
    if metadata.is_symlink() {
        return link.read_link().map(Some).map_err(|error| Error::io("read the link", link, error));
    }
    if !metadata.is_file() {
        return Err(Error::corrupt("expected a symbolic link or a text file, found something else").at_path(link));
    }
    let mut text = Vec::new();
    let read = open_real_file(link)?.take(LONGEST_LINK).read_to_end(&mut text);
    read.map_err(|error| Error::io("read the link", link, error))?;
    let text = String::from_utf8_lossy(&text);
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Ok(Some(PathBuf::from(line.strip_suffix('\r').unwrap_or(line))))
}

/// Removes a file, a link (not what it names), or a directory with all that is in it; fine if nothing is there.
pub(super) fn remove(path: &Path) -> Result<()> {
    let removed = path.symlink_metadata().and_then(|metadata| match metadata.is_dir() {
        true => disk::remove_dir_all(path),
        false => disk::remove_file(path),
    });
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|error| Error::io("remove", path, error)),
    }
}

/// Removes a directory, which must be empty.
pub(super) fn remove_dir(path: &Path) -> Result<()> {
    disk::remove_dir(path).map_err(|error| Error::io("remove the directory", path, error))
}

/// Opens a regular file to be locked and written in place; it is created if it is not there. Follows no link.
pub(super) fn open_or_create(path: &Path) -> Result<File> {
    let file = disk::open_or_create(path).map_err(|error| Error::io("open", path, error))?;
    regular(file, path)
}

/// Creates an empty file to be locked and written in place; false if something of that name is there.
pub(super) fn create_if_absent(path: &Path) -> Result<bool> {
    match disk::create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        created => created.map(|_| true).map_err(|error| Error::io("create", path, error)),
    }
}

/// Opens the very file at a path for reading: no link to one, and nothing that would have to be waited for.
pub(super) fn open_real_file(path: &Path) -> Result<File> {
    let file = disk::in_place(File::options().read(true)).open(path).map_err(|error| Error::io("open", path, error))?;
    regular(file, path)
}

/// A new file of these bytes, synced, with the permissions of another, to be locked and written in place.
pub(super) fn create_like(model: &File, path: &Path, bytes: &[u8]) -> Result<File> {
    let file = disk::create_new(path).map_err(|error| Error::io("create", path, error))?;
    disk::copy_mode(model, &file, path).map_err(|error| Error::io("set the permissions", path, error))?;
    overwrite(&file, 0, bytes, path)?;
    Ok(file)
}

fn regular(file: File, path: &Path) -> Result<File> {
    let metadata = file.metadata().map_err(|error| Error::io("open", path, error))?;
    if metadata.is_file() { Ok(file) } else { Err(not_a_file(path)) }
}

/// A file that is locked for as long as this lives.
#[derive(Debug)]
pub(crate) struct LockedFile {
    file: File,
    owner: Owner,
}

impl LockedFile {
    /// Whether the lock was acquired by this process, and not by the parent that it was forked from.
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
    /// To close the file is not enough: a child process that another thread is just starting has a copy of it, and
    /// with it the lock, until it runs its own program. A forked child that runs on must not unlock: the lock is of the
    /// open file, which it shares with the parent.
    fn drop(&mut self) {
        if self.is_own() {
            _ = self.file.unlock();
        }
    }
}

/// Locks a file alone; `None` if somebody holds a lock.
pub(super) fn try_lock(file: File, path: &Path) -> Result<Option<LockedFile>> {
    locked(disk::try_lock(&file, path), file, path)
}

/// Locks a file together with others who do; `None` if somebody holds an exclusive lock.
pub(super) fn try_lock_shared(file: File, path: &Path) -> Result<Option<LockedFile>> {
    locked(disk::try_lock_shared(&file, path), file, path)
}

/// What tells a file or directory from any other that is there at the same time.
#[cfg(unix)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

#[cfg(unix)]
impl Identity {
    fn new(metadata: &fs::Metadata) -> Identity {
        use std::os::unix::fs::MetadataExt;
        Identity { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// What tells a file or directory from any other: its path without links, for want of numbers.
#[cfg(not(unix))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity(PathBuf);

/// The identity of what a path leads to; `None` if there is nothing.
#[cfg(unix)]
pub(super) fn identity(path: &Path) -> Option<Identity> {
    path.metadata().ok().map(|metadata| Identity::new(&metadata))
}

#[cfg(not(unix))]
pub(super) fn identity(path: &Path) -> Option<Identity> {
    path.canonicalize().ok().map(Identity)
}

/// Whether `path` names the very file that is open, not one that took its place.
#[cfg(unix)]
pub(super) fn is_same_file(file: &File, path: &Path) -> bool {
    let opened = file.metadata().ok().map(|metadata| Identity::new(&metadata));
    opened.is_some() && opened == identity(path)
}

/// Whether the file has other names beside the one that it was opened by.
#[cfg(unix)]
pub(super) fn has_other_names(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    file.metadata().is_ok_and(|metadata| metadata.nlink() > 1)
}

#[cfg(not(unix))]
pub(super) fn has_other_names(_file: &File) -> bool {
    false
}

/// Whether `path` names a file: here a directory cannot be renamed away while a file in it is open.
#[cfg(not(unix))]
pub(super) fn is_same_file(_file: &File, path: &Path) -> bool {
    path.is_file()
}

/// The first `len` bytes of an open file, fewer if it is shorter.
pub(super) fn read_head(mut file: &File, len: u64, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(len).read_to_end(&mut bytes));
    read.map_err(|error| Error::io("read", path, error))?;
    Ok(bytes)
}

/// Overwrites the bytes from `offset` of an open file and syncs it.
pub(super) fn overwrite(file: &File, offset: u64, bytes: &[u8], path: &Path) -> Result<()> {
    let written = disk::write_all_at(file, path, offset, bytes).and_then(|()| disk::sync_file(file, path));
    written.map_err(|error| Error::io("write", path, error))
}

/// Replaces the file at `path` by one of these bytes, synced; `temporary` is its name before. The caller syncs the directory.
pub(super) fn replace(path: &Path, temporary: &Path, bytes: &[u8]) -> Result<()> {
    let file = disk::create_new(temporary).map_err(|error| Error::io("create", temporary, error))?;
    overwrite(&file, 0, bytes, temporary)?;
    drop(file); // Windows renames no open file
    rename(temporary, path)
}

/// Makes a file that was just written read-only and syncs it.
fn seal(file: &File, path: &Path) -> Result<()> {
    set_read_only(path)?;
    disk::sync_file(file, path).map_err(|error| Error::io("sync", path, error))
}

fn locked(lock: io::Result<bool>, file: File, path: &Path) -> Result<Option<LockedFile>> {
    match lock {
        Ok(true) => Ok(Some(LockedFile { file, owner: Owner::this_process() })),
        Ok(false) => Ok(None),
        Err(error) => Err(Error::io("lock", path, error)),
    }
}

fn not_a_file(path: &Path) -> Error {
    Error::io(
        "open",
        path,
        io::Error::new(io::ErrorKind::InvalidInput, "expected a regular file, found something else"),
    )
}

/// Passes the bytes of `from` to `write`, a chunk at a time, and returns their checksum.
fn pour(from: &Path, mut write: impl FnMut(&[u8]) -> Result<()>, cancel: &Cancel) -> Result<Checksum> {
    let fail = |error| Error::io("read", from, error);
    let source = open_file(from)?;
    let (mut hasher, mut bytes, mut chunk) = (crc32fast::Hasher::new(), 0, Vec::new());
    loop {
        cancel.check()?;
        chunk.clear();
        let read = (&source).take(CHUNK as u64).read_to_end(&mut chunk).map_err(fail)?;
        if read == 0 {
            return Ok(Checksum { bytes, crc32: hasher.finalize() });
        }
        write(&chunk)?;
        hasher.update(&chunk);
        bytes += read as u64;
    }
}
