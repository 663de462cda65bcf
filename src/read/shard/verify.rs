//! Comparing bytes that are read with their checks.

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::format::checks::{self, ChecksPlace};
use crate::format::minishard_index::{RawIndex, Row};
use crate::format::shard_index::ShardIndexEntry;
use crate::ids::{Location, MinishardNumber};
use crate::read::shard::entry_blocks::EntryBlocks;
use crate::read::shard::minishards::Verified;
use crate::read::shard::reader::ShardReader;
use crate::read::shard::verification::{Compare, LARGE_VALUE};
use crate::storage::zeros_sum;

/// A minishard of at most so many bytes is compared as a whole.
const WHOLE_MINISHARD: u64 = 4096;

impl ShardReader {
    /// Whether the bytes of a value in a minishard whose values have not all been compared are as they were written, by
    /// memory or by its check. `None`: not known without the general path.
    #[inline]
    pub(crate) fn is_value_as_written(&self, behind: &[u8], row: Row, checks: ChecksPlace, value: &[u8]) -> Option<()> {
        if value.len() as u64 > LARGE_VALUE {
            return self.verification.has_large_value(row.value).then_some(());
        }
        let stated = checks.of_value(row.number)?.of(behind)?;
        (stated == checks::of_value(row.id, value).to_le_bytes()).then_some(())
    }

    /// How many minishards were compared, and need not be again.
    pub(crate) fn verified_minishards(&self) -> u64 {
        self.minishards.verified()
    }

    /// What of a minishard need not be compared any more.
    pub(crate) fn verified(&self, number: MinishardNumber) -> Verified {
        match self.verification.initial(&self.stated.whole) {
            Verified::NOTHING => self.minishards.get(number).map_or(Verified::NOTHING, |known| known.verified),
            all => all,
        }
    }

    /// Compares an index that is about to be used with its check, unless that was done; in memory the values of a small
    /// minishard too. Returns what need not be compared any more.
    ///
    /// Errors: `Corrupt` for a damaged index. A damaged value is an error when it is asked for.
    pub(crate) fn verify_used_index(
        &self,
        number: MinishardNumber,
        range: ByteRange,
        encoded: &[u8],
        rows: u64,
        compare: Compare,
    ) -> Result<Verified> {
        let verified = self.verified(number);
        if verified.has_all() || verified.has_index() && compare == Compare::Index {
            return Ok(verified);
        }
        self.verify_minishard_index(number, range, encoded, rows)?;
        if !self.verification.remembers() || !self.has_index_in_place() {
            return Ok(Verified::INDEX);
        }
        let all = compare == Compare::Values && self.has_values_in_place() && self.verify_small_values(range, encoded);
        let verified = if all { Verified::ALL } else { Verified::INDEX };
        self.minishards.mark(number, verified);
        Ok(verified)
    }

    /// Whether a minishard is small, and all of its values are as they were written.
    fn verify_small_values(&self, range: ByteRange, encoded: &[u8]) -> bool {
        let Ok(index) = RawIndex::view(encoded) else { return false };
        let checks = ChecksPlace { index_end: range.end, rows: index.len() as u64 };
        range.len() <= WHOLE_MINISHARD
            && index.rows().all(|row| {
                let value = self.value_range(row).ok().filter(|value| value.end <= range.start + WHOLE_MINISHARD);
                let bytes = value.and_then(|value| self.in_memory(value));
                bytes.is_some_and(|bytes| self.verify_value(row, checks, bytes).is_ok())
            })
    }

    /// Compares a stored value that is about to be used with its check, unless that was done.
    pub(crate) fn verify_used_value(
        &self,
        number: MinishardNumber,
        row: Row,
        checks: ChecksPlace,
        encoded: &[u8],
    ) -> Result<()> {
        let in_place = self.has_values_in_place();
        let is_large = encoded.len() as u64 > LARGE_VALUE;
        if in_place && (self.verified(number).has_all() || is_large && self.verification.has_large_value(row.value))
            || !self.verification.is_on()
        {
            return Ok(());
        }
        self.verify_value(row, checks, encoded)?;
        if in_place && is_large && self.verification.remembers() {
            self.verification.mark_large_value(row.value, self.behind_len());
        }
        Ok(())
    }

    /// Notes that all of the shard was compared, if that is remembered.
    pub(crate) fn note_whole_verified(&self) {
        if self.verification.remembers() && self.has_index_in_place() && self.has_values_in_place() {
            self.stated.whole.set_verified();
        }
    }

    /// Compares the shard index with the manifest, once.
    pub(crate) fn verify_shard_index(&self) -> Result<()> {
        let is_wanted = self.verification.initial(&self.stated.whole) == Verified::NOTHING;
        let Some(stated) = self.shard_index_crc32().filter(|_| is_wanted) else { return Ok(()) };
        if self.verification.shard_index.get().is_some() {
            return Ok(());
        }
        let found = self.compute_shard_index_crc32()?;
        if found != stated {
            let message = format!("expected a shard index with CRC-32 {stated:08x}, found {found:08x}");
            return Err(Error::corrupt(message).at_offset(0));
        }
        self.verification.shard_index.get_or_init(|| ());
        Ok(())
    }

    /// The CRC-32 of the shard index.
    pub(crate) fn compute_shard_index_crc32(&self) -> Result<u32> {
        let (mut hasher, mut end) = (crc32fast::Hasher::new(), 0);
        let mut blocks = EntryBlocks::default();
        while let Some((first, block)) = blocks.next(self)? {
            let start = ShardIndexEntry::position(first).start;
            hasher.combine(&zeros_sum(start - end));
            hasher.update(&block);
            end = start + block.len() as u64;
        }
        hasher.combine(&zeros_sum(self.spec.shard_index_len().saturating_sub(end)));
        Ok(hasher.finalize())
    }

    /// Compares an encoded minishard index with its check.
    pub(crate) fn verify_minishard_index(
        &self,
        number: MinishardNumber,
        range: ByteRange,
        encoded: &[u8],
        rows: u64,
    ) -> Result<()> {
        let checks = ChecksPlace { index_end: range.end, rows };
        let location = Location { shard: self.number, minishard: number };
        self.verify(checks.of_index(), "minishard index", || checks::of_index(location, encoded))
    }

    /// Compares a stored value with its check.
    pub(crate) fn verify_value(&self, row: Row, checks: ChecksPlace, encoded: &[u8]) -> Result<()> {
        self.verify(checks.of_value(row.number), "value", || checks::of_value(row.id, encoded))
    }

    /// Compares the whole prefix of a value with its check.
    pub(crate) fn verify_prefix(&self, row: Row, checks: ChecksPlace, gap: ByteRange) -> Result<()> {
        let prefix = self.read_at_most_cap(gap, 1)?;
        self.verify(checks.of_prefix(row.number), "prefix", || checks::of_prefix(&prefix))
    }

    fn verify(&self, place: Option<ByteRange>, what: &str, found: impl FnOnce() -> u32) -> Result<()> {
        if !self.layout.is_some_and(|layout| layout.checks) {
            return Ok(());
        }
        let place =
            place.ok_or_else(|| Error::corrupt("expected checks behind the index, found the end of the file"))?;
        let stored = self.read(place)?;
        let stated = stored.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let found = found();
        if stated != found {
            let message = format!("expected a {what} with check {stated:08x}, found {found:08x}");
            return Err(Error::corrupt(message).at_offset(place.start));
        }
        Ok(())
    }

    /// Whether prefixes have checks, and reads compare them.
    pub(crate) fn verifies_prefixes(&self) -> bool {
        self.verification.is_on() && self.layout.is_some_and(|layout| layout.checks && layout.prefixes)
    }
}
