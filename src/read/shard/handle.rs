//! The public handle of a shard. Its state is in `reader`.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::format::spec::ShardingSpec;
use crate::ids::{MinishardNumber, ShardNumber};
use crate::read::shard::files::ShardFiles;
use crate::read::shard::index_cache::MinishardCache;
use crate::read::shard::reader::{KnownShard, ReadOptions, ShardReader};
use crate::read::shard::stored_value::FoundKey;
use crate::read::shard::value::{Value, ValueLocation};

/// One shard: a file, or bytes in memory. Cheap to clone.
///
/// Usually obtained from a [`Snapshot`](crate::Snapshot). It can also be created from the bytes of a single shard:
///
/// ```no_run
/// use sharddb::ShardingSpec;
/// use sharddb::shard::Shard;
///
/// let spec = ShardingSpec::from_json(&std::fs::read_to_string("sharding.json").unwrap())?;
/// let shard = Shard::from_bytes(spec, spec.shard(0).unwrap(), std::fs::read("0.shard").unwrap());
/// for entry in shard.iter() {
///     let entry = entry?;
///     println!("{} has {} bytes", entry.key(), entry.value()?.len());
/// }
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone)]
pub struct Shard(Arc<ShardReader>);

impl Shard {
    pub(crate) fn new(reader: ShardReader) -> Shard {
        Shard(Arc::new(reader))
    }

    /// Returns the address of the shard: the same for all its handles.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Whether there is another handle to this shard.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    #[inline]
    pub(crate) fn reader(&self) -> &ShardReader {
        &self.0
    }

    /// Creates a shard from its bytes in memory. It is read as a foreign shard: checksums are not verified.
    ///
    /// This call reads nothing. If the bytes are not a valid shard, lookups return errors.
    pub fn from_bytes(spec: ShardingSpec, number: ShardNumber, bytes: Vec<u8>) -> Shard {
        let files = ShardFiles::from_bytes(bytes);
        let cache = Arc::new(MinishardCache::new(64 << 20));
        Shard(Arc::new(ShardReader::new(
            number,
            spec,
            None,
            files,
            ReadOptions::default(),
            cache,
            KnownShard::default(),
        )))
    }

    /// Returns the number of the shard.
    pub fn number(&self) -> ShardNumber {
        self.0.number
    }

    /// Returns the value of a key, like [`Snapshot::get`](crate::Snapshot::get). A key of another shard is absent.
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::get`](crate::Snapshot::get).
    pub fn get(&self, key: u64) -> Result<Option<Value<'_>>> {
        let Some(minishard) = self.minishard_of(key) else { return Ok(None) };
        self.0.get(minishard, key)
    }

    /// Returns whether a key exists, like [`Snapshot::contains`](crate::Snapshot::contains).
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::contains`](crate::Snapshot::contains).
    pub fn contains(&self, key: u64) -> Result<bool> {
        let Some(minishard) = self.minishard_of(key) else { return Ok(false) };
        self.0.contains(minishard, key)
    }

    /// Returns where the value of a key is stored; `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::locate`](crate::Snapshot::locate).
    pub fn locate(&self, key: u64) -> Result<Option<ValueLocation>> {
        let Some(found) = self.find(key)? else { return Ok(None) };
        self.0.value_location(found.minishard, found.row).map(Some)
    }

    /// Returns the `n` bytes directly before the stored value of a key; `None` if the key is absent. They are never
    /// encoded.
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::get_preamble`](crate::Snapshot::get_preamble).
    pub fn get_preamble(&self, key: u64, n: u64) -> Result<Option<Value<'_>>> {
        let Some(found) = self.find(key)? else { return Ok(None) };
        self.0.preamble(&found, n).map(Some)
    }

    /// Returns the minishard that a key hashes to; `None` if it is in another shard.
    fn minishard_of(&self, key: u64) -> Option<MinishardNumber> {
        let location = self.0.spec.route(key);
        (location.shard == self.0.number).then_some(location.minishard)
    }

    /// Finds the row of a key; `None` also for a key of another shard.
    fn find(&self, key: u64) -> Result<Option<FoundKey>> {
        match self.minishard_of(key) {
            Some(minishard) => self.0.find(minishard, key),
            None => Ok(None),
        }
    }

    /// Returns the length of the file in bytes; that of both files for the obsolete pair.
    pub fn file_bytes(&self) -> u64 {
        self.0.files().len()
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard").field("number", &self.0.number).field("path", &self.0.files().path()).finish()
    }
}
