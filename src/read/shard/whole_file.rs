//! A whole shard against what the other files of its generation state: its record in the manifest, and the minishard
//! table.
//!
//! Checks cannot tell whether a file belongs to the generation: a shard of another one, which a mixed restore or a lost
//! write left in this one, is intact.

use crate::ids::minishard_number;
use std::sync::Arc;

use crate::byte_range::ByteRange;
use crate::bytes::{BlockReader, open_regular};
use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum::{Checksum, ChecksumHasher};
use crate::format::minishard_table::BLOCK_BITS;
use crate::format::shard_index::ShardIndexEntry;
use crate::read::shard::reader::ShardReader;
use crate::read::shard::rows::Rows;

/// Size in bytes of a read when the checksum of a file is computed.
const FILE_BLOCK: usize = 1 << 20;

/// A part of a file whose checksum was computed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Summed {
    /// A hole of this many bytes.
    Hole(u64),
    /// This many bytes, which were read.
    Read(u64),
}

/// Is called after each part; its error ends the sum.
type Summing<'a> = dyn FnMut(Summed) -> Result<()> + 'a;

impl ShardReader {
    /// Checks that the file is the one that its record in the manifest states. Damage in a shard with checks is not reported:
    /// reads find it, and name the key.
    ///
    /// Errors: `Corrupt` if it has other bytes; `Io`. Cost: reads the file.
    pub(crate) fn check_file(&self, stated: Checksum) -> Result<()> {
        let found = self.file_checksum(stated, &mut |_| Ok(())).map_err(|error| self.at_file(error))?;
        match stated.check(found) {
            Err(_) if self.layout.is_some_and(|layout| layout.checks) => self.check_is_damaged(),
            checked => checked.map_err(|error| self.at_file(error)),
        }
    }

    /// Checks that a native shard with checks, whose file has other bytes than the manifest states, is damaged.
    ///
    /// Errors: `Corrupt` if no byte is: then the file belongs to another generation; `Io`. Cost: reads the shard; 16 bytes of
    /// memory per key.
    pub(crate) fn check_is_damaged(&self) -> Result<()> {
        match self.find_damage() {
            // what is too large to be verified may be damaged
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::TooLarge) => Ok(()),
            Err(error) => Err(self.at_file(error)),
            Ok(()) => {
                let message = "expected the shard that the manifest states, found an intact one of another generation: \
                               restore the file";
                Err(self.at_file(Error::corrupt(message)))
            }
        }
    }

    fn at_file(&self, error: Error) -> Error {
        error.at_shard(self.number).at_path(&self.files().path())
    }

    /// Computes what is stated about the file. Reads it sequentially and skips holes. Calls `progress` after each part.
    pub(crate) fn file_checksum(&self, stated: Checksum, progress: &mut Summing<'_>) -> Result<Checksum> {
        let (len, mut hasher) = (self.files().data_len(), stated.hasher()); // a shard of a manifest is one file
        let holes = self.files().holes();
        let mut start = 0;
        while start < len {
            let data_start = holes.next_data(start).min(len);
            hasher.zeros(data_start - start);
            progress(Summed::Hole(data_start - start))?;
            let end = holes.next_hole(data_start).min(len);
            self.add_range(ByteRange { start: data_start, end }, &mut hasher, progress)?;
            start = end;
        }
        Ok(hasher.finish())
    }

    /// Adds the bytes of a range without holes.
    fn add_range(&self, range: ByteRange, hasher: &mut ChecksumHasher, progress: &mut Summing<'_>) -> Result<()> {
        let mut add = |block: &[u8]| {
            hasher.update(block);
            progress(Summed::Read(block.len() as u64))
        };
        if let Some(bytes) = self.mapped_or_loaded(range) {
            return bytes.chunks(FILE_BLOCK).try_for_each(add);
        }
        let path = &*self.files().path();
        let (file, _) = open_regular(path)?; // not through the shard's handle, whose read-ahead is for the second pass
        let mut blocks = BlockReader::new(Arc::new(file), path, range.start, range.end, FILE_BLOCK);
        loop {
            let block = blocks.fill()?;
            if block.is_empty() {
                return Ok(());
            }
            add(block)?;
            let len = block.len();
            blocks.consume(len);
        }
    }

    /// Compares the minishard table with the shard index, instead of which lookups use it.
    ///
    /// Errors: `Corrupt` if the table states another index for a minishard; those of reading the shard index.
    pub(crate) fn check_table(&self) -> Result<()> {
        if self.known.table.load().is_none() {
            return Ok(());
        }
        let mut first = minishard_number(0);
        while first.get() < self.spec.minishards() {
            let next = minishard_number(first.get() + (1 << BLOCK_BITS));
            if let Some(stated) = self.table_block(first) {
                let entries = self.shard_index_block(first..next)?;
                let entries = entries.chunks_exact(size_of::<ShardIndexEntry>()).filter_map(ShardIndexEntry::read);
                for ((number, entry), stated) in (first.get()..).zip(entries).zip(stated) {
                    let stated = stated.map(|range| (range.start != range.end).then_some(range));
                    if stated.is_some_and(|stated| stated != entry.minishard_index()) {
                        let message = "expected the minishard index that the shard index names, found another";
                        return Err(Error::corrupt(message).at_minishard(minishard_number(number)));
                    }
                }
            }
            first = next;
        }
        Ok(())
    }

    /// Verifies every byte that a check covers, and that all other bytes are zero.
    ///
    /// Errors: the damage; `Io`.
    fn find_damage(&self) -> Result<()> {
        self.verify_shard_index()?;
        let mut rows = Rows::default();
        let mut ranges = self.named_ranges();
        let layout = self.layout.unwrap_or_default();
        while let Some(minishard) = rows.next_minishard(self)? {
            ranges.reserve(minishard.rows, self.files().data_len())?;
            ranges.push_index(minishard.index, minishard.rows);
            while let Some(row) = rows.next_row(self) {
                let found = minishard.found(row);
                let value = self.value_range(row)?;
                self.compare_value_check(row, found.checks, &self.read_at_most_cap(value, 1)?)?;
                let start = if layout.preambles {
                    let gap = self.native_gap(&found)?;
                    self.compare_preamble_check(row, found.checks, gap)?;
                    gap.start
                } else {
                    value.start
                };
                ranges.push_value(ByteRange { start, end: value.end });
            }
        }
        for gap in ranges.finish().gaps(self.files().data_len()) {
            if self.read_at_most_cap(gap, 1)?.iter().any(|byte| *byte != 0) {
                return Err(Error::corrupt("expected zeros between values, found other bytes").at_offset(gap.start));
            }
        }
        Ok(())
    }
}
