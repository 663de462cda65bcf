//! One open database or container, and the generation that requests are answered from.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

use sharddb::internal::lock;
use sharddb::shard::ValueLocation;
use sharddb::spec::Encoding;
use sharddb::{ErrorKind, OpenOptions, OwnedValue, ShardDb, Snapshot};
use sharddb_container::{Container, Form};

use crate::budget::{Budget, SMALL_BYTES, Share};
use crate::catalog::{Found, Kind};
use crate::chunks::{Chunk, Chunks};
use crate::counters::Counters;
use crate::description::Description;
use crate::document::{Document, memory_of, read_text};
use crate::entity_tag::EntityTag;
use crate::file_tag::{file_tag, generation_tag, metadata_of, stamp};
use crate::gzip;
use crate::problem::{Problem, Result};
use crate::survey::Survey;
use crate::tree::CURRENT;

/// The time between two refreshes. A new generation is served by requests that arrive this much later.
const REFRESH_INTERVAL: Duration = Duration::from_millis(10);

/// An open database or container.
pub(crate) struct Database {
    pub(crate) found: Found,
    pub(crate) source: Source,
    max_value_bytes: u64,
    pub(crate) counters: Arc<Counters>,
    budget: Budget,
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
    Container(Chunks),
}

/// A generation, whose symbolic links are checked, its `info` and its tag.
pub(crate) struct Pinned {
    pub(crate) snapshot: Snapshot,
    /// The type of the data set; `None` if the `info` does not state one.
    pub(crate) data_type: Option<&'static str>,
    /// `None` if it takes more than [`SMALL_BYTES`].
    info: Option<Arc<Document>>,
    /// `None` outside of stores.
    tag: Option<EntityTag>,
    /// Upper bound on a decoded value.
    max_value_bytes: u64,
    survey: Mutex<Option<Arc<Survey>>>,
}

/// Why a value is not decoded. The log has the path of the file.
fn undecoded(error: &io::Error, key: u64, location: &ValueLocation) -> Problem {
    if error.kind() == io::ErrorKind::OutOfMemory {
        return Problem::busy();
    }
    let (path, byte) = (&location.path, location.range.start);
    tracing::warn!("expected a gzip member: {error} (key {key}, byte {byte} of {})", path.display());
    let file = path.file_name().unwrap_or_default().display();
    Problem::corrupt(format!("expected a gzip member: {error} (file {file}, key {key}, byte {byte})"))
}

/// A value in memory.
pub(crate) struct Read {
    pub(crate) bytes: OwnedValue,
    pub(crate) share: Share,
    pub(crate) tag: EntityTag,
    /// Where its bytes are, in a file that does not change.
    pub(crate) file: Option<ValueLocation>,
}

impl Pinned {
    /// Names the generation, also after the store was removed and built again; empty outside of stores.
    pub(crate) fn name(&self) -> &str {
        self.tag.as_ref().map_or("", EntityTag::as_str)
    }

    /// Whether it is a generation of a store, whose files do not change.
    pub(crate) fn is_in_store(&self) -> bool {
        self.tag.is_some()
    }

    /// The `info`. A large one is read again, and takes memory of the budget.
    ///
    /// Errors: those of [`Info::read`] and [`Document::parse`].
    pub(crate) fn info(&self, budget: &Budget) -> Result<Arc<Document>> {
        match &self.info {
            Some(info) => Ok(Arc::clone(info)),
            None => Info::read(self.snapshot.directory(), budget)?.parse(budget).map(Arc::new),
        }
    }

    /// How the keys and bytes are distributed. Counted once.
    ///
    /// Errors: those of [`Survey::take`], after which the next call counts again.
    pub(crate) fn survey(&self) -> Result<Arc<Survey>> {
        let mut known = lock(&self.survey); // one request counts
        if let Some(survey) = &*known {
            return Ok(Arc::clone(survey));
        }
        let survey = Arc::new(Survey::take(&self.snapshot)?);
        *known = Some(Arc::clone(&survey));
        Ok(survey)
    }

    /// The tag of a value: that of its generation, or of the file that has it, and the key.
    pub(crate) fn value_tag(&self, key: u64, location: &ValueLocation) -> Result<EntityTag> {
        if let Some(tag) = &self.tag {
            return Ok(tag.part(key));
        }
        let metadata = metadata_of(&location.path)?.ok_or_else(Problem::replaced)?;
        Ok(file_tag(&metadata).part(key))
    }

    /// Reads a value; `None` if the key is absent. All memory is reserved before it is allocated.
    ///
    /// Errors: those of the lookup; `busy`, `too-large`.
    pub(crate) fn read(&self, key: u64, budget: &Budget) -> Result<Option<Read>> {
        let Some(location) = self.snapshot.locate(key)? else { return Ok(None) };
        let tag = self.value_tag(key, &location)?; // before the bytes: an old tag of new bytes costs one more request
        let mut share = budget.reserve(location.stored_len())?;
        if self.snapshot.spec().data_encoding() == Encoding::Raw {
            let Some(bytes) = self.snapshot.get_owned(key)? else { return Ok(None) };
            let file = self.is_in_store().then_some(location);
            return Ok(Some(Read { bytes, share, tag, file }));
        }
        let Some(encoded) = Container::get(&self.snapshot, key, Form::Encoded)? else { return Ok(None) };
        let len = gzip::stated_len(&encoded);
        if len > self.max_value_bytes {
            let most = self.max_value_bytes;
            let message = format!("expected a value of at most {most} bytes, found {len}: raise --max-value");
            return Err(Problem::too_large(message));
        }
        budget.grow(&mut share, (encoded.len() as u64).saturating_add(len))?;
        let bytes = gzip::decode(&encoded, len).map_err(|error| undecoded(&error, key, &location))?;
        share.shrink(len);
        Ok(Some(Read { bytes: bytes.into(), share, tag, file: None }))
    }
}

impl Database {
    /// Errors: `not-found` if it is gone, or if a symbolic link leads out of the tree; those of opening it.
    pub(crate) fn open(
        found: Found,
        max_value_bytes: u64,
        counters: Arc<Counters>,
        budget: Budget,
    ) -> Result<Database> {
        let nothing = || Problem::not_found(format!("no database is at {:?}", found.names.join("/")));
        let path = found.path().map_err(|error| Problem::io("open", &found.place.path(), &error))?;
        let path = path.ok_or_else(nothing)?;
        let stamps = stamps(&found, &path);
        let source = match found.kind {
            Kind::Store | Kind::Generation | Kind::Foreign => {
                let _manifest = budget.reserve(manifest_len(&found, &path)?)?;
                Source::Sharded(open_sharded(&found, &path, max_value_bytes)?)
            }
            Kind::Zarr | Kind::Bcolz | Kind::Bloscpack => {
                if found.kind != Kind::Bloscpack {
                    check_links(&found, &path)?;
                }
                Source::Container(Chunks::open(found.kind, &path, max_value_bytes)?)
            }
        };
        Ok(Database {
            found,
            source,
            max_value_bytes,
            counters,
            budget,
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
            || matches!(self.found.path(), Ok(Some(path)) if stamps(&self.found, &path) == self.stamps)
    }

    /// Reads a chunk of `chunks`, which are those of this container; `None` if it is absent.
    ///
    /// Errors: those of [`Chunks::get`].
    pub(crate) fn chunk(&self, chunks: &Chunks, key: u64, form: Form, budget: &Budget) -> Result<Option<Chunk>> {
        let chunk = chunks.get(key, form, budget);
        if self.is_fresh() { chunk } else { Err(Problem::replaced()) }
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
                let refreshed = lock(&self.last_refresh); // one request opens
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
            if error.kind() == ErrorKind::NotFound || matches!(self.found.path(), Ok(None)) {
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
            let generation = self.found.place.place_of(snapshot.directory()).filter(|_| in_store);
            let tag = generation.map_or(Ok(None), |generation| generation_tag(&generation))?;
            let info = Info::read(snapshot.directory(), &self.budget)?;
            let data_type = info.description()?.data_type;
            let info = info.is_small().then(|| info.parse(&self.budget).map(Arc::new)).transpose()?;
            // tag and info are those of the snapshot, unless its directory was replaced by another one
            if !matches!(db.refresh(), Ok(Some(_))) {
                let max_value_bytes = self.max_value_bytes;
                return Ok(Pinned { snapshot, data_type, info, tag, max_value_bytes, survey: Mutex::default() });
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
        options.sharding_at(pointer);
    }
    Ok(options.open(path)?)
}

/// The length of the manifest that the library reads when it opens a path; 0 if there is none.
fn manifest_len(found: &Found, path: &Path) -> Result<u64> {
    let directory = if found.kind == Kind::Store { path.join(CURRENT) } else { path.to_path_buf() };
    Ok(metadata_of(&directory.join("manifest.json"))?.map_or(0, |metadata| metadata.len()))
}

/// The text of the `info` of a directory that the library opened.
struct Info {
    path: PathBuf,
    text: Vec<u8>,
    _share: Share,
}

impl Info {
    /// Errors: `not-found` if the directory was removed meanwhile; those of [`read_text`].
    fn read(directory: &Path, budget: &Budget) -> Result<Info> {
        let path = directory.join("info");
        let file = File::open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Problem::not_found("the generation no longer exists"),
            _ => Problem::io("read", &path, &error),
        })?;
        let (text, share) = read_text(&file, &path, budget)?;
        Ok(Info { path, text, _share: share })
    }

    fn is_small(&self) -> bool {
        memory_of(&self.text) <= SMALL_BYTES
    }

    fn description(&self) -> Result<Description> {
        Description::read(&self.text[..], Some("")).map_err(|error| Problem::io("read", &self.path, &error))
    }

    fn parse(&self, budget: &Budget) -> Result<Document> {
        Document::parse(&self.text, &self.path, budget)
    }
}

/// The stamps of what changes when the files of a database are replaced. A store needs none.
fn stamps(found: &Found, path: &Path) -> Vec<String> {
    if found.kind == Kind::Store {
        return Vec::new();
    }
    let shards = found.names.strip_prefix(&found.data_set[..]).unwrap_or_default();
    let shards = shards.iter().fold(path.to_path_buf(), |path, name| path.join(name));
    let inside = ["info", "zarr.json", "meta/sizes", "data"].map(|name| path.join(name));
    let files = [path.to_path_buf(), shards].into_iter().chain(inside);
    files.filter_map(|path| fs::metadata(path).ok()).map(|metadata| stamp(&metadata)).collect()
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use sharddb::BulkLoader;

    use super::*;

    #[test]
    fn an_info_that_cannot_be_read_is_no_empty_one() {
        let directory = tempfile::tempdir().unwrap();
        let budget = Budget::new();
        let read = || Info::read(directory.path(), &budget)?.parse(&budget).map(|info| info.value);
        let status = || read().map_err(|problem| problem.status.as_u16());
        let info = directory.path().join("info");
        assert_eq!(status(), Err(404));
        fs::create_dir(&info).unwrap();
        assert_eq!(status(), Err(500));
        fs::remove_dir(&info).unwrap();
        fs::write(&info, "{").unwrap();
        assert_eq!(status(), Err(500));
        fs::write(&info, "{}").unwrap();
        assert_eq!(status(), Ok(serde_json::json!({})));
    }

    fn pinned(path: &Path, tag: Option<EntityTag>) -> Pinned {
        let snapshot = ShardDb::open(path).unwrap().snapshot();
        Pinned { snapshot, data_type: None, info: None, tag, max_value_bytes: 8 << 20, survey: Mutex::default() }
    }

    /// A slow client of a long value then needs no memory.
    #[test]
    fn raw_values_of_generations_can_be_sent_from_their_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut loader = BulkLoader::create(directory.path().join("store")).unwrap();
        loader.insert(7, b"seven").unwrap();
        loader.finish().unwrap();
        let read = |tag| pinned(&directory.path().join("store"), tag).read(7, &Budget::new()).unwrap().unwrap();
        let (of_store, other) = (read(Some(EntityTag::new("g"))), read(None));
        assert_eq!((of_store.bytes, of_store.tag.as_str()), (OwnedValue::from(b"seven".to_vec()), "g-7"));
        let location = of_store.file.unwrap();
        let bytes = fs::read(&location.path).unwrap();
        let start = usize::try_from(location.range.start).unwrap();
        assert_eq!(&bytes[start..start + 5], b"seven");
        assert!(other.file.is_none(), "another file may be at its path");
    }

    /// A foreign data set whose only value is the gzip member of a number of zeros, with a wrong checksum.
    fn damaged_zeros(path: &Path, len: usize) -> Pinned {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&vec![0; len]).unwrap();
        let mut member = encoder.finish().unwrap();
        let at = member.len() - 8;
        member[at] ^= 1;
        let value_len = member.len() as u64;
        // where the index begins and ends, the value, then the index: key, offset and length
        let shard_index = [value_len, value_len + 24].map(u64::to_le_bytes).concat();
        let index = [0, 0, value_len].map(u64::to_le_bytes).concat();
        write_info(path, "gzip");
        fs::write(path.join("0.shard"), [shard_index, member, index].concat()).unwrap();
        pinned(path, None)
    }

    fn write_info(path: &Path, data_encoding: &str) {
        let info = serde_json::json!({"@type": "x", "sharding": {
            "@type": "neuroglancer_uint64_sharded_v1", "hash": "identity", "preshift_bits": 0, "minishard_bits": 0,
            "shard_bits": 0, "data_encoding": data_encoding}});
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("info"), info.to_string()).unwrap();
    }

    /// If the value were decoded first, its damage would be the answer in any case.
    #[test]
    fn memory_for_a_value_is_reserved_before_it_is_decoded() {
        let directory = tempfile::tempdir().unwrap();
        let status = |len, budget: &Budget| {
            damaged_zeros(directory.path(), len).read(0, budget).err().map(|problem| problem.status.as_u16())
        };
        let budget = Budget::with_kib(1100);
        assert_eq!([1 << 20, 2 << 20, 9 << 20].map(|len| status(len, &budget)), [Some(500), Some(503), Some(413)]);
        budget.reserve(1100 << 10).unwrap(); // nothing is kept
    }

    #[test]
    fn a_failed_survey_is_repeated() {
        let directory = tempfile::tempdir().unwrap();
        let (path, away) = (directory.path().join("data"), directory.path().join("away"));
        write_info(&path, "raw");
        let pinned = pinned(&path, None);
        fs::rename(&path, &away).unwrap();
        assert_eq!(pinned.survey().unwrap_err().status.as_u16(), 500);
        fs::rename(&away, &path).unwrap();
        assert!(pinned.survey().unwrap().is_complete());
    }
}
