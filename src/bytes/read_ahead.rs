//! Read-ahead for positioned reads during a pass over a file.
//!
//! Sequential reads form a run and are served from a block that is read ahead. The block grows as the run continues. A
//! read elsewhere reads only the requested range and begins a new run. A walk through a shard makes up to three runs:
//! indexes, values and checks. Adjacent ones are one run.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::byte_range::ByteRange;
use crate::bytes::AlignedBytes;
use crate::error::{Error, Result};
use crate::format::locks::lock;

/// The number of runs that are tracked at once.
const RUNS: usize = 4;

/// The longest gap within a run: reading these bytes is cheaper than another system call.
const NEAR: u64 = 16 << 10;

/// The largest block.
const MAX_BLOCK: u64 = 256 << 10;

/// The blocks of one file. Empty while there is no pass.
#[derive(Default)]
pub(crate) struct ReadAhead {
    passes: AtomicUsize,
    /// Most recently used first.
    runs: Mutex<[ReadRun; RUNS]>,
}

/// A run of sequential reads, with the block that serves them.
#[derive(Default)]
struct ReadRun {
    start: u64,
    block: Option<AlignedBytes>,
}

impl ReadAhead {
    /// Returns whether it is the only pass.
    pub(crate) fn begin_pass(&self) -> bool {
        self.passes.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Returns whether it was the last pass.
    pub(crate) fn end_pass(&self) -> bool {
        let is_last = self.passes.fetch_sub(1, Ordering::Relaxed) == 1;
        if is_last {
            *lock(&self.runs) = Default::default();
        }
        is_last
    }

    /// Whether a range is read through a block: during a pass, if it is smaller than the largest block.
    #[inline]
    pub(crate) fn wants(&self, range: ByteRange) -> bool {
        self.passes.load(Ordering::Relaxed) > 0 && range.len() < MAX_BLOCK
    }

    /// Returns the bytes of a range of the file. `read` reads one block, unaligned.
    pub(crate) fn read(
        &self,
        range: ByteRange,
        file_len: u64,
        alignment: usize,
        read: impl FnOnce(ByteRange) -> Result<AlignedBytes>,
    ) -> Result<AlignedBytes> {
        let mut runs = lock(&self.runs);
        let known = runs.iter().position(|run| run.goes_on_with(range));
        if let Some(up_to_it) = runs.get_mut(..=known.unwrap_or(RUNS - 1)) {
            up_to_it.rotate_right(1);
        }
        let [run, ..] = &mut *runs;
        if known.is_none() {
            *run = ReadRun::default();
        }
        if run.block.is_none() || range.end > run.end() {
            run.move_to(range, file_len, read)?;
        }
        run.copy(range, alignment)
    }
}

impl ReadRun {
    fn len(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.len() as u64)
    }

    fn end(&self) -> u64 {
        self.start + self.len()
    }

    /// Whether a range begins in the block or near its end.
    fn goes_on_with(&self, range: ByteRange) -> bool {
        self.block.is_some() && self.start <= range.start && range.start <= self.end() + NEAR
    }

    /// Copies the bytes of a range out of the block.
    fn copy(&self, range: ByteRange, alignment: usize) -> Result<AlignedBytes> {
        let start = range.start - self.start;
        let in_block = ByteRange { start, end: start + range.len() };
        let bytes = self.block.as_deref().and_then(|block| in_block.of(block));
        let bytes = bytes.ok_or_else(|| {
            Error::internal("expected the range in the block that was read ahead, found its end before")
        })?;
        AlignedBytes::copy_of(bytes, alignment)
    }

    /// Reads a new block that begins with `range` and is up to twice as long as the last block.
    fn move_to(
        &mut self,
        range: ByteRange,
        file_len: u64,
        read: impl FnOnce(ByteRange) -> Result<AlignedBytes>,
    ) -> Result<()> {
        let ahead = range.start + (2 * self.len()).min(MAX_BLOCK);
        let end = ahead.min(file_len).max(range.end);
        self.block = None; // frees the old block before the new one is allocated
        self.start = range.start;
        self.block = Some(read(ByteRange { start: range.start, end })?);
        Ok(())
    }
}
