//! Checks: CRC-32 checksums of indexes, values and prefixes, in bytes of a native shard that no index names.
//!
//! ```text
//! directly after the encoded minishard index, u32le each
//!   crc32(shard u64le, minishard u64le, encoded index)
//!   n x crc32(key u64le, encoded value)          in the order of the index's rows
//!   n x crc32(prefix)                            only in a data set with prefixes
//! ```
//!
//! Location and key are part of the checksums, so intact bytes at the wrong location fail verification too.
//! The prefix of a value is the gap between the preceding value, or index with checks, and the value: padding, then the
//! inserted prefix. With gzip indexes, the padding of a minishard to 8 bytes is not part of it.

use std::sync::LazyLock;

use crc32fast::Hasher;

use crate::byte_range::ByteRange;
use crate::format::layout::Layout;
use crate::ids::Location;

/// The length of a check in bytes.
const CHECK_LEN: u64 = 4;

/// The position of the checks of one minishard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChecksPlace {
    /// Offset of the end of the encoded index, in the file or in the body; the ranges of the checks have the same origin.
    pub(crate) index_end: u64,
    /// The number of keys.
    pub(crate) rows: u64,
}

impl ChecksPlace {
    /// Returns the length in bytes of all checks of a minishard with `rows` keys.
    pub(crate) fn total_len(rows: u64, layout: Layout) -> u64 {
        match layout {
            Layout { checks: false, .. } => 0,
            Layout { prefixes: false, .. } => CHECK_LEN * (1 + rows),
            _ => CHECK_LEN * (1 + 2 * rows),
        }
    }

    #[inline]
    pub(crate) fn of_index(&self) -> Option<ByteRange> {
        self.at(0)
    }

    #[inline]
    pub(crate) fn of_value(&self, row: usize) -> Option<ByteRange> {
        self.at(1 + row as u64)
    }

    #[inline]
    pub(crate) fn of_prefix(&self, row: usize) -> Option<ByteRange> {
        self.at(1 + self.rows + row as u64)
    }

    #[inline]
    fn at(&self, number: u64) -> Option<ByteRange> {
        let start = self.index_end.checked_add(number.checked_mul(CHECK_LEN)?)?;
        Some(ByteRange { start, end: start.checked_add(CHECK_LEN)? })
    }
}

/// A hasher without input, cloned for each check. `Hasher::new` detects CPU features each time, which takes a third of
/// the time of a short checksum.
static EMPTY_HASHER: LazyLock<Hasher> = LazyLock::new(Hasher::new);

/// Returns a hasher for the check of an encoded minishard index; the caller feeds it the encoded bytes.
#[inline]
pub(crate) fn index_hasher(location: Location) -> Hasher {
    let mut hasher = EMPTY_HASHER.clone();
    let place: [u8; 16] = zerocopy::transmute!([location.shard.0.to_le(), location.minishard.0.to_le()]);
    hasher.update(&place);
    hasher
}

/// Returns the check of an encoded minishard index.
#[inline]
pub(crate) fn of_index(location: Location, encoded: &[u8]) -> u32 {
    let mut hasher = index_hasher(location);
    hasher.update(encoded);
    hasher.finalize()
}

/// Returns a hasher for the check of an encoded value; the caller feeds it the encoded bytes.
#[inline]
pub(crate) fn value_hasher(key: u64) -> Hasher {
    let mut hasher = EMPTY_HASHER.clone();
    hasher.update(&key.to_le_bytes());
    hasher
}

/// Returns the check of an encoded value.
#[inline]
pub(crate) fn of_value(key: u64, encoded: &[u8]) -> u32 {
    let mut hasher = value_hasher(key);
    hasher.update(encoded);
    hasher.finalize()
}

/// Returns the check of a prefix.
pub(crate) fn of_prefix(prefix: &[u8]) -> u32 {
    let mut hasher = EMPTY_HASHER.clone();
    hasher.update(prefix);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{MinishardNumber, ShardNumber};

    /// Computed like: python3 -c "import zlib, struct; print(hex(zlib.crc32(struct.pack('<Q', 7) + b'value')))".
    #[test]
    fn golden_checksums() {
        assert_eq!(of_value(7, b"value"), 0xa952_eff3);
        let location = Location { shard: ShardNumber(1), minishard: MinishardNumber(2) };
        assert_eq!(of_index(location, b"index"), 0xf8d3_6342);
        assert_eq!(of_prefix(b""), 0);
    }

    #[test]
    fn checks_follow_the_index_in_row_order() {
        let place = ChecksPlace { index_end: 100, rows: 3 };
        let starts = [place.of_index(), place.of_value(0), place.of_value(2), place.of_prefix(0), place.of_prefix(2)];
        assert_eq!(starts.map(|range| range.unwrap().start), [100, 104, 112, 116, 124]);
        let layout = Layout { checks: true, ..Layout::default() };
        assert_eq!(ChecksPlace::total_len(3, Layout { prefixes: true, ..layout }), 28);
        assert_eq!(ChecksPlace::total_len(3, layout), 16);
        assert_eq!(ChecksPlace::total_len(3, Layout::default()), 0);
        assert!(ChecksPlace { index_end: u64::MAX - 3, rows: 1 }.of_index().is_none());
    }
}
