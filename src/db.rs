//! The database: a path, the generation that it serves now, and those that it served before.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use crate::error::Result;
use crate::generation::{Generation, GenerationOptions, Leased};
use crate::options::OpenOptions;
use crate::owned_value::OwnedValue;
use crate::shard::{MinishardCache, Value};
use crate::snapshot::Snapshot;
use crate::store::{GenerationId, Lease, LeasedGeneration, Store};

/// An open database: a store, one generation, or a bare directory of shards.
///
/// Cheap to clone, `Send + Sync`. Three ways to open: [`open`](ShardDb::open) maps the files,
/// [`open_pread`](ShardDb::open_pread) reads them, [`load`](ShardDb::load) takes them into memory;
/// [`OpenOptions`] has the rest. For loops use a [`snapshot`](ShardDb::snapshot) or a
/// [`reader`](ShardDb::reader): they share nothing between threads on the way.
#[derive(Clone)]
pub struct ShardDb {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    options: GenerationOptions,
    cache_bytes: Arc<AtomicU64>,
    current: Arc<ArcSwap<Generation>>,
    /// Generations served before, until nobody reads them; locked by a refresh for as long as it takes.
    retired: Mutex<Vec<Arc<Generation>>>,
}

impl ShardDb {
    /// Opens a database by mapping its files: lookups borrow from the maps and copy nothing.
    ///
    /// Cost: microseconds for each shard, at its first touch.
    ///
    /// Errors: `Io`, `InvalidSpec`, `Corrupt` (a manifest that does not fit), `Unsupported` (of a later version).
    ///
    /// # Safety
    ///
    /// Nobody truncates or edits the published files, of this or any generation reached later by
    /// [`refresh`](ShardDb::refresh), for as long as they are mapped. ShardDb itself never does: files are written once,
    /// made read-only, and removed only as a whole. To delete files is safe.
    #[expect(unsafe_code, reason = "the promise of the face")]
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<ShardDb> {
        // SAFETY: the caller promises the same.
        unsafe { OpenOptions::new().open(path) }
    }

    /// Opens a database for positioned reads: values are owned, a file that shrinks is an error.
    ///
    /// The safe way to files that others may edit, and to network file systems.
    pub fn open_pread(path: impl AsRef<Path>) -> Result<ShardDb> {
        OpenOptions::new().open_pread(path)
    }

    /// Opens a database by reading it into memory: values are borrowed, the files may then be edited.
    ///
    /// A shard that cannot be read gives its error when it is asked for.
    pub fn load(path: impl AsRef<Path>) -> Result<ShardDb> {
        OpenOptions::new().load(path)
    }

    pub(crate) fn open_with(path: &Path, options: GenerationOptions, cache_bytes: u64) -> Result<ShardDb> {
        let cache_bytes = Arc::new(AtomicU64::new(cache_bytes));
        let generation = open_current(path, &options, &cache_bytes)?;
        Ok(ShardDb {
            shared: Arc::new(Shared {
                path: path.to_path_buf(),
                options,
                cache_bytes,
                current: Arc::new(ArcSwap::from_pointee(generation)),
                retired: Mutex::default(),
            }),
        })
    }

    /// Pins the generation that is served now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { generation: self.shared.current.load_full() }
    }

    /// A handle for one thread that follows swaps with one load a get and shares no counter.
    pub fn reader(&self) -> Reader {
        Reader { cache: arc_swap::Cache::new(self.shared.current.clone()) }
    }

    /// The value of a key in the generation that is served now; see [`Snapshot::get`].
    ///
    /// The value keeps its shard's map alive. Cost: one shared counter more than [`Reader::get`].
    pub fn get(&self, key: u64) -> Result<Option<OwnedValue>> {
        let snapshot = self.snapshot();
        snapshot.generation.find(key)?.map(|found| OwnedValue::new(&found)).transpose()
    }

    /// Whether a key is there in the generation that is served now.
    pub fn contains(&self, key: u64) -> Result<bool> {
        self.snapshot().contains(key)
    }

    /// Follows the store's `current`, forwards or back; tells the generation if it is another one.
    ///
    /// The new generation is opened, checked and its shards touched before the swap; on `Err` the old one stays.
    /// Readers never wait. Generations that nobody reads any more are unmapped here, not by a reader: call it again
    /// after the last snapshot of an old one is gone, or drop the database. A bare directory never changes.
    ///
    /// Errors: those of [`open`](ShardDb::open) and of every shard's presence and length.
    pub fn refresh(&self) -> Result<Option<GenerationId>> {
        let mut retired = self.retired();
        // after a swap every reader that is still inside the old generation counts
        retired.retain(|generation| Arc::strong_count(generation) > 1);
        let Some(served) = self.shared.current.load().id() else { return Ok(None) };
        if Store::open(&self.shared.path)?.current()? == Some(served) {
            return Ok(None);
        }
        let new = open_current(&self.shared.path, &self.shared.options, &self.shared.cache_bytes)?;
        let id = new.id();
        new.touch_all()?;
        let old = self.shared.current.swap(Arc::new(new));
        retired.push(old);
        retired.retain(|generation| Arc::strong_count(generation) > 1);
        Ok(id)
    }

    /// The number of generations that are still open: the served one and those that somebody reads.
    pub fn open_generations(&self) -> usize {
        1 + self.retired().len()
    }

    /// Changes the most bytes that decoded minishard indexes may take.
    pub fn set_cache_bytes(&self, bytes: u64) {
        self.shared.cache_bytes.store(bytes, Ordering::Relaxed);
        self.shared.current.load().cache().shrink();
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    fn retired(&self) -> MutexGuard<'_, Vec<Arc<Generation>>> {
        self.shared.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens what a path leads to now: the store's current generation, or the directory itself.
fn open_current(path: &Path, options: &GenerationOptions, cache_bytes: &Arc<AtomicU64>) -> Result<Generation> {
    let open = |directory: &Path, leased| {
        Generation::open(directory, options.clone(), Arc::new(MinishardCache::new(cache_bytes.clone())), leased)
    };
    if Store::is_at(path) {
        let LeasedGeneration { id, path, lease } = LeasedGeneration::acquire_current(path)?;
        return open(&path, Some(Leased { id: Some(id), lease }));
    }
    // one generation by its own directory is held as well; a foreign directory has nothing to hold
    let leased = Lease::is_offered_by(path).then(|| Lease::acquire(path)).transpose()?;
    open(path, leased.map(|lease| Leased { id: None, lease }))
}

impl fmt::Debug for ShardDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardDb").field("path", &self.shared.path).field("snapshot", &self.snapshot()).finish()
    }
}

/// A handle for one thread; see [`ShardDb::reader`].
pub struct Reader {
    cache: arc_swap::Cache<Arc<ArcSwap<Generation>>, Arc<Generation>>,
}

impl Reader {
    /// The value of a key in the generation that is served now; see [`Snapshot::get`].
    #[inline]
    pub fn get(&mut self, key: u64) -> Result<Option<Value<'_>>> {
        self.cache.load().get(key)
    }

    /// Whether a key is there in the generation that is served now.
    #[inline]
    pub fn contains(&mut self, key: u64) -> Result<bool> {
        Ok(self.cache.load().find(key)?.is_some())
    }

    /// Pins the generation that is served now.
    pub fn snapshot(&mut self) -> Snapshot {
        Snapshot { generation: self.cache.load().clone() }
    }
}
