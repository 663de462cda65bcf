//! The file `minishards` of a generation, for reading; its bytes are described in
//! [`minishard_table`](crate::format::minishard_table).

use std::path::Path;
use std::sync::Arc;

use crate::byte_range::{ByteRange, RelativeRange};
use crate::format::manifest::{self, AuxiliaryRecord};
use crate::format::minishard_table::{self, Block, BlockPlace, IndexPlace, Section};
use crate::format::spec::ShardingSpec;
use crate::ids::ShardNumber;
use crate::storage::{Access, Storage, StorageKind};

/// What is asked for at open: all that there is for some 20 million keys of 100 bytes.
const ASKED_AT_OPEN: u64 = 8 << 20;

/// The minishard table of a generation, opened.
pub(crate) struct TableFile {
    file: Storage,
    /// Ascending.
    sections: Box<[Section]>,
}

/// What it says of one shard.
pub(crate) struct TableSection {
    table: Arc<TableFile>,
    section: Section,
    block_bits: u32,
    /// The bytes that a length counts.
    length_unit: u64,
    shard_index_crc32: u32,
}

impl TableFile {
    /// Opens the file of a generation as its shards are opened, and asks for the beginning. `None` if it is not as the
    /// manifest states it, or cannot be read, for no answer depends on it; and for shards in memory, which have their shard
    /// indexes there.
    ///
    /// A table of more than `most_sections`, one for each shard of the manifest, is none.
    pub(crate) fn open(
        directory: &Path,
        stated: &AuxiliaryRecord,
        most_sections: usize,
        shards: StorageKind,
    ) -> Option<TableFile> {
        let kind = match shards {
            StorageKind::Mapped { permission, max_maps, .. } => {
                StorageKind::Mapped { permission, max_maps, access: Access::Normal }
            }
            StorageKind::Positioned => StorageKind::Positioned,
            StorageKind::Heap => return None,
        };
        let file = Storage::open(&directory.join(manifest::MINISHARDS), kind).ok()?;
        if file.len() != stated.bytes {
            return None;
        }
        file.will_need(ByteRange { start: 0, end: ASKED_AT_OPEN });
        let header = file.read(ByteRange { start: 0, end: 16.min(file.len()) }, 1).ok()?;
        let head_len = minishard_table::stated_head_len(header.first_chunk()?, most_sections)? as u64;
        let head = file.read(ByteRange { start: 0, end: head_len }, 1).ok()?;
        let sections = minishard_table::read_head(&head)?.into();
        drop((header, head));
        Some(TableFile { file, sections })
    }

    /// What the table says of a shard, if it has a section for it.
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
    /// Where the indexes of a block of minishards lie, each empty without keys, `None` if the table does not state it.
    /// `None` for all if the block is not as its checksum says.
    pub(crate) fn block(&self, number: u64) -> Option<Vec<Option<RelativeRange>>> {
        let (start, len) = self.section.block(number, self.block_bits)?;
        let range = ByteRange { start, end: start.checked_add(len as u64)? };
        let bytes = self.table.file.read(range, 1).ok()?;
        let place = BlockPlace { shard: self.section.shard, number, shard_index_crc32: self.shard_index_crc32 };
        let packing = self.section.packing;
        let block = Block::read(&bytes, place, packing)?;
        let index_of = |in_block: usize| {
            let line = block.line.at(in_block as u64, self.block_bits);
            let IndexPlace { start, length } = packing.unpack(block.bits(in_block), line)?;
            Some(RelativeRange { start, end: start.wrapping_add(length.wrapping_mul(self.length_unit)) })
        };
        Some((0..1 << self.block_bits).map(index_of).collect())
    }
}
