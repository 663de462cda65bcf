//! The bulk loader: builds a generation from pairs in any order and any amount.

use std::fmt;
use std::io::Read;
use std::path::Path;

use crate::error::Result;
use crate::format::multilod;
use crate::fs::disk;
use crate::store::{PendingGeneration, Store, StoreWriter};
use crate::threads::progress::Phase;
use crate::write::generation_writer::GenerationWriter;
use crate::write::options::BuildOptions;
use crate::write::sorter::{Sorter, Source};
use crate::write::{Candidate, Published};

/// Builds and publishes a generation of a store from pairs in any order and any amount.
///
/// Memory use stays below [`BuildOptions::memory`]. Pairs that do not fit are spilled to a temporary directory.
/// Equal pairs and options produce equal bytes, regardless of threads, memory and time, and regardless of the order of
/// insertion unless keys are duplicate.
/// A loader that is dropped before [`finish`](BulkLoader::finish) leaves no files behind.
///
/// ```
/// # fn main() -> sharddb::Result<()> {
/// # let store = std::env::temp_dir().join(format!("sharddb-bulk-doc-{}", std::process::id()));
/// let mut loader = sharddb::BulkLoader::create(&store)?;
/// loader.insert(7, b"seven")?;
/// loader.insert(3, b"three")?;
/// let published = loader.finish()?;
/// assert_eq!(published.content.keys, 2);
///
/// let db = sharddb::ShardDb::open(&store)?;
/// assert_eq!(db.get(7)?.unwrap(), b"seven");
/// # std::fs::remove_dir_all(&store).unwrap();
/// # Ok(()) }
/// ```
#[must_use = "nothing is there until `finish`"]
pub struct BulkLoader {
    options: BuildOptions,
    // in drop order: the threads of the sorter must end before `pending` removes the directory that they write to
    sorter: Sorter,
    pending: PendingGeneration,
    /// Whether each value needs its fragments as preamble; false for what is salvaged.
    pub(crate) needs_fragments: bool,
}

impl BulkLoader {
    /// Creates a loader with the default [`BuildOptions`].
    ///
    /// # Errors
    ///
    /// Those of [`BuildOptions::create`].
    pub fn create(store: impl AsRef<Path>) -> Result<BulkLoader> {
        BuildOptions::new().create(store)
    }

    /// Begins a build. `begin` begins its generation, given the directory for spill files.
    fn begin(
        begin: impl FnOnce(Option<&Path>) -> Result<PendingGeneration>,
        options: &BuildOptions,
    ) -> Result<BulkLoader> {
        let mut options = options.starting()?;
        let nested = options.check_info()?; // fail before the build rather than at its end
        let begin = || begin(options.temp_dir.as_deref())?.with_shards_in(nested);
        let pending = disk::with_syncs_if(options.durable, begin)?;
        let sorter = Sorter::of_build(&options, pending.spill_dir())?;
        options.progress.begin(Phase::Insert, 0);
        let needs_fragments = options.needs_fragments();
        Ok(BulkLoader { options, sorter, pending, needs_fragments })
    }

    /// Adds a pair.
    ///
    /// Copies the value. May wait for the threads while memory is full.
    ///
    /// # Errors
    ///
    /// - `Io` from spilling this pair or an earlier one.
    /// - `DuplicateKey`, for this key or an earlier one; [`finish`](BulkLoader::finish) reports it at the latest.
    /// - `TooLarge` for a gzip value of more than 1 GiB, which readers refuse by default.
    /// - `InvalidInput` in a forked child, which does not have the threads of the loader.
    /// - `Cancelled`, and `Internal`.
    ///
    /// After an error the build cannot be finished.
    #[inline]
    pub fn insert(&mut self, key: u64, value: impl AsRef<[u8]>) -> Result<()> {
        self.insert_with_preamble(key, &[], value.as_ref())
    }

    /// Adds all pairs of an iterator.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](BulkLoader::insert). Stops at the first pair that fails.
    ///
    /// ```
    /// # let store = std::env::temp_dir().join(format!("sharddb-extend-doc-{}", std::process::id()));
    /// let mut loader = sharddb::BulkLoader::create(&store)?;
    /// loader.extend((0..1000).map(|key| (key, format!("value {key}"))))?;
    /// assert_eq!(loader.finish()?.content.keys, 1000);
    /// # std::fs::remove_dir_all(&store).unwrap();
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn extend<V: AsRef<[u8]>>(&mut self, pairs: impl IntoIterator<Item = (u64, V)>) -> Result<()> {
        pairs.into_iter().try_for_each(|(key, value)| self.insert(key, value))
    }

    /// Adds a pair with a preamble: bytes that are stored directly before the value and are never encoded.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](BulkLoader::insert); `InvalidInput` if the [`info`](BuildOptions::info) says that values are
    /// manifests of multi-resolution meshes, and the preamble is shorter than the fragments that this one states: the pair was not
    /// added.
    pub fn insert_with_preamble(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> Result<()> {
        if self.needs_fragments {
            multilod::check_fragments(value, preamble.len() as u64).map_err(|error| error.at_key(key))?;
        }
        self.sorter.add(key, (preamble.len() as u64, value.len() as u64), Source::Slices(preamble, value))
    }

    /// Adds a pair whose preamble and value are read from `reader`, in this order.
    ///
    /// Takes constant memory for any length. After a panic of the reader the build cannot be finished.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](BulkLoader::insert), and `Io` if the reader fails or ends early.
    pub fn insert_reader(&mut self, key: u64, preamble_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()> {
        self.sorter.add(key, (preamble_len, value_len), Source::Reader(reader))
    }

    /// Sorts, writes, syncs and publishes the pairs. The new generation is current when this returns.
    ///
    /// An empty loader publishes an empty generation, but not over one with keys, unless
    /// [`BuildOptions::allow_empty`] is set. O(n log n) for n pairs.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](BulkLoader::insert) and of [`Candidate::publish`]; `InvalidInput` if the [`info`](BuildOptions::info)
    /// says that values are manifests of multi-resolution meshes, and one lacks its fragments; `InvalidSpec` if the shard indexes would
    /// take more bytes than [`BuildOptions::allow_sparse`] permits; `TooLarge` for a gzip minishard index that readers
    /// refuse by default, or a manifest that they refuse; `InvalidInput` if an insertion failed. After an error the
    /// previous generation is current, with the exception that [`Candidate::publish`] describes.
    pub fn finish(self) -> Result<Published> {
        self.finish_unpublished()?.publish()
    }

    /// Sorts, writes and syncs the pairs, and returns the generation without publishing it.
    ///
    /// The caller can open and verify it, and then [`publish`](Candidate::publish) or drop it.
    ///
    /// # Errors
    ///
    /// Those of [`finish`](BulkLoader::finish) before publishing. No files are left behind then.
    pub fn finish_unpublished(self) -> Result<Candidate> {
        disk::with_syncs_if(self.options.durable, || self.write())
    }

    #[cfg(test)]
    pub(super) fn spilled_runs(&self) -> usize {
        self.sorter.spilled_runs()
    }

    fn write(self) -> Result<Candidate> {
        let BulkLoader { options, sorter, pending, needs_fragments } = self;
        let sorted = sorter.sort()?;
        let has_preambles = sorted.totals.has_preambles;
        if needs_fragments {
            options.check_preambles(sorted.totals.stored_bytes == 0, has_preambles)?;
        }
        let layout = options.layout(has_preambles);
        let spec = sorted.spec.with_data_encoding(options.encoding());
        let candidate = GenerationWriter { options: &options, pending, spec, layout }.write_sorted(sorted)?;
        if needs_fragments { candidate.check_fragments(&options) } else { Ok(candidate) } // of `insert_reader`
    }
}

impl BuildOptions {
    /// Opens the store for writing and begins a generation. Creates the store if it does not exist.
    ///
    /// # Errors
    ///
    /// `Locked` if the store has another writer; `InvalidInput` for less than 16 MiB of memory, or if the path is not a
    /// store; `Corrupt` or `TooLarge` if `current` or `history` is damaged; `TooLarge` or `InvalidSpec` for an invalid
    /// [`info`](BuildOptions::info); those of [`sharding_at`](BuildOptions::sharding_at); `Io`.
    pub fn create(&self, store: impl AsRef<Path>) -> Result<BulkLoader> {
        BulkLoader::begin(|temp_dir| Store::create(store)?.writer()?.begin(temp_dir), self)
    }
}

impl StoreWriter {
    /// Begins a generation of the store, like [`BuildOptions::create`]. The writer goes on, and keeps the lock after the build.
    ///
    /// # Errors
    ///
    /// Those of [`BuildOptions::create`].
    ///
    /// ```
    /// # let store = std::env::temp_dir().join(format!("sharddb-writer-loader-doc-{}", std::process::id()));
    /// use sharddb::{BuildOptions, Store};
    ///
    /// let writer = Store::create(&store)?.writer()?;
    /// let mut loader = writer.loader(&BuildOptions::new())?;
    /// loader.insert(7, b"seven")?;
    /// loader.finish()?;
    /// assert!(writer.gc(1)?.removed.is_empty()); // no other writer came between
    /// # std::fs::remove_dir_all(&store).unwrap();
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn loader(&self, options: &BuildOptions) -> Result<BulkLoader> {
        BulkLoader::begin(|temp_dir| self.begin(temp_dir), options)
    }
}

impl fmt::Debug for BulkLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkLoader").field("path", &self.pending.path()).finish_non_exhaustive()
    }
}
