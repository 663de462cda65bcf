//! The split of the memory limit of a build.

use crate::format::gzip::DEFAULT_MAX_VALUE_BYTES;
use crate::write::options::MIN_MEMORY;

/// Upper bound on a batch in bytes, unless the memory would then have more than [`MANY_BATCHES`] batches. Larger
/// batches are no faster, and small ones keep all threads busy.
const PREFERRED_BATCH: usize = 64 << 20;

/// Maximum number of full batches in the memory, unless a batch would then exceed [`MAX_BATCH`].
///
/// Limits the memory maps, of which Linux allows a process about 65,000 and a batch has up to 16. A batch is closed
/// when the next pair does not fit, so two consecutive batches together fill at least one, and there may be twice this
/// number: 1024 batches with 16,384 maps. With gzip there may be more, because encoding shrinks a batch after it is
/// filled.
const MANY_BATCHES: usize = 512;

/// Upper bound on every batch in bytes, and so on a pair in it: an offset within a batch fits into 32 bits.
const MAX_BATCH: usize = 1 << 30;

// the values of pairs in batches are not checked by `check_value_len`, so they must be within its limit
const _: () = assert!(MAX_BATCH as u64 <= DEFAULT_MAX_VALUE_BYTES);

/// Minimum memory per thread in bytes. A thread with less is not worth starting.
const MIN_PER_THREAD: usize = 8 << 20;

/// Memory of a thread besides the pairs, in bytes: its write blocks.
const THREAD_OVERHEAD: usize = 3 << 20;

/// The split of the memory limit, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemorySplit {
    pub(crate) threads: usize,
    /// For all batches, including the memory for sorting them.
    pub(crate) batches: usize,
    /// For one batch, unless a single pair takes more.
    pub(crate) batch: usize,
    /// For reading the runs of a merge.
    pub(crate) merge: usize,
    /// For the headers of the minishards being written.
    pub(crate) minishards: usize,
}

impl MemorySplit {
    pub(crate) fn new(memory: u64, threads: usize) -> MemorySplit {
        // tests set less than the minimum, so that a few pairs cause a spill; the loader may exceed such a limit
        let (min_per_thread, overhead) = if memory < MIN_MEMORY { (1, 0) } else { (MIN_PER_THREAD, THREAD_OVERHEAD) };
        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
        let threads = threads.min(memory / min_per_thread).max(1);
        let blocks = threads * overhead;
        let minishards = memory / 8;
        let batches = memory.saturating_sub(minishards + blocks);
        // 1/8 is for `minishards`, and 1/8 for what is not counted: heads and band tables of runs, and the blocks for
        // large pairs and for minishards with too many pairs for memory
        let merge = (memory / 8 * 6).saturating_sub(blocks);
        // While batches are banded, each thread holds a copy of one batch: its pieces. With up to 64 threads, and no
        // pair larger than `batch`, the copies take at most 1/8 of `batches`. They fit into the memory of `minishards`,
        // which is unused until the shards are written.
        let batch = (batches / (8 * threads).max(16)).min(PREFERRED_BATCH).max(batches / MANY_BATCHES).min(MAX_BATCH);
        MemorySplit { threads, batches, batch, merge, minishards }
    }

    /// Returns the maximum cost (`Batch::cost_of`) of a pair in a batch. A larger pair goes to the file of large pairs.
    pub(crate) fn max_pair(&self) -> usize {
        (self.batches / 8).min(MAX_BATCH)
    }

    /// Returns the maximum cost of the batches that are spilled as one run, unless a single batch takes more.
    pub(crate) fn max_run(&self) -> usize {
        self.batches / 4
    }
}
