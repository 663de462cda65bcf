//! The database: a path, the generation that it serves now, and those that it served before.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use crate::error::{Error, ErrorKind, Result};
use crate::format::info;
use crate::read::generation::{Generation, Leased};
use crate::read::options::{GenerationOptions, OpenOptions};
use crate::read::owned_value::OwnedValue;
use crate::read::shard::{MinishardCache, Shard, Value};
use crate::read::snapshot::Snapshot;
use crate::storage::{MapPermission, StorageKind};
use crate::store::{self, GenerationId, Lease, LeasedGeneration, Store};

/// An open database: a store, one generation, or a bare directory of shards.
///
/// Cheap to clone, `Send + Sync`. Three ways to open: [`open`](ShardDb::open) maps the files,
/// [`open_pread`](ShardDb::open_pread) reads them, [`load`](ShardDb::load) takes them into memory;
/// [`OpenOptions`] has the rest. For loops use a [`snapshot`](ShardDb::snapshot) or a
/// [`reader`](ShardDb::reader): they share nothing between threads on the way.
///
/// # Fork
///
/// A forked child may read its copy and drop it; neither changes anything for the parent. But the generation is held
/// against removal by the process that opened it, and only as long as that serves it: a child that reads for longer calls
/// [`refresh`](ShardDb::refresh) first, which opens the current generation for the child itself, or opens the database anew.
/// As with any lock, fork while no other thread is in `refresh` or `open_generations`.
#[derive(Clone)]
pub struct ShardDb {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    /// The same, whatever becomes of the working directory.
    absolute: PathBuf,
    opener: Opener,
    current: Arc<ArcSwap<Generation>>,
    /// Locked by a refresh for as long as it takes: of two at once, the second finds what the first did.
    retired: Mutex<Retired>,
}

/// How this database opens its generations, the first and those that follow.
struct Opener {
    options: GenerationOptions,
    cache_bytes: Arc<AtomicU64>,
}

/// What was served before and is still read.
///
/// A generation is here from before the last reader can leave it, and only [`release_unread`](Retired::release_unread)
/// takes it out: so it is never a reader that drops it last, unmaps it and waits for that.
#[derive(Default)]
struct Retired {
    generations: Vec<Arc<Generation>>,
    /// Of generations that are closed otherwise: those that kept values lie in.
    shards: Vec<Shard>,
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
    ///
    /// Reading a mapped page that the kernel cannot provide ends the process with SIGBUS. This happens after a
    /// truncation, and on an I/O error: a bad sector, a disk or network file system that is gone. A server that must
    /// survive those opens with [`open_pread`](ShardDb::open_pread), where they are an `Io` error of that one read, or
    /// with [`load`](ShardDb::load), where they are an error of opening.
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
        let absolute = std::path::absolute(path).map_err(|error| Error::io("find", path, error))?;
        let opener = Opener { options, cache_bytes: Arc::new(AtomicU64::new(cache_bytes)) };
        let generation = opener.open(&absolute)?;
        Ok(ShardDb::new(path.to_path_buf(), absolute, opener, generation))
    }

    /// A database that stays with one generation.
    pub(crate) fn of_generation(generation: Generation) -> ShardDb {
        let opener = Opener { options: generation.options().clone(), cache_bytes: Arc::default() };
        ShardDb::new(PathBuf::new(), PathBuf::new(), opener, generation)
    }

    fn new(path: PathBuf, absolute: PathBuf, opener: Opener, generation: Generation) -> ShardDb {
        let current = Arc::new(ArcSwap::from_pointee(generation));
        ShardDb { shared: Arc::new(Shared { path, absolute, opener, current, retired: Mutex::default() }) }
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
        self.snapshot().get_owned(key)
    }

    /// Whether a key is there in the generation that is served now.
    pub fn contains(&self, key: u64) -> Result<bool> {
        self.snapshot().contains(key)
    }

    /// Follows the store's `current`, forwards or back; returns the generation if it is another one: of another number,
    /// or another directory of the same number, where the path of the store leads to another store now.
    ///
    /// The new generation is opened and, with [`OpenOptions::check_shards`], all its shards, before the swap; on `Err` the old
    /// one stays.
    /// Readers never wait. Generations that nobody reads any more are unmapped here, not by a reader: call it again
    /// after the last snapshot or value of an old one is gone, or drop the database. A bare directory never changes.
    ///
    /// Cost: where `current` is the same, reading a link and a look at the lease, or else the directory, that it leads to.
    ///
    /// Errors: those of [`open`](ShardDb::open) and of every shard's presence and length, with a path in the
    /// generation that they are about; `GenerationGone` if `current` names one that is not there.
    pub fn refresh(&self) -> Result<Option<GenerationId>> {
        let mut retired = self.retired();
        retired.release_unread();
        let served = self.shared.current.load_full();
        if !served.follows() {
            return Ok(None);
        }
        let path = resolved(&self.shared.absolute);
        if store::read_current(&path)?.is_some_and(|id| served.is_still(id, &path)) {
            return Ok(None);
        }
        let leased = LeasedGeneration::acquire_current(&path)?;
        let id = leased.id;
        if served.is_still(id, &path) {
            return Ok(None); // rolled back in between
        }
        drop(served); // it is retired here, and not by a reader
        let new = self.shared.opener.open_leased(leased)?;
        if self.shared.opener.options.check_shards {
            new.touch_all()?;
        }
        // a reader that is inside the old one counts as an owner of it from here on (arc-swap pays its debt)
        retired.generations.push(self.shared.current.swap(Arc::new(new)));
        retired.release_unread();
        Ok(Some(id))
    }

    /// The number of generations that are open: the served one, and as of the last [`refresh`](ShardDb::refresh) those
    /// that a snapshot or a [`Reader`] still holds.
    pub fn open_generations(&self) -> usize {
        1 + self.retired().generations.len()
    }

    /// Changes the most bytes that decoded minishard indexes may take, in each generation that is open.
    pub fn set_cache_bytes(&self, bytes: u64) {
        self.shared.opener.cache_bytes.store(bytes, Ordering::Relaxed);
        self.shared.current.load().cache().shrink();
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    fn retired(&self) -> MutexGuard<'_, Retired> {
        self.shared.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenOptions {
    /// Opens a database by mapping its files, like [`ShardDb::open`].
    ///
    /// # Safety
    ///
    /// That of [`ShardDb::open`]. A truncation, and also an I/O error (a bad sector, a network file system that is
    /// gone), ends the process with SIGBUS; [`open_pread`](OpenOptions::open_pread) and [`load`](OpenOptions::load)
    /// return an `Io` error instead.
    #[expect(unsafe_code, reason = "the promise of the face")]
    pub unsafe fn open(&self, path: impl AsRef<Path>) -> Result<ShardDb> {
        // SAFETY: the caller promises what the permission stands for.
        let permission = unsafe { MapPermission::promised() };
        let storage = StorageKind::Mapped { permission, max_maps: self.max_maps, access: self.access };
        ShardDb::open_with(path.as_ref(), self.generation(storage), self.cache_bytes)
    }

    /// Opens a database for positioned reads, like [`ShardDb::open_pread`].
    pub fn open_pread(&self, path: impl AsRef<Path>) -> Result<ShardDb> {
        ShardDb::open_with(path.as_ref(), self.generation(StorageKind::Positioned), self.cache_bytes)
    }

    /// Reads a database into memory, like [`ShardDb::load`].
    pub fn load(&self, path: impl AsRef<Path>) -> Result<ShardDb> {
        ShardDb::open_with(path.as_ref(), self.generation(StorageKind::Heap), self.cache_bytes)
    }
}

impl Store {
    /// Opens a generation of this store, current or not, for positioned reads. A refresh of it finds nothing new.
    ///
    /// To map it: `options.open(store.generation_path(id))`.
    ///
    /// # Errors
    ///
    /// Those of [`OpenOptions::open_pread`]; `NotFound` if there is no such generation.
    pub fn open_generation(&self, id: GenerationId, options: &OpenOptions) -> Result<ShardDb> {
        options.open_pread(self.generation_path(id))
    }
}

impl Opener {
    /// Opens what a path leads to now: the store's current generation, or the directory itself.
    fn open(&self, path: &Path) -> Result<Generation> {
        let given = path;
        let path = resolved(path);
        if store::has_current(&path)? {
            return self.open_leased(LeasedGeneration::acquire_current(&path)?);
        }
        if self.options.spec.is_none() {
            check_is_data_set(&path).map_err(|error| error.at_path(given))?;
        }
        // one generation by its own directory is held as well; a foreign directory has nothing to hold
        let lease = Lease::is_offered_by(&path).then(|| Lease::acquire(&path)).transpose()?;
        let id = id_in_store(&path)?;
        self.open_directory(&path, lease.map(|lease| Leased { id, follows: false, lease }))
    }

    fn open_leased(&self, LeasedGeneration { id, path, lease }: LeasedGeneration) -> Result<Generation> {
        self.open_directory(&path, Some(Leased { id: Some(id), follows: true, lease }))
    }

    fn open_directory(&self, directory: &Path, leased: Option<Leased>) -> Result<Generation> {
        let cache = Arc::new(MinishardCache::new(self.cache_bytes.clone()));
        Generation::open(directory, self.options.clone(), cache, leased)
    }
}

impl Retired {
    /// Closes the generations that nobody reads, but for the shards that kept values lie in; drops those of before
    /// whose values are gone.
    fn release_unread(&mut self) {
        self.shards.retain(Shard::is_shared);
        for generation in std::mem::take(&mut self.generations) {
            match Arc::try_unwrap(generation) {
                Ok(unread) => self.shards.extend(unread.close()),
                Err(read) => self.generations.push(read),
            }
        }
    }
}

/// Errors: `NotFound` unless there is a file `info` to read.
fn check_is_data_set(path: &Path) -> Result<()> {
    let found = match path.join(info::FILE_NAME).symlink_metadata() {
        Ok(_) => return Ok(()),
        Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Err(Error::io("open", path, error));
        }
        Err(_) if Store::open(path).is_ok() => "a store in which nothing was published",
        Err(_) if path.is_dir() => "a directory without them",
        Err(_) if path.exists() => "a file",
        Err(_) => "nothing",
    };
    let message = format!(
        "expected a database: a store (current), a generation or a directory of shards with a file info, found {found}"
    );
    Err(Error::new(ErrorKind::NotFound, message))
}

/// The generation that a directory is in the store around it; `None` outside of a store.
fn id_in_store(directory: &Path) -> Result<Option<GenerationId>> {
    let id = directory.file_name().and_then(|name| name.to_str()?.parse().ok());
    match (id, directory.parent()) {
        (Some(id), Some(parent)) if store::has_current(parent)? => Ok(Some(id)),
        _ => Ok(None),
    }
}

/// The path without links: shards are opened at first touch, and by then a link on the way to them (`store/current` is
/// one) could lead to another generation.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf()) // what is wrong with it shows when it is opened
}

impl fmt::Debug for ShardDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardDb").field("path", &self.shared.path).field("snapshot", &self.snapshot()).finish()
    }
}

/// A handle for one thread; see [`ShardDb::reader`].
///
/// It holds the generation that it read last until it reads again: drop one that is not used for long.
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
        self.cache.load().contains(key)
    }

    /// Pins the generation that is served now.
    pub fn snapshot(&mut self) -> Snapshot {
        Snapshot { generation: self.cache.load().clone() }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}
