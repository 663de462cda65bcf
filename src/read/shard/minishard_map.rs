//! The minishard map of an open shard, in memory: where each minishard begins, and which parts of it are trusted. The
//! minishard table ([`table_file`](super::table_file)) has the same positions in a file.
//!
//! ```text
//! bases     u32  per group of 2^group_bits minishards: 1 + the first line of the group; 0: not filled yet
//! offsets   u8   per minishard: the line in which its index begins, relative to the first line of the group
//! details   u16  per minishard: rows (8 bits) | trusted parts (2 bits) | byte within the line (6 bits)
//! ```
//!
//! A line is 64 bytes of the body (the bytes after the shard index), counted from its start. It is a cache line if the
//! body begins at a multiple of 64, as in a mapped shard of at least 4 minishards.
//!
//! A block of 256 minishards is filled at its first use, from the minishard table or else from the shard index. A
//! lookup prefetches the minishard as soon as base and offset are known. Bases and offsets together take 1 +
//! 4/2^group_bits bytes per minishard (1.5 in groups of 8), few enough to stay in the processor's caches. The details
//! are read while the prefetch is in progress. Pages of the map without a filled block take no memory.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use bytemuck::Zeroable;

use crate::byte_range::RelativeRange;
use crate::format::minishard_index::ROW_LEN;
use crate::format::minishard_table::{BLOCK_BITS, MOST_MINISHARDS};
use crate::format::spec::ShardingSpec;
use crate::ids::MinishardNumber;
use crate::prefetch;

/// log2 of the size of a line, which is that of a cache line in [`prefetch`].
const LINE_BITS: u32 = 6;

/// The intended number of lines per group. It is less than the 256 lines that an offset can state, because minishards
/// differ in length.
const GROUP_LINES: u64 = 160;

/// Minishards of fewer lines are short.
const SHORT_LINES: u64 = 4;

/// The row count that marks a minishard as not in the map. Minishards with this many rows or more are not in the map:
/// lookups use the minishard table or the shard index.
const NOT_IN_MAP: u16 = u8::MAX as u16;

/// The parts of a minishard that lookups use without verification: verified, or exempt by the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trusted(u16);

impl Trusted {
    pub(crate) const NOTHING: Trusted = Trusted(0);

    /// The index, and with it the set of keys.
    pub(crate) const INDEX: Trusted = Trusted(1);

    /// The index and the values.
    pub(crate) const ALL: Trusted = Trusted(3);

    #[inline]
    pub(crate) fn has_index(self) -> bool {
        self.0 & Self::INDEX.0 != 0
    }

    #[inline]
    pub(crate) fn has_all(self) -> bool {
        self == Self::ALL
    }
}

/// The line of the body in which the index of a minishard begins. A lookup knows it before the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line(u64);

impl Line {
    /// Returns the offset of the line in the body.
    #[inline]
    pub(crate) fn start(self) -> u64 {
        self.0 << LINE_BITS
    }
}

/// The range of a minishard index, and the trusted parts of the minishard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownMinishard {
    /// Offset of the index, relative to the end of the shard index.
    pub(crate) start: u64,
    /// 0 if the minishard has no keys.
    pub(crate) rows: u32,
    pub(crate) trusted: Trusted,
}

impl KnownMinishard {
    /// Returns the range of the index; empty if the minishard has no keys.
    pub(crate) fn index(self) -> RelativeRange {
        RelativeRange { start: self.start, end: self.start + ROW_LEN * u64::from(self.rows) }
    }
}

/// The minishard map of one shard with raw indexes. Filled block by block as lookups use it.
pub(crate) struct MinishardMap {
    group_bits: u32,
    /// Whether minishards are short: on average less than [`SHORT_LINES`].
    is_short: bool,
    bases: Box<[AtomicU32]>,
    offsets: Box<[AtomicU8]>,
    details: Box<[AtomicU16]>,
    /// The number of minishards that [`mark`](Self::mark) has marked.
    marked: AtomicU64,
}

impl MinishardMap {
    /// Creates an empty map for a shard with `len` bytes after its shard index.
    pub(crate) fn new(spec: &ShardingSpec, len: u64) -> MinishardMap {
        let minishards = if spec.minishards() <= MOST_MINISHARDS { spec.minishards() } else { 0 };
        let lines_each = (len >> LINE_BITS).checked_div(minishards).unwrap_or(0).max(1);
        let group_bits = (GROUP_LINES / lines_each).checked_ilog2().unwrap_or(0);
        MinishardMap {
            group_bits,
            is_short: lines_each < SHORT_LINES,
            bases: zeros(minishards.div_ceil(1 << group_bits)),
            offsets: zeros(minishards),
            details: zeros(minishards),
            marked: AtomicU64::new(0),
        }
    }

    /// Creates a map that stays empty.
    pub(crate) fn none() -> MinishardMap {
        let (bases, offsets, details) = (Box::default(), Box::default(), Box::default());
        MinishardMap { group_bits: 0, is_short: true, bases, offsets, details, marked: AtomicU64::new(0) }
    }

    /// Whether most minishards are short: an index and its values are within about [`SHORT_LINES`].
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Returns the line in which a minishard begins; `None` if its block is not filled, or the map has no such block.
    ///
    /// For a minishard without keys, or one that is not in the map, this is the first line of its group. It may be
    /// prefetched all the same, before [`details`](Self::details) returns which case it is.
    #[inline(always)]
    pub(crate) fn line(&self, number: MinishardNumber) -> Option<Line> {
        let at = usize::try_from(number.get()).ok()?;
        let base = self.bases.get(at >> self.group_bits)?.load(Ordering::Acquire).checked_sub(1)?;
        let offset = self.offsets.get(at)?.load(Ordering::Relaxed);
        Some(Line(u64::from(base) + u64::from(offset)))
    }

    /// Returns the details of a minishard whose line is known; `None` if it is not in the map.
    #[inline(always)]
    pub(crate) fn details(&self, number: MinishardNumber, line: Line) -> Option<KnownMinishard> {
        let details = self.details.get(usize::try_from(number.get()).ok()?)?.load(Ordering::Relaxed);
        let rows = details >> 8;
        let start = line.start() + u64::from(details & ((1 << LINE_BITS) - 1));
        let trusted = Trusted(details >> LINE_BITS & Trusted::ALL.0);
        (rows < NOT_IN_MAP).then_some(KnownMinishard { start, rows: u32::from(rows), trusted })
    }

    /// Returns what the map has of a minishard; `None` if its block is not filled, or it is not in the map.
    pub(crate) fn get(&self, number: MinishardNumber) -> Option<KnownMinishard> {
        self.details(number, self.line(number)?)
    }

    /// Prefetches what the map has of a minishard.
    #[inline]
    pub(crate) fn prefetch(&self, number: MinishardNumber) {
        let Ok(at) = usize::try_from(number.get()) else { return };
        self.bases.get(at >> self.group_bits).iter().for_each(|base| prefetch::item(*base));
        self.offsets.get(at).iter().for_each(|offset| prefetch::item(*offset));
        self.details.get(at).iter().for_each(|details| prefetch::item(*details));
    }

    /// Whether the map has room for the block of a minishard, and the block is not filled yet.
    pub(crate) fn can_fill(&self, number: MinishardNumber) -> bool {
        let group = usize::try_from(number.get() >> self.group_bits).ok();
        let base = group.and_then(|group| self.bases.get(group));
        base.is_some_and(|base| base.load(Ordering::Acquire) == 0)
    }

    /// Fills a block of minishards, whose `trusted` parts need no verification. Each item is the range of an index,
    /// empty if the minishard has no keys, or `None` if the source does not state it: the minishard is then not in the
    /// map.
    ///
    /// Several threads may fill a block concurrently, one from the minishard table and another from the shard index.
    /// Both state the same ranges, because the checksum of a table block covers the CRC-32 of the shard index. A thread
    /// may clear trusted bits that another has set in between: that minishard is verified, and counted, again.
    pub(crate) fn fill(&self, block: u64, indexes: &[Option<RelativeRange>], trusted: Trusted) {
        const { assert!(GROUP_LINES.ilog2() <= BLOCK_BITS) }; // a group is within one block
        let first = block << BLOCK_BITS;
        for (group, indexes) in (first >> self.group_bits..).zip(indexes.chunks(1 << self.group_bits)) {
            self.fill_group(group, indexes, trusted);
        }
    }

    fn fill_group(&self, group: u64, indexes: &[Option<RelativeRange>], trusted: Trusted) {
        let Ok(group) = usize::try_from(group) else { return };
        let at = group << self.group_bits;
        let (Some(base), Some(offsets), Some(details)) =
            (self.bases.get(group), self.offsets.get(at..), self.details.get(at..))
        else {
            return;
        };
        let with_keys = indexes.iter().flatten().filter(|index| index.start != index.end);
        let first_line = with_keys.map(|index| index.start >> LINE_BITS).min().unwrap_or(0);
        let first_line = u32::try_from(first_line).unwrap_or(u32::MAX).min(u32::MAX - 1);
        for ((index, offset), detail) in indexes.iter().zip(offsets).zip(details) {
            let (line, packed) = index.and_then(|index| pack(index, first_line)).unwrap_or((0, NOT_IN_MAP << 8));
            offset.store(line, Ordering::Relaxed);
            detail.store(packed | trusted.0 << LINE_BITS, Ordering::Relaxed);
        }
        base.store(first_line + 1, Ordering::Release);
    }

    /// Marks parts of a minishard as trusted. Does nothing if the minishard is not in the map.
    ///
    /// The caller has verified these parts, with the index at the range that [`get`](Self::get) returns, or they are
    /// exempt.
    pub(crate) fn mark(&self, number: MinishardNumber, trusted: Trusted) {
        let details = usize::try_from(number.get()).ok().and_then(|at| self.details.get(at));
        if let (Some(details), true) = (details, self.get(number).is_some()) {
            let before = details.fetch_or(trusted.0 << LINE_BITS, Ordering::Relaxed);
            let is_new = before >> LINE_BITS & Trusted::ALL.0 == Trusted::NOTHING.0;
            self.marked.fetch_add(u64::from(is_new), Ordering::Relaxed);
        }
    }

    /// Returns the number of minishards that [`mark`](Self::mark) has marked.
    pub(crate) fn marked(&self) -> u64 {
        self.marked.load(Ordering::Relaxed)
    }
}

/// Packs the range of an index into its offset and its details, without trusted parts. `None` if it does not fit.
fn pack(index: RelativeRange, first_line: u32) -> Option<(u8, u16)> {
    if index.start == index.end {
        return Some((0, 0));
    }
    let len = index.end.checked_sub(index.start).filter(|len| len.is_multiple_of(ROW_LEN))?;
    let rows = u16::try_from(len / ROW_LEN).ok().filter(|rows| *rows < NOT_IN_MAP)?;
    let offset = (index.start >> LINE_BITS).checked_sub(u64::from(first_line))?;
    let byte = u16::try_from(index.start & ((1 << LINE_BITS) - 1)).ok()?;
    Some((u8::try_from(offset).ok()?, rows << 8 | byte))
}

/// Allocates `len` zeros, whose pages take no memory until they are written. Empty if the allocation fails.
pub(super) fn zeros<T: Zeroable>(len: u64) -> Box<[T]> {
    usize::try_from(len).ok().and_then(|len| bytemuck::try_zeroed_slice_box(len).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::hash::HashFunction;
    use crate::ids::minishard_number;

    fn spec(minishard_bits: u8) -> ShardingSpec {
        ShardingSpec::new(HashFunction::Identity, 0, minishard_bits, 0).unwrap()
    }

    fn index(start: u64, end: u64) -> Option<RelativeRange> {
        Some(RelativeRange { start, end })
    }

    /// Minishards of 1 to 9 rows, every seventh without keys, each followed by some units of values.
    fn indexes(count: u64, unit: u64) -> Vec<Option<RelativeRange>> {
        let mut start = 0;
        let minishards = (0..count).map(|number| {
            let rows = number * 7919 % 9 + 1;
            let found = if number.is_multiple_of(7) { index(0, 0) } else { index(start, start + 24 * rows) };
            start += 24 * rows + unit * (number * 104_729 % 97);
            found
        });
        minishards.collect()
    }

    fn filled(minishard_bits: u8, indexes: &[Option<RelativeRange>]) -> MinishardMap {
        let len = indexes.iter().flatten().map(|index| index.end).max().unwrap();
        let map = MinishardMap::new(&spec(minishard_bits), len);
        for (block, indexes) in (0..).zip(indexes.chunks(256)) {
            assert!(map.can_fill(minishard_number(block * 256)));
            map.fill(block, indexes, Trusted::NOTHING);
            assert!(!map.can_fill(minishard_number(block * 256 + indexes.len() as u64 - 1)));
        }
        map
    }

    #[test]
    fn what_is_known_is_what_was_filled_in() {
        for (minishard_bits, unit) in [(1, 8), (5, 3), (8, 8), (10, 8), (10, 3), (10, 0), (10, 100)] {
            let indexes = indexes(1 << minishard_bits, unit);
            let map = filled(minishard_bits, &indexes);
            for (number, index) in (0..).map(minishard_number).zip(indexes.iter().flatten()) {
                let known = map.get(number).unwrap();
                if index.start == index.end {
                    assert_eq!(known.rows, 0)
                } else {
                    assert_eq!(known.index(), *index, "{number:?} of 2^{minishard_bits}")
                }
                assert_eq!(map.line(number).unwrap().start(), known.start / 64 * 64);
                assert_eq!(known.trusted, Trusted::NOTHING);
            }
            assert_eq!(map.get(minishard_number(1 << minishard_bits)), None);
            assert_eq!(map.get(minishard_number(u64::MAX)), None);
        }
    }

    #[test]
    fn what_has_no_room_is_left_to_the_shard_index() {
        let mut indexes = indexes(256, 8);
        indexes[3] = index(1 << 60, (1 << 60) + 24); // too far away
        indexes[5] = index(u64::MAX - 7, 16); // not in order
        indexes[8] = index(1600, 1600 + 23); // no whole rows
        indexes[9] = None;
        indexes[11] = index(8, 8 + 24 * 255); // many rows
        let map = filled(8, &indexes);
        for number in [3, 5, 8, 9, 11] {
            assert_eq!(map.get(minishard_number(number)), None, "{number}");
            assert!(!map.can_fill(minishard_number(number)));
        }
        for number in [1, 2, 4, 255] {
            let index = indexes[usize::try_from(number).unwrap()];
            assert_eq!(map.get(minishard_number(number)).map(KnownMinishard::index), index, "{number}");
        }
    }

    #[test]
    fn marks_are_kept_and_of_one_minishard() {
        let indexes = indexes(512, 8);
        let map = filled(9, &indexes);
        let state = |number| map.get(minishard_number(number)).unwrap().trusted;
        let mut counted = 0;
        for number in (0..512).filter(|number| number % 3 != 0) {
            map.mark(minishard_number(number), if number % 3 == 1 { Trusted::INDEX } else { Trusted::ALL });
            counted += 1;
            assert_eq!(map.marked(), counted);
        }
        for (number, index) in (0..).zip(indexes.iter().flatten()) {
            let expected = match number % 3 {
                0 => Trusted::NOTHING,
                1 => Trusted::INDEX,
                _ => Trusted::ALL,
            };
            assert_eq!(state(number), expected, "{number}");
            let known = map.get(minishard_number(number)).unwrap();
            assert!(known.rows == 0 || known.index() == *index, "{number}");
        }
        map.mark(minishard_number(1), Trusted::ALL);
        assert_eq!((state(1), map.marked()), (Trusted::ALL, counted), "counted once");
    }

    #[test]
    fn more_minishards_than_are_kept_take_no_memory() {
        for map in [MinishardMap::new(&spec(25), 1 << 40), MinishardMap::none()] {
            assert!(map.details.is_empty() && !map.can_fill(minishard_number(0)));
            map.fill(0, &indexes(256, 8), Trusted::ALL);
            map.mark(minishard_number(1), Trusted::ALL);
            assert_eq!((map.get(minishard_number(1)), map.marked()), (None, 0));
        }
    }
}
