//! The pairs of a minishard where they are stored, whether two of them are equal, and whether a database still has one.

use crate::byte_range::ByteRange;
use crate::bytes::Bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checks::ChecksPlace;
use crate::format::minishard_index::{IndexView, Row};
use crate::format::spec::Encoding;
use crate::ids::{Location, MinishardNumber};
use crate::read::shard::{FoundKey, Shard, ShardReader, Value, VerifyScope};
use crate::read::snapshot::Snapshot;

/// A pair of a shard. Nothing of it is read yet, except its row of the index.
#[derive(Clone)]
pub(super) struct Stored {
    shard: Shard,
    found: FoundKey,
}

impl Stored {
    pub(super) fn new(shard: Shard, found: FoundKey) -> Stored {
        Stored { shard, found }
    }

    pub(super) fn key(&self) -> u64 {
        self.found.row.id
    }

    /// Returns the decoded value.
    pub(super) fn value(&self) -> Result<Value<'_>> {
        self.pair().value()
    }

    /// Returns the bytes before the value that are its preamble. Empty if they are only padding.
    pub(super) fn preamble(&self) -> Result<Value<'_>> {
        let pair = self.pair();
        let preamble = pair.preamble()?;
        let is_padding = pair.may_be_padded() && without_padding(&preamble).is_empty();
        Ok(if is_padding { Value::from(&[][..]) } else { Value::from_bytes(preamble) })
    }

    pub(super) fn pair(&self) -> Pair<'_> {
        Pair { shard: &self.shard, found: self.found }
    }
}

impl From<&Pair<'_>> for Stored {
    fn from(pair: &Pair<'_>) -> Stored {
        Stored { shard: pair.shard.clone(), found: pair.found }
    }
}

/// A pair of an open shard.
#[derive(Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) shard: &'a Shard,
    pub(super) found: FoundKey,
}

impl<'a> Pair<'a> {
    pub(super) fn key(&self) -> u64 {
        self.found.row.id
    }

    fn reader(&self) -> &'a ShardReader {
        self.shard.reader()
    }

    /// Returns the range of the value in the file.
    ///
    /// Errors: `Corrupt` if it is not within the file.
    pub(super) fn range(&self) -> Result<ByteRange> {
        self.reader().value_range(self.found.row).map_err(|error| self.at(error))
    }

    fn value(&self) -> Result<Value<'a>> {
        self.reader().value(&self.found)
    }

    /// Returns the stored bytes of the value, verified as the mode of the database requires.
    fn encoded(&self) -> Result<Bytes<'a>> {
        self.reader().verified_bytes(&self.found).map_err(|error| self.at(error))
    }

    fn preamble(&self) -> Result<Bytes<'a>> {
        self.reader().whole_preamble(&self.found).map_err(|error| self.at(error))
    }

    fn encoding(&self) -> Encoding {
        self.reader().spec.data_encoding()
    }

    /// Whether the layout has no preambles, so that every preamble is empty.
    fn has_no_preamble(&self) -> bool {
        self.reader().layout.is_some_and(|layout| !layout.preambles)
    }

    /// Whether zero bytes before the value may be padding: to the value alignment, between two empty values, or of
    /// unknown use.
    fn may_be_padded(&self) -> bool {
        let value = self.found.row.value;
        value.start == value.end || self.reader().layout.is_none_or(|layout| layout.value_alignment.get() > 1)
    }

    /// Whether this is the preamble and the value. Zero bytes at the beginning of the preamble are ignored.
    ///
    /// Errors: damage of the pair.
    fn is(&self, preamble: &[u8], value: &[u8]) -> Result<bool> {
        Ok(*self.value()? == *value && without_padding(&self.preamble()?) == without_padding(preamble))
    }

    /// Adds the place of this pair to an error.
    #[cold]
    fn at(&self, error: Error) -> Error {
        self.reader().at(self.found.minishard, error).at_key(self.found.row.id)
    }
}

impl Snapshot {
    /// Returns whether a key has this preamble and value or, with `None`, whether it is absent.
    ///
    /// For programs that apply the changes of a [`Diff`](crate::diff::Diff): a key that has another pair by now was
    /// changed by another program. Zero bytes at the beginning of the preamble are ignored, since they may be padding.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Snapshot::get).
    ///
    /// ```
    /// let snapshot = sharddb::ShardDb::from_pairs([(7, "seven")])?.snapshot();
    /// assert!(snapshot.holds(7, Some((b"", b"seven")))?);
    /// assert!(!snapshot.holds(7, None)?);
    /// assert!(snapshot.holds(8, None)?);
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn holds(&self, key: u64, pair: Option<(&[u8], &[u8])>) -> Result<bool> {
        let found = self.generation.find(key)?;
        match (found, pair) {
            (None, None) => Ok(true),
            (Some(found), Some((preamble, value))) => Pair { shard: found.shard, found: found.key }.is(preamble, value),
            _ => Ok(false),
        }
    }
}

/// Whether two pairs of the same key have the same value and preamble.
///
/// Errors: damage of either pair.
pub(super) fn are_equal(old: &Pair<'_>, new: &Pair<'_>) -> Result<bool> {
    Ok(have_equal_values(old, new)? && have_equal_preambles(old, new)?)
}

fn have_equal_values(old: &Pair<'_>, new: &Pair<'_>) -> Result<bool> {
    let is_same_len = old.range()?.len() == new.range()?.len();
    match (old.encoding(), new.encoding()) {
        (Encoding::Raw, Encoding::Raw) if !is_same_len => Ok(false),
        (Encoding::Raw, Encoding::Raw) => Ok(*old.encoded()? == *new.encoded()?),
        (Encoding::Gzip, Encoding::Gzip) if is_same_len && *old.encoded()? == *new.encoded()? => {
            old.value().map(|_| true) // decoded, because equal bytes may be equally damaged
        }
        _ => Ok(*old.value()? == *new.value()?),
    }
}

fn have_equal_preambles(old: &Pair<'_>, new: &Pair<'_>) -> Result<bool> {
    if old.has_no_preamble() && new.has_no_preamble() {
        return Ok(true);
    }
    let (old_preamble, new_preamble) = (old.preamble()?, new.preamble()?);
    if old.may_be_padded() || new.may_be_padded() {
        Ok(without_padding(&old_preamble) == without_padding(&new_preamble))
    } else {
        Ok(*old_preamble == *new_preamble)
    }
}

/// Returns a preamble without the zero bytes at its beginning.
fn without_padding(preamble: &[u8]) -> &[u8] {
    let zeros = preamble.iter().take_while(|byte| **byte == 0).count();
    preamble.get(zeros..).unwrap_or_default()
}

/// The rows of one minishard that lookups find.
pub(super) struct Minishard<'a> {
    shard: &'a Shard,
    number: MinishardNumber,
    place: ChecksPlace,
    /// By ascending key, each once.
    rows: Vec<Row>,
}

impl<'a> Minishard<'a> {
    /// Reads and verifies the index at `range`.
    ///
    /// Leaves out what lookups do not find: keys of other minishards, and all but the first row of a key.
    ///
    /// Errors, without a place: `Corrupt`, also if a range of the index is impossible: then no lookup proves that a key is
    /// absent.
    pub(super) fn read(shard: &'a Shard, number: MinishardNumber, range: ByteRange) -> Result<Minishard<'a>> {
        let reader = shard.reader();
        let index = reader.read_minishard_index(range)?;
        reader.verify_used_index(number, &index, VerifyScope::Index)?;
        Ok(Minishard { shard, number, place: index.checks(), rows: rows(reader, number, index.view())? })
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Iterates over the pairs, by ascending key.
    pub(super) fn pairs(&self) -> impl Iterator<Item = Pair<'_>> {
        self.rows.iter().map(|row| Pair {
            shard: self.shard,
            found: FoundKey { minishard: self.number, row: *row, checks: self.place, value_check: None },
        })
    }
}

/// Returns the rows that lookups find, by ascending key.
fn rows(reader: &ShardReader, number: MinishardNumber, index: IndexView<'_>) -> Result<Vec<Row>> {
    let here = Location { shard: reader.number, minishard: number };
    let mut rows = Vec::new();
    rows.try_reserve_exact(index.len()).map_err(|_| no_memory(index.len()))?;
    let mut is_ascending = true;
    for row in index.rows() {
        if !row.value.is_possible() {
            return Err(impossible(row));
        }
        if reader.spec.route(row.id) == here {
            is_ascending &= rows.last().is_none_or(|last: &Row| last.id < row.id);
            rows.push(row);
        }
    }
    if !is_ascending {
        rows.sort_by_key(|row| row.id); // stable: the first row of a key stays first
        rows.dedup_by_key(|row| row.id);
    }
    Ok(rows)
}

#[cold]
fn no_memory(rows: usize) -> Error {
    Error::new(ErrorKind::TooLarge, format!("cannot allocate memory for the {rows} rows of a minishard"))
}

#[cold]
fn impossible(row: Row) -> Error {
    let (start, end) = (row.value.start, row.value.end);
    let message = format!("expected value ranges with start <= end < 2^63, found {start}..{end}: run `sharddb verify`");
    Error::corrupt(message).at_key(row.id)
}
