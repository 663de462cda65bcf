//! A snapshot: one generation, pinned, and every question that can be put to it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::format::layout::Layout;
use crate::format::spec::ShardingSpec;
use crate::ids::ShardNumber;
use crate::read::generation::Generation;
use crate::read::shard::{CacheStats, Shard, Value, ValueLocation};
use crate::storage::live_maps;
use crate::store::{GenerationId, Lease};

/// One generation, pinned: what loops and batches read from.
///
/// Cheap to clone, `Send + Sync + 'static`. All reads through one snapshot see the same generation, whatever is
/// published meanwhile; its maps and its disk stay in use until the last clone is gone.
///
/// The read path is short: hash the key, find the shard, find the minishard in the minishard table, find the key
/// in the minishard index, give the value. With raw encodings and a mapped file nothing is allocated or copied.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) generation: Arc<Generation>,
}

impl Snapshot {
    /// The value of a key; `Ok(None)` if it is not there, an empty value if it is there with zero bytes.
    ///
    /// Borrowed from the map or the memory when stored raw, decoded when stored as gzip, read with positioned
    /// reads. Cost for raw values in small minishards (the `local` profile): one wait for memory, for index and value
    /// together; 3.5 bytes of memory for each minishard that lookups have come by. The first use of a minishard of ours compares
    /// it with its checks.
    ///
    /// Errors: `Corrupt`, `TooLarge`, `Io`, `GenerationGone`; never a wrong value, as far as docs/trust.md says.
    ///
    /// ```no_run
    /// # fn main() -> sharddb::Result<()> {
    /// let db = sharddb::ShardDb::open_pread("store")?;
    /// let snapshot = db.snapshot();
    /// if let Some(value) = snapshot.get(42)? {
    ///     println!("{} bytes", value.len());
    /// }
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn get(&self, key: u64) -> Result<Option<Value<'_>>> {
        self.generation.get(key)
    }

    /// Replaces the content of `buffer` by the value of a key; tells whether it is there.
    ///
    /// The buffer's capacity is reused; it is empty if the key is absent.
    pub fn get_into(&self, key: u64, buffer: &mut Vec<u8>) -> Result<bool> {
        buffer.clear();
        let Some(value) = self.get(key)? else { return Ok(false) };
        buffer.extend_from_slice(&value);
        Ok(true)
    }

    /// The `n` bytes that lie directly before the stored value of a key; they are never encoded.
    ///
    /// In a multi-resolution mesh these are the fragments, before their manifest.
    ///
    /// Errors: as [`get`](Snapshot::get), and `InvalidInput` if the shard has fewer bytes before the value.
    pub fn get_prefix(&self, key: u64, n: u64) -> Result<Option<Value<'_>>> {
        match self.generation.find(key)? {
            Some(found) => found.reader().prefix(&found.stored, n).map(Some),
            None => Ok(None),
        }
    }

    /// Whether a key is there; its value is not touched.
    #[inline]
    pub fn contains(&self, key: u64) -> Result<bool> {
        self.generation.contains(key)
    }

    /// Where the value of a key is stored: file, offset, stored length.
    pub fn locate(&self, key: u64) -> Result<Option<ValueLocation>> {
        match self.generation.find(key)? {
            Some(found) => found.value_location().map(Some),
            None => Ok(None),
        }
    }

    /// The shard of this number, if it has a file: the one that lookups hold in memory, else opened for itself.
    pub fn shard(&self, number: ShardNumber) -> Result<Option<Shard>> {
        self.generation.shard_for_pass(number)
    }

    /// The number of keys as the manifest states it: O(1); `None` for a data set without a manifest.
    #[expect(clippy::len_without_is_empty, reason = "a data set without a manifest cannot tell without reading")]
    pub fn len(&self) -> Option<u64> {
        self.generation.manifest().map(|manifest| manifest.keys)
    }

    /// The number of keys, counted: reads all indexes and no values.
    ///
    /// Errors: the first bad shard or minishard.
    pub fn count(&self) -> Result<u64> {
        self.shards().map(|shard| shard?.count()).sum()
    }

    /// The sharding specification.
    pub fn spec(&self) -> &ShardingSpec {
        self.generation.spec()
    }

    /// What the data set has beyond the format's text; `None` if somebody else wrote it.
    pub fn layout(&self) -> Option<Layout> {
        self.generation.layout()
    }

    /// The generation of the store; `None` for a bare directory.
    pub fn generation(&self) -> Option<GenerationId> {
        self.generation.id()
    }

    /// The directory of the generation.
    pub fn directory(&self) -> &Path {
        self.generation.directory()
    }

    /// The directory of the shards: the same, or the one below it that the member "key" of a nested object names.
    pub fn shards_directory(&self) -> &Path {
        self.generation.shards_directory()
    }

    /// Sizes, cache, maps and lease, as of now.
    pub fn stats(&self) -> Stats {
        Stats {
            shards: self.generation.shard_numbers().len(),
            keys: self.len(),
            value_bytes: self.generation.manifest().map(|manifest| manifest.value_bytes),
            file_bytes: self.generation.manifest().map(|it| it.shards.iter().map(|shard| shard.bytes).sum()),
            verified_minishards: self.generation.verified_minishards(),
            cache: self.generation.cache().stats(),
            process_maps: live_maps(),
            lease: match self.generation.lease() {
                None => LeaseState::None,
                Some(Lease::Held(_)) => LeaseState::Held,
                Some(Lease::Unavailable { why, .. }) => LeaseState::Unavailable(why.clone()),
            },
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("directory", &self.directory())
            .field("generation", &self.generation())
            .finish()
    }
}

/// Figures about an open database; see [`Snapshot::stats`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Shards that have a file.
    pub shards: usize,
    /// Keys, where there is a manifest.
    pub keys: Option<u64>,
    /// Stored bytes of all values, where there is a manifest.
    pub value_bytes: Option<u64>,
    /// Bytes of all shard files, where there is a manifest.
    pub file_bytes: Option<u64>,
    /// Minishards whose bytes were compared with their checks and are not compared again: of shards that lookups have opened,
    /// in memory, with [`VerifyReads::Once`](crate::VerifyReads::Once).
    pub verified_minishards: u64,
    /// The cache of minishard indexes.
    pub cache: CacheStats,
    /// Maps that this library holds in this process, of all databases.
    pub process_maps: usize,
    /// Whether the generation is held against removal.
    pub lease: LeaseState,
}

/// Whether a generation is held against removal by [`StoreWriter::gc`](crate::StoreWriter::gc).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseState {
    /// A bare directory: nobody removes it but its owner.
    None,
    /// It stays until it is closed.
    Held,
    /// No lock could be had (a read-only or network file system), and why: somebody may remove it, which shards that
    /// are not open yet then report.
    Unavailable(String),
}
