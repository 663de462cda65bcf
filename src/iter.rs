//! Walking through a whole generation in storage order.

use std::borrow::Cow;
use std::ops::ControlFlow;

use crate::error::Result;
use crate::shard::{Entry, Shard, ShardEntries, ShardWalk, Stored, Value};
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
        Iter { snapshot: self, numbers: numbers.into_iter(), entries: Entries::None }
    }

    /// Hands every key with its value to `f`, in the order of [`iter`](Snapshot::iter), until `f` breaks.
    ///
    /// The same as `iter` with [`Entry::value`], at memory speed also where `iter` is not: a shard is known to be open for
    /// as long as it takes. A bad entry, minishard or shard is one `Err` with its place.
    ///
    /// ```no_run
    /// use std::ops::ControlFlow;
    /// # fn main() -> sharddb::Result<()> {
    /// let snapshot = sharddb::ShardDb::open_pread("store")?.snapshot();
    /// let mut total = 0;
    /// let first_error = snapshot.scan(|pair| match pair {
    ///     Ok((_key, value)) => {
    ///         total += value.len();
    ///         ControlFlow::Continue(())
    ///     }
    ///     Err(error) => ControlFlow::Break(error),
    /// });
    /// # Ok(()) }
    /// ```
    pub fn scan<B>(&self, mut f: impl FnMut(Result<(u64, Value<'_>)>) -> ControlFlow<B>) -> ControlFlow<B> {
        for shard in self.shards() {
            match shard {
                Ok(shard) => {
                    let mut entries = shard.iter();
                    while let Some(pair) = entries.next_pair() {
                        f(pair)?;
                    }
                }
                Err(error) => f(Err(error))?,
            }
        }
        ControlFlow::Continue(())
    }

    /// All keys in storage order; like [`iter`](Snapshot::iter) without the values.
    pub fn keys(&self) -> impl Iterator<Item = Result<u64>> + use<> {
        let mut keys = Keys { shards: self.shards(), walk: None };
        std::iter::from_fn(move || keys.next())
    }

    /// The shards that have a file, in ascending order; each is what [`shard`](Snapshot::shard) gives.
    pub fn shards(&self) -> Shards {
        let numbers: Vec<_> = self.generation.shard_numbers().collect();
        Shards { snapshot: self.clone(), numbers: numbers.into_iter() }
    }
}

/// All pairs of a generation; see [`Snapshot::iter`].
pub struct Iter<'a> {
    snapshot: &'a Snapshot,
    numbers: std::vec::IntoIter<ShardNumber>,
    entries: Entries<'a>,
}

/// The shard that an iteration is in.
enum Entries<'a> {
    None,
    /// Held by the snapshot.
    Held(ShardEntries<'a>),
    /// Opened for the iteration.
    Opened(ShardWalk),
}

impl<'a> Iter<'a> {
    /// The next row of a shard that was opened for the iteration; `None` if there is none and the next shard is held.
    #[inline(never)]
    fn next_opened(&mut self) -> Result<Option<(Shard, Stored)>> {
        match &mut self.entries {
            Entries::Opened(walk) => walk.next().transpose().map(|stored| stored.map(|stored| (walk.shard(), stored))),
            Entries::Held(_) | Entries::None => Ok(None),
        }
    }

    #[inline(never)]
    fn next_shard(&mut self) -> Option<Result<()>> {
        self.entries = Entries::None; // the last one is dropped before the next is opened
        let number = self.numbers.next()?;
        Some(self.snapshot.generation.shard_for_pass(number).map(|shard| {
            self.entries = match shard {
                Some(Cow::Borrowed(shard)) => Entries::Held(shard.iter()),
                Some(Cow::Owned(shard)) => Entries::Opened(ShardWalk::new(shard)),
                None => Entries::None,
            }
        }))
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Result<Entry<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Result<Entry<'a>>> {
        loop {
            if let Entries::Held(entries) = &mut self.entries
                && let Some(entry) = entries.next()
            {
                return Some(entry);
            }
            match self.next_opened() {
                Ok(Some((shard, stored))) => return Some(Ok(Entry::owning(shard, stored))),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
            if let Err(error) = self.next_shard()? {
                return Some(Err(error));
            }
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

/// All keys of a generation.
struct Keys {
    shards: Shards,
    walk: Option<ShardWalk>,
}

impl Keys {
    #[inline]
    fn next(&mut self) -> Option<Result<u64>> {
        loop {
            if let Some(stored) = self.walk.as_mut().and_then(Iterator::next) {
                return Some(stored.map(|stored| stored.row.id));
            }
            self.walk = None; // the last shard is dropped before the next is opened
            match self.shards.next()? {
                Ok(shard) => self.walk = Some(ShardWalk::new(shard)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
