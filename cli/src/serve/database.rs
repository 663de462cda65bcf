//! One open database or container, and the generation that requests are answered from.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

use sharddb::container::bcolz::BcolzArray;
use sharddb::container::bloscpack::Bloscpack;
use sharddb::container::zarr::ZarrArray;
use sharddb::container::{Container, ContainerOptions};
use sharddb::{ErrorKind, OpenOptions, ShardDb, Snapshot};

use crate::serve::catalog::{Found, Kind};
use crate::serve::counters::Counters;
use crate::serve::entity_tag::EntityTag;
use crate::serve::file_tag::{file_tag, generation_tag, stamp};
use crate::serve::problem::{Problem, Result};
use crate::serve::survey::Survey;

/// The time between two refreshes. A new generation is served by requests that arrive this much later.
const REFRESH_INTERVAL: Duration = Duration::from_millis(10);

/// An open database or container.
pub(crate) struct Database {
    pub(crate) found: Found,
    pub(crate) source: Source,
    pub(crate) counters: Arc<Counters>,
    opened: Instant,
    /// The time after `opened` at which it was used last, in milliseconds.
    used: AtomicU64,
    /// Locked during a refresh.
    last_refresh: Mutex<Instant>,
    /// What the files looked like when they were opened; of a store nothing, because it has generations.
    stamps: Vec<String>,
    pinned: RwLock<Option<Arc<Pinned>>>,
}

/// How keys are looked up.
pub(crate) enum Source {
    Sharded(ShardDb),
    Container(Box<dyn Container>),
}

/// A generation, whose symbolic links are checked, and its tag.
pub(crate) struct Pinned {
    pub(crate) snapshot: Snapshot,
    /// `None` outside of stores.
    tag: Option<EntityTag>,
    survey: OnceLock<Survey>,
}

impl Pinned {
    /// Names the generation, also after the store was removed and built again; empty outside of stores.
    pub(crate) fn name(&self) -> &str {
        self.tag.as_ref().map_or("", EntityTag::as_str)
    }

    /// How the keys and bytes are distributed. Counted once.
    pub(crate) fn survey(&self) -> &Survey {
        self.survey.get_or_init(|| Survey::take(&self.snapshot))
    }

    /// The tag of a value: that of its generation, or of the file that has it, and the key.
    pub(crate) fn value_tag(&self, key: u64) -> Result<EntityTag> {
        if let Some(tag) = &self.tag {
            return Ok(tag.part(key));
        }
        let location = self.snapshot.locate(key)?;
        let metadata = location.and_then(|location| fs::metadata(location.path()).ok());
        Ok(file_tag(metadata.as_ref()).part(key))
    }
}

impl Database {
    /// Errors: `not-found` if it is gone, or if a symbolic link leads out of the tree; those of opening it.
    pub(crate) fn open(found: Found, max_value_bytes: u64, counters: Arc<Counters>) -> Result<Database> {
        let nothing = || Problem::not_found(format!("no database is at {:?}", found.names.join("/")));
        let path = found.path().ok_or_else(nothing)?;
        let stamps = stamps(&found, &path);
        let source = match found.kind {
            Kind::Store | Kind::Generation | Kind::Foreign => {
                Source::Sharded(open_sharded(&found, &path, max_value_bytes)?)
            }
            Kind::Zarr | Kind::Bcolz | Kind::Bloscpack => {
                if path.is_dir() {
                    check_links(&found, &path)?;
                }
                Source::Container(open_container(found.kind, &path, max_value_bytes)?)
            }
        };
        Ok(Database {
            found,
            source,
            counters,
            opened: Instant::now(),
            used: AtomicU64::new(0),
            last_refresh: Mutex::new(Instant::now()),
            stamps,
            pinned: RwLock::default(),
        })
    }

    /// Notes that it is used now.
    pub(crate) fn touch(&self) {
        self.used.store(self.now_ms(), Ordering::Relaxed);
    }

    /// The time since it was used last.
    pub(crate) fn unused(&self) -> Duration {
        Duration::from_millis(self.now_ms().saturating_sub(self.used.load(Ordering::Relaxed)))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Begins a refresh, if the last one is old enough and no other request refreshes.
    fn begin_refresh(&self) -> Option<MutexGuard<'_, Instant>> {
        let last = match self.last_refresh.try_lock() {
            Ok(last) => last,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        (last.elapsed() >= REFRESH_INTERVAL).then_some(last)
    }

    /// Whether the files are those that were opened. A store is compared by `pinned`.
    pub(crate) fn is_fresh(&self) -> bool {
        self.found.kind == Kind::Store
            || self.found.path().is_some_and(|path| stamps(&self.found, &path) == self.stamps)
    }

    /// Pins the current generation, which may be another one than at the last call. While one request opens a new
    /// generation, the others are answered from the previous one.
    ///
    /// If a new generation cannot be opened, serves the previous one. One with a symbolic link that leads out of the tree
    /// is refused. Cost: within [`REFRESH_INTERVAL`] of the last refresh none, else one read of `current`.
    ///
    /// Errors: `not-found` if the store is gone, or for such a link; `io`; `unsupported` for a container.
    pub(crate) fn pinned(&self) -> Result<Arc<Pinned>> {
        let Source::Sharded(db) = &self.source else {
            return Err(Problem::unsupported("expected a database, found a container of another format"));
        };
        let (mut refreshed, last) = match self.last() {
            Some(last) if self.found.kind != Kind::Store => return Ok(last),
            Some(last) => match self.begin_refresh() {
                Some(refreshed) => (refreshed, Some(last)),
                None => return Ok(last),
            },
            None => {
                let refreshed = self.last_refresh.lock().unwrap_or_else(PoisonError::into_inner); // one request opens
                if let Some(last) = self.last() {
                    return Ok(last);
                }
                (refreshed, None)
            }
        };
        *refreshed = Instant::now();
        let found = db.refresh();
        if let Err(error) = &found {
            tracing::warn!("cannot refresh {}: {error}", self.found.names.join("/"));
            if error.kind() == ErrorKind::NotFound || self.found.path().is_none_or(|path| !path.exists()) {
                self.pin(None);
                return Err(Problem::not_found("the store no longer exists"));
            }
        }
        match last {
            Some(last) if !matches!(found, Ok(Some(_))) => Ok(last),
            _ => self.pin_current(db),
        }
    }

    /// The generation that was pinned last.
    fn last(&self) -> Option<Arc<Pinned>> {
        self.pinned.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn pin_current(&self, db: &ShardDb) -> Result<Arc<Pinned>> {
        let pinned = self.current(db).map(Arc::new).inspect_err(|_| self.pin(None))?;
        self.pin(Some(Arc::clone(&pinned)));
        Ok(pinned)
    }

    fn current(&self, db: &ShardDb) -> Result<Pinned> {
        loop {
            let snapshot = db.snapshot();
            let in_store = snapshot.generation().is_some();
            check_links(&self.found, if in_store { snapshot.directory() } else { snapshot.shards_directory() })?;
            let tag = if in_store { generation_tag(snapshot.directory()) } else { None };
            // the tag is that of the snapshot, unless its directory was replaced by another one
            if !matches!(db.refresh(), Ok(Some(_))) {
                return Ok(Pinned { snapshot, tag, survey: OnceLock::new() });
            }
        }
    }

    fn pin(&self, pinned: Option<Arc<Pinned>>) {
        let before = std::mem::replace(&mut *self.pinned.write().unwrap_or_else(PoisonError::into_inner), pinned);
        drop(before); // without the lock
    }
}

/// Opens for positioned reads: a disk error is an error of one request, and the files may change.
fn open_sharded(found: &Found, path: &Path, max_value_bytes: u64) -> Result<ShardDb> {
    let mut options = OpenOptions::new();
    options.check_shards(false).max_value_bytes(max_value_bytes);
    if let Some(pointer) = &found.pointer {
        options.pointer(pointer);
    }
    Ok(options.open_pread(path)?)
}

fn open_container(kind: Kind, path: &Path, max_value_bytes: u64) -> Result<Box<dyn Container>> {
    let mut options = ContainerOptions::new();
    options.max_chunk_bytes(max_value_bytes);
    Ok(match kind {
        Kind::Zarr => Box::new(ZarrArray::open_with(path, &options)?),
        Kind::Bloscpack => Box::new(Bloscpack::open_with(path, &options)?),
        _ => Box::new(BcolzArray::open_with(path, &options)?),
    })
}

/// The stamps of what changes when the files of a database are replaced. A store needs none.
fn stamps(found: &Found, path: &Path) -> Vec<String> {
    if found.kind == Kind::Store {
        return Vec::new();
    }
    let shards = found.names.strip_prefix(&found.data_set[..]).unwrap_or_default();
    let shards = shards.iter().fold(path.to_path_buf(), |path, name| path.join(name));
    let files = [path.to_path_buf(), path.join("info"), path.join("zarr.json"), path.join("meta/sizes"), shards];
    files.iter().filter_map(|path| fs::metadata(path).ok()).map(|metadata| stamp(&metadata)).collect()
}

/// Errors: `not-found` if a symbolic link leads out of the tree, so that the library would follow it.
fn check_links(found: &Found, directory: &Path) -> Result<()> {
    match found.place.has_only_own_links(directory) {
        Ok(true) => Ok(()),
        Ok(false) => {
            tracing::warn!("a symbolic link in {} leads out of the served directory", directory.display());
            Err(Problem::not_found(
                "a symbolic link in the database leads out of the served directory: it is not served",
            ))
        }
        Err(error) => Err(Problem::io("list", directory, &error)),
    }
}
