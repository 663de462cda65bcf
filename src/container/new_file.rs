//! A file or directory that takes its name when it is whole: written beside its place, synced, renamed.
//!
//! Whoever has the file of before open keeps reading that; whoever opens it later finds one or the other.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::store::fs::fsync_dir;

/// Names in one process differ by this.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A file in the making; removed when it is dropped before [`finish`](NewFile::finish).
pub(super) struct NewFile {
    path: PathBuf,
    temporary: PathBuf,
    writer: Option<BufWriter<File>>,
}

impl NewFile {
    /// Begins the file that will be at `path`, in a directory that is made if it is not there.
    pub(super) fn create(path: &Path) -> Result<NewFile> {
        let directory = path.parent().unwrap_or(Path::new(""));
        if !directory.as_os_str().is_empty() {
            fs::create_dir_all(directory).map_err(|error| Error::io("create the directory", directory, error))?;
        }
        let temporary = temporary_beside(path);
        let file = File::create_new(&temporary).map_err(|error| Error::io("create", &temporary, error))?;
        Ok(NewFile { path: path.to_path_buf(), temporary, writer: Some(BufWriter::with_capacity(256 << 10, file)) })
    }

    /// Where it will be.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.with(|writer| writer.write_all(bytes))
    }

    /// Appends the first `len` bytes of what is read.
    pub(super) fn copy(&mut self, source: &mut dyn Read, len: u64) -> Result<()> {
        let copied = self.with(|writer| std::io::copy(&mut source.take(len), writer))?;
        match copied == len {
            true => Ok(()),
            false => Err(Error::corrupt(format!("expected {len} bytes to copy, found {copied}"))),
        }
    }

    /// Writes at a place that was written before, then goes on at the end.
    pub(super) fn overwrite(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.with(|writer| {
            writer.seek(SeekFrom::Start(offset))?;
            writer.write_all(bytes)?;
            writer.seek(SeekFrom::End(0)).map(drop)
        })
    }

    /// Syncs the file and gives it its name; what bore that name is gone.
    pub(super) fn finish(mut self) -> Result<()> {
        self.with(|writer| {
            writer.flush()?;
            writer.get_ref().sync_all()
        })?;
        self.writer = None; // closed, as some systems rename only what is
        rename(&self.temporary, &self.path)
    }

    fn with<T>(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<T>) -> Result<T> {
        let written = match &mut self.writer {
            Some(writer) => write(writer),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        written.map_err(|error| Error::io("write", &self.temporary, error))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.temporary); // renamed already, if it is finished
    }
}

/// A directory in the making; removed when it is dropped before [`finish`](NewDirectory::finish).
pub(super) struct NewDirectory {
    path: PathBuf,
    temporary: PathBuf,
}

impl NewDirectory {
    /// Begins the directory that will be at `path`.
    ///
    /// Errors: `InvalidInput` if something is there; `Io`.
    pub(super) fn create(path: &Path) -> Result<NewDirectory> {
        if path.symlink_metadata().is_ok() {
            return Err(
                Error::invalid_input("expected a place for a new directory, found something there").at_path(path)
            );
        }
        let temporary = temporary_beside(path);
        fs::create_dir_all(&temporary).map_err(|error| Error::io("create the directory", &temporary, error))?;
        Ok(NewDirectory { path: path.to_path_buf(), temporary })
    }

    /// Where its files are written.
    pub(super) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Gives it its name; its files are synced already.
    pub(super) fn finish(self) -> Result<()> {
        rename(&self.temporary, &self.path)
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.temporary); // renamed already, if it is finished
    }
}

fn rename(temporary: &Path, path: &Path) -> Result<()> {
    fs::rename(temporary, path)
        .map_err(|error| Error::io(&format!("rename to {}", path.display()), temporary, error))?;
    fsync_dir(path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))
}

/// A name in the same directory that no format gives to its files.
fn temporary_beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".{name}.tmp-{}-{number}", std::process::id()))
}
