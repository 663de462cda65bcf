//! Reads a key file, whose bytes [`key_file`](crate::format::key_file) describes: that of a generation, or a temporary
//! one.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::byte_range::ByteRange;
use crate::bytes::{Access, AlignedBytes, Bytes, Cursor, Sink, Storage, StorageKind, read_exact_at};
use crate::error::{Error, Result};
use crate::format::key_bounds::KeyBounds;
use crate::format::key_file::{self, BLOCK_KEYS, Directory, GROUP_BLOCKS, TRAILER_LEN, Tag, Tail};
use crate::format::manifest::{self, AuxiliaryRecord};
use crate::read::sorted_keys::key_writer::KeyFileWriter;
use crate::read::sorted_keys::sorter::RunMerge;
use crate::read::sorted_keys::temp_file::TempFile;

/// Block size for writing a temporary key file.
const WRITE_BLOCK: usize = 1 << 20;

/// An open key file. Memory: 16 bytes per 262,144 keys.
pub(crate) struct KeyFile {
    file: OpenFile,
    path: PathBuf,
    tail: Tail,
}

/// The bytes of a key file.
enum OpenFile {
    OfGeneration(Storage),
    /// A file without a name, which cannot be opened again, and its length.
    Temporary(TempFile, u64),
}

impl OpenFile {
    fn len(&self) -> u64 {
        match self {
            Self::OfGeneration(storage) => storage.len(),
            Self::Temporary(_, len) => *len,
        }
    }

    fn read(&self, range: ByteRange) -> Result<Bytes<'_>> {
        match self {
            Self::OfGeneration(storage) => storage.read(range, 1),
            Self::Temporary(TempFile { file, path }, _) => {
                let mut bytes = AlignedBytes::zeroed(usize::try_from(range.len()).unwrap_or(usize::MAX), 1)?;
                read_exact_at(file, bytes.as_mut(), range.start).map_err(|error| Error::io("read", path, error))?;
                Ok(Bytes::Owned(bytes))
            }
        }
    }
}

/// A decoded block: consecutive keys and the number of the first one.
#[derive(Debug, Default)]
pub(crate) struct KeyBlock {
    pub(crate) first: u64,
    pub(crate) keys: Vec<u64>,
}

impl KeyBlock {
    /// Returns the key with this number, if it is in the block.
    #[inline]
    pub(crate) fn get(&self, number: u64) -> Option<u64> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.keys.get(at).copied()
    }
}

impl KeyFile {
    /// Opens the key file of a generation with the storage of the shards. `keys` is the number of keys that the manifest
    /// states, and `tag` the tag of its shards.
    ///
    /// Errors: `Io`, `TooLarge`; `Corrupt` if it does not have the stated length, or a damaged or another group table.
    pub(crate) fn open(
        directory: &Path,
        stated: &AuxiliaryRecord,
        (keys, tag): (u64, Tag),
        shards: StorageKind,
    ) -> Result<KeyFile> {
        let path = directory.join(manifest::KEYS);
        let kind = match shards {
            StorageKind::Mapped { permission, max_maps, .. } => {
                StorageKind::Mapped { permission, max_maps, access: Access::Normal }
            }
            other => other,
        };
        let file = KeyFile::new(OpenFile::OfGeneration(Storage::open(&path, kind)?), path)?;
        let len = file.file.len();
        let found = (len, file.len(), file.tail.tag);
        if found != (stated.checksum.bytes, keys, tag) {
            let message = format!(
                "expected the key file of this generation, of {} bytes and {keys} keys, found one of {len} bytes and {} \
                 keys",
                stated.checksum.bytes,
                file.len()
            );
            return Err(Error::corrupt(message).at_path(&file.path));
        }
        Ok(file)
    }

    /// Writes merged runs to a temporary file and opens it.
    pub(crate) fn of_merge(mut merge: RunMerge, temp_dir: Option<&Path>) -> Result<KeyFile> {
        let temporary = TempFile::create(temp_dir)?;
        let path = temporary.path.clone();
        let to = Cursor::new(Sink::file(Arc::clone(&temporary.file), &path), 0, WRITE_BLOCK);
        let mut writer = KeyFileWriter::new(to, Tag::default());
        while let Some(key) = merge.next()? {
            writer.push(key)?;
        }
        let len = writer.finish()?.bytes;
        KeyFile::new(OpenFile::Temporary(temporary, len), path)
    }

    fn new(file: OpenFile, path: PathBuf) -> Result<KeyFile> {
        let tail = KeyFile::read_tail(&file).map_err(|error| error.at_path(&path))?;
        Ok(KeyFile { file, path, tail })
    }

    fn read_tail(file: &OpenFile) -> Result<Tail> {
        let len = file.len();
        let read_last = |bytes: u64| file.read(ByteRange { start: len - bytes, end: len });
        let trailer = match len.checked_sub(TRAILER_LEN as u64) {
            Some(_) => read_last(TRAILER_LEN as u64)?,
            None => return Err(Error::corrupt(format!("expected a key file of at least 24 bytes, found {len}"))),
        };
        let trailer = trailer.first_chunk().ok_or_else(|| Error::internal("a read returned too few bytes"))?;
        let tail_len = Tail::stated_len(trailer, len)?;
        Tail::read(&read_last(tail_len)?, len).map_err(|error| error.at_offset(len - tail_len))
    }

    /// Returns the path, for messages. A temporary file has none any more.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length of the file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file.len()
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> u64 {
        self.tail.shape.keys
    }

    /// Returns the numbers of the keys in a range. Cost: O(log n), reads two directories and two blocks.
    ///
    /// Errors: those of [`block`](Self::block).
    pub(crate) fn numbers(&self, bounds: KeyBounds) -> Result<Range<u64>> {
        let start = self.rank(bounds.first())?;
        let end = match bounds.last().checked_add(1) {
            Some(after) => self.rank(after)?,
            None => self.len(),
        };
        Ok(start..end.max(start))
    }

    /// Returns the number of keys below `key`. Cost: O(log n), reads a directory and a block.
    ///
    /// Errors: those of [`block`](Self::block).
    pub(crate) fn rank(&self, key: u64) -> Result<u64> {
        if self.len() == 0 {
            return Ok(0);
        }
        let directory = self.directory(self.tail.group_of_key(key))?;
        let block = self.block_of(&directory, directory.block_of_key(key))?;
        Ok(block.first + block.keys.partition_point(|other| *other < key) as u64)
    }

    /// Reads the block with the key of this number.
    ///
    /// Errors: `Corrupt` if it is damaged, or there is no such key; `Io`.
    pub(crate) fn block(&self, number: u64) -> Result<KeyBlock> {
        let block = number / BLOCK_KEYS;
        self.block_of(&self.directory(block / GROUP_BLOCKS)?, block)
    }

    /// Calls `f` with every key, in stored order, which is ascending within a block. Reads every block once.
    ///
    /// Errors: those of [`block`](Self::block).
    pub(crate) fn for_each(&self, mut f: impl FnMut(u64)) -> Result<()> {
        let blocks = self.len().div_ceil(BLOCK_KEYS);
        for group in 0..blocks.div_ceil(GROUP_BLOCKS) {
            let directory = self.directory(group)?;
            for number in group * GROUP_BLOCKS..blocks.min((group + 1) * GROUP_BLOCKS) {
                self.block_of(&directory, number)?.keys.into_iter().for_each(&mut f);
            }
        }
        Ok(())
    }

    fn directory(&self, group: u64) -> Result<Directory> {
        let range = self.tail.directory_range(group).ok_or_else(|| self.absent("group", group))?;
        let read = self.read(range.start, range.end).and_then(|bytes| self.tail.read_directory(group, &bytes));
        read.map_err(|error| error.at_offset(range.start).at_path(&self.path))
    }

    fn block_of(&self, directory: &Directory, number: u64) -> Result<KeyBlock> {
        let entry = directory.block(number).ok_or_else(|| self.absent("block", number))?;
        let count = self.tail.shape.keys_of(number);
        let read = self
            .read(entry.start, entry.end)
            .and_then(|bytes| key_file::decode_block(self.tail.tag, number, entry.first_key, count, &bytes));
        let keys = read.map_err(|error| error.at_offset(entry.start).at_path(&self.path))?;
        Ok(KeyBlock { first: number * BLOCK_KEYS, keys })
    }

    fn read(&self, start: u64, end: u64) -> Result<Bytes<'_>> {
        self.file.read(ByteRange { start, end })
    }

    #[cold]
    fn absent(&self, what: &str, number: u64) -> Error {
        let message = format!("expected {what} {number} in the key file, found {} keys", self.len());
        Error::corrupt(message).at_path(&self.path)
    }
}
