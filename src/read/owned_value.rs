//! A value that outlives the snapshot it was read from.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use crate::byte_range::ByteRange;
use crate::error::Result;
use crate::read::shard::{Shard, Value};
use crate::read::snapshot::Snapshot;
use crate::storage::{AlignedBytes, Bytes};

/// A value that keeps the memory of its bytes alive; see [`Snapshot::get_owned`] and [`ShardDb::get`](crate::ShardDb::get).
///
/// It pins the map of its shard, and the disk space of the file, even after the generation was removed. To keep few bytes for long,
/// copy them: `value.to_vec()`.
///
/// Bytes in memory are not copied; instead a reference count of the shard is incremented, which threads that read the same shard
/// share. docs/benchmarks.md has the length from which this is faster than a copy.
///
/// ```
/// use sharddb::OwnedValue;
///
/// let value = OwnedValue::from(b"seven".to_vec()); // for a test
/// assert_eq!(value, b"seven");
/// ```
#[derive(Clone)]
pub struct OwnedValue(Owner);

#[derive(Clone)]
enum Owner {
    Shard { shard: Shard, range: ByteRange },
    Bytes(Arc<AlignedBytes>),
}

impl Snapshot {
    /// The value of a key, with the memory that it is in: like [`get`](Snapshot::get), without the borrow.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Snapshot::get).
    pub fn get_owned(&self, key: u64) -> Result<Option<OwnedValue>> {
        let Some((shard, minishard)) = self.generation.route(key)? else { return Ok(None) };
        let value = shard.reader().get(minishard, key)?;
        Ok(value.map(|value| OwnedValue::new(shard, value)))
    }

    /// The values of many keys, in their order: like [`get_many`](Snapshot::get_many), without the borrow.
    ///
    /// Each has its own result. Cost: a few nanoseconds and a shared reference count for each key more than
    /// [`get_many`](Snapshot::get_many).
    pub fn get_many_owned(&self, keys: &[u64]) -> Vec<Result<Option<OwnedValue>>> {
        let owned = |(key, value): (&u64, Result<Option<Value<'_>>>)| {
            let (Some(value), Some((shard, _))) = (value?, self.generation.route(*key)?) else { return Ok(None) };
            Ok(Some(OwnedValue::new(shard, value)))
        };
        keys.iter().zip(self.get_many(keys)).map(owned).collect()
    }
}

impl Value<'_> {
    /// The value with bytes of its own: copied if they are borrowed.
    ///
    /// [`Snapshot::get_owned`] does not copy.
    pub fn into_owned(self) -> OwnedValue {
        OwnedValue::from_bytes(match self.into_bytes() {
            Bytes::Borrowed(bytes) => AlignedBytes::from(bytes.to_vec()),
            Bytes::Owned(bytes) => bytes,
        })
    }
}

impl OwnedValue {
    /// Keeps a value that was read from a shard.
    fn new(shard: &Shard, value: Value<'_>) -> OwnedValue {
        match value.into_bytes() {
            Bytes::Borrowed(bytes) => match shard.reader().range_of(bytes) {
                Some(range) => OwnedValue(Owner::Shard { shard: shard.clone(), range }),
                None => OwnedValue::from(bytes.to_vec()),
            },
            Bytes::Owned(bytes) => OwnedValue::from_bytes(bytes),
        }
    }

    fn from_bytes(bytes: AlignedBytes) -> OwnedValue {
        OwnedValue(Owner::Bytes(Arc::new(bytes)))
    }
}

impl From<Vec<u8>> for OwnedValue {
    fn from(bytes: Vec<u8>) -> OwnedValue {
        OwnedValue::from_bytes(AlignedBytes::from(bytes))
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

impl Eq for OwnedValue {}

impl Hash for OwnedValue {
    /// Like the slice.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

/// Without a copy: the value becomes the owner of the `Bytes`.
#[cfg(feature = "bytes")]
impl From<OwnedValue> for bytes::Bytes {
    fn from(value: OwnedValue) -> bytes::Bytes {
        bytes::Bytes::from_owner(value)
    }
}
