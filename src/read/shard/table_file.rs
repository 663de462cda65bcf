//! Reads the minishard table of a generation: the file `minishards`, whose bytes
//! [`minishard_table`](crate::format::minishard_table) describes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::byte_range::{ByteRange, RelativeRange};
use crate::bytes::{Storage, StorageKind};
use crate::format::manifest::{self, AuxiliaryRecord};
use crate::format::minishard_table::{self, Block, BlockPlace, Section};
use crate::format::spec::ShardingSpec;
use crate::ids::ShardNumber;

/// Bytes prefetched at once: the whole table of about 20 million keys with values of 100 bytes.
const PREFETCHED: u64 = 8 << 20;

/// Blocks that are read one by one before the table is prefetched: a few lookups do not wait for all of it.
const BLOCKS_BEFORE_PREFETCH: u32 = 16;

/// The open minishard table of a generation.
pub(crate) struct TableFile {
    file: Storage,
    /// In ascending order of shard numbers.
    sections: Box<[Section]>,
    blocks_read: AtomicU32,
}

/// The section of the table for one shard.
pub(crate) struct TableSection {
    table: Arc<TableFile>,
    section: Section,
    block_bits: u32,
    /// The unit in bytes of the stated index lengths.
    length_unit: u64,
    shard_index_crc32: u32,
}

impl TableFile {
    /// Opens the file with the storage of the shards.
    ///
    /// `None` if the file cannot be read, does not have the length that the manifest states, has an invalid head, or has
    /// more than `most_sections` sections (one per shard of the manifest): lookups then use the shard indexes and return
    /// the same results. Also `None` for loaded shards, whose shard indexes need no read.
    pub(crate) fn open(
        directory: &Path,
        stated: &AuxiliaryRecord,
        most_sections: usize,
        shards: StorageKind,
    ) -> Option<TableFile> {
        if matches!(shards, StorageKind::Heap) {
            return None;
        }
        let file = Storage::open(&directory.join(manifest::MINISHARDS), shards).ok()?;
        if file.len() != stated.checksum.bytes {
            return None;
        }
        let header = file.read(ByteRange { start: 0, end: 16.min(file.len()) }, 1).ok()?;
        let head_len = minishard_table::stated_head_len(header.first_chunk()?, most_sections)? as u64;
        drop(header);
        let sections = minishard_table::read_head(&file.read(ByteRange { start: 0, end: head_len }, 1).ok()?)?.into();
        Some(TableFile { file, sections, blocks_read: AtomicU32::new(0) })
    }

    /// Returns the section of a shard, if the table has one.
    pub(crate) fn section(
        table: &Arc<TableFile>,
        spec: &ShardingSpec,
        shard: ShardNumber,
        shard_index_crc32: u32,
    ) -> Option<TableSection> {
        let at = table.sections.binary_search_by_key(&shard, |section| section.shard).ok()?;
        Some(TableSection {
            section: *table.sections.get(at)?,
            table: table.clone(),
            block_bits: minishard_table::block_bits(spec.minishard_bits()),
            length_unit: minishard_table::length_unit(spec.minishard_index_encoding()),
            shard_index_crc32,
        })
    }
}

impl TableSection {
    /// Returns the ranges of the indexes of a block of minishards. A range is empty if the minishard has no keys, and
    /// `None` if the table does not state it. Returns `None` if the block cannot be read or its checksum does not
    /// match.
    pub(crate) fn block(&self, number: u64) -> Option<Vec<Option<RelativeRange>>> {
        if self.table.blocks_read.fetch_add(1, Ordering::Relaxed) == BLOCKS_BEFORE_PREFETCH {
            self.table.file.will_need(ByteRange { start: 0, end: PREFETCHED });
        }
        let (start, len) = self.section.block(number, self.block_bits)?;
        let range = ByteRange { start, end: start.checked_add(len as u64)? };
        let bytes = self.table.file.read(range, 1).ok()?;
        let place = BlockPlace { shard: self.section.shard, number, shard_index_crc32: self.shard_index_crc32 };
        let block = Block::read(&bytes, place, self.section.packing)?;
        let index_of = |in_block| block.index_of(in_block, self.block_bits, self.length_unit);
        Some((0..1 << self.block_bits).map(index_of).collect())
    }
}
