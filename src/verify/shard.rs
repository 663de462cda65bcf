//! Verifies one shard: its CRC-32, its shard index, and the minishards that the shard index names.

use crate::ids::{MinishardNumber, minishard_number};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::byte_range::ByteRange;
use crate::bytes::Bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checks::StoredCheck;
use crate::format::checksum::Checksum;
use crate::format::layout::MINISHARD_ALIGNMENT;
use crate::format::manifest::{self, ShardRecord};
use crate::format::shard_index::ShardIndexEntry;
use crate::read::generation::Generation;
use crate::read::shard::{EntryBlocks, ShardReader, Summed, ValueBudget};
use crate::threads::progress::Progress;
use crate::verify::VerifyLevel;
use crate::verify::extents::Extents;
use crate::verify::finding::FindingKind;
use crate::verify::range_state::{RangeState, SharedBudget};
use crate::verify::report::VerifyReport;

/// Minimum size in bytes of a read from a shard that is neither mapped nor loaded, except at the end of the file.
const WINDOW_BLOCK: u64 = 256 << 10;

/// Counts what is verified of a shard: up to `total`, so that the counts of all shards add up to that of the
/// verification.
#[derive(Clone, Copy)]
pub(super) struct Steps<'a> {
    pub(super) progress: &'a Progress,
    pub(super) counted: &'a AtomicU64,
    pub(super) total: u64,
}

impl Steps<'_> {
    pub(super) fn add(self, bytes: u64) {
        let add = |counted: u64| Some(counted.saturating_add(bytes).min(self.total));
        let before = self.counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).unwrap_or(self.total);
        self.progress.add(bytes.min(self.total - before));
    }

    /// Errors: `Cancelled`. The rest of the shard may be left out then: nobody sees the report.
    pub(super) fn check(self) -> Result<()> {
        self.progress.check()
    }
}

/// The walk over one shard.
pub(super) struct ShardVerifier<'a> {
    pub(super) shard: &'a ShardReader,
    pub(super) max_value_bytes: u64,
    pub(super) report: &'a mut VerifyReport,
    /// For values, preambles and padding.
    pub(super) body_window: Window<'a>,
    /// For checks, which are not adjacent to the values: one window for both would move twice per value.
    pub(super) checks_window: Window<'a>,
    /// In a native shard with gzip indexes: where the gap before the first value of the next minishard begins, which is
    /// the end of the previous minishard, rounded up. Native shards store minishards in ascending order. `None` if the
    /// previous one could not be read. Not used for raw indexes, since the gap then begins after the checks of the same
    /// minishard.
    pub(super) gzip_gap_start: Option<u64>,
    /// What was found in the minishards so far.
    pub(super) state: RangeState,
    /// Number of values that were not read because `value_budget` did not allow it.
    pub(super) unread_values: u64,
    /// Whether the keys are compared with a key file.
    pub(super) sums_keys: bool,
    /// The budget of all ranges of the shard; `None` for a whole shard.
    pub(super) shared_budget: Option<&'a SharedBudget>,
    /// The directory of the generation.
    directory: &'a Path,
    /// The record of this shard in the manifest; `None` without a manifest.
    record: Option<ShardRecord>,
    pub(super) steps: Steps<'a>,
}

impl<'a> ShardVerifier<'a> {
    pub(super) fn new(
        generation: &'a Generation,
        shard: &'a ShardReader,
        report: &'a mut VerifyReport,
        steps: Steps<'a>,
    ) -> ShardVerifier<'a> {
        ShardVerifier {
            shard,
            max_value_bytes: generation.options().read.max_value_bytes,
            report,
            body_window: Window::new(shard),
            checks_window: Window::new(shard),
            gzip_gap_start: Some(shard.base().next_multiple_of(MINISHARD_ALIGNMENT)),
            state: RangeState::default(),
            unread_values: 0,
            sums_keys: generation.manifest().is_some_and(|manifest| manifest.auxiliary(manifest::KEYS).is_some()),
            shared_budget: None,
            directory: generation.directory(),
            record: generation.manifest().and_then(|manifest| manifest.shard(shard.number)).copied(),
            steps,
        }
    }

    /// Verifies the whole shard. Returns false if all extents are [needed](RangeState::needs_all_extents), which were not kept: the
    /// report is not complete then.
    pub(super) fn verify(&mut self) -> bool {
        self.begin();
        self.verify_entries(EntryBlocks::default());
        self.end()
    }

    /// Verifies the whole shard with all extents in memory: 32 bytes each.
    pub(super) fn verify_with_all_extents(mut self) {
        self.state.extents = Extents::All(Vec::new());
        _ = self.verify();
    }

    /// Verifies what does not depend on minishards: checksums of the file and of the shard index.
    pub(super) fn begin(&mut self) {
        self.report.shards += 1;
        if let Some(record) = self.record {
            self.verify_checksums(&record);
            self.verify_table();
        }
    }

    /// Verifies a range of minishards. What depends on all of them is left to [`end`](Self::end).
    ///
    /// Ends early if all ranges together exceed `shared_budget`: the shard is then verified as a whole.
    pub(super) fn verify_range(
        mut self,
        minishards: Range<MinishardNumber>,
        shared_budget: &'a SharedBudget,
    ) -> RangeState {
        self.shared_budget = Some(shared_budget);
        self.verify_entries(EntryBlocks::over(minishards));
        self.state
    }

    /// Adds what the verification of the next range found. Returns false if a budget is exceeded, so that a verification
    /// of the whole shard would have other findings.
    pub(super) fn absorb_range(&mut self, range: RangeState) -> bool {
        let len = self.shard.files().data_len();
        let state = &mut self.state;
        state.keys += range.keys;
        state.misplaced.append(range.misplaced);
        state.unnamed.merge(range.unnamed);
        !range.is_over_budget
            && !range.needs_all_extents
            && state.index_budget.add(range.index_budget, len)
            && state.value_budget.add(range.value_budget, len)
            && state.extents.append(range.extents, len)
    }

    /// Verifies what depends on all minishards: misplaced keys, overlaps, gaps, counts. Returns like [`verify`](Self::verify).
    pub(super) fn end(&mut self) -> bool {
        if self.state.needs_all_extents {
            return false;
        }
        if self.reaches(VerifyLevel::Index) {
            self.report_misplaced();
            self.verify_extents();
            self.report_unread_values();
            self.verify_key_count();
        }
        !self.state.needs_all_extents
    }

    pub(super) fn reaches(&self, level: VerifyLevel) -> bool {
        self.report.level >= level
    }

    /// Reports a finding about the file with the data, unless `error` has the path of another file already. For an I/O
    /// error or an exceeded cap, the kind is `UnreadableShard` or `OverCap` instead of `rule`.
    pub(super) fn report_finding(&mut self, rule: FindingKind, error: Error) {
        let kind = match error.kind() {
            ErrorKind::Io | ErrorKind::GenerationGone => FindingKind::UnreadableShard,
            ErrorKind::TooLarge => FindingKind::OverCap,
            _ => rule,
        };
        self.report.add(kind, error.at_shard(self.shard.number).at_path(&self.shard.files().path()));
    }

    /// Like `report_finding`, for the entry of a minishard, which is in the file with the shard index.
    fn report_in_entry(&mut self, rule: FindingKind, number: MinishardNumber, error: Error) {
        let path = self.shard.files().path();
        let error = if self.shard.files().is_pair() {
            error.at_path(&path.with_extension("index"))
        } else {
            error.at_path(&path)
        };
        self.report_finding(rule, error.at_minishard(number).at_offset(ShardIndexEntry::position(number).start));
    }

    /// Like `report_finding`, for an error after which some byte ranges are unknown.
    pub(super) fn report_with_lost_extents(&mut self, rule: FindingKind, error: Error) {
        self.state.lose_extents();
        self.report_finding(rule, error);
    }

    /// Charges the budget that all ranges of the shard share. Returns false if it is exceeded.
    pub(super) fn charge_shared(&mut self, take: impl FnOnce(&SharedBudget) -> bool) -> bool {
        self.state.is_over_budget |= !self.shared_budget.is_none_or(take);
        self.shared_budget.is_none() || !self.state.is_over_budget
    }

    /// Adds to `bytes_read` of the report.
    pub(super) fn count_read(&mut self, bytes: u64) {
        self.report.bytes_read += bytes;
    }

    /// Reports progress by `bytes`. Called only at the level `Data`; at the lower levels, progress is reported once per
    /// shard.
    pub(super) fn advance(&mut self, bytes: u64) {
        self.steps.add(bytes);
    }

    /// Verifies the checksums that the manifest states: of the file and of the shard index.
    fn verify_checksums(&mut self, record: &ShardRecord) {
        if self.reaches(VerifyLevel::Data) {
            let stated = record.checksum(&self.shard.spec);
            if let Err(error) = self.file_checksum(stated).and_then(|found| stated.check(found)) {
                self.report_finding(FindingKind::FileCrc, error);
            }
        }
        if self.reaches(VerifyLevel::Index) && self.shard.files().can_hold_shard_index(&self.shard.spec) {
            self.count_read(self.shard.spec.shard_index_len());
            let found = self.shard.compute_shard_index_crc32();
            self.compare_shard_index(record.shard_index_crc32, found);
        }
    }

    /// Compares the minishard table with the shard index.
    fn verify_table(&mut self) {
        if self.reaches(VerifyLevel::Index)
            && self.shard.files().can_hold_shard_index(&self.shard.spec)
            && let Err(error) = self.shard.check_table()
        {
            let path = self.directory.join(manifest::MINISHARDS);
            self.report_finding(FindingKind::WrongMinishardTable, error.at_path(&path));
        }
    }

    fn compare_shard_index(&mut self, stated: u32, found: Result<u32>) {
        let error = match found {
            Ok(found) if found == stated => return,
            Ok(found) => Error::corrupt(format!(
                "expected the shard index to have CRC-32 {stated:08x} as the manifest says, found {found:08x}"
            )),
            Err(error) => error,
        };
        self.report_finding(FindingKind::ShardIndexCrc, error);
    }

    /// Computes the checksum of the file.
    ///
    /// This is the first of two passes. The second, over indexes and values, finds the file in the page cache, unless
    /// the file is larger than that.
    fn file_checksum(&mut self, stated: Checksum) -> Result<Checksum> {
        let shard = self.shard;
        shard.file_checksum(stated, &mut |part| {
            let bytes = match part {
                Summed::Hole(bytes) => bytes,
                Summed::Read(bytes) => {
                    self.count_read(bytes);
                    bytes
                }
            };
            self.advance(bytes);
            self.steps.check()
        })
    }

    /// Verifies the entries of the shard index and, above the level `Structure`, the minishards that they name.
    fn verify_entries(&mut self, mut blocks: EntryBlocks) {
        loop {
            let (first, block) = match blocks.next(self.shard) {
                Ok(Some(block)) => block,
                Ok(None) => return,
                Err(error) => return self.report_short_shard_index(blocks.position(), error),
            };
            self.count_read(block.len() as u64);
            let entries = block.chunks_exact(size_of::<ShardIndexEntry>()).filter_map(ShardIndexEntry::read);
            for (number, entry) in (first.get()..).map(minishard_number).zip(entries) {
                if self.steps.check().is_err() || self.state.needs_all_extents {
                    return;
                }
                self.verify_entry(number, entry);
            }
        }
    }

    fn verify_entry(&mut self, number: MinishardNumber, entry: ShardIndexEntry) {
        match self.shard.resolve_entry(number, entry) {
            Ok(Some(index)) => {
                self.report.minishards += 1;
                if self.reaches(VerifyLevel::Index) {
                    self.verify_minishard(number, index);
                }
            }
            Ok(None) => self.verify_empty_entry(number, entry),
            Err(error) => {
                self.gzip_gap_start = None;
                self.state.lose_extents();
                self.report_in_entry(FindingKind::BadShardIndexEntry, number, error);
            }
        }
    }

    /// Reports that the entries from minishard `first` on cannot be read.
    fn report_short_shard_index(&mut self, first: MinishardNumber, error: Error) {
        self.state.lose_extents();
        // drops the path of a `Corrupt` error, which for the obsolete pair is that of the data file, because
        // `report_in_entry` does not replace a path
        let error = match error.kind() {
            ErrorKind::Corrupt => Error::corrupt(error.message()),
            _ => error,
        };
        self.report_in_entry(FindingKind::ShortShardIndex, first, error);
    }

    /// Verifies the entry of an empty minishard. The format allows any range of length 0, but some readers refuse one
    /// outside of the file.
    fn verify_empty_entry(&mut self, number: MinishardNumber, entry: ShardIndexEntry) {
        let offset = entry.to_bytes().first_chunk().map_or(0, |start| u64::from_le_bytes(*start));
        if offset > self.shard.body_len() {
            let message = format!(
                "expected the entry of an empty minishard inside the file, found {offset}..{offset}: some readers refuse it"
            );
            self.report_in_entry(FindingKind::OddEmptyEntry, number, Error::corrupt(message));
        }
    }

    /// Reports values that were not read because the value budget was spent: overlapping values can add up to many times
    /// the file length.
    fn report_unread_values(&mut self) {
        if self.unread_values > 0 {
            let message = format!(
                "expected at most {} bytes of values and preambles in a shard of this length, found more, because \
                 ranges overlap: {} values were not verified",
                ValueBudget::most(self.shard.files().data_len()),
                self.unread_values
            );
            self.report_finding(FindingKind::OverCap, Error::corrupt(message));
        }
    }

    fn verify_key_count(&mut self) {
        let Some(record) = self.record else { return };
        if !self.state.lost_extents && self.state.keys != record.keys {
            let message = format!("expected {} keys as the manifest says, found {}", record.keys, self.state.keys);
            self.report_finding(FindingKind::WrongCount, Error::corrupt(message));
        }
    }
}

/// A buffered view of a shard, for reads at mostly ascending offsets.
pub(super) struct Window<'a> {
    shard: &'a ShardReader,
    /// The length of the file with the data.
    data_len: u64,
    block_range: ByteRange,
    block: Option<Bytes<'a>>,
}

impl<'a> Window<'a> {
    fn new(shard: &'a ShardReader) -> Window<'a> {
        Window { shard, data_len: shard.files().data_len(), block_range: ByteRange { start: 0, end: 0 }, block: None }
    }

    /// Returns the bytes of a range of the file: borrowed from memory, or else from the buffered block.
    ///
    /// Does not enforce a cap: the caller must limit the length of the range.
    pub(super) fn read(&mut self, range: ByteRange) -> Result<&[u8]> {
        if let Some(bytes) = self.shard.mapped_or_loaded(range) {
            return Ok(bytes);
        }
        if self.block.is_none() || range.start < self.block_range.start || range.end > self.block_range.end {
            self.move_to(range)?;
        }
        let block = self.block.as_deref().unwrap_or_default();
        let start = range.start - self.block_range.start;
        let in_block = ByteRange { start, end: start + range.len() };
        in_block.of(block).ok_or_else(|| Error::corrupt("expected a range inside the file, found the end of the file"))
    }

    /// Returns the check at a place. Errors: `Corrupt` if there is no such place, or it is not inside the file.
    pub(super) fn read_check(&mut self, place: Option<ByteRange>) -> Result<StoredCheck> {
        StoredCheck::read(place, |place| {
            if place.end <= self.data_len {
                self.read(place)
            } else {
                Err(Error::corrupt("expected checks after the minishard index, found the end of the file"))
            }
        })
    }

    /// Reads a block that begins with `range` and contains all of it.
    fn move_to(&mut self, range: ByteRange) -> Result<()> {
        let end = (range.start + WINDOW_BLOCK).min(self.data_len).max(range.end);
        self.block = None; // freed first, so that there is one block at a time
        self.block_range = ByteRange { start: range.start, end };
        self.block = Some(self.shard.read(self.block_range)?);
        Ok(())
    }
}
