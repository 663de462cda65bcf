//! Values: what a lookup gives, where it lies, and reading one that does not simply lie in memory.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use crate::byte_range::ByteRange;
use crate::error::{Error, ErrorKind, Result};
use crate::format::gzip;
use crate::format::minishard_index::Row;
use crate::format::spec::Encoding;
use crate::ids::MinishardNumber;
use crate::read::shard::lookup::Stored;
use crate::read::shard::reader::ShardReader;
use crate::storage::{AlignedBytes, Bytes};

/// A value: borrowed from the map or the memory it lies in, else read or decoded for the occasion.
///
/// Dereferences to its bytes. With a value alignment, they begin at a multiple of it in either case.
pub struct Value<'a>(Bytes<'a>);

impl<'a> Value<'a> {
    /// Whether the bytes are borrowed: nothing was copied.
    pub fn is_borrowed(&self) -> bool {
        matches!(self.0, Bytes::Borrowed(_))
    }

    /// The bytes for as long as the snapshot lives, if they are borrowed from it.
    pub fn borrowed(&self) -> Option<&'a [u8]> {
        match self.0 {
            Bytes::Borrowed(bytes) => Some(bytes),
            Bytes::Owned(_) => None,
        }
    }

    #[inline]
    pub(crate) fn borrowed_from(bytes: &'a [u8]) -> Value<'a> {
        Value(Bytes::Borrowed(bytes))
    }

    pub(crate) fn from_bytes(bytes: Bytes<'a>) -> Value<'a> {
        Value(bytes)
    }

    pub(crate) fn into_bytes(self) -> Bytes<'a> {
        self.0
    }
}

impl Deref for Value<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Value<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Value").field(&&self[..]).finish()
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value<'_> {
    fn eq(&self, other: &T) -> bool {
        self[..] == *other.as_ref()
    }
}

/// Where a value is stored: which file, which bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueLocation {
    path: PathBuf,
    range: ByteRange,
}

#[expect(clippy::len_without_is_empty, reason = "a stored length, not a collection")]
impl ValueLocation {
    pub(crate) fn new(path: PathBuf, range: ByteRange) -> ValueLocation {
        ValueLocation { path, range }
    }

    /// The file; empty for a shard from bytes in hand.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The absolute offset of the value's first byte in the file.
    pub fn offset(&self) -> u64 {
        self.range.start
    }

    /// The stored length in bytes: of the encoded value.
    pub fn len(&self) -> u64 {
        self.range.len()
    }
}

impl ShardReader {
    /// The decoded value of a key that was found.
    pub(crate) fn value(&self, stored: &Stored) -> Result<Value<'_>> {
        let decoded = self.stored_value(stored).and_then(|encoded| match self.spec.data_encoding() {
            Encoding::Raw => Ok(Value(encoded)),
            Encoding::Gzip => self.decode_value(&encoded),
        });
        decoded.map_err(|error| self.at(stored.minishard, error).at_key(stored.row.id))
    }

    /// Its stored bytes, verified as the mode asks for it.
    pub(crate) fn stored_value(&self, stored: &Stored) -> Result<Bytes<'_>> {
        let encoded = self.encoded_value(stored.row)?;
        self.verify_used_value(stored.minishard, stored.row, stored.checks, &encoded)?;
        Ok(encoded)
    }

    fn decode_value(&self, encoded: &[u8]) -> Result<Value<'static>> {
        let decoded = gzip::decode(encoded, self.options.max_value_bytes)?;
        AlignedBytes::from_vec(decoded, self.alignment()).map(|bytes| Value(Bytes::Owned(bytes)))
    }

    /// The stored bytes of a row's value, not verified.
    pub(crate) fn encoded_value(&self, row: Row) -> Result<Bytes<'_>> {
        self.read_at_most_cap(self.value_range(row)?, self.alignment())
    }

    /// Where a row's value lies in the file.
    #[inline]
    pub(crate) fn value_range(&self, row: Row) -> Result<ByteRange> {
        match row.value.resolve(self.base(), self.files().data_len()) {
            Some(range) => Ok(range),
            None => Err(self.bad_value_range(row)),
        }
    }

    /// Whether the value lies in the file; an error that says where it does not.
    #[inline]
    pub(crate) fn check_range(&self, stored: &Stored) -> Result<()> {
        match self.value_range(stored.row) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.at(stored.minishard, error)),
        }
    }

    #[cold]
    fn bad_value_range(&self, row: Row) -> Error {
        let behind = self.behind_len();
        let (start, size) = (row.value.start, row.value.end.wrapping_sub(row.value.start));
        Error::corrupt(format!(
            "expected a value within the {behind} bytes behind the shard index, found {size} bytes at {start}"
        ))
        .at_key(row.id)
    }

    /// Where a row's value is stored.
    pub(crate) fn value_location(&self, number: MinishardNumber, row: Row) -> Result<ValueLocation> {
        let range = self.value_range(row).map_err(|error| self.at(number, error).at_key(row.id))?;
        Ok(ValueLocation::new(self.files().path.clone(), range))
    }

    /// The bytes of a value or a prefix. How long it is, only an index says, and a file may be long and hold nothing.
    pub(crate) fn read_at_most_cap(&self, range: ByteRange, alignment: usize) -> Result<Bytes<'_>> {
        self.check_cap(range)?;
        self.files().data().read(range, alignment)
    }

    /// Errors: `TooLarge` if memory would be needed for more bytes than a stored value may have.
    pub(crate) fn check_cap(&self, range: ByteRange) -> Result<()> {
        let cap = match self.spec.data_encoding() {
            Encoding::Raw => self.options.max_value_bytes,
            Encoding::Gzip => gzip::max_stored_len(self.options.max_value_bytes),
        };
        if range.len() > cap && self.files().data().in_memory().is_none() {
            let message = format!("expected at most {cap} bytes to read at once, found {}: raise the cap", range.len());
            return Err(Error::new(ErrorKind::TooLarge, message).at_offset(range.start));
        }
        Ok(())
    }
}
