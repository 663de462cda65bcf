//! Walks over a generation in storage order. The walk through one shard is in `shard::entries` and `shard::rows`.

use std::fmt;
use std::iter::FusedIterator;
use std::ops::ControlFlow;

use crate::error::{Error, Result};
use crate::ids::ShardNumber;
use crate::read::generation::Generation;
use crate::read::shard::{Entry, FoundKey, Shard, ShardEntries, ShardKeys, Value, VerifyScope};
use crate::read::snapshot::Snapshot;
use crate::read::walk::piece::{OpenPiece, Piece};
use crate::read::walk::{into_result, try_pair};

impl Snapshot {
    /// Iterates over all pairs in storage order: shard by shard, minishard by minishard, row by row.
    ///
    /// A bad entry, minishard or shard is one `Err` with its place, and the iteration continues with the next one. The
    /// iteration always ends. Entries and their values borrow the snapshot, so the iteration keeps each shard open, as
    /// lookups do. [`scan`](Snapshot::scan) and [`shards`](Snapshot::shards) close each shard after use.
    ///
    /// The iteration reads at most twice the length of a shard in minishard indexes. Indexes beyond that overlap
    /// others, and each is an `Err`. Values may share bytes, so all values together may be larger than the files by any
    /// factor: a program that copies the values of an untrusted file should limit their total size.
    ///
    /// Cost: sequential reads, with little overhead for mapped raw values. Holes of a sparse shard index are skipped if
    /// the file system reports them.
    pub fn iter(&self) -> Iter<'_> {
        Iter::new(&self.generation, self.pieces())
    }

    /// Calls `f` with every key and its value, in the order of [`iter`](Snapshot::iter), until `f` breaks.
    ///
    /// This is the fastest walk over all pairs, and works with more shards than a process can map: a shard that lookups
    /// have mapped or loaded is read there, and any other is opened for the scan and closed after it. A bad entry,
    /// value, minishard or shard is one `Err` with its place.
    ///
    /// ```no_run
    /// use std::ops::ControlFlow;
    /// # fn main() -> sharddb::Result<()> {
    /// let snapshot = sharddb::ShardDb::open("store")?.snapshot();
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

    /// Calls `f` with every key and its value, in the order of [`iter`](Snapshot::iter), until a read or `f` fails.
    ///
    /// Like [`scan`](Snapshot::scan), for a closure that uses `?`.
    ///
    /// # Errors
    ///
    /// The error of the first bad entry, value, minishard or shard, or the first error of `f`.
    ///
    /// ```
    /// # let store = std::env::temp_dir().join(format!("sharddb-try-for-each-doc-{}", std::process::id()));
    /// # let mut loader = sharddb::BulkLoader::create_default(&store)?;
    /// # loader.insert(7, b"seven")?;
    /// # loader.finish()?;
    /// use std::io::Write;
    ///
    /// let snapshot = sharddb::ShardDb::open(&store)?.snapshot();
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
        into_result(self.scan(|pair| try_pair(&mut f, pair)))
    }

    /// Iterates over all keys in storage order, in the order of [`iter`](Snapshot::iter).
    ///
    /// A bad entry, minishard or shard is one `Err` with its place. Cost: reads all indexes and no values.
    pub fn keys(&self) -> Keys {
        Keys::new(self.clone(), self.pieces())
    }

    /// Returns all shards, as pieces.
    pub(super) fn pieces(&self) -> Vec<Piece> {
        self.generation.shard_numbers().map(Piece::whole).collect()
    }

    /// Iterates over the shards, in ascending order, each as returned by [`shard`](Snapshot::shard).
    ///
    /// A shard that cannot be opened is one `Err`.
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

/// An iterator over all pairs of a generation; see [`Snapshot::iter`].
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let snapshot = sharddb::ShardDb::open("store")?.snapshot();
/// for entry in &snapshot {
///     let entry = entry?;
///     println!("{} has {} bytes", entry.key(), entry.value()?.len());
/// }
/// # Ok(()) }
/// ```
pub struct Iter<'a> {
    generation: &'a Generation,
    pieces: std::vec::IntoIter<Piece>,
    entries: Option<ShardEntries<'a>>,
}

impl<'a> Iter<'a> {
    pub(super) fn new(generation: &'a Generation, pieces: Vec<Piece>) -> Iter<'a> {
        Iter { generation, pieces: pieces.into_iter(), entries: None }
    }

    #[inline(never)]
    fn next_piece(&mut self) -> Option<Result<()>> {
        self.entries = None;
        let generation = self.generation;
        let opened = self.pieces.find_map(|piece| piece.open_for_lookups(generation))?;
        Some(opened.map(|(shard, minishards)| self.entries = Some(ShardEntries::over(shard, minishards))))
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
            if let Err(error) = self.next_piece()? {
                return Some(Err(error));
            }
        }
    }
}

impl FusedIterator for Iter<'_> {}

impl fmt::Debug for Iter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("entries", &self.entries).finish_non_exhaustive()
    }
}

/// An iterator over the shards of a generation; see [`Snapshot::shards`].
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let snapshot = sharddb::ShardDb::open("store")?.snapshot();
/// for shard in snapshot.shards() {
///     let shard = shard?;
///     println!("shard {} has {} keys", shard.number(), shard.count()?);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Shards {
    snapshot: Snapshot,
    numbers: std::vec::IntoIter<ShardNumber>,
}

impl Iterator for Shards {
    type Item = Result<Shard>;

    fn next(&mut self) -> Option<Result<Shard>> {
        let number = self.numbers.next()?;
        let shard = self.snapshot.shard(number);
        Some(
            shard.and_then(|shard| {
                shard.ok_or_else(|| Error::internal("a listed shard was not found").at_shard(number))
            }),
        )
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.numbers.size_hint()
    }
}

impl FusedIterator for Shards {}

/// An iterator over all keys of a generation; see [`Snapshot::keys`].
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let snapshot = sharddb::ShardDb::open("store")?.snapshot();
/// let keys = snapshot.keys().collect::<sharddb::Result<Vec<u64>>>()?;
/// # Ok(()) }
/// ```
pub struct Keys {
    snapshot: Snapshot,
    pieces: std::vec::IntoIter<Piece>,
    /// The keys of the current piece, and the piece, which is kept open.
    keys: Option<(ShardKeys, OpenPiece)>,
    scope: VerifyScope,
}

impl Keys {
    pub(super) fn new(snapshot: Snapshot, pieces: Vec<Piece>) -> Keys {
        Keys { snapshot, pieces: pieces.into_iter(), keys: None, scope: VerifyScope::default() }
    }

    /// Verifies also the parts of each minishard that `scope` selects.
    pub(super) fn with_scope(self, scope: VerifyScope) -> Keys {
        Keys { scope, ..self }
    }

    /// Returns the next row, in which the key is, with its shard. Its range is not checked.
    pub(super) fn next_found(&mut self) -> Option<Result<(&Shard, FoundKey)>> {
        let found = loop {
            if let Some(found) = self.keys.as_mut().and_then(|(keys, _)| keys.next_found()) {
                break found;
            }
            if let Err(error) = self.next_piece()? {
                return Some(Err(error));
            }
        };
        let (keys, _) = self.keys.as_ref()?;
        Some(found.map(|found| (keys.shard(), found)))
    }

    #[inline(never)]
    fn next_piece(&mut self) -> Option<Result<()>> {
        self.keys = None; // drops the previous shard before the next one is opened
        let generation = &self.snapshot.generation;
        let opened = self.pieces.find_map(|piece| piece.open(generation))?;
        Some(opened.map(|open| {
            let keys = ShardKeys::over(open.shard().clone(), open.minishards()).with_scope(self.scope);
            self.keys = Some((keys, open));
        }))
    }
}

impl Iterator for Keys {
    type Item = Result<u64>;

    #[inline]
    fn next(&mut self) -> Option<Result<u64>> {
        loop {
            if let Some(key) = self.keys.as_mut().and_then(|(keys, _)| keys.next()) {
                return Some(key);
            }
            if let Err(error) = self.next_piece()? {
                return Some(Err(error));
            }
        }
    }
}

impl FusedIterator for Keys {}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("snapshot", &self.snapshot).finish_non_exhaustive()
    }
}
