//! Walks over a generation in storage order. The walk through one shard is in `shard::entries` and `shard::rows`.

use std::fmt;
use std::iter::FusedIterator;

use crate::error::{Error, ErrorKind, Result};
use crate::ids::ShardNumber;
use crate::read::generation::Generation;
use crate::read::owned_value::OwnedValue;
use crate::read::shard::{Entry, FoundKey, Shard, ShardEntries, ShardKeys, VerifyScope};
use crate::read::snapshot::Snapshot;
use crate::read::walk::piece::{OpenPiece, Piece};

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

    /// Iterates over all keys in storage order, in the order of [`iter`](Snapshot::iter).
    ///
    /// A bad entry, minishard or shard is one `Err` with its place. Cost: reads all indexes and no values.
    pub fn keys(&self) -> Keys {
        Keys::new(self.clone(), self.pieces())
    }

    /// Iterates over all pairs in storage order, like [`iter`](Snapshot::iter), but the iterator keeps the snapshot and
    /// returns owned values. For a walk that is paused and continued, such as an iterator of another language.
    ///
    /// A bad entry, value, minishard or shard is one `Err` with its place. A shard is closed after use, as soon as no
    /// value of it is left. Cost: that of [`scan`](Snapshot::scan), plus a shared reference count per pair.
    ///
    /// ```
    /// # let store = std::env::temp_dir().join(format!("sharddb-pairs-doc-{}", std::process::id()));
    /// # let mut loader = sharddb::BulkLoader::create(&store)?;
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
            let keys = ShardKeys::over(open.shard.clone(), open.minishards.clone()).with_scope(self.scope);
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

impl Pairs {
    /// Returns the next pair with its preamble: key, preamble, value; see [`Entry::preamble`](crate::shard::Entry::preamble).
    /// The preamble is `None` if its length is unknown, for which `Entry::preamble` is `Unsupported`.
    ///
    /// # Errors
    ///
    /// Those of the iterator.
    pub fn next_with_preamble(&mut self) -> Option<Result<(u64, Option<OwnedValue>, OwnedValue)>> {
        let found = self.0.next_found()?;
        Some(found.and_then(|(shard, found)| {
            let reader = shard.reader();
            let preamble = match reader.located_preamble(&found) {
                Err(error) if error.kind() == ErrorKind::Unsupported => None,
                preamble => Some(OwnedValue::new(shard, preamble?)),
            };
            Ok((found.row.id, preamble, OwnedValue::new(shard, reader.value(&found)?)))
        }))
    }

    /// Calls `check` with the next value and the number of bytes in the gap before it. Its error has the place of the pair.
    pub(crate) fn check_next(&mut self, check: impl FnOnce(&[u8], u64) -> Result<()>) -> Option<Result<()>> {
        let found = self.0.next_found()?;
        Some(found.and_then(|(shard, found)| {
            let reader = shard.reader();
            let at = |error: Error| reader.at(found.minishard, error).at_key(found.row.id);
            let gap = reader.whole_gap(&found).map_err(at)?;
            check(&reader.value(&found)?, gap.map_or(0, |gap| gap.len())).map_err(at)
        }))
    }
}

impl FusedIterator for Pairs {}

impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pairs").field(&self.0).finish()
    }
}
