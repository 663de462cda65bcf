//! All calls that change the file system. Each is described by an `Operation` and made through `perform`. Calls that
//! read it for the store are made through [`inspect`].
//!
//! This module does not know what a file is for. In release builds both are inlined calls. In the tests of this workspace
//! (feature `testing`) they go through a recorder, which simulates crashes, full disks and failing reads: it records the
//! operations below a directory, fails one of them, or aborts the process before one.

#[cfg(any(test, feature = "testing"))]
#[allow(clippy::disallowed_methods, clippy::unwrap_used, missing_debug_implementations, reason = "only tests use it")]
mod recorder;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::panic, clippy::unwrap_used, missing_debug_implementations, reason = "only tests use it")]
mod replay;

use std::cell::Cell;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

#[cfg(test)]
pub(crate) use self::recorder::END_BEFORE;
#[cfg(any(test, feature = "testing"))]
pub use self::recorder::inspect;
#[cfg(any(test, feature = "testing"))]
use self::recorder::perform;
#[cfg(any(test, feature = "testing"))]
pub use self::recorder::{Fault, Watch};
#[cfg(any(test, feature = "testing"))]
pub use self::replay::{Disk, Loss, Tree};

/// A change to the file system that is about to be made.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(any(test, feature = "testing")), expect(dead_code, reason = "read by the recorder of the tests"))]
enum Operation<'a> {
    CreateDir(&'a Path),
    /// Creates a file, or opens it if it exists.
    CreateFile(&'a Path),
    Write {
        path: &'a Path,
        offset: u64,
        bytes: &'a [u8],
    },
    SetMode(&'a Path),
    SyncFile(&'a Path),
    SyncDir(&'a Path),
    /// Syncs the file system that has a directory.
    #[cfg(target_os = "linux")]
    SyncFileSystem(&'a Path),
    Rename {
        from: &'a Path,
        to: &'a Path,
    },
    /// Adds a second name for a file.
    HardLink {
        file: &'a Path,
        link: &'a Path,
    },
    #[cfg(unix)]
    Symlink {
        target: &'a Path,
        link: &'a Path,
    },
    RemoveFile(&'a Path),
    RemoveDir(&'a Path),
    RemoveDirAll(&'a Path),
    Lock(&'a Path),
}

/// Makes a change by calling `call`.
#[cfg(not(any(test, feature = "testing")))]
#[inline(always)]
fn perform<T>(_: Operation<'_>, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    call()
}

/// Makes a call that reads a path, or an open file of that path, and changes nothing.
#[cfg(not(any(test, feature = "testing")))]
#[inline(always)]
pub fn inspect<T>(_: &Path, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    call()
}

/// Returns the soft limit of the process on open files.
#[cfg(unix)]
pub(crate) fn open_files_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Whether a file could not be opened because the process or the machine has no descriptor left.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    #[cfg(unix)]
    let codes = [rustix::io::Errno::MFILE.raw_os_error(), rustix::io::Errno::NFILE.raw_os_error()];
    #[cfg(not(unix))]
    let codes = [4]; // ERROR_TOO_MANY_OPEN_FILES
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Returns a conservative limit on open files, for platforms without `getrlimit`.
#[cfg(not(unix))]
pub(crate) fn open_files_limit() -> usize {
    512
}

pub fn create_dir(path: &Path) -> io::Result<()> {
    perform(Operation::CreateDir(path), || fs::create_dir(path))
}

/// Creates a file for writing and reading back. Fails if it exists.
pub fn create_new(path: &Path) -> io::Result<File> {
    let open = || File::options().read(true).write(true).create_new(true).open(path);
    perform(Operation::CreateFile(path), open)
}

/// Opens a file for reading and writing in place, and creates it if it does not exist. Does not follow a link, and does
/// not block on a FIFO or a terminal.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    in_place(options.read(true).write(true));
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            perform(Operation::CreateFile(path), || options.create(true).truncate(false).open(path))
        }
        opened => opened,
    }
}

/// Writes all bytes at a position of an open file.
pub fn write_all_at(file: &File, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
    perform(Operation::Write { path, offset, bytes }, || write_all_at_position(file, offset, bytes))
}

/// Removes the write permissions: 0644 becomes 0444. Does nothing if there are none, since the file may be another user's.
pub(crate) fn set_read_only(path: &Path) -> io::Result<()> {
    let mut permissions = inspect(path, || path.metadata())?.permissions();
    if permissions.readonly() {
        return Ok(());
    }
    permissions.set_readonly(true);
    perform(Operation::SetMode(path), || fs::set_permissions(path, permissions))
}

/// Copies the permissions of an open file to another.
pub(crate) fn copy_mode(from: &File, to: &File, path: &Path) -> io::Result<()> {
    perform(Operation::SetMode(path), || to.set_permissions(from.metadata()?.permissions()))
}

thread_local! {
    /// Whether syncs on this thread do nothing.
    static SKIPS_SYNC: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`. If not `durable`, the functions that sync do nothing on this thread until it returns: for a
/// build that need not survive a crash of the machine. Other threads do not inherit this: one that syncs for this thread
/// takes over what `syncs` returns here.
pub fn with_syncs_if<T>(durable: bool, work: impl FnOnce() -> T) -> T {
    /// Restores the state, also after a panic.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            SKIPS_SYNC.set(self.0);
        }
    }
    let _restore = Restore(SKIPS_SYNC.replace(!durable || SKIPS_SYNC.get()));
    work()
}

/// Returns whether syncs on this thread do something.
pub(crate) fn syncs() -> bool {
    !SKIPS_SYNC.get()
}

/// Flushes the bytes and the length of an open file to disk (fsync).
pub fn sync_file(file: &File, path: &Path) -> io::Result<()> {
    if !syncs() {
        return Ok(());
    }
    perform(Operation::SyncFile(path), || file.sync_all())
}

/// Flushes the names in an open directory to disk (fsync).
pub fn sync_dir(directory: &File, path: &Path) -> io::Result<()> {
    if !syncs() {
        return Ok(());
    }
    perform(Operation::SyncDir(path), || directory.sync_all())
}

/// Flushes everything of the file system of an open directory to disk (syncfs).
#[cfg(target_os = "linux")]
pub(crate) fn sync_file_system(directory: &File, path: &Path) -> io::Result<()> {
    if !syncs() {
        return Ok(());
    }
    perform(Operation::SyncFileSystem(path), || Ok(rustix::fs::syncfs(directory)?))
}

/// Renames a file or a directory. Replaces a file at `to`.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    perform(Operation::Rename { from, to }, || fs::rename(from, to))
}

/// Adds a second name for a file. Fails if the name exists.
pub fn hard_link(file: &Path, link: &Path) -> io::Result<()> {
    perform(Operation::HardLink { file, link }, || fs::hard_link(file, link))
}

#[cfg(unix)]
pub fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    perform(Operation::Symlink { target, link }, || std::os::unix::fs::symlink(target, link))
}

/// Removes a file or a symbolic link.
pub fn remove_file(path: &Path) -> io::Result<()> {
    perform(Operation::RemoveFile(path), || fs::remove_file(path))
}

/// Removes an empty directory.
pub fn remove_dir(path: &Path) -> io::Result<()> {
    perform(Operation::RemoveDir(path), || fs::remove_dir(path))
}

/// Removes a directory and its contents. Does not follow symbolic links.
pub fn remove_dir_all(path: &Path) -> io::Result<()> {
    perform(Operation::RemoveDirAll(path), || fs::remove_dir_all(path))
}

/// Takes an exclusive lock on an open file. Does not wait: returns false if there is any other lock.
pub fn try_lock(file: &File, path: &Path) -> io::Result<bool> {
    perform(Operation::Lock(path), || taken(file.try_lock()))
}

/// Takes a shared lock on an open file. Does not wait: returns false if there is an exclusive lock.
pub fn try_lock_shared(file: &File, path: &Path) -> io::Result<bool> {
    perform(Operation::Lock(path), || taken(file.try_lock_shared()))
}

/// Sets the options to open the file at a path itself: without following a link, and without blocking on a FIFO or a
/// terminal.
#[cfg(unix)]
pub fn in_place(options: &mut fs::OpenOptions) -> &mut fs::OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::OFlags;
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed())
}

#[cfg(not(unix))]
pub fn in_place(options: &mut fs::OpenOptions) -> &mut fs::OpenOptions {
    options
}

fn taken(lock: Result<(), TryLockError>) -> io::Result<bool> {
    match lock {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(unix)]
fn write_all_at_position(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_all_at_position(file: &File, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = std::os::windows::fs::FileExt::seek_write(file, bytes, offset)?;
        bytes = bytes.get(written..).unwrap_or_default();
        offset += written as u64;
    }
    Ok(())
}

/// Fails: the platform (WebAssembly) has no positioned writes. Databases in memory do not need them.
#[cfg(not(any(unix, windows)))]
fn write_all_at_position(_: &File, _: u64, _: &[u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
