//! Verifies bytes that are read against their checksums.

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::format::checks::{self, ChecksPlace};
use crate::format::minishard_index::{IndexView, Row};
use crate::format::shard_index::ShardIndexEntry;
use crate::ids::{Location, MinishardNumber};
use crate::read::shard::entry_blocks::EntryBlocks;
use crate::read::shard::minishards::Verified;
use crate::read::shard::reader::ShardReader;
use crate::read::shard::verification::{LARGE_VALUE, VerifyScope};
use crate::storage::zeros_sum;

/// A minishard of at most this many bytes is verified with all its values at its first use.
const WHOLE_MINISHARD: u64 = 4096;

impl ShardReader {
    /// Whether a value of a minishard whose values are not all verified is known to be right: one of more than 512 bytes if
    /// it is marked as verified, a shorter one if it matches its checksum now. False is no error: the general path decides.
    #[inline]
    pub(crate) fn try_verify_value(&self, body: &[u8], row: Row, checks: ChecksPlace, value: &[u8]) -> bool {
        if value.len() as u64 > LARGE_VALUE {
            return self.verification.has_large_value(row.value);
        }
        let stated = checks.of_value(row.number).and_then(|place| place.of(body));
        stated.is_some_and(|stated| stated == checks::of_value(row.id, value).to_le_bytes())
    }

    /// Returns the number of verified minishards, which are not verified again.
    pub(crate) fn verified_minishards(&self) -> u64 {
        self.minishards.verified()
    }

    /// Returns the parts of a minishard that need no verification.
    pub(crate) fn verified(&self, number: MinishardNumber) -> Verified {
        match self.verification.exempt_parts(&self.stated.whole) {
            Verified::NOTHING => self.minishards.get(number).map_or(Verified::NOTHING, |known| known.verified),
            all => all,
        }
    }

    /// Verifies an index before its use, unless it is verified already. With `VerifyScope::IndexAndSmallValues`, also
    /// verifies the values of a small minishard in memory. Returns the parts that this use may trust.
    ///
    /// Errors: `Corrupt` for a damaged index. A damaged value is not an error here, but when it is read.
    pub(crate) fn verify_used_index(
        &self,
        number: MinishardNumber,
        range: ByteRange,
        encoded: &[u8],
        rows: u64,
        compare: VerifyScope,
    ) -> Result<Verified> {
        let verified = self.verified(number);
        if verified.has_all() || verified.has_index() && compare == VerifyScope::Index {
            return Ok(verified);
        }
        if !verified.has_index() {
            self.verify_minishard_index(number, range, encoded, rows)?;
        }
        if !self.verification.remembers() || !self.has_index_in_place() {
            return Ok(Verified::INDEX);
        }
        let all = compare == VerifyScope::IndexAndSmallValues
            && self.has_values_in_place()
            && self.verify_small_values(range, encoded);
        let verified = if all { Verified::ALL } else { Verified::INDEX };
        self.minishards.mark(number, verified);
        Ok(verified)
    }

    /// Verifies all values if index and values end within 4 KiB of the start of the index. False if they do not, or one is
    /// damaged.
    fn verify_small_values(&self, range: ByteRange, encoded: &[u8]) -> bool {
        let Ok(index) = IndexView::view(encoded) else { return false };
        let checks = ChecksPlace { index_end: range.end, rows: index.len() as u64 };
        range.len() <= WHOLE_MINISHARD
            && index.rows().all(|row| {
                let value = self.value_range(row).ok().filter(|value| value.end <= range.start + WHOLE_MINISHARD);
                let bytes = value.and_then(|value| self.in_memory(value));
                bytes.is_some_and(|bytes| self.verify_value(row, checks, bytes).is_ok())
            })
    }

    /// Verifies a stored value before its use, unless it is verified already.
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
            self.verification.mark_large_value(row.value, self.body_len());
        }
        Ok(())
    }

    /// Marks the whole shard as verified, if the mode remembers verified bytes and all of them are in memory.
    pub(crate) fn note_whole_verified(&self) {
        if self.verification.remembers() && self.has_index_in_place() && self.has_values_in_place() {
            self.stated.whole.set_verified();
        }
    }

    /// Verifies the whole shard index at its first use, in `Always` too; later damage is left to the checks of the minishard
    /// indexes. Cost: reads all of it but its holes.
    pub(crate) fn verify_shard_index(&self) -> Result<()> {
        let is_wanted = self.verification.exempt_parts(&self.stated.whole) == Verified::NOTHING;
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

    /// Computes the CRC-32 of the shard index. Cost: reads the shard index without its holes.
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

    /// Verifies an encoded minishard index against its checksum.
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

    /// Verifies a stored value against its checksum.
    pub(crate) fn verify_value(&self, row: Row, checks: ChecksPlace, encoded: &[u8]) -> Result<()> {
        self.verify(checks.of_value(row.number), "value", || checks::of_value(row.id, encoded))
    }

    /// Verifies the whole prefix of a value against its checksum.
    pub(crate) fn verify_prefix(&self, row: Row, checks: ChecksPlace, gap: ByteRange) -> Result<()> {
        let prefix = self.read_at_most_cap(gap, 1)?;
        self.verify(checks.of_prefix(row.number), "prefix", || checks::of_prefix(&prefix))
    }

    fn verify(&self, place: Option<ByteRange>, what: &str, found: impl FnOnce() -> u32) -> Result<()> {
        if !self.layout.is_some_and(|layout| layout.checks) {
            return Ok(());
        }
        let place = place.ok_or_else(|| {
            Error::corrupt("expected checks at an offset below 2^64, found a minishard index that ends later")
        })?;
        let stored = self.read(place)?;
        let stated = stored.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let found = found();
        if stated != found {
            let message = format!("expected a {what} with checksum {stated:08x}, found {found:08x}");
            return Err(Error::corrupt(message).at_offset(place.start));
        }
        Ok(())
    }

    /// Whether prefixes have checksums and reads verify them.
    pub(crate) fn verifies_prefixes(&self) -> bool {
        self.verification.is_on() && self.layout.is_some_and(|layout| layout.checks && layout.prefixes)
    }
}
