//! Reading ahead in a file that is read at positions, while somebody walks through it.
//!
//! Reads that follow each other are served from a block read ahead; it grows while they go on so. A read elsewhere
//! takes only what was asked for and may be the first of another run. A walk through a shard makes up to three runs: indexes,
//! values and checks; where they lie side by side they become one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::storage::AlignedBytes;

/// Runs of reads that are followed at the same time.
const RUNS: usize = 4;

/// To read past so many bytes is cheaper than another call.
const NEAR: u64 = 16 << 10;

/// What is read ahead at most.
const MAX_BLOCK: u64 = 256 << 10;

/// The blocks of one file, while passes over it are under way.
#[derive(Default)]
pub(crate) struct ReadAhead {
    passes: AtomicUsize,
    /// The one used last comes first.
    runs: Mutex<[ReadRun; RUNS]>,
}

/// Reads that follow each other: the block that serves them.
#[derive(Default)]
struct ReadRun {
    start: u64,
    block: Option<AlignedBytes>,
}

impl ReadAhead {
    pub(crate) fn begin_pass(&self) {
        self.passes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_pass(&self) {
        if self.passes.fetch_sub(1, Ordering::Relaxed) == 1 {
            *self.runs() = Default::default();
        }
    }

    /// Whether a range is to be read through here: not without a pass, and not if it is as large as any block.
    #[inline]
    pub(crate) fn wants(&self, range: ByteRange) -> bool {
        self.passes.load(Ordering::Relaxed) > 0 && range.len() < MAX_BLOCK
    }

    /// The bytes of a range of the file. `read` reads one block of it, unaligned.
    pub(crate) fn read(
        &self,
        range: ByteRange,
        file_len: u64,
        alignment: usize,
        read: impl FnOnce(ByteRange) -> Result<AlignedBytes>,
    ) -> Result<AlignedBytes> {
        let mut runs = self.runs();
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

    fn runs(&self) -> MutexGuard<'_, [ReadRun; RUNS]> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadRun {
    fn len(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.len() as u64)
    }

    fn end(&self) -> u64 {
        self.start + self.len()
    }

    /// Whether a range lies in the block or near its end.
    fn goes_on_with(&self, range: ByteRange) -> bool {
        self.block.is_some() && self.start <= range.start && range.start <= self.end() + NEAR
    }

    /// The bytes of a range in the block.
    fn copy(&self, range: ByteRange, alignment: usize) -> Result<AlignedBytes> {
        let start = range.start - self.start;
        let in_block = ByteRange { start, end: start + range.len() };
        let bytes = self.block.as_deref().and_then(|block| in_block.of(block));
        let bytes = bytes.ok_or_else(|| Error::corrupt("expected bytes of the file, found its end"))?;
        let mut copy = AlignedBytes::zeroed(bytes.len(), alignment)?;
        copy.as_mut().copy_from_slice(bytes);
        Ok(copy)
    }

    /// Reads the range, and behind it twice what the last block had.
    fn move_to(
        &mut self,
        range: ByteRange,
        file_len: u64,
        read: impl FnOnce(ByteRange) -> Result<AlignedBytes>,
    ) -> Result<()> {
        let ahead = range.start + (2 * self.len()).min(MAX_BLOCK);
        let end = ahead.min(file_len).max(range.end);
        self.block = None; // one block a run at a time
        self.start = range.start;
        self.block = Some(read(ByteRange { start: range.start, end })?);
        Ok(())
    }
}
