//! The key file: all keys of a generation in ascending order, with the key of every number and the number of every key
//! in O(log n). It is the file `keys` of a generation that was built with `BuildOptions::ordered`.
//!
//! ```text
//! keys           integers are little endian
//!   groups         256 blocks each, the last group fewer
//!     blocks         1024 keys each, the last block of the file fewer
//!     directory      for each block: first key u64 | end u32 of the block, from the start of the group
//!                    crc32 u32 of: tag u32, number of the group u64, the entries
//!   group table    for each group: first key u64 | offset u64 of its directory
//!   trailer        magic "shardkey" | keys u64 | tag u32 | crc32 u32 of the group table and the trailer so far
//!
//! block          of n keys, after its first key
//!   step u64       the smallest difference of neighbours, 0 for n = 1
//!   width u8       bits per packed difference, at most 64
//!   exceptions     count u16, then for each, by ascending position: position u16 | high u64
//!   words          u64 each: n - 1 differences of `width` bits, packed, lowest bit first
//!   crc32 u32      of: tag u32, number of the block u64, first key u64, the block so far
//! ```
//!
//! Key `i + 1` of a block is key `i` + `step` + difference `i`. The difference of an exception is its packed difference
//! plus `high * 2^width`. A block takes the width that makes it shortest: consecutive keys take 0 bits each, random ones
//! a few bits more than their entropy, and a few wide gaps between runs of keys are exceptions.
//!
//! The tag is the CRC-32 of what the manifest states about each shard: number u64, keys u64, CRC-32 of the file u32. So no
//! part of the key file of another generation has valid checksums.

use std::ops::Range;

use crc32fast::Hasher;

use crate::error::{Error, Result};
use crate::manifest::ShardRecord;
use crate::minishard_table::{bits_from, low_word};

const MAGIC: [u8; 8] = *b"shardkey";

/// The number of keys per block.
pub const BLOCK_KEYS: u64 = 1024;

/// The number of blocks per group.
pub const GROUP_BLOCKS: u64 = 256;

/// The number of keys per group.
const GROUP_KEYS: u64 = BLOCK_KEYS * GROUP_BLOCKS;

const CRC_LEN: usize = 4;
const DIRECTORY_ENTRY_LEN: usize = 12;
const GROUP_LEN: usize = 16;

/// The length of the trailer.
pub const TRAILER_LEN: usize = 24;

const EXCEPTION_LEN: usize = 10;

/// What the manifest states about the shards of a generation, as one number that every checksum of its key file covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag(pub u32);

impl Tag {
    /// Computes the tag from the number, the count of keys and the CRC-32 of each shard, in ascending order of numbers.
    pub fn of_shards(shards: &[ShardRecord]) -> Tag {
        let mut crc32 = Hasher::new();
        for shard in shards {
            crc32.update(&shard.number.0.to_le_bytes());
            crc32.update(&shard.keys.to_le_bytes());
            crc32.update(&shard.crc32.to_le_bytes());
        }
        Tag(crc32.finalize())
    }

    /// Computes the checksum of the part with this number: a block or a directory.
    fn crc32(self, number: u64, parts: [&[u8]; 2]) -> u32 {
        let mut crc32 = Hasher::new();
        crc32.update(&self.0.to_le_bytes());
        crc32.update(&number.to_le_bytes());
        parts.iter().for_each(|part| crc32.update(part));
        crc32.finalize()
    }
}

/// The arithmetic of a file of this many keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub keys: u64,
}

impl Shape {
    /// Returns the number of groups.
    fn groups(self) -> u64 {
        self.keys.div_ceil(GROUP_KEYS)
    }

    /// Returns the number of blocks in a group.
    fn blocks_of(self, group: u64) -> u64 {
        let blocks = self.keys.div_ceil(BLOCK_KEYS);
        blocks.saturating_sub(group.saturating_mul(GROUP_BLOCKS)).min(GROUP_BLOCKS)
    }

    /// Returns the number of keys in a block.
    fn keys_of(self, block: u64) -> u64 {
        self.keys.saturating_sub(block.saturating_mul(BLOCK_KEYS)).min(BLOCK_KEYS)
    }

    /// Returns the length of the directory of a group.
    fn directory_len(self, group: u64) -> u64 {
        self.blocks_of(group) * DIRECTORY_ENTRY_LEN as u64 + CRC_LEN as u64
    }

    #[cold]
    fn absent(self, what: &str, number: u64) -> Error {
        Error::corrupt(format!("expected {what} {number} in the key file, found {} keys", self.keys))
    }
}

/// A group as the group table states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    pub first_key: u64,
    /// Offset of the directory in the file.
    pub directory: u64,
}

/// The end of the file: the group table and the trailer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    pub shape: Shape,
    pub tag: Tag,
    pub groups: Box<[Group]>,
}

impl Tail {
    /// Returns the length of the group table and the trailer, given the trailer.
    ///
    /// Errors: `Corrupt` if they are longer than the file of `file_len` bytes, or for another magic.
    pub fn stated_len(trailer: &[u8; TRAILER_LEN], file_len: u64) -> Result<u64> {
        let mut fields = Fields(trailer);
        if fields.take() != Some(MAGIC) {
            return Err(Error::corrupt("expected the trailer of a key file, found another one"));
        }
        let keys = fields.u64().unwrap_or_default();
        let len = Shape { keys }.groups().saturating_mul(GROUP_LEN as u64).saturating_add(TRAILER_LEN as u64);
        if len > file_len {
            let message = format!("expected a key file of at least {len} bytes for {keys} keys, found {file_len}");
            return Err(Error::corrupt(message));
        }
        Ok(len)
    }

    /// Reads the group table and the trailer, the last bytes of a file of `file_len` bytes.
    ///
    /// Errors: `Corrupt` if the checksum does not match, or if groups do not ascend or are not within the file.
    pub fn read(bytes: &[u8], file_len: u64) -> Result<Tail> {
        let bad = || Error::corrupt("expected ascending groups within the key file, found others");
        let (table, trailer) = bytes.split_last_chunk::<TRAILER_LEN>().ok_or_else(bad)?;
        let mut fields = Fields(trailer);
        fields.take::<8>();
        let shape = Shape { keys: fields.u64().unwrap_or_default() };
        let tag = Tag(fields.u32().unwrap_or_default());
        check_crc32(fields.u32(), crc32fast::hash(bytes.get(..bytes.len() - CRC_LEN).unwrap_or_default()))?;

        let (entries, rest) = table.as_chunks::<GROUP_LEN>();
        if entries.len() as u64 != shape.groups() || !rest.is_empty() {
            return Err(bad());
        }
        let read = |entry: &[u8; GROUP_LEN]| {
            let mut fields = Fields(entry);
            Some(Group { first_key: fields.u64()?, directory: fields.u64()? })
        };
        let groups: Box<[Group]> = entries.iter().filter_map(read).collect();
        let tail = Tail { shape, tag, groups };
        let end = file_len.saturating_sub(bytes.len() as u64);
        let ascends = tail.groups.is_sorted_by(|one, next| one.first_key < next.first_key);
        let are_inside = (0..).zip(&tail.groups).all(|(number, group)| {
            let start = tail.start_of(number);
            let next = group.directory.checked_add(shape.directory_len(number));
            start.is_some_and(|start| start <= group.directory) && next.is_some_and(|next| next <= end)
        });
        if ascends && are_inside { Ok(tail) } else { Err(bad()) }
    }

    /// Returns the bytes of the group table and the trailer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self
            .groups
            .iter()
            .flat_map(|group| [group.first_key, group.directory])
            .flat_map(u64::to_le_bytes)
            .collect();
        bytes.extend(MAGIC);
        bytes.extend(self.shape.keys.to_le_bytes());
        bytes.extend(self.tag.0.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// Returns the offset at which a group starts: the end of the previous directory.
    fn start_of(&self, group: u64) -> Option<u64> {
        let Some(previous) = group.checked_sub(1) else { return Some(0) };
        let directory = self.groups.get(usize::try_from(previous).ok()?)?.directory;
        directory.checked_add(self.shape.directory_len(previous))
    }

    /// Returns the byte range of the directory of a group.
    ///
    /// Errors: `Corrupt` if there is no such group.
    pub fn directory_range(&self, group: u64) -> Result<Range<u64>> {
        let of_group = usize::try_from(group).ok().and_then(|group| self.groups.get(group));
        let start = of_group.ok_or_else(|| self.shape.absent("group", group))?.directory;
        Ok(start..start + self.shape.directory_len(group)) // within the file
    }

    /// Returns the group that holds `key` if any does: the last one that does not begin after it. The first one if all
    /// begin after it.
    pub fn group_of_key(&self, key: u64) -> u64 {
        self.groups.partition_point(|group| group.first_key <= key).saturating_sub(1) as u64
    }

    /// Reads the directory of a group.
    ///
    /// Errors: `Corrupt` if the checksum does not match, or if blocks do not ascend or are not before the directory.
    pub fn read_directory(&self, group: u64, bytes: &[u8]) -> Result<Directory> {
        let bad =
            || Error::corrupt(format!("expected ascending blocks in group {group} of the key file, found others"));
        let (entries, stated) = bytes.split_last_chunk::<CRC_LEN>().ok_or_else(bad)?;
        check_crc32(Some(u32::from_le_bytes(*stated)), self.tag.crc32(group, [entries, &[]]))?;
        let start = self.start_of(group).ok_or_else(bad)?;
        let (first, len) = match usize::try_from(group).ok().and_then(|group| self.groups.get(group)) {
            Some(group) => (group.first_key, group.directory.checked_sub(start).ok_or_else(bad)?),
            None => return Err(bad()),
        };
        let mut blocks = Vec::with_capacity(entries.len() / DIRECTORY_ENTRY_LEN);
        let mut block_start = 0;
        for entry in entries.as_chunks::<DIRECTORY_ENTRY_LEN>().0 {
            let mut fields = Fields(entry);
            let (first_key, end) = fields.u64().zip(fields.u32()).ok_or_else(bad)?;
            let end = u64::from(end);
            if end < block_start || end > len {
                return Err(bad());
            }
            blocks.push(BlockEntry { first_key, start: start + block_start, end: start + end });
            block_start = end;
        }
        let ascends = blocks.is_sorted_by(|one, next| one.first_key < next.first_key);
        let is_whole = blocks.len() as u64 == self.shape.blocks_of(group) && block_start == len;
        if !ascends || !is_whole || blocks.first().is_none_or(|block| block.first_key != first) {
            return Err(bad());
        }
        Ok(Directory { shape: self.shape, first_block: group * GROUP_BLOCKS, blocks })
    }

    /// Reads the keys of a block.
    ///
    /// Errors: those of [`decode_block`].
    pub fn read_block(&self, number: u64, block: BlockEntry, bytes: &[u8]) -> Result<Vec<u64>> {
        decode_block(self.tag, number, block.first_key, self.shape.keys_of(number), bytes)
    }
}

/// A block as the directory of its group states it. Offsets are those in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEntry {
    pub first_key: u64,
    pub start: u64,
    pub end: u64,
}

/// The directory of a group.
#[derive(Debug)]
pub struct Directory {
    shape: Shape,
    first_block: u64,
    blocks: Vec<BlockEntry>,
}

impl Directory {
    /// Returns the block with this number.
    ///
    /// Errors: `Corrupt` if it is not in the group.
    pub fn block(&self, number: u64) -> Result<BlockEntry> {
        let in_group = number.checked_sub(self.first_block).and_then(|number| usize::try_from(number).ok());
        let block = in_group.and_then(|number| self.blocks.get(number)).copied();
        block.ok_or_else(|| self.shape.absent("block", number))
    }

    /// Returns the number of the block of this group that holds `key` if any does: the last one that does not begin
    /// after it. The first one if all begin after it.
    pub fn block_of_key(&self, key: u64) -> u64 {
        self.first_block + self.blocks.partition_point(|block| block.first_key <= key).saturating_sub(1) as u64
    }
}

/// Decoded blocks: consecutive keys and the number of the first one.
#[derive(Debug, Default)]
pub struct KeyRun {
    /// The number of the first key.
    pub first: u64,
    /// In ascending order.
    pub keys: Vec<u64>,
}

impl KeyRun {
    /// Returns the key with this number, if it is in the run.
    #[inline]
    pub fn get(&self, number: u64) -> Option<u64> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.keys.get(at).copied()
    }

    /// Returns the number of keys of the file below `key`. The run begins with the block that holds `key` if any does.
    pub fn rank(&self, key: u64) -> u64 {
        self.first + self.keys.partition_point(|other| *other < key) as u64
    }
}

/// Collects the blocks of a group and encodes its directory.
#[derive(Debug, Default)]
pub struct DirectoryBuilder {
    bytes: Vec<u8>,
    first_key: Option<u64>,
    end: u32,
}

impl DirectoryBuilder {
    /// Adds a block of `len` bytes. Errors: `Internal` if the group is longer than 2^32 bytes, which no group is.
    pub fn push(&mut self, first_key: u64, len: usize) -> Result<()> {
        let end = u32::try_from(len).ok().and_then(|len| self.end.checked_add(len));
        self.end = end.ok_or_else(|| Error::internal("a group of the key file is longer than 4 GiB"))?;
        self.first_key.get_or_insert(first_key);
        self.bytes.extend(first_key.to_le_bytes());
        self.bytes.extend(self.end.to_le_bytes());
        Ok(())
    }

    /// Returns the number of blocks.
    pub fn len(&self) -> u64 {
        (self.bytes.len() / DIRECTORY_ENTRY_LEN) as u64
    }

    /// Takes the first key and the bytes of the directory of group `number`; `None` if it has no blocks.
    pub fn take(&mut self, tag: Tag, number: u64) -> Option<(u64, Vec<u8>)> {
        let DirectoryBuilder { mut bytes, first_key, .. } = std::mem::take(self);
        let crc32 = tag.crc32(number, [&bytes, &[]]);
        bytes.extend(crc32.to_le_bytes());
        Some((first_key?, bytes))
    }
}

/// Encodes block `number`. `keys` are ascending, and at most [`BLOCK_KEYS`].
pub fn encode_block(tag: Tag, number: u64, keys: &[u64]) -> Vec<u8> {
    let first_key = keys.first().copied().unwrap_or_default();
    let steps = || keys.iter().zip(keys.iter().skip(1)).map(|(key, next)| next.wrapping_sub(*key));
    let step = steps().min().unwrap_or(0);
    let differences = || steps().map(|difference| difference - step);
    let width = best_width(differences());

    let mut bytes = Vec::new();
    bytes.extend(step.to_le_bytes());
    bytes.extend(width.to_le_bytes().first()); // at most 64
    let exceptions: Vec<(u16, u64)> =
        (0..).zip(differences()).map(|(at, all)| (at, high(all, width))).filter(|(_, high)| *high > 0).collect();
    bytes.extend(u16::try_from(exceptions.len()).unwrap_or(u16::MAX).to_le_bytes()); // fewer than 1024
    for (position, high) in exceptions {
        bytes.extend(position.to_le_bytes());
        bytes.extend(high.to_le_bytes());
    }
    let (mut word, mut filled) = (0u128, 0);
    for difference in differences() {
        word |= u128::from(difference & mask(width)) << filled;
        filled += width;
        if filled >= u64::BITS {
            bytes.extend(low_word(word).to_le_bytes());
            (word, filled) = (word >> 64, filled - u64::BITS);
        }
    }
    if filled > 0 {
        bytes.extend(low_word(word).to_le_bytes());
    }
    let crc32 = tag.crc32(number, [&first_key.to_le_bytes(), &bytes]);
    bytes.extend(crc32.to_le_bytes());
    bytes
}

/// Decodes block `number` of `count` keys.
///
/// Errors: `Corrupt` if the checksum does not match, or if the bytes are not a block of ascending keys.
pub fn decode_block(tag: Tag, number: u64, first_key: u64, count: u64, bytes: &[u8]) -> Result<Vec<u64>> {
    let bad = || Error::corrupt(format!("expected {count} ascending keys in block {number} of the key file"));
    let (body, stated) = bytes.split_last_chunk::<CRC_LEN>().ok_or_else(bad)?;
    check_crc32(Some(u32::from_le_bytes(*stated)), tag.crc32(number, [&first_key.to_le_bytes(), body]))?;
    let count = usize::try_from(count.min(BLOCK_KEYS)).unwrap_or_default();
    let later = count.checked_sub(1).ok_or_else(bad)?;

    let mut fields = Fields(body);
    let (step, [width]) = fields.u64().zip(fields.take::<1>()).ok_or_else(bad)?;
    let width = u32::from(width);
    let exceptions = usize::from(fields.take().map(u16::from_le_bytes).ok_or_else(bad)?);
    let (exceptions, words) = fields.0.split_at_checked(exceptions * EXCEPTION_LEN).ok_or_else(bad)?;
    let (words, rest) = words.as_chunks::<8>();
    if width > u64::BITS
        || words.len() != (later * width as usize).div_ceil(64)
        || !rest.is_empty()
        || later > 0 && step == 0
    {
        return Err(bad());
    }
    let word = |at: usize| words.get(at).map_or(0, |word| u64::from_le_bytes(*word));
    let mut exceptions = exceptions.as_chunks::<EXCEPTION_LEN>().0.iter().filter_map(exception);
    let mut exception = exceptions.next();
    let mut keys = Vec::with_capacity(count);
    let mut key = first_key;
    keys.push(key);
    for at in 0..later {
        let bit = at * width as usize;
        let packed = bits_from(word(bit / 64), word(bit / 64 + 1), bit % 64) & mask(width);
        let difference = match exception.filter(|(position, _)| *position == at) {
            None => packed,
            Some((_, high)) => {
                exception = exceptions.next();
                let all = u128::from(high) << width | u128::from(packed);
                u64::try_from(all).map_err(|_| bad())?
            }
        };
        key = key.checked_add(step).and_then(|key| key.checked_add(difference)).ok_or_else(bad)?;
        keys.push(key);
    }
    // one that is left is out of order or past the end
    if exception.is_some() { Err(bad()) } else { Ok(keys) }
}

fn exception(bytes: &[u8; EXCEPTION_LEN]) -> Option<(usize, u64)> {
    let mut fields = Fields(bytes);
    Some((usize::from(u16::from_le_bytes(fields.take()?)), fields.u64()?))
}

/// Returns the width at which the packed differences and the exceptions take the fewest bits; the smallest of several.
fn best_width(differences: impl Iterator<Item = u64>) -> u32 {
    let mut of_bits = [0u64; 65];
    for difference in differences {
        let bits = u64::BITS - difference.leading_zeros();
        if let Some(count) = of_bits.get_mut(bits as usize) {
            *count += 1;
        }
    }
    let total: u64 = of_bits.iter().sum();
    let mut wider = total;
    let mut best = (u64::MAX, 0);
    for (width, count) in (0..).zip(of_bits) {
        wider -= count;
        let cost = total * u64::from(width) + wider * EXCEPTION_LEN as u64 * 8;
        best = best.min((cost, width));
    }
    best.1
}

/// Returns a mask of the lowest `width` bits; `width` is at most 64.
fn mask(width: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS - width).unwrap_or(0)
}

/// Returns the bits above the lowest `width`; `width` is at most 64.
fn high(difference: u64, width: u32) -> u64 {
    difference.checked_shr(width).unwrap_or(0)
}

fn check_crc32(stated: Option<u32>, found: u32) -> Result<()> {
    match stated {
        Some(stated) if stated == found => Ok(()),
        _ => {
            let stated = stated.unwrap_or_default();
            Err(Error::corrupt(format!("expected a part of the key file with CRC-32 {stated:08x}, found {found:08x}")))
        }
    }
}

/// A cursor over fields of fixed length.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: Tag = Tag(0x1234_5678);

    /// The length of the fixed part of a block: step, width, and count of exceptions.
    const BLOCK_HEAD_LEN: usize = 11;

    fn round_trip(keys: &[u64]) -> usize {
        let bytes = encode_block(TAG, 3, keys);
        assert_eq!(decode_block(TAG, 3, keys[0], keys.len() as u64, &bytes).unwrap(), keys);
        bytes.len()
    }

    /// Keys 7, 10, 13 and 20: steps 3, 3 and 7, so step 3 and differences 0, 0 and 4, in 3 bits each.
    #[test]
    fn golden_block() {
        let rows: [&[u8]; 4] = [
            &[3, 0, 0, 0, 0, 0, 0, 0],           // step
            &[3],                                // width
            &[0, 0],                             // exceptions
            &[0b0000_0000, 1, 0, 0, 0, 0, 0, 0], // 0 | 0 << 3 | 4 << 6
        ];
        let body = rows.concat();
        let mut covered = [0x78, 0x56, 0x34, 0x12, 3, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0].to_vec();
        covered.extend(&body);
        let golden = [body, crc32fast::hash(&covered).to_le_bytes().to_vec()].concat();
        assert_eq!(encode_block(TAG, 3, &[7, 10, 13, 20]), golden);
        assert_eq!(decode_block(TAG, 3, 7, 4, &golden).unwrap(), [7, 10, 13, 20]);
    }

    #[test]
    fn blocks_round_trip_at_every_width() {
        round_trip(&[0]);
        round_trip(&[u64::MAX]);
        round_trip(&[0, u64::MAX]);
        round_trip(&[0, 1, u64::MAX - 1, u64::MAX]);
        for bits in 0..64 {
            let keys: Vec<u64> = [0, 1, 3, 4, 9].iter().map(|key| key << bits >> bits << bits).collect();
            round_trip(
                &keys.iter().copied().collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>(),
            );
        }
        let mut state = 1u64;
        for width in 1..=53 {
            let mut key = 0u64;
            let keys: Vec<u64> = (0..1024)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    key += 1 + (state >> (64 - width));
                    key
                })
                .collect();
            round_trip(&keys);
        }
    }

    #[test]
    fn regular_keys_take_no_bits_and_gaps_between_runs_are_exceptions() {
        let dense: Vec<u64> = (5000..6024).collect();
        assert_eq!(round_trip(&dense), BLOCK_HEAD_LEN + CRC_LEN);
        let strided: Vec<u64> = (0..1024).map(|key| key * 4096).collect();
        assert_eq!(round_trip(&strided), BLOCK_HEAD_LEN + CRC_LEN);
        let runs: Vec<u64> = (0..1024).map(|key| key / 256 * (1 << 60) + key % 256).collect();
        assert_eq!(round_trip(&runs), BLOCK_HEAD_LEN + 3 * EXCEPTION_LEN + CRC_LEN);
    }

    #[test]
    fn every_changed_byte_and_every_other_place_is_noticed() {
        let keys: Vec<u64> = (0..1024).map(|key| key / 100 * (1 << 50) + key % 100 * 3).collect();
        let bytes = encode_block(TAG, 3, &keys);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(decode_block(TAG, 3, 0, 1024, &damaged).is_err(), "byte {at}");
            assert!(decode_block(TAG, 3, 0, 1024, &bytes[..at]).is_err(), "{at} bytes");
        }
        assert!(decode_block(Tag(0), 3, 0, 1024, &bytes).is_err());
        assert!(decode_block(TAG, 4, 0, 1024, &bytes).is_err());
        assert!(decode_block(TAG, 3, 1, 1024, &bytes).is_err());
        assert!(decode_block(TAG, 3, 0, 900, &bytes).is_err());
        assert!(decode_block(TAG, 3, 0, 0, &bytes).is_err());
    }

    /// Hostile bytes with the right checksum: each is an error, and none panics or allocates more than a block.
    #[test]
    fn hostile_blocks_are_errors() {
        let block = |step: u64, width: u8, exceptions: &[(u16, u64)], words: &[u64]| {
            let mut bytes = step.to_le_bytes().to_vec();
            bytes.push(width);
            bytes.extend(u16::try_from(exceptions.len()).unwrap().to_le_bytes());
            for (position, high) in exceptions {
                bytes.extend(position.to_le_bytes());
                bytes.extend(high.to_le_bytes());
            }
            words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            let crc32 = TAG.crc32(0, [&5u64.to_le_bytes(), &bytes]);
            bytes.extend(crc32.to_le_bytes());
            decode_block(TAG, 0, 5, 3, &bytes)
        };
        assert_eq!(block(2, 0, &[], &[]).unwrap(), [5, 7, 9]);
        assert_eq!(block(1, 0, &[(0, 3)], &[]).unwrap(), [5, 9, 10]);
        assert_eq!(block(1, 64, &[], &[3, 4]).unwrap(), [5, 9, 14]);
        let hostile = [
            block(0, 0, &[], &[]),               // equal keys
            block(u64::MAX, 0, &[], &[]),        // overflow of a step
            block(u64::MAX / 2, 0, &[], &[]),    // overflow of the second step
            block(1, 64, &[], &[u64::MAX, 0]),   // overflow of a difference
            block(1, 65, &[], &[0, 0, 0]),       // too wide
            block(1, 64, &[], &[0]),             // too few words
            block(1, 0, &[], &[0]),              // too many
            block(1, 32, &[(0, 1 << 33)], &[0]), // overflow of an exception
            block(1, 64, &[(0, 1)], &[0, 0]),    // the same at the largest width
            block(1, 0, &[(1, 1), (0, 1)], &[]), // out of order
            block(1, 0, &[(0, 1), (0, 1)], &[]), // twice
            block(1, 0, &[(2, 1)], &[]),         // past the end
        ];
        for (number, result) in hostile.iter().enumerate() {
            assert_eq!(result.as_ref().unwrap_err().kind(), crate::ErrorKind::Corrupt, "case {number}");
        }
    }

    /// Any bytes with the right checksum are ascending keys or an error.
    #[test]
    fn any_bytes_are_keys_or_an_error() {
        fn holds(first_key: u64, count: u64, mut bytes: Vec<u8>, step: u8, width: u8) -> bool {
            // most are close to a block, so that some are one
            let head =
                [u64::from(step).to_le_bytes().as_slice(), &[width % 66, bytes.len().to_le_bytes()[0] % 3, 0]].concat();
            bytes.splice(0..0, head);
            bytes.resize(bytes.len().next_multiple_of(8) + 3, 0);
            let count = count % 30;
            let crc32 = TAG.crc32(7, [&first_key.to_le_bytes(), &bytes]);
            bytes.extend(crc32.to_le_bytes());
            if let Ok(keys) = decode_block(TAG, 7, first_key, count, &bytes) {
                assert!(keys.len() as u64 == count && keys[0] == first_key);
                assert!(keys.is_sorted_by(|one, next| one < next));
            }
            let crc32 = crc32fast::hash(&bytes);
            bytes.extend(crc32.to_le_bytes());
            if let Some(trailer) = bytes.last_chunk() {
                let _ = Tail::stated_len(trailer, count << 20);
            }
            for len in [bytes.len() as u64, count << 20, u64::MAX] {
                let _ = Tail::read(&bytes, len);
            }
            true
        }
        let property = holds as fn(u64, u64, Vec<u8>, u8, u8) -> bool;
        quickcheck::QuickCheck::new().tests(20_000).quickcheck(property);
    }

    #[test]
    fn golden_tail_and_hostile_ones() {
        let golden = [
            &[9u8, 0, 0, 0, 0, 0, 0, 0][..], // first key of the group
            &[30, 0, 0, 0, 0, 0, 0, 0],      // its directory
            b"shardkey",
            &[2, 0, 0, 0, 0, 0, 0, 0], // keys
            &[0x78, 0x56, 0x34, 0x12], // tag
        ]
        .concat();
        let with_crc = |bytes: Vec<u8>| {
            let crc32 = crc32fast::hash(&bytes);
            [bytes, crc32.to_le_bytes().to_vec()].concat()
        };
        let golden = with_crc(golden);
        let group = Group { first_key: 9, directory: 30 };
        let tail = Tail { shape: Shape { keys: 2 }, tag: TAG, groups: [group].into() };
        assert_eq!(tail.to_bytes(), golden);
        let file_len = 30 + 12 + 4 + 40;
        assert_eq!(Tail::stated_len(golden.last_chunk().unwrap(), file_len).unwrap(), 40);
        assert_eq!(Tail::read(&golden, file_len).unwrap(), tail);
        assert_eq!(tail.directory_range(0).unwrap(), 30..46);
        assert_eq!(tail.directory_range(1).unwrap_err().kind(), crate::ErrorKind::Corrupt);

        assert!(Tail::read(&golden, file_len - 1).is_err(), "the directory ends in the group table");
        assert!(Tail::stated_len(golden.last_chunk().unwrap(), 39).is_err());
        for at in 0..golden.len() {
            let mut damaged = golden.clone();
            damaged[at] ^= 1;
            assert!(Tail::read(&damaged, file_len).is_err(), "byte {at}");
            assert!(Tail::read(&golden[..at], file_len).is_err(), "{at} bytes");
        }
        let huge = Tail { shape: Shape { keys: u64::MAX }, tag: TAG, groups: [].into() }.to_bytes();
        assert!(Tail::stated_len(huge.last_chunk().unwrap(), 1 << 40).is_err());
        assert!(Tail::read(&huge, 1 << 40).is_err());
        let far = Tail { groups: [Group { first_key: 0, directory: u64::MAX }].into(), ..tail.clone() };
        assert!(Tail::read(&far.to_bytes(), file_len).is_err());
        let none = Tail { shape: Shape { keys: 0 }, tag: TAG, groups: [].into() };
        assert_eq!(Tail::read(&none.to_bytes(), 24).unwrap(), none);
    }

    #[test]
    fn directories_are_found_by_key_and_by_number() {
        let mut builder = DirectoryBuilder::default();
        for (first_key, len) in [(9, 20), (100, 10)] {
            builder.push(first_key, len).unwrap();
        }
        assert_eq!(builder.len(), 2);
        let (first_key, bytes) = builder.take(TAG, 0).unwrap();
        assert_eq!((first_key, builder.len(), builder.take(TAG, 0)), (9, 0, None));
        let group = Group { first_key: 9, directory: 30 };
        let tail = Tail { shape: Shape { keys: 1025 }, tag: TAG, groups: [group].into() };
        let directory = tail.read_directory(0, &bytes).unwrap();
        assert_eq!(directory.block(1).unwrap(), BlockEntry { first_key: 100, start: 20, end: 30 });
        assert_eq!(directory.block(2).unwrap_err().kind(), crate::ErrorKind::Corrupt);
        assert_eq!([0, 9, 99, 100, u64::MAX].map(|key| directory.block_of_key(key)), [0, 0, 0, 1, 1]);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(tail.read_directory(0, &damaged).is_err(), "byte {at}");
        }
        assert!(tail.read_directory(1, &bytes).is_err());
        for keys in [1024, 2049] {
            let other = Tail { shape: Shape { keys }, ..tail.clone() };
            assert!(other.read_directory(0, &bytes).is_err(), "{keys} keys");
        }
        for group in [Group { first_key: 8, directory: 30 }, Group { first_key: 9, directory: 31 }] {
            let other = Tail { groups: [group].into(), ..tail.clone() };
            assert!(other.read_directory(0, &bytes).is_err(), "{group:?}");
        }
    }
}
