//! The results of lookups: values, and the locations where they are stored.

use std::fmt;
use std::ops::{Deref, Range};
use std::path::PathBuf;

use crate::byte_range::ByteRange;
use crate::bytes::{AlignedBytes, Bytes};

/// A value: borrowed from a mapped or loaded shard, or owned if it had to be read or decoded.
///
/// Dereferences to its bytes. If the data set has a value alignment, the bytes of a value that a lookup returns are
/// aligned to it, borrowed or owned. For tests, create a value from a slice or a vector.
///
/// ```
/// use sharddb::Value;
///
/// let value = Value::from(&b"seven"[..]);
/// assert_eq!(value, b"seven");
/// assert_eq!(Vec::from(value), b"seven");
/// ```
#[derive(Clone)]
pub struct Value<'a>(Bytes<'a>);

impl<'a> Value<'a> {
    /// Returns whether the bytes are borrowed, so that nothing was copied.
    pub fn is_borrowed(&self) -> bool {
        matches!(self.0, Bytes::Borrowed(_))
    }

    /// Returns the bytes with the lifetime of the snapshot, if they are borrowed from it.
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
    /// Copies borrowed bytes and moves owned ones.
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

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Value").field(&&self[..]).finish()
    }
}

/// What a type that dereferences to its bytes has in common with them: compares with the types that hold bytes, and hashes
/// and sorts like the slice, for lookups in maps of slices.
macro_rules! as_bytes {
    ($value:ty) => {
        as_bytes!($value, [u8], &[u8], Vec<u8>, &Vec<u8>, $value);

        impl<const N: usize> PartialEq<[u8; N]> for $value {
            fn eq(&self, other: &[u8; N]) -> bool {
                self[..] == other[..]
            }
        }

        impl<const N: usize> PartialEq<&[u8; N]> for $value {
            fn eq(&self, other: &&[u8; N]) -> bool {
                self[..] == other[..]
            }
        }

        impl Eq for $value {}

        impl PartialOrd for $value {
            fn partial_cmp(&self, other: &$value) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $value {
            fn cmp(&self, other: &$value) -> std::cmp::Ordering {
                self[..].cmp(other)
            }
        }

        impl std::hash::Hash for $value {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self[..].hash(state);
            }
        }

        impl std::borrow::Borrow<[u8]> for $value {
            fn borrow(&self) -> &[u8] {
                self
            }
        }

        impl AsRef<[u8]> for $value {
            fn as_ref(&self) -> &[u8] {
                self
            }
        }
    };
    ($value:ty, $($other:ty),+) => {
        $(impl PartialEq<$other> for $value {
            fn eq(&self, other: &$other) -> bool {
                self[..] == other[..]
            }
        })+
    };
}

pub(crate) use as_bytes;

as_bytes!(Value<'_>);

/// Where a value is stored.
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let snapshot = sharddb::ShardDb::open("store")?.snapshot();
/// if let Some(location) = snapshot.locate(42)? {
///     println!("bytes {:?} of {}", location.range, location.path.display());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueLocation {
    /// The path of the file; empty for a shard from bytes in memory.
    pub path: PathBuf,
    /// The bytes of the stored value, which may be encoded. Empty for an empty value.
    pub range: Range<u64>,
}

impl ValueLocation {
    /// Returns the stored length in bytes, which is that of the encoded value.
    pub fn stored_len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// Creates a value, for the containers of other formats.
pub fn value_of(bytes: Bytes<'_>) -> Value<'_> {
    Value(bytes)
}

/// Creates a location, for the containers of other formats.
pub fn value_location(path: PathBuf, range: ByteRange) -> ValueLocation {
    ValueLocation { path, range: range.start..range.end }
}
