//! Options of a build.

use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
#[cfg(feature = "testing")]
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::format::info::Info;
use crate::format::layout::{Layout, ValueAlignment};
use crate::format::multilod;
use crate::format::nested::NestedSharding;
use crate::format::spec::{Encoding, ShardingSpec};
use crate::plan::{KeyStats, Plan, Profile};
use crate::plural::Plural;
use crate::read::snapshot::Snapshot;
use crate::threads;
use crate::threads::progress::Progress;
use crate::write::available_memory::available_memory;
use crate::write::duplicates::Duplicates;
use crate::write::merge_function::{MergeFunction, Values};

/// Set by tests of other crates, whose builds may then have less than the least memory.
#[cfg(feature = "testing")]
pub static PERMITS_LITTLE_MEMORY: AtomicBool = AtomicBool::new(false);

/// Whether builds may have less than [`MIN_MEMORY`], so that tests need few pairs to spill.
fn permits_little_memory() -> bool {
    #[cfg(feature = "testing")]
    if PERMITS_LITTLE_MEMORY.load(Ordering::Relaxed) {
        return true;
    }
    cfg!(any(test, fuzzing))
}

/// Minimum memory of a loader in bytes. Only tests and fuzz targets of this crate set less.
pub(crate) const MIN_MEMORY: u64 = 16 << 20;

/// Bounds of the default memory, in bytes: a quarter of the available memory, clamped to this range.
const DEFAULT_MEMORY: RangeInclusive<u64> = MIN_MEMORY..=4 << 30;

/// Default memory in bytes where the available memory is unknown.
const DEFAULT_MEMORY_UNKNOWN: u64 = 1 << 30;

/// Default of [`BuildOptions::max_open_runs`].
const MAX_OPEN_RUNS: usize = 512;

/// The policy for duplicate keys.
///
/// ```
/// use sharddb::{BuildOptions, OnDuplicate};
///
/// # let store = std::env::temp_dir().join(format!("sharddb-duplicate-doc-{}", std::process::id()));
/// let mut loader = BuildOptions::new().on_duplicate(OnDuplicate::KeepLast).create(&store)?;
/// loader.insert(7, b"first")?;
/// loader.insert(7, b"last")?;
/// let published = loader.finish()?;
/// assert_eq!((published.content.keys, published.content.dropped), (1, 1));
/// # std::fs::remove_dir_all(&store).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum OnDuplicate {
    /// The build fails with `DuplicateKey` and names the key (the default).
    #[default]
    Error,
    /// Keeps the pair that was inserted first.
    KeepFirst,
    /// Keeps the pair that was inserted last.
    KeepLast,
    /// Combines all values of a key by a function; see [`merge`](OnDuplicate::merge).
    Merge(MergeFunction),
}

impl OnDuplicate {
    /// Combines the values of each key by a function.
    ///
    /// The function gets the key and its values, decoded and in the order of insertion, and writes the new value. It is
    /// called once for each key, also for one with a single value, by several threads at a time. Values it does not read
    /// are skipped. It must be pure: equal calls write equal bytes. Neither the values of one key nor the new value need
    /// fit into the memory of the build.
    ///
    /// The only pair of a key keeps its preamble. If a key has several pairs, none may have a preamble (`InvalidInput`). An
    /// error of the function ends the build (`Io`, with its message), and so does a panic (`Internal`).
    ///
    /// ```
    /// # let store = std::env::temp_dir().join(format!("sharddb-merge-doc-{}", std::process::id()));
    /// use sharddb::{BuildOptions, OnDuplicate, ShardDb};
    ///
    /// let concatenate = OnDuplicate::merge(|_key, values, to| {
    ///     while values.copy_next(to)? {}
    ///     Ok(())
    /// });
    /// let mut loader = BuildOptions::new().on_duplicate(concatenate).create(&store)?;
    /// loader.extend([(7, "se"), (3, "three"), (7, "ven")])?;
    /// assert_eq!(loader.finish()?.content.keys, 2);
    /// assert_eq!(ShardDb::open(&store)?.get(7)?.unwrap(), b"seven");
    /// # std::fs::remove_dir_all(&store).unwrap();
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn merge(
        function: impl Fn(u64, &mut Values<'_>, &mut dyn Write) -> io::Result<()> + Send + Sync + 'static,
    ) -> OnDuplicate {
        OnDuplicate::Merge(MergeFunction::new(function))
    }

    /// Returns which pairs of a key the sort returns.
    pub(crate) fn in_a_sort(&self) -> Duplicates {
        match self {
            OnDuplicate::Error => Duplicates::Refuse,
            OnDuplicate::KeepFirst => Duplicates::KeepFirst,
            OnDuplicate::KeepLast => Duplicates::KeepLast,
            OnDuplicate::Merge(_) => Duplicates::KeepAll,
        }
    }
}

/// Options of a build. [`create`](BuildOptions::create) begins it, and [`merge`](BuildOptions::merge) merges databases.
///
/// ```
/// # let store = std::env::temp_dir().join(format!("sharddb-options-doc-{}", std::process::id()));
/// let mut loader = sharddb::BuildOptions::new().memory(64 << 20).threads(2).create(&store)?;
/// loader.insert(7, b"seven")?;
/// assert_eq!(loader.finish()?.content.keys, 1);
/// # std::fs::remove_dir_all(&store).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// `None` for the default, which is determined when a build starts.
    memory: Option<u64>,
    threads: usize,
    pub(crate) temp_dir: Option<PathBuf>,
    pub(crate) on_duplicate: OnDuplicate,
    pub(crate) checks: bool,
    pub(crate) value_alignment: ValueAlignment,
    pub(crate) spec: Option<ShardingSpec>,
    pub(crate) allow_sparse: bool,
    pub(crate) allow_empty: bool,
    pub(crate) profile: Option<Profile>,
    pub(crate) max_shard_bytes: u64,
    pub(crate) data_encoding: Option<Encoding>,
    pub(crate) minishard_index_encoding: Option<Encoding>,
    pub(crate) info: Option<String>,
    pub(crate) sharding_at: Option<String>,
    pub(crate) ordered: bool,
    pub(crate) durable: bool,
    /// Maximum number of runs that a merge has open, at least 2.
    pub(crate) max_open_runs: usize,
    pub(crate) progress: Progress,
}

impl Default for BuildOptions {
    fn default() -> BuildOptions {
        BuildOptions {
            memory: None,
            threads: 0,
            temp_dir: None,
            on_duplicate: OnDuplicate::default(),
            checks: true,
            value_alignment: ValueAlignment::default(),
            spec: None,
            allow_sparse: false,
            allow_empty: false,
            profile: None,
            max_shard_bytes: u64::MAX,
            data_encoding: None,
            minishard_index_encoding: None,
            info: None,
            sharding_at: None,
            ordered: false,
            durable: true,
            max_open_runs: MAX_OPEN_RUNS,
            progress: Progress::default(),
        }
    }
}

impl BuildOptions {
    /// Creates the default options.
    pub fn new() -> BuildOptions {
        BuildOptions::default()
    }

    /// Sets the maximum memory of the loader in bytes, at least 16 MiB.
    ///
    /// Default: a quarter of the memory that the process may use when the build starts, but at least 16 MiB and at most 4 GiB.
    /// On Linux that is the least of what the machine has available, what its control groups admit (the limit of a
    /// container), and its limit on address space; elsewhere it is unknown, and the default is 1 GiB.
    ///
    /// The limit covers everything except the slices of the caller. Memory is allocated as pairs arrive. If all pairs
    /// fit, with about 90 bytes of overhead per pair, the loader writes only the shards. Otherwise it spills pairs,
    /// which usually writes and reads them one more time. The bytes of the generation are the same in both cases.
    pub fn memory(&mut self, bytes: u64) -> &mut BuildOptions {
        self.memory = Some(bytes);
        self
    }

    /// Sets the number of threads that encode, checksum and sort besides the caller's. Default: 0, which is one per core
    /// that the process may use when the work starts.
    pub fn threads(&mut self, threads: usize) -> &mut BuildOptions {
        self.threads = threads;
        self
    }

    /// Sets the directory for spilled pairs. Default: the directory of the store, so that they are on its file system.
    pub fn temp_dir(&mut self, directory: impl Into<PathBuf>) -> &mut BuildOptions {
        self.temp_dir = Some(directory.into());
        self
    }

    /// Sets the policy for duplicate keys. Default: the build fails and names the key.
    pub fn on_duplicate(&mut self, on_duplicate: OnDuplicate) -> &mut BuildOptions {
        self.on_duplicate = on_duplicate;
        self
    }

    /// Sets whether to store checks. Default: true.
    ///
    /// Checks take 4 bytes per minishard and 4 bytes per key, or 8 bytes per key if any value has a preamble.
    pub fn checks(&mut self, checks: bool) -> &mut BuildOptions {
        self.checks = checks;
        self
    }

    /// Sets the alignment of values in their files. Default: 1 byte.
    pub fn value_alignment(&mut self, alignment: ValueAlignment) -> &mut BuildOptions {
        self.value_alignment = alignment;
        self
    }

    /// Sets the sharding specification. Default: planned from the pairs and the profile.
    pub fn spec(&mut self, spec: ShardingSpec) -> &mut BuildOptions {
        self.spec = Some(spec);
        self
    }

    /// Sets whether shard indexes may take more bytes than the data. Default: false.
    ///
    /// They do if the specification has too many minishard bits. Unless this is allowed, [`finish`](crate::BulkLoader::finish)
    /// fails with `InvalidSpec` if shard indexes take more bytes than the data and more than 64 MiB.
    pub fn allow_sparse(&mut self, allow: bool) -> &mut BuildOptions {
        self.allow_sparse = allow;
        self
    }

    /// Sets whether a generation without keys may replace one with keys. Default: false, so that an input that is empty by
    /// mistake loses nothing: publishing is then an error of kind `Empty`.
    pub fn allow_empty(&mut self, allow: bool) -> &mut BuildOptions {
        self.allow_empty = allow;
        self
    }

    /// Sets the profile for planning a specification if none is given. Default: local.
    pub fn profile(&mut self, profile: Profile) -> &mut BuildOptions {
        self.profile = Some(profile);
        self
    }

    /// Limits the mean size of a shard in bytes, for a store that will be updated: an update rewrites every shard with a
    /// change. Default: the profile's size.
    ///
    /// Has no effect if [`spec`](Self::spec) is set. A shard holds at least one minishard of the profile's size.
    pub fn max_shard_bytes(&mut self, bytes: u64) -> &mut BuildOptions {
        self.max_shard_bytes = bytes;
        self
    }

    /// Sets the encoding of values in a planned specification. Default: raw.
    pub fn data_encoding(&mut self, encoding: Encoding) -> &mut BuildOptions {
        self.data_encoding = Some(encoding);
        self
    }

    /// Sets the encoding of minishard indexes in a planned specification. Default: that of the profile.
    pub fn minishard_index_encoding(&mut self, encoding: Encoding) -> &mut BuildOptions {
        self.minishard_index_encoding = Some(encoding);
        self
    }

    /// Sets an `info` (JSON) to extend. Default: none.
    ///
    /// The members "sharding" and "sharddb" are replaced; all others are kept unchanged. If "sharding" is nested, as in a
    /// volume, set [`sharding_at`](BuildOptions::sharding_at) too.
    pub fn info(&mut self, text: impl Into<String>) -> &mut BuildOptions {
        self.info = Some(text.into());
        self
    }

    /// Sets the JSON pointer (RFC 6901) of the object in [`info`](BuildOptions::info) that describes the shards, such as
    /// `/scales/0` in a volume. Default: the top level, as with an empty pointer.
    ///
    /// The members "sharding" and "sharddb" of that object are replaced or added; all other bytes of the `info` are kept,
    /// those of other scales included. The shards are written to the directory that its member "key" names, below that of
    /// the `info`, so that other programs read the generation as a volume. Opening the generation needs no pointer.
    ///
    /// Unless a specification or a profile is set, the specification is the one that the object has, with the encodings
    /// that are set; it is planned if "sharding" is absent or null.
    ///
    /// [`create`](BuildOptions::create) fails with `InvalidInput` if there is no `info`, no such object, or also a
    /// "sharding" at the top level; with `InvalidSpec` if the object's "key" is not a relative path below the generation,
    /// names another file of it, or a hidden one.
    ///
    /// ```
    /// # let store = std::env::temp_dir().join(format!("sharddb-scale-doc-{}", std::process::id()));
    /// use sharddb::{BuildOptions, ShardDb};
    ///
    /// let info = r#"{"type": "image", "scales": [{"key": "8_8_8", "encoding": "raw"}, {"key": "16_16_16"}]}"#;
    /// let mut loader = BuildOptions::new().info(info).sharding_at("/scales/0").create(&store)?;
    /// loader.insert(0, [7; 64])?;
    /// loader.finish()?;
    /// let db = ShardDb::open(&store)?;
    /// assert_eq!(db.snapshot().sharding_at(), "/scales/0");
    /// assert!(store.join("current/8_8_8/0.shard").exists());
    /// # std::fs::remove_dir_all(&store).unwrap();
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn sharding_at(&mut self, pointer: impl Into<String>) -> &mut BuildOptions {
        self.sharding_at = Some(pointer.into()).filter(|pointer| !pointer.is_empty());
        self
    }

    /// Sets the alignment of values, the [`info`](BuildOptions::info) and its [`sharding_at`](BuildOptions::sharding_at) to
    /// those of a database, for a copy that describes itself as `base` does. The specification is not set.
    ///
    /// An `info` that describes more than this data, since its shards are in the directory of another store, is kept as its
    /// member "imported".
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::info`].
    ///
    /// ```
    /// # let store = std::env::temp_dir().join(format!("sharddb-like-doc-{}", std::process::id()));
    /// use sharddb::{BuildOptions, ShardDb};
    ///
    /// let mut loader = BuildOptions::new().info(r#"{"unit": "m"}"#).create(&store)?;
    /// loader.insert(7, b"seven")?;
    /// loader.finish()?;
    ///
    /// let old = ShardDb::open(&store)?.snapshot();
    /// let mut loader = BuildOptions::new().like(&old)?.create(&store)?;
    /// loader.insert(7, b"sieben")?;
    /// loader.finish()?;
    /// assert!(ShardDb::open(&store)?.snapshot().info()?.unwrap().contains(r#""unit": "m""#));
    /// # std::fs::remove_dir_all(&store).unwrap();
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn like(&mut self, base: &Snapshot) -> Result<&mut BuildOptions> {
        self.value_alignment = base.layout().unwrap_or_default().value_alignment;
        self.info_of(base)
    }

    /// Sets the [`info`](BuildOptions::info) and its [`sharding_at`](BuildOptions::sharding_at) to those of a database, like
    /// [`like`](BuildOptions::like).
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::info`].
    pub fn info_of(&mut self, base: &Snapshot) -> Result<&mut BuildOptions> {
        let Some(text) = base.info()? else { return Ok(self) };
        match base.sharding_at() {
            "" => Ok(self.info(text)),
            at if base.shards_directory() != base.directory() => Ok(self.info(text).sharding_at(at)),
            // the null is for the member "sharding" within: a build refuses an info that has only a nested one
            _ => Ok(self.info(format!("{{\"imported\": {}, \"sharding\": null}}", text.trim()))),
        }
    }

    /// Sets whether to write a key file: all keys in ascending order. Default: false.
    ///
    /// It makes every range, rank and selection of a [`Snapshot`](crate::Snapshot) O(log n), under any hash. It takes 0.2
    /// bits per key for consecutive keys, and 5.5 bytes per key for 10 million random ones, which is less than 2 bits more
    /// than their entropy. Writing it reads all indexes of the generation again and sorts the keys, in half of the
    /// memory.
    pub fn ordered(&mut self, ordered: bool) -> &mut BuildOptions {
        self.ordered = ordered;
        self
    }

    /// Sets whether files and directories are synced. Default: true.
    ///
    /// Without syncs a small build does not wait for the disk, but a crash of the machine may lose or damage the
    /// generation. A crash of the process alone is harmless. Intended for tests and scratch stores.
    pub fn durable(&mut self, durable: bool) -> &mut BuildOptions {
        self.durable = durable;
        self
    }

    /// Sets the progress that the build reports, and that cancels it. Default: none.
    pub fn progress(&mut self, progress: &Progress) -> &mut BuildOptions {
        self.progress = progress.clone();
        self
    }

    /// Plans a specification for keys.
    pub(crate) fn plan(&self, stats: &KeyStats, data_encoding: Encoding) -> ShardingSpec {
        let spec =
            Plan::with_max_shard_bytes(stats, self.profile.unwrap_or(Profile::Local), self.max_shard_bytes).spec();
        let index_encoding = self.minishard_index_encoding.unwrap_or(spec.minishard_index_encoding());
        spec.with_minishard_index_encoding(index_encoding).with_data_encoding(data_encoding)
    }

    /// Returns how values are stored.
    pub(crate) fn encoding(&self) -> Encoding {
        match self.spec {
            Some(spec) => spec.data_encoding(),
            None => self.data_encoding.unwrap_or_default(),
        }
    }

    /// Whether the values are manifests of multi-resolution meshes, which have their fragments as preambles.
    pub(crate) fn needs_fragments(&self) -> bool {
        self.info.as_deref().is_some_and(multilod::is_stated_by)
    }

    /// Errors: `InvalidInput` if no pair has a preamble, although the values are manifests of multi-resolution meshes.
    pub(crate) fn check_preambles(&self, is_empty: bool, has_preambles: bool) -> Result<()> {
        if has_preambles || is_empty || !self.needs_fragments() {
            return Ok(());
        }
        Err(Error::invalid_input(format!(
            "expected the fragments of meshes as the preambles of their manifests, as the info says by {}, found no pair with a \
             preamble: insert each manifest with its preamble",
            multilod::TYPE
        )))
    }

    /// Returns the layout of the shards, given whether any pair has a preamble.
    pub(crate) fn layout(&self, preambles: bool) -> Layout {
        Layout::new(self.checks, preambles, self.value_alignment)
    }

    /// Returns the options of a build that starts now, whose memory is known.
    ///
    /// Errors: `InvalidInput` for less memory than a build needs.
    pub(crate) fn starting(&self) -> Result<BuildOptions> {
        let memory = self.memory_now();
        if memory < MIN_MEMORY && !permits_little_memory() {
            let message = format!(
                "expected at least {} MiB of memory for a build, found {}",
                MIN_MEMORY >> 20,
                Plural(memory, "byte")
            );
            return Err(Error::invalid_input(message));
        }
        Ok(BuildOptions { memory: Some(memory), ..self.clone() })
    }

    /// Returns the number of threads: what was set, or the default of a build that starts now.
    pub(crate) fn thread_count(&self) -> usize {
        threads::count(self.threads).get()
    }

    /// Returns the memory in bytes: what was set, or the default of a build that starts now.
    pub(crate) fn memory_now(&self) -> u64 {
        let default = || {
            let quarter = available_memory().map(|bytes| bytes / 4);
            quarter.map_or(DEFAULT_MEMORY_UNKNOWN, |bytes| bytes.clamp(*DEFAULT_MEMORY.start(), *DEFAULT_MEMORY.end()))
        };
        self.memory.unwrap_or_else(default)
    }

    /// Checks the `info`, so that a build fails at its beginning. Returns the place of the shards; `None` for the top
    /// level. Completes the specification by the one that the `info` has there.
    pub(crate) fn check_info(&mut self) -> Result<Option<NestedSharding>> {
        let Some(pointer) = &self.sharding_at else {
            return self.info.as_deref().map_or(Ok(()), Info::check).map(|()| None);
        };
        let Some(info) = &self.info else {
            let message = "expected an info next to a JSON pointer of its sharding, found none: set `info` (`--info`)";
            return Err(Error::invalid_input(message));
        };
        let nested = Info::nested_in(info, pointer)?;
        if self.spec.is_none() && self.profile.is_none() {
            self.spec = Info::spec_at(info, pointer)?.map(|spec| self.with_encodings(spec));
        }
        Ok(Some(nested))
    }

    /// Returns a specification with the encodings that are set.
    fn with_encodings(&self, spec: ShardingSpec) -> ShardingSpec {
        let index_encoding = self.minishard_index_encoding.unwrap_or(spec.minishard_index_encoding());
        let data_encoding = self.data_encoding.unwrap_or(spec.data_encoding());
        spec.with_minishard_index_encoding(index_encoding).with_data_encoding(data_encoding)
    }

    /// Returns the text of the `info` of a generation with this specification and layout.
    pub(crate) fn compose_info(&self, spec: &ShardingSpec, layout: &Layout) -> Result<String> {
        match (&self.info, &self.sharding_at) {
            (Some(info), Some(pointer)) => Info::compose_nested(info, pointer, spec, layout),
            (info, _) => Info::compose(info.as_deref(), spec, layout),
        }
    }
}

/// What other crates of the workspace read of the options of a build.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Where to spill.
    pub temp_dir: Option<&'a Path>,
    /// Whether to write a key file.
    pub ordered: bool,
    /// Whether nothing may replace something.
    pub allow_empty: bool,
    /// What the build reports to.
    pub progress: &'a Progress,
}

/// Returns what was set.
pub fn settings_of(options: &BuildOptions) -> Settings<'_> {
    let BuildOptions { temp_dir, ordered, allow_empty, progress, .. } = options;
    Settings { temp_dir: temp_dir.as_deref(), ordered: *ordered, allow_empty: *allow_empty, progress }
}

/// Returns the memory of a build that starts now, in bytes.
pub fn memory_of(options: &BuildOptions) -> u64 {
    options.memory_now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_within_its_bounds() {
        assert!(DEFAULT_MEMORY.contains(&BuildOptions::new().memory_now()));
        assert_eq!(BuildOptions::new().memory(MIN_MEMORY).starting().unwrap().memory, Some(MIN_MEMORY));
    }
}
