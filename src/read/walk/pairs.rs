//! A walk over all pairs that borrows nothing.

use std::fmt;
use std::iter::FusedIterator;

use crate::error::Result;
use crate::read::owned_value::OwnedValue;
use crate::read::shard::VerifyScope;
use crate::read::snapshot::Snapshot;
use crate::read::walk::iter::Keys;

impl Snapshot {
    /// Iterates over all pairs in storage order, like [`iter`](Snapshot::iter), but the iterator keeps the snapshot and
    /// returns owned values. For a walk that is paused and continued, such as an iterator of another language.
    ///
    /// A bad entry, value, minishard or shard is one `Err` with its place. A shard is closed after use, as soon as no
    /// value of it is left. Cost: that of [`scan`](Snapshot::scan), plus a shared reference count per pair.
    ///
    /// ```
    /// # let store = std::env::temp_dir().join(format!("sharddb-pairs-doc-{}", std::process::id()));
    /// # let mut loader = sharddb::BulkLoader::create_default(&store)?;
    /// # loader.insert(7, b"seven")?;
    /// # loader.finish()?;
    /// let mut pairs = sharddb::ShardDb::open(&store)?.snapshot().pairs();
    /// let (key, value) = pairs.next().unwrap()?;
    /// assert_eq!((key, &value[..]), (7, &b"seven"[..]));
    /// assert!(pairs.next().is_none());
    /// # std::fs::remove_dir_all(&store).unwrap();
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn pairs(&self) -> Pairs {
        Pairs(Keys::new(self.clone(), self.pieces()).with_scope(VerifyScope::IndexAndValuesIfSmall))
    }
}

/// An iterator over all pairs of a generation; see [`Snapshot::pairs`].
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let pairs = sharddb::ShardDb::open("store")?.snapshot().pairs();
/// let all = pairs.collect::<sharddb::Result<Vec<(u64, sharddb::OwnedValue)>>>()?;
/// # Ok(()) }
/// ```
pub struct Pairs(Keys);

impl Iterator for Pairs {
    type Item = Result<(u64, OwnedValue)>;

    fn next(&mut self) -> Option<Result<(u64, OwnedValue)>> {
        let found = self.0.next_found()?;
        Some(found.and_then(|(shard, found)| {
            let value = shard.reader().value(&found)?;
            Ok((found.row.id, OwnedValue::new(shard, value)))
        }))
    }
}

impl FusedIterator for Pairs {}

impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pairs").field(&self.0).finish()
    }
}
