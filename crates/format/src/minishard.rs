//! One minishard, without I/O: which bytes to read, and what the bytes that were read mean.
//!
//! ```text
//! stated range of the index  -> index_range -> bytes to read -> MinishardIndex: rows, and the places of their checks
//! stated range of a row      -> value_range -> bytes to read -> StoredCheck compares them
//! ```
//!
//! Its drivers fetch the bytes: local and remote lookups, walks, `verify`, `diff`, `salvage`.

use std::ops::Deref;

use crate::byte_range::{ByteRange, RelativeRange};
use crate::checks::{self, ChecksPlace};
use crate::error::{Error, ErrorKind, Result};
use crate::gzip;
use crate::ids::{Location, MinishardNumber};
use crate::minishard_index::{IndexView, Row};
use crate::shard_index::ShardIndexEntry;
use crate::spec::Encoding;

/// The index of a minishard: the bytes as stored, and the rows.
#[derive(Debug)]
pub struct MinishardIndex<B> {
    pub encoded: B,
    // INVARIANT: this, or else `encoded`, is a valid index
    decoded: Option<Vec<u8>>,
    /// The range of the encoded index in the file.
    pub range: ByteRange,
    rows: u64,
}

impl<B: Deref<Target = [u8]>> MinishardIndex<B> {
    /// Decodes the encoded index at `range` of the file.
    ///
    /// Errors: `Corrupt`; `TooLarge` if it decodes to more than `cap` bytes.
    #[inline(always)] // see `read_minishard_index`
    pub fn decode(encoded: B, range: ByteRange, encoding: Encoding, cap: u64) -> Result<MinishardIndex<B>> {
        let decoded = match encoding {
            Encoding::Raw => None,
            Encoding::Gzip => Some(gzip::decode(&encoded, cap)?),
        };
        MinishardIndex::of_decoded(encoded, decoded, range)
    }

    /// Like [`decode`](Self::decode), for an index that is decoded, or raw if `decoded` is `None`.
    #[inline(always)]
    pub fn of_decoded(encoded: B, decoded: Option<Vec<u8>>, range: ByteRange) -> Result<MinishardIndex<B>> {
        match IndexView::view(decoded.as_deref().unwrap_or(&encoded)) {
            Ok(index) => Ok(MinishardIndex { rows: index.len() as u64, encoded, decoded, range }),
            Err(error) => Err(error.at_offset(range.start)),
        }
    }

    /// Returns the rows as stored.
    #[inline]
    pub fn view(&self) -> IndexView<'_> {
        IndexView::view(self.decoded.as_deref().unwrap_or(&self.encoded)).unwrap_or_default()
    }

    /// Returns where the checks are.
    #[inline]
    pub fn checks(&self) -> ChecksPlace {
        ChecksPlace { index_end: self.range.end, rows: self.rows }
    }

    /// Returns whether the rows are those of the stored bytes.
    pub fn is_raw(&self) -> bool {
        self.decoded.is_none()
    }

    /// Computes the check of the index.
    pub fn compute_check(&self, location: Location) -> u32 {
        checks::compute_index_check(location, &self.encoded)
    }

    /// Returns the location to which all ids hash; `None` if they hash to several, or there are none.
    pub fn common_location(&self, route: impl Fn(u64) -> Location) -> Option<Location> {
        let mut locations = self.view().rows().map(|row| route(row.id));
        let first = locations.next()?;
        locations.all(|location| location == first).then_some(first)
    }

    /// Returns the encoded and the decoded bytes.
    pub fn into_parts(self) -> (B, Option<Vec<u8>>) {
        (self.encoded, self.decoded)
    }
}

impl<'a> MinishardIndex<&'a [u8]> {
    /// Returns the rows of a raw index, for as long as its bytes live.
    #[inline]
    pub fn view_in_place(&self) -> IndexView<'a> {
        IndexView::view(self.encoded).unwrap_or_default()
    }
}

/// Converts the range that is stated for an encoded index to one of a file of `len` bytes whose shard index ends at `base`;
/// `None` for the empty range of a minishard without keys.
///
/// Errors: `Corrupt` if it is not within the file.
#[inline]
pub fn index_range(number: MinishardNumber, stated: RelativeRange, base: u64, len: u64) -> Result<Option<ByteRange>> {
    if stated.start == stated.end {
        return Ok(None);
    }
    match stated.resolve(base, len) {
        Some(range) => Ok(Some(range)),
        None => Err(bad_index_range(number, stated, len.saturating_sub(base))),
    }
}

#[cold]
fn bad_index_range(number: MinishardNumber, RelativeRange { start, end }: RelativeRange, body: u64) -> Error {
    Error::corrupt(format!(
        "expected a minishard index within the {body} bytes after the shard index, found {start}..{end}"
    ))
    .at_offset(ShardIndexEntry::position(number).start)
}

/// Checks the length of an encoded index before it is read into memory.
///
/// Errors: `TooLarge`.
pub fn check_index_len(range: ByteRange, cap: u64) -> Result<()> {
    match range.len() {
        len if len <= cap => Ok(()),
        len => Err(Error::new(
            ErrorKind::TooLarge,
            format!("expected a minishard index of at most {cap} bytes, found {len}: raise the cap `max_index_bytes`"),
        )),
    }
}

/// Converts the range of a row's value to one of a file of `len` bytes whose shard index ends at `base`.
///
/// Errors: `Corrupt` if it is not within the file.
#[inline]
pub fn value_range(row: Row, base: u64, len: u64) -> Result<ByteRange> {
    match row.value.resolve(base, len) {
        Some(range) => Ok(range),
        None => Err(bad_value_range(row, len.saturating_sub(base))),
    }
}

#[cold]
fn bad_value_range(row: Row, body: u64) -> Error {
    let RelativeRange { start, end } = row.value;
    Error::corrupt(format!("expected a value within the {body} bytes of data, found {start}..{end}")).at_key(row.id)
}

/// Checks the length of a stored value or preamble before it is read into memory. `cap` is that of the decoded value.
///
/// Errors: `TooLarge`.
pub fn check_value_len(range: ByteRange, encoding: Encoding, cap: u64) -> Result<()> {
    let cap = match encoding {
        Encoding::Raw => cap,
        Encoding::Gzip => gzip::max_stored_len(cap),
    };
    match range.len() {
        len if len <= cap => Ok(()),
        len => {
            let message = format!(
                "expected at most {cap} bytes of a value or preamble, found {len}: raise the cap `max_value_bytes`"
            );
            Err(Error::new(ErrorKind::TooLarge, message).at_offset(range.start))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashFunction;
    use crate::ids::ShardNumber;
    use crate::spec::ShardingSpec;

    const AT: ByteRange = ByteRange { start: 100, end: 148 };

    /// Keys 4 and 5 with the values at 0..3 and 10..12.
    fn words() -> Vec<u8> {
        [4u64, 1, 0, 7, 3, 2].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn an_index_has_its_rows_and_the_places_of_their_checks() {
        let index = MinishardIndex::decode(words(), AT, Encoding::Raw, 0).unwrap();
        let rows: Vec<_> = index.view().rows().map(|row| (row.id, row.value.start, row.value.end)).collect();
        assert_eq!(rows, [(4, 0, 3), (5, 10, 12)]);
        assert_eq!(index.checks().place_of_value(1), Some(ByteRange { start: 156, end: 160 }));
        assert!(index.is_raw() && index.into_parts().1.is_none());
    }

    #[test]
    fn the_ids_have_a_location_if_they_all_have_it() {
        let index = MinishardIndex::decode(words(), AT, Encoding::Raw, 0).unwrap();
        let spec = |bits| ShardingSpec::new(HashFunction::Identity, 1, bits, 1).unwrap();
        let location = Location { shard: ShardNumber(0), minishard: MinishardNumber(2) };
        assert_eq!(index.common_location(|id| spec(2).route(id)), Some(location));
        assert_eq!(index.common_location(|id| Location { minishard: MinishardNumber(id), ..location }), None);
        let empty = MinishardIndex::decode(vec![], AT, Encoding::Raw, 0).unwrap();
        assert_eq!(empty.common_location(|_| location), None);
    }

    #[test]
    fn bytes_that_are_no_index_are_refused_with_their_offset() {
        for (encoded, encoding) in [(vec![0; 25], Encoding::Raw), (vec![0; 24], Encoding::Gzip)] {
            let error = MinishardIndex::decode(encoded, AT, encoding, 1000).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        }
        let error = MinishardIndex::decode(vec![0; 25], AT, Encoding::Raw, 0).unwrap_err();
        assert_eq!(error.location().offset, Some(100));
    }

    #[test]
    fn stated_ranges_are_those_of_a_file_or_an_error() {
        let stated = |start, end| RelativeRange { start, end };
        let number = MinishardNumber(3);
        let index = |start, end| index_range(number, stated(start, end), 64, 100);
        assert_eq!(index(7, 7).unwrap(), None, "no keys, wherever it is");
        assert_eq!(index(u64::MAX, u64::MAX).unwrap(), None);
        assert_eq!(index(0, 36).unwrap(), Some(ByteRange { start: 64, end: 100 }));
        for (start, end) in [(0, 37), (5, 4), (u64::MAX, 3)] {
            let error = index(start, end).unwrap_err();
            assert_eq!((error.kind(), error.location().offset), (ErrorKind::Corrupt, Some(48)), "{error}");
            assert!(error.message().contains("within the 36 bytes"), "{error}");
            let row = Row { number: 0, id: 9, value: stated(start, end) };
            let error = value_range(row, 64, 100).unwrap_err();
            assert_eq!((error.kind(), error.key()), (ErrorKind::Corrupt, Some(9)), "{error}");
        }
        let row = Row { number: 0, id: 9, value: stated(36, 36) };
        assert_eq!(value_range(row, 64, 100).unwrap(), ByteRange { start: 100, end: 100 });
    }

    #[test]
    fn lengths_above_a_cap_are_refused() {
        assert!(check_index_len(AT, 48).is_ok() && check_value_len(AT, Encoding::Raw, 48).is_ok());
        assert!(check_value_len(AT, Encoding::Gzip, 48).is_ok());
        let long = ByteRange { start: 0, end: 1 << 40 };
        for error in [
            check_index_len(AT, 47).unwrap_err(),
            check_value_len(AT, Encoding::Raw, 47).unwrap_err(),
            check_value_len(long, Encoding::Gzip, 47).unwrap_err(),
        ] {
            assert!(error.kind() == ErrorKind::TooLarge && error.message().contains("raise the cap"), "{error}");
        }
    }
}
