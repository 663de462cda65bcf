//! Options and progress of a build.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::build::BulkLoader;
use crate::error::{Error, ErrorKind, Result};
use crate::format::layout::ValueAlignment;
use crate::format::spec::{Encoding, ShardingSpec};
use crate::plan::Profile;

/// Minimum memory of a loader in bytes. Only tests and fuzz targets of this crate set less.
pub(crate) const MIN_MEMORY: u64 = 16 << 20;

/// Bounds of the default memory, in bytes: a quarter of the available memory, clamped to this range.
const DEFAULT_MEMORY: RangeInclusive<u64> = 256 << 20..=4 << 30;

/// Default memory in bytes where the available memory is unknown.
const DEFAULT_MEMORY_UNKNOWN: u64 = 1 << 30;

/// The policy for duplicate keys.
///
/// ```
/// use sharddb::{BulkLoader, OnDuplicate};
///
/// # let store = std::env::temp_dir().join(format!("sharddb-duplicate-doc-{}", std::process::id()));
/// let mut loader = BulkLoader::options().on_duplicate(OnDuplicate::KeepLast).create(&store)?;
/// loader.insert(7, b"first")?;
/// loader.insert(7, b"last")?;
/// let published = loader.finish()?;
/// assert_eq!((published.keys, published.dropped), (1, 1));
/// # std::fs::remove_dir_all(&store).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDuplicate {
    /// The build fails with `DuplicateKey` and names the key (the default).
    #[default]
    Error,
    /// Keeps the pair that was inserted first.
    KeepFirst,
    /// Keeps the pair that was inserted last.
    KeepLast,
}

/// Options of a build. [`create`](BuildOptions::create) begins it.
///
/// ```
/// # let store = std::env::temp_dir().join(format!("sharddb-options-doc-{}", std::process::id()));
/// let mut loader = sharddb::BulkLoader::options().memory(64 << 20).threads(2).create(&store)?;
/// loader.insert(7, b"seven")?;
/// assert_eq!(loader.finish()?.keys, 1);
/// # std::fs::remove_dir_all(&store).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BuildOptions {
    pub(crate) memory: u64,
    pub(crate) threads: usize,
    pub(crate) temp_dir: Option<PathBuf>,
    pub(crate) on_duplicate: OnDuplicate,
    pub(crate) checks: bool,
    pub(crate) value_alignment: ValueAlignment,
    pub(crate) spec: Option<ShardingSpec>,
    pub(crate) allow_sparse: bool,
    pub(crate) profile: Profile,
    pub(crate) data_encoding: Option<Encoding>,
    pub(crate) minishard_index_encoding: Option<Encoding>,
    pub(crate) info: Option<String>,
    pub(crate) durable: bool,
    pub(crate) progress: Arc<BuildProgress>,
    pub(crate) cancel: Arc<AtomicBool>,
}

impl Default for BuildOptions {
    fn default() -> BuildOptions {
        BuildOptions {
            memory: default_memory(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            temp_dir: None,
            on_duplicate: OnDuplicate::default(),
            checks: true,
            value_alignment: ValueAlignment::default(),
            spec: None,
            allow_sparse: false,
            profile: Profile::Local,
            data_encoding: None,
            minishard_index_encoding: None,
            info: None,
            durable: true,
            progress: Arc::default(),
            cancel: Arc::default(),
        }
    }
}

impl BuildOptions {
    /// Sets the maximum memory of the loader in bytes, at least 16 MiB.
    ///
    /// Default: a quarter of the memory that is available when the options are created, but at least 256 MiB and at
    /// most 4 GiB; 1 GiB if the available memory is unknown (it is known on Linux).
    ///
    /// The limit covers everything except the slices of the caller. Memory is allocated as pairs arrive. If all pairs
    /// fit, with about 90 bytes of overhead per pair, the loader writes only the shards. Otherwise it spills pairs,
    /// which usually writes and reads them one more time. The bytes of the generation are the same in both cases.
    pub fn memory(&mut self, bytes: u64) -> &mut BuildOptions {
        self.memory = bytes;
        self
    }

    /// Sets the number of threads that encode, check and sort besides the caller's, at least 1. Default: one per core.
    pub fn threads(&mut self, threads: usize) -> &mut BuildOptions {
        self.threads = threads.max(1);
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
    /// Checks take 4 bytes per minishard and 4 bytes per key, or 8 bytes per key if any value has a prefix.
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
    /// They do if the specification has too many minishard bits. Unless this is allowed, [`finish`](BulkLoader::finish)
    /// fails with `InvalidSpec` if shard indexes take more bytes than the data and more than 64 MiB.
    pub fn allow_sparse(&mut self, allow: bool) -> &mut BuildOptions {
        self.allow_sparse = allow;
        self
    }

    /// Sets the profile for planning a specification if none is given. Default: local.
    pub fn profile(&mut self, profile: Profile) -> &mut BuildOptions {
        self.profile = profile;
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
    /// The members "sharding" and "sharddb" are replaced; all others are kept unchanged.
    pub fn info(&mut self, text: impl Into<String>) -> &mut BuildOptions {
        self.info = Some(text.into());
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

    /// Sets where the loader reports its progress. Default: nowhere.
    pub fn progress(&mut self, progress: Arc<BuildProgress>) -> &mut BuildOptions {
        self.progress = progress;
        self
    }

    /// Sets a flag that cancels the build. Default: none.
    ///
    /// Soon after the flag becomes true, the loader fails with `Cancelled`.
    pub fn cancel(&mut self, cancel: Arc<AtomicBool>) -> &mut BuildOptions {
        self.cancel = cancel;
        self
    }

    /// Opens the store for writing and begins a generation. Creates the store if it does not exist.
    ///
    /// # Errors
    ///
    /// `Locked` if the store has another writer; `Io`; `InvalidInput` for an invalid option; `TooLarge` or
    /// `InvalidSpec` for an invalid [`info`](BuildOptions::info).
    pub fn create(&self, store: impl AsRef<Path>) -> Result<BulkLoader> {
        if self.memory < MIN_MEMORY && !cfg!(any(test, fuzzing)) {
            let message = format!("expected at least {MIN_MEMORY} bytes of memory for a build, found {}", self.memory);
            return Err(Error::invalid_input(message));
        }
        BulkLoader::create(store.as_ref(), self.clone())
    }

    /// Errors: `Cancelled` if the flag is set.
    pub(crate) fn check_cancel(&self) -> Result<()> {
        match self.cancel.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Cancelled, "the build was cancelled: nothing was published")),
            false => Ok(()),
        }
    }
}

fn default_memory() -> u64 {
    let quarter = available_memory().map(|bytes| bytes / 4);
    quarter.map_or(DEFAULT_MEMORY_UNKNOWN, |bytes| bytes.clamp(*DEFAULT_MEMORY.start(), *DEFAULT_MEMORY.end()))
}

/// Returns the available memory in bytes, as Linux reports it.
fn available_memory() -> Option<u64> {
    available_in(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The phase of a build, as returned by [`BuildProgress::phase`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildPhase {
    /// Inserting pairs.
    #[default]
    Insert,
    /// Re-sorting spilled runs whose order does not match the planned specification.
    Sort,
    /// Merging runs into fewer.
    Merge,
    /// Writing shards.
    Write,
    /// Writing `info`, minishard table and manifest, and publishing the generation.
    Publish,
}

/// The progress of a build; can be read from any thread.
///
/// ```
/// # let store = std::env::temp_dir().join(format!("sharddb-progress-doc-{}", std::process::id()));
/// use std::sync::Arc;
/// use sharddb::build::{BuildPhase, BuildProgress};
///
/// let progress = Arc::new(BuildProgress::new());
/// let mut loader = sharddb::BulkLoader::options().progress(progress.clone()).create(&store)?;
/// loader.insert(7, b"seven")?;
/// assert_eq!((progress.phase(), progress.done()), (BuildPhase::Insert, 5));
/// # drop(loader);
/// # std::fs::remove_dir_all(&store).ok();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct BuildProgress {
    phase: AtomicU8,
    done: AtomicU64,
    total: AtomicU64,
}

impl BuildProgress {
    const PHASES: [BuildPhase; 5] =
        [BuildPhase::Insert, BuildPhase::Sort, BuildPhase::Merge, BuildPhase::Write, BuildPhase::Publish];

    /// Creates a progress of zero bytes, in the phase `Insert`.
    pub fn new() -> BuildProgress {
        BuildProgress::default()
    }

    /// Returns the current phase.
    pub fn phase(&self) -> BuildPhase {
        Self::PHASES.get(usize::from(self.phase.load(Ordering::Relaxed))).copied().unwrap_or_default()
    }

    /// Returns the bytes done in this phase.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns the total bytes of this phase; 0 if unknown.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    pub(crate) fn begin(&self, phase: BuildPhase, total: u64) {
        let number = Self::PHASES.iter().position(|other| *other == phase).unwrap_or(0);
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.phase.store(u8::try_from(number).unwrap_or(0), Ordering::Relaxed);
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_available_memory_and_nothing_else() {
        let meminfo = "MemTotal:       24684352 kB\nMemFree:         6999040 kB\nMemAvailable:   21907456 kB\n";
        assert_eq!(available_in(meminfo), Some(21_907_456 << 10));
        for bad in
            ["", "MemTotal: 1 kB", "MemAvailable: 1 MB", "MemAvailable: kB", "MemAvailable: 18446744073709551615 kB"]
        {
            assert_eq!(available_in(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_default_is_within_its_bounds() {
        assert!(DEFAULT_MEMORY.contains(&BuildOptions::default().memory));
    }
}
