//! Verifies one minishard: its index, the order of its ids, the hash of each key, its byte ranges and values.

use crate::byte_range::ByteRange;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checks::{self, ChecksPlace};
use crate::format::gzip;
use crate::format::layout::{MINISHARD_ALIGNMENT, ValueAlignment};
use crate::format::minishard_index::{IndexView, Row};
use crate::format::spec::Encoding;
use crate::ids::{Location, MinishardNumber};
use crate::verify::VerifyLevel;
use crate::verify::extents::{Extent, ExtentKind};
use crate::verify::finding::FindingKind;
use crate::verify::shard::ShardVerifier;

impl ShardVerifier<'_> {
    /// Verifies the minishard whose encoded index is at `range`.
    pub(super) fn verify_minishard(&mut self, number: MinishardNumber, range: ByteRange) {
        if !self.charge_shared(|shared| shared.take_index(range.len())) {
            return;
        }
        let gzip_gap_start = self.gzip_gap_start.take(); // remains `None` if this index cannot be read
        if let Err(error) = self.state.index_budget.take(self.shard.files().data_len(), number, range) {
            self.state.is_over_budget = true;
            return self.report_with_lost_extents(FindingKind::IndexOverlap, error.at_minishard(number));
        }
        self.count_read(range.len());
        let shard = self.shard;
        let stored = match shard.read_minishard_index(range) {
            Ok(index) => index,
            Err(error) => return self.report_bad_index(number, range, error),
        };
        let (index, checks) = (stored.view(), stored.checks());
        let rows = checks.rows;
        if !self.charge_shared(|shared| shared.take_rows(rows)) {
            return;
        }
        let ids = match self.state.extents.reserve(rows, shard.files().data_len()).and_then(|()| ids(index)) {
            Ok(ids) => ids,
            Err(error) => {
                self.state.is_over_budget = true;
                return self.report_bad_index(number, range, error);
            }
        };
        self.state.keys += rows;
        self.report.keys += rows;
        if let Err(error) = shard.compare_index_check(number, &stored) {
            // continues, because findings about the rows show what is damaged
            self.report_finding(FindingKind::IndexCheck, error.at_minishard(number));
        }
        let checks_end = range.end + ChecksPlace::total_len(rows, shard.layout.unwrap_or_default());
        self.gzip_gap_start = Some(checks_end.next_multiple_of(MINISHARD_ALIGNMENT));
        if self.sums_keys {
            ids.iter().for_each(|key| self.report.key_sum.add(*key));
        }
        self.verify_ids(number, ids);
        let gap_start = match shard.spec.minishard_index_encoding() {
            Encoding::Raw => Some(checks_end),
            Encoding::Gzip => gzip_gap_start,
        };
        let stored = ByteRange { start: range.start, end: checks_end };
        self.verify_rows(Extent::new(ExtentKind::MinishardIndex, number, 0, stored), index, checks, gap_start);
    }

    /// Verifies the rows of an index, in the order in which index and values are stored.
    fn verify_rows(&mut self, stored: Extent, index: IndexView<'_>, checks: ChecksPlace, mut gap_start: Option<u64>) {
        let first_value = index.rows().next().and_then(|row| self.shard.value_range(row).ok());
        let values_first = first_value.is_some_and(|value| value.start < stored.start);
        if !values_first {
            self.add_extent(stored);
        }
        for row in index.rows() {
            if self.steps.check().is_err() {
                return;
            }
            gap_start = self.verify_row(stored.minishard(), row, checks, gap_start);
        }
        if values_first {
            self.add_extent(stored);
        }
    }

    /// Reports that the rows of an index are not verified, because it cannot be read or has too many.
    fn report_bad_index(&mut self, number: MinishardNumber, range: ByteRange, error: Error) {
        self.report_with_lost_extents(
            FindingKind::BadMinishardIndex,
            error.at_minishard(number).at_offset(range.start),
        );
    }

    /// Verifies the locations, the order and the uniqueness of the ids of a minishard.
    fn verify_ids(&mut self, number: MinishardNumber, mut ids: Vec<u64>) {
        self.verify_locations(Location { shard: self.shard.number, minishard: number }, &ids);
        let descent = ids.iter().zip(ids.iter().skip(1)).find(|(id, next)| id > next);
        if let Some((id, next)) = descent {
            let error = Error::corrupt(format!("expected ascending ids, found {next} after {id}"));
            self.report_finding(FindingKind::UnorderedIds, error.at_minishard(number).at_key(*next));
            ids.sort_unstable();
        }
        for same in ids.chunk_by(|id, next| id == next) {
            if let [id, _, ..] = same {
                let message =
                    format!("expected each id once, found this one {} times: lookups find the first", same.len());
                self.report_finding(FindingKind::DuplicateId, Error::corrupt(message).at_minishard(number).at_key(*id));
            }
        }
    }

    /// Verifies that every key is in the minishard to which its hash leads, the only one that lookups search.
    fn verify_locations(&mut self, here: Location, ids: &[u64]) {
        if let Some(other) = self.common_location(ids)
            && other.shard == here.shard
            && other != here
        {
            // `ids` is not empty: `common_location` returned a location
            let first = ids.first().copied().unwrap_or_default();
            return self.state.misplaced.add_wrong_slot(here.minishard, other.minishard, first, ids.len() as u64);
        }
        for id in ids {
            let location = self.shard.spec.route(*id);
            if location != here {
                self.state.misplaced.add(here.minishard, *id, location.shard);
            }
        }
    }

    /// Returns the location to which all ids hash; `None` if they hash to several.
    fn common_location(&self, ids: &[u64]) -> Option<Location> {
        let location = |id: &u64| self.shard.spec.route(*id);
        let first = ids.first().map(location)?;
        ids.iter().all(|id| location(id) == first).then_some(first)
    }

    /// Reports the misplaced keys of the shard: their common cause, or each of them.
    pub(super) fn report_misplaced(&mut self) {
        let misplaced = std::mem::take(&mut self.state.misplaced);
        let (spec, number) = (self.shard.spec, self.shard.number);
        if let Some((kind, error)) = misplaced.cause(&spec, number, self.state.keys) {
            return self.report_finding(kind, error);
        }
        for slot in &misplaced.wrong_slots {
            let message = format!(
                "expected keys of minishard {}, found that all {} keys hash to minishard {}: the shard index entry is in \
                 the wrong slot, a known bug of neuroglancer-scripts with empty minishards; lookups do not find the keys",
                slot.here.get(),
                slot.keys,
                slot.other.get()
            );
            self.report_finding(
                FindingKind::WrongSlot,
                Error::corrupt(message).at_minishard(slot.here).at_key(slot.first_id),
            );
        }
        self.report.count_more(FindingKind::WrongSlot, misplaced.wrong_slot_count - misplaced.wrong_slots.len() as u64);
        for (minishard, id) in &misplaced.first {
            let location = spec.route(*id);
            let message = format!(
                "expected a key whose hash leads to this minishard, found one of shard {:x}, minishard {}: lookups do not \
                 find it",
                location.shard.get(),
                location.minishard.get()
            );
            self.report_finding(
                FindingKind::MisplacedKey,
                Error::corrupt(message).at_minishard(*minishard).at_key(*id),
            );
        }
        self.report.count_more(FindingKind::MisplacedKey, misplaced.count - misplaced.first.len() as u64);
    }

    /// Verifies a row and its value. `gap_start` is where the gap before the value begins, in a native shard; `None` if
    /// damage makes that unknown.
    ///
    /// Returns the start of the next gap, which is the end of the value; `None` if the value has no valid range.
    fn verify_row(
        &mut self,
        number: MinishardNumber,
        row: Row,
        checks: ChecksPlace,
        gap_start: Option<u64>,
    ) -> Option<u64> {
        let range = match self.shard.value_range(row) {
            Ok(range) => range,
            Err(error) => {
                self.report_with_lost_extents(FindingKind::BadValueRange, error.at_minishard(number));
                return None;
            }
        };
        // values that overlap may add up to more than any file
        self.report.value_bytes = self.report.value_bytes.saturating_add(range.len());
        self.add_extent(Extent::new(ExtentKind::Value, number, row.id, range));
        self.verify_alignment(number, row, range);
        if self.reaches(VerifyLevel::Data) {
            let gap = self.has_preamble_checks().then(|| preamble_gap(range, gap_start));
            if self.charge_value_budget(range, &gap) {
                self.verify_bytes(number, row, range, gap, checks);
            }
        }
        Some(range.end)
    }

    /// Charges `value_budget` for a value and the gap before it. Returns false, and counts the value as unread, if that
    /// exceeds the budget.
    fn charge_value_budget(&mut self, range: ByteRange, gap: &Option<Result<ByteRange>>) -> bool {
        let gap_len = gap.as_ref().and_then(|gap| gap.as_ref().ok()).map_or(0, |gap| gap.len());
        let bytes = range.len().saturating_add(gap_len);
        let is_within = self.charge_shared(|shared| shared.take_value(bytes))
            && self.state.value_budget.take(self.shard.files().data_len(), bytes);
        self.unread_values += u64::from(!is_within);
        self.state.is_over_budget |= !is_within;
        is_within
    }

    fn has_preamble_checks(&self) -> bool {
        self.shard.layout.is_some_and(|layout| layout.checks && layout.preambles)
    }

    /// Verifies the gap before a value, if it has a check, and then the value.
    fn verify_bytes(
        &mut self,
        number: MinishardNumber,
        row: Row,
        range: ByteRange,
        gap: Option<Result<ByteRange>>,
        checks: ChecksPlace,
    ) {
        if let Some(gap) = gap
            && let Err(error) = gap.and_then(|gap| self.verify_stored_preamble(row, gap, checks))
        {
            self.report_finding(FindingKind::PreambleCheck, error.at_minishard(number).at_key(row.id));
        }
        if let Err((kind, error)) = self.verify_stored_value(row, range, checks) {
            self.report_finding(kind, error.at_minishard(number).at_key(row.id).at_offset(range.start));
        }
        self.advance(range.len());
    }

    /// Verifies the check of the gap before a value.
    fn verify_stored_preamble(&mut self, row: Row, gap: ByteRange, checks: ChecksPlace) -> Result<()> {
        self.shard.check_cap(gap)?;
        self.count_read(gap.len());
        self.advance(gap.len());
        let found = checks::compute_preamble_check(self.body_window.read(gap)?);
        self.checks_window.read_check(checks.place_of_preamble(row.number))?.compare("preamble", gap.start, found)
    }

    /// Verifies a value's check, in a shard with checks, then its encoding.
    fn verify_stored_value(
        &mut self,
        row: Row,
        range: ByteRange,
        checks: ChecksPlace,
    ) -> Result<(), (FindingKind, Error)> {
        self.shard.check_cap(range).map_err(|error| (FindingKind::OverCap, error))?;
        self.count_read(range.len());
        let encoded = self.body_window.read(range).map_err(|error| (FindingKind::BadValue, error))?;
        if self.shard.layout.is_some_and(|layout| layout.checks) {
            let check = self.checks_window.read_check(checks.place_of_value(row.number));
            check
                .and_then(|check| check.verify_value(row.id, range.start, encoded))
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
            let (alignment, start) = (alignment.get(), range.start);
            let message = format!("expected the offset of a value to be a multiple of {alignment}, found {start}");
            let error = Error::corrupt(message).at_minishard(number).at_key(row.id).at_offset(range.start);
            self.report_finding(FindingKind::MisalignedValue, error);
        }
    }
}

/// Returns the gap from `start` to a value.
///
/// Errors: `Corrupt` if the start is unknown, or after the start of the value.
fn preamble_gap(value: ByteRange, start: Option<u64>) -> Result<ByteRange> {
    match start {
        Some(start) if start <= value.start => Ok(ByteRange { start, end: value.start }),
        Some(start) => Err(Error::corrupt(format!(
            "expected a value after the index and the previous values, which end at byte {start}, found it at byte {}",
            value.start
        ))),
        None => Err(Error::corrupt(
            "expected a valid index and valid ranges before this preamble, found damage: the start of the preamble is unknown, \
             so it was not verified",
        )),
    }
    .map_err(|error| error.at_offset(value.start))
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
