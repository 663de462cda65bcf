//! Where the minishards of an open shard begin, and what of them has been verified: the minishard table in memory.
//!
//! ```text
//! lines   one for each block of 256 minishards: the line through it; unset until the block is filled
//! words   for each minishard state (2 bits), length, deviation: packed as in the file of the table
//! ```
//!
//! A block is filled at first touch, from the table's file or else from its page of the shard index. Some 2.5 bytes a
//! minishard, of which a lookup reads one cache line of `words` and one of `lines`; what no lookup touched takes no memory.

use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::FromZeros;

use crate::byte_range::RelativeRange;
use crate::format::minishard_index::ROW_LEN;
use crate::format::minishard_table::{self, Block, IndexPlace, Line, MOST_MINISHARDS, Packing};
use crate::format::shard_index::ShardIndexEntry;
use crate::spec::{Encoding, MinishardNumber, ShardingSpec};

/// What of a minishard has been compared with its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verified(u64);

impl Verified {
    const BITS: u32 = 2;

    pub(crate) const NOTHING: Verified = Verified(0);

    /// The index, and with it which keys there are.
    pub(crate) const INDEX: Verified = Verified(1);

    /// Index and values.
    pub(crate) const ALL: Verified = Verified(3);

    #[inline]
    pub(crate) fn has_index(self) -> bool {
        self.0 & Self::INDEX.0 != 0
    }

    #[inline]
    pub(crate) fn has_all(self) -> bool {
        self == Self::ALL
    }
}

/// A minishard of which the table says where its index lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownMinishard {
    /// Empty if the minishard has no keys.
    pub(crate) index: RelativeRange,
    pub(crate) verified: Verified,
}

/// The minishards of one shard, as far as lookups have come by.
pub(crate) struct Minishards {
    packing: Packing,
    block_bits: u32,
    /// The bytes that a length counts.
    length_unit: u64,
    /// The state of a minishard when its block is filled.
    initial: Verified,
    lines: Box<[BlockLine]>,
    words: Box<[AtomicU64]>,
    verified: AtomicU64,
}

/// The line through a block: its first position, and its step plus one, which is 0 before the block is filled.
type BlockLine = [AtomicU64; 2];

impl Minishards {
    /// Nothing known yet. `packing` is that of the table's section; without one it is guessed for a file with `len` bytes
    /// behind its shard index whose minishards begin at multiples of `1 << unit_bits`.
    ///
    /// The caller has seen to it that the file has a shard index of so many entries.
    pub(crate) fn new(spec: &ShardingSpec, packing: Packing, initial: Verified) -> Minishards {
        let block_bits = minishard_table::block_bits(spec.minishard_bits());
        let blocks = if spec.minishards() <= MOST_MINISHARDS { spec.minishards() >> block_bits } else { 0 };
        let words = minishard_table::words_of(packing.bits() + Verified::BITS, block_bits) as u64;
        Minishards {
            packing,
            block_bits,
            length_unit: match spec.minishard_index_encoding() {
                Encoding::Raw => ROW_LEN,
                Encoding::Gzip => 1,
            },
            initial,
            lines: zeros(blocks),
            words: zeros(blocks * words + 1), // the last minishard's bits are read with the word behind them
            verified: AtomicU64::new(0),
        }
    }

    /// Nothing known, ever: each minishard is looked up in the shard index.
    pub(crate) fn none(spec: &ShardingSpec) -> Minishards {
        Minishards {
            lines: Box::default(),
            words: Box::default(),
            ..Minishards::new(spec, Packing::default(), Verified::NOTHING)
        }
    }

    /// A packing for a shard without a section: for minishards up to twice as long as possible on average, 32 average ones
    /// before and behind the line. Whatever does not fit is looked up in the shard index.
    pub(crate) fn guessed_packing(minishards: u64, len: u64, unit_bits: u32) -> Packing {
        let bits = |most: u64| u64::BITS - most.leading_zeros();
        let average = len / minishards.max(1);
        let deviation_bits = (bits(average >> unit_bits) + 6).min(32);
        let length_bits = (bits(average / ROW_LEN) + 2).min(16);
        Packing { unit_bits, deviation_bits, length_bits, bias: 1 << (deviation_bits - 1) }
    }

    /// What is known of a minishard; `None` before its block is filled, and if only the shard index tells.
    #[inline]
    pub(crate) fn get(&self, number: MinishardNumber) -> Option<KnownMinishard> {
        let at = usize::try_from(number.0).ok()?;
        let [first, step] = self.lines.get(at >> self.block_bits)?;
        let step = step.load(Ordering::Acquire).checked_sub(1)?;
        let line = Line { first: first.load(Ordering::Relaxed), step };
        let (word, shift) = self.place_of(at);
        let low = self.words.get(word)?.load(Ordering::Relaxed);
        let high = self.words.get(word + 1)?.load(Ordering::Relaxed);
        let bits = minishard_table::bits_from(low, high, shift);
        let in_block = number.0 & ((1 << self.block_bits) - 1);
        let IndexPlace { start, length } =
            self.packing.unpack(bits >> Verified::BITS, line.at(in_block, self.block_bits))?;
        let end = start.wrapping_add(length.wrapping_mul(self.length_unit));
        Some(KnownMinishard { index: RelativeRange { start, end }, verified: Verified(bits & Verified::ALL.0) })
    }

    /// The word and the bit of it that the bits of a minishard begin with. Blocks begin with a word.
    #[inline]
    fn place_of(&self, at: usize) -> (usize, usize) {
        let bit = at * (self.packing.bits() + Verified::BITS) as usize;
        (bit / 64, bit % 64)
    }

    /// Asks the processor for what is known of a minishard.
    #[inline]
    pub(crate) fn prefetch(&self, number: MinishardNumber) {
        let at = usize::try_from(number.0).unwrap_or(usize::MAX);
        if let Some(word) = self.words.get(self.place_of(at).0) {
            crate::prefetch::item(word);
        }
    }

    /// Whether there is no room for this block, or it is filled.
    pub(crate) fn is_settled(&self, block: u64) -> bool {
        let line = usize::try_from(block).ok().and_then(|block| self.lines.get(block));
        line.is_none_or(|[_, step]| step.load(Ordering::Acquire) > 0)
    }

    /// The block of a minishard.
    pub(crate) fn block_of(&self, number: MinishardNumber) -> u64 {
        number.0 >> self.block_bits
    }

    /// The minishards of a block: the first, and how many.
    pub(crate) fn minishards_of(&self, block: u64) -> (MinishardNumber, usize) {
        (MinishardNumber(block << self.block_bits), 1 << self.block_bits)
    }

    /// Where the minishard behind this one begins, if it is of the same block: then this one ends there.
    pub(crate) fn next_start(&self, number: MinishardNumber) -> Option<u64> {
        let next = MinishardNumber(number.0 + 1);
        let same_block = self.block_of(next) == self.block_of(number);
        same_block.then(|| self.get(next)).flatten().map(|next| next.index.start)
    }

    /// Fills a block from the table's file, where it has the packing that this was made with.
    pub(crate) fn fill_from_table(&self, block: u64, stored: Block<'_>) {
        self.fill(block, stored.line, |in_block| stored.bits(in_block));
    }

    /// Fills a block from its entries of the shard index.
    pub(crate) fn fill_from_entries(&self, block: u64, entries: &[ShardIndexEntry]) {
        let start =
            |entry: &ShardIndexEntry| entry.minishard_index().map(|index| index.start >> self.packing.unit_bits);
        let line = line_through(entries.iter().map(start), self.block_bits);
        self.fill(block, line, |in_block| {
            let at = line.at(in_block as u64, self.block_bits);
            let entry = entries.get(in_block).copied();
            self.bits_of(entry, at).unwrap_or(self.packing.unstated())
        });
    }

    /// What the table would say of an entry; `None` if it has no room for it, or the entry is not as it should be.
    fn bits_of(&self, entry: Option<ShardIndexEntry>, line: u64) -> Option<u64> {
        let Some(RelativeRange { start, end }) = entry?.minishard_index() else { return Some(0) };
        let len = end.checked_sub(start)?;
        let is_whole = start.is_multiple_of(1 << self.packing.unit_bits) && len.is_multiple_of(self.length_unit);
        is_whole.then_some(())?;
        self.packing.pack(start >> self.packing.unit_bits, len / self.length_unit, line)
    }

    /// Several threads may fill a block at once: each writes the same. One of them may take back what another has marked as
    /// verified, which is then verified again.
    fn fill(&self, block: u64, line: Line, bits: impl Fn(usize) -> u64) {
        let Ok(block) = usize::try_from(block) else { return };
        let Some([first, step]) = self.lines.get(block) else { return };
        let (first_word, _) = self.place_of(block << self.block_bits);
        let mut words = self.words.iter().skip(first_word);
        let mut put = |word: u64| words.next().into_iter().for_each(|to| to.store(word, Ordering::Relaxed));
        let (mut word, mut filled) = (0u128, 0);
        for in_block in 0..1 << self.block_bits {
            let bits = bits(in_block) << Verified::BITS | self.initial.0;
            word |= u128::from(bits) << filled;
            filled += self.packing.bits() + Verified::BITS;
            if filled >= u64::BITS {
                put(minishard_table::low_word(word));
                (word, filled) = (word >> u64::BITS, filled - u64::BITS);
            }
        }
        if filled > 0 {
            put(minishard_table::low_word(word));
        }
        first.store(line.first, Ordering::Relaxed);
        step.store(line.step.saturating_add(1), Ordering::Release);
    }

    /// Marks what of a minishard was compared with its checks, so that it is not again.
    pub(crate) fn mark(&self, number: MinishardNumber, verified: Verified) {
        let Some(known) = self.get(number) else { return };
        let Ok(at) = usize::try_from(number.0) else { return };
        let (word, shift) = self.place_of(at);
        let bits = u128::from(verified.0) << shift;
        let both = [minishard_table::low_word(bits), minishard_table::low_word(bits >> u64::BITS)];
        for (word, bits) in self.words.iter().skip(word).zip(both) {
            if bits > 0 {
                word.fetch_or(bits, Ordering::Relaxed);
            }
        }
        if !known.verified.has_index() {
            self.verified.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many minishards were marked.
    pub(crate) fn verified(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }
}

/// The line through the first and the last of some starts, where they ascend.
fn line_through(starts: impl DoubleEndedIterator<Item = Option<u64>> + ExactSizeIterator, block_bits: u32) -> Line {
    let mut stated = starts.enumerate().filter_map(|(number, start)| Some((number as u64, start?)));
    let Some((first_number, first)) = stated.next() else { return Line { first: 0, step: 0 } };
    let (last_number, last) = stated.next_back().unwrap_or((first_number, first));
    let apart = u128::from(last.saturating_sub(first)) << block_bits;
    let step = apart.checked_div(u128::from(last_number - first_number)).unwrap_or(0);
    let step = u64::try_from(step).unwrap_or(u64::MAX >> block_bits);
    Line { first: first.wrapping_sub(Line { first: 0, step }.at(first_number, block_bits)), step }
}

/// Memory that is zeros because it is new, and takes none until it is written; none at all if it cannot be had.
fn zeros<T: FromZeros>(len: u64) -> Box<[T]> {
    usize::try_from(len).ok().and_then(|len| T::new_vec_zeroed(len).ok()).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashFunction;

    fn spec(minishard_bits: u8) -> ShardingSpec {
        ShardingSpec::new(HashFunction::Identity, 0, minishard_bits, 0).unwrap()
    }

    fn entry(start: u64, end: u64) -> ShardIndexEntry {
        ShardIndexEntry::new(RelativeRange { start, end })
    }

    /// Minishards of 1 to 9 rows, every seventh without keys, each with some bytes of values behind it.
    fn entries(count: u64, unit: u64) -> Vec<ShardIndexEntry> {
        let mut start = 0;
        let minishards = (0..count).map(|number| {
            let rows = number * 7919 % 9 + 1;
            let index = if number.is_multiple_of(7) { entry(0, 0) } else { entry(start, start + 24 * rows) };
            start += 24 * rows + unit * (number * 104_729 % 97);
            index
        });
        minishards.collect()
    }

    fn filled(minishard_bits: u8, entries: &[ShardIndexEntry], unit_bits: u32) -> Minishards {
        let len = entries.iter().filter_map(ShardIndexEntry::minishard_index).map(|index| index.end).max().unwrap();
        let packing = Minishards::guessed_packing(1 << minishard_bits, len, unit_bits);
        let minishards = Minishards::new(&spec(minishard_bits), packing, Verified::NOTHING);
        for block in 0..(1u64 << minishard_bits).div_ceil(256) {
            assert!(!minishards.is_settled(block));
            let (MinishardNumber(first), count) = minishards.minishards_of(block);
            let first = usize::try_from(first).unwrap();
            minishards.fill_from_entries(block, &entries[first..first + count]);
            assert!(minishards.is_settled(block));
        }
        minishards
    }

    #[test]
    fn what_is_known_is_what_the_entries_say() {
        for (minishard_bits, unit_bits) in [(0, 3), (1, 0), (5, 3), (8, 3), (10, 3), (10, 0)] {
            let entries = entries(1 << minishard_bits, if unit_bits == 3 { 8 } else { 3 });
            if minishard_bits == 0 {
                continue; // the one minishard has no keys
            }
            let minishards = filled(minishard_bits, &entries, unit_bits);
            for (number, entry) in (0..).zip(&entries) {
                let known = minishards.get(MinishardNumber(number)).unwrap();
                match entry.minishard_index() {
                    Some(index) => assert_eq!(known.index, index, "{number} of 2^{minishard_bits}"),
                    None => assert_eq!(known.index.start, known.index.end),
                }
                assert_eq!(known.verified, Verified::NOTHING);
            }
            assert_eq!(minishards.get(MinishardNumber(1 << minishard_bits)), None);
            assert_eq!(minishards.get(MinishardNumber(u64::MAX)), None);
        }
    }

    #[test]
    fn what_does_not_fit_is_left_to_the_shard_index() {
        let mut entries = entries(256, 8);
        entries[3] = entry(1 << 60, (1 << 60) + 24); // far behind
        entries[5] = entry(u64::MAX - 7, 16); // not in order
        entries[8] = entry(1600, 1600 + 23); // no whole rows
        entries[9] = entry(1601, 1601 + 24); // not aligned
        entries[11] = entry(8, 8 + 24 * 100_000); // longer than expected
        let minishards = filled(8, &entries, 3);
        for number in [3, 5, 8, 9, 11] {
            assert_eq!(minishards.get(MinishardNumber(number)), None, "{number}");
        }
        for number in [1, 2, 4, 255] {
            let index = entries[usize::try_from(number).unwrap()].minishard_index();
            assert_eq!(minishards.get(MinishardNumber(number)).map(|known| known.index), index, "{number}");
        }
    }

    #[test]
    fn marks_are_kept_and_of_one_minishard() {
        let entries = entries(512, 8);
        let minishards = filled(9, &entries, 3);
        let state = |number| minishards.get(MinishardNumber(number)).unwrap().verified;
        let mut counted = 0;
        for number in (0..512).filter(|number| number % 3 != 0) {
            minishards.mark(MinishardNumber(number), if number % 3 == 1 { Verified::INDEX } else { Verified::ALL });
            counted += 1;
            assert_eq!(minishards.verified(), counted);
        }
        for (number, entry) in (0..).zip(&entries) {
            let expected = match number % 3 {
                0 => Verified::NOTHING,
                1 => Verified::INDEX,
                _ => Verified::ALL,
            };
            assert_eq!(state(number), expected, "{number}");
            let index = entry.minishard_index();
            let known = minishards.get(MinishardNumber(number)).unwrap().index;
            assert!(index.is_none_or(|index| index == known), "{number}");
        }
        minishards.mark(MinishardNumber(1), Verified::ALL);
        assert_eq!((state(1), minishards.verified()), (Verified::ALL, counted), "counted once");
    }

    #[test]
    fn more_minishards_than_are_kept_take_no_memory() {
        let packing = Minishards::guessed_packing(1 << 25, 1 << 40, 3);
        for minishards in [Minishards::new(&spec(25), packing, Verified::ALL), Minishards::none(&spec(4))] {
            assert!(minishards.lines.is_empty() && minishards.is_settled(0));
            assert_eq!(minishards.get(MinishardNumber(0)), None);
            minishards.fill_from_entries(0, &entries(256, 8));
            assert_eq!(minishards.get(MinishardNumber(0)), None);
        }
    }
}
