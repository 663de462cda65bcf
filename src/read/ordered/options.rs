//! Options of ranges that have to sort keys.

use std::path::PathBuf;

use crate::read::sorted_keys::sorter::SortBudget;
use crate::threads::progress::Progress;

/// Default memory in bytes: 128 million keys.
const DEFAULT_MEMORY: u64 = 1 << 30;

/// How ranges of keys are sorted: with how much memory, on how many threads. [`Snapshot::range`](crate::Snapshot::range) uses the defaults.
///
/// A database with a [key file](crate::BuildOptions::ordered) has sorted keys, and uses none of these options.
///
/// ```
/// # let store = std::env::temp_dir().join(format!("sharddb-range-options-doc-{}", std::process::id()));
/// # let mut loader = sharddb::BulkLoader::create(&store)?;
/// # for key in [30, 10, 20] { loader.insert(key, b"value")?; }
/// # loader.finish()?;
/// use sharddb::RangeOptions;
///
/// let snapshot = sharddb::ShardDb::open(&store)?.snapshot();
/// let keys = snapshot.key_range_with(15.., RangeOptions::new().memory(64 << 20).threads(2));
/// assert_eq!(keys.collect::<sharddb::Result<Vec<u64>>>()?, [20, 30]);
/// # std::fs::remove_dir_all(&store).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RangeOptions {
    memory: u64,
    pub(super) threads: usize,
    temp_dir: Option<PathBuf>,
    pub(super) progress: Progress,
}

impl Default for RangeOptions {
    fn default() -> RangeOptions {
        RangeOptions { memory: DEFAULT_MEMORY, threads: 0, temp_dir: None, progress: Progress::default() }
    }
}

impl RangeOptions {
    /// Creates the default options.
    pub fn new() -> RangeOptions {
        RangeOptions::default()
    }

    /// Sets the memory for the keys of a range, in bytes. Default: 1 GiB. Fewer than 4 KiB count as 4 KiB.
    ///
    /// Each key takes 8 bytes, and up to 16 while their number grows, within this limit. Above it, sorted keys are spilled
    /// to the temporary directory, in 16 bytes per key or fewer. A thread takes up to 1 MiB besides, and the largest
    /// minishard index.
    pub fn memory(&mut self, bytes: u64) -> &mut RangeOptions {
        self.memory = bytes;
        self
    }

    /// Sets the number of threads that read indexes and sort, the caller's included. Default: 0, which is one per core that
    /// the process may use when a range begins to read indexes.
    pub fn threads(&mut self, threads: usize) -> &mut RangeOptions {
        self.threads = threads;
        self
    }

    /// Sets the directory for spilled keys. Default: that of [`std::env::temp_dir`].
    ///
    /// The files have no name while they are in use, and are gone with the range or the process.
    pub fn temp_dir(&mut self, directory: impl Into<PathBuf>) -> &mut RangeOptions {
        self.temp_dir = Some(directory.into());
        self
    }

    /// Sets the progress that a range reports while it reads the indexes, and that cancels this. Default: none.
    ///
    /// Soon after it is cancelled, the only item of the range is an error of kind `Cancelled`.
    pub fn progress(&mut self, progress: &Progress) -> &mut RangeOptions {
        self.progress = progress.clone();
        self
    }

    pub(super) fn budget(&self) -> SortBudget<'_> {
        SortBudget { memory: self.memory, threads: self.threads, temp_dir: self.temp_dir.as_deref() }
    }
}
