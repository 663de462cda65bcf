//! A file or directory that takes its name when it is whole: written beside its place, synced, renamed.
//!
//! Whoever has the file of before open keeps reading that; whoever opens it later finds one or the other. What a writer
//! that was killed leaves has a name of its own, that no reader looks at and no other writer waits for: [`clear`] removes it.
//!
//! An error leaves what was there, but for one that comes when the new name is given already and its directory is synced:
//! then the new file, whole, may be there, or after a crash the old one.

#[cfg(feature = "bcolz")]
use std::fs;
use std::fs::File;
use std::io;
#[cfg(feature = "zarr")]
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk;
use crate::error::{Error, Result};
use crate::store::fs::fsync_dir;

/// Names in one process differ by this.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// What the names of things that are not finished have in them.
const TEMPORARY: &str = ".tmp-";

/// Bytes are written in pieces of this size.
const BUFFER: usize = 256 << 10;

/// A file in the making; removed when it is dropped before [`finish`](NewFile::finish).
pub(super) struct NewFile {
    path: PathBuf,
    temporary: PathBuf,
    file: Option<File>,
    /// What is not written yet.
    buffer: Vec<u8>,
    /// Where the buffer belongs.
    position: u64,
    /// Directories in which one was made on the way.
    changed: Vec<PathBuf>,
}

impl NewFile {
    /// Begins the file that will be at `path`, in a directory that is made if it is not there.
    pub(super) fn create(path: &Path) -> Result<NewFile> {
        let changed = create_parents(path)?;
        let (temporary, file) = create_beside(path, "create", disk::create_new)?;
        let path = path.to_path_buf();
        Ok(NewFile { path, temporary, file: Some(file), buffer: Vec::new(), position: 0, changed })
    }

    /// Where it will be.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    /// Appends the first `len` bytes of what is read.
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

    /// Writes at a place that was written before.
    pub(super) fn overwrite(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.flush()?;
        self.write_at(offset, bytes)
    }

    /// Syncs the file and gives it its name; what bore that name is gone.
    pub(super) fn finish(mut self) -> Result<()> {
        self.flush()?;
        let synced = self.file.as_ref().map_or(Ok(()), |file| disk::sync_file(file, &self.temporary));
        synced.map_err(|error| Error::io("sync", &self.temporary, error))?;
        self.file = None; // closed, as some systems rename only what is
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
        if self.temporary.symlink_metadata().is_ok() {
            _ = disk::remove_file(&self.temporary); // not renamed: not finished
        }
    }
}

/// A directory in the making; removed when it is dropped before [`finish`](NewDirectory::finish).
pub(super) struct NewDirectory {
    path: PathBuf,
    temporary: PathBuf,
    /// Directories in which one was made on the way.
    changed: Vec<PathBuf>,
}

impl NewDirectory {
    /// Begins the directory that will be at `path`.
    ///
    /// Errors: `InvalidInput` if something is there; `Io`.
    pub(super) fn create(path: &Path) -> Result<NewDirectory> {
        if path.symlink_metadata().is_ok() {
            let message = "expected a place for a new directory, found something there";
            return Err(Error::invalid_input(message).at_path(path));
        }
        let changed = create_parents(path)?;
        let (temporary, ()) = create_beside(path, "create the directory", disk::create_dir)?;
        Ok(NewDirectory { path: path.to_path_buf(), temporary, changed })
    }

    /// Where its files are written.
    pub(super) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Gives it its name; its files are synced already.
    pub(super) fn finish(self) -> Result<()> {
        fsync_dir(&self.temporary)?;
        rename(&self.temporary, &self.path)?;
        self.changed.iter().try_for_each(|directory| fsync_dir(directory))
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        if self.temporary.symlink_metadata().is_ok() {
            _ = disk::remove_dir_all(&self.temporary); // not renamed: not finished
        }
    }
}

/// Removes a file; fine if there is none.
pub(super) fn remove_file(path: &Path) -> Result<()> {
    match disk::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => {
            removed.map_err(|error| Error::io("remove", path, error))?;
            fsync_dir(parent(path))
        }
    }
}

/// Syncs the names in a directory.
#[cfg(feature = "bcolz")]
pub(super) fn sync_dir(path: &Path) -> Result<()> {
    fsync_dir(path)
}

/// Makes a directory, which must not exist.
pub(super) fn create_dir(path: &Path) -> Result<()> {
    disk::create_dir(path).map_err(|error| Error::io("create the directory", path, error))
}

/// Makes the directories above `path` that are not there; gives those in which one was made.
fn create_parents(path: &Path) -> Result<Vec<PathBuf>> {
    let missing: Vec<_> =
        path.ancestors().skip(1).take_while(|it| !it.as_os_str().is_empty() && !it.exists()).collect();
    let mut changed = Vec::new();
    for directory in missing.into_iter().rev() {
        match disk::create_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {} // somebody else was faster
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

/// The directory of a path; of a bare name the working directory.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes something beside `path`, of a name that no format gives to its files and that was not there.
fn create_beside<T>(path: &Path, verb: &str, create: impl Fn(&Path) -> io::Result<T>) -> Result<(PathBuf, T)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_file_name(format!(".{name}{TEMPORARY}{}-{number}", std::process::id()));
        match create(&temporary) {
            // of a writer that was killed: numbers of processes come again
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => {
                return made.map(|made| (temporary.clone(), made)).map_err(|error| Error::io(verb, &temporary, error));
            }
        }
    }
}

/// Removes from a directory the files that writers left which were killed; for whoever is its only writer.
#[cfg(feature = "bcolz")]
pub(super) fn clear(directory: &Path) -> Result<()> {
    let fail = |error| Error::io("list the directory", directory, error);
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(fail)?,
    };
    for entry in entries {
        let entry = entry.map_err(fail)?;
        let is_temporary = entry.file_name().to_str().is_some_and(|it| it.starts_with('.') && it.contains(TEMPORARY));
        if is_temporary && entry.file_type().map_err(fail)?.is_file() {
            let path = entry.path();
            disk::remove_file(&path).map_err(|error| Error::io("remove", &path, error))?;
        }
    }
    Ok(())
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

    /// In a container a process has the same number at every start.
    #[test]
    fn what_a_dead_writer_left_is_in_nobodys_way() {
        let place = place("left");
        let next = NEXT.load(Ordering::Relaxed);
        for number in next..next + 1000 {
            fs::write(place.join(format!(".file{TEMPORARY}{}-{number}", std::process::id())), "left").unwrap();
        }
        let mut file = NewFile::create(&place.join("file")).unwrap();
        file.write(b"whole").unwrap();
        file.finish().unwrap();
        #[cfg(feature = "bcolz")]
        clear(&place).unwrap();
        assert_eq!(fs::read(place.join("file")).unwrap(), b"whole");
        #[cfg(feature = "bcolz")]
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn what_is_dropped_leaves_what_was_there() {
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
