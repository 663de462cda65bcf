//! The writer of the minishard table, which runs after all shards of a generation are written.
//!
//! The module `format::minishard_table` describes the bytes.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::byte_range::RelativeRange;
use crate::bytes::{Cursor, Sink, WRITE_BLOCK, create_new, open_regular, read_exact_at};
use crate::error::{Error, Result};
use crate::format::layout::MINISHARD_ALIGNMENT;
use crate::format::manifest::{self, AuxiliaryRecord, ShardRecord};
use crate::format::minishard_table::{self, BlockPlace, BlockToWrite, MOST_MINISHARDS, PackingBuilder, Section};
use crate::format::shard_index::ShardIndexEntry;
use crate::format::spec::{Encoding, ShardingSpec};
use crate::fs::disk;
use crate::ids::MinishardNumber;

/// A generation with fewer minishards has no table, because its shard indexes take less than two pages of 4 KiB.
const FEWEST_MINISHARDS: u64 = 512;

/// A generation with more minishards per key has no table, because most entries would describe empty minishards.
const MOST_MINISHARDS_PER_KEY: u64 = 64;

/// Writes and syncs the table of a generation, whose shards are in `shards_directory`. Returns `None` if a table is not
/// worthwhile.
pub(super) fn write(
    directory: &Path,
    shards_directory: &Path,
    spec: ShardingSpec,
    shards: &[ShardRecord],
) -> Result<Option<AuxiliaryRecord>> {
    let minishards = u128::from(spec.minishards()) * shards.len() as u128;
    let keys = shards.iter().map(|shard| u128::from(shard.keys)).sum::<u128>();
    let pays = u128::from(FEWEST_MINISHARDS) <= minishards && minishards <= keys * u128::from(MOST_MINISHARDS_PER_KEY);
    if !pays || spec.minishards() > MOST_MINISHARDS {
        return Ok(None);
    }
    let mut sections = Vec::new();
    for shard in shards {
        let section = Entries::open(shards_directory, spec, shard)?.section()?;
        sections.extend(section.map(|section| (shard, section)));
    }
    let mut offset = minishard_table::head_len(sections.len()) as u64;
    for (_, section) in &mut sections {
        section.offset = offset;
        offset = section.end(spec.minishard_bits());
    }
    let path = directory.join(manifest::MINISHARDS);
    let file = create_new(&path)?;
    let mut to = Cursor::new(Sink::file(file.clone(), &path), 0, WRITE_BLOCK).with_digest();
    let heads: Vec<Section> = sections.iter().map(|(_, section)| *section).collect();
    to.write(&minishard_table::encode_head(&heads))?;
    for (shard, section) in sections {
        Entries::open(shards_directory, spec, shard)?.write(section, &mut to)?;
    }
    let checksum = to.finish_file()?;
    disk::sync_file(&file, &path).map_err(|error| Error::io("sync", &path, error))?;
    Ok(Some(AuxiliaryRecord { name: manifest::MINISHARDS.to_string(), checksum }))
}

/// The shard index of a shard, read block by block.
struct Entries {
    file: File,
    path: PathBuf,
    spec: ShardingSpec,
    shard: ShardRecord,
    /// For each block, the start of the index of the first minishard with keys after it, or the end of the file if
    /// there is none. Relative to the end of the shard index.
    ends: Vec<u64>,
}

/// The entries of a block of minishards.
struct EntriesOfBlock {
    /// The starts of the minishard indexes, followed by the block's entry of [`Entries::ends`]. An empty minishard has
    /// the start of the next one.
    starts: Vec<u64>,
    /// The lengths of the minishard indexes in the unit of the table.
    lengths: Vec<u64>,
}

impl Entries {
    fn open(directory: &Path, spec: ShardingSpec, shard: &ShardRecord) -> Result<Entries> {
        let path = directory.join(spec.shard_file_name(shard.number));
        let (file, len) = open_regular(&path)?;
        let mut entries = Entries { file, path, spec, shard: *shard, ends: Vec::new() };
        let blocks = spec.minishards() >> minishard_table::block_bits(spec.minishard_bits());
        let mut end = len.saturating_sub(spec.shard_index_len());
        let mut ends = Vec::new();
        for number in (0..blocks).rev() {
            ends.push(end);
            end = entries.block(number, end)?.starts.first().copied().unwrap_or(end);
        }
        ends.reverse();
        entries.ends = ends;
        Ok(entries)
    }

    /// Reads a block. `end` is its entry of `ends`: the start of the index of the first minishard with keys after it,
    /// or the end of the file if there is none.
    fn block(&self, number: u64, end: u64) -> Result<EntriesOfBlock> {
        let block_bits = minishard_table::block_bits(self.spec.minishard_bits());
        let (first, count) = (MinishardNumber(number << block_bits), 1 << block_bits);
        let mut bytes = vec![0; count * size_of::<ShardIndexEntry>()];
        let start = ShardIndexEntry::position(first).start;
        read_exact_at(&self.file, &mut bytes, start)
            .map_err(|error| Error::io("read", &self.path, error).at_offset(start))?;
        let unit = minishard_table::length_unit(self.spec.minishard_index_encoding());
        let (mut starts, mut lengths) = (vec![end], Vec::with_capacity(count));
        for entry in bytes.rchunks_exact(size_of::<ShardIndexEntry>()).filter_map(ShardIndexEntry::read) {
            let next = starts.last().copied().unwrap_or(end);
            let index = entry.minishard_index().unwrap_or(RelativeRange { start: next, end: next });
            starts.push(index.start);
            lengths.push(index.end.saturating_sub(index.start) / unit);
        }
        starts.reverse();
        lengths.reverse();
        Ok(EntriesOfBlock { starts, lengths })
    }

    /// Returns the section of this shard, without its offset; `None` if a table cannot describe its minishards.
    fn section(&self) -> Result<Option<Section>> {
        let unit_bits = match self.spec.minishard_index_encoding() {
            Encoding::Raw => MINISHARD_ALIGNMENT.ilog2(),
            Encoding::Gzip => 0, // a gzip index begins where its values end, at any byte
        };
        let mut builder = PackingBuilder::new(unit_bits);
        for (number, end) in (0..).zip(&self.ends) {
            builder.add(&self.block(number, *end)?.to_write());
        }
        let packing = builder.finish();
        Ok(packing.map(|packing| Section { shard: self.shard.number, offset: 0, packing }))
    }

    fn write(&self, section: Section, to: &mut Cursor) -> Result<()> {
        for (number, end) in (0..).zip(&self.ends) {
            let place = BlockPlace { shard: section.shard, number, shard_index_crc32: self.shard.shard_index_crc32 };
            let block = self.block(number, *end)?;
            let bytes = block.to_write().encode(place, section.packing).ok_or_else(|| {
                let message = "the shard index changed while the minishard table was written";
                Error::internal(message).at_path(&self.path)
            })?;
            to.write(&bytes)?;
        }
        Ok(())
    }
}

impl EntriesOfBlock {
    fn to_write(&self) -> BlockToWrite<'_> {
        BlockToWrite { starts: &self.starts, lengths: &self.lengths }
    }
}
