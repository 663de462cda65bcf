//! The minishard table: offset and length of every minishard index, in about two bytes per minishard. It is the file
//! `minishards` of a generation.
//!
//! ```text
//! minishards     integers are little endian
//!   header         magic "minishds" | sections u64
//!   section table  for each section, by ascending shard, 40 bytes:
//!                    shard u64 | offset u64 | bias u64 | unit_bits u8 | deviation_bits u8 | length_bits u8 | 13 zero bytes
//!   crc32 u32      of header and section table
//!   sections       each at its offset: the blocks of one shard, one after another
//!
//! block          256 minishards, or all minishards of the shard if there are fewer
//!   first u64      start of the index of the first minishard
//!   end u64        start of the index of the first minishard after the block
//!   words          u64 each: per minishard length + deviation * 2^length_bits, packed, lowest bit first
//!   crc32 u32      of: shard u64, number of the block u64, CRC-32 of the shard index u32, first, end, words
//! ```
//!
//! Positions count units of 2^unit_bits bytes from the end of the shard index. In a block of `2^b` minishards the index
//! of minishard `i` begins at `first + (end - first) * i / 2^b - bias + deviation`. Lengths count the rows of a raw
//! index or the bytes of a gzip index. A minishard without keys has length 0 and begins where the next one does. The
//! position after the last minishard is the end of the file, rounded up to a unit. A length of all ones is reserved:
//! such a minishard is described by the shard index only.
//!
//! Damage to the table changes no result: the checksum of each block covers the shard, the block number and the shard
//! index, and lookups use the shard index where it does not match.
//!
//! A table that is wrong although its checksums match was written by a bug, or crafted. A lookup returns
//! [`wrong_place`] if the minishard index at the stated place is invalid, by its check or otherwise, and the shard index
//! states another place. A lookup that does not verify the index, or whose minishard has no keys by the table, may
//! miss a key instead. Verification compares the table with the shard index.

use crc32fast::Hasher;

use crate::byte_range::RelativeRange;
use crate::error::Error;
use crate::ids::ShardNumber;
use crate::minishard_index::ROW_LEN;
use crate::spec::Encoding;

const MAGIC: [u8; 8] = *b"minishds";
const HEADER_LEN: usize = 16;
const SECTION_LEN: usize = 40;
const CRC_LEN: usize = 4;

/// The length of `first` and `end` of a block.
const BLOCK_HEAD_LEN: usize = 16;

/// Binary logarithm of the number of minishards per block. The shard index entries of a block take 4 KiB: one page.
pub const BLOCK_BITS: u32 = 8;

/// Maximum number of bits per minishard, a limit of the format: wherever they begin in a byte, 8 bytes cover them.
const MOST_BITS: u32 = 48;

/// Maximum number of minishards of a shard with a section.
pub const MOST_MINISHARDS: u64 = 1 << 24;

/// The widths and units of the packed positions and lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// Positions are multiples of `2^unit_bits` bytes.
    pub unit_bits: u32,
    pub deviation_bits: u32,
    pub length_bits: u32,
    /// The largest distance, in units, by which a minishard begins before its trend position. It is added to every
    /// deviation, so that no deviation is negative.
    pub bias: u64,
}

/// The trend of a block: the positions that minishards of equal length would have, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trend {
    pub first: u64,
    /// Distance from the first minishard of the block to the first one after the block.
    pub step: u64,
}

/// The start of an index, in bytes from the end of the shard index, and its length in the unit of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexPlace {
    pub start: u64,
    pub length: u64,
}

impl Trend {
    /// Returns the trend position of a minishard in a block of `2^block_bits` minishards.
    #[inline]
    pub fn at(self, in_block: u64, block_bits: u32) -> u64 {
        self.first.wrapping_add(self.step.wrapping_mul(in_block) >> block_bits)
    }
}

impl Packing {
    #[inline]
    pub fn bits(self) -> u32 {
        self.length_bits + self.deviation_bits
    }

    /// Returns the reserved length of a minishard that the table does not describe: all ones.
    #[inline]
    pub(crate) fn unstated(self) -> u64 {
        (1 << self.length_bits) - 1
    }

    /// Packs the position and length of a minishard, given its trend position; `None` if they do not fit.
    pub fn pack(self, position: u64, length: u64, trend: u64) -> Option<u64> {
        let deviation = position.checked_add(self.bias)?.checked_sub(trend)?;
        let fits = deviation < 1 << self.deviation_bits && length < self.unstated();
        fits.then_some(length | deviation << self.length_bits)
    }

    /// Unpacks the bits of a minishard, given its trend position; `None` if the table does not describe it.
    #[inline]
    pub fn unpack(self, bits: u64, trend: u64) -> Option<IndexPlace> {
        let length = bits & self.unstated();
        if length == self.unstated() {
            return None;
        }
        let deviation = bits >> self.length_bits & ((1 << self.deviation_bits) - 1);
        let position = trend.wrapping_add(deviation).wrapping_sub(self.bias);
        Some(IndexPlace { start: position << self.unit_bits, length })
    }
}

/// Returns the 64 bits that begin at bit `shift` of two consecutive words; `shift` is below 64.
#[inline]
pub(crate) fn bits_from(low: u64, high: u64, shift: usize) -> u64 {
    low >> shift | (high << 1) << (63 - shift)
}

/// A section: the blocks of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    pub shard: ShardNumber,
    /// Offset of the first block in the file.
    pub offset: u64,
    pub packing: Packing,
}

impl Section {
    fn to_bytes(self) -> [u8; SECTION_LEN] {
        let Packing { unit_bits, deviation_bits, length_bits, bias } = self.packing;
        let mut bytes = [0; SECTION_LEN];
        let words = [self.shard.0, self.offset, bias].into_iter().flat_map(u64::to_le_bytes);
        let widths = [unit_bits, deviation_bits, length_bits].into_iter().map(|bits| bits.to_le_bytes()[0]);
        bytes.iter_mut().zip(words.chain(widths)).for_each(|(to, byte)| *to = byte);
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Section> {
        let (words, rest) = bytes.split_first_chunk::<24>()?;
        let word = |at: usize| words.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let [unit_bits, deviation_bits, length_bits] = rest.first_chunk::<3>()?.map(u32::from);
        let packing = Packing { unit_bits, deviation_bits, length_bits, bias: word(16)? };
        let is_possible = unit_bits <= 12 && (1..=MOST_BITS).contains(&length_bits) && packing.bits() <= MOST_BITS;
        is_possible.then_some(Section { shard: ShardNumber(word(0)?), offset: word(8)?, packing })
    }

    /// Returns the offset and length of a block in the file; `None` if the offset overflows.
    pub fn block(&self, number: u64, block_bits: u32) -> Option<(u64, usize)> {
        let len = block_len(self.packing, block_bits);
        Some((self.offset.checked_add(number.checked_mul(len as u64)?)?, len))
    }

    /// Returns the offset of the end of the section, for a shard of `2^minishard_bits` minishards.
    pub fn end(&self, minishard_bits: u8) -> u64 {
        let block_bits = block_bits(minishard_bits);
        let blocks = 1 << (u32::from(minishard_bits) - block_bits);
        self.offset + blocks * block_len(self.packing, block_bits) as u64
    }
}

/// Returns the length in bytes of a block of `2^block_bits` minishards.
fn block_len(packing: Packing, block_bits: u32) -> usize {
    BLOCK_HEAD_LEN + 8 * words_of(packing.bits(), block_bits) + CRC_LEN
}

/// Returns the unit of lengths in bytes: a row of a raw index, or one byte of a gzip index.
pub fn length_unit(minishard_index_encoding: Encoding) -> u64 {
    match minishard_index_encoding {
        Encoding::Raw => ROW_LEN,
        Encoding::Gzip => 1,
    }
}

/// Returns the number of words that `2^block_bits` fields of `bits` bits take.
pub(crate) fn words_of(bits: u32, block_bits: u32) -> usize {
    (bits as usize).checked_shl(block_bits).unwrap_or(usize::MAX).div_ceil(64)
}

/// Returns the binary logarithm of the minishards per block, for a shard of `2^minishard_bits` minishards.
pub fn block_bits(minishard_bits: u8) -> u32 {
    u32::from(minishard_bits).min(BLOCK_BITS)
}

/// Encodes the header and the section table.
pub fn encode_head(sections: &[Section]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(head_len(sections.len()));
    bytes.extend(MAGIC);
    bytes.extend((sections.len() as u64).to_le_bytes());
    sections.iter().for_each(|section| bytes.extend(section.to_bytes()));
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

/// Returns the length in bytes of the header and the section table.
pub fn head_len(sections: usize) -> usize {
    HEADER_LEN + SECTION_LEN * sections + CRC_LEN
}

/// Reads the length of the header and the section table from the header.
///
/// `None` if the file is not a minishard table, or if it has more than `most` sections.
pub fn stated_head_len(header: &[u8; HEADER_LEN], most: usize) -> Option<usize> {
    let (magic, sections) = header.split_first_chunk::<8>()?;
    let sections = usize::try_from(u64::from_le_bytes(*sections.first_chunk()?)).ok()?;
    (*magic == MAGIC && sections <= most).then(|| head_len(sections))
}

/// Reads the section table. `None` if its checksum does not match, if a section has impossible widths, or if the shards
/// do not ascend.
pub fn read_head(head: &[u8]) -> Option<Vec<Section>> {
    let (stated, crc32) = head.split_last_chunk::<CRC_LEN>()?;
    if crc32fast::hash(stated) != u32::from_le_bytes(*crc32) {
        return None;
    }
    let sections: Option<Vec<_>> = stated.get(HEADER_LEN..)?.chunks_exact(SECTION_LEN).map(Section::read).collect();
    sections.filter(|sections| sections.is_sorted_by(|one, next| one.shard < next.shard))
}

/// Returns the error of a lookup for a table that is wrong although its checksums match.
#[cold]
pub fn wrong_place() -> Error {
    Error::corrupt(
        "the minishard table states a wrong place for the minishard index: run `sharddb verify`, for a URL after \
         `sharddb pull`; if you delete the file `minishards` and open the data set again, lookups use the shard indexes",
    )
}

/// The identity of a block. The checksum of the block covers it, so that no block is taken for another.
#[derive(Clone, Copy, Debug)]
pub struct BlockPlace {
    pub shard: ShardNumber,
    pub number: u64,
    /// The CRC-32 of the shard index, from the manifest.
    pub shard_index_crc32: u32,
}

impl BlockPlace {
    fn crc32(self, block: &[u8]) -> u32 {
        let mut hasher = Hasher::new();
        hasher.update(&self.shard.0.to_le_bytes());
        hasher.update(&self.number.to_le_bytes());
        hasher.update(&self.shard_index_crc32.to_le_bytes());
        hasher.update(block);
        hasher.finalize()
    }
}

/// A stored block.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    pub trend: Trend,
    packing: Packing,
    words: &'a [[u8; 8]],
}

impl<'a> Block<'a> {
    /// Reads a block. `None` if its checksum does not match, or if it is malformed.
    pub fn read(bytes: &'a [u8], place: BlockPlace, packing: Packing) -> Option<Block<'a>> {
        let (stated, crc32) = bytes.split_last_chunk::<CRC_LEN>()?;
        if place.crc32(stated) != u32::from_le_bytes(*crc32) {
            return None;
        }
        let (first, rest) = stated.split_first_chunk()?;
        let (end, words) = rest.split_first_chunk()?;
        let first = u64::from_le_bytes(*first);
        let step = u64::from_le_bytes(*end).checked_sub(first)?;
        Some(Block { trend: Trend { first, step }, packing, words: words.as_chunks().0 })
    }

    /// Returns the range of the index of a minishard, relative to the end of the shard index; empty if the minishard has
    /// no keys. `None` if the block does not state it. The block has `2^block_bits` minishards.
    pub fn index_of(&self, in_block: usize, block_bits: u32, length_unit: u64) -> Option<RelativeRange> {
        let trend = self.trend.at(in_block as u64, block_bits);
        let IndexPlace { start, length } = self.packing.unpack(self.bits(in_block), trend)?;
        Some(RelativeRange { start, end: start.wrapping_add(length.wrapping_mul(length_unit)) })
    }

    /// Returns where the index of the first minishard after the block begins, relative to the end of the shard index.
    pub fn end(&self) -> u64 {
        self.trend.first.wrapping_add(self.trend.step) << self.packing.unit_bits
    }

    /// Returns the packed bits of a minishard.
    pub fn bits(&self, in_block: usize) -> u64 {
        let width = self.packing.bits();
        let bit = in_block * width as usize;
        let word = |at: usize| self.words.get(at).map_or(0, |bytes| u64::from_le_bytes(*bytes));
        bits_from(word(bit / 64), word(bit / 64 + 1), bit % 64) & ((1 << width) - 1)
    }
}

/// The minishards of a block to encode: their starts in bytes and their lengths in the unit of the table.
#[derive(Debug)]
pub struct BlockToWrite<'a> {
    /// One element more than there are minishards: the last one is the start of the first minishard after the block.
    pub starts: &'a [u64],
    pub lengths: &'a [u64],
}

impl BlockToWrite<'_> {
    fn trend(&self, unit_bits: u32) -> Trend {
        let unit = |start: Option<&u64>| start.map_or(0, |start| start.div_ceil(1 << unit_bits));
        let first = unit(self.starts.first());
        Trend { first, step: unit(self.starts.last()).saturating_sub(first) }
    }

    /// Iterates over (position, length, trend position) of each minishard.
    fn minishards(&self, unit_bits: u32) -> impl Iterator<Item = (u64, u64, u64)> {
        let (trend, block_bits) = (self.trend(unit_bits), self.lengths.len().max(1).ilog2());
        let minishards = self.starts.iter().zip(self.lengths).zip(0..);
        minishards.map(move |((start, length), number)| {
            (start.div_ceil(1 << unit_bits), *length, trend.at(number, block_bits))
        })
    }

    /// Encodes the block; `None` if a minishard does not fit the packing.
    pub fn encode(&self, place: BlockPlace, packing: Packing) -> Option<Vec<u8>> {
        let trend = self.trend(packing.unit_bits);
        let mut bytes = Vec::new();
        bytes.extend(trend.first.to_le_bytes());
        bytes.extend((trend.first + trend.step).to_le_bytes());
        let (mut word, mut filled) = (0u128, 0);
        for (position, length, trend) in self.minishards(packing.unit_bits) {
            word |= u128::from(packing.pack(position, length, trend)?) << filled;
            filled += packing.bits();
            if filled >= u64::BITS {
                bytes.extend(low_word(word).to_le_bytes());
                (word, filled) = (word >> 64, filled - u64::BITS);
            }
        }
        if filled > 0 {
            bytes.extend(low_word(word).to_le_bytes());
        }
        bytes.extend(place.crc32(&bytes).to_le_bytes());
        Some(bytes)
    }
}

/// Computes the narrowest packing for all blocks of a shard.
#[derive(Debug, Default)]
pub struct PackingBuilder {
    unit_bits: u32,
    before_trend: u64,
    after_trend: u64,
    longest: u64,
    ascends: bool,
}

impl PackingBuilder {
    pub fn new(unit_bits: u32) -> PackingBuilder {
        PackingBuilder { unit_bits, ascends: true, ..PackingBuilder::default() }
    }

    pub fn add(&mut self, block: &BlockToWrite<'_>) {
        self.ascends &= block.starts.is_sorted();
        for (position, length, trend) in block.minishards(self.unit_bits) {
            self.before_trend = self.before_trend.max(trend.saturating_sub(position));
            self.after_trend = self.after_trend.max(position.saturating_sub(trend));
            self.longest = self.longest.max(length);
        }
    }

    /// Returns the packing; `None` if minishards do not ascend, or need more than [`MOST_BITS`] bits each.
    pub fn finish(self) -> Option<Packing> {
        let bits = |most: u64| u64::BITS - most.leading_zeros();
        let packing = Packing {
            unit_bits: self.unit_bits,
            deviation_bits: bits(self.before_trend.checked_add(self.after_trend)?),
            length_bits: bits(self.longest.checked_add(1)?), // plus one, because all ones is reserved
            bias: self.before_trend,
        };
        (self.ascends && packing.bits() <= MOST_BITS).then_some(packing)
    }
}

/// Returns the lower 64 bits.
#[expect(clippy::cast_possible_truncation, reason = "the upper half comes next")]
pub(crate) fn low_word(words: u128) -> u64 {
    words as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encoded from the description above by another program: shard 3 with four minishards, of 2, 3, 0 and 5 rows at 0,
    /// 96, 480 and 480, in a file with 1000 bytes after the shard index.
    const HEAD: &str = "6d696e6973686473010000000000000003000000000000003c000000000000002100000000000000\
                        0306030000000000000000000000000053fd74e9";
    const BLOCK: &str = "00000000000000007d000000000000000ae7e02b0000000047a23e16";

    const PLACE: BlockPlace = BlockPlace { shard: ShardNumber(3), number: 0, shard_index_crc32: 0x1234_5678 };
    const STARTS: [u64; 5] = [0, 96, 480, 480, 1000];
    const LENGTHS: [u64; 4] = [2, 3, 0, 5];

    fn bytes(hex: &str) -> Vec<u8> {
        hex.as_bytes().chunks(2).map(|hex| u8::from_str_radix(str::from_utf8(hex).unwrap(), 16).unwrap()).collect()
    }

    fn golden() -> Section {
        let packing = Packing { unit_bits: 3, deviation_bits: 6, length_bits: 3, bias: 33 };
        Section { shard: ShardNumber(3), offset: 60, packing }
    }

    #[test]
    fn golden_bytes_both_ways() {
        let (head, block) = (bytes(HEAD), bytes(BLOCK));
        assert_eq!(encode_head(&[golden()]), head);
        assert_eq!(stated_head_len(head.first_chunk().unwrap(), 1), Some(60));
        assert_eq!(read_head(&head), Some(vec![golden()]));

        let to_write = BlockToWrite { starts: &STARTS, lengths: &LENGTHS };
        let mut builder = PackingBuilder::new(3);
        builder.add(&to_write);
        assert_eq!(builder.finish(), Some(golden().packing));
        assert_eq!(to_write.encode(PLACE, golden().packing), Some(block.clone()));
        assert_eq!(golden().block(0, 2), Some((60, block.len())));
        assert_eq!(golden().end(2), 88);

        let block = Block::read(&block, PLACE, golden().packing).unwrap();
        for (number, (start, length)) in STARTS.into_iter().zip(LENGTHS).enumerate() {
            let place = golden().packing.unpack(block.bits(number), block.trend.at(number as u64, 2));
            assert_eq!(place, Some(IndexPlace { start, length }), "{number}");
        }
    }

    #[test]
    fn a_bit_flipped_or_another_place_is_no_block_and_no_head() {
        let (mut head, mut block) = (bytes(HEAD), bytes(BLOCK));
        for bit in 0..8 * block.len() {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(Block::read(&block, PLACE, golden().packing).is_none(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
        let elsewhere = [
            BlockPlace { shard: ShardNumber(4), ..PLACE },
            BlockPlace { number: 1, ..PLACE },
            BlockPlace { shard_index_crc32: 0, ..PLACE },
        ];
        for place in elsewhere {
            assert!(Block::read(&block, place, golden().packing).is_none(), "{place:?}");
        }
        for bit in 8 * HEADER_LEN..8 * head.len() {
            head[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_head(&head), None, "bit {bit}");
            head[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn headers_that_no_file_has() {
        let header = |magic: &[u8; 8], sections: u64| {
            let bytes = [&magic[..], &sections.to_le_bytes()].concat();
            *bytes.first_chunk::<16>().unwrap()
        };
        assert_eq!(stated_head_len(&header(&MAGIC, 3), 2), None, "more sections than allowed");
        assert_eq!(stated_head_len(&header(&MAGIC, u64::MAX), 2), None);
        assert_eq!(stated_head_len(&header(b"minishdt", 0), 2), None);
        assert_eq!(stated_head_len(&header(&MAGIC, 0), 0), Some(20));
    }

    #[test]
    fn what_does_not_fit_has_no_packing() {
        let finish = |starts: &[u64], lengths: &[u64]| {
            let mut builder = PackingBuilder::new(0);
            builder.add(&BlockToWrite { starts, lengths });
            builder.finish()
        };
        assert!(finish(&[0, 1 << 40, 1 << 41], &[3, 3]).is_some());
        assert_eq!(finish(&[0, 0, 1 << 49], &[3, 3]), None, "a deviation of 48 bits, and a length");
        assert_eq!(finish(&[0, 1], &[u64::MAX]), None);
        assert_eq!(finish(&[5, 1], &[1]), None, "they do not ascend");
    }
}
