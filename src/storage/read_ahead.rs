//! A file that is read once and mostly front to back, in a few places at a time.
//!
//! Reads that follow each other are served from a block read ahead; it grows while they go on so. A read elsewhere
//! takes only what was asked for and may be the first of another run. A walk through a shard makes up to three runs: indexes,
//! values and checks; where they lie side by side they become one.

use std::sync::{Mutex, PoisonError};

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::storage::{AlignedBytes, PositionedFile};

/// Runs of reads that are followed at the same time.
const RUNS: usize = 4;

/// To read past so many bytes is cheaper than another call.
const NEAR: u64 = 16 << 10;

/// What is read ahead at most.
const MAX_BLOCK: u64 = 1 << 20;

/// An open file with the blocks that were read ahead.
pub(crate) struct ReadAheadFile {
    file: PositionedFile,
    /// The one used last comes first.
    runs: Mutex<[Run; RUNS]>,
}

/// Reads that follow each other: the block that serves them.
#[derive(Default)]
struct Run {
    start: u64,
    block: Option<AlignedBytes>,
}

impl ReadAheadFile {
    pub(crate) fn new(file: PositionedFile) -> ReadAheadFile {
        ReadAheadFile { file, runs: Mutex::default() }
    }

    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.file.len()
    }

    /// The bytes of a range that lies in the file.
    pub(crate) fn read(&self, range: ByteRange, alignment: usize) -> Result<AlignedBytes> {
        if range.len() >= MAX_BLOCK {
            return self.file.read(range, alignment);
        }
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let known = runs.iter().position(|run| run.goes_on_with(range));
        let used = known.unwrap_or(RUNS - 1);
        if let Some(runs) = runs.get_mut(..=used) {
            runs.rotate_right(1);
        }
        let [run, ..] = &mut *runs;
        if known.is_none() {
            *run = Run { start: range.start, block: None };
        }
        run.read(&self.file, range, alignment)
    }
}

impl Run {
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

    fn read(&mut self, file: &PositionedFile, range: ByteRange, alignment: usize) -> Result<AlignedBytes> {
        if self.block.is_none() || range.end > self.end() {
            self.move_to(file, range)?;
        }
        let start = range.start - self.start;
        let in_block = ByteRange { start, end: start + range.len() };
        let bytes = self.block.as_deref().and_then(|block| in_block.of(block));
        let bytes = bytes.ok_or_else(|| Error::corrupt("expected bytes of the file, found its end"))?;
        let mut copy = AlignedBytes::zeroed(bytes.len(), alignment)?;
        copy.as_mut().copy_from_slice(bytes);
        Ok(copy)
    }

    /// Reads the range, and behind it twice what the last block had.
    fn move_to(&mut self, file: &PositionedFile, range: ByteRange) -> Result<()> {
        let ahead = range.start + (2 * self.len()).min(MAX_BLOCK);
        let end = ahead.min(file.len()).max(range.end);
        self.block = None; // one block a run at a time
        self.start = range.start;
        self.block = Some(file.read(ByteRange { start: range.start, end }, 1)?);
        Ok(())
    }
}
