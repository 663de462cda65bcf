//! Verifies one shard: its CRC-32, its shard index, and through that its minishards.

use std::sync::Arc;

use crc32fast::Hasher;

use crate::byte_range::ByteRange;
use crate::error::{Error, ErrorKind, Result};
use crate::format::manifest::ShardRecord;
use crate::format::shard_index::ShardIndexEntry;
use crate::ids::MinishardNumber;
use crate::read::generation::Generation;
use crate::read::shard::{EntryBlocks, IndexBudget, ShardReader, ValueBudget};
use crate::storage::{BlockReader, Holes, open_regular, zeros_sum};
use crate::verify::VerifyLevel;
use crate::verify::directory::DataFile;
use crate::verify::extents::Extents;
use crate::verify::finding::FindingKind;
use crate::verify::report::VerifyReport;
use crate::verify::window::Window;

/// Size in bytes of a read when the CRC-32 of a file is computed.
const FILE_BLOCK: usize = 1 << 20;

/// The walk over one shard.
pub(super) struct ShardVerifier<'a> {
    pub(super) shard: &'a ShardReader,
    pub(super) max_value_bytes: u64,
    pub(super) report: &'a mut VerifyReport,
    /// Reads values, prefixes and padding.
    pub(super) body: Window<'a>,
    /// Reads checks, which are apart from the values.
    pub(super) checks: Window<'a>,
    pub(super) extents: Extents,
    /// Whether every index was read and every range is inside the file. Only then are the gaps known.
    pub(super) knows_all_extents: bool,
    pub(super) keys: u64,
    pub(super) index_budget: IndexBudget,
    pub(super) value_budget: ValueBudget,
    /// Number of values that were not read because the budget was spent.
    pub(super) unread_values: u64,
    pub(super) data: DataFile,
    record: Option<ShardRecord>,
    /// Called with the number of bytes after each step.
    progress: &'a mut dyn FnMut(u64),
}

impl<'a> ShardVerifier<'a> {
    pub(super) fn new(
        generation: &Generation,
        shard: &'a ShardReader,
        data: DataFile,
        report: &'a mut VerifyReport,
        progress: &'a mut dyn FnMut(u64),
    ) -> ShardVerifier<'a> {
        ShardVerifier {
            shard,
            max_value_bytes: generation.options().read.max_value_bytes,
            report,
            body: Window::new(shard, data.len),
            checks: Window::new(shard, data.len),
            extents: Extents::default(),
            knows_all_extents: true,
            keys: 0,
            index_budget: IndexBudget::default(),
            value_budget: ValueBudget::default(),
            unread_values: 0,
            data,
            record: generation.manifest().and_then(|manifest| manifest.shard(shard.number)).copied(),
            progress,
        }
    }

    pub(super) fn verify(mut self) {
        self.report.shards += 1;
        if let Some(record) = self.record {
            self.verify_checksums(&record);
        }
        self.verify_shard_index();
        if self.reaches(VerifyLevel::Index) {
            self.verify_extents();
            self.verify_all_were_read();
            self.verify_key_count();
        }
    }

    pub(super) fn reaches(&self, level: VerifyLevel) -> bool {
        self.report.level >= level
    }

    /// Reports a finding of this shard. An I/O error or an exceeded cap replaces the rule that was being checked.
    pub(super) fn found(&mut self, rule: FindingKind, error: Error) {
        let kind = match error.kind() {
            ErrorKind::Io | ErrorKind::GenerationGone => FindingKind::UnreadableShard,
            ErrorKind::TooLarge => FindingKind::OverCap,
            _ => rule,
        };
        self.report.add(kind, error.at_shard(self.shard.number).at_path(&self.data.path));
    }

    /// Like `found`, for an error after which some byte ranges are unknown.
    pub(super) fn found_unknown(&mut self, rule: FindingKind, error: Error) {
        self.knows_all_extents = false;
        self.found(rule, error);
    }

    pub(super) fn has_read(&mut self, bytes: u64) {
        self.report.bytes_read += bytes;
    }

    /// Reports progress for bytes of values. At the lower levels, progress is reported once per shard.
    pub(super) fn has_verified(&mut self, bytes: u64) {
        (self.progress)(bytes);
    }

    /// Verifies the checksums that the manifest states: of the file and of the shard index.
    fn verify_checksums(&mut self, record: &ShardRecord) {
        if self.reaches(VerifyLevel::Data) {
            let found = self.file_crc32();
            self.compare(FindingKind::FileCrc, "file", record.crc32, found);
        }
        if self.reaches(VerifyLevel::Index) && self.shard.files().len() >= self.shard.spec.shard_index_len() {
            self.has_read(self.shard.spec.shard_index_len());
            let found = self.shard.compute_shard_index_crc32();
            self.compare(FindingKind::ShardIndexCrc, "shard index", record.shard_index_crc32, found);
        }
    }

    fn compare(&mut self, kind: FindingKind, what: &str, stated: u32, found: Result<u32>) {
        match found {
            Ok(found) if found == stated => {}
            Ok(found) => {
                let message =
                    format!("expected the {what} to have CRC-32 {stated:08x} as the manifest says, found {found:08x}");
                self.found(kind, Error::corrupt(message));
            }
            Err(error) => self.found(kind, error),
        }
    }

    /// Computes the CRC-32 of the file by reading it sequentially, except for holes.
    ///
    /// The second pass, over indexes and values, then finds much of the file in the page cache.
    fn file_crc32(&mut self) -> Result<u32> {
        let (len, mut crc32) = (self.shard.files().len(), Hasher::new());
        let holes = Holes::of(&self.data.path, len);
        let mut start = 0;
        while start < len {
            let data = holes.next_data(start).min(len);
            crc32.combine(&zeros_sum(data - start));
            (self.progress)(data - start);
            let end = holes.next_hole(data).min(len);
            self.add_data(ByteRange { start: data, end }, &mut crc32)?;
            start = end;
        }
        Ok(crc32.finalize())
    }

    fn add_data(&mut self, data: ByteRange, crc32: &mut Hasher) -> Result<()> {
        if let Some(bytes) = self.shard.in_memory(data) {
            bytes.chunks(FILE_BLOCK).for_each(|block| self.add_block(block, crc32));
            return Ok(());
        }
        let (file, _) = open_regular(&self.data.path)?; // apart from the handle, whose read-ahead is for the walk
        let mut blocks = BlockReader::new(Arc::new(file), &self.data.path, data.start, data.end, FILE_BLOCK);
        loop {
            let block = blocks.fill()?;
            if block.is_empty() {
                return Ok(());
            }
            let len = block.len();
            self.add_block(block, crc32);
            blocks.consume(len);
        }
    }

    fn add_block(&mut self, block: &[u8], crc32: &mut Hasher) {
        crc32.update(block);
        self.has_read(block.len() as u64);
        (self.progress)(block.len() as u64);
    }

    fn verify_shard_index(&mut self) {
        let mut blocks = EntryBlocks::default();
        loop {
            let (first, block) = match blocks.next(self.shard) {
                Ok(Some(block)) => block,
                Ok(None) => return,
                Err(error) => return self.found_unknown(FindingKind::ShortShardIndex, error),
            };
            self.has_read(block.len() as u64);
            let entries = block.chunks_exact(size_of::<ShardIndexEntry>()).filter_map(ShardIndexEntry::read);
            for (number, entry) in (first.0..).map(MinishardNumber).zip(entries) {
                self.verify_entry(number, entry);
            }
        }
    }

    fn verify_entry(&mut self, number: MinishardNumber, entry: ShardIndexEntry) {
        match self.shard.resolve_minishard_index(number, entry) {
            Ok(Some(index)) => {
                self.report.minishards += 1;
                if self.reaches(VerifyLevel::Index) {
                    self.verify_minishard(number, index);
                }
            }
            Ok(None) => self.verify_empty_entry(number, entry),
            Err(error) => self.found_unknown(FindingKind::BadShardIndexEntry, error.at_minishard(number)),
        }
    }

    /// Verifies the entry of an empty minishard. The format allows any range of length 0, but some readers refuse one
    /// outside of the file.
    fn verify_empty_entry(&mut self, number: MinishardNumber, entry: ShardIndexEntry) {
        let offset = entry.to_bytes().first_chunk().map_or(0, |start| u64::from_le_bytes(*start));
        if offset > self.data.len.saturating_sub(self.shard.base()) {
            let message = format!(
                "expected the entry of an empty minishard inside the file, found {offset}..{offset}: some readers refuse it"
            );
            let error = Error::corrupt(message).at_minishard(number).at_offset(ShardIndexEntry::position(number).start);
            self.found(FindingKind::OddEmptyEntry, error);
        }
    }

    /// Reports values that were not read: values that share bytes may have many times the bytes of their file.
    fn verify_all_were_read(&mut self) {
        if self.unread_values > 0 {
            let message = format!(
                "expected at most {} bytes of values and prefixes in a shard of this length, found more, so that ranges \
                 overlap: {} values were not verified",
                ValueBudget::most(self.shard.files().data_len()),
                self.unread_values
            );
            self.found(FindingKind::OverCap, Error::corrupt(message));
        }
    }

    fn verify_key_count(&mut self) {
        let Some(record) = self.record else { return };
        if self.knows_all_extents && self.keys != record.keys {
            let message = format!("expected {} keys as the manifest says, found {}", record.keys, self.keys);
            self.found(FindingKind::WrongCount, Error::corrupt(message));
        }
    }
}
