//! Pairs as stored: for copying them to another shard without decoding.

use crc32fast::Hasher;

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::format::checks;
use crate::format::checksum::crc32_of_zeros;
use crate::format::layout::Layout;
use crate::ids::MinishardNumber;
use crate::read::shard::reader::ShardReader;
use crate::read::shard::stored_value::FoundKey;

/// Maximum length of a piece of a value that is copied at once, in bytes.
const PIECE: u64 = 1 << 20;

/// The stored bytes of a pair of a native shard, and their checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredPair {
    /// The length of the preamble, which is directly before the value.
    pub(crate) preamble_len: u64,
    pub(crate) value: ByteRange,
    /// 0 without checks.
    pub(crate) value_check: u32,
    /// The CRC-32 of the preamble; 0 without checks.
    pub(crate) preamble_check: u32,
}

impl ShardReader {
    /// Returns where the pair of a row is stored, with the checks that the shard states.
    ///
    /// Errors: `Corrupt` if value or preamble are not within the file; `Io`.
    pub(crate) fn stored_pair(&self, found: &FoundKey) -> Result<StoredPair> {
        self.stored_pair_of(found).map_err(|error| self.at(found.minishard, error).at_key(found.row.id))
    }

    fn stored_pair_of(&self, found: &FoundKey) -> Result<StoredPair> {
        let Layout { checks, preambles, .. } = self.layout.unwrap_or_default();
        let value = self.value_range(found.row)?;
        let gap = if preambles { self.native_gap(found)? } else { ByteRange { start: value.start, end: value.start } };
        let padding = if preambles { self.padding_of(found.row, gap)? } else { 0 };
        let preamble_len = gap.len() - padding;
        if padding > 0 && preamble_len == 0 {
            self.compare_preamble_check(found.row, found.checks, gap)?;
        }
        let stated = |place: Option<ByteRange>| -> Result<u32> {
            let place =
                place.ok_or_else(|| Error::corrupt("expected checks at an offset below 2^64, found a later one"))?;
            Ok(self.read(place)?.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
        };
        let row = found.row.number;
        let value_check = if checks { stated(found.checks.place_of_value(row))? } else { 0 };
        let preamble_check = if checks && preamble_len > 0 {
            without_zeros(padding, stated(found.checks.place_of_preamble(row))?, preamble_len)
        } else {
            0
        };
        Ok(StoredPair { preamble_len, value, value_check, preamble_check })
    }

    /// Passes the preamble and the stored value of a pair to `to`, and compares their checks.
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
        let preamble = ByteRange { start: pair.value.start.saturating_sub(pair.preamble_len), end: pair.value.start };
        let parts = [
            ("preamble", preamble, checks::preamble_hasher(), pair.preamble_check),
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

/// Returns the CRC-32 of `len` bytes, given that of the same bytes after zeros.
fn without_zeros(zeros: u64, crc32: u32, len: u64) -> u32 {
    let mut of_zeros = crc32_of_zeros(zeros);
    of_zeros.combine(&Hasher::new_with_initial_len(0, len)); // what the zeros contribute
    crc32 ^ of_zeros.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc32_without_zeros_is_that_of_the_rest() {
        for (zeros, rest) in [(0, &b"rest"[..]), (1, b"\0\x01"), (63, b"a preamble"), (5, b"")] {
            let all = [vec![0; zeros], rest.to_vec()].concat();
            let found = without_zeros(zeros as u64, crc32fast::hash(&all), rest.len() as u64);
            assert_eq!(found, crc32fast::hash(rest), "{zeros} zeros");
        }
    }
}
