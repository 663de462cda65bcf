//! Reading the value of a key that was found, wherever its bytes are.

use crate::byte_range::ByteRange;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checks::ChecksPlace;
use crate::format::gzip;
use crate::format::minishard_index::Row;
use crate::format::spec::Encoding;
use crate::ids::MinishardNumber;
use crate::read::shard::reader::ShardReader;
use crate::read::shard::value::{Value, ValueLocation};
use crate::storage::{AlignedBytes, Bytes};

/// Where a key is stored: its row, with what it takes to read and verify the value.
#[derive(Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) minishard: MinishardNumber,
    pub(crate) row: Row,
    pub(crate) checks: ChecksPlace,
}

impl ShardReader {
    /// The decoded value of a key that was found.
    pub(crate) fn value(&self, stored: &Stored) -> Result<Value<'_>> {
        let decoded = self.stored_value(stored).and_then(|encoded| match self.spec.data_encoding() {
            Encoding::Raw => Ok(Value::from_bytes(encoded)),
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
        AlignedBytes::from_vec(decoded, self.alignment()).map(|bytes| Value::from_bytes(Bytes::Owned(bytes)))
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
