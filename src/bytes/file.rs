//! A file that several threads read at positions (`pread`).

use std::fs::File;
use std::io::{self, Read};
#[cfg(target_os = "linux")]
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

#[cfg(target_os = "linux")]
use rustix::fs::Advice;

use crate::byte_range::ByteRange;
use crate::bytes::read_ahead::ReadAhead;
use crate::bytes::{Access, AlignedBytes};
use crate::error::{Error, ErrorKind, Result};
use crate::fs::descriptors::{self, KeptFile};
use crate::fs::disk;
use crate::fs::entry;

/// An open file of known length.
pub struct PositionedFile {
    file: KeptFile,
    path: PathBuf,
    len: u64,
    read_ahead: ReadAhead,
    /// The advice for lookups, if there is one.
    access: OnceLock<Access>,
}

/// Opens a regular file and returns its length. Never blocks on a FIFO or a device of that name.
///
/// Errors: `Io`, also for a directory, a FIFO, a socket.
pub fn open_regular(path: &Path) -> Result<(File, u64)> {
    regular_len(path)?; // before the open, which blocks on a FIFO until it has a writer
    let file = disk::inspect(path, || descriptors::open(path)).map_err(|error| Error::io("open", path, error))?;
    let len = disk::inspect(path, || file.metadata()).map_err(|error| Error::io("read the length", path, error))?.len();
    Ok((file, len))
}

/// Returns the length of a regular file without opening it.
///
/// Errors: `Io`, also for a directory, a FIFO, a socket.
pub(crate) fn regular_len(path: &Path) -> Result<u64> {
    let metadata = disk::inspect(path, || path.metadata()).map_err(|error| Error::io("open", path, error))?;
    if metadata.is_file() {
        return Ok(metadata.len());
    }
    let kind = if metadata.is_dir() { "a directory" } else { "a special file" };
    Err(Error::new(ErrorKind::Io, format!("expected a regular file, found {kind}")).at_path(path))
}

/// Reads a whole file into a vector.
///
/// Errors: `TooLarge` if it has more than `cap` bytes; `Io`, also if it is not a regular file.
pub(crate) fn read_whole(path: &Path, cap: u64) -> Result<Vec<u8>> {
    let (file, len) = open_regular(path)?;
    if len > cap {
        let message = format!("expected a file of at most {cap} bytes, found {len}");
        return Err(Error::new(ErrorKind::TooLarge, message).at_path(path));
    }
    let mut bytes = Vec::new();
    let _ = bytes.try_reserve_exact(usize::try_from(len).unwrap_or(0)); // a failed allocation shows in the read
    disk::inspect(path, || file.take(cap).read_to_end(&mut bytes)).map_err(|error| Error::io("read", path, error))?;
    Ok(bytes)
}

impl PositionedFile {
    pub(crate) fn new(file: File, len: u64, path: &Path) -> PositionedFile {
        PositionedFile::of_kept(KeptFile::new(file), len, path)
    }

    /// Takes a file without a name, which cannot be opened again.
    pub(crate) fn unnamed(file: Arc<File>, len: u64, path: &Path) -> PositionedFile {
        PositionedFile::of_kept(KeptFile::always(file), len, path)
    }

    fn of_kept(file: KeptFile, len: u64, path: &Path) -> PositionedFile {
        let (read_ahead, access) = (ReadAhead::default(), OnceLock::new());
        PositionedFile { file, path: path.to_path_buf(), len, read_ahead, access }
    }

    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Advises the kernel how the file will be read.
    #[cfg(target_os = "linux")]
    fn advise(&self, access: Access) {
        let advice = match access {
            Access::Normal => Advice::Normal,
            Access::Random => Advice::Random,
            Access::Sequential => Advice::Sequential,
        };
        self.advise_range(ByteRange { start: 0, end: 0 }, advice); // the whole file
    }

    /// Asks the kernel to prefetch the pages of a range. Does not wait for them.
    #[cfg(target_os = "linux")]
    pub(crate) fn will_need(&self, range: ByteRange) {
        if range.len() > 0 {
            self.advise_range(range, Advice::WillNeed);
        }
    }

    /// Advises the kernel, if the file is kept open. Errors are ignored: reads work without the advice.
    #[cfg(target_os = "linux")]
    fn advise_range(&self, range: ByteRange, advice: Advice) {
        if let Some(file) = &*self.file.get() {
            let _ = rustix::fs::fadvise(file, range.start, NonZero::new(range.len()), advice);
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn advise(&self, _: Access) {}

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn will_need(&self, _: ByteRange) {}

    /// Begins a pass: the file is read ahead in blocks until the last pass ends.
    pub(crate) fn begin_pass(&self) {
        if self.read_ahead.begin_pass() && self.access.get().is_some() {
            self.advise(Access::Sequential);
        }
    }

    /// Ends a pass.
    pub(crate) fn end_pass(&self) {
        if self.read_ahead.end_pass()
            && let Some(access) = self.access.get()
        {
            self.advise(*access);
        }
    }

    /// Advises the kernel how lookups will read the file. A pass over the file changes the advice while it lasts.
    pub(crate) fn set_access(&self, access: Access) {
        self.advise(*self.access.get_or_init(|| access));
    }

    /// Reads the file into the page cache, front to back, until `goes_on` returns false. Ends at an error, which later
    /// reads report.
    pub(crate) fn populate(&self, goes_on: &dyn Fn() -> bool) {
        const AT_ONCE: usize = 1 << 20;
        self.begin_pass();
        let blocks = (0..self.len).step_by(AT_ONCE).take_while(|_| goes_on());
        let mut blocks = blocks.map(|start| ByteRange { start, end: self.len.min(start + AT_ONCE as u64) });
        let _ = blocks.try_for_each(|block| self.read_now(block, 1).map(drop));
        self.end_pass();
    }

    /// Reads a range, which must be within the file. During a pass, reads ahead.
    pub(crate) fn read(&self, range: ByteRange, alignment: usize) -> Result<AlignedBytes> {
        if self.read_ahead.wants(range) {
            self.read_ahead.read(range, self.len, alignment, |block| self.read_now(block, 1))
        } else {
            self.read_now(range, alignment)
        }
    }

    /// Reads a range, which must be within the file, without read-ahead.
    pub(crate) fn read_now(&self, range: ByteRange, alignment: usize) -> Result<AlignedBytes> {
        let len = usize::try_from(range.len()).unwrap_or(usize::MAX);
        let mut bytes = AlignedBytes::zeroed(len, alignment)?;
        self.read_into(bytes.as_mut(), range.start)?;
        Ok(bytes)
    }

    /// Fills a buffer with the bytes from an offset on, without read-ahead. One system call, unless the file was closed.
    pub(crate) fn read_into(&self, bytes: &mut [u8], start: u64) -> Result<()> {
        match &*self.file.get() {
            Some(file) => disk::inspect(&self.path, || read_exact_at(file, bytes, start)),
            None => {
                let file = self.open_again()?;
                disk::inspect(&self.path, || read_exact_at(&file, bytes, start))
            }
        }
        .map_err(|error| Error::io("read", &self.path, error).at_offset(start))
    }

    fn open_again(&self) -> Result<File> {
        let directory = self.path.parent().unwrap_or(&self.path);
        open_regular(&self.path).map(|(file, _)| file).map_err(|error| explain_missing(error, directory))
    }
}

/// Replaces an `Io` error of a file that a generation has by `GenerationGone` if the directory no longer exists, and by
/// `Corrupt` if only the file is missing.
pub(crate) fn explain_missing(error: Error, directory: &Path) -> Error {
    if error.kind() != ErrorKind::Io {
        return error;
    }
    match entry::exists(directory) {
        Ok(false) => {
            let message = "the generation was deleted while it was in use: refresh to follow the store";
            Error::new(ErrorKind::GenerationGone, message).at_path(directory)
        }
        Ok(true) if error.io_kind() == Some(io::ErrorKind::NotFound) => {
            error.with_kind(ErrorKind::Corrupt).context("a file of the generation is missing")
        }
        _ => error,
    }
}

#[cfg(unix)]
pub(crate) fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
pub(crate) fn read_exact_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                bytes = bytes.get_mut(read..).unwrap_or_default();
                offset += read as u64;
            }
        }
    }
    Ok(())
}

/// Fails: the platform (WebAssembly) has no positioned reads. Databases in memory do not need them.
#[cfg(not(any(unix, windows)))]
pub(crate) fn read_exact_at(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
