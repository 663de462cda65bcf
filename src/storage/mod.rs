//! Where bytes come from: a mapped file, positioned reads, or memory.
//!
//! Not what the bytes mean: `format` knows that, and the two meet in `shard`.

mod aligned;
mod block_reader;
mod cursor;
mod descriptors;
mod file;
mod holes;
mod loaded;
mod mmap;
mod read_ahead;
mod sink;

use std::ops::Deref;
use std::path::Path;

pub(crate) use aligned::AlignedBytes;
pub(crate) use block_reader::BlockReader;
pub(crate) use cursor::{BLOCK, Cursor, create_new, zeros_sum};
pub(crate) use descriptors::open as open_descriptor;
pub(crate) use file::{PositionedFile, explain_missing, open_regular, read_exact_at, read_whole, regular_len};
pub(crate) use holes::Holes;
pub(crate) use loaded::{HugeBytes, Loaded};
pub(crate) use mmap::{MapPermission, Mapping, live_maps};
pub(crate) use sink::Sink;

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};

/// The bytes of one file.
#[repr(u8)] // every lookup asks which: a byte of its own is asked fastest
pub(crate) enum Storage {
    Mapped(Mapping),
    Heap(AlignedBytes),
    Huge(HugeBytes),
    File(PositionedFile),
}

/// How to come by the bytes of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StorageKind {
    /// Mapped, while the process has fewer maps than this; then positioned reads.
    Mapped {
        permission: MapPermission,
        max_maps: usize,
        access: Access,
    },
    Positioned,
    Heap,
}

/// How a mapping will be read: advice for the operating system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// No advice: the system reads ahead as it sees fit.
    Normal,
    /// Lookups all over the file (the default): no read-ahead.
    #[default]
    Random,
    /// Front to back: much read-ahead.
    Sequential,
}

impl Storage {
    /// Opens a regular file.
    pub(crate) fn open(path: &Path, kind: StorageKind) -> Result<Storage> {
        let (file, len) = open_regular(path)?;
        match kind {
            StorageKind::Mapped { permission, max_maps, access } => {
                match Mapping::new(&file, len, permission, max_maps, access) {
                    Some(mapping) => Ok(Storage::Mapped(mapping)),
                    None => Ok(Storage::File(PositionedFile::new(file, len, path))),
                }
            }
            StorageKind::Positioned => Ok(Storage::File(PositionedFile::new(file, len, path))),
            StorageKind::Heap => Loaded::read(file, len, path).map(|(loaded, _)| loaded.into()),
        }
    }

    /// Reads a regular file into memory; also returns its CRC-32.
    pub(crate) fn load(path: &Path) -> Result<(Storage, u32)> {
        let (file, len) = open_regular(path)?;
        Loaded::read(file, len, path).map(|(loaded, crc32)| (loaded.into(), crc32))
    }

    /// The length in bytes, as of opening.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Mapped(mapping) => mapping.len() as u64,
            Self::Heap(bytes) => bytes.len() as u64,
            Self::Huge(bytes) => bytes.len() as u64,
            Self::File(file) => file.len(),
        }
    }

    /// A pass over the file begins: until the last one is over it is read ahead, also for lookups meanwhile.
    pub(crate) fn begin_pass(&self) {
        match self {
            Self::Mapped(mapping) => mapping.begin_pass(),
            Self::File(file) => file.begin_pass(),
            Self::Heap(_) | Self::Huge(_) => {}
        }
    }

    /// A pass over the file is over.
    pub(crate) fn end_pass(&self) {
        match self {
            Self::Mapped(mapping) => mapping.end_pass(),
            Self::File(file) => file.end_pass(),
            Self::Heap(_) | Self::Huge(_) => {}
        }
    }

    /// All bytes, if they can be had without reading.
    #[inline]
    pub(crate) fn in_memory(&self) -> Option<&[u8]> {
        match self {
            Self::Mapped(mapping) => Some(mapping),
            Self::Heap(bytes) => Some(bytes),
            Self::Huge(bytes) => Some(bytes),
            Self::File(_) => None,
        }
    }

    /// Asks the system for the pages of a range that will be read soon; only a mapped file has such.
    pub(crate) fn will_need(&self, range: ByteRange) {
        if let Self::Mapped(mapping) = self {
            mapping.will_need(range);
        }
    }

    /// Reads all pages into memory, front to back, while `goes_on` says so; only a mapped file has such.
    pub(crate) fn populate(&self, goes_on: &dyn Fn() -> bool) {
        if let Self::Mapped(mapping) = self {
            mapping.populate(goes_on);
        }
    }

    /// The bytes of a range; what has to be read is aligned to `alignment`.
    ///
    /// Errors: `Corrupt` if the range is not in the file, `Io`.
    #[inline]
    pub(crate) fn read(&self, range: ByteRange, alignment: usize) -> Result<Bytes<'_>> {
        match self.in_memory() {
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
    Error::corrupt(format!("expected bytes {}..{}, found a file of {len} bytes", range.start, range.end))
        .at_offset(range.start)
}

impl From<Loaded> for Storage {
    fn from(loaded: Loaded) -> Storage {
        match loaded {
            Loaded::Heap(bytes) => Storage::Heap(bytes),
            Loaded::Huge(bytes) => Storage::Huge(bytes),
        }
    }
}

/// Bytes in place or read for the occasion.
pub(crate) enum Bytes<'a> {
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
