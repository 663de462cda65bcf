//! Salvages one shard: proves each pair and passes it to the loader, or reports it as a loss.

use std::collections::HashSet;

use crate::byte_range::ByteRange;
use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::format::checks::ChecksPlace;
use crate::format::gzip;
use crate::format::minishard::MinishardIndex;
use crate::format::minishard_index::Row;
use crate::format::spec::Encoding;
use crate::ids::{Location, MinishardNumber, ShardNumber};
use crate::read::generation::Generation;
use crate::read::shard::{ShardReader, ValueBudget};
use crate::salvage::Outcome;
use crate::salvage::survey::{HomeShard, Survey, is_zlib, misplaced, read_index};
use crate::verify::FindingKind;
use crate::write::BulkLoader;

/// The walk over one shard.
pub(super) struct ShardSalvage<'a, 'b> {
    generation: &'a Generation,
    shard: &'a ShardReader,
    max_value_bytes: u64,
    max_index_bytes: u64,
    /// The number of keys that the manifest states, if it is known.
    keys: Option<u64>,
    loader: &'a mut BulkLoader,
    outcome: &'a mut Outcome<'b>,
    budget: ValueBudget,
}

/// The current minishard.
struct Minishard {
    /// The location to which its keys must hash: that of its slot, or in a compacted shard that of its keys.
    location: Location,
    checks: ChecksPlace,
}

/// A pair that was proved right.
struct Pair<'a> {
    preamble: Bytes<'a>,
    value: Vec<u8>,
    is_zlib: bool,
}

/// The rule that a pair breaks, and the error.
type Broken = (FindingKind, Error);

impl<'a, 'b> ShardSalvage<'a, 'b> {
    pub(super) fn new(
        generation: &'a Generation,
        shard: &'a ShardReader,
        keys: Option<u64>,
        loader: &'a mut BulkLoader,
        outcome: &'a mut Outcome<'b>,
    ) -> ShardSalvage<'a, 'b> {
        let caps = generation.options().read;
        let (max_value_bytes, max_index_bytes) = (caps.max_value_bytes, caps.max_index_bytes);
        let budget = ValueBudget::default();
        ShardSalvage { generation, shard, max_value_bytes, max_index_bytes, keys, loader, outcome, budget }
    }

    /// Salvages the shard.
    ///
    /// Errors: those of the loader.
    pub(super) fn run(mut self) -> Result<()> {
        let survey = Survey::of(self.shard, self.keys, self.max_index_bytes, self.outcome);
        let home = self.home(&survey);
        for (number, range) in &survey.minishards {
            let here = Location { shard: home, minishard: *number };
            match read_index(self.shard, *range, self.max_index_bytes) {
                Ok(index) => self.salvage_minishard(&survey, here, &index)?,
                Err(error) => self.lose(*number, FindingKind::BadMinishardIndex, error), // changed after the survey read it
            }
        }
        Ok(())
    }

    /// Returns the shard that the keys belong to: another one than the file's name says if all keys hash to that, and
    /// either there are enough of them, or the file of that name has the keys of another shard too.
    fn home(&self, survey: &Survey) -> ShardNumber {
        let named = self.shard.number;
        let Some(home) = survey.home.shard().filter(|home| *home != named) else { return named };
        if survey.home.is_certain(self.shard.spec.hash_function()) {
            return home;
        }
        let other = self.generation.open_shard_apart(home).ok().flatten();
        match other.and_then(|other| HomeShard::of_file(&other)) {
            Some(theirs) if theirs != home => home,
            _ => named,
        }
    }

    /// Salvages the pairs of a minishard, whose keys should hash to `here`.
    fn salvage_minishard(&mut self, survey: &Survey, here: Location, index: &MinishardIndex<Bytes<'_>>) -> Result<()> {
        let (number, checks) = (here.minishard, index.checks());
        let location = index.common_location(|id| self.shard.spec.route(id));
        let location = location.filter(|_| survey.is_compacted).unwrap_or(here);
        let minishard = Minishard { location, checks };
        let verified = self.shard.compare_index_check(number, index);
        let is_zlib_index = is_zlib(&index.encoded, self.shard.spec.minishard_index_encoding());
        let (mut ids, mut unproved) = (HashSet::new(), 0);
        let mut gap_start = self.first_gap_start(checks);
        for row in index.view().rows() {
            let proved = self.prove(survey, &minishard, row, gap_start);
            gap_start = self.shard.value_range(row).ok().map(|range| range.end);
            match proved {
                Ok(_) if !ids.insert(row.id) => {
                    let error = Error::corrupt("expected each id once, found a duplicate: the first pair is kept");
                    self.lose(number, FindingKind::DuplicateId, error.at_key(row.id));
                }
                Ok(pair) => {
                    self.loader.insert_with_preamble(row.id, &pair.preamble, &pair.value)?;
                    self.outcome.report.kept += 1;
                    self.outcome.report.wrong_slot += u64::from(location != here);
                    self.outcome.report.wrong_file += u64::from(here.shard != self.shard.number);
                    self.outcome.report.zlib += u64::from(pair.is_zlib || is_zlib_index);
                }
                // the ids of an index that fails its check may be wrong, so the loss does not name them as keys
                Err(_) if verified.is_err() => unproved += 1,
                Err((kind, error)) => self.lose(number, kind, error.at_key(row.id)),
            }
        }
        if let Err(error) = verified
            && unproved > 0
        {
            let message = format!("{}; {unproved} of its {} rows could not be proved", error.message(), checks.rows);
            self.lose(number, FindingKind::IndexCheck, Error::corrupt(message).at_offset(index.range.start));
        }
        Ok(())
    }

    /// Returns the start of the gap before the first value, if the index alone determines it: with raw indexes, the end of
    /// the checks.
    fn first_gap_start(&self, checks: ChecksPlace) -> Option<u64> {
        let checks_len = ChecksPlace::total_len(checks.rows, self.shard.layout.unwrap_or_default());
        match self.shard.spec.minishard_index_encoding() {
            Encoding::Raw => checks.index_end.checked_add(checks_len),
            Encoding::Gzip => None,
        }
    }

    /// Returns the pair of a row if it is proved right. `gap_start` is where the gap before its value begins, if its
    /// minishard states that.
    ///
    /// Errors: the rule that it breaks.
    fn prove(
        &mut self,
        survey: &Survey,
        minishard: &Minishard,
        row: Row,
        gap_start: Option<u64>,
    ) -> Result<Pair<'a>, Broken> {
        let range = self.shard.value_range(row).map_err(|error| (FindingKind::BadValueRange, error))?;
        self.shard.check_cap(range).map_err(|error| (FindingKind::OverCap, error))?;
        self.take_bytes(range)?;
        let encoded = self.shard.read(range).map_err(|error| (FindingKind::UnreadableShard, error))?;
        if self.shard.layout.is_some_and(|layout| layout.checks) {
            let verified = self.shard.compare_value_check(row, minishard.checks, &encoded);
            verified.map_err(|error| (FindingKind::ValueCheck, error))?;
        } else {
            self.check_location(survey, minishard, row, range)?
        }
        let (value, is_zlib) = self.decode(encoded).map_err(|error| (FindingKind::BadValue, error))?;
        let preamble = self.preamble(survey, minishard, row, range, gap_start)?;
        Ok(Pair { preamble, value, is_zlib })
    }

    /// Proves a pair of a shard without checks: its key hashes to the minishard, and its value overlaps no index.
    fn check_location(&self, survey: &Survey, minishard: &Minishard, row: Row, range: ByteRange) -> Result<(), Broken> {
        let location = self.shard.spec.route(row.id);
        if location != minishard.location {
            return Err((FindingKind::MisplacedKey, misplaced(location)));
        }
        if survey.indexes.overlap(range) {
            let message =
                "expected a value that shares no bytes with an index, found one that overlaps a minishard index";
            return Err((FindingKind::IndexOverlap, Error::corrupt(message).at_offset(range.start)));
        }
        Ok(())
    }

    /// Charges the budget for reading bytes. If values share too many bytes, the first are kept.
    ///
    /// Errors: `OverCap` if the budget is spent.
    fn take_bytes(&mut self, range: ByteRange) -> Result<(), Broken> {
        if self.budget.take(self.shard.files().data_len(), range.len()) {
            return Ok(());
        }
        let most = ValueBudget::most(self.shard.files().data_len());
        let message = format!(
            "expected at most {most} bytes of values in a shard of that length, found more: values share bytes"
        );
        Err((FindingKind::OverCap, Error::corrupt(message).at_offset(range.start)))
    }

    /// Decodes a value. Returns it and whether it is a zlib stream in place of gzip.
    fn decode(&self, encoded: Bytes<'_>) -> Result<(Vec<u8>, bool)> {
        match self.shard.spec.data_encoding() {
            Encoding::Raw => Ok((encoded.to_vec(), false)),
            Encoding::Gzip if gzip::is_zlib(&encoded) => Ok((gzip::decode_zlib(&encoded, self.max_value_bytes)?, true)),
            Encoding::Gzip => Ok((gzip::decode(&encoded, self.max_value_bytes)?, false)),
        }
    }

    /// Returns the bytes before the value that no index names. Verifies them in a shard with checks.
    ///
    /// With checks, the gap begins where the minishard states: `survey.named` lacks the ranges of a minishard whose index
    /// fails its check. Without checks, or if the minishard does not state it, the gap begins at the end of the previous
    /// named range.
    fn preamble(
        &mut self,
        survey: &Survey,
        minishard: &Minishard,
        row: Row,
        range: ByteRange,
        gap_start: Option<u64>,
    ) -> Result<Bytes<'a>, Broken> {
        if self.shard.layout.is_some_and(|layout| !layout.preambles) {
            return Ok(Bytes::Borrowed(&[]));
        }
        let has_checks = self.shard.layout.is_some_and(|layout| layout.checks);
        let stated = gap_start.filter(|start| has_checks && *start <= range.start);
        let gap = ByteRange { start: stated.unwrap_or_else(|| survey.named.gap_start(range)), end: range.start };
        self.shard.check_cap(gap).map_err(|error| (FindingKind::OverCap, error))?;
        self.take_bytes(gap)?;
        if has_checks {
            let verified = self.shard.compare_preamble_check(row, minishard.checks, gap);
            verified.map_err(|error| (FindingKind::PreambleCheck, error))?;
        }
        let unreadable = |error| (FindingKind::UnreadableShard, error);
        let padding = self.shard.possible_padding(row, gap).map_err(unreadable)?;
        self.shard.read(ByteRange { start: gap.start + padding, end: gap.end }).map_err(unreadable)
    }

    fn lose(&mut self, number: MinishardNumber, rule: FindingKind, error: Error) {
        self.outcome.lose(rule, self.shard.at(number, error));
    }
}
