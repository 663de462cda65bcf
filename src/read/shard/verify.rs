//! Verifies the bytes that reads use against their checksums.
//!
//! The functions `verify_*` verify as the mode requires, and skip what is trusted. The functions `compare_*_check` only
//! compare one check, whatever the mode.

use std::ops::Deref;
use std::sync::atomic::Ordering;

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::format::checks::{self, ChecksPlace, StoredCheck};
use crate::format::checksum::crc32_of_zeros;
use crate::format::minishard::MinishardIndex;
use crate::format::minishard_index::Row;
use crate::format::shard_index::ShardIndexEntry;
use crate::ids::{Location, MinishardNumber};
use crate::read::shard::entry_blocks::EntryBlocks;
use crate::read::shard::minishard_map::{KnownMinishard, Trusted};
use crate::read::shard::reader::ShardReader;
use crate::read::shard::stored_value::FoundKey;
use crate::read::shard::verification::{LARGE_VALUE, VerifyScope};

/// A minishard is small if its index and its values together span at most this many bytes. All its values are verified
/// at its first use.
const SMALL_MINISHARD: u64 = 4096;

impl ShardReader {
    /// Returns whether the value is verified: whether a large value is marked as verified, or a shorter one matches its
    /// check now. If not, the general path verifies the value, or reports the damage.
    #[inline]
    pub(crate) fn try_verify_value(&self, body: &[u8], row: Row, checks: ChecksPlace, value: &[u8]) -> bool {
        if value.len() as u64 > LARGE_VALUE {
            return self.verification.is_large_value_verified(row.value);
        }
        let stated = checks.place_of_value(row.number).and_then(|place| place.of(body));
        stated.is_some_and(|stated| stated == checks::compute_value_check(row.id, value).to_le_bytes())
    }

    /// Returns the number of minishards in the minishard map that lookups have marked as trusted.
    pub(crate) fn verified_minishards(&self) -> u64 {
        self.minishard_map.marked()
    }

    /// Whether bytes need verification that nothing else exempts.
    pub(super) fn verifies(&self) -> bool {
        self.exempt_parts() == Trusted::NOTHING
    }

    /// Returns the parts of every minishard that need no verification. That another reader of the shard, which maps it, has
    /// verified all of it does not exempt what positioned reads return.
    pub(super) fn exempt_parts(&self) -> Trusted {
        let is_whole = self.files.data().mapped_or_loaded().is_some() && self.known.whole_verified.is_verified();
        self.verification.exempt_parts(is_whole)
    }

    /// Returns the parts of a minishard that need no verification, if its index is directly before `checks`.
    fn trusted_parts(&self, number: MinishardNumber, checks: ChecksPlace) -> Trusted {
        match self.exempt_parts() {
            Trusted::NOTHING => self.known_at(number, checks).map_or(Trusted::NOTHING, |known| known.trusted),
            all => all,
        }
    }

    /// Marks parts of a minishard as trusted in the minishard map. Does nothing unless the map has the index that is
    /// directly before `checks`.
    pub(crate) fn mark_trusted(&self, number: MinishardNumber, checks: ChecksPlace, trusted: Trusted) {
        if self.known_at(number, checks).is_some_and(|known| known.trusted != trusted) {
            self.minishard_map.mark(number, trusted);
        }
    }

    /// Returns what the minishard map has of a minishard; `None` unless it has the index that is directly before
    /// `checks`: walks use the shard index, and the map may have been filled from a minishard table that is wrong.
    fn known_at(&self, number: MinishardNumber, checks: ChecksPlace) -> Option<KnownMinishard> {
        let known = self.minishard_map.get(number)?;
        let end = self.base().checked_add(known.index().end)?;
        (end == checks.index_end && u64::from(known.rows) == checks.rows).then_some(known)
    }

    /// Verifies an index before its use, unless it is trusted. With `VerifyScope::IndexAndValuesIfSmall`, also verifies
    /// the values of a small minishard that is mapped or loaded. Returns the parts that this use may trust.
    ///
    /// Errors: `Corrupt` for a damaged index. A damaged value is no error here: reads of that value return one.
    pub(crate) fn verify_used_index<B: Deref<Target = [u8]>>(
        &self,
        number: MinishardNumber,
        index: &MinishardIndex<B>,
        scope: VerifyScope,
    ) -> Result<Trusted> {
        let checks = index.checks();
        let trusted = self.trusted_parts(number, checks);
        if trusted.has_all() || trusted.has_index() && scope == VerifyScope::Index {
            return Ok(trusted);
        }
        if !trusted.has_index() {
            self.compare_index_check(number, index)?;
        }
        if !self.verification.remembers() || !self.has_index_in_place() {
            return Ok(Trusted::INDEX);
        }
        let all = scope == VerifyScope::IndexAndValuesIfSmall
            && self.has_values_in_place()
            && self.verify_values_if_small(index);
        let trusted = if all { Trusted::ALL } else { Trusted::INDEX };
        self.mark_trusted(number, checks, trusted);
        Ok(trusted)
    }

    /// Verifies all values of a minishard if it is small. Returns false if it is not, or if a value is damaged.
    fn verify_values_if_small<B: Deref<Target = [u8]>>(&self, index: &MinishardIndex<B>) -> bool {
        let (range, checks) = (index.range, index.checks());
        range.len() <= SMALL_MINISHARD
            && index.view().rows().all(|row| {
                let value = self.value_range(row).ok().filter(|value| value.end <= range.start + SMALL_MINISHARD);
                let bytes = value.and_then(|value| self.mapped_or_loaded(value));
                bytes.is_some_and(|bytes| self.compare_value_check(row, checks, bytes).is_ok())
            })
    }

    /// Verifies a stored value before its use, unless it is trusted or marked as verified.
    pub(crate) fn verify_used_value(&self, found: &FoundKey, encoded: &[u8]) -> Result<()> {
        let FoundKey { minishard: number, row, checks, value_check } = *found;
        let in_place = self.has_values_in_place();
        let is_large = encoded.len() as u64 > LARGE_VALUE;
        if in_place
            && (self.trusted_parts(number, checks).has_all()
                || is_large && self.verification.is_large_value_verified(row.value))
            || !self.verification.is_on()
        {
            return Ok(());
        }
        if value_check.is_none_or(|stated| stated != checks::compute_value_check(row.id, encoded)) {
            self.compare_value_check(row, checks, encoded)?;
        }
        if in_place && is_large && self.verification.remembers() {
            self.verification.mark_large_value_verified(row.value, self.body_len());
        }
        Ok(())
    }

    /// Marks the whole shard as verified, if the mode remembers verified bytes and all of them are mapped or loaded.
    pub(crate) fn note_whole_verified(&self) {
        if self.verification.remembers() && self.has_index_in_place() && self.has_values_in_place() {
            self.known.whole_verified.set_verified();
        }
    }

    /// Verifies the whole shard index at its first use. Later calls do nothing, even with `VerifyReads::Always`: the check
    /// of the minishard index finds an entry that is damaged later, unless the damage makes the entry empty.
    ///
    /// Does nothing if the manifest does not state the CRC-32 of the shard index, if the mode is `Never`, or if the
    /// whole shard is verified. Cost: reads all of the shard index, except for holes.
    pub(crate) fn verify_shard_index(&self) -> Result<()> {
        let Some(stated) = self.shard_index_crc32().filter(|_| self.verifies()) else { return Ok(()) };
        if self.verification.shard_index.load(Ordering::Relaxed) {
            return Ok(());
        }
        let found = self.compute_shard_index_crc32()?;
        if found != stated {
            let message = format!("expected a shard index with CRC-32 {stated:08x}, found {found:08x}");
            return Err(Error::corrupt(message).at_offset(0));
        }
        self.verification.shard_index.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Like [`verify_shard_index`](Self::verify_shard_index), with the place of the shard in the error.
    pub(crate) fn verify_shard_index_in_place(&self) -> Result<()> {
        self.verify_shard_index().map_err(|error| error.at_shard(self.number).at_path(&self.files().path()))
    }

    /// Computes the CRC-32 of the shard index. Cost: reads the shard index without its holes.
    pub(crate) fn compute_shard_index_crc32(&self) -> Result<u32> {
        let (mut hasher, mut end) = (crc32fast::Hasher::new(), 0);
        let mut blocks = EntryBlocks::default();
        while let Some((first, block)) = blocks.next(self)? {
            let start = ShardIndexEntry::position(first).start;
            hasher.combine(&crc32_of_zeros(start - end));
            hasher.update(&block);
            end = start + block.len() as u64;
        }
        hasher.combine(&crc32_of_zeros(self.spec.shard_index_len().saturating_sub(end)));
        Ok(hasher.finalize())
    }

    /// Compares the check of an encoded minishard index. Does nothing without checks.
    pub(crate) fn compare_index_check<B: Deref<Target = [u8]>>(
        &self,
        number: MinishardNumber,
        index: &MinishardIndex<B>,
    ) -> Result<()> {
        let location = Location { shard: self.number, minishard: number };
        self.compare_check(index.checks().place_of_index(), "minishard index", index.range.start, || {
            index.compute_check(location)
        })
    }

    /// Compares the check of a stored value. Does nothing without checks.
    pub(crate) fn compare_value_check(&self, row: Row, checks: ChecksPlace, encoded: &[u8]) -> Result<()> {
        let start = self.base().wrapping_add(row.value.start); // does not wrap: the value was read
        self.compare_check(checks.place_of_value(row.number), "value", start, || {
            checks::compute_value_check(row.id, encoded)
        })
    }

    /// Reads the preamble of a value, which is all bytes of `gap`, and compares its check. Does nothing without checks,
    /// except for the read.
    pub(crate) fn compare_preamble_check(&self, row: Row, checks: ChecksPlace, gap: ByteRange) -> Result<()> {
        let preamble = self.read_at_most_cap(gap, 1)?;
        self.compare_check(checks.place_of_preamble(row.number), "preamble", gap.start, || {
            checks::compute_preamble_check(&preamble)
        })
    }

    /// Compares the check at `place` with `found`, that of the bytes at offset `start`. Does nothing without checks.
    fn compare_check(
        &self,
        place: Option<ByteRange>,
        what: &str,
        start: u64,
        found: impl FnOnce() -> u32,
    ) -> Result<()> {
        if !self.layout.is_some_and(|layout| layout.checks) {
            return Ok(());
        }
        StoredCheck::read(place, |place| self.read(place))?.compare(what, start, found())
    }

    /// Whether preambles have checksums and reads verify them.
    pub(crate) fn verifies_preambles(&self) -> bool {
        self.verification.is_on() && self.layout.is_some_and(|layout| layout.checks && layout.preambles)
    }
}
