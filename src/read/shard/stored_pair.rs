//! Pairs as stored: for copying them to another shard without decoding.

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::format::checks;
use crate::format::layout::Layout;
use crate::ids::MinishardNumber;
use crate::read::shard::reader::ShardReader;
use crate::read::shard::stored_value::FoundKey;

/// Maximum length of a piece of a value that is copied at once, in bytes.
const PIECE: u64 = 1 << 20;

/// The stored bytes of a pair of a native shard, and their checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredPair {
    /// The length of the prefix, which is directly before the value. Includes padding, which has no mark of its own.
    pub(crate) prefix_len: u64,
    pub(crate) value: ByteRange,
    /// 0 without checks.
    pub(crate) value_check: u32,
    /// 0 without checks.
    pub(crate) prefix_check: u32,
}

impl ShardReader {
    /// Returns where the pair of a row is stored, with the checks that the shard states.
    ///
    /// Errors: `Corrupt` if value or prefix are not within the file; `Io`.
    pub(crate) fn stored_pair(&self, found: &FoundKey) -> Result<StoredPair> {
        self.stored_pair_of(found).map_err(|error| self.at(found.minishard, error).at_key(found.row.id))
    }

    fn stored_pair_of(&self, found: &FoundKey) -> Result<StoredPair> {
        let Layout { checks, prefixes, .. } = self.layout.unwrap_or_default();
        let value = self.value_range(found.row)?;
        let gap = if prefixes { self.native_gap(found)? } else { ByteRange { start: value.start, end: value.start } };
        let is_padding = prefixes && self.is_padding(found.row, gap)?;
        if is_padding {
            self.compare_prefix_check(found.row, found.checks, gap)?;
        }
        let has_prefix = prefixes && !is_padding;
        let prefix_len = if has_prefix { gap.len() } else { 0 };
        let stated = |place: Option<ByteRange>| -> Result<u32> {
            let place =
                place.ok_or_else(|| Error::corrupt("expected checks at an offset below 2^64, found a later one"))?;
            Ok(self.read(place)?.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
        };
        let row = found.row.number;
        let value_check = if checks { stated(found.checks.place_of_value(row))? } else { 0 };
        let prefix_check = if checks && has_prefix { stated(found.checks.place_of_prefix(row))? } else { 0 };
        Ok(StoredPair { prefix_len, value, value_check, prefix_check })
    }

    /// Passes the prefix and the stored value of a pair to `to`, and compares their checks.
    ///
    /// Errors: `Corrupt` if a check does not match, after the bytes were passed on; `Io`; those of `to`.
    pub(crate) fn copy_pair(
        &self,
        minishard: MinishardNumber,
        key: u64,
        pair: &StoredPair,
        to: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let has_checks = self.layout.is_some_and(|layout| layout.checks);
        let prefix = ByteRange { start: pair.value.start.saturating_sub(pair.prefix_len), end: pair.value.start };
        let parts = [
            ("prefix", prefix, checks::prefix_hasher(), pair.prefix_check),
            ("value", pair.value, checks::value_hasher(key), pair.value_check),
        ];
        for (what, range, mut hasher, stated) in parts {
            self.copy_range(range, &mut hasher, &mut *to).map_err(|error| self.at(minishard, error).at_key(key))?;
            let found = hasher.finalize();
            if has_checks && found != stated {
                let message = format!(
                    "expected a {what} with check {stated:08x}, found {found:08x}: salvage the database, or replace the key"
                );
                let error = Error::corrupt(message).at_offset(range.start);
                return Err(self.at(minishard, error).at_key(key));
            }
        }
        Ok(())
    }

    fn copy_range(
        &self,
        range: ByteRange,
        hasher: &mut crc32fast::Hasher,
        to: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start.saturating_add(PIECE));
            let piece = self.read(ByteRange { start, end })?;
            hasher.update(&piece);
            to(&piece)?;
            start = end;
        }
        Ok(())
    }
}
