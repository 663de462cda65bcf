//! A file or directory that appears under its name only when it is complete: written next to its destination, synced,
//! renamed.
//!
//! A reader that has the old file open keeps reading the old file; one that opens it later finds the old or the new
//! file. A writer that is killed leaves a temporary file, `.NAME.tmp-` and 128 random bits, which no reader opens and no
//! other writer waits for; [`clear`] removes it. A writer holds a lock on its file, by which `clear` knows whether it is gone.
//!
//! An error leaves the old file, with one exception: if syncing the directory after the rename fails, the complete new
//! file is there, or after a crash the old one.

#[cfg(feature = "bcolz")]
use std::fs;
use std::fs::File;
use std::io;
#[cfg(feature = "zarr")]
use std::io::Read;
use std::path::{Path, PathBuf};

use sharddb::internal::fs::disk;
use sharddb::internal::fs::entry;
use sharddb::internal::fs::fsync_dir;
use sharddb_format::internal::random::random_name;
use sharddb_format::{Error, Result};

/// Part of the name of every unfinished file or directory.
const TEMPORARY: &str = ".tmp-";

/// Size in bytes of the write buffer.
const BUFFER: usize = 256 << 10;

/// A file that is being written; dropping it before [`finish`](NewFile::finish) removes it.
pub(super) struct NewFile {
    path: PathBuf,
    temporary: PathBuf,
    file: Option<File>,
    /// Bytes that are not written to the file yet.
    buffer: Vec<u8>,
    /// Offset of the buffer in the file.
    position: u64,
    /// Directories in which a missing parent directory was created; synced at the end.
    changed: Vec<PathBuf>,
}

impl NewFile {
    /// Starts the file that will be at `path`. Creates missing parent directories.
    pub(super) fn create(path: &Path) -> Result<NewFile> {
        let changed = create_parents(path)?;
        let (temporary, file) = create_beside(path, "create", disk::create_new)?;
        _ = disk::try_lock(&file, &temporary); // without locks, `clear` removes nothing
        let path = path.to_path_buf();
        Ok(NewFile { path, temporary, file: Some(file), buffer: Vec::new(), position: 0, changed })
    }

    /// Returns the final path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends `bytes`.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    /// Appends the first `len` bytes of `source`.
    #[cfg(feature = "zarr")]
    pub(super) fn copy(&mut self, source: &mut dyn Read, len: u64) -> Result<()> {
        let mut left = source.take(len);
        loop {
            let before = self.buffer.len() as u64;
            let room = (BUFFER as u64).saturating_sub(before).max(1);
            (&mut left)
                .take(room)
                .read_to_end(&mut self.buffer)
                .map_err(|error| Error::io("read what is copied to", &self.path, error))?;
            let end = self.buffer.len() as u64 == before;
            self.flush()?;
            if end {
                break;
            }
        }
        match left.limit() {
            0 => Ok(()),
            short => Err(Error::corrupt(format!("expected {len} bytes to copy, found {short} fewer"))),
        }
    }

    /// Overwrites bytes that were written before.
    pub(super) fn overwrite(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.flush()?;
        self.write_at(offset, bytes)
    }

    /// Syncs the file and renames it to its final path, replacing a file that is there.
    pub(super) fn finish(mut self) -> Result<()> {
        self.flush()?;
        let synced = self.file.as_ref().map_or(Ok(()), |file| disk::sync_file(file, &self.temporary));
        synced.map_err(|error| Error::io("sync", &self.temporary, error))?;
        self.file = None; // closed first: some systems do not rename open files
        rename(&self.temporary, &self.path)?;
        self.changed.iter().try_for_each(|directory| fsync_dir(directory))
    }

    fn flush(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.buffer);
        self.write_at(self.position, &bytes)?;
        self.position += bytes.len() as u64;
        self.buffer = bytes;
        self.buffer.clear();
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = match &self.file {
            Some(file) if !bytes.is_empty() => disk::write_all_at(file, &self.temporary, offset, bytes),
            _ => Ok(()),
        };
        written.map_err(|error| Error::io("write", &self.temporary, error))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if entry::exists(&self.temporary).unwrap_or(true) {
            _ = disk::remove_file(&self.temporary); // it was not renamed, so it is unfinished
        }
    }
}

/// A directory that is being written; dropping it before [`finish`](NewDirectory::finish) removes it.
pub(super) struct NewDirectory {
    path: PathBuf,
    temporary: PathBuf,
    /// Directories in which a missing parent directory was created; synced at the end.
    changed: Vec<PathBuf>,
}

impl NewDirectory {
    /// Starts the directory that will be at `path`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `path` exists; `Io`.
    pub(super) fn create(path: &Path) -> Result<NewDirectory> {
        if entry::exists(path)? {
            let message = "expected nothing at the path of the new directory, found something there";
            return Err(Error::invalid_input(message).at_path(path));
        }
        let changed = create_parents(path)?;
        let (temporary, ()) = create_beside(path, "create the directory", disk::create_dir)?;
        Ok(NewDirectory { path: path.to_path_buf(), temporary, changed })
    }

    /// Returns the temporary path, below which its files are written.
    pub(super) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Renames the directory to its final path. The caller has synced its files.
    pub(super) fn finish(self) -> Result<()> {
        fsync_dir(&self.temporary)?;
        rename(&self.temporary, &self.path)?;
        self.changed.iter().try_for_each(|directory| fsync_dir(directory))
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        if entry::exists(&self.temporary).unwrap_or(true) {
            _ = disk::remove_dir_all(&self.temporary); // it was not renamed, so it is unfinished
        }
    }
}

/// Removes a file if it exists.
pub(super) fn remove_file(path: &Path) -> Result<()> {
    match disk::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => {
            removed.map_err(|error| Error::io("remove", path, error))?;
            fsync_dir(parent(path))
        }
    }
}

/// Syncs a directory, so that the names in it are durable.
#[cfg(feature = "bcolz")]
pub(super) fn sync_dir(path: &Path) -> Result<()> {
    fsync_dir(path)
}

/// Creates a directory, which must not exist.
pub(super) fn create_dir(path: &Path) -> Result<()> {
    disk::create_dir(path).map_err(|error| Error::io("create the directory", path, error))
}

/// Creates the missing parent directories of `path`; returns the directories in which one was created.
fn create_parents(path: &Path) -> Result<Vec<PathBuf>> {
    let mut missing = Vec::new();
    for directory in path.ancestors().skip(1).filter(|it| !it.as_os_str().is_empty()) {
        if entry::is_dir(directory)? {
            break;
        }
        missing.push(directory);
    }
    let mut changed = Vec::new();
    for directory in missing.into_iter().rev() {
        match disk::create_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {} // another process created it first
            made => made.map_err(|error| Error::io("create the directory", directory, error))?,
        }
        changed.push(parent(directory).to_path_buf());
    }
    Ok(changed)
}

fn rename(temporary: &Path, path: &Path) -> Result<()> {
    disk::rename(temporary, path)
        .map_err(|error| Error::io(&format!("rename to {}", path.display()), temporary, error))?;
    fsync_dir(parent(path))
}

/// Returns the parent directory of a path; `.` for a bare name.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a temporary file or directory next to `path`, under a new name that no format uses.
fn create_beside<T>(path: &Path, verb: &str, create: impl Fn(&Path) -> io::Result<T>) -> Result<(PathBuf, T)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}{TEMPORARY}{}", random_name()));
    match create(&temporary) {
        Ok(made) => Ok((temporary, made)),
        Err(error) => Err(Error::io(verb, &temporary, error)),
    }
}

/// Removes the temporary files that killed writers left in a directory: those of an exact name that nobody has locked.
#[cfg(feature = "bcolz")]
pub(super) fn clear(directory: &Path) -> Result<()> {
    let fail = |error| Error::io("list the directory", directory, error);
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(fail)?,
    };
    for entry in entries {
        let entry = entry.map_err(fail)?;
        let path = entry.path();
        if entry.file_name().to_str().is_some_and(is_temporary)
            && entry.file_type().map_err(fail)?.is_file()
            && let Ok(file) = File::open(&path)
            && disk::try_lock(&file, &path).unwrap_or(false)
        {
            disk::remove_file(&path).map_err(|error| Error::io("remove", &path, error))?;
        }
    }
    Ok(())
}

/// Returns whether a name is exactly one that [`create_beside`] makes.
#[cfg(feature = "bcolz")]
fn is_temporary(name: &str) -> bool {
    let Some((file, random)) = name.strip_prefix('.').and_then(|name| name.rsplit_once(TEMPORARY)) else {
        return false;
    };
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    !file.is_empty() && random.len() == 32 && random.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn place(name: &str) -> PathBuf {
        let place = std::env::temp_dir().join(format!("sharddb-new-file-{}-{name}", std::process::id()));
        _ = fs::remove_dir_all(&place);
        fs::create_dir(&place).unwrap();
        place
    }

    #[test]
    fn appends_copies_and_overwrites_in_any_order_and_size() {
        let place = place("write");
        let path = place.join("a/b/file");
        let large = vec![7; BUFFER + 3];
        let mut file = NewFile::create(&path).unwrap();
        file.write(b"0123456789").unwrap();
        file.copy(&mut &large[..], large.len() as u64).unwrap();
        file.overwrite(3, b"abc").unwrap();
        file.copy(&mut &b"xyz"[..], 2).unwrap();
        file.write(b"end").unwrap();
        assert!(file.copy(&mut &b"short"[..], 6).is_err());
        assert!(!path.exists());
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), [b"012abc6789", &large[..], b"xyendshort"].concat());
        fs::remove_dir_all(place).unwrap();
    }

    /// Only what a killed writer left is removed: not the file of one that is at work, nor a file of the user.
    #[cfg(feature = "bcolz")]
    #[test]
    fn clears_what_killed_writers_left_and_nothing_else() {
        let place = place("left");
        let random = "0123456789abcdef0123456789abcdef";
        fs::write(place.join(format!(".file{TEMPORARY}{random}")), "left").unwrap();
        let of_others = [
            ".notes.tmp-2026",
            ".todo.tmp-old",
            ".file.tmp-12-0",
            &format!(".{TEMPORARY}{random}"),
            &format!("file{TEMPORARY}{random}"),
            &format!(".file{TEMPORARY}{random}0"),
            &format!(".file{TEMPORARY}{}", random.to_uppercase()),
        ];
        of_others.iter().for_each(|name| fs::write(place.join(name), "text").unwrap());
        fs::create_dir(place.join(format!(".directory{TEMPORARY}{random}"))).unwrap();
        let mut at_work = NewFile::create(&place.join("file")).unwrap();
        clear(&place).unwrap();
        assert_eq!(fs::read_dir(&place).unwrap().count(), of_others.len() + 2);
        assert!(of_others.iter().all(|name| fs::read(place.join(name)).unwrap() == b"text"));
        at_work.write(b"whole").unwrap();
        at_work.finish().unwrap();
        assert_eq!(fs::read(place.join("file")).unwrap(), b"whole");
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn dropping_an_unfinished_file_keeps_the_old_one() {
        let place = place("drop");
        fs::write(place.join("file"), "before").unwrap();
        let mut file = NewFile::create(&place.join("file")).unwrap();
        file.write(b"after").unwrap();
        drop(file);
        let directory = NewDirectory::create(&place.join("directory")).unwrap();
        fs::write(directory.temporary().join("x"), "x").unwrap();
        drop(directory);
        assert!(NewDirectory::create(&place.join("file")).is_err());
        let names: Vec<_> = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["file"]);
        assert_eq!(fs::read(place.join("file")).unwrap(), b"before");
        fs::remove_dir_all(place).unwrap();
    }
}
