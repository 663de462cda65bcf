//! How to build, and how far a build has come.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::build::BulkLoader;
use crate::error::{Error, ErrorKind, Result};
use crate::format::layout::ValueAlignment;
use crate::format::spec::{Encoding, ShardingSpec};
use crate::plan::Profile;

/// The least memory that a loader works with. Only tests and fuzz targets of this crate set less.
pub(crate) const MIN_MEMORY: u64 = 16 << 20;

/// What a loader takes of the machine's memory unless told: a quarter of what is free, within these bounds.
const DEFAULT_MEMORY: RangeInclusive<u64> = 256 << 20..=4 << 30;

/// The same where the system does not tell what is free.
const DEFAULT_MEMORY_UNKNOWN: u64 = 1 << 30;

/// What to do when a key comes again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDuplicate {
    /// The build fails and names the key (the default).
    #[default]
    Error,
    /// The pair that was inserted first stays.
    KeepFirst,
    /// The pair that was inserted last stays.
    KeepLast,
}

/// Options of a build; then [`create`](BuildOptions::create).
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
    /// The most memory that the loader takes, in bytes, at least 16 MiB.
    ///
    /// Default: a quarter of what the machine has available when the options are made, but 256 MiB at least and 4 GiB
    /// at most; 1 GiB where the system does not tell (Linux does).
    ///
    /// It counts everything but the slice that the caller holds, and is taken as pairs come. A build whose pairs fit,
    /// with 60 bytes beside each, writes nothing but its shards; else pairs are spilled, once as a rule: they are then
    /// written and read once more. The bytes of the generation are the same either way.
    pub fn memory(&mut self, bytes: u64) -> &mut BuildOptions {
        self.memory = bytes;
        self
    }

    /// Threads that encode, check and sort beside the caller's. Default: one for each core.
    pub fn threads(&mut self, threads: usize) -> &mut BuildOptions {
        self.threads = threads.max(1);
        self
    }

    /// Where spilled pairs go. Default: the store, so that they lie on its file system.
    pub fn temp_dir(&mut self, directory: impl Into<PathBuf>) -> &mut BuildOptions {
        self.temp_dir = Some(directory.into());
        self
    }

    /// What to do when a key comes again. Default: the build fails and names it.
    pub fn on_duplicate(&mut self, on_duplicate: OnDuplicate) -> &mut BuildOptions {
        self.on_duplicate = on_duplicate;
        self
    }

    /// Whether to store checks: 4 bytes a key, and 4 a minishard. Default: true.
    pub fn checks(&mut self, checks: bool) -> &mut BuildOptions {
        self.checks = checks;
        self
    }

    /// The alignment of values in their files. Default: 1.
    pub fn value_alignment(&mut self, alignment: ValueAlignment) -> &mut BuildOptions {
        self.value_alignment = alignment;
        self
    }

    /// The sharding specification, used as it is. Default: planned from the pairs by the profile.
    pub fn spec(&mut self, spec: ShardingSpec) -> &mut BuildOptions {
        self.spec = Some(spec);
        self
    }

    /// Whether shard indexes may take more bytes than the data, as a specification of too many minishard bits makes them.
    ///
    /// Otherwise, with more than 64 MiB of them, [`finish`](BulkLoader::finish) fails with `InvalidSpec`. Default: false.
    pub fn allow_sparse(&mut self, allow: bool) -> &mut BuildOptions {
        self.allow_sparse = allow;
        self
    }

    /// The profile by which a specification is planned where none is given. Default: local.
    pub fn profile(&mut self, profile: Profile) -> &mut BuildOptions {
        self.profile = profile;
        self
    }

    /// The encoding of values in a planned specification. Default: raw.
    pub fn data_encoding(&mut self, encoding: Encoding) -> &mut BuildOptions {
        self.data_encoding = Some(encoding);
        self
    }

    /// The encoding of minishard indexes in a planned specification. Default: as the profile says.
    pub fn minishard_index_encoding(&mut self, encoding: Encoding) -> &mut BuildOptions {
        self.minishard_index_encoding = Some(encoding);
        self
    }

    /// An `info` (JSON) whose members but "sharding" and "sharddb" are kept as given. Default: none.
    pub fn info(&mut self, text: impl Into<String>) -> &mut BuildOptions {
        self.info = Some(text.into());
        self
    }

    /// Whether files and directories are synced. Default: true.
    ///
    /// Without, a build of a few pairs is some 20 times faster, and a crash of the machine may take the generation, or leave it
    /// damaged. For tests and scratch stores. A crash of the process alone does no harm.
    pub fn durable(&mut self, durable: bool) -> &mut BuildOptions {
        self.durable = durable;
        self
    }

    /// Where the loader tells how far it has come. Default: nowhere.
    pub fn progress(&mut self, progress: Arc<BuildProgress>) -> &mut BuildOptions {
        self.progress = progress;
        self
    }

    /// A flag that makes the loader stop with `Cancelled` soon after it is set. Default: none.
    pub fn cancel(&mut self, cancel: Arc<AtomicBool>) -> &mut BuildOptions {
        self.cancel = cancel;
        self
    }

    /// Opens the store for writing, made if it is not there, and begins a generation.
    ///
    /// Errors: `Locked` if another writer is at it, `Io`, `InvalidInput` for options that cannot be.
    pub fn create(&self, store: impl AsRef<Path>) -> Result<BulkLoader> {
        if self.memory < MIN_MEMORY && !cfg!(any(test, fuzzing)) {
            let message = format!("expected at least {MIN_MEMORY} bytes of memory for a build, found {}", self.memory);
            return Err(Error::invalid_input(message));
        }
        BulkLoader::create(store.as_ref(), self.clone())
    }

    /// Errors: `Cancelled` once the flag is set.
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

/// The memory that programs could still take, by Linux's account.
fn available_memory() -> Option<u64> {
    available_in(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// What a build is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildPhase {
    /// Taking pairs in.
    #[default]
    Insert,
    /// Sorting what was logged, now that the specification is planned.
    Sort,
    /// Merging runs into fewer.
    Merge,
    /// Writing shards.
    Write,
    /// Bringing everything to the disk and publishing it.
    Publish,
}

/// How far a build has come; shared with whoever shows it.
#[derive(Debug, Default)]
pub struct BuildProgress {
    phase: AtomicU8,
    done: AtomicU64,
    total: AtomicU64,
}

impl BuildProgress {
    const PHASES: [BuildPhase; 5] =
        [BuildPhase::Insert, BuildPhase::Sort, BuildPhase::Merge, BuildPhase::Write, BuildPhase::Publish];

    /// Nothing done yet.
    pub fn new() -> BuildProgress {
        BuildProgress::default()
    }

    /// What the build is doing.
    pub fn phase(&self) -> BuildPhase {
        Self::PHASES.get(usize::from(self.phase.load(Ordering::Relaxed))).copied().unwrap_or_default()
    }

    /// Bytes done in this phase.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Bytes to do in this phase; 0 where nobody knows.
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
