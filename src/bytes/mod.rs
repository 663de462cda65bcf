//! Sources and sinks of bytes: mapped files, positioned reads, memory, buffered writers.
//!
//! This module does not interpret bytes. `format` does, and `read::shard` combines the two.

mod aligned;
mod block_reader;
mod cursor;
mod file;
mod holes;
mod huge;
mod mmap;
mod read_ahead;
mod sink;

use std::fs::File;
use std::io::Read;
use std::ops::Deref;
use std::path::Path;

pub use aligned::AlignedBytes;
pub(crate) use block_reader::BlockReader;
pub(crate) use cursor::{Cursor, WRITE_BLOCK, create_new};
pub use file::{PositionedFile, open_regular};
pub(crate) use file::{explain_missing, read_exact_at, read_whole, regular_len};
pub(crate) use holes::Holes;
pub use huge::HugeBytes;
pub(crate) use mmap::live_maps;
pub use mmap::{MapPermission, Mapping};
pub(crate) use sink::Sink;

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};

/// Bytes per read of a file into memory. The checksum of a chunk is computed while the chunk is in the processor's cache.
const CHUNK: usize = 256 << 10;

/// The bytes of one file.
#[repr(u8)] // every lookup tests the variant, and a separate tag byte is the fastest to test
pub enum Storage {
    Mapped(Mapping),
    Heap(AlignedBytes),
    Huge(HugeBytes),
    File(PositionedFile),
}

/// How the bytes of a file are read.
#[derive(Clone, Copy, Debug)]
pub enum StorageKind {
    /// Mapped while the process has fewer than `max_maps` maps, then positioned reads.
    Mapped {
        permission: MapPermission,
        max_maps: usize,
        access: Access,
    },
    Positioned,
    Heap,
}

impl StorageKind {
    /// Returns this kind with other advice for a mapped file.
    pub(crate) fn with_access(self, access: Access) -> StorageKind {
        match self {
            Self::Mapped { permission, max_maps, .. } => Self::Mapped { permission, max_maps, access },
            other => other,
        }
    }
}

/// The expected access pattern of a file that is mapped or read by positioned reads, as advice to the kernel.
///
/// ```no_run
/// use sharddb::OpenOptions;
/// use sharddb::read::Access;
///
/// // SAFETY: nobody edits the files of this store.
/// let db = unsafe { OpenOptions::new().access(Access::Normal).open_mapped("store")? };
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// No advice: the kernel decides how much to read ahead.
    Normal,
    /// Lookups at random places (the default): no read-ahead.
    #[default]
    Random,
    /// Front to back: aggressive read-ahead.
    Sequential,
}

impl Storage {
    /// Opens a regular file.
    ///
    /// Errors: `Io`; with [`StorageKind::Heap`] also `TooLarge`.
    pub fn open(path: &Path, kind: StorageKind) -> Result<Storage> {
        let (file, len) = open_regular(path)?;
        Storage::of_file(file, len, path, kind)
    }

    /// Takes an open regular file of `len` bytes.
    ///
    /// Errors: with [`StorageKind::Heap`] `Io` and `TooLarge`.
    pub fn of_file(file: File, len: u64, path: &Path, kind: StorageKind) -> Result<Storage> {
        match kind {
            StorageKind::Mapped { permission, max_maps, access } => {
                match Mapping::new(&file, len, permission, max_maps, access) {
                    Some(mapping) => Ok(Storage::Mapped(mapping)),
                    None => Ok(Storage::File(PositionedFile::new(file, len, path))),
                }
            }
            StorageKind::Positioned => Ok(Storage::File(PositionedFile::new(file, len, path))),
            StorageKind::Heap => Storage::load(file, len, path, &mut |_| {}),
        }
    }

    /// Reads an open regular file of `len` bytes into memory, and passes the bytes to `each` in chunks.
    ///
    /// Errors: `TooLarge` if the allocation fails; `Io`.
    pub fn load(mut file: File, len: u64, path: &Path, each: &mut dyn FnMut(&[u8])) -> Result<Storage> {
        let mut read = |bytes: &mut [u8]| {
            bytes.chunks_mut(CHUNK).try_for_each(|chunk| {
                file.read_exact(chunk).map_err(|error| Error::io("read the whole file", path, error))?;
                each(chunk);
                Ok(())
            })
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if let Some(mut bytes) = HugeBytes::zeroed(len) {
            read(bytes.as_mut())?;
            return Ok(Storage::Huge(bytes));
        }
        let mut bytes = AlignedBytes::zeroed(len, AlignedBytes::PAGE).map_err(|error| error.at_path(path))?;
        read(bytes.as_mut())?;
        Ok(Storage::Heap(bytes))
    }

    /// Returns the length in bytes when the file was opened.
    #[inline]
    pub fn len(&self) -> u64 {
        match self {
            Self::Mapped(mapping) => mapping.len() as u64,
            Self::Heap(bytes) => bytes.len() as u64,
            Self::Huge(bytes) => bytes.len() as u64,
            Self::File(file) => file.len(),
        }
    }

    /// Begins a pass: the file is read ahead until the last pass ends, also by concurrent lookups.
    pub(crate) fn begin_pass(&self) {
        match self {
            Self::Mapped(mapping) => mapping.begin_pass(),
            Self::File(file) => file.begin_pass(),
            Self::Heap(_) | Self::Huge(_) => {}
        }
    }

    /// Ends a pass.
    pub(crate) fn end_pass(&self) {
        match self {
            Self::Mapped(mapping) => mapping.end_pass(),
            Self::File(file) => file.end_pass(),
            Self::Heap(_) | Self::Huge(_) => {}
        }
    }

    /// Returns all bytes if the file is mapped or loaded. Mapped pages may have to be read from the disk when they are
    /// used. `None` for positioned reads.
    #[inline]
    pub(crate) fn mapped_or_loaded(&self) -> Option<&[u8]> {
        // compared first: the test of all variants would be a jump by a table
        if let Self::Mapped(mapping) = self { Some(mapping) } else { self.loaded() }
    }

    /// Returns all bytes if the file is loaded.
    #[inline(never)]
    fn loaded(&self) -> Option<&[u8]> {
        match self {
            Self::Heap(bytes) => Some(bytes),
            Self::Huge(bytes) => Some(bytes),
            Self::Mapped(_) | Self::File(_) => None,
        }
    }

    /// Advises the kernel how lookups will read a file that is read by positioned reads. A map is advised when it is created.
    pub(crate) fn set_access(&self, access: Access) {
        if let Self::File(file) = self {
            file.set_access(access);
        }
    }

    /// Asks the kernel to prefetch the pages of a range. Does nothing if the file is loaded.
    pub(crate) fn will_need(&self, range: ByteRange) {
        match self {
            Self::Mapped(mapping) => mapping.will_need(range),
            Self::File(file) => file.will_need(range),
            Self::Heap(_) | Self::Huge(_) => {}
        }
    }

    /// Reads all pages into memory, front to back, until `goes_on` returns false. Does nothing if the file is loaded.
    pub fn populate(&self, goes_on: &dyn Fn() -> bool) {
        match self {
            Self::Mapped(mapping) => mapping.populate(goes_on),
            Self::File(file) => file.populate(goes_on),
            Self::Heap(_) | Self::Huge(_) => {}
        }
    }

    /// Returns the bytes of a range, borrowed if the file is mapped or loaded. Bytes that have to be read are aligned
    /// to `alignment`.
    ///
    /// Errors: `Corrupt` if the range is outside the file; `Io`; `TooLarge` if the allocation fails.
    #[inline]
    pub fn read(&self, range: ByteRange, alignment: usize) -> Result<Bytes<'_>> {
        match self.mapped_or_loaded() {
            Some(bytes) => range.of(bytes).map(Bytes::Borrowed).ok_or_else(|| out_of_file(range, self.len())),
            None => self.read_file(range, alignment),
        }
    }

    #[cold]
    fn read_file(&self, range: ByteRange, alignment: usize) -> Result<Bytes<'_>> {
        match self {
            Self::File(file) if range.end <= file.len() => file.read(range, alignment).map(Bytes::Owned),
            _ => Err(out_of_file(range, self.len())),
        }
    }
}

#[cold]
fn out_of_file(range: ByteRange, len: u64) -> Error {
    let message = format!("expected bytes {}..{}, found a file of {len} bytes", range.start, range.end);
    Error::corrupt(message).at_offset(range.start)
}

/// Bytes borrowed from memory, or read into a buffer.
#[derive(Clone)]
pub enum Bytes<'a> {
    Borrowed(&'a [u8]),
    Owned(AlignedBytes),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}
