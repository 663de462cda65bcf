//! Walking through a whole generation in storage order.

use std::borrow::Cow;
use std::ops::ControlFlow;

use crate::error::Result;
use crate::generation::Generation;
use crate::shard::{Entry, Shard, ShardEntries, Stored};
use crate::snapshot::Snapshot;
use crate::spec::ShardNumber;

impl Snapshot {
    /// All pairs in storage order: shard by shard, minishard by minishard, as they stand in the indexes.
    ///
    /// A shard that lookups hold in memory is walked there, any other is opened for the iteration and dropped when it
    /// is past. A bad entry, minishard or shard gives one `Err` with its place, and the iteration goes on with the
    /// rest; it always ends.
    ///
    /// Cost: that of reading front to back. Each entry of a shard opened for the iteration counts as one of its
    /// owners; [`scan`](Snapshot::scan) spares that.
    pub fn iter(&self) -> Iter<'_> {
        let numbers: Vec<_> = self.generation.shard_numbers().collect();
        Iter { generation: &self.generation, numbers: numbers.into_iter(), entries: None }
    }

    /// Hands every pair to `f`, in the order of [`iter`](Snapshot::iter), until `f` breaks.
    ///
    /// The same as `iter`, and faster by some nanoseconds a pair.
    ///
    /// ```no_run
    /// use std::ops::ControlFlow;
    /// # fn main() -> sharddb::Result<()> {
    /// let snapshot = sharddb::ShardDb::open_pread("store")?.snapshot();
    /// let mut longest = 0;
    /// let first_error = snapshot.scan(|entry| match entry.and_then(|entry| Ok(entry.value()?.len())) {
    ///     Ok(len) => {
    ///         longest = longest.max(len);
    ///         ControlFlow::Continue(())
    ///     }
    ///     Err(error) => ControlFlow::Break(error),
    /// });
    /// # Ok(()) }
    /// ```
    pub fn scan<B>(&self, mut f: impl FnMut(Result<Entry<'_>>) -> ControlFlow<B>) -> ControlFlow<B> {
        let mut iter = self.iter();
        while let Some(entry) = iter.next_borrowed() {
            f(entry)?;
        }
        ControlFlow::Continue(())
    }

    /// All keys in storage order; like [`iter`](Snapshot::iter) without the values.
    pub fn keys(&self) -> impl Iterator<Item = Result<u64>> {
        let mut iter = self.iter();
        std::iter::from_fn(move || iter.next_stored()).map(|stored| Ok(stored?.row.id))
    }

    /// The shards that have a file, in ascending order; each is what [`shard`](Snapshot::shard) gives.
    pub fn shards(&self) -> Shards {
        let numbers: Vec<_> = self.generation.shard_numbers().collect();
        Shards { snapshot: self.clone(), numbers: numbers.into_iter() }
    }
}

/// All pairs of a generation; see [`Snapshot::iter`].
pub struct Iter<'a> {
    generation: &'a Generation,
    numbers: std::vec::IntoIter<ShardNumber>,
    entries: Option<ShardEntries<'a>>,
}

impl<'a> Iter<'a> {
    /// The next row, of the shard that is walked through then.
    #[inline]
    fn next_stored(&mut self) -> Option<Result<Stored>> {
        loop {
            if let Some(stored) = self.entries.as_mut().and_then(ShardEntries::next_stored) {
                return Some(stored);
            }
            if let Err(error) = self.next_shard()? {
                return Some(Err(error));
            }
        }
    }

    /// The next entry for as long as it is not past.
    #[inline]
    fn next_borrowed(&mut self) -> Option<Result<Entry<'_>>> {
        match self.next_stored()? {
            Ok(stored) => Some(Ok(Entry::new(Cow::Borrowed(self.entries.as_ref()?.shard()), stored))),
            Err(error) => Some(Err(error)),
        }
    }

    #[cold]
    fn next_shard(&mut self) -> Option<Result<()>> {
        self.entries = None; // the last one is dropped before the next is opened
        let number = self.numbers.next()?;
        let shard = self.generation.shard_for_pass(number);
        Some(shard.map(|shard| self.entries = shard.map(ShardEntries::new)))
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Result<Entry<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Result<Entry<'a>>> {
        match self.next_stored()? {
            Ok(stored) => Some(Ok(Entry::new(self.entries.as_ref()?.shard().clone(), stored))),
            Err(error) => Some(Err(error)),
        }
    }
}

/// The shards of a generation that have a file; see [`Snapshot::shards`].
pub struct Shards {
    snapshot: Snapshot,
    numbers: std::vec::IntoIter<ShardNumber>,
}

impl Iterator for Shards {
    type Item = Result<Shard>;

    fn next(&mut self) -> Option<Result<Shard>> {
        let number = self.numbers.next()?;
        self.snapshot.shard(number).transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.numbers.size_hint()
    }
}
