//! The elements of an array: their type and their fill value.

use sharddb_format::{Error, ErrorKind, Result};

use crate::zarr::data_type::DataType;
use crate::zarr::nd::{self, to_usize};

/// The element type of an array, with its fill value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Elements {
    pub(super) data_type: DataType,
    /// The bytes of one element, little endian.
    pub(super) fill_value: Vec<u8>,
}

impl Elements {
    /// Returns the length in bytes of a box of elements; `None` if it is 2^63 or more.
    pub(super) fn bytes(&self, shape: &[u64]) -> Option<u64> {
        let bytes = nd::product(shape)?.checked_mul(self.data_type.size() as u64)?;
        i64::try_from(bytes).is_ok().then_some(bytes)
    }

    /// Returns a box of fill values.
    ///
    /// # Errors
    ///
    /// `TooLarge` above `cap` bytes.
    pub(super) fn filled(&self, shape: &[u64], cap: u64) -> Result<Vec<u8>> {
        nd::filled(&self.fill_value, self.capped_len(shape, cap)?)
    }

    /// Returns the length in bytes of a box of elements.
    ///
    /// # Errors
    ///
    /// `TooLarge` above `cap` bytes.
    pub(super) fn capped_len(&self, shape: &[u64], cap: u64) -> Result<usize> {
        match self.bytes(shape) {
            Some(bytes) if bytes <= cap => Ok(to_usize(bytes)),
            _ => {
                let message =
                    format!("expected chunks of at most {cap} bytes, found the shape {shape:?}: raise the cap");
                Err(Error::new(ErrorKind::TooLarge, message))
            }
        }
    }
}
