//! The updater: builds a generation from a base generation and changes.
//!
//! ```text
//! put, delete   changes are sorted like the pairs of a build, in bounded memory
//! finish        shards with a change: merged with the changes and written again, values copied as stored
//!               other shards: linked, with their records
//!               minishard table, info, manifest, sync, publish
//! ```

use std::collections::HashSet;
use std::fmt;
use std::io::Read;
use std::path::Path;

use crate::bytes::read_whole;
use crate::error::{Error, Result};
use crate::format::layout::{Layout, ValueAlignment};
use crate::format::manifest::{self, Manifest, ShardRecord};
use crate::format::multilod;
use crate::fs::{self, disk};
use crate::ids::ShardNumber;
use crate::read::options::OpenOptions;
use crate::read::snapshot::Snapshot;
use crate::store::{PendingGeneration, Shared, Store, StoreWriter};
use crate::threads::progress::{Phase, Progress};
use crate::write::duplicates::Duplicates;
use crate::write::generation_writer::GenerationWriter;
use crate::write::options::BuildOptions;
use crate::write::shards::Written;
use crate::write::sorter::{Sorted, Sorter, Source};
use crate::write::updated_pairs::{Base, Outcome, UpdatedPairs};
use crate::write::{Candidate, Published};

/// The number of the first batch of a foreign base. Those of the changes begin with 0.
const FIRST_OF_BASE: u64 = 1 << 40;

/// Options of an update. [`open`](UpdateOptions::open) begins it.
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let mut updater = sharddb::UpdateOptions::new().memory(256 << 20).strict(true).open("store")?;
/// updater.delete(7)?; // an error if the key is absent, since the update is strict
/// updater.finish()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct UpdateOptions {
    build: BuildOptions,
    strict: bool,
}

impl UpdateOptions {
    /// Creates the default options.
    pub fn new() -> UpdateOptions {
        UpdateOptions::default()
    }

    /// Sets the limit on the memory of changes, in bytes, like [`BuildOptions::memory`].
    pub fn memory(&mut self, bytes: u64) -> &mut UpdateOptions {
        self.build.memory(bytes);
        self
    }

    /// Sets the number of threads, like [`BuildOptions::threads`].
    pub fn threads(&mut self, threads: usize) -> &mut UpdateOptions {
        self.build.threads(threads);
        self
    }

    /// Sets the directory for spill files, like [`BuildOptions::temp_dir`].
    pub fn temp_dir(&mut self, directory: impl Into<std::path::PathBuf>) -> &mut UpdateOptions {
        self.build.temp_dir(directory);
        self
    }

    /// Sets whether the deletion of a key that the base does not have is an error, also if this update puts the key before.
    /// Default: false, so such keys are only counted.
    pub fn strict(&mut self, strict: bool) -> &mut UpdateOptions {
        self.strict = strict;
        self
    }

    /// Sets whether an update may delete all keys, like [`BuildOptions::allow_empty`]. Default: false.
    pub fn allow_empty(&mut self, allow: bool) -> &mut UpdateOptions {
        self.build.allow_empty(allow);
        self
    }

    /// Sets whether files are synced, like [`BuildOptions::durable`]. Default: true.
    pub fn durable(&mut self, durable: bool) -> &mut UpdateOptions {
        self.build.durable(durable);
        self
    }

    /// Sets the progress that the update reports, like [`BuildOptions::progress`].
    pub fn progress(&mut self, progress: &Progress) -> &mut UpdateOptions {
        self.build.progress(progress);
        self
    }
}

impl UpdateOptions {
    /// Begins an update of the current generation of a store.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no store, or nothing was published; `Locked` if there is another writer; those of
    /// [`OpenOptions::open`]; `InvalidInput` for too little memory; `Io`.
    pub fn open(&self, store: impl AsRef<Path>) -> Result<Updater> {
        Updater::begin(|temp_dir| Store::open(store)?.writer()?.begin(temp_dir), None, self)
    }

    /// Begins an update of any database, whose result is published in a store. The store is created if it does not
    /// exist.
    ///
    /// Shards of a native generation without a change are linked or copied. All shards of a foreign data set are
    /// rewritten, since it has no checks.
    ///
    /// # Errors
    ///
    /// Those of [`open`](UpdateOptions::open) and of reading the base.
    pub fn create(&self, store: impl AsRef<Path>, base: &Snapshot) -> Result<Updater> {
        Updater::begin(|temp_dir| Store::create(store)?.writer()?.begin(temp_dir), Some(base), self)
    }
}

impl StoreWriter {
    /// Begins an update of the current generation, like [`UpdateOptions::open`]. The writer goes on, and keeps the lock after the
    /// update.
    ///
    /// # Errors
    ///
    /// Those of [`UpdateOptions::open`].
    ///
    /// ```
    /// # let store = std::env::temp_dir().join(format!("sharddb-writer-updater-doc-{}", std::process::id()));
    /// # for value in ["good", "bad"] {
    /// #     let mut loader = sharddb::BulkLoader::create(&store)?;
    /// #     loader.insert(7, value)?;
    /// #     loader.finish()?;
    /// # }
    /// use sharddb::{Store, UpdateOptions};
    ///
    /// let writer = Store::open(&store)?.writer()?; // other writers wait until all of it is done
    /// writer.rollback(None)?;
    /// let mut updater = writer.updater(&UpdateOptions::new())?;
    /// updater.put(8, "eight")?;
    /// updater.finish()?;
    /// writer.gc(1)?;
    /// assert_eq!(sharddb::ShardDb::open(&store)?.get(7)?.unwrap(), b"good");
    /// # std::fs::remove_dir_all(&store).unwrap();
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn updater(&self, options: &UpdateOptions) -> Result<Updater> {
        Updater::begin(|temp_dir| self.begin(temp_dir), None, options)
    }
}

/// The effect of an update, as returned by [`Updater::finish`].
///
/// See [`Updater`] for an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpdateReport {
    /// Keys that the base did not have.
    pub added: u64,
    /// Keys of the base that were put, with a new value or the same.
    pub replaced: u64,
    /// Keys of the base that were deleted.
    pub deleted: u64,
    /// Keys to delete that the base did not have.
    pub absent: u64,
    /// Changes that a later change of the same key made void.
    pub overridden: u64,
    /// Shard files that were written.
    pub written_shards: u64,
    /// The bytes of the shard files that were written.
    pub written_bytes: u64,
    /// Shard files of the base that the new generation has as hard links.
    pub linked_shards: u64,
    /// Shard files of the base that were copied, because the file system does not link them, or since they are outside of
    /// the store and can be written to.
    pub copied_shards: u64,
}

/// Builds and publishes a generation from the current one and changes: pairs to put and keys to delete.
///
/// Changes come in any order and any amount; the last change of a key counts. Only shards with a change are written
/// again. The others become hard links to the files of the base, so both generations share their damage: a link is no
/// backup. Values that do not change are copied as stored, without decoding, and their checks are compared.
///
/// The result is byte-identical to a build of the merged pairs with the base's specification and layout, except that the
/// layout keeps preambles after the last one is gone. Where values are aligned, a preamble begins with a byte that is not zero,
/// as in a build; a base of version 0.1.0 may have preambles of unknown length there, and its update is then an error of kind
/// `Unsupported`.
///
/// Holds the writer lock of the store from the start. Memory use is that of a build with the same
/// [`memory`](UpdateOptions::memory). An updater that is dropped before [`finish`](Updater::finish) leaves no files.
///
/// ```
/// # let store = std::env::temp_dir().join(format!("sharddb-updater-doc-{}", std::process::id()));
/// use sharddb::{BulkLoader, ShardDb, Updater};
///
/// let mut loader = BulkLoader::create(&store)?;
/// loader.extend([(1, "one"), (2, "two"), (3, "three")])?;
/// loader.finish()?;
///
/// let mut updater = Updater::open(&store)?;
/// updater.put(2, "zwei")?;
/// updater.put(4, "vier")?;
/// updater.delete(3)?;
/// let (published, report) = updater.finish()?;
/// assert_eq!((published.content.keys, report.added, report.replaced, report.deleted), (3, 1, 1, 1));
///
/// let db = ShardDb::open(&store)?;
/// assert_eq!(db.get(2)?.unwrap(), b"zwei");
/// assert!(db.get(3)?.is_none());
/// # std::fs::remove_dir_all(&store).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[must_use = "nothing is changed until `finish`"]
pub struct Updater {
    options: UpdateOptions,
    base: Snapshot,
    /// Whether the base is the current generation of the store.
    is_of_store: bool,
    /// The shards of the base that have a change, for the progress.
    changed: HashSet<ShardNumber>,
    // in drop order: the threads of the sorter must end before `pending` removes the directory that they write to
    changes: Sorter,
    pending: PendingGeneration,
    /// Whether each value that is put needs its fragments as preamble.
    needs_fragments: bool,
}

impl Updater {
    /// Begins an update of the current generation of a store with the default [`UpdateOptions`].
    ///
    /// # Errors
    ///
    /// Those of [`UpdateOptions::open`].
    pub fn open(store: impl AsRef<Path>) -> Result<Updater> {
        UpdateOptions::new().open(store)
    }

    /// Begins an update of `base`, or else of the current generation. `begin` begins the new one, given the directory for
    /// spill files.
    fn begin(
        begin: impl FnOnce(Option<&Path>) -> Result<PendingGeneration>,
        base: Option<&Snapshot>,
        options: &UpdateOptions,
    ) -> Result<Updater> {
        let mut options = options.clone();
        options.build = options.build.starting()?;
        let begin = || begin(options.build.temp_dir.as_deref());
        let pending = disk::with_syncs_if(options.build.durable, begin)?;
        // opened under the lock, so that no other writer can replace it
        let is_of_store = base.is_none();
        let base = match base {
            Some(base) => base.clone(),
            None => OpenOptions::new().open(pending.store())?.snapshot(),
        };
        options.build.spec(*base.spec()).allow_sparse(true).like(&base)?;
        let nested = options.build.check_info()?;
        let pending = disk::with_syncs_if(options.build.durable, || pending.with_shards_in(nested))?;
        match base.generation.manifest() {
            Some(manifest) => {
                options.build.ordered = manifest.auxiliary(manifest::KEYS).is_some();
            }
            None => _ = options.build.memory(options.build.memory_now() / 2), // the pairs of the base are sorted too
        }
        let data_encoding = base.spec().data_encoding();
        let changes = Sorter::new(&options.build, Duplicates::KeepLast, data_encoding, pending.spill_dir(), 0)?;
        options.build.progress.begin(Phase::Insert, 0);
        let needs_fragments = options.build.needs_fragments();
        Ok(Updater { options, base, is_of_store, changed: HashSet::new(), changes, pending, needs_fragments })
    }

    /// Returns the generation that is updated.
    pub fn base(&self) -> &Snapshot {
        &self.base
    }

    /// Puts a pair: adds the key, or replaces its value. The key has no preamble then.
    ///
    /// # Errors
    ///
    /// Those of [`BulkLoader::insert`](crate::BulkLoader::insert), without `DuplicateKey`. After an error the update
    /// cannot be finished.
    #[inline]
    pub fn put(&mut self, key: u64, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with_preamble(key, &[], value.as_ref())
    }

    /// Puts a pair with a preamble, like [`BulkLoader::insert_with_preamble`](crate::BulkLoader::insert_with_preamble).
    ///
    /// If no key of the base has a preamble, all its shards are written again.
    ///
    /// # Errors
    ///
    /// Those of [`put`](Updater::put), and the `InvalidInput` of `insert_with_preamble`.
    pub fn put_with_preamble(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> Result<()> {
        if self.needs_fragments {
            multilod::check_fragments(value, preamble.len() as u64).map_err(|error| error.at_key(key))?;
        }
        self.note_shard(key);
        self.changes.add(key, (preamble.len() as u64, value.len() as u64), Source::Slices(preamble, value))
    }

    /// Puts a pair whose preamble and value are read from `reader`, in this order, like
    /// [`BulkLoader::insert_reader`](crate::BulkLoader::insert_reader).
    ///
    /// # Errors
    ///
    /// Those of [`put`](Updater::put), and `Io` if the reader fails or ends early.
    pub fn put_reader(&mut self, key: u64, preamble_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()> {
        self.note_shard(key);
        self.changes.add(key, (preamble_len, value_len), Source::Reader(reader))
    }

    /// Deletes a key. A key that is absent at the end is counted, or an error if the update is
    /// [`strict`](UpdateOptions::strict).
    ///
    /// # Errors
    ///
    /// Those of [`put`](Updater::put).
    pub fn delete(&mut self, key: u64) -> Result<()> {
        self.note_shard(key);
        self.changes.delete(key)
    }

    /// Notes that the shard of a key is rewritten, if the base has it.
    fn note_shard(&mut self, key: u64) {
        let shard = self.base.spec().route(key).shard;
        if self.base.generation.has_shard(shard) {
            self.changed.insert(shard);
        }
    }

    /// Applies the changes and publishes the result. The new generation is current when this returns.
    ///
    /// Publishes nothing if the current generation has the result already, since no key to delete is there and all pairs that
    /// were put are; see [`Published::is_new`]. The result of an update of another base is always published.
    ///
    /// Cost: reads and writes the shards with a change, and reads the shard indexes of the others.
    ///
    /// # Errors
    ///
    /// Those of [`BulkLoader::finish`](crate::BulkLoader::finish); `Corrupt`, with the key, for damage in a shard that
    /// is read; `Empty` if no key is left, unless [`allow_empty`](UpdateOptions::allow_empty) is set; `NotFound`, with the key, for a deletion of an absent key if the update is strict. After an error the
    /// base is current, with the exception that [`Candidate::publish`] describes.
    pub fn finish(self) -> Result<(Published, UpdateReport)> {
        let (candidate, report) = self.finish_unpublished()?;
        Ok((candidate.publish()?, report))
    }

    /// Applies the changes and returns the result without publishing it.
    ///
    /// # Errors
    ///
    /// Those of [`finish`](Updater::finish) before publishing. No files are left behind then.
    pub fn finish_unpublished(self) -> Result<(Candidate, UpdateReport)> {
        disk::with_syncs_if(self.options.build.durable, || self.apply())
    }

    fn apply(self) -> Result<(Candidate, UpdateReport)> {
        let Updater { options, base, is_of_store, changed, changes, pending, .. } = self;
        let changes = changes.sort()?;
        let Some(manifest) = base.generation.manifest() else {
            return apply_to_foreign(&options, &base, changes, pending);
        };
        let (candidate, report, read) = apply_to_native(&options, &base, (manifest, &changed), changes, pending)?;
        let has_effect = report.added + report.replaced + report.deleted > 0;
        let is_same = is_of_store && (!has_effect || is_same(&base, manifest, &candidate, &read)?);
        Ok((candidate.unchanged_from(base.generation().filter(|_| is_same)), report))
    }
}

/// Whether a candidate has the bytes of its base, of which these shards were read and the others shared.
///
/// Errors: `Io` for a manifest that cannot be read.
fn is_same(base: &Snapshot, of_base: &Manifest, candidate: &Candidate, read: &HashSet<ShardNumber>) -> Result<bool> {
    let text = |directory: &Path| read_whole(&directory.join(manifest::FILE_NAME), manifest::MAX_BYTES);
    // bytes are compared, since the value that a pair replaces was not read: if it is damaged, the pair mends it
    let is_equal = |record: &ShardRecord| {
        let [new, old] = [candidate.path(), base.directory()].map(|path| of_base.shard_path(path, record.number));
        fs::have_equal_bytes(&new, &old).unwrap_or(false)
    };
    let mut read = of_base.shards.iter().filter(|record| read.contains(&record.number));
    Ok(text(candidate.path())? == text(base.directory())? && read.all(is_equal))
}

/// Rewrites the shards of a native base that have a change, and shares the others. Returns also which shards were read.
fn apply_to_native(
    options: &UpdateOptions,
    base: &Snapshot,
    (manifest, changed): (&Manifest, &HashSet<ShardNumber>),
    mut changes: Sorted,
    pending: PendingGeneration,
) -> Result<(Candidate, UpdateReport, HashSet<ShardNumber>)> {
    let mut layout = manifest.layout;
    layout.preambles |= changes.totals.has_preambles;
    let writer = GenerationWriter { options: &options.build, pending, spec: *base.spec(), layout };
    let rewrites_all = layout.preambles && !manifest.layout.preambles;
    let rewritten = manifest.shards.iter().filter(|shard| rewrites_all || changed.contains(&shard.number));
    let stored_bytes = rewritten.map(|shard| shard.bytes).fold(changes.totals.stored_bytes, u64::saturating_add);
    let (memory, overridden) = (changes.memory_of_minishards(), changes.dropped);
    let (mut written, outcome) = {
        let (pairs, threads) = changes.open()?;
        let shards = Base::Shards { generation: &base.generation, rewrites_all };
        let updated = UpdatedPairs::new(writer.spec, shards, &*pairs, options.strict);
        (writer.write_shards(&updated, stored_bytes, threads, memory)?, updated.into_outcome())
    };
    drop(changes); // closes the spill files before their directory is removed
    let mut report = UpdateReport::of(&outcome, &written, overridden + written.dropped);
    written.value_bytes += manifest.value_bytes.saturating_sub(outcome.value_bytes);
    let read: HashSet<ShardNumber> = outcome.shards.into_iter().collect();
    let copies = options.build.progress.apart();
    for record in manifest.shards.iter().filter(|record| !read.contains(&record.number)) {
        let file = base.shards_directory().join(manifest.sharding.shard_file_name(record.number));
        let stated = manifest.checksum_of(record);
        match writer.pending.share(&file, stated, &copies).map_err(|error| error.at_shard(record.number))? {
            Shared::Linked => report.linked_shards += 1,
            Shared::Copied => report.copied_shards += 1,
        }
        written.shards.push(*record);
    }
    written.shards.sort_unstable_by_key(|shard| shard.number);
    Ok((writer.complete(written)?, report, read))
}

/// Sorts the pairs of a foreign base, and writes all shards.
fn apply_to_foreign(
    options: &UpdateOptions,
    base: &Snapshot,
    mut changes: Sorted,
    pending: PendingGeneration,
) -> Result<(Candidate, UpdateReport)> {
    let mut sorted = sorted_pairs_of(base, &options.build, pending.spill_dir())?;
    let preambles = sorted.totals.has_preambles || changes.totals.has_preambles;
    let layout = Layout::new(true, preambles, ValueAlignment::One);
    let writer = GenerationWriter { options: &options.build, pending, spec: *base.spec(), layout };
    let stored_bytes = changes.totals.stored_bytes + sorted.totals.stored_bytes;
    let (memory, overridden) = (changes.memory_of_minishards(), changes.dropped);
    let (written, outcome) = {
        let ((pairs, threads), (base_pairs, base_threads)) = (changes.open()?, sorted.open()?);
        let updated = UpdatedPairs::new(writer.spec, Base::Sorted(&*base_pairs), &*pairs, options.strict);
        let threads = threads.min(base_threads);
        (writer.write_shards(&updated, stored_bytes, threads, memory)?, updated.into_outcome())
    };
    drop((changes, sorted)); // closes the spill files before their directory is removed
    let report = UpdateReport::of(&outcome, &written, overridden + written.dropped);
    Ok((writer.complete(written)?, report))
}

/// Sorts all pairs of a data set. Errors: `DuplicateKey`; `Corrupt` for a key in the wrong place.
fn sorted_pairs_of(base: &Snapshot, options: &BuildOptions, spill_dir: &Path) -> Result<Sorted> {
    let mut sorter = Sorter::new(options, Duplicates::Refuse, base.spec().data_encoding(), spill_dir, FIRST_OF_BASE)?;
    for shard in base.shards() {
        for entry in shard?.iter() {
            let entry = entry?;
            if entry.location() != base.spec().route(entry.key()) {
                let message =
                    "expected each key in the minishard that it hashes to, found it in another: salvage the base";
                return Err(Error::corrupt(message).at_key(entry.key()));
            }
            let (preamble, value) = (entry.preamble()?, entry.value()?);
            let lens = (preamble.len() as u64, value.len() as u64);
            sorter.add(entry.key(), lens, Source::Slices(&preamble, &value))?;
        }
    }
    sorter.sort()
}

impl UpdateReport {
    fn of(outcome: &Outcome, written: &Written, overridden: u64) -> UpdateReport {
        let Outcome { added, replaced, deleted, absent, .. } = *outcome;
        UpdateReport {
            added,
            replaced,
            deleted,
            absent,
            overridden,
            written_shards: written.shards.len() as u64,
            written_bytes: written.shards.iter().map(|shard| shard.bytes).sum(),
            ..UpdateReport::default()
        }
    }
}

impl fmt::Debug for Updater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Updater").field("base", &self.base).field("path", &self.pending.path()).finish_non_exhaustive()
    }
}
