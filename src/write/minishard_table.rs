//! The writer of the minishard table, which runs after all shards of a generation are written.
//!
//! The module `format::minishard_table` describes the bytes.

use crate::ids::minishard_number;
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

/// A generation with fewer minishards has no table, because its shard indexes take less than two pages of 4 KiB.
const FEWEST_MINISHARDS: u64 = 512;

/// A generation with more minishards per key has no table, because most entries would describe empty minishards.
const MOST_MINISHARDS_PER_KEY: u64 = 64;

/// Bytes per read of a shard index: a multiple of a block.
const CHUNK: u64 = 256 << 10;

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
    let mut surveys = Vec::new();
    for shard in shards {
        surveys.extend(Entries::open(shards_directory, spec, shard)?.survey()?);
    }
    let mut offset = minishard_table::head_len(surveys.len()) as u64;
    for Survey { section, .. } in &mut surveys {
        section.offset = offset;
        offset = section.end(spec.minishard_bits());
    }
    let path = directory.join(manifest::MINISHARDS);
    let file = create_new(&path)?;
    let mut to = Cursor::new(Sink::file(file.clone(), &path), 0, WRITE_BLOCK).with_digest();
    let heads: Vec<Section> = surveys.iter().map(|survey| survey.section).collect();
    to.write(&minishard_table::encode_head(&heads))?;
    for survey in surveys {
        Entries::open(shards_directory, spec, &survey.shard)?.write(&survey, &mut to)?;
    }
    let checksum = to.finish_file()?;
    disk::sync_file(&file, &path).map_err(|error| Error::io("sync", &path, error))?;
    Ok(Some(AuxiliaryRecord { name: manifest::MINISHARDS.to_string(), checksum }))
}

/// What a table states about a shard, except the blocks.
struct Survey {
    shard: ShardRecord,
    /// Without its offset at first.
    section: Section,
    /// For each block, the start of the index of the first minishard with keys after it, or the end of the file if
    /// there is none. Relative to the end of the shard index. Memory: 8 bytes per block.
    ends: Vec<u64>,
}

/// The shard index of a shard, read in chunks.
struct Entries {
    file: File,
    len: u64,
    path: PathBuf,
    spec: ShardingSpec,
    shard: ShardRecord,
    /// The last chunk that was read, and its offset.
    chunk: Vec<u8>,
    chunk_start: u64,
}

/// The entries of a block of minishards.
struct EntriesOfBlock {
    /// The starts of the minishard indexes, followed by the block's entry of [`Survey::ends`]. An empty minishard has
    /// the start of the next one.
    starts: Vec<u64>,
    /// The lengths of the minishard indexes in the unit of the table.
    lengths: Vec<u64>,
}

impl Entries {
    fn open(directory: &Path, spec: ShardingSpec, shard: &ShardRecord) -> Result<Entries> {
        let path = directory.join(spec.shard_file_name(shard.number));
        let (file, len) = open_regular(&path)?;
        Ok(Entries { file, len, path, spec, shard: *shard, chunk: Vec::new(), chunk_start: 0 })
    }

    /// Reads a block. `end` is its entry of [`Survey::ends`].
    fn block(&mut self, number: u64, end: u64) -> Result<EntriesOfBlock> {
        let block_bits = minishard_table::block_bits(self.spec.minishard_bits());
        let unit = minishard_table::length_unit(self.spec.minishard_index_encoding());
        let count = 1 << block_bits;
        let start = ShardIndexEntry::position(minishard_number(number << block_bits)).start;
        let bytes = self.entries(start, count * size_of::<ShardIndexEntry>())?;
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

    /// Returns the entries of a block, `len` bytes at `start` of the shard index. A chunk is a multiple of `len`.
    fn entries(&mut self, start: u64, len: usize) -> Result<&[u8]> {
        let into_chunk = usize::try_from(start % CHUNK).unwrap_or(0);
        let chunk_start = start - start % CHUNK;
        if self.chunk.is_empty() || self.chunk_start != chunk_start {
            let chunk_len = CHUNK.min(self.spec.shard_index_len() - chunk_start);
            self.chunk.resize(usize::try_from(chunk_len).unwrap_or(0), 0);
            read_exact_at(&self.file, &mut self.chunk, chunk_start)
                .map_err(|error| Error::io("read", &self.path, error).at_offset(chunk_start))?;
            self.chunk_start = chunk_start;
        }
        let bytes = self.chunk.get(into_chunk..into_chunk + len);
        bytes.ok_or_else(|| Error::internal("a block of the shard index is not in one chunk").at_path(&self.path))
    }

    /// Returns what a table states about this shard; `None` if it cannot describe the minishards. Reads the shard index back
    /// to front, because an end is a start of what is after it.
    fn survey(&mut self) -> Result<Option<Survey>> {
        let unit_bits = match self.spec.minishard_index_encoding() {
            Encoding::Raw => MINISHARD_ALIGNMENT.ilog2(),
            Encoding::Gzip => 0, // a gzip index begins where its values end, at any byte
        };
        let blocks = self.spec.minishards() >> minishard_table::block_bits(self.spec.minishard_bits());
        let mut end = self.len.saturating_sub(self.spec.shard_index_len());
        let (mut builder, mut ends) = (PackingBuilder::new(unit_bits), Vec::new());
        for number in (0..blocks).rev() {
            let block = self.block(number, end)?;
            builder.add(&block.to_write());
            ends.push(end);
            end = block.starts.first().copied().unwrap_or(end);
        }
        ends.reverse();
        let section = |packing| Section { shard: self.shard.number, offset: 0, packing };
        Ok(builder.finish().map(|packing| Survey { shard: self.shard, section: section(packing), ends }))
    }

    fn write(&mut self, survey: &Survey, to: &mut Cursor) -> Result<()> {
        for (number, end) in (0..).zip(&survey.ends) {
            let Survey { shard, section, .. } = survey;
            let place = BlockPlace { shard: section.shard, number, shard_index_crc32: shard.shard_index_crc32 };
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
