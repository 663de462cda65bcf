//! Values: what a lookup returns, and where it is stored.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use crate::byte_range::ByteRange;
use crate::storage::{AlignedBytes, Bytes};

/// A value: borrowed from the map or the memory it lies in, else read or decoded for the occasion.
///
/// Dereferences to its bytes. With a value alignment, they begin at a multiple of it in either case. Values for tests are made
/// from a slice or a vector.
///
/// ```
/// use sharddb::Value;
///
/// let value = Value::from(&b"seven"[..]);
/// assert_eq!(value, b"seven");
/// assert_eq!(Vec::from(value), b"seven");
/// ```
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

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Value<'a> {
        Value(Bytes::Borrowed(bytes))
    }
}

impl From<Vec<u8>> for Value<'static> {
    fn from(bytes: Vec<u8>) -> Value<'static> {
        Value(Bytes::Owned(AlignedBytes::from(bytes)))
    }
}

impl From<Value<'_>> for Vec<u8> {
    /// Copies borrowed bytes, and moves others.
    fn from(value: Value<'_>) -> Vec<u8> {
        match value.0 {
            Bytes::Borrowed(bytes) => bytes.to_vec(),
            Bytes::Owned(bytes) => bytes.into_vec(),
        }
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
