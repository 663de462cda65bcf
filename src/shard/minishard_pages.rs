//! The page that each minishard begins in, in a file beside the shards: a lookup that must wait for a disk asks for the
//! minishard beside its shard index entry, and waits for both together.
//!
//! ```text
//! minishard_pages   the shards one after another, ascending; of each, with n minishards in a file of p pages of 4096 bytes:
//!   bits     ceil((n + p) / 8) bytes, lowest bit first: for each minishard a 0 for every page further than the one before
//!            it, then a 1; zeros to the end
//!   blocks   u32le for every 256 minishards: the page of the minishard before them; 0 for the first
//! ```
//!
//! So the 1 of minishard `i` is bit `i + page`, and `256 * block + blocks[block]` is where the search for those of a block
//! begins. A minishard without keys has the page of the one before it. Some 1.2 bits a minishard.
//!
//! And only a hint: the answer comes from the entry itself, so a file that is not there, out of date or a lie costs time and
//! nothing else.

use std::path::Path;
use std::sync::Arc;

use crate::byte_range::ByteRange;
use crate::disk;
use crate::error::{Error, Result};
use crate::format::shard_index::ShardIndexEntry;
use crate::shard::minishard_lines::{LEARNED_AT_ONCE, MOST};
use crate::shard::sections::ShardSummary;
use crate::spec::{Encoding, MinishardNumber, ShardingSpec};
use crate::storage::{Access, BLOCK, BlockReader, Cursor, Storage, StorageKind, create_new, open_regular};

/// The name of the file in its generation.
pub(crate) const FILE_NAME: &str = "minishard_pages";

const PAGE: u64 = 4096;

/// Minishards of a block: those whose entries share a page of the shard index.
const BLOCK_LEN: u64 = LEARNED_AT_ONCE;

/// A longer file is left alone: so much would have to be read first. Some 1.5 billion keys of 100 bytes.
const LONGEST: u64 = 64 << 20;

/// What is asked for at open: all that there is for some 25 million keys of 100 bytes.
const ASKED_AT_OPEN: u64 = 1 << 20;

/// The minishards of a block are not looked for further than this, whatever a broken file states: in 2 GiB of a shard.
const FURTHEST: usize = 64 << 10;

/// The file of a generation, mapped.
pub(crate) struct MinishardPages(Storage);

/// What it says of one shard.
pub(crate) struct PagesOfShard {
    file: Arc<MinishardPages>,
    sections: Sections,
}

/// Where the two parts lie that tell of one shard.
#[derive(Clone, Copy)]
pub(crate) struct Sections {
    bits: u64,
    blocks: u64,
    pub(crate) end: u64,
}

impl Sections {
    /// Of a shard in a file of `len` bytes, from a position on.
    pub(crate) fn new(position: u64, spec: ShardingSpec, len: u64) -> Sections {
        let bits_len = (spec.minishards() + len.div_ceil(PAGE)).div_ceil(8);
        let blocks_len = size_of::<u32>() as u64 * spec.minishards().div_ceil(BLOCK_LEN);
        let blocks = position.saturating_add(bits_len);
        Sections { bits: position, blocks, end: blocks.saturating_add(blocks_len) }
    }
}

/// Writes and syncs the file for the shards of a directory: its length and crc32. `None`, and no file, where it would not help:
/// where shards are not read in place, or their indexes are a page each.
pub(crate) fn write(directory: &Path, spec: ShardingSpec, shards: &[ShardSummary]) -> Result<Option<(u64, u32)>> {
    let raw = spec.minishard_index_encoding() == Encoding::Raw && spec.data_encoding() == Encoding::Raw;
    let helps = (BLOCK_LEN + 1..=MOST).contains(&spec.minishards());
    if !raw || !helps || shards.is_empty() {
        return Ok(None);
    }
    let path = directory.join(FILE_NAME);
    let file = create_new(&path)?;
    let mut to = Cursor::new(file.clone(), path.as_path().into(), 0, BLOCK);
    for shard in shards {
        write_shard(&directory.join(spec.shard_file_name(shard.number)), spec, &mut to)?;
    }
    let sum = to.finish()?;
    disk::sync_file(&file, &path).map_err(|error| Error::io("bring to the disk", &path, error))?;
    Ok(Some((to.position(), sum.finalize())))
}

fn write_shard(path: &Path, spec: ShardingSpec, to: &mut Cursor) -> Result<()> {
    let (file, len) = open_regular(path)?;
    let sections = Sections::new(to.position(), spec, len);
    let mut entries = BlockReader::new(Arc::new(file), path, 0, spec.shard_index_len(), BLOCK);
    let mut bits = BitWriter::default();
    let mut blocks = Vec::new();
    let mut page = 0;
    for minishard in 0..spec.minishards() {
        if minishard % BLOCK_LEN == 0 {
            blocks.extend(u32::try_from(page).unwrap_or(u32::MAX).to_le_bytes());
        }
        let entry = ShardIndexEntry::read(entries.fill_at_least(size_of::<ShardIndexEntry>())?);
        entries.consume(size_of::<ShardIndexEntry>());
        if let Some(index) = entry.and_then(|entry| entry.minishard_index()) {
            let begins_in = (spec.shard_index_len().saturating_add(index.start)).min(len) / PAGE;
            bits.zeros(begins_in.saturating_sub(page), to)?;
            page = page.max(begins_in);
        }
        bits.one(to)?;
    }
    bits.finish(to)?;
    to.zeros(sections.blocks - to.position())?;
    to.write(&blocks)
}

/// Bits, the lowest of each byte first.
#[derive(Default)]
struct BitWriter {
    byte: u8,
    len: u32,
}

impl BitWriter {
    fn zeros(&mut self, count: u64, to: &mut Cursor) -> Result<()> {
        (0..count).try_for_each(|_| self.push(0, to))
    }

    fn one(&mut self, to: &mut Cursor) -> Result<()> {
        self.push(1, to)
    }

    fn push(&mut self, bit: u8, to: &mut Cursor) -> Result<()> {
        self.byte |= bit << self.len;
        self.len += 1;
        if self.len == u8::BITS {
            to.write(&[self.byte])?;
            *self = BitWriter::default();
        }
        Ok(())
    }

    fn finish(self, to: &mut Cursor) -> Result<()> {
        if self.len > 0 { to.write(&[self.byte]) } else { Ok(()) }
    }
}

impl MinishardPages {
    /// Maps the file of a generation and asks for the beginning; what follows is read ahead as it is touched. `None` unless it
    /// is of the length stated and shards are mapped, for only what is mapped can be asked for.
    pub(crate) fn open(directory: &Path, stated_len: u64, shards: StorageKind) -> Option<MinishardPages> {
        let StorageKind::Mapped { permission, max_maps, .. } = shards else { return None };
        let kind = StorageKind::Mapped { permission, max_maps, access: Access::Normal };
        let file = Storage::open(&directory.join(FILE_NAME), kind).ok()?;
        if file.len() != stated_len || stated_len > LONGEST || file.in_memory().is_none() {
            return None;
        }
        file.will_need(ByteRange { start: 0, end: ASKED_AT_OPEN });
        Some(MinishardPages(file))
    }
}

impl PagesOfShard {
    pub(crate) fn new(file: Arc<MinishardPages>, sections: Sections) -> PagesOfShard {
        PagesOfShard { file, sections }
    }

    /// The page of the shard file that a minishard begins in, with the next one if it ends there.
    pub(crate) fn of(&self, minishard: MinishardNumber) -> Option<ByteRange> {
        let Sections { bits, blocks, end } = self.sections;
        let file = self.file.0.in_memory()?;
        let (bits, blocks) =
            (ByteRange { start: bits, end: blocks }.of(file)?, ByteRange { start: blocks, end }.of(file)?);
        let (block, row) = (minishard.0 / BLOCK_LEN, minishard.0 % BLOCK_LEN);
        let (before, _) = blocks.get(usize::try_from(block).ok()? * 4..)?.split_first_chunk()?;
        let one = nth_one(bits, block * BLOCK_LEN + u64::from(u32::from_le_bytes(*before)), row)?;
        let page = one.checked_sub(minishard.0)?;
        let ends_in_next = nth_one(bits, one + 1, 0) == Some(one + 2);
        let end = page + 1 + u64::from(ends_in_next);
        Some(ByteRange { start: page.checked_mul(PAGE)?, end: end.checked_mul(PAGE)? })
    }
}

/// The place of the `n`th 1, counted from zero, from a bit on.
fn nth_one(bits: &[u8], from: u64, mut n: u64) -> Option<u64> {
    let mut at = from - from % 8;
    let mut mask = u8::MAX << (from % 8);
    for byte in bits.get(usize::try_from(from / 8).ok()?..)?.iter().take(FURTHEST) {
        let mut ones = byte & mask;
        let count = u64::from(ones.count_ones());
        if n < count {
            (0..n).for_each(|_| ones &= ones - 1); // without its lowest
            return Some(at + u64::from(ones.trailing_zeros()));
        }
        (n, at, mask) = (n - count, at + 8, u8::MAX);
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::hash::HashFunction;
    use crate::layout::Layout;
    use crate::shard::ShardWriter;
    use crate::spec::ShardNumber;
    use crate::storage::AlignedBytes;

    /// Two shards in which three minishards of four have a key each, its value of so many bytes.
    fn directory(name: &str, spec: ShardingSpec, value_len: usize) -> (PathBuf, Vec<ShardSummary>) {
        let directory = std::env::temp_dir().join(format!("sharddb-pages-{}-{name}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let write = |number| {
            let path = directory.join(spec.shard_file_name(ShardNumber(number)));
            let mut writer = ShardWriter::create(path, spec, ShardNumber(number), Layout::default()).unwrap();
            for minishard in (0..spec.minishards()).filter(|minishard| minishard % 4 != number) {
                let key = number << spec.minishard_bits() | minishard;
                writer.insert(key, &vec![7; value_len]).unwrap();
            }
            writer.finish().unwrap()
        };
        let shards = [0, 1].map(write).into();
        (directory, shards)
    }

    fn spec(minishard_bits: u8) -> ShardingSpec {
        ShardingSpec::new(HashFunction::Identity, 0, minishard_bits, 1).unwrap()
    }

    #[test]
    fn what_is_written_are_the_pages_of_each_minishard() {
        let spec = spec(10);
        for value_len in [0, 100, 1000, 12_000] {
            let (directory, shards) = directory(&value_len.to_string(), spec, value_len);
            let (bytes, crc32) = write(&directory, spec, &shards).unwrap().unwrap();
            let file = fs::read(directory.join(FILE_NAME)).unwrap();
            assert_eq!((bytes, crc32), (file.len() as u64, crc32fast::hash(&file)));
            let file = Arc::new(MinishardPages(Storage::Heap(AlignedBytes::from(file))));
            let mut position = 0;
            for summary in shards {
                let shard = fs::read(directory.join(spec.shard_file_name(summary.number))).unwrap();
                let sections = Sections::new(position, spec, summary.bytes);
                let pages = PagesOfShard::new(file.clone(), sections);
                let mut page = 0;
                let expected: Vec<u64> = shard
                    .chunks(16)
                    .zip(0..spec.minishards())
                    .map(|(entry, _)| {
                        let index = ShardIndexEntry::read(entry).unwrap().minishard_index();
                        page = index.map_or(page, |index| (spec.shard_index_len() + index.start) / 4096);
                        page
                    })
                    .collect();
                for (minishard, page) in expected.iter().enumerate() {
                    let both = expected.get(minishard + 1) == Some(&(page + 1));
                    let range = ByteRange { start: page * 4096, end: (page + 1 + u64::from(both)) * 4096 };
                    let found = pages.of(MinishardNumber(minishard as u64));
                    assert_eq!(found, Some(range), "{minishard}, values of {value_len}");
                }
                position = sections.end;
            }
            assert_eq!(position, bytes);
            fs::remove_dir_all(directory).unwrap();
        }
    }

    #[test]
    fn nothing_is_written_where_it_would_not_help() {
        let gzip = spec(10).with_minishard_index_encoding(Encoding::Gzip);
        for (name, spec) in [("page", spec(8)), ("gzip", gzip)] {
            let (directory, shards) = directory(name, spec, 10);
            assert_eq!(write(&directory, spec, &shards).unwrap(), None, "{name}");
            assert!(!directory.join(FILE_NAME).exists());
            fs::remove_dir_all(directory).unwrap();
        }
        assert_eq!(write(Path::new("nowhere"), spec(10), &[]).unwrap(), None, "no shards");
    }

    #[test]
    fn ones_are_found_or_not() {
        let bits = [0b0001_0010, 0, 0b1000_0000];
        let found: Vec<_> = (0..4).map(|n| nth_one(&bits, 0, n)).collect();
        assert_eq!(found, [Some(1), Some(4), Some(23), None]);
        assert_eq!(nth_one(&bits, 2, 0), Some(4), "from behind the first");
        assert_eq!(nth_one(&bits, 5, 0), Some(23));
        assert_eq!((nth_one(&bits, 24, 0), nth_one(&bits, u64::MAX, 0)), (None, None), "behind the end");
        assert_eq!(nth_one(&vec![0; FURTHEST + 1], 0, 0), None);
    }
}
