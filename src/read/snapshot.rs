//! Snapshots: one pinned generation, its lookups, and its metadata. Batches and walks are in `batch` and `walk`.

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

/// One pinned generation, for loops and batches.
///
/// Cheap to clone, `Send + Sync + 'static`. All reads through a snapshot see the same generation, whatever is published
/// meanwhile. Its maps and its disk space stay in use until the last clone is dropped.
///
/// A lookup hashes the key, finds the shard, finds the minishard in the minishard table, finds the key in the minishard
/// index, and returns the value. With raw encodings, a mapped file and minishards of at most 64 keys it copies nothing,
/// and allocates nothing after the first use of a block of minishards.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) generation: Arc<Generation>,
}

impl Snapshot {
    /// Returns the value of a key; `Ok(None)` if the key is absent, and an empty value if it is stored with zero bytes.
    ///
    /// The value is borrowed from memory if it is stored raw in a mapped or loaded shard. It is owned if it is stored
    /// as gzip or read by positioned reads. In a native data set with checks, damage is an error and never a wrong value,
    /// unless [`VerifyReads::Never`](crate::VerifyReads::Never) is set; docs/trust.md has the details.
    ///
    /// Cost for raw values in memory, after the first use: one memory latency, if the index has at most 8 keys and the
    /// value ends within 640 bytes of its start, as usual in the `local` profile. The first use of a minishard verifies
    /// its index and, if it spans at most 4 KiB, all its values; the first use of a shard without a minishard table
    /// verifies its shard index. An open shard keeps 3 to 7 bytes per minishard that is in use, in blocks of 256.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `TooLarge`, `Io`, `GenerationGone`, with the key and its place.
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

    /// Replaces the content of `buffer` by the value of a key. Returns whether the key exists.
    ///
    /// Reuses the capacity of the buffer. The buffer is empty if the key is absent, or on `Err`.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Snapshot::get).
    pub fn get_into(&self, key: u64, buffer: &mut Vec<u8>) -> Result<bool> {
        buffer.clear();
        let Some(value) = self.get(key)? else { return Ok(false) };
        buffer.extend_from_slice(&value);
        Ok(true)
    }

    /// Returns the `n` bytes directly before the stored value of a key; `None` if the key is absent. They are never
    /// encoded.
    ///
    /// In a multi-resolution mesh these are the fragments, which precede their manifest.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Snapshot::get); `InvalidInput` if the shard has fewer bytes before the value or, in a data set
    /// with checked prefixes, if the prefix has fewer.
    pub fn get_prefix(&self, key: u64, n: u64) -> Result<Option<Value<'_>>> {
        match self.generation.find(key)? {
            Some(found) => found.reader().prefix(&found.stored, n).map(Some),
            None => Ok(None),
        }
    }

    /// Returns whether a key exists. Does not read its value, except to verify a small minishard at its first use.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Snapshot::get), as far as they concern indexes.
    #[inline]
    pub fn contains(&self, key: u64) -> Result<bool> {
        self.generation.contains(key)
    }

    /// Returns where the value of a key is stored: file, offset and stored length; `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// Those of [`contains`](Snapshot::contains); `Corrupt` if the value is not within the file.
    pub fn locate(&self, key: u64) -> Result<Option<ValueLocation>> {
        match self.generation.find(key)? {
            Some(found) => found.value_location().map(Some),
            None => Ok(None),
        }
    }

    /// Returns the shard of this number; `None` if it has no file.
    ///
    /// If lookups have opened the shard and it is in memory, this is the same one. Otherwise the shard is opened
    /// separately and closed with its last handle, unless the database is loaded into memory.
    ///
    /// # Errors
    ///
    /// `Io`, `TooLarge`, `GenerationGone`; `Corrupt` if the file does not match the manifest.
    pub fn shard(&self, number: ShardNumber) -> Result<Option<Shard>> {
        self.generation.shard_for_pass(number)
    }

    /// Returns the number of keys that the manifest states, in O(1); `None` for a data set without a manifest.
    #[expect(clippy::len_without_is_empty, reason = "the length of a data set without a manifest is not known")]
    pub fn len(&self) -> Option<u64> {
        self.generation.manifest().map(|manifest| manifest.keys)
    }

    /// Counts the keys.
    ///
    /// Cost: reads all indexes and no values.
    ///
    /// # Errors
    ///
    /// Those of the first bad shard or minishard.
    pub fn count(&self) -> Result<u64> {
        self.shards().map(|shard| shard?.count()).sum()
    }

    /// Returns the sharding specification.
    pub fn spec(&self) -> &ShardingSpec {
        self.generation.spec()
    }

    /// Returns the layout of a native data set: what it has beyond the text of the format. `None` for a foreign data
    /// set.
    pub fn layout(&self) -> Option<Layout> {
        self.generation.layout()
    }

    /// Returns the id of the generation in its store; `None` for a bare directory.
    pub fn generation(&self) -> Option<GenerationId> {
        self.generation.id()
    }

    /// Returns the directory of the generation.
    pub fn directory(&self) -> &Path {
        self.generation.directory()
    }

    /// Returns the directory of the shards: that of the generation, or the one below it that the member "key" of a
    /// nested object names.
    pub fn shards_directory(&self) -> &Path {
        self.generation.shards_directory()
    }

    /// Returns the current sizes, cache counters, number of maps and lease state.
    ///
    /// Cost: O(shards).
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

/// Statistics of an open database; see [`Snapshot::stats`].
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let stats = sharddb::ShardDb::open_pread("store")?.snapshot().stats();
/// println!("{} shards, {} of {} cache bytes", stats.shards, stats.cache.bytes, stats.cache.capacity);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The number of shards that have a file.
    pub shards: usize,
    /// The number of keys, if there is a manifest.
    pub keys: Option<u64>,
    /// The stored bytes of all values, if there is a manifest.
    pub value_bytes: Option<u64>,
    /// The bytes of all shard files, if there is a manifest.
    pub file_bytes: Option<u64>,
    /// The number of verified minishards, which are not verified again. Counts those in shards that lookups have
    /// opened, in memory, with [`VerifyReads::Once`](crate::VerifyReads::Once).
    pub verified_minishards: u64,
    /// The cache of minishard indexes.
    pub cache: CacheStats,
    /// The number of maps that this library holds in this process, for all databases.
    pub process_maps: usize,
    /// Whether the generation is protected from removal.
    pub lease: LeaseState,
}

/// Whether a generation is protected from removal by [`StoreWriter::gc`](crate::StoreWriter::gc).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseState {
    /// There is no lease: a bare directory is removed only by its owner.
    None,
    /// The generation is leased until it is closed.
    Held,
    /// The generation could not be leased (on a read-only or network file system, for example), with the reason. It may
    /// be removed while it is in use; then opening further shards fails with `GenerationGone`.
    Unavailable(String),
}
