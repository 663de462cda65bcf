//! The files of one shard: `N.shard`, or the obsolete pair `N.index` and `N.data`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::bytes::{AlignedBytes, Holes, Storage, StorageKind, open_regular};
use crate::error::Result;
use crate::format::spec::ShardingSpec;
use crate::fs::identity::Identity;

/// The open files of one shard.
pub(crate) struct ShardFiles {
    /// The `.shard` file, with shard index and data, or the `.index` file of the obsolete pair, with the shard index.
    pub(crate) main_file: Storage,
    /// The `.data` file of the obsolete pair; `None` for a `.shard` file.
    data: Option<Storage>,
    /// The file with the data.
    path: ArcSwap<PathBuf>,
    /// The identity of the `.shard` file when it was opened; `None` for other files, and if it cannot be determined.
    identity: Option<Identity>,
}

impl ShardFiles {
    /// Creates the files of a shard from its bytes in memory.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> ShardFiles {
        ShardFiles::new(Storage::Heap(AlignedBytes::from(bytes)), None, Path::new(""), None)
    }

    /// Opens `<stem>.shard`.
    pub(crate) fn open(path: &Path, kind: StorageKind) -> Result<ShardFiles> {
        let (file, len) = open_regular(path)?;
        let identity = Identity::of_file(&file, path).ok();
        Ok(ShardFiles::new(Storage::of_file(file, len, path, kind)?, None, path, identity))
    }

    /// Reads `<stem>.shard` into memory, and passes the bytes to `each` in chunks.
    pub(crate) fn load(path: &Path, each: &mut dyn FnMut(&[u8])) -> Result<ShardFiles> {
        let (file, len) = open_regular(path)?;
        let identity = Identity::of_file(&file, path).ok();
        let main_file = Storage::load(file, len, path, each)?;
        Ok(ShardFiles::new(main_file, None, path, identity))
    }

    /// Opens the obsolete `<stem>.index` and `<stem>.data`.
    pub(crate) fn open_pair(index: &Path, data: &Path, kind: StorageKind) -> Result<ShardFiles> {
        Ok(ShardFiles::new(Storage::open(index, kind)?, Some(Storage::open(data, kind)?), data, None))
    }

    fn new(main_file: Storage, data: Option<Storage>, path: &Path, identity: Option<Identity>) -> ShardFiles {
        ShardFiles { main_file, data, path: ArcSwap::from_pointee(path.to_path_buf()), identity }
    }

    /// Returns the path of the file with the data; empty for a shard from bytes.
    ///
    /// If several generations have the file, by hard links, this is the path in the one that was opened last.
    pub(crate) fn path(&self) -> Arc<PathBuf> {
        self.path.load_full()
    }

    /// Changes the path to another one of the same file.
    pub(super) fn set_path(&self, path: PathBuf) {
        self.path.store(Arc::new(path));
    }

    /// Whether the `.shard` file that was opened is the one that is at `path` now.
    pub(super) fn is_file_at(&self, path: &Path) -> bool {
        self.identity.is_some() && self.identity == Identity::of_path(path).ok()
    }

    /// Returns the file with the data: the `.shard` file, or the `.data` file of the obsolete pair.
    pub(crate) fn data(&self) -> &Storage {
        self.data.as_ref().unwrap_or(&self.main_file)
    }

    /// Iterates over the files: one, or both of the obsolete pair.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Storage> {
        std::iter::once(&self.main_file).chain(&self.data)
    }

    /// Returns the length of the file with the data.
    pub(crate) fn data_len(&self) -> u64 {
        self.data().len()
    }

    /// Returns the holes of the file with the shard index. None are known for the obsolete pair, for a shard from
    /// bytes, and for a loaded shard: the file may have changed since it was read.
    pub(crate) fn holes(&self) -> Holes {
        match self.main_file {
            Storage::Mapped(_) | Storage::File(_) if !self.is_pair() => {
                Holes::of(&self.path.load(), self.main_file.len())
            }
            _ => Holes::none(self.main_file.len()),
        }
    }

    /// Whether the shard is an obsolete pair.
    pub(crate) fn is_pair(&self) -> bool {
        self.data.is_some()
    }

    /// Whether the file is long enough for a whole shard index.
    pub(crate) fn can_hold_shard_index(&self, spec: &ShardingSpec) -> bool {
        self.main_file.len() >= spec.shard_index_len()
    }

    /// Returns the total length of all files.
    pub(crate) fn len(&self) -> u64 {
        self.main_file.len() + self.data.as_ref().map_or(0, Storage::len)
    }
}
