//! A value that outlives the snapshot it was read from.

use std::fmt;
use std::ops::Deref;

use crate::byte_range::ByteRange;
use crate::read::shard::{Shard, Value};
use crate::storage::{AlignedBytes, Bytes};

/// A value that keeps what it lies in alive; see [`ShardDb::get`](crate::ShardDb::get).
///
/// One that is kept pins the map of its shard, and the disk beneath, even after the generation was removed.
pub struct OwnedValue(Owner);

enum Owner {
    Shard { shard: Shard, range: ByteRange },
    Bytes(AlignedBytes),
}

impl OwnedValue {
    /// Keeps a value that was read from a shard.
    pub(crate) fn new(shard: &Shard, value: Value<'_>) -> OwnedValue {
        OwnedValue(match value.into_bytes() {
            Bytes::Borrowed(bytes) => match shard.reader().range_of(bytes) {
                Some(range) => Owner::Shard { shard: shard.clone(), range },
                None => Owner::Bytes(AlignedBytes::from(bytes.to_vec())),
            },
            Bytes::Owned(bytes) => Owner::Bytes(bytes),
        })
    }
}

impl Deref for OwnedValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Owner::Shard { shard, range } => shard.reader().in_memory(*range).unwrap_or_default(),
            Owner::Bytes(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for OwnedValue {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for OwnedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedValue").field(&&self[..]).finish()
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for OwnedValue {
    fn eq(&self, other: &T) -> bool {
        self[..] == *other.as_ref()
    }
}

/// Without a copy: the value becomes the owner behind the `Bytes`.
#[cfg(feature = "bytes")]
impl From<OwnedValue> for bytes::Bytes {
    fn from(value: OwnedValue) -> bytes::Bytes {
        bytes::Bytes::from_owner(value)
    }
}
