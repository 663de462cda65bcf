//! The pairs of a shard in storage order.

use std::fmt;
use std::iter::FusedIterator;

use crate::error::{Error, Result};
use crate::format::minishard_index::{RawIndex, Row};
use crate::ids::Location;
use crate::read::shard::handle::Shard;
use crate::read::shard::keys::Pass;
use crate::read::shard::rows::Rows;
use crate::read::shard::stored_value::Stored;
use crate::read::shard::value::{Value, ValueLocation};
use crate::read::shard::verification::Compare;

impl Shard {
    /// All pairs in storage order, like [`Snapshot::iter`](crate::Snapshot::iter).
    pub fn iter(&self) -> ShardEntries<'_> {
        ShardEntries::new(self)
    }
}

/// The pairs of a shard in storage order; see [`Shard::iter`].
///
/// A bad minishard or a bad value gives one `Err` with its place, and the walk goes on; it always ends.
pub struct ShardEntries<'a> {
    shard: &'a Shard,
    /// What lies behind the shard index, if the values of the current minishard are given as they lie there.
    behind: Option<&'a [u8]>,
    /// Whether everything so far was compared, as far as the mode asks for it.
    is_verified: bool,
    rows: Rows,
    /// Of the current minishard, if it lies in memory.
    index: RawIndex<'a>,
    _pass: Pass<'a>,
}

impl<'a> ShardEntries<'a> {
    pub(crate) fn new(shard: &'a Shard) -> ShardEntries<'a> {
        ShardEntries {
            shard,
            behind: None,
            is_verified: true,
            rows: Rows::comparing(Compare::Values),
            index: RawIndex::default(),
            _pass: Pass::new(shard),
        }
    }

    /// The next key with its value.
    #[inline]
    pub(crate) fn next_pair(&mut self) -> Option<Result<(u64, Value<'a>)>> {
        let stored = match self.next_stored()? {
            Ok(stored) => stored,
            Err(error) => return Some(Err(error)),
        };
        match self.in_place(&stored) {
            Some(value) => Some(Ok((stored.row.id, Value::borrowed_from(value)))),
            None => Some(self.read(&stored).map(|value| (stored.row.id, value))),
        }
    }

    fn read(&mut self, stored: &Stored) -> Result<Value<'a>> {
        self.shard.reader().value(stored).inspect_err(|_| self.is_verified = false)
    }

    #[inline]
    fn in_place(&self, stored: &Stored) -> Option<&'a [u8]> {
        stored.row.value.of(self.behind?)
    }

    #[inline]
    fn next_stored(&mut self) -> Option<Result<Stored>> {
        let row = match self.rows.state.next(self.index) {
            Some(row) => row,
            None => match self.next_elsewhere()? {
                Ok(row) => row,
                Err(error) => return Some(Err(error)),
            },
        };
        Some(Ok(self.rows.current?.stored(row)))
    }

    /// The next row behind those of `index`: of an index that is not in memory, or of the next minishard.
    fn next_elsewhere(&mut self) -> Option<Result<Row>> {
        let reader = self.shard.reader();
        loop {
            if self.rows.decoded.is_some()
                && let Some(row) = self.rows.next_row(reader)
            {
                return Some(Ok(row));
            }
            self.index = RawIndex::default(); // a minishard that cannot be entered must not show the one before
            match self.rows.next_minishard(reader) {
                Ok(Some(minishard)) => {
                    self.index = self.rows.in_place(reader);
                    self.behind = reader.raw_behind().filter(|_| minishard.verified.has_all());
                    if let Some(row) = self.rows.state.next(self.index) {
                        return Some(Ok(row));
                    }
                }
                Ok(None) => {
                    if self.is_verified {
                        reader.note_whole_verified();
                    }
                    return None;
                }
                Err(error) => {
                    self.is_verified = false;
                    return Some(Err(error));
                }
            }
        }
    }
}

impl<'a> Iterator for ShardEntries<'a> {
    type Item = Result<Entry<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Result<Entry<'a>>> {
        let stored = match self.next_stored()? {
            Ok(stored) => stored,
            Err(error) => return Some(Err(error)),
        };
        let in_place = self.in_place(&stored);
        if in_place.is_none() {
            self.is_verified = false; // the caller may never ask for the value
            if let Err(error) = self.shard.reader().check_range(&stored) {
                return Some(Err(error));
            }
        }
        Some(Ok(Entry { shard: self.shard, stored, in_place }))
    }
}

impl FusedIterator for ShardEntries<'_> {}

impl fmt::Debug for ShardEntries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardEntries").field("shard", self.shard).finish_non_exhaustive()
    }
}

impl<'a> IntoIterator for &'a Shard {
    type Item = Result<Entry<'a>>;
    type IntoIter = ShardEntries<'a>;

    fn into_iter(self) -> ShardEntries<'a> {
        self.iter()
    }
}

/// A pair met by iteration: the key is known, the value is read when asked for.
///
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    shard: &'a Shard,
    stored: Stored,
    /// The value, if it lies in memory as it is.
    in_place: Option<&'a [u8]>,
}

impl<'a> Entry<'a> {
    /// The key.
    #[inline]
    pub fn key(&self) -> u64 {
        self.stored.row.id
    }

    /// The shard and minishard where it is stored; a misplaced key hashes elsewhere.
    pub fn location(&self) -> Location {
        Location { shard: self.shard.number(), minishard: self.stored.minishard }
    }

    /// The stored length in bytes: of the encoded value.
    #[inline]
    pub fn stored_len(&self) -> u64 {
        let value = self.stored.row.value;
        value.end.wrapping_sub(value.start)
    }

    /// The decoded value, as [`Snapshot::get`](crate::Snapshot::get) gives it.
    #[inline]
    pub fn value(&self) -> Result<Value<'a>> {
        match self.in_place {
            Some(value) => Ok(Value::borrowed_from(value)),
            // a copy, so that an entry whose address nobody takes can stay in registers
            None => self.shard.reader().value(&{ self.stored }),
        }
    }

    /// The stored bytes of the value: as they are, or one gzip member.
    pub fn encoded_value(&self) -> Result<Value<'a>> {
        let encoded = self.shard.reader().stored_value(&self.stored);
        encoded.map(Value::from_bytes).map_err(|error| self.at(error))
    }

    /// The bytes between the value and whatever lies before it: its prefix, with padding if there is any.
    ///
    /// Empty without looking where the data set is known to have none. Cost for data sets of others: the first call in a
    /// shard reads all its indexes.
    pub fn prefix(&self) -> Result<Value<'a>> {
        let prefix = self.shard.reader().whole_prefix(&self.stored);
        prefix.map(Value::from_bytes).map_err(|error| self.at(error))
    }

    /// Where the value is stored.
    pub fn value_location(&self) -> Result<ValueLocation> {
        self.shard.reader().value_location(self.stored.minishard, self.stored.row)
    }

    /// Adds this entry as the place of an error.
    #[cold]
    fn at(&self, error: Error) -> Error {
        self.shard.reader().at(self.stored.minishard, error).at_key(self.stored.row.id)
    }
}

impl fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("key", &self.key()).field("stored_len", &self.stored_len()).finish()
    }
}
