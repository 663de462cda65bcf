//! Verification of an array against the specification: every shard, entry and chunk.

use sharddb::Progress;
use sharddb::internal::{add_finding, report_of_files};
use sharddb::progress::{Phase, Unit};
use sharddb::verify::{FindingKind, VerifyLevel, VerifyReport};
use sharddb_format::internal::byte_range::ByteRange;
use sharddb_format::{Error, ErrorKind, Result};

use crate::zarr::array::ZarrArray;
use crate::zarr::grid::ChunkPlace;
use crate::zarr::shard::ShardFile;

pub(super) fn verify(array: &ZarrArray, level: VerifyLevel, progress: &Progress) -> Result<VerifyReport> {
    let mut report = report_of_files(level);
    let numbers = array.shard_numbers()?;
    progress.begin_counting(Phase::Verify, Unit::Files, numbers.len() as u64);
    for number in numbers {
        match array.open_shard(number) {
            Ok(Some(shard)) => {
                report.shards += 1;
                if level > VerifyLevel::Structure {
                    ZarrShardVerifier { array, number, shard: &shard, report: &mut report, chunks: Vec::new() }
                        .verify();
                }
            }
            Ok(None) => {} // removed after it was listed
            Err(error) => add_finding(&mut report, kind_of_open_error(&error), error),
        }
        progress.add(1);
        progress.check()?;
    }
    Ok(report)
}

fn kind_of_open_error(error: &Error) -> FindingKind {
    match error.kind() {
        ErrorKind::Io => FindingKind::UnreadableShard,
        ErrorKind::TooLarge => FindingKind::OverCap,
        _ => FindingKind::BadShardIndex,
    }
}

struct ZarrShardVerifier<'a> {
    array: &'a ZarrArray,
    number: u64,
    shard: &'a ShardFile,
    report: &'a mut VerifyReport,
    /// The ranges of the present chunks, each with the number of its entry.
    chunks: Vec<(ByteRange, u64)>,
}

impl ZarrShardVerifier<'_> {
    fn verify(mut self) {
        let mut entry_number = 0;
        loop {
            let entries = match self.shard.entries(entry_number) {
                Ok(entries) if entries.is_empty() => break,
                Ok(entries) => entries,
                Err(error) => return self.add(FindingKind::UnreadableShard, None, error),
            };
            for entry in entries {
                let key = self.key(entry_number);
                match self.shard.chunk_of(entry) {
                    Ok(Some(range)) => self.verify_chunk(range, entry_number, key),
                    Ok(None) => {}
                    Err(error) => self.add(FindingKind::BadShardIndexEntry, key, error),
                }
                entry_number += 1;
            }
        }
        self.report.bytes_read += self.shard.index_range().map_or(0, ByteRange::len);
        self.verify_ranges();
    }

    /// Verifies a present chunk. A chunk outside the array has no key but is verified as well.
    fn verify_chunk(&mut self, range: ByteRange, entry: u64, key: Option<u64>) {
        self.chunks.push((range, entry));
        self.report.keys += u64::from(key.is_some());
        self.report.value_bytes = self.report.value_bytes.saturating_add(range.len());
        if self.report.level < VerifyLevel::Data {
            return;
        }
        self.report.bytes_read = self.report.bytes_read.saturating_add(range.len());
        let decoded = self.shard.read(range).and_then(|encoded| self.array.decode(&encoded));
        if let Err(error) = decoded {
            let kind = match error.kind() {
                ErrorKind::TooLarge => FindingKind::OverCap,
                ErrorKind::Io => FindingKind::UnreadableShard,
                _ => FindingKind::BadValue,
            };
            self.add(kind, key, error.at_offset(range.start));
        }
    }

    /// Verifies that no chunk overlaps the index or a part of another chunk, and reports gaps. Two chunks may share all of
    /// their bytes.
    fn verify_ranges(&mut self) {
        let chunks = std::mem::take(&mut self.chunks);
        let index = self.shard.index_range();
        for (range, entry) in &chunks {
            if index.is_some_and(|index| overlap(*range, index)) {
                let message = "expected chunks outside the shard index, found one that overlaps it";
                self.add(FindingKind::Overlap, self.key(*entry), Error::corrupt(message).at_offset(range.start));
            }
        }
        let mut ranges: Vec<(ByteRange, Option<u64>)> =
            chunks.into_iter().map(|(range, entry)| (range, Some(entry))).collect();
        ranges.extend(index.map(|index| (index, None)));
        ranges.sort_unstable_by_key(|(range, entry)| (range.start, range.end, *entry));
        ranges.dedup_by_key(|(range, _)| *range);
        let (mut end, mut unnamed) = (0, 0);
        for (range, entry) in ranges {
            if range.start < end
                && let Some(entry) = entry
                && !index.is_some_and(|index| overlap(range, index))
            {
                let message = "expected chunks that share all of their bytes or none, found two that overlap in part";
                self.add(FindingKind::Overlap, self.key(entry), Error::corrupt(message).at_offset(range.start));
            }
            unnamed += range.start.saturating_sub(end);
            end = end.max(range.end);
        }
        unnamed += self.shard.len().saturating_sub(end);
        if unnamed > 0 {
            let message = format!("found {unnamed} bytes that no entry of the index names: unused, or padding");
            self.add(FindingKind::UnnamedBytes, None, Error::corrupt(message));
        }
    }

    /// Returns the key of the chunk of an entry; `None` if the chunk is outside the array.
    fn key(&self, entry: u64) -> Option<u64> {
        self.array.metadata().grid.key(ChunkPlace { shard: self.number, entry })
    }

    fn add(&mut self, kind: FindingKind, key: Option<u64>, error: Error) {
        let error = error.at_path(self.shard.path());
        let error = if let Some(key) = key { error.at_key(key) } else { error };
        add_finding(self.report, kind, error);
    }
}

/// Returns whether two ranges share a byte, or an empty one is within the other.
fn overlap(a: ByteRange, b: ByteRange) -> bool {
    a.start < b.end && b.start < a.end
}
