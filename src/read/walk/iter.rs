//! Walking through a whole generation in storage order.

use std::iter::FusedIterator;
use std::ops::ControlFlow;

use crate::error::{Error, Result};
use crate::ids::ShardNumber;
use crate::read::shard::{Entry, Shard, ShardEntries, ShardKeys, Value};
use crate::read::snapshot::Snapshot;

impl Snapshot {
    /// All pairs in storage order: shard by shard, minishard by minishard, as they stand in the indexes.
    ///
    /// A bad entry, minishard or shard gives one `Err` with its place, and the iteration goes on with the rest; it
    /// always ends. Entries and their values borrow the snapshot, so shards that are met stay open like those that lookups
    /// meet; [`scan`](Snapshot::scan) and [`shards`](Snapshot::shards) close each when it is past.
    ///
    /// Minishard indexes that share bytes are read up to twice the length of their shard; each one beyond is an `Err`.
    /// Values may share bytes, and each key is given its own: all values together may be larger than the files by any
    /// factor, so a program that copies those of a file it does not trust should count.
    ///
    /// Cost: reading front to back; for mapped raw values next to nothing beside it. Holes of a sparse shard index are
    /// skipped where the file system knows them.
    pub fn iter(&self) -> Iter<'_> {
        let numbers: Vec<_> = self.generation.shard_numbers().collect();
        Iter { snapshot: self, numbers: numbers.into_iter(), entries: None }
    }

    /// Hands every key with its value to `f`, in the order of [`iter`](Snapshot::iter), until `f` breaks.
    ///
    /// The fastest way through all pairs, and the one for more shards than a process can map: a shard that lookups
    /// hold in memory is read there, any other is opened for the scan and closed when it is past. A bad entry, value,
    /// minishard or shard is one `Err` with its place.
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

    /// Hands every key with its value to `f`, in the order of [`iter`](Snapshot::iter), until one of both fails.
    ///
    /// [`scan`](Snapshot::scan) for a closure that uses `?`.
    ///
    /// # Errors
    ///
    /// The first of a bad entry, value, minishard or shard, or the first of `f`.
    ///
    /// ```
    /// # let store = std::env::temp_dir().join(format!("sharddb-try-for-each-doc-{}", std::process::id()));
    /// # let mut loader = sharddb::BulkLoader::create_default(&store)?;
    /// # loader.insert(7, b"seven")?;
    /// # loader.finish()?;
    /// use std::io::Write;
    ///
    /// let snapshot = sharddb::ShardDb::open_pread(&store)?.snapshot();
    /// let mut out = Vec::new();
    /// snapshot.try_for_each(|key, value| {
    ///     writeln!(out, "{key} has {} bytes", value.len())?;
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// assert_eq!(out, b"7 has 5 bytes\n");
    /// # std::fs::remove_dir_all(&store).unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_for_each<E: From<Error>>(&self, mut f: impl FnMut(u64, Value<'_>) -> Result<(), E>) -> Result<(), E> {
        let outcome = self.scan(|pair| match pair.map_err(E::from).and_then(|(key, value)| f(key, value)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        });
        match outcome {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }

    /// All keys in storage order; like [`iter`](Snapshot::iter) without the values.
    pub fn keys(&self) -> Keys {
        Keys { shards: self.shards(), keys: None }
    }

    /// The shards that have a file, in ascending order; each is what [`shard`](Snapshot::shard) gives.
    ///
    /// What is opened here is closed with the last handle of the shard.
    pub fn shards(&self) -> Shards {
        let numbers: Vec<_> = self.generation.shard_numbers().collect();
        Shards { snapshot: self.clone(), numbers: numbers.into_iter() }
    }
}

impl<'a> IntoIterator for &'a Snapshot {
    type Item = Result<Entry<'a>>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// All pairs of a generation; see [`Snapshot::iter`].
#[derive(Debug)]
pub struct Iter<'a> {
    snapshot: &'a Snapshot,
    numbers: std::vec::IntoIter<ShardNumber>,
    entries: Option<ShardEntries<'a>>,
}

impl Iter<'_> {
    #[inline(never)]
    fn next_shard(&mut self) -> Option<Result<()>> {
        self.entries = None;
        let number = self.numbers.next()?;
        let shard = self.snapshot.generation.shard(number);
        Some(shard.map(|shard| self.entries = shard.map(Shard::iter)))
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Result<Entry<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Result<Entry<'a>>> {
        loop {
            if let Some(entry) = self.entries.as_mut().and_then(Iterator::next) {
                return Some(entry);
            }
            if let Err(error) = self.next_shard()? {
                return Some(Err(error));
            }
        }
    }
}

impl FusedIterator for Iter<'_> {}

/// The shards of a generation that have a file; see [`Snapshot::shards`].
#[derive(Debug)]
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

impl FusedIterator for Shards {}

/// All keys of a generation; see [`Snapshot::keys`].
#[derive(Debug)]
pub struct Keys {
    shards: Shards,
    keys: Option<ShardKeys>,
}

impl Iterator for Keys {
    type Item = Result<u64>;

    #[inline]
    fn next(&mut self) -> Option<Result<u64>> {
        loop {
            if let Some(key) = self.keys.as_mut().and_then(Iterator::next) {
                return Some(key);
            }
            self.keys = None; // the last shard is dropped before the next is opened
            match self.shards.next()? {
                Ok(shard) => self.keys = Some(ShardKeys::new(shard)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl FusedIterator for Keys {}
