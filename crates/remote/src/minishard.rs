//! A minishard in memory: its index, the checks, and its values if they came with the same response.

use std::ops::Range;

use sharddb_format::internal::byte_range::ByteRange;
use sharddb_format::internal::checks::{ChecksPlace, StoredCheck};
use sharddb_format::internal::ids::Location;
use sharddb_format::internal::layout::Layout;
use sharddb_format::internal::minishard::MinishardIndex;
use sharddb_format::internal::minishard_index::{
    self, IndexView, ROW_LEN, Row, SCAN_LIMIT, SearchableIndex, SortedIndex,
};
use sharddb_format::internal::spec::Encoding;
use sharddb_format::{Error, Result};

use crate::request::{Body, RemoteValue};

/// How the minishards of a generation are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MinishardFormat {
    pub(crate) index_encoding: Encoding,
    /// Without checks for foreign data.
    pub(crate) layout: Layout,
    pub(crate) max_index_bytes: u64,
}

/// A verified minishard index, with the bytes of the shard around it.
pub(crate) struct Minishard {
    index: Index,
    /// Bytes of the shard from offset `start`.
    bytes: Body,
    start: u64,
    checks: ChecksPlace,
}

enum Index {
    /// A short raw index: the range in `bytes`.
    InPlace(Range<usize>),
    Sorted(SortedIndex),
}

/// The result of [`MinishardFormat::parse`].
pub(crate) enum Parsed {
    Minishard(Minishard),
    /// The checks end at this offset of the shard, which is after the bytes.
    NeedsUntil(u64),
}

impl MinishardFormat {
    /// Parses the minishard whose encoded index is at `index` of the shard, from the bytes from offset `start`.
    ///
    /// Errors: `Corrupt` if the bytes are not those of this minishard; `TooLarge` if the index decodes to more than the
    /// cap.
    pub(crate) fn parse(&self, location: Location, index: ByteRange, bytes: Body, start: u64) -> Result<Parsed> {
        let encoded = slice(&bytes, start, index).ok_or_else(|| {
            Error::internal("expected bytes with the minishard index, found others").at_offset(index.start)
        })?;
        let decoded = MinishardIndex::decode(encoded, index, self.index_encoding, self.max_index_bytes)?;
        let (view, checks) = (decoded.view(), decoded.checks());
        let end = index.end.saturating_add(ChecksPlace::total_len(checks.rows, self.layout));
        if end > start.saturating_add(bytes.as_slice().len() as u64) {
            return Ok(Parsed::NeedsUntil(end));
        }
        if self.layout.checks {
            let check = stored_check(&bytes, start, checks.place_of_index())?;
            check.compare("minishard index", index.start, decoded.compute_check(location))?;
        }
        let in_place = decoded.is_raw() && view.len() <= SCAN_LIMIT;
        if in_place && let Some(range) = offsets(start, index) {
            return Ok(Parsed::Minishard(Minishard { index: Index::InPlace(range), bytes, start, checks }));
        }
        let sorted = Index::Sorted(SortedIndex::new(view));
        let has_values =
            start < index.start || decoded.is_raw() && end < start.saturating_add(bytes.as_slice().len() as u64);
        if has_values {
            return Ok(Parsed::Minishard(Minishard { index: sorted, bytes, start, checks }));
        }
        // the encoded index is not needed any more
        let stored_checks = slice(&bytes, start, ByteRange { start: checks.index_end, end });
        let stored_checks = stored_checks.ok_or_else(|| lacks_checks(index.start))?;
        let bytes = Body::new(stored_checks.to_vec());
        Ok(Parsed::Minishard(Minishard { index: sorted, bytes, start: checks.index_end, checks }))
    }

    /// Returns the length of the checks after a raw index of `index_len` bytes.
    pub(crate) fn checks_len_of_raw(&self, index_len: u64) -> u64 {
        ChecksPlace::total_len(index_len / ROW_LEN, self.layout)
    }

    /// Returns a length that covers the checks of nearly all minishards of about `rows` rows. The number of rows is not
    /// known before a gzip index is decoded.
    ///
    /// A hash spreads keys like a Poisson distribution, whose standard deviation is the root of the mean; the eighth is
    /// for lengths of indexes that differ from their share of the rows.
    pub(crate) fn likely_checks_len(&self, rows: u64) -> u64 {
        let more = rows.isqrt().saturating_mul(6).saturating_add(rows / 8).saturating_add(16);
        ChecksPlace::total_len(rows.saturating_add(more), self.layout)
    }
}

impl Minishard {
    /// Returns the row of a key; `None` if the minishard does not have it.
    ///
    /// Errors: `Corrupt` if it is not found in an index with impossible ranges.
    pub(crate) fn find(&self, key: u64) -> Result<Option<Row>> {
        let index = self.searchable()?;
        match index.find(key) {
            Some(row) => Ok(Some(row)),
            None if index.miss_proves_absence() => Ok(None),
            None => Err(minishard_index::unproved_absence()),
        }
    }

    /// Returns the row of this number, in stored order or by ascending key; `None` after the last one.
    pub(crate) fn row(&self, number: usize) -> Result<Option<Row>> {
        Ok(self.searchable()?.row(number))
    }

    /// Returns the stored bytes of a value, if they came with the index.
    pub(crate) fn value(&self, value: ByteRange) -> Option<RemoteValue> {
        RemoteValue::of(&self.bytes, offsets(self.start, value)?)
    }

    /// Returns the check of a row's value; `None` in a layout without checks.
    pub(crate) fn check_of_value(&self, layout: Layout, row: Row) -> Result<Option<StoredCheck>> {
        if layout.checks {
            stored_check(&self.bytes, self.start, self.checks.place_of_value(row.number)).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Returns its size in memory, in bytes.
    pub(crate) fn size(&self) -> u64 {
        let index = match &self.index {
            Index::InPlace(_) => 0,
            Index::Sorted(index) => index.size(),
        };
        (self.bytes.as_slice().len() + index) as u64
    }

    fn searchable(&self) -> Result<SearchableIndex<'_>> {
        match &self.index {
            Index::InPlace(range) => {
                let bytes = self.bytes.as_slice().get(range.clone());
                let bytes = bytes.ok_or_else(|| Error::internal("expected a minishard with its index, found none"))?;
                IndexView::view(bytes).map(SearchableIndex::Scanned)
            }
            Index::Sorted(index) => Ok(SearchableIndex::Sorted(index)),
        }
    }
}

/// Reads the check at `place` of the shard from its bytes from offset `start`.
fn stored_check(bytes: &Body, start: u64, place: Option<ByteRange>) -> Result<StoredCheck> {
    StoredCheck::read(place, |place| slice(bytes, start, place).ok_or_else(|| lacks_checks(place.start)))
}

fn lacks_checks(offset: u64) -> Error {
    Error::internal("expected bytes with the checks of a minishard, found others").at_offset(offset)
}

/// Returns the bytes of a range of the shard, of which `bytes` are those from offset `start`.
fn slice(bytes: &Body, start: u64, range: ByteRange) -> Option<&[u8]> {
    bytes.as_slice().get(offsets(start, range)?)
}

/// Returns the place of a range of the shard in bytes that begin at its offset `start`.
fn offsets(start: u64, range: ByteRange) -> Option<Range<usize>> {
    let offset = |at: u64| usize::try_from(at.checked_sub(start)?).ok();
    Some(offset(range.start)?..offset(range.end)?)
}
