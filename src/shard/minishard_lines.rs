//! The cache line that each minishard begins in, remembered so that it can be asked for before the shard index entry has
//! come: a lookup then waits for memory once and not twice.
//!
//! ```text
//! bases     one for every 2^group_bits minishards: the first line of theirs, plus one; 0: not learned yet
//! offsets   one for every minishard: lines from the base; 255: that many or more
//! ```
//!
//! Small, so that it stays in the processor's caches: some 1.25 bytes a minishard. And only a hint: the answer comes from the
//! entry itself, so a line that is out of date, half learned by another thread, or a lie of a broken file costs time and
//! nothing else.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use zerocopy::FromZeros;

use crate::byte_range::RelativeRange;

/// The size of a line; the one of [`prefetch`](crate::prefetch).
const LINE_BITS: u32 = 6;

/// Lines that the minishards of a group should have together: with room up to [`FAR`], for they are not all of a length.
const GROUP_LINES: u64 = 160;

/// An offset that is this or more.
const FAR: u8 = u8::MAX;

/// Minishards that are learned at once: those whose entries share a page, which is being read anyhow.
pub(crate) const LEARNED_AT_ONCE: u64 = 256;

/// More minishards than this in one shard are not remembered.
pub(crate) const MOST: u64 = 1 << 24;

/// Where the minishards of one shard begin, as far as lookups have come by.
pub(crate) struct MinishardLines {
    group_bits: u32,
    bases: Box<[AtomicU32]>,
    offsets: Box<[AtomicU8]>,
}

impl MinishardLines {
    /// Nothing learned yet, of a shard with `minishards` (a power of two) in the `len` bytes behind its index.
    ///
    /// The caller has seen to it that the file has a shard index of so many entries.
    pub(crate) fn new(minishards: u64, len: u64) -> MinishardLines {
        let minishards = if minishards <= MOST { minishards } else { 0 };
        let lines_each = (len >> LINE_BITS).checked_div(minishards).unwrap_or(0).max(1);
        let group_bits = (GROUP_LINES / lines_each).checked_ilog2().unwrap_or(0);
        let groups = minishards.div_ceil(1 << group_bits);
        MinishardLines { group_bits, bases: zeros(groups), offsets: zeros(minishards) }
    }

    /// Of a shard that is not read in place.
    pub(crate) fn none() -> MinishardLines {
        MinishardLines::new(0, 0)
    }

    /// Where the line begins that a minishard begins in, relative to the end of the shard index, if it has been learned.
    #[inline]
    pub(crate) fn position(&self, minishard: u64) -> Option<u64> {
        let at = usize::try_from(minishard).ok()?;
        let base = self.bases.get(at >> self.group_bits)?.load(Ordering::Relaxed).checked_sub(1)?;
        let offset = self.offsets.get(at)?.load(Ordering::Relaxed);
        Some((u64::from(base) + u64::from(offset)) << LINE_BITS)
    }

    /// Learns where the minishards around this one begin, from what their entries say.
    pub(crate) fn learn(&self, minishard: u64, index_of: impl Fn(u64) -> Option<RelativeRange>) {
        let first = minishard - minishard % LEARNED_AT_ONCE;
        for group in first >> self.group_bits..(first + LEARNED_AT_ONCE) >> self.group_bits {
            self.learn_group(group, &index_of);
        }
    }

    fn learn_group(&self, group: u64, index_of: impl Fn(u64) -> Option<RelativeRange>) {
        let at = usize::try_from(group).unwrap_or(usize::MAX);
        let (Some(base), Some(offsets)) = (self.bases.get(at), self.offsets.chunks(1 << self.group_bits).nth(at))
        else {
            return;
        };
        let line = |minishard: u64| index_of(minishard).map(|index| index.start >> LINE_BITS);
        let minishards = group << self.group_bits..;
        let first_line =
            minishards.clone().zip(offsets).filter_map(|(minishard, _)| line(minishard)).min().unwrap_or(0);
        for (minishard, offset) in minishards.zip(offsets) {
            let lines = line(minishard).map_or(0, |line| line - first_line);
            offset.store(u8::try_from(lines).unwrap_or(FAR), Ordering::Relaxed);
        }
        base.store(u32::try_from(first_line).map_or(1, |line| line.saturating_add(1)), Ordering::Relaxed);
    }
}

/// Memory that is zeros because it is new, and takes none until it is written; none at all if it cannot be had.
fn zeros<T: FromZeros>(len: u64) -> Box<[T]> {
    usize::try_from(len).ok().and_then(|len| T::new_vec_zeroed(len).ok()).unwrap_or_default().into()
}

/// Where the line begins that a byte lies in.
#[inline]
pub(crate) fn line_of(position: u64) -> u64 {
    position >> LINE_BITS << LINE_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Minishards of 300 bytes, every seventh without keys.
    fn index_of(minishard: u64) -> Option<RelativeRange> {
        let start = 300 * minishard;
        (!minishard.is_multiple_of(7)).then_some(RelativeRange { start, end: start + 96 })
    }

    #[test]
    fn a_learned_line_is_the_one_that_the_index_begins_in() {
        for (minishards, len) in [(1, 300), (2, 600), (64, 64 * 300), (1024, 1024 * 300), (1024, 1024 * 90_000)] {
            let lines = MinishardLines::new(minishards, len);
            assert_eq!(lines.position(minishards - 1), None);
            lines.learn(minishards - 1, index_of);
            for minishard in minishards.saturating_sub(256)..minishards {
                let position = lines.position(minishard).unwrap();
                if let Some(index) = index_of(minishard) {
                    assert_eq!(position, line_of(index.start), "{minishard} of {minishards}, {len} bytes");
                }
            }
            assert!((0..minishards.saturating_sub(256)).all(|minishard| lines.position(minishard).is_none()));
        }
    }

    #[test]
    fn what_cannot_be_is_learned_as_something_else() {
        let lines = MinishardLines::new(4, 4 * 300);
        let far = |minishard| Some(RelativeRange { start: u64::MAX - 7 * minishard, end: 0 });
        lines.learn(0, far);
        assert!((0..4).all(|minishard| lines.position(minishard).is_some()));
        assert_eq!(lines.position(4), None);
        assert_eq!(lines.position(u64::MAX), None);
    }

    #[test]
    fn more_minishards_than_are_remembered_take_no_memory() {
        for lines in
            [MinishardLines::new(MOST * 2, u64::MAX), MinishardLines::new(1 << 32, 0), MinishardLines::new(0, 0)]
        {
            lines.learn(5, index_of);
            assert_eq!((lines.position(5), lines.offsets.len(), lines.bases.len()), (None, 0, 0));
        }
    }
}
