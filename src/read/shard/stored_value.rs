//! Reads the value of a key whose row is known, from any storage.

use crate::byte_range::ByteRange;
use crate::bytes::{AlignedBytes, Bytes};
use crate::error::Result;
use crate::format::checks::ChecksPlace;
use crate::format::gzip;
use crate::format::minishard;
use crate::format::minishard_index::Row;
use crate::format::spec::Encoding;
use crate::ids::MinishardNumber;
use crate::read::shard::reader::ShardReader;
use crate::read::shard::value::{Value, ValueLocation, value_location};

/// A key that was found: its minishard, its row, and the position of its checksum.
#[derive(Clone, Copy)]
pub(crate) struct FoundKey {
    pub(crate) minishard: MinishardNumber,
    pub(crate) row: Row,
    pub(crate) checks: ChecksPlace,
    /// The check of the value, if it was read with the index.
    pub(crate) value_check: Option<u32>,
}

impl ShardReader {
    /// Returns the decoded value of a stored key.
    pub(crate) fn value(&self, found: &FoundKey) -> Result<Value<'_>> {
        let (number, key) = (found.minishard, found.row.id);
        let encoded = self.verified_bytes(found).map_err(|error| self.at(number, error).at_key(key))?;
        self.decoded(number, key, encoded)
    }

    /// Decodes the stored bytes of a value.
    pub(crate) fn decoded<'a>(&self, number: MinishardNumber, key: u64, encoded: Bytes<'a>) -> Result<Value<'a>> {
        match self.spec.data_encoding() {
            Encoding::Raw => Ok(Value::from_bytes(encoded)),
            Encoding::Gzip => self.decode_value(&encoded).map_err(|error| self.at(number, error).at_key(key)),
        }
    }

    /// Copies the stored bytes of a value.
    pub(crate) fn copy_of(&self, encoded: &[u8]) -> Result<Bytes<'static>> {
        AlignedBytes::copy_of(encoded, self.alignment()).map(Bytes::Owned)
    }

    /// Returns the stored bytes of a value, verified as the mode requires.
    pub(crate) fn verified_bytes(&self, found: &FoundKey) -> Result<Bytes<'_>> {
        let encoded = self.unverified_bytes(found.row)?;
        self.verify_used_value(found, &encoded)?;
        Ok(encoded)
    }

    fn decode_value(&self, encoded: &[u8]) -> Result<Value<'static>> {
        let decoded = gzip::decode(encoded, self.options.max_value_bytes)?;
        AlignedBytes::from_vec(decoded, self.alignment()).map(|bytes| Value::from_bytes(Bytes::Owned(bytes)))
    }

    /// Returns the stored bytes of a row's value without verification.
    pub(crate) fn unverified_bytes(&self, row: Row) -> Result<Bytes<'_>> {
        self.read_at_most_cap(self.value_range(row)?, self.alignment())
    }

    /// Returns the range of a row's value in the file.
    ///
    /// Errors: `Corrupt` if the value is not within the file.
    #[inline]
    pub(crate) fn value_range(&self, row: Row) -> Result<ByteRange> {
        minishard::value_range(row, self.base(), self.files().data_len())
    }

    /// Checks that a value is within the file.
    ///
    /// Errors: `Corrupt` if it is not.
    #[inline]
    pub(crate) fn check_range(&self, found: &FoundKey) -> Result<()> {
        match self.value_range(found.row) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.at(found.minishard, error)),
        }
    }

    /// Returns the file and the range of a row's value.
    pub(crate) fn value_location(&self, number: MinishardNumber, row: Row) -> Result<ValueLocation> {
        let range = self.value_range(row).map_err(|error| self.at(number, error).at_key(row.id))?;
        Ok(value_location(self.files().path().to_path_buf(), range))
    }

    /// Reads a value or a preamble. Enforces the cap before it allocates: the length comes from an index, which is
    /// untrusted, and a sparse file can be long without holding data.
    pub(crate) fn read_at_most_cap(&self, range: ByteRange, alignment: usize) -> Result<Bytes<'_>> {
        self.check_cap(range)?;
        self.files().data().read(range, alignment)
    }

    /// Checks the length of a range that has to be read into memory.
    ///
    /// Errors: `TooLarge` if it exceeds the cap on stored values.
    pub(crate) fn check_cap(&self, range: ByteRange) -> Result<()> {
        match self.files().data().mapped_or_loaded() {
            Some(_) => Ok(()),
            None => minishard::check_value_len(range, self.spec.data_encoding(), self.options.max_value_bytes),
        }
    }
}
