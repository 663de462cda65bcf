//! The minishard table of a generation in an object store: its beginning in memory, the rest read in groups of blocks.

use std::ops::Range;

use sharddb_format::internal::byte_range::RelativeRange;
use sharddb_format::internal::ids::{MinishardNumber, ShardNumber};
use sharddb_format::internal::manifest::ShardRecord;
use sharddb_format::internal::minishard_table::{self, Block, BlockPlace, Section};
use sharddb_format::internal::spec::ShardingSpec;

use crate::request::Body;

/// By default this many bytes of a table are read when the generation is opened, at the same time as its manifest, so that
/// no further request finds a place. They describe half a million minishards: 2 to 4 million keys of the profile `local`.
pub(crate) const DEFAULT_WHOLE_TABLE_BYTES: u64 = 1 << 20;

/// The other blocks are read in groups of about this many bytes, 32,000 minishards. A request of this length takes little
/// longer than one of a single block, and neighbouring shards share it.
const GROUP: u64 = 64 << 10;

/// No block is longer: 256 minishards of 48 bits, and the head and the checksum.
const LONGEST_BLOCK: u64 = 2048;

/// The table, or its beginning.
pub(crate) struct Table {
    /// In ascending order of shard numbers.
    sections: Vec<Section>,
    len: u64,
    /// The first bytes of the file, at least the head.
    first: Body,
}

/// What the table states about a minishard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stated {
    /// The range of its encoded index; empty if it has no keys.
    pub(crate) index: RelativeRange,
    /// Where the index before it ends, relative to the end of the shard index; `None` if that is in a block that is not known.
    pub(crate) before: Option<u64>,
    /// Where the index of the next minishard that the table describes begins, likewise.
    pub(crate) next: u64,
}

/// The block of the table that describes a minishard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Described {
    section: Section,
    block: u64,
    in_block: usize,
    /// The bytes of the block in the file.
    start: u64,
    end: u64,
}

impl Table {
    /// Returns how much of a table of `len` bytes to read first: `bytes`, and at least the longest possible head.
    pub(crate) fn first_read(len: u64, bytes: u64, shards: usize) -> u64 {
        len.min(bytes.max(minishard_table::head_len(shards) as u64))
    }

    /// Reads the head from the first bytes of a table of `len` bytes, and keeps these bytes.
    ///
    /// `None` if it is damaged, or has more than `shards` sections: lookups use the shard indexes then.
    pub(crate) fn read(first: Body, len: u64, shards: usize) -> Option<Table> {
        let bytes = first.as_slice();
        let head_len = minishard_table::stated_head_len(bytes.first_chunk()?, shards)?;
        let sections = minishard_table::read_head(bytes.get(..head_len)?)?;
        Some(Table { sections, len, first })
    }

    /// Returns the first bytes of the table, if the block is in them.
    pub(crate) fn first_with(&self, described: &Described) -> Option<&[u8]> {
        let first = self.first.as_slice();
        (described.end <= first.len() as u64).then_some(first)
    }

    /// Returns the block that describes a minishard; `None` if the table has no section for the shard.
    pub(crate) fn describe(
        &self,
        spec: &ShardingSpec,
        shard: ShardNumber,
        minishard: MinishardNumber,
    ) -> Option<Described> {
        let at = self.sections.binary_search_by_key(&shard, |section| section.shard).ok()?;
        let section = *self.sections.get(at)?;
        let block_bits = minishard_table::block_bits(spec.minishard_bits());
        let block = minishard.get() >> block_bits;
        let in_block = usize::try_from(minishard.get() & ((1 << block_bits) - 1)).ok()?;
        let (start, len) = section.block(block, block_bits)?;
        let end = start.checked_add(len as u64).filter(|end| *end <= self.len)?;
        Some(Described { section, block, in_block, start, end })
    }

    /// Returns the range in the file of a group: the blocks that begin in it.
    pub(crate) fn group_range(&self, group: u64) -> Range<u64> {
        let start = group.saturating_mul(GROUP).min(self.len);
        start..start.saturating_add(GROUP + LONGEST_BLOCK).min(self.len)
    }
}

impl Described {
    /// Returns the group of the block.
    pub(crate) fn group(&self) -> u64 {
        self.start / GROUP
    }

    /// Returns whether the block is intact, in bytes of the file that begin at offset `from`.
    pub(crate) fn is_intact(&self, record: &ShardRecord, bytes: &[u8], from: u64) -> bool {
        self.block_in(record, bytes, from).is_some()
    }

    /// Returns what the block states, from bytes of the file that begin at offset `from`.
    ///
    /// `None` if the block is damaged, or does not describe the minishard.
    pub(crate) fn stated(&self, spec: &ShardingSpec, record: &ShardRecord, bytes: &[u8], from: u64) -> Option<Stated> {
        let block = self.block_in(record, bytes, from)?;
        let block_bits = minishard_table::block_bits(spec.minishard_bits());
        let length_unit = minishard_table::length_unit(spec.minishard_index_encoding());
        let minishards = 1 << block_bits;
        let last_end = |block: &Block<'_>, minishards: Range<usize>| {
            let mut indexes = minishards.rev().filter_map(|at| block.index_of(at, block_bits, length_unit));
            indexes.find(|index| index.start < index.end).map(|index| index.end)
        };
        let before = last_end(&block, 0..self.in_block).or_else(|| match self.block_before() {
            Some(before) => last_end(&before.block_in(record, bytes, from)?, 0..minishards),
            None => Some(0),
        });
        let next = (self.in_block + 1..minishards).find_map(|at| block.index_of(at, block_bits, length_unit));
        Some(Stated {
            index: block.index_of(self.in_block, block_bits, length_unit)?,
            before,
            next: next.map_or_else(|| block.end(), |next| next.start),
        })
    }

    /// Returns the block before; `None` for the first one of its section.
    fn block_before(&self) -> Option<Described> {
        let block = self.block.checked_sub(1)?;
        Some(Described { block, start: self.start - (self.end - self.start), end: self.start, ..*self })
    }

    /// Returns the block with a matching checksum; `None` if it is damaged.
    fn block_in<'a>(&self, record: &ShardRecord, bytes: &'a [u8], from: u64) -> Option<Block<'a>> {
        let offset = |at: u64| usize::try_from(at.checked_sub(from)?).ok();
        let bytes = bytes.get(offset(self.start)?..offset(self.end)?)?;
        let place =
            BlockPlace { shard: record.number, number: self.block, shard_index_crc32: record.shard_index_crc32 };
        Block::read(bytes, place, self.section.packing)
    }
}
