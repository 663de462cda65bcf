//! Reads a key file, whose bytes [`key_file`](crate::format::key_file) describes: that of a generation, or a temporary
//! one.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::byte_range::ByteRange;
use crate::bytes::{Access, Cursor, PositionedFile, Sink, Storage, StorageKind};
use crate::error::{Error, Result};
use crate::format::key_bounds::KeyBounds;
use crate::format::key_file::{BLOCK_KEYS, Directory, GROUP_BLOCKS, KeyRun, TRAILER_LEN, Tag, Tail};
use crate::format::manifest::{self, Manifest};
use crate::read::sorted_keys::key_writer::KeyFileWriter;
use crate::read::sorted_keys::sorter::RunMerge;
use crate::read::sorted_keys::temp_file::TempFile;

/// Block size for writing a temporary key file.
const WRITE_BLOCK: usize = 1 << 20;

/// An open key file. Memory: 16 bytes per 262,144 keys.
pub(crate) struct KeyFile {
    file: Storage,
    path: PathBuf,
    tail: Tail,
}

impl KeyFile {
    /// Opens the key file of a generation with the storage of the shards; `None` if the manifest states none.
    ///
    /// Errors: `Io`, `TooLarge`; `Corrupt` if it does not have the stated length, or a damaged or another group table.
    pub(crate) fn open(directory: &Path, manifest: &Manifest, shards: StorageKind) -> Option<Result<KeyFile>> {
        let stated = manifest.auxiliary(manifest::KEYS)?.checksum.bytes;
        let path = directory.join(manifest::KEYS);
        let opened = Storage::open(&path, shards.with_access(Access::Normal));
        Some(opened.and_then(|file| KeyFile::new(file, path)).and_then(|file| {
            let (len, found) = (file.file_bytes(), file.len());
            if (len, found, file.tail.tag) == (stated, manifest.keys, Tag::of_shards(&manifest.shards)) {
                return Ok(file);
            }
            let message = format!(
                "expected the key file of this generation, of {stated} bytes and {} keys, found one of {len} bytes and \
                 {found} keys",
                manifest.keys
            );
            Err(Error::corrupt(message).at_path(&file.path))
        }))
    }

    /// Writes merged runs to a temporary file and opens it.
    pub(crate) fn of_merge(mut merge: RunMerge, temp_dir: Option<&Path>) -> Result<KeyFile> {
        let TempFile { file, path } = TempFile::create(temp_dir)?;
        let to = Cursor::new(Sink::file(file.clone(), &path), 0, WRITE_BLOCK);
        let mut writer = KeyFileWriter::new(to, Tag::default());
        while let Some(key) = merge.next()? {
            writer.push(key)?;
        }
        let len = writer.finish()?.bytes;
        KeyFile::new(Storage::File(PositionedFile::unnamed(file, len, &path)), path)
    }

    fn new(file: Storage, path: PathBuf) -> Result<KeyFile> {
        let tail = KeyFile::read_tail(&file).map_err(|error| error.at_path(&path))?;
        Ok(KeyFile { file, path, tail })
    }

    fn read_tail(file: &Storage) -> Result<Tail> {
        let len = file.len();
        let read_last = |bytes: u64| file.read(ByteRange { start: len - bytes, end: len }, 1);
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
        Ok(block.rank(key))
    }

    /// Reads the block with the key of this number.
    ///
    /// Errors: `Corrupt` if it is damaged, or there is no such key; `Io`.
    pub(crate) fn block(&self, number: u64) -> Result<KeyRun> {
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
        self.read(self.tail.directory_range(group), |bytes| self.tail.read_directory(group, bytes))
    }

    fn block_of(&self, directory: &Directory, number: u64) -> Result<KeyRun> {
        let block = directory.block(number).map_err(|error| error.at_path(&self.path))?;
        let keys = self.read(Ok(block.start..block.end), |bytes| self.tail.read_block(number, block, bytes))?;
        Ok(KeyRun { first: number * BLOCK_KEYS, keys })
    }

    /// Reads a range of the file and decodes it.
    fn read<T>(&self, range: Result<Range<u64>>, decode: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        let read = range.and_then(|Range { start, end }| {
            let bytes = self.file.read(ByteRange { start, end }, 1);
            bytes.and_then(|bytes| decode(&bytes)).map_err(|error| error.at_offset(start))
        });
        read.map_err(|error| error.at_path(&self.path))
    }
}
