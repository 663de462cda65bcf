//! The rows of one minishard that lookups find, in ascending order of keys.

use crate::byte_range::ByteRange;
use crate::diff::stored::Pair;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checks::ChecksPlace;
use crate::format::minishard_index::{IndexView, Row};
use crate::ids::{Location, MinishardNumber};
use crate::read::shard::{FoundKey, Shard, ShardReader, VerifyScope};

/// The index of one minishard.
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
            found: FoundKey { minishard: self.number, row: *row, checks: self.place },
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
