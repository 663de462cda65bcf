//! Verifies one minishard: its index, the order of its ids, the hash of each key, its byte ranges and values.

use crate::byte_range::ByteRange;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checks::{self, ChecksPlace};
use crate::format::gzip;
use crate::format::layout::ValueAlignment;
use crate::format::minishard_index::{IndexView, Row};
use crate::format::spec::Encoding;
use crate::ids::{Location, MinishardNumber};
use crate::verify::VerifyLevel;
use crate::verify::finding::FindingKind;
use crate::verify::shard::ShardVerifier;

impl ShardVerifier<'_> {
    /// Verifies the minishard whose encoded index is at `range`.
    pub(super) fn verify_minishard(&mut self, number: MinishardNumber, range: ByteRange) {
        if let Err(error) = self.index_budget.take(self.shard.files().data_len(), number, range) {
            return self.found_unknown(FindingKind::IndexOverlap, error.at_minishard(number));
        }
        self.has_read(range.len());
        let shard = self.shard;
        let read = || {
            let encoded = shard.read_minishard_index(range)?;
            let decoded = shard.decode_minishard_index(&encoded)?;
            Ok((encoded, decoded))
        };
        let (encoded, decoded) = match read() {
            Ok(index) => index,
            Err(error) => return self.found_bad_index(number, range, error),
        };
        let index = match IndexView::view(decoded.as_deref().unwrap_or(&encoded)) {
            Ok(index) => index,
            Err(error) => return self.found_bad_index(number, range, error),
        };
        let rows = index.len() as u64;
        let ids = match self.extents.reserve(rows, shard.files().data_len()).and_then(|()| ids(index)) {
            Ok(ids) => ids,
            Err(error) => return self.found_bad_index(number, range, error),
        };
        self.keys += rows;
        self.report.keys += rows;
        if let Err(error) = shard.verify_minishard_index(number, range, &encoded, rows) {
            self.found(FindingKind::IndexCheck, error.at_minishard(number)); // its rows help to locate the damage
        }
        let checks = ChecksPlace { index_end: range.end, rows };
        self.extents.push_index(
            number,
            ByteRange {
                start: range.start,
                end: range.end + ChecksPlace::total_len(rows, self.shard.layout.unwrap_or_default()),
            },
        );
        self.verify_ids(number, ids);
        index.rows().for_each(|row| self.verify_row(number, row, checks));
    }

    fn found_bad_index(&mut self, number: MinishardNumber, range: ByteRange, error: Error) {
        self.found_unknown(FindingKind::BadMinishardIndex, error.at_minishard(number).at_offset(range.start));
    }

    fn verify_ids(&mut self, number: MinishardNumber, mut ids: Vec<u64>) {
        self.verify_places(Location { shard: self.shard.number, minishard: number }, &ids);
        let descent = ids.iter().zip(ids.iter().skip(1)).find(|(id, next)| id > next);
        if let Some((id, next)) = descent {
            let error = Error::corrupt(format!("expected ascending ids, found {next} after {id}"));
            self.found(FindingKind::UnorderedIds, error.at_minishard(number).at_key(*next));
            ids.sort_unstable();
        }
        for same in ids.chunk_by(|id, next| id == next) {
            if let [id, _, ..] = same {
                let message = format!("expected each id once, found one {} times: lookups find the first", same.len());
                self.found(FindingKind::DuplicateId, Error::corrupt(message).at_minishard(number).at_key(*id));
            }
        }
    }

    /// Verifies that every key is in the minishard to which its hash leads. Lookups do not find it elsewhere.
    fn verify_places(&mut self, here: Location, ids: &[u64]) {
        if let Some(other) = self.common_place(ids)
            && other.shard == here.shard
            && other != here
        {
            return self.found_wrong_slot(here, other, ids);
        }
        for id in ids {
            let place = self.shard.spec.route(*id);
            if place != here {
                let message = format!(
                    "expected a key whose hash leads to this minishard, found one of shard {:x}, minishard {}: \
                     lookups do not find it",
                    place.shard.0, place.minishard.0
                );
                self.found(FindingKind::MisplacedKey, Error::corrupt(message).at_minishard(here.minishard).at_key(*id));
            }
        }
    }

    /// Returns the location to which all ids hash; `None` if they hash to several.
    fn common_place(&self, ids: &[u64]) -> Option<Location> {
        let place = |id: &u64| self.shard.spec.route(*id);
        let first = ids.first().map(place)?;
        ids.iter().all(|id| place(id) == first).then_some(first)
    }

    fn found_wrong_slot(&mut self, here: Location, other: Location, ids: &[u64]) {
        let message = format!(
            "expected keys of minishard {}, found that all {} keys hash to minishard {}: the shard index entry is \
             in the wrong slot, a known bug of neuroglancer-scripts with empty minishards; lookups do not find the keys",
            here.minishard.0,
            ids.len(),
            other.minishard.0
        );
        let first = ids.first().copied().unwrap_or_default(); // not empty, since it hashes to `other`
        self.found(FindingKind::WrongSlot, Error::corrupt(message).at_minishard(here.minishard).at_key(first));
    }

    fn verify_row(&mut self, number: MinishardNumber, row: Row, checks: ChecksPlace) {
        let range = match self.shard.value_range(row) {
            Ok(range) => range,
            Err(error) => return self.found_unknown(FindingKind::BadValueRange, error.at_minishard(number)),
        };
        self.report.value_bytes = self.report.value_bytes.saturating_add(range.len()); // ranges that overlap may add up to more than any file
        self.extents.push_value(number, row.id, range);
        self.verify_alignment(number, row, range);
        if self.reaches(VerifyLevel::Data) && self.may_read(row, range) {
            self.verify_bytes(number, row, range, checks);
        }
    }

    /// Charges the budget for a value and its prefix. Returns whether they may be read; if not, counts the value as
    /// unread.
    fn may_read(&mut self, row: Row, range: ByteRange) -> bool {
        let prefix = if self.has_prefix_checks() { self.shard.gap_before(row).map_or(0, ByteRange::len) } else { 0 };
        let may = self.value_budget.take(self.shard.files().data_len(), range.len().saturating_add(prefix));
        self.unread_values += u64::from(!may);
        may
    }

    fn has_prefix_checks(&self) -> bool {
        self.shard.layout.is_some_and(|layout| layout.checks && layout.prefixes)
    }

    /// Verifies the bytes of a prefix, then of its value, in the order of their offsets.
    fn verify_bytes(&mut self, number: MinishardNumber, row: Row, range: ByteRange, checks: ChecksPlace) {
        if self.has_prefix_checks()
            && let Err(error) = self.verify_prefix(row, checks)
        {
            self.found(FindingKind::PrefixCheck, error.at_minishard(number).at_key(row.id));
        }
        if let Err((kind, error)) = self.verify_value(row, range, checks) {
            self.found(kind, error.at_minishard(number).at_key(row.id).at_offset(range.start));
        }
        self.has_verified(range.len());
    }

    /// Verifies the check of the gap before a value.
    fn verify_prefix(&mut self, row: Row, checks: ChecksPlace) -> Result<()> {
        let gap = self.shard.gap_before(row)?;
        self.has_read(gap.len());
        self.has_verified(gap.len());
        let found = checks::of_prefix(self.body.read(gap)?);
        compare("prefix", self.checks.read_check(checks.of_prefix(row.number))?, found)
            .map_err(|error| error.at_offset(gap.start))
    }

    /// Verifies a value's check, in a shard with checks, then its encoding.
    fn verify_value(&mut self, row: Row, range: ByteRange, checks: ChecksPlace) -> Result<(), (FindingKind, Error)> {
        self.has_read(range.len());
        let encoded = self.body.read(range).map_err(|error| (FindingKind::BadValue, error))?;
        if self.shard.layout.is_some_and(|layout| layout.checks) {
            let stated = self.checks.read_check(checks.of_value(row.number));
            stated
                .and_then(|stated| compare("value", stated, checks::of_value(row.id, encoded)))
                .map_err(|error| (FindingKind::ValueCheck, error))?;
        }
        match self.shard.spec.data_encoding() {
            Encoding::Raw => Ok(()),
            Encoding::Gzip => {
                gzip::decode(encoded, self.max_value_bytes).map(drop).map_err(|error| (FindingKind::BadValue, error))
            }
        }
    }

    fn verify_alignment(&mut self, number: MinishardNumber, row: Row, range: ByteRange) {
        let alignment = self.shard.layout.map_or(ValueAlignment::One, |layout| layout.value_alignment);
        if alignment.padding(range.start) != 0 {
            let message =
                format!("expected the offset of a value to be a multiple of {}, found another", alignment.get());
            let error = Error::corrupt(message).at_minishard(number).at_key(row.id).at_offset(range.start);
            self.found(FindingKind::MisalignedValue, error);
        }
    }
}

/// Returns the ids of an index in stored order. Errors: `TooLarge` if memory cannot be allocated.
fn ids(index: IndexView<'_>) -> Result<Vec<u64>> {
    let mut ids = Vec::new();
    let no_memory = |_| {
        Error::new(ErrorKind::TooLarge, format!("cannot allocate memory for the {} ids of a minishard", index.len()))
    };
    ids.try_reserve_exact(index.len()).map_err(no_memory)?;
    ids.extend(index.rows().map(|row| row.id));
    Ok(ids)
}

fn compare(what: &str, stated: u32, found: u32) -> Result<()> {
    match stated == found {
        true => Ok(()),
        false => Err(Error::corrupt(format!("expected a {what} with check {stated:08x}, found {found:08x}"))),
    }
}
