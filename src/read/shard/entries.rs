//! Iteration over the pairs of a shard in storage order. The walk over the rows is in `rows`.

use std::fmt;
use std::iter::FusedIterator;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::minishard_index::{IndexView, Row};
use crate::ids::{Location, MinishardNumber};
use crate::read::shard::entry_blocks::ALL_MINISHARDS;
use crate::read::shard::handle::Shard;
use crate::read::shard::keys::Pass;
use crate::read::shard::rows::Rows;
use crate::read::shard::stored_value::FoundKey;
use crate::read::shard::value::{Value, ValueLocation};
use crate::read::shard::verification::VerifyScope;

impl Shard {
    /// Iterates over all pairs in storage order, like [`Snapshot::iter`](crate::Snapshot::iter).
    pub fn iter(&self) -> ShardEntries<'_> {
        ShardEntries::over(self, ALL_MINISHARDS)
    }
}

/// An iterator over the pairs of a shard in storage order; see [`Shard::iter`].
///
/// A bad entry or minishard is one `Err` with its place, and the iteration continues with the next one. The iteration
/// always ends.
pub struct ShardEntries<'a> {
    shard: &'a Shard,
    /// The bytes after the shard index, if the values of the current minishard are borrowed from them without
    /// verification.
    body: Option<&'a [u8]>,
    /// Whether all bytes so far are verified, as far as the mode requires.
    is_verified: bool,
    /// Whether these are all minishards of the shard.
    is_whole: bool,
    rows: Rows,
    /// The index of the current minishard, if it is raw, and mapped or loaded.
    index: IndexView<'a>,
    _pass: Pass<'a>,
}

impl<'a> ShardEntries<'a> {
    /// Creates an iterator over a range of minishards.
    pub(crate) fn over(shard: &'a Shard, minishards: Range<MinishardNumber>) -> ShardEntries<'a> {
        ShardEntries {
            shard,
            body: None,
            is_verified: true,
            is_whole: minishards.start.get() == 0 && minishards.end.get() >= shard.reader().spec.minishards(),
            rows: Rows::over(minishards).with_scope(VerifyScope::IndexAndValuesIfSmall),
            index: IndexView::default(),
            _pass: Pass::new(shard),
        }
    }

    /// Whether all bytes so far are verified, as far as the mode requires.
    pub(crate) fn is_verified(&self) -> bool {
        self.is_verified
    }

    /// Returns the next key with its value.
    #[inline]
    pub(crate) fn next_pair(&mut self) -> Option<Result<(u64, Value<'a>)>> {
        let found = match self.next_found()? {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        match self.in_place(&found) {
            Some(value) => Some(Ok((found.row.id, Value::borrowed_from(value)))),
            None => Some(self.read(&found).map(|value| (found.row.id, value))),
        }
    }

    fn read(&mut self, found: &FoundKey) -> Result<Value<'a>> {
        self.shard.reader().value(found).inspect_err(|_| self.is_verified = false)
    }

    #[inline]
    fn in_place(&self, found: &FoundKey) -> Option<&'a [u8]> {
        found.row.value.of(self.body?)
    }

    #[inline]
    fn next_found(&mut self) -> Option<Result<FoundKey>> {
        let row = match self.rows.state.next(self.index) {
            Some(row) => row,
            None => match self.next_elsewhere()? {
                Ok(row) => row,
                Err(error) => return Some(Err(error)),
            },
        };
        Some(Ok(self.rows.current?.found(row)))
    }

    /// Returns the next row after the end of `index`: of an index that was decoded or read, or of the next minishard.
    fn next_elsewhere(&mut self) -> Option<Result<Row>> {
        let reader = self.shard.reader();
        loop {
            if self.rows.decoded.is_some()
                && let Some(row) = self.rows.next_row(reader)
            {
                return Some(Ok(row));
            }
            self.index = IndexView::default(); // so that an error below does not repeat rows of the previous minishard
            match self.rows.next_minishard(reader) {
                Ok(Some(minishard)) => {
                    self.index = self.rows.in_place(reader);
                    self.body = reader.raw_body().filter(|_| minishard.trusted.has_all());
                    if let Some(row) = self.rows.state.next(self.index) {
                        return Some(Ok(row));
                    }
                }
                Ok(None) => {
                    if self.is_verified && self.is_whole {
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
        let found = match self.next_found()? {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        let in_place = self.in_place(&found);
        if in_place.is_none() {
            self.is_verified = false; // the caller may never read the value, and then it is not verified
            if let Err(error) = self.shard.reader().check_range(&found) {
                return Some(Err(error));
            }
        }
        Some(Ok(Entry { shard: self.shard, found, in_place }))
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

/// A pair of an iteration. The key is known; the value is read on demand.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    shard: &'a Shard,
    found: FoundKey,
    /// The value, if it is raw, mapped or loaded, and trusted.
    in_place: Option<&'a [u8]>,
}

impl<'a> Entry<'a> {
    /// Returns the key.
    #[inline]
    pub fn key(&self) -> u64 {
        self.found.row.id
    }

    /// Returns the shard and the minishard in which the pair is stored. In a damaged file, the key may hash to another
    /// place.
    pub fn location(&self) -> Location {
        Location { shard: self.shard.number(), minishard: self.found.minishard }
    }

    /// Returns the stored length in bytes, which is that of the encoded value.
    #[inline]
    pub fn stored_len(&self) -> u64 {
        let value = self.found.row.value;
        value.end.wrapping_sub(value.start)
    }

    /// Returns the decoded value, as [`Snapshot::get`](crate::Snapshot::get) does.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `TooLarge`, `Io`, `GenerationGone`, with the key and its place.
    #[inline]
    pub fn value(&self) -> Result<Value<'a>> {
        match self.in_place {
            Some(value) => Ok(Value::borrowed_from(value)),
            // a copy: an entry whose address is never taken can stay in registers
            None => self.shard.reader().value(&{ self.found }),
        }
    }

    /// Returns the stored bytes of the value: the value itself, or one gzip member.
    ///
    /// # Errors
    ///
    /// Those of [`value`](Entry::value).
    pub fn encoded_value(&self) -> Result<Value<'a>> {
        let encoded = self.shard.reader().verified_bytes(&self.found);
        encoded.map(Value::from_bytes).map_err(|error| self.at(error))
    }

    /// Returns the bytes between the value and the previous range that an index names: its preamble, including padding.
    ///
    /// Empty, without a read, if the layout of the data set has no preambles. Empty too if a native shard has only zero
    /// bytes there, fewer than the alignment of values: they are padding, or a preamble with the same bytes.
    ///
    /// Cost for foreign data sets: the first call per shard reads all its indexes and keeps 16 bytes per key.
    ///
    /// # Errors
    ///
    /// Those of [`value`](Entry::value).
    pub fn preamble(&self) -> Result<Value<'a>> {
        self.shard.reader().located_preamble(&self.found)
    }

    /// Returns where the value is stored.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the value is not within the file.
    pub fn value_location(&self) -> Result<ValueLocation> {
        self.shard.reader().value_location(self.found.minishard, self.found.row)
    }

    /// Adds the place of this entry to an error.
    #[cold]
    fn at(&self, error: Error) -> Error {
        self.shard.reader().at(self.found.minishard, error).at_key(self.found.row.id)
    }
}

impl fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("key", &self.key()).field("stored_len", &self.stored_len()).finish()
    }
}
