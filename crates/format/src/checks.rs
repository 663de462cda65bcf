//! Checks: CRC-32 checksums of indexes, values and preambles, in bytes of a native shard that no index names.
//!
//! ```text
//! directly after the encoded minishard index, u32le each
//!   crc32(shard u64le, minishard u64le, encoded index)
//!   n x crc32(key u64le, encoded value)          in the order of the index's rows
//!   n x crc32(preamble)                            only in a data set with preambles
//! ```
//!
//! Location and key are part of the checksums, so intact bytes at the wrong location fail verification too.
//! The preamble of a value is the gap between the preceding value, or index with checks, and the value: padding, then the
//! inserted preamble. With gzip indexes, the padding of a minishard to 8 bytes is not part of it.

use std::ops::Deref;
use std::sync::LazyLock;

use crc32fast::Hasher;

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::ids::Location;
use crate::layout::Layout;

/// The length of a check in bytes.
const CHECK_LEN: u64 = 4;

/// The place of the checks of one minishard, relative to the start of the file or, on the fast path, of the body (the
/// bytes after the shard index).
#[derive(Clone, Copy, Debug)]
pub struct ChecksPlace {
    /// Offset of the end of the encoded index. The places of the checks are relative to the same start.
    pub index_end: u64,
    /// The number of keys.
    pub rows: u64,
}

impl ChecksPlace {
    /// Returns the length in bytes of all checks of a minishard with `rows` keys.
    pub fn total_len(rows: u64, layout: Layout) -> u64 {
        match layout {
            Layout { checks: false, .. } => 0,
            Layout { preambles: false, .. } => CHECK_LEN * (1 + rows),
            _ => CHECK_LEN * (1 + 2 * rows),
        }
    }

    /// Returns the place of the check of the minishard index; `None` if it overflows.
    #[inline]
    pub fn place_of_index(&self) -> Option<ByteRange> {
        self.at(0)
    }

    /// Returns the place of the check of the value of a row; `None` if it overflows.
    #[inline]
    pub fn place_of_value(&self, row: usize) -> Option<ByteRange> {
        self.at(1 + row as u64)
    }

    /// Returns the place of the check of the preamble of a row; `None` if it overflows.
    #[inline]
    pub fn place_of_preamble(&self, row: usize) -> Option<ByteRange> {
        self.at(1 + self.rows + row as u64)
    }

    #[inline]
    fn at(&self, number: u64) -> Option<ByteRange> {
        let start = self.index_end.checked_add(number.checked_mul(CHECK_LEN)?)?;
        Some(ByteRange { start, end: start.checked_add(CHECK_LEN)? })
    }
}

/// A check as it is stored in a file, at `place`.
#[derive(Clone, Copy, Debug)]
pub struct StoredCheck {
    place: ByteRange,
    stated: u32,
}

impl StoredCheck {
    /// Returns the check at a place, whose bytes `read` returns.
    ///
    /// Errors: `Corrupt` if there is no such place; those of `read`.
    #[inline]
    pub fn read<B: Deref<Target = [u8]>>(
        place: Option<ByteRange>,
        read: impl FnOnce(ByteRange) -> Result<B>,
    ) -> Result<StoredCheck> {
        let place = place.ok_or_else(|| {
            Error::corrupt("expected checks at an offset below 2^64, found a minishard index that ends later")
        })?;
        match read(place)?.first_chunk() {
            Some(stated) => Ok(StoredCheck { place, stated: u32::from_le_bytes(*stated) }),
            None => Err(Error::internal("expected a check of 4 bytes, found fewer").at_offset(place.start)),
        }
    }

    /// Compares it with the check `found`, which was computed from the bytes at offset `start`.
    ///
    /// Errors: `Corrupt`, with both offsets.
    #[inline]
    pub fn compare(self, what: &str, start: u64, found: u32) -> Result<()> {
        if self.stated == found { Ok(()) } else { Err(self.mismatch(what, start, found)) }
    }

    #[cold]
    fn mismatch(self, what: &str, start: u64, found: u32) -> Error {
        let (stated, at) = (self.stated, self.place.start);
        let message = format!("expected a {what} with check {stated:08x}, stored at byte {at}, found {found:08x}");
        Error::corrupt(message).at_offset(start)
    }

    /// Verifies the stored value of a key, which begins at offset `start`.
    pub fn verify_value(self, key: u64, start: u64, encoded: &[u8]) -> Result<()> {
        self.compare("value", start, compute_value_check(key, encoded))
    }
}

/// A hasher without input, cloned for each check. `Hasher::new` detects CPU features each time, which takes a third of
/// the time of a short checksum.
static EMPTY_HASHER: LazyLock<Hasher> = LazyLock::new(Hasher::new);

/// Returns a hasher for the check of an encoded minishard index; the caller feeds it the encoded bytes.
#[inline]
pub fn index_hasher(location: Location) -> Hasher {
    let mut hasher = EMPTY_HASHER.clone();
    let place = [location.shard.0.to_le_bytes(), location.minishard.0.to_le_bytes()];
    hasher.update(place.as_flattened());
    hasher
}

/// Computes the check of an encoded minishard index.
#[inline]
pub fn compute_index_check(location: Location, encoded: &[u8]) -> u32 {
    let mut hasher = index_hasher(location);
    hasher.update(encoded);
    hasher.finalize()
}

/// Returns a hasher for the check of an encoded value; the caller feeds it the encoded bytes.
#[inline]
pub fn value_hasher(key: u64) -> Hasher {
    let mut hasher = EMPTY_HASHER.clone();
    hasher.update(&key.to_le_bytes());
    hasher
}

/// Computes the check of an encoded value.
#[inline]
pub fn compute_value_check(key: u64, encoded: &[u8]) -> u32 {
    let mut hasher = value_hasher(key);
    hasher.update(encoded);
    hasher.finalize()
}

/// Returns a hasher for the check of a preamble; the caller feeds it the preamble.
pub fn preamble_hasher() -> Hasher {
    EMPTY_HASHER.clone()
}

/// Computes the check of a preamble.
pub fn compute_preamble_check(preamble: &[u8]) -> u32 {
    let mut hasher = preamble_hasher();
    hasher.update(preamble);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::ids::{MinishardNumber, ShardNumber};

    /// Computed like: python3 -c "import zlib, struct; print(hex(zlib.crc32(struct.pack('<Q', 7) + b'value')))".
    #[test]
    fn golden_checksums() {
        assert_eq!(compute_value_check(7, b"value"), 0xa952_eff3);
        let location = Location { shard: ShardNumber(1), minishard: MinishardNumber(2) };
        assert_eq!(compute_index_check(location, b"index"), 0xf8d3_6342);
        assert_eq!(compute_preamble_check(b""), 0);
    }

    #[test]
    fn checks_follow_the_index_in_row_order() {
        let place = ChecksPlace { index_end: 100, rows: 3 };
        let starts = [
            place.place_of_index(),
            place.place_of_value(0),
            place.place_of_value(2),
            place.place_of_preamble(0),
            place.place_of_preamble(2),
        ];
        assert_eq!(starts.map(|range| range.unwrap().start), [100, 104, 112, 116, 124]);
        let layout = Layout { checks: true, ..Layout::default() };
        assert_eq!(ChecksPlace::total_len(3, Layout { preambles: true, ..layout }), 28);
        assert_eq!(ChecksPlace::total_len(3, layout), 16);
        assert_eq!(ChecksPlace::total_len(3, Layout::default()), 0);
        assert!(ChecksPlace { index_end: u64::MAX - 3, rows: 1 }.place_of_index().is_none());
    }

    #[test]
    fn a_stored_check_is_compared_or_an_error_with_both_offsets() {
        let file = [&[0; 100][..], &compute_value_check(7, b"value").to_le_bytes()].concat();
        let read = |place: ByteRange| Ok(place.of(&file).unwrap_or_default());
        let check = StoredCheck::read(Some(ByteRange { start: 100, end: 104 }), read).unwrap();
        check.verify_value(7, 90, b"value").unwrap();
        let error = check.verify_value(8, 90, b"value").unwrap_err();
        assert_eq!((error.kind(), error.location().offset), (ErrorKind::Corrupt, Some(90)));
        assert!(error.message().contains("a952eff3, stored at byte 100"), "{error}");
        let error = StoredCheck::read(None, read).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let error = StoredCheck::read(Some(ByteRange { start: 102, end: 106 }), read).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "the reader returned too few bytes");
    }
}
