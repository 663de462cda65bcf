//! The files of one shard: `N.shard`, or the obsolete pair `N.index` and `N.data`.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::format::spec::ShardingSpec;
use crate::storage::{AlignedBytes, Holes, Storage, StorageKind};

/// The open files of one shard.
pub(crate) struct ShardFiles {
    /// The `.shard` file, or the `.index` file of the obsolete pair.
    pub(crate) index_file: Storage,
    /// The `.data` file of the obsolete pair.
    data: Option<Storage>,
    /// The file with the data.
    pub(crate) path: PathBuf,
}

impl ShardFiles {
    /// Creates the files of a shard from its bytes in memory.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> ShardFiles {
        ShardFiles { index_file: Storage::Heap(AlignedBytes::from(bytes)), data: None, path: PathBuf::new() }
    }

    /// Opens `<stem>.shard`.
    pub(crate) fn open(path: &Path, kind: StorageKind) -> Result<ShardFiles> {
        Ok(ShardFiles { index_file: Storage::open(path, kind)?, data: None, path: path.to_path_buf() })
    }

    /// Reads `<stem>.shard` into memory. Also returns its CRC-32.
    pub(crate) fn load(path: &Path) -> Result<(ShardFiles, u32)> {
        let (index_file, crc32) = Storage::load(path)?;
        Ok((ShardFiles { index_file, data: None, path: path.to_path_buf() }, crc32))
    }

    /// Opens the obsolete `<stem>.index` and `<stem>.data`.
    pub(crate) fn open_pair(index: &Path, data: &Path, kind: StorageKind) -> Result<ShardFiles> {
        Ok(ShardFiles {
            index_file: Storage::open(index, kind)?,
            data: Some(Storage::open(data, kind)?),
            path: data.to_path_buf(),
        })
    }

    pub(crate) fn data(&self) -> &Storage {
        self.data.as_ref().unwrap_or(&self.index_file)
    }

    /// Iterates over the files: one, or both of the obsolete pair.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Storage> {
        std::iter::once(&self.index_file).chain(&self.data)
    }

    /// Returns the length of the file with the data.
    pub(crate) fn data_len(&self) -> u64 {
        self.data().len()
    }

    /// Returns the holes of the file with the shard index. None are known for the obsolete pair and for bytes in
    /// memory.
    pub(crate) fn shard_index_holes(&self) -> Holes {
        let path = if self.data.is_some() { Path::new("") } else { &self.path };
        Holes::of(path, self.index_file.len())
    }

    /// Whether the shard is an obsolete pair.
    pub(crate) fn is_pair(&self) -> bool {
        self.data.is_some()
    }

    /// Whether the file is long enough for a whole shard index.
    pub(crate) fn has_shard_index(&self, spec: &ShardingSpec) -> bool {
        self.index_file.len() >= spec.shard_index_len()
    }

    /// Returns the total length of all files.
    pub(crate) fn len(&self) -> u64 {
        self.index_file.len() + self.data.as_ref().map_or(0, Storage::len)
    }
}
