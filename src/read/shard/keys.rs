//! Iteration over the keys of a shard in storage order. Reads indexes and no values.
//!
//! The iterator owns its handle of the shard. So does the walk over pairs that is built on it, [`Pairs`](crate::read::Pairs).

use std::fmt;
use std::iter::FusedIterator;
use std::ops::Range;

use crate::error::Result;
use crate::ids::MinishardNumber;
use crate::read::shard::entry_blocks::ALL_MINISHARDS;
use crate::read::shard::handle::Shard;
use crate::read::shard::rows::Rows;
use crate::read::shard::stored_value::FoundKey;
use crate::read::shard::verification::VerifyScope;

impl Shard {
    /// Counts the keys.
    ///
    /// Cost: reads all indexes and no values.
    ///
    /// # Errors
    ///
    /// That of the first bad minishard.
    pub fn count(&self) -> Result<u64> {
        let (_pass, mut rows, mut count) = (Pass::new(self), Rows::default(), 0);
        while let Some(minishard) = rows.next_minishard(self.reader())? {
            count += minishard.rows;
        }
        Ok(count)
    }

    /// Iterates over all keys in storage order.
    ///
    /// A bad entry or minishard is one `Err` with its place. Cost: reads all indexes and no values.
    pub fn keys(&self) -> ShardKeys {
        ShardKeys::over(self.clone(), ALL_MINISHARDS)
    }
}

/// A pass over a shard: its files are read ahead until the value is dropped.
pub(crate) struct Pass<'a>(&'a Shard);

impl<'a> Pass<'a> {
    pub(crate) fn new(shard: &'a Shard) -> Pass<'a> {
        shard.reader().begin_pass();
        Pass(shard)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.reader().end_pass();
    }
}

/// An iterator over the keys of a shard in storage order; see [`Shard::keys`].
pub struct ShardKeys {
    shard: Shard,
    rows: Rows,
}

impl ShardKeys {
    /// Creates an iterator over a range of minishards.
    pub(crate) fn over(shard: Shard, minishards: Range<MinishardNumber>) -> ShardKeys {
        shard.reader().begin_pass();
        ShardKeys { shard, rows: Rows::over(minishards) }
    }

    /// Verifies also the parts of each minishard that `scope` selects.
    pub(crate) fn with_scope(mut self, scope: VerifyScope) -> ShardKeys {
        self.rows = std::mem::take(&mut self.rows).with_scope(scope);
        self
    }

    pub(crate) fn shard(&self) -> &Shard {
        &self.shard
    }

    /// Returns the next row. Its range is not checked.
    #[inline]
    pub(crate) fn next_found(&mut self) -> Option<Result<FoundKey>> {
        let reader = self.shard.reader();
        loop {
            if let Some(row) = self.rows.next_row(reader)
                && let Some(minishard) = self.rows.current
            {
                return Some(Ok(minishard.found(row)));
            }
            match self.rows.next_minishard(reader) {
                Ok(Some(_)) => self.rows.prefetch(reader),
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Drop for ShardKeys {
    fn drop(&mut self) {
        self.shard.reader().end_pass();
    }
}

impl Iterator for ShardKeys {
    type Item = Result<u64>;

    #[inline]
    fn next(&mut self) -> Option<Result<u64>> {
        let found = self.next_found()?;
        Some(found.and_then(|found| self.shard.reader().check_range(&found).map(|()| found.row.id)))
    }
}

impl FusedIterator for ShardKeys {}

impl fmt::Debug for ShardKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardKeys").field("shard", &self.shard).finish_non_exhaustive()
    }
}
