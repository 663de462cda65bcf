//! Whether a database still has the pairs that a list of changes was made for.

use crate::diff::stored::{Pair, is_pair};
use crate::error::Result;
use crate::read::snapshot::Snapshot;

impl Snapshot {
    /// Returns whether a key has this preamble and value or, with `None`, whether it is absent.
    ///
    /// For programs that apply the changes of a [`Diff`](crate::diff::Diff): a key that has another pair by now was
    /// changed by another program. Zero bytes at the beginning of the preamble are ignored, since they may be padding.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Snapshot::get).
    ///
    /// ```
    /// let snapshot = sharddb::ShardDb::from_pairs([(7, "seven")])?.snapshot();
    /// assert!(snapshot.holds(7, Some((b"", b"seven")))?);
    /// assert!(!snapshot.holds(7, None)?);
    /// assert!(snapshot.holds(8, None)?);
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn holds(&self, key: u64, pair: Option<(&[u8], &[u8])>) -> Result<bool> {
        let found = self.generation.find(key)?;
        match (found, pair) {
            (None, None) => Ok(true),
            (Some(found), Some((preamble, value))) => {
                is_pair(&Pair { shard: found.shard, found: found.key }, preamble, value)
            }
            _ => Ok(false),
        }
    }
}
