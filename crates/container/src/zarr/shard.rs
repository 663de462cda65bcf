//! An open file of a shard; without sharding, of one chunk.

use std::io;
use std::path::{Path, PathBuf};

use sharddb::internal::bytes::{AlignedBytes, Bytes, Storage};
use sharddb::internal::fs::entry;
use sharddb_format::internal::byte_range::ByteRange;
use sharddb_format::{Error, Result};

use crate::ContainerOptions;
use crate::crc32c::Crc32c;
use crate::zarr::metadata::ZarrMetadata;
use crate::zarr::nd::to_usize;
use crate::zarr::shard_index::{INDEX_ENTRY_LEN, IndexEntry, IndexFormat, check_crc32c};

/// Size in bytes of the pieces in which a whole index is read.
const INDEX_PIECE: u64 = 64 << 10;

pub(super) struct ShardFile {
    path: PathBuf,
    storage: Storage,
    /// `None` if the file is one chunk.
    index: Option<IndexFormat>,
    /// The length in bytes of every chunk, if it is the same for all.
    chunk_len: Option<u64>,
    /// Whether `storage` is the decoded file, which is compressed as a whole.
    wrapped: bool,
}

/// Checks that no dangling link is in the place of a directory on the way to a file that is not there.
///
/// Errors: `Io`.
fn check_absent(array: &Path, path: &Path) -> Result<()> {
    let on_the_way = path.ancestors().skip(1).take_while(|directory| *directory != array);
    for directory in on_the_way {
        if entry::is_dir(directory)? {
            return Ok(());
        }
        if entry::exists(directory)? {
            let error = io::Error::new(io::ErrorKind::NotFound, "it is a link that leads nowhere");
            return Err(Error::io("find the chunks in", directory, error));
        }
    }
    Ok(())
}

impl ShardFile {
    /// Opens the file of a shard and verifies the checksum of its index. Returns `None` if there is no file.
    ///
    /// Cost: reads the index; a shard that is compressed as a whole is read and decoded completely.
    ///
    /// # Errors
    ///
    /// `Io`, `Corrupt`, `TooLarge`, each with the path of the file.
    pub(super) fn open(
        array: &Path,
        metadata: &ZarrMetadata,
        shard: u64,
        options: &ContainerOptions,
    ) -> Result<Option<ShardFile>> {
        let path = array.join(metadata.shard_path(shard));
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return check_absent(array, &path).map(|()| None),
            _ => {} // opening reports any other error
        }
        let opened = ShardFile::open_at(&path, metadata, options);
        opened.map(Some).map_err(|error| error.at_path(&path))
    }

    fn open_at(path: &Path, metadata: &ZarrMetadata, options: &ContainerOptions) -> Result<ShardFile> {
        let mut storage = Storage::open(path, options.storage)?;
        let index = metadata.sharding().map(|sharding| sharding.index);
        let wrapped = metadata.is_wrapped();
        if wrapped {
            storage = unwrap(&storage, metadata, options.max_chunk_bytes)?;
        }
        let (codecs, shape) = metadata.chunk_codecs();
        let chunk_len = codecs.fixed_len(shape, &metadata.elements);
        let shard = ShardFile { path: path.to_path_buf(), storage, index, chunk_len, wrapped };
        shard.check_index()?;
        Ok(shard)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length of the shard in bytes: of the file, or of the decoded file if it is compressed as a whole.
    pub(super) fn len(&self) -> u64 {
        self.storage.len()
    }

    /// Returns whether the file is compressed as a whole.
    pub(super) fn is_wrapped(&self) -> bool {
        self.wrapped
    }

    /// Returns the range of the index; `None` without sharding.
    pub(super) fn index_range(&self) -> Option<ByteRange> {
        self.index?.range(self.len()).ok()
    }

    /// Returns the range of a chunk; `None` if it is absent.
    #[inline]
    pub(super) fn chunk(&self, entry: u64) -> Result<Option<ByteRange>> {
        let Some(format) = self.index else { return self.whole_chunk() };
        let bytes = self.storage.read(format.entry_range(self.len(), entry)?, 1)?;
        let entry = format.entry(&bytes).unwrap_or(IndexEntry::ABSENT);
        self.chunk_of(entry)
    }

    /// Returns the range of the chunk of an entry; `None` if it is absent.
    #[inline]
    pub(super) fn chunk_of(&self, entry: IndexEntry) -> Result<Option<ByteRange>> {
        let Some(range) = entry.range(self.len())? else { return Ok(None) };
        self.check_len(range).map(Some)
    }

    /// Reads the next entries of the index from `first`. Returns none at the end. Without sharding there is one entry
    /// for the whole file.
    pub(super) fn entries(&self, first: u64) -> Result<Vec<IndexEntry>> {
        let Some(format) = self.index else {
            let whole = IndexEntry { offset: 0, nbytes: self.len() };
            return Ok(if first == 0 { vec![whole] } else { Vec::new() });
        };
        let last = format.chunks().min(first.saturating_add(INDEX_PIECE / INDEX_ENTRY_LEN));
        if first >= last {
            return Ok(Vec::new());
        }
        let start = format.entry_range(self.len(), first)?.start;
        let range = ByteRange { start, end: start + (last - first) * INDEX_ENTRY_LEN };
        let bytes = self.storage.read(range, 1)?;
        Ok(bytes.chunks_exact(to_usize(INDEX_ENTRY_LEN)).filter_map(|bytes| format.entry(bytes)).collect())
    }

    /// Reads the encoded bytes of a chunk.
    #[inline]
    pub(super) fn read(&self, range: ByteRange) -> Result<Bytes<'_>> {
        self.storage.read(range, 1)
    }

    fn whole_chunk(&self) -> Result<Option<ByteRange>> {
        self.chunk_of(IndexEntry { offset: 0, nbytes: self.len() })
    }

    #[inline]
    fn check_len(&self, range: ByteRange) -> Result<ByteRange> {
        match self.chunk_len {
            Some(expected) if range.len() != expected => {
                let message = format!("expected a chunk of {expected} bytes, found {}", range.len());
                Err(Error::corrupt(message).at_offset(range.start))
            }
            _ => Ok(range),
        }
    }

    /// Compares the checksum of the index.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the index is truncated, or its checksum does not match.
    fn check_index(&self) -> Result<()> {
        let Some(format) = self.index else { return Ok(()) };
        format.range(self.len())?;
        let Some((entries, stored)) = format.checked_range(self.len())? else { return Ok(()) };
        let mut crc = Crc32c::default();
        let mut start = entries.start;
        while start < entries.end {
            let end = entries.end.min(start + INDEX_PIECE);
            crc.update(&self.storage.read(ByteRange { start, end }, 1)?);
            start = end;
        }
        check_crc32c(&self.storage.read(stored, 1)?, crc.finish()).map_err(|error| error.at_offset(stored.start))
    }
}

/// Decodes a file that is compressed as a whole to its shard.
fn unwrap(storage: &Storage, metadata: &ZarrMetadata, cap: u64) -> Result<Storage> {
    let encoded = storage.read(ByteRange { start: 0, end: storage.len() }, 1)?;
    let shard = metadata.codecs.decompress(&encoded, None, cap)?;
    Ok(Storage::Heap(AlignedBytes::from(shard.unwrap_or_default())))
}
