//! A file in the making: it gets its name when it is whole, and what bore the name before is replaced at once.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

const BUFFER: usize = 256 << 10;

/// Written under another name in the same directory; removed again unless it was [published](NewFile::publish).
pub(crate) struct NewFile {
    file: BufWriter<File>,
    temporary: PathBuf,
    target: PathBuf,
    is_published: bool,
}

impl NewFile {
    /// Begins a file that shall be called `target`.
    pub(crate) fn create(target: &Path) -> Result<NewFile> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let temporary = target.with_file_name(format!(".{name}.tmp-{}-{number}", std::process::id()));
            match File::create_new(&temporary) {
                Ok(file) => {
                    let file = BufWriter::with_capacity(BUFFER, file);
                    return Ok(NewFile { file, temporary, target: target.to_path_buf(), is_published: false });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {} // left by a process that died
                Err(error) => return Err(Error::io("create", target, error)),
            }
        }
    }

    /// Appends.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| Error::io("write", &self.target, error))
    }

    /// Writes over what stands at `offset`.
    pub(crate) fn overwrite(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = self.file.seek(SeekFrom::Start(offset)).and_then(|_| self.file.write_all(bytes));
        written
            .and_then(|()| self.file.seek(SeekFrom::End(0)).map(drop))
            .map_err(|error| Error::io("write", &self.target, error))
    }

    /// Syncs the file and gives it its name.
    pub(crate) fn publish(mut self) -> Result<()> {
        let synced = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        synced.map_err(|error| Error::io("sync", &self.target, error))?;
        fs::rename(&self.temporary, &self.target).map_err(|error| Error::io("rename to", &self.target, error))?;
        self.is_published = true;
        sync_directory(&self.target)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_published {
            _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Replaces a file, or makes it.
pub(crate) fn replace(target: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = NewFile::create(target)?;
    file.write(bytes)?;
    file.publish()
}

/// Syncs the names in the directory of a file, where the platform and the file system know of such a thing.
pub(crate) fn sync_directory(of: &Path) -> Result<()> {
    let Some(directory) = of.parent().filter(|_| cfg!(unix)) else { return Ok(()) };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    match File::open(directory).and_then(|directory| directory.sync_all()) {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        synced => synced.map_err(|error| Error::io("sync the directory", directory, error)),
    }
}
