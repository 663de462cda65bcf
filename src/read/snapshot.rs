//! Snapshots: one pinned generation, its lookups, its metadata, and reading it into memory. Batches and walks are in `batch`
//! and `walk`.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::bytes::{live_maps, read_whole};
use crate::error::{Error, Result};
use crate::format::info;
use crate::format::layout::Layout;
use crate::format::multilod;
use crate::format::spec::ShardingSpec;
use crate::fs::entry;
use crate::ids::ShardNumber;
use crate::read::generation::Generation;
use crate::read::shard::{CacheStats, Shard, Value, ValueLocation};
use crate::store::{GenerationId, Lease, generation_gone};

/// One pinned generation, for loops and batches.
///
/// Cheap to clone, `Send + Sync + 'static`. All reads through a snapshot see the same generation, whatever is published
/// meanwhile. Its maps and its disk space stay in use until the last clone is dropped.
///
/// A lookup hashes the key, finds the shard, locates the minishard index, finds the key in it, and returns the value.
/// With raw encodings and files that are mapped or loaded, it copies neither indexes nor values, except a minishard
/// index of more than 64 keys whose keys do not ascend.
///
/// In such a data set, most lookups do not allocate. A lookup allocates at the first use of a shard, of a block (256
/// minishards with consecutive numbers) or of a minishard of more than 64 keys, when it verifies the first value of more
/// than 512 bytes of a shard, and whenever it reads the minishard table, as it does in every minishard of 255 keys or
/// more.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) generation: Arc<Generation>,
}

impl Snapshot {
    /// Returns the value of a key; `Ok(None)` if the key is absent, and an empty value if it is stored with zero bytes.
    ///
    /// The value is borrowed from memory if it is stored raw in a mapped or loaded shard. It is owned if it is stored
    /// as gzip or read by positioned reads.
    ///
    /// In a native data set with checks, damage is an error instead of a wrong value, with two exceptions:
    /// [`VerifyReads::Never`](crate::VerifyReads::Never) verifies nothing, and
    /// [`VerifyReads::Once`](crate::VerifyReads::Once), the default, misses damage that appears after its verification.
    /// docs/trust.md has the details.
    ///
    /// Cost for raw values in memory, after the first use: one memory latency, if the index has at most 8 keys and the
    /// value ends within about 640 bytes after the start of the minishard index, as usual in the `local` profile. The
    /// first use of a minishard verifies its index and, if index and values together span at most 4 KiB, all its
    /// values. The first lookup that needs the shard index verifies all of it; lookups need it only where the data set
    /// has no minishard table, or where the table is damaged or does not describe a minishard.
    ///
    /// By positioned reads of a file that is kept open, from the second use of a block of 256 minishards on: one system call,
    /// if the minishard spans at most 8 KiB in a native data set with raw indexes, and at most 63 without keys follow it;
    /// otherwise one for the value, and another one for the index if it is not in the cache.
    ///
    /// Memory: 3 to 7 bytes per minishard for each block of 256 minishards that is in use, rounded up to whole pages. By
    /// positioned reads, a thread keeps 8 KiB, and one that makes batches up to 64 KiB.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `TooLarge`, `Io`, `GenerationGone`, with the key and its place.
    ///
    /// ```no_run
    /// # fn main() -> sharddb::Result<()> {
    /// let db = sharddb::ShardDb::open("store")?;
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
    /// Reuses the capacity of the buffer, and allocates nothing else for a value that one positioned read returns, or that is
    /// raw in memory and verified. The buffer is empty if the key is absent, or on `Err`.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Snapshot::get).
    pub fn get_into(&self, key: u64, buffer: &mut Vec<u8>) -> Result<bool> {
        buffer.clear();
        match self.generation.shard_of_key(key)? {
            Some((shard, minishard)) => shard.reader().get_into(minishard, key, buffer),
            None => Ok(false),
        }
    }

    /// Returns the stored bytes of the value of a key, verified but not decoded; `None` if the key is absent.
    ///
    /// In a data set with gzip values this is one gzip member, otherwise the value.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Snapshot::get), except those of decoding.
    pub fn get_encoded(&self, key: u64) -> Result<Option<Value<'_>>> {
        let Some((shard, minishard)) = self.generation.shard_of_key(key)? else { return Ok(None) };
        shard.reader().stored(minishard, key).map(|encoded| encoded.map(Value::from_bytes))
    }

    /// Returns the `n` bytes directly before the stored value of a key; `None` if the key is absent. They are never
    /// encoded.
    ///
    /// In a multi-resolution mesh these are the fragments, which precede their manifest.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Snapshot::get); `InvalidInput` if the shard has fewer bytes before the value or, in a data set
    /// with checked preambles, if the preamble has fewer.
    pub fn get_preamble(&self, key: u64, n: u64) -> Result<Option<Value<'_>>> {
        match self.generation.find(key)? {
            Some(found) => found.reader().preamble(&found.key, n).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the whole preamble and the decoded value of a key; `None` if the key is absent. In foreign data the preamble is
    /// what no index names before the value.
    ///
    /// Cost for foreign data sets: the first call per shard reads all its indexes and keeps 16 bytes per key.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Snapshot::get); `Unsupported` if the length of the preamble is unknown, since version 0.1.0 wrote it to
    /// data whose values are aligned.
    pub fn get_with_preamble(&self, key: u64) -> Result<Option<(Value<'_>, Value<'_>)>> {
        match self.generation.find(key)? {
            Some(found) => {
                let reader = found.reader();
                Ok(Some((reader.located_preamble(&found.key)?, reader.value(&found.key)?)))
            }
            None => Ok(None),
        }
    }

    /// Returns whether pairs may have preambles: as the layout says or, in foreign data, if the `info` says that values are
    /// manifests of multi-resolution meshes.
    ///
    /// # Errors
    ///
    /// Those of [`info`](Snapshot::info).
    pub fn has_preambles(&self) -> Result<bool> {
        match self.layout() {
            Some(layout) => Ok(layout.preambles),
            None => Ok(self.info()?.as_deref().is_some_and(multilod::is_stated_by)),
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

    /// Returns the shard of this number; `None` if the snapshot does not have it: the manifest does not list it or,
    /// without a manifest, it had no file when the snapshot was opened.
    ///
    /// If lookups have opened the shard and it is mapped or loaded, this is the same one. Otherwise the shard is opened
    /// separately and closed with its last handle, unless the database is loaded into memory.
    ///
    /// # Errors
    ///
    /// `Io`, `TooLarge`, `GenerationGone`; `Corrupt` if the file does not match the manifest.
    pub fn shard(&self, number: ShardNumber) -> Result<Option<Shard>> {
        self.generation.shard_for_pass(number)
    }

    /// Returns the number of keys that the manifest states, in O(1); `None` for a data set without a manifest.
    pub fn key_count(&self) -> Option<u64> {
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

    /// Returns the JSON pointer (RFC 6901) of the object in `info` that describes the shards, such as `/scales/0` in a
    /// volume; empty for the top level, and without an `info`.
    pub fn sharding_at(&self) -> &str {
        self.generation.pointer()
    }

    /// Returns the text of the file `info`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// `GenerationGone` if the generation was removed; `InvalidSpec` if the text is not UTF-8, `TooLarge` if it is longer
    /// than 16 MiB; `Io`.
    pub fn info(&self) -> Result<Option<String>> {
        let path = self.directory().join(info::FILE_NAME);
        if self.directory().as_os_str().is_empty() {
            return Ok(None); // a database from pairs
        }
        if !entry::exists(&path)? {
            return if entry::is_dir(self.directory())? { Ok(None) } else { Err(generation_gone(self.directory())) };
        }
        let text = String::from_utf8(read_whole(&path, info::MAX_BYTES)?);
        let text = text.map_err(|_| Error::invalid_spec("expected an info of UTF-8, found other bytes").at_path(&path));
        text.map(Some)
    }

    /// Returns the current sizes, cache counters, number of maps and lease state.
    ///
    /// Cost: O(shards).
    pub fn stats(&self) -> Stats {
        Stats {
            shards: self.generation.shard_numbers().len(),
            keys: self.key_count(),
            value_bytes: self.generation.manifest().map(|manifest| manifest.value_bytes),
            file_bytes: self.generation.manifest().map(|it| it.shards.iter().map(|shard| shard.bytes).sum()),
            key_file_bytes: self.generation.key_file().map(|file| file.file_bytes()),
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

    /// Reads all pages of a generation into memory, shard by shard, on a background thread, and then what lookups keep
    /// about minishards: 3 to 7 bytes per minishard.
    ///
    /// For data that fits into memory, after a restart for example: lookups work meanwhile.
    /// [`OpenOptions::populate`](crate::OpenOptions::populate) does the same when a shard is opened. Linux uses huge
    /// pages for maps if the file system supports them, which makes lookups faster. Shards that cannot be opened are
    /// skipped: lookups report their errors.
    ///
    /// Nothing is verified, except shard indexes and blocks of the minishard table; a [scan](Snapshot::scan) before this
    /// call verifies the values, once for all lookups if the shards are mapped or loaded.
    ///
    /// # Errors
    ///
    /// `Io` if the thread cannot be started.
    ///
    /// ```no_run
    /// # fn main() -> sharddb::Result<()> {
    /// // SAFETY: nobody edits the files of this store.
    /// let snapshot = unsafe { sharddb::ShardDb::open_mapped("store")? }.snapshot();
    /// let warming = snapshot.warm()?;
    /// println!("{:?}", snapshot.get(42)?); // at once
    /// warming.wait();
    /// # Ok(()) }
    /// ```
    pub fn warm(&self) -> Result<Warming> {
        let (snapshot, cancelled) = (self.clone(), Arc::new(AtomicBool::new(false)));
        let is_cancelled = cancelled.clone();
        let work = move || {
            let goes_on = || !is_cancelled.load(Ordering::Relaxed);
            for number in snapshot.generation.shard_numbers().take_while(|_| goes_on()) {
                if let Ok(Some(shard)) = snapshot.generation.shard(number) {
                    shard.reader().populate(&goes_on);
                    shard.reader().fill_minishard_map(&goes_on);
                }
            }
        };
        let thread = thread::Builder::new().name("sharddb-warm".to_string()).spawn(work);
        let thread = thread.map_err(|error| Error::io("start a thread to warm", self.directory(), error))?;
        Ok(Warming { thread: Some(thread), cancelled })
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

/// Statistics of one generation; see [`Snapshot::stats`]. [`ShardDb::stats`](crate::ShardDb::stats) also has those of its
/// refreshes.
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let stats = sharddb::ShardDb::open("store")?.snapshot().stats();
/// println!("{} shards, {} of {} cache bytes", stats.shards, stats.cache.bytes, stats.cache.capacity);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The number of shards that the manifest lists or, without a manifest, that had a file at open.
    pub shards: usize,
    /// The number of keys, if there is a manifest.
    pub keys: Option<u64>,
    /// The stored bytes of all values, if there is a manifest.
    pub value_bytes: Option<u64>,
    /// The bytes of all shard files, if there is a manifest.
    pub file_bytes: Option<u64>,
    /// The bytes of the key file that ordered reads use; `None` if there is none, or it cannot be opened.
    pub key_file_bytes: Option<u64>,
    /// The number of minishards that lookups have verified and do not verify again, with
    /// [`VerifyReads::Once`](crate::VerifyReads::Once): those with raw indexes, in mapped or loaded shards.
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

/// A background thread that reads a generation into memory; see [`Snapshot::warm`]. Dropping it cancels the work.
#[derive(Debug)]
#[must_use = "dropping it cancels the work"]
pub struct Warming {
    thread: Option<JoinHandle<()>>,
    cancelled: Arc<AtomicBool>,
}

impl Warming {
    /// Returns whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the thread to end.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic in it affects no lookup
        }
    }
}

impl Drop for Warming {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}
