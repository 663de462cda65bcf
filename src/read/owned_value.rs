//! Values that outlive the snapshot they were read from. Borrowed values are in `shard::value`.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::byte_range::ByteRange;
use crate::bytes::{AlignedBytes, Bytes};
use crate::error::Result;
use crate::read::shard::{Shard, Value, as_bytes};
use crate::read::snapshot::Snapshot;

/// A value that keeps its memory alive; see [`Snapshot::get_owned`] and [`ShardDb::get`](crate::ShardDb::get).
///
/// It pins the map of its shard and the disk space of the file, even after the generation is removed. To keep a few
/// bytes for a long time, copy them with `value.to_vec()`.
///
/// Cost: increments the reference count of the shard, which all threads that read the shard share, and copies no bytes
/// that are mapped or loaded. For short values a copy may be faster:
/// `cd benches && cargo bench --bench owned_values` compares both.
///
/// ```
/// use sharddb::OwnedValue;
///
/// let value = OwnedValue::from(b"seven".to_vec()); // for a test
/// assert_eq!(value, b"seven");
/// ```
#[derive(Clone)]
pub struct OwnedValue(Held);

#[derive(Clone)]
enum Held {
    Shard { shard: Shard, range: ByteRange },
    Bytes(Arc<AlignedBytes>),
}

impl Snapshot {
    /// Returns the value of a key. Like [`get`](Snapshot::get), but the value does not borrow the snapshot.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Snapshot::get).
    pub fn get_owned(&self, key: u64) -> Result<Option<OwnedValue>> {
        let Some((shard, minishard)) = self.generation.shard_of_key(key)? else { return Ok(None) };
        let value = shard.reader().get(minishard, key)?;
        Ok(value.map(|value| OwnedValue::new(shard, value)))
    }

    /// Returns the values of many keys, in the order of `keys`. Like [`get_many`](Snapshot::get_many), but the values
    /// do not borrow the snapshot.
    ///
    /// Each key has its own result. Cost: that of [`get_many`](Snapshot::get_many), plus a shared reference count and a
    /// few nanoseconds per key.
    pub fn get_many_owned(&self, keys: &[u64]) -> Vec<Result<Option<OwnedValue>>> {
        let owned = |(key, value): (&u64, Result<Option<Value<'_>>>)| {
            let (Some(value), Some((shard, _))) = (value?, self.generation.shard_of_key(*key)?) else {
                return Ok(None);
            };
            Ok(Some(OwnedValue::new(shard, value)))
        };
        keys.iter().zip(self.get_many(keys)).map(owned).collect()
    }
}

impl Value<'_> {
    /// Converts the value to an owned one. Copies borrowed bytes.
    ///
    /// [`Snapshot::get_owned`] returns an owned value without a copy.
    pub fn into_owned(self) -> OwnedValue {
        OwnedValue::from_bytes(match self.into_bytes() {
            Bytes::Borrowed(bytes) => AlignedBytes::from(bytes.to_vec()),
            Bytes::Owned(bytes) => bytes,
        })
    }
}

impl OwnedValue {
    /// Creates an owned value from one that was read from `shard`.
    pub(crate) fn new(shard: &Shard, value: Value<'_>) -> OwnedValue {
        match value.into_bytes() {
            Bytes::Borrowed(bytes) => match shard.reader().range_of(bytes) {
                Some(range) => OwnedValue(Held::Shard { shard: shard.clone(), range }),
                None => OwnedValue::from(bytes.to_vec()),
            },
            Bytes::Owned(bytes) => OwnedValue::from_bytes(bytes),
        }
    }

    fn from_bytes(bytes: AlignedBytes) -> OwnedValue {
        OwnedValue(Held::Bytes(Arc::new(bytes)))
    }
}

impl From<Vec<u8>> for OwnedValue {
    fn from(bytes: Vec<u8>) -> OwnedValue {
        OwnedValue::from_bytes(AlignedBytes::from(bytes))
    }
}

impl From<OwnedValue> for Vec<u8> {
    /// Copies the bytes.
    fn from(value: OwnedValue) -> Vec<u8> {
        value.to_vec()
    }
}

impl Deref for OwnedValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Held::Shard { shard, range } => shard.reader().mapped_or_loaded(*range).unwrap_or_default(),
            Held::Bytes(bytes) => bytes,
        }
    }
}

impl fmt::Debug for OwnedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedValue").field(&&self[..]).finish()
    }
}

as_bytes!(OwnedValue);

/// Converts without a copy: the `Bytes` owns the value.
#[cfg(feature = "bytes")]
impl From<OwnedValue> for bytes::Bytes {
    fn from(value: OwnedValue) -> bytes::Bytes {
        bytes::Bytes::from_owner(value)
    }
}
