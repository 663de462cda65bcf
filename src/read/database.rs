//! The database: a path, the generation that it serves now, and older ones that are still in use.
//!
//! How a generation is read is in `generation` and `shard`; how one is published is in `store`. `watch` refreshes a
//! database on a thread.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use arc_swap::ArcSwap;

use crate::bytes::{MapPermission, StorageKind};
use crate::error::{Error, ErrorKind, Result, panicked};
use crate::format::info;
use crate::format::locks::lock;
use crate::fs::entry;
use crate::read::following::{DatabaseStats, Following};
use crate::read::generation::{Generation, Leased};
use crate::read::options::OpenOptions;
use crate::read::owned_value::OwnedValue;
use crate::read::shard::{MinishardCache, Shard, Value};
use crate::read::snapshot::Snapshot;
use crate::store::{self, GenerationId, Lease, LeasedGeneration, Store};

/// An open database: a store, one generation, or a bare directory of shards.
///
/// Cheap to clone, `Send + Sync`. There are three ways to open one: [`open`](ShardDb::open) uses positioned reads,
/// [`open_mapped`](ShardDb::open_mapped) maps the files, and [`load`](ShardDb::load) reads the files into memory.
/// [`OpenOptions`] has the options. In loops, use a [`snapshot`](ShardDb::snapshot) or a [`reader`](ShardDb::reader):
/// their lookups write to no memory that threads share.
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let db = sharddb::ShardDb::open("store")?;
/// if let Some(value) = db.get(42)? {
///     println!("{} bytes", value.len());
/// }
/// # Ok(()) }
/// ```
///
/// # Fork
///
/// A forked child may read from its copy and drop it, without an effect on the parent. The lease that protects the
/// generation from removal belongs to the process that opened it, and ends when that process stops serving the
/// generation. A child that reads for longer first calls [`refresh`](ShardDb::refresh), which opens the current
/// generation with a lease of the child, or opens the database again. As with any lock, fork while no other thread is
/// in `refresh` or `open_generations`.
#[derive(Clone)]
pub struct ShardDb {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    /// `path` made absolute, so that a change of the working directory has no effect.
    absolute: PathBuf,
    opener: Opener,
    current: Arc<ArcSwap<Generation>>,
    /// Locked for the duration of a refresh, so that concurrent refreshes run one after the other.
    refresh: Mutex<()>,
    /// Locked for moments only.
    retired: Mutex<Retired>,
    /// Locked for moments only.
    following: Mutex<Following>,
}

/// How this database opens its generations.
struct Opener {
    options: OpenOptions,
    /// The cache of all generations.
    cache: Arc<MinishardCache>,
}

/// Generations and shards that are no longer served but may still be in use.
///
/// A refresh moves the database's reference to a replaced generation here, and only
/// [`release_unread`](ShardDb::release_unread) drops it. So a reader never drops the last reference, which would make
/// it wait for the unmapping.
#[derive(Default)]
struct Retired {
    generations: Vec<Arc<Generation>>,
    /// Shards of closed generations that another handle still refers to: an [`OwnedValue`], or a generation that has the
    /// shard too. Each once.
    shards: Vec<Shard>,
}

/// What nobody refers to any longer, to be dropped where waiting for it does no harm.
#[derive(Default)]
struct Unread {
    shards: Vec<Shard>,
    /// The generations without their shards. Dropped last, because they have the leases.
    generations: Vec<Generation>,
}

/// A refresh that found another generation: the one that was served, and the one that is.
pub(super) struct Swap {
    pub(super) old: Snapshot,
    pub(super) new: Snapshot,
}

impl ShardDb {
    /// Opens a database for positioned reads. Values are owned, and a file that is edited or cannot be read is an error.
    ///
    /// Each read is a system call and a copy. [`open_mapped`](ShardDb::open_mapped) needs neither, but a promise about the
    /// files.
    ///
    /// Cost: reads `info` and the manifest, and checks the length of each shard file.
    ///
    /// # Errors
    ///
    /// - `NotFound` if the path is not a database
    /// - `Io`
    /// - `InvalidSpec` if `info` is not valid
    /// - `InvalidInput` if `info` describes several data sets, and [`OpenOptions::sharding_at`] selects none of them
    /// - `Corrupt` if the manifest is damaged or does not match `info` or the shard files, or a file of the generation is missing
    /// - `Unsupported` if a later version wrote the database
    /// - `TooLarge` if `info` or the manifest exceeds its size limit
    /// - `GenerationGone` if the generation is deleted during the call
    pub fn open(path: impl AsRef<Path>) -> Result<ShardDb> {
        OpenOptions::new().open(path)
    }

    /// Opens a database by mapping its files. Lookups borrow from the maps and copy nothing.
    ///
    /// Cost: that of [`open`](ShardDb::open). Each shard is mapped at its first use, in microseconds.
    ///
    /// # Errors
    ///
    /// Those of [`open`](ShardDb::open).
    ///
    /// # Safety
    ///
    /// Nobody truncates or edits the published files while they are mapped: those of this generation and of every later
    /// one that [`refresh`](ShardDb::refresh) opens. ShardDb itself never does: it writes files once, makes them
    /// read-only, and only ever removes whole files. Deleting files is safe.
    ///
    /// An access to a mapped page that the kernel cannot read ends the process with SIGBUS. This happens after a
    /// truncation, and after an I/O error: a bad sector, or a disk or network file system that is gone. A server that
    /// must survive such errors uses [`open`](ShardDb::open), where they are an `Io` error of one read, or
    /// [`load`](ShardDb::load), where they occur while the files are read into memory.
    #[expect(unsafe_code, reason = "the promise of the public API")]
    pub unsafe fn open_mapped(path: impl AsRef<Path>) -> Result<ShardDb> {
        // SAFETY: the caller promises the same.
        unsafe { OpenOptions::new().open_mapped(path) }
    }

    /// Opens a database by reading it into memory. Values are borrowed, and the files may be edited afterwards.
    ///
    /// Cost: reads all shard files. Lookups in a shard that could not be read try again, and return the error.
    ///
    /// # Errors
    ///
    /// Those of [`open`](ShardDb::open).
    pub fn load(path: impl AsRef<Path>) -> Result<ShardDb> {
        OpenOptions::new().load(path)
    }

    pub(crate) fn open_with(path: &Path, options: OpenOptions) -> Result<ShardDb> {
        let absolute = std::path::absolute(path).map_err(|error| Error::io("make the path absolute", path, error))?;
        let opener = Opener { cache: Arc::new(MinishardCache::new(options.cache_bytes)), options };
        let generation = opener.open(&absolute)?;
        if opener.options.check_shards && store::is_candidate(&absolute) {
            generation.open_all_shards()?; // publishing renames the directory
        }
        Ok(ShardDb::new(path.to_path_buf(), absolute, opener, generation))
    }

    /// Creates a database that serves one generation and never changes.
    pub(crate) fn of_generation(generation: Generation) -> ShardDb {
        let opener = Opener { options: generation.options().clone(), cache: generation.cache().clone() };
        ShardDb::new(PathBuf::new(), PathBuf::new(), opener, generation)
    }

    fn new(path: PathBuf, absolute: PathBuf, opener: Opener, generation: Generation) -> ShardDb {
        let current = Arc::new(ArcSwap::from_pointee(generation));
        let (refresh, retired, following) = (Mutex::default(), Mutex::default(), Mutex::new(Following::new()));
        ShardDb { shared: Arc::new(Shared { path, absolute, opener, current, refresh, retired, following }) }
    }

    /// Returns a snapshot, which pins the current generation.
    ///
    /// Cost: one reference count that all threads share.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { generation: self.shared.current.load_full() }
    }

    /// Returns a handle for one thread that always reads the current generation.
    ///
    /// Cost: one atomic load per lookup, and no shared counter.
    pub fn reader(&self) -> Reader {
        Reader { cache: arc_swap::Cache::new(self.shared.current.clone()) }
    }

    /// Returns the value of a key in the current generation, or `None` if the key is absent; see [`Snapshot::get`].
    ///
    /// The value keeps the map of its shard alive. Cost: that of [`Reader::get`], plus shared reference counts.
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::get`].
    pub fn get(&self, key: u64) -> Result<Option<OwnedValue>> {
        self.snapshot().get_owned(key)
    }

    /// Returns whether the current generation contains a key.
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::contains`].
    pub fn contains(&self, key: u64) -> Result<bool> {
        self.snapshot().contains(key)
    }

    /// Switches to the generation that the store's `current` names, newer or older. Returns its id, or `None` if it is
    /// served already.
    ///
    /// A generation of the same number counts as another one if its directory is another one: the path may lead to
    /// another store now.
    ///
    /// The new generation is opened before the swap; with [`OpenOptions::check_shards`], all its shards are opened too.
    /// On `Err` the old generation stays current. Readers never wait. A database opened from a bare directory, or from
    /// the directory of one generation, never changes. [`watch`](ShardDb::watch) calls this function on a thread.
    ///
    /// Shards whose files both generations have, by hard links, are not opened again: the new generation takes their
    /// maps or loaded bytes, and what was verified of them. This holds for mapped shards, and for loaded ones whose
    /// CRC-32 matched, if both manifests have the same record and both generations the same specification. Errors of
    /// such a shard name its file in the generation that was opened last, in snapshots of older ones too.
    ///
    /// Old generations are unmapped by this function, not by readers: after the last snapshot or value of an old
    /// generation is dropped, the next call unmaps it on its thread. Without a later call, the maps stay until the
    /// database is dropped. A snapshot or value that outlives the database is unmapped where it is dropped.
    ///
    /// Cost if nothing changed: reads one symbolic link and the metadata of the lease file or, without a lease, of the
    /// directory.
    ///
    /// # Errors
    ///
    /// Those of [`open`](ShardDb::open) and of opening each shard, with the path in the generation that they refer to;
    /// `GenerationGone` if `current` names a generation that does not exist; `InvalidInput` in the hook
    /// [`before_swap`](crate::read::WatchOptions::before_swap) of a watch of this database, which is part of a refresh.
    /// On `Err` the old generation stays current.
    pub fn refresh(&self) -> Result<Option<GenerationId>> {
        let swap = self.refresh_if(&|_| Ok(()))?;
        let id = swap.and_then(|swap| swap.new.generation());
        self.release_unread();
        Ok(id)
    }

    /// Like [`refresh`](ShardDb::refresh). Opens a new generation, but serves it only if `accept` returns `Ok`. Leaves it
    /// to the caller to call [`release_unread`](ShardDb::release_unread) after a swap.
    pub(super) fn refresh_if(&self, accept: &dyn Fn(&Snapshot) -> Result<()>) -> Result<Option<Swap>> {
        if self.following().is_refreshed_by_this_thread() {
            let message = "expected a refresh outside of the hook `before_swap`, found one inside, which would wait for \
                           itself";
            return Err(Error::invalid_input(message).at_path(&self.shared.path));
        }
        let _refresh = lock(&self.shared.refresh);
        self.following().begin();
        let result = catch_unwind(AssertUnwindSafe(|| self.find_and_swap(accept)))
            .unwrap_or_else(|panic| Err(panicked("a refresh, or its hook `before_swap`,", &*panic)));
        self.following().end(&result);
        result
    }

    fn find_and_swap(&self, accept: &dyn Fn(&Snapshot) -> Result<()>) -> Result<Option<Swap>> {
        self.release_unread();
        let served = self.snapshot();
        if !served.generation.follows() {
            return Ok(None);
        }
        let path = resolved(&self.shared.absolute);
        if store::read_current(&path)?.is_some_and(|id| served.generation.is_still(id, &path)) {
            return Ok(None);
        }
        let leased = LeasedGeneration::acquire_current(&path)?;
        if served.generation.is_still(leased.id, &path) {
            return Ok(None); // rolled back in between
        }
        let new = self.shared.opener.open_leased(leased, Some(&served.generation))?;
        if self.shared.opener.options.check_shards {
            new.open_all_shards()?;
        }
        let new = Snapshot { generation: Arc::new(new) };
        accept(&new)?;
        new.generation.settle_shards();
        let old = {
            let mut following = self.following(); // so that `stats` counts the swap as soon as it names the generation
            following.note_swap();
            // `swap` gives a reader that is using the old generation a reference count (arc-swap settles its debts)
            self.shared.current.swap(new.generation.clone())
        };
        self.retired().generations.push(old);
        Ok(Some(Swap { old: served, new }))
    }

    /// Closes retired generations that are no longer in use, except shards that are still referenced. Unmaps on this
    /// thread, without a lock.
    pub(super) fn release_unread(&self) {
        let unread = self.retired().take_unread();
        drop(unread);
    }

    /// Whether there are retired generations that were in use at the last call of `release_unread`.
    pub(super) fn has_retired(&self) -> bool {
        !self.retired().generations.is_empty()
    }

    /// Whether a refresh may find another generation: the database was opened by the path of a store.
    pub(super) fn follows(&self) -> bool {
        self.shared.current.load().follows()
    }

    /// Returns the generation that `current` names now, if it can be read.
    pub(super) fn named_generation(&self) -> Option<GenerationId> {
        store::read_current(&resolved(&self.shared.absolute)).ok().flatten()
    }

    /// Records an error that [`stats`](ShardDb::stats) returns.
    pub(super) fn note_error(&self, error: &Error) {
        self.following().note_error(error);
    }

    /// Returns the number of open generations: the current one, and those that a snapshot or a [`Reader`] still held at
    /// the last [`refresh`](ShardDb::refresh).
    pub fn open_generations(&self) -> usize {
        1 + self.retired().generations.len()
    }

    /// Returns the statistics of the current generation, and how the database follows its store: the age of the data,
    /// the last error, the number of swaps. Never waits for a refresh.
    ///
    /// Cost: O(shards).
    pub fn stats(&self) -> DatabaseStats {
        let open_generations = self.open_generations();
        let following = self.following();
        following.stats(&self.snapshot(), open_generations)
    }

    /// Sets the capacity in bytes of the cache of decoded minishard indexes, which all open generations share.
    pub fn set_cache_bytes(&self, bytes: u64) {
        self.shared.opener.cache.set_capacity(bytes);
    }

    /// Returns the path that was opened.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    fn retired(&self) -> MutexGuard<'_, Retired> {
        lock(&self.shared.retired)
    }

    fn following(&self) -> MutexGuard<'_, Following> {
        lock(&self.shared.following)
    }
}

impl OpenOptions {
    /// Opens a database for positioned reads, like [`ShardDb::open`].
    ///
    /// # Errors
    ///
    /// Those of [`ShardDb::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<ShardDb> {
        ShardDb::open_with(path.as_ref(), self.with_storage(StorageKind::Positioned))
    }

    /// Opens a database by mapping its files, like [`ShardDb::open_mapped`].
    ///
    /// # Safety
    ///
    /// That of [`ShardDb::open_mapped`].
    ///
    /// # Errors
    ///
    /// Those of [`ShardDb::open`].
    #[expect(unsafe_code, reason = "the promise of the public API")]
    pub unsafe fn open_mapped(&self, path: impl AsRef<Path>) -> Result<ShardDb> {
        // SAFETY: the caller makes the promise of `MapPermission::promised`.
        let permission = unsafe { MapPermission::promised() };
        let storage = StorageKind::Mapped { permission, max_maps: self.max_maps, access: self.access };
        ShardDb::open_with(path.as_ref(), self.with_storage(storage))
    }

    /// Reads a database into memory, like [`ShardDb::load`].
    ///
    /// # Errors
    ///
    /// Those of [`ShardDb::open`].
    pub fn load(&self, path: impl AsRef<Path>) -> Result<ShardDb> {
        ShardDb::open_with(path.as_ref(), self.with_storage(StorageKind::Heap))
    }
}

impl Store {
    /// Opens a generation of this store, current or not, for positioned reads.
    ///
    /// The database stays with that generation: [`ShardDb::refresh`] does nothing. To map the generation, use
    /// `options.open_mapped(store.generation_path(id))`.
    ///
    /// # Errors
    ///
    /// Those of [`OpenOptions::open`]; `NotFound` if there is no such generation.
    pub fn open_generation(&self, id: GenerationId, options: &OpenOptions) -> Result<ShardDb> {
        options.open(self.generation_path(id))
    }
}

impl Opener {
    /// Opens the generation that a path leads to now: the current one of a store, or the directory itself.
    fn open(&self, path: &Path) -> Result<Generation> {
        let given = path;
        let path = resolved(path);
        if store::has_current(&path)? {
            return self.open_leased(LeasedGeneration::acquire_current(&path)?, None);
        }
        if self.options.spec.is_none() {
            check_is_data_set(&path).map_err(|error| error.at_path(given))?;
        }
        // a generation that is opened by its own directory is leased too; a foreign directory has no lease file
        let lease = Lease::is_offered_by(&path)?.then(|| Lease::acquire(&path)).transpose()?;
        let id = id_in_store(&path)?;
        self.open_directory(&path, lease.map(|lease| Leased { id, follows: false, lease }), None)
    }

    /// Opens a generation of a store. Takes over shards of `previous` that it has too.
    fn open_leased(&self, leased: LeasedGeneration, previous: Option<&Generation>) -> Result<Generation> {
        let LeasedGeneration { id, path, lease } = leased;
        self.open_directory(&path, Some(Leased { id: Some(id), follows: true, lease }), previous)
    }

    fn open_directory(
        &self,
        directory: &Path,
        leased: Option<Leased>,
        previous: Option<&Generation>,
    ) -> Result<Generation> {
        Generation::open(directory, self.options.clone(), self.cache.clone(), leased, previous)
    }
}

impl Retired {
    /// Takes the generations that are no longer in use, and the shards that nobody else refers to.
    fn take_unread(&mut self) -> Unread {
        let mut unread = Unread::default();
        for generation in std::mem::take(&mut self.generations) {
            match Arc::try_unwrap(generation) {
                Ok(generation) => {
                    let (shards, rest) = generation.into_shards();
                    self.shards.extend(shards);
                    unread.generations.push(rest);
                }
                Err(read) => self.generations.push(read),
            }
        }
        // generations that have the same shard would otherwise leave several handles, which refer to each other
        self.shards.sort_unstable_by_key(Shard::address);
        self.shards.dedup_by_key(|shard| shard.address());
        (self.shards, unread.shards) = std::mem::take(&mut self.shards).into_iter().partition(Shard::is_shared);
        unread
    }
}

/// Checks that the directory has a file `info`.
///
/// Errors: `NotFound` if it does not; `Io`.
fn check_is_data_set(path: &Path) -> Result<()> {
    let found = match path.join(info::FILE_NAME).symlink_metadata() {
        Ok(_) => return Ok(()),
        Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Err(Error::io("open", path, error));
        }
        Err(_) => match Store::open(path).and_then(|store| store.current_or_newest()) {
            Ok(Some(newest)) => {
                &format!("a store that has lost its `current`: roll back to a generation, such as {newest}")
            }
            Ok(None) => "a store without a published generation",
            Err(_) if entry::is_dir(path)? => "a directory without a file `info`",
            Err(_) if entry::exists(path)? => "a file",
            Err(_) => "nothing",
        },
    };
    let expected = "a database (a store, a generation, or a directory of shards with a file `info`)";
    Err(Error::new(ErrorKind::NotFound, format!("expected {expected}, found {found}")))
}

/// Returns the id of the generation if `directory` is one of a store; `None` otherwise.
fn id_in_store(directory: &Path) -> Result<Option<GenerationId>> {
    let id = directory.file_name().and_then(|name| name.to_str()?.parse().ok());
    match (id, directory.parent()) {
        (Some(id), Some(parent)) if store::has_current(parent)? => Ok(Some(id)),
        _ => Ok(None),
    }
}

/// Resolves the symbolic links of a path. Shards are opened at first use, and by then a link in the path
/// (`store/current` is one) could lead to another generation.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf()) // opening the path returns the error
}

impl fmt::Debug for ShardDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardDb").field("path", &self.shared.path).field("snapshot", &self.snapshot()).finish()
    }
}

/// A handle for one thread that always reads the current generation; see [`ShardDb::reader`].
///
/// It keeps the generation of its last lookup open until its next lookup. Drop a reader that is idle for long.
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let db = sharddb::ShardDb::open("store")?;
/// let mut reader = db.reader();
/// for key in 0..1000 {
///     println!("{}", reader.contains(key)?);
/// }
/// # Ok(()) }
/// ```
pub struct Reader {
    cache: arc_swap::Cache<Arc<ArcSwap<Generation>>, Arc<Generation>>,
}

impl Reader {
    /// Returns the value of a key in the current generation, or `None` if the key is absent; see [`Snapshot::get`].
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::get`].
    #[inline]
    pub fn get(&mut self, key: u64) -> Result<Option<Value<'_>>> {
        self.cache.load().get(key)
    }

    /// Returns whether the current generation contains a key.
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::contains`].
    #[inline]
    pub fn contains(&mut self, key: u64) -> Result<bool> {
        self.cache.load().contains(key)
    }

    /// Returns a snapshot, which pins the current generation.
    pub fn snapshot(&mut self) -> Snapshot {
        Snapshot { generation: self.cache.load().clone() }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}
