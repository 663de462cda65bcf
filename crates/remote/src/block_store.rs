//! A second cache, which the caller brings and which is used after the one in memory: files on a disk, for example.

use std::ops::Range;

/// A cache of blocks that outlives the reader, and that readers may share.
///
/// A reader calls [`get`](BlockStore::get) before it makes a request, and [`put`](BlockStore::put) after it. It verifies the
/// bytes of a native data set like those of a response. It calls both while an operation is polled, so they should not take
/// long.
pub trait BlockStore: Send + Sync {
    /// Returns the bytes of a block, if the store has all of them.
    fn get(&self, block: &BlockId) -> Option<Vec<u8>>;

    /// Keeps the bytes of a block, or not.
    fn put(&self, block: &BlockId, bytes: &[u8]);
}

/// A byte range of an object that never changes.
///
/// ```
/// use sharddb_remote::BlockId;
///
/// let block = BlockId { data_set: "a".to_string(), object: "0.shard".to_string(), range: 0..16 };
/// assert_eq!(block.range.end, 16);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BlockId {
    /// Names the immutable content that the object is of: a generation, or an object with its ETag.
    pub data_set: String,
    /// The object, relative to the root of the data set.
    pub object: String,
    /// The bytes.
    pub range: Range<u64>,
}
