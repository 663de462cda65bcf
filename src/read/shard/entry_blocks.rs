//! A sequential read of a shard index, in blocks of entries.
//!
//! A shard index has one entry for each of up to 2^32 minishards. If most of them are empty, the file is sparse, and
//! its holes are skipped. An entry in a hole is (0, 0), the entry of an empty minishard.

use crate::ids::{MinishardNumber, minishard_number};
use std::ops::Range;

use crate::bytes::{Bytes, Holes};
use crate::error::Result;
use crate::format::shard_index::ENTRY_LEN;
use crate::read::shard::reader::ShardReader;

/// The minishards of any shard. A walk ends after the last one that the shard has.
pub(crate) const ALL_MINISHARDS: Range<MinishardNumber> = minishard_number(0)..minishard_number(u64::MAX);

/// A walk over the entries of a shard index, or over those of a range of minishards. It is not an iterator, so that it
/// borrows the shard for one step at a time.
///
/// Cost: reads all bytes of these entries outside of holes, and one block of each hole.
pub(crate) struct EntryBlocks {
    next: u64,
    /// The walk ends before this minishard, or after the last one of the shard.
    end: u64,
    /// Whether the last block was all zeros, and so possibly in a hole.
    after_zeros: bool,
    holes: Option<Holes>,
    is_over: bool,
}

impl Default for EntryBlocks {
    /// Creates a walk over all entries.
    fn default() -> EntryBlocks {
        EntryBlocks::over(ALL_MINISHARDS)
    }
}

impl EntryBlocks {
    /// Creates a walk over the entries of a range of minishards. The range may end after the last minishard.
    pub(crate) fn over(minishards: Range<MinishardNumber>) -> EntryBlocks {
        let Range { start, end } = minishards;
        EntryBlocks { next: start.get(), end: end.get(), after_zeros: false, holes: None, is_over: false }
    }

    /// Returns the next block of entries, at least one, with the minishard of the first entry.
    ///
    /// Errors: `Corrupt` if the file ends within the shard index; `Io`. An error ends the walk.
    pub(crate) fn next<'a>(&mut self, shard: &'a ShardReader) -> Result<Option<(MinishardNumber, Bytes<'a>)>> {
        if self.after_zeros {
            self.skip_hole(shard);
        }
        let end = self.end.min(shard.spec.minishards());
        if self.is_over || self.next >= end {
            return Ok(None);
        }
        let first = minishard_number(self.next);
        let block = shard.shard_index_block(first..minishard_number(end)).inspect_err(|_| self.is_over = true)?;
        self.next += block.len() as u64 / ENTRY_LEN;
        self.after_zeros = block.iter().all(|byte| *byte == 0);
        Ok(Some((first, block)))
    }

    /// Returns the first minishard of the next block or, after an error, of the block that could not be read.
    pub(crate) fn position(&self) -> MinishardNumber {
        minishard_number(self.next)
    }

    /// Whether the walk was ended by [`end`](Self::end) or by an error.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Ends the walk.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    #[cold]
    fn skip_hole(&mut self, shard: &ShardReader) {
        if self.next < shard.spec.minishards() {
            let holes = self.holes.get_or_insert_with(|| shard.files().holes());
            // rounds down to the entry that contains the offset: an entry may begin in a hole and end in data
            self.next = holes.next_data(self.next * ENTRY_LEN) / ENTRY_LEN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::StorageKind;
    use crate::format::hash::HashFunction;
    use crate::format::layout::Layout;
    use crate::format::spec::ShardingSpec;
    use crate::ids::shard_number;
    use crate::read::shard::files::ShardFiles;
    use crate::read::shard::index_cache::MinishardCache;
    use crate::read::shard::reader::{KnownShard, ReadOptions};
    use crate::read::shard::rows::Rows;
    use crate::write::ShardWriter;

    fn reader(spec: ShardingSpec, files: ShardFiles) -> ShardReader {
        let cache = MinishardCache::new(0).into();
        ShardReader::new(shard_number(0), spec, None, files, ReadOptions::default(), cache, KnownShard::default())
    }

    /// The file at the path of a loaded shard may be another one by now.
    #[test]
    fn holes_of_the_file_do_not_replace_loaded_bytes() {
        let spec = ShardingSpec::new(HashFunction::Identity, 0, 16, 0).unwrap();
        let path = std::env::temp_dir().join(format!("sharddb-loaded-holes-{}.shard", std::process::id()));
        let mut writer = ShardWriter::in_memory(spec, shard_number(0), Layout::default()).unwrap();
        writer.insert(60_000, b"value").unwrap();
        let (_, bytes) = writer.finish_in_memory().unwrap();
        std::fs::write(&path, &bytes).unwrap();
        let files = ShardFiles::load(&path, &mut |_| {}).unwrap();
        std::fs::File::create(&path).unwrap().set_len(bytes.len() as u64).unwrap();
        let shard = reader(spec, files);
        assert_eq!(shard.compute_shard_index_crc32().unwrap(), crc32fast::hash(&bytes[..16 << 16]));
        let (mut rows, mut found) = (Rows::default(), Vec::new());
        while let Some(minishard) = rows.next_minishard(&shard).unwrap() {
            found.push(minishard.number.get());
        }
        assert_eq!(found, [60_000]);
        std::fs::remove_file(&path).unwrap();
    }

    /// A shard index of 64 MiB with three entries, with or without holes, depending on the file system.
    #[test]
    fn reads_every_entry_and_the_checksum_is_that_of_the_bytes() {
        let spec = ShardingSpec::new(HashFunction::Identity, 0, 22, 0).unwrap();
        let path = std::env::temp_dir().join(format!("sharddb-entry-blocks-{}.shard", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut writer = ShardWriter::create(&path, spec, shard_number(0), Layout::default()).unwrap();
        let keys = [5000, 2_000_001, (1 << 22) - 1];
        keys.iter().for_each(|key| writer.insert(*key, b"value").unwrap());
        writer.finish().unwrap();
        let files = ShardFiles::open(&path, StorageKind::Positioned).unwrap();
        let shard = reader(spec, files);

        let (mut blocks, mut found, mut read) = (EntryBlocks::default(), Vec::new(), 0);
        while let Some((first, block)) = blocks.next(&shard).unwrap() {
            let entries = (first.get()..).zip(block.chunks_exact(16));
            found.extend(entries.filter(|(_, entry)| entry.iter().any(|byte| *byte != 0)).map(|(number, _)| number));
            read += block.len();
        }
        assert_eq!(found, keys);
        #[cfg(target_os = "linux")]
        assert!(read < 4 << 20, "read {read} bytes");
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(shard.compute_shard_index_crc32().unwrap(), crc32fast::hash(&bytes[..16 << 22]));
        std::fs::remove_file(&path).unwrap();
    }
}
