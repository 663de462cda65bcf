//! Options for reading containers of other formats.

use sharddb::internal::DEFAULT_MAX_MAPS;
use sharddb::internal::bytes::{MapPermission, StorageKind};
use sharddb::read::Access;

/// Options for opening an array, a column or a file of another format.
///
/// ```
/// let mut options = sharddb_container::ContainerOptions::new();
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
    /// Creates the defaults: positioned reads, which stay safe if somebody edits or truncates the files, and 1 GiB per
    /// chunk.
    pub fn new() -> ContainerOptions {
        ContainerOptions::default()
    }

    /// Sets the largest decoded size in bytes of a chunk, or of a shard that is compressed as a whole. A larger one is
    /// `TooLarge`. Default: 1 GiB.
    pub fn max_chunk_bytes(&mut self, bytes: u64) -> &mut ContainerOptions {
        self.max_chunk_bytes = bytes;
        self
    }

    /// Reads each file into memory at its first use.
    pub fn load(&mut self) -> &mut ContainerOptions {
        self.storage = StorageKind::Heap;
        self
    }

    /// Maps the files: encoded chunks are borrowed, not copied.
    ///
    /// # Safety
    ///
    /// While a container that was opened with these options is open, nobody may truncate or edit its files. Replacing a
    /// file by rename, as the writers of this crate do, is safe. Reading a mapped page after a truncation, or one with
    /// an I/O error such as a bad sector, ends the process with SIGBUS. The default, positioned reads, returns an `Io`
    /// error instead.
    #[expect(unsafe_code, reason = "the public function states the promise")]
    pub unsafe fn map(&mut self) -> &mut ContainerOptions {
        // SAFETY: the caller promises that nobody truncates or edits the files, which is what the permission requires.
        let permission = unsafe { MapPermission::promised() };
        self.storage = StorageKind::Mapped { permission, max_maps: DEFAULT_MAX_MAPS, access: Access::Random };
        self
    }
}
