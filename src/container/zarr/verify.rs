//! Verification of an array against the specification: every shard, entry and chunk.

use crate::byte_range::ByteRange;
use crate::container::zarr::array::ZarrArray;
use crate::container::zarr::grid::ChunkPlace;
use crate::container::zarr::shard::ShardFile;
use crate::error::{Error, ErrorKind, Result};
use crate::verify::{FindingKind, VerifyLevel, VerifyReport};

pub(super) fn verify(array: &ZarrArray, level: VerifyLevel) -> Result<VerifyReport> {
    let mut report = VerifyReport::of_files(level);
    for number in array.shard_numbers()? {
        match array.open_shard(number) {
            Ok(Some(shard)) => {
                report.shards += 1;
                if level > VerifyLevel::Structure {
                    ZarrShardVerifier { array, number, shard: &shard, report: &mut report, named: Vec::new() }.verify();
                }
            }
            Ok(None) => {} // removed after it was listed
            Err(error) => report.add(kind_of_open_error(&error), error),
        }
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
    /// The ranges of chunks, each with the number of its entry.
    named: Vec<(ByteRange, u64)>,
}

impl ZarrShardVerifier<'_> {
    fn verify(mut self) {
        let mut next = 0;
        loop {
            let entries = match self.shard.entries(next) {
                Ok(entries) if entries.is_empty() => break,
                Ok(entries) => entries,
                Err(error) => return self.add(FindingKind::UnreadableShard, None, error),
            };
            for entry in entries {
                let key = self.array.metadata().grid.key(ChunkPlace { shard: self.number, entry: next });
                match self.shard.chunk_of(entry) {
                    Ok(Some(range)) => self.chunk(range, next, key),
                    Ok(None) => {}
                    Err(error) => self.add(FindingKind::BadShardIndexEntry, key, error),
                }
                next += 1;
            }
        }
        self.report.bytes_read += self.shard.index_range().map_or(0, ByteRange::len);
        self.extents();
    }

    /// Checks a present chunk. A chunk outside the array has no key but is checked as well.
    fn chunk(&mut self, range: ByteRange, entry: u64, key: Option<u64>) {
        self.named.push((range, entry));
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

    /// Checks how ranges overlap: chunks may share all of their bytes, and leave gaps.
    fn extents(&mut self) {
        let named = std::mem::take(&mut self.named);
        let index = self.shard.index_range();
        for (range, entry) in &named {
            if index.is_some_and(|index| range.start < index.end && index.start < range.end) {
                let message = "expected chunks outside the shard index, found one that overlaps it";
                self.add(FindingKind::Overlap, self.key(*entry), Error::corrupt(message).at_offset(range.start));
            }
        }
        let mut ranges: Vec<_> = named.iter().map(|(range, entry)| (range.start, range.end, *entry)).collect();
        ranges.extend(index.map(|index| (index.start, index.end, u64::MAX)));
        ranges.sort_unstable();
        ranges.dedup_by_key(|(start, end, _)| (*start, *end));
        let (mut end, mut unnamed) = (0, 0);
        for (start, range_end, entry) in ranges {
            let is_chunk = entry != u64::MAX;
            if start < end && is_chunk && !index.is_some_and(|index| start < index.end && index.start < range_end) {
                let message = "expected chunks that share all of their bytes or none, found two that overlap in part";
                self.add(FindingKind::Overlap, self.key(entry), Error::corrupt(message).at_offset(start));
            }
            unnamed += start.saturating_sub(end);
            end = end.max(range_end);
        }
        unnamed += self.shard.len().saturating_sub(end);
        if unnamed > 0 {
            let message = format!("found {unnamed} bytes that no entry of the index names: unused, or padding");
            self.add(FindingKind::UnnamedBytes, None, Error::corrupt(message));
        }
    }

    fn key(&self, entry: u64) -> Option<u64> {
        self.array.metadata().grid.key(ChunkPlace { shard: self.number, entry })
    }

    fn add(&mut self, kind: FindingKind, key: Option<u64>, error: Error) {
        let error = error.at_path(self.shard.path());
        self.report.add(
            kind,
            match key {
                Some(key) => error.at_key(key),
                None => error,
            },
        );
    }
}
