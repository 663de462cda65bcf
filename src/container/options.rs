//! How containers of other formats are read.

use crate::read::options::DEFAULT_MAX_MAPS;
use crate::storage::{Access, MapPermission, StorageKind};

/// Options for opening containers of other formats: arrays, columns, single files.
///
/// ```
/// let mut options = sharddb::container::ContainerOptions::new();
/// options.max_chunk_bytes(64 << 20);
/// ```
#[derive(Clone, Debug)]
pub struct ContainerOptions {
    pub(crate) storage: StorageKind,
    pub(crate) max_chunk_bytes: u64,
}

impl Default for ContainerOptions {
    fn default() -> ContainerOptions {
        ContainerOptions { storage: StorageKind::Positioned, max_chunk_bytes: 1 << 30 }
    }
}

impl ContainerOptions {
    /// The defaults: positioned reads, which are safe whatever happens to the files.
    pub fn new() -> ContainerOptions {
        ContainerOptions::default()
    }

    /// The most bytes that a chunk, or what it is wrapped in, may decode to; beyond it is `TooLarge`. Default: 1 GiB.
    pub fn max_chunk_bytes(&mut self, bytes: u64) -> &mut ContainerOptions {
        self.max_chunk_bytes = bytes;
        self
    }

    /// Reads each file into memory when it is first touched.
    pub fn load(&mut self) -> &mut ContainerOptions {
        self.storage = StorageKind::Heap;
        self
    }

    /// Maps the files: encoded chunks are borrowed and nothing is copied.
    ///
    /// # Safety
    ///
    /// Nobody truncates or edits the files of a container that is opened with these options, for as long as it is
    /// open. To replace a file by rename, as the writers of this crate do, is safe. Reading a mapped page after a
    /// truncation or with an I/O error (a bad sector) ends the process with SIGBUS; the default, positioned reads,
    /// returns an `Io` error.
    #[expect(unsafe_code, reason = "the promise of the face")]
    pub unsafe fn map(&mut self) -> &mut ContainerOptions {
        // SAFETY: the caller promises what the permission stands for.
        let permission = unsafe { MapPermission::promised() };
        self.storage = StorageKind::Mapped { permission, max_maps: DEFAULT_MAX_MAPS, access: Access::Random };
        self
    }
}
