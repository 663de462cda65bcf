//! Slices of a snapshot: walks that together return what a walk over the snapshot returns. A scan of the snapshot is that of
//! one slice, or of many on several threads.

use std::fmt;
use std::ops::{ControlFlow, Range};

use crate::error::Result;
use crate::ids::{MinishardNumber, ShardNumber, minishard_number};
use crate::read::generation::Generation;
use crate::read::shard::{Entry, ShardEntries, Value};
use crate::read::snapshot::Snapshot;
use crate::read::walk::iter::{Iter, Keys};
use crate::read::walk::piece::{DividedShard, Piece};
use crate::threads::{self, for_each};

/// Upper bound on the number of slices.
const MOST_SLICES: usize = 1 << 16;

/// Slices per thread: enough that threads end at about the same time although slices differ in cost.
const SLICES_PER_THREAD: usize = 32;

impl Snapshot {
    /// Splits the snapshot into up to `n` slices of about the same size, for walks on several threads or machines.
    ///
    /// The slices are disjoint and cover everything: one after the other, they return what [`iter`](Snapshot::iter)
    /// returns, in its order. They consist of whole shards and of ranges of the minishards of a shard, by the lengths of
    /// the shard files. There are fewer slices than `n` if there are fewer minishards, and at most 65,536.
    /// [`scan_parallel`](Snapshot::scan_parallel) does this for threads of one process.
    ///
    /// Cost: O(shards + n); without a manifest also one system call per shard. Reads no data.
    ///
    /// ```
    /// # let store = std::env::temp_dir().join(format!("sharddb-split-doc-{}", std::process::id()));
    /// # let mut loader = sharddb::BulkLoader::create(&store)?;
    /// # for key in 0..1000u64 { loader.insert(key, b"seven")?; }
    /// # loader.finish()?;
    /// use std::thread;
    ///
    /// let snapshot = sharddb::ShardDb::open(&store)?.snapshot();
    /// let slices = snapshot.split(4);
    /// let counts = thread::scope(|scope| {
    ///     let threads: Vec<_> = slices.iter().map(|slice| scope.spawn(|| slice.keys().count())).collect();
    ///     threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    /// });
    /// assert_eq!(counts, 1000);
    /// # std::fs::remove_dir_all(&store).unwrap();
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn split(&self, n: usize) -> Vec<Slice> {
        let slices = pieces_of_slices(&self.generation, n.clamp(1, MOST_SLICES));
        slices.into_iter().map(|pieces| Slice::new(self, pieces)).collect()
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
    pub fn scan<B>(&self, f: impl FnMut(Result<(u64, Value<'_>)>) -> ControlFlow<B>) -> ControlFlow<B> {
        self.whole().scan(f)
    }

    /// Calls `f` with every key and its value, on up to `threads` threads, until `f` breaks.
    ///
    /// Like [`scan`](Snapshot::scan), each pair and each error once, but in no particular order. Within a shard the work
    /// is divided by minishards, so this uses all threads even if there is one shard. If `f` breaks, the other threads
    /// stop before their next pair, and the first break is returned. If `f` panics, so does this call, after all threads
    /// have ended. The calling thread is one of the threads. If the process cannot start more threads, fewer are used.
    ///
    /// ```
    /// # let store = std::env::temp_dir().join(format!("sharddb-scan-parallel-doc-{}", std::process::id()));
    /// # let mut loader = sharddb::BulkLoader::create(&store)?;
    /// # loader.insert(7, b"seven")?;
    /// # loader.finish()?;
    /// use std::ops::ControlFlow;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// let snapshot = sharddb::ShardDb::open(&store)?.snapshot();
    /// let total = AtomicUsize::new(0);
    /// let first_error = snapshot.scan_parallel(0, |pair| match pair {
    ///     Ok((_key, value)) => {
    ///         total.fetch_add(value.len(), Ordering::Relaxed);
    ///         ControlFlow::Continue(())
    ///     }
    ///     Err(error) => ControlFlow::Break(error),
    /// });
    /// assert!(first_error.is_continue() && total.into_inner() == 5);
    /// # std::fs::remove_dir_all(&store).unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan_parallel<B: Send>(
        &self,
        threads: usize,
        f: impl Fn(Result<(u64, Value<'_>)>) -> ControlFlow<B> + Sync,
    ) -> ControlFlow<B> {
        let threads = threads::count(threads);
        let slices = self.split(threads.get().saturating_mul(SLICES_PER_THREAD));
        for_each(threads, slices.into_iter(), |slice, stop| slice.scan(|pair| stop.or(|| f(pair))))
    }

    /// Returns the whole snapshot as a slice.
    fn whole(&self) -> Slice {
        Slice::new(self, self.pieces())
    }
}

/// A slice of a snapshot; see [`Snapshot::split`].
///
/// `Send + Sync`. It pins the generation, like the snapshot. A shard that is divided among slices stays open from the
/// first walk over one of them until all of them are dropped.
///
/// An error that hides a whole shard, such as that of a missing file, is returned by one of the shard's slices only: the
/// first that meets it. So a program must not ignore the errors of one slice and rely on another one. Each slice reads at
/// most twice the length of each of its shards in minishard indexes; see [`Snapshot::iter`].
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let snapshot = sharddb::ShardDb::open("store")?.snapshot();
/// for slice in snapshot.split(1) {
///     for entry in &slice {
///         let entry = entry?;
///         println!("{} has {} bytes", entry.key(), entry.value()?.len());
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Slice {
    snapshot: Snapshot,
    pieces: Vec<Piece>,
}

impl Slice {
    pub(super) fn new(snapshot: &Snapshot, pieces: Vec<Piece>) -> Slice {
        Slice { snapshot: snapshot.clone(), pieces }
    }

    /// Iterates over the pairs of this slice in storage order, like [`Snapshot::iter`].
    pub fn iter(&self) -> Iter<'_> {
        Iter::new(&self.snapshot.generation, self.pieces.clone())
    }

    /// Calls `f` with every key of this slice and its value, until `f` breaks, like [`Snapshot::scan`].
    pub fn scan<B>(&self, mut f: impl FnMut(Result<(u64, Value<'_>)>) -> ControlFlow<B>) -> ControlFlow<B> {
        for piece in &self.pieces {
            match piece.open(&self.snapshot.generation) {
                Some(Ok(open)) => {
                    let mut entries = ShardEntries::over(&open.shard, open.minishards.clone());
                    while let Some(pair) = entries.next_pair() {
                        f(pair)?;
                    }
                    if entries.is_verified() {
                        piece.note_verified(&open.shard);
                    }
                }
                Some(Err(error)) => f(Err(error))?,
                None => {}
            }
        }
        ControlFlow::Continue(())
    }

    /// Calls `f` with every entry of this slice, until `f` breaks. Like [`scan`](Slice::scan), for preambles, stored bytes
    /// and values that are read on request.
    pub fn scan_entries<B>(&self, mut f: impl FnMut(Result<Entry<'_>>) -> ControlFlow<B>) -> ControlFlow<B> {
        for piece in &self.pieces {
            match piece.open(&self.snapshot.generation) {
                Some(Ok(open)) => ShardEntries::over(&open.shard, open.minishards.clone()).try_for_each(&mut f)?,
                Some(Err(error)) => f(Err(error))?,
                None => {}
            }
        }
        ControlFlow::Continue(())
    }

    /// Iterates over the keys of this slice in storage order, like [`Snapshot::keys`].
    pub fn keys(&self) -> Keys {
        Keys::new(self.snapshot.clone(), self.pieces.clone())
    }
}

impl<'a> IntoIterator for &'a Slice {
    type Item = <Iter<'a> as Iterator>::Item;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slice").field("snapshot", &self.snapshot).field("pieces", &self.pieces.len()).finish()
    }
}

/// Returns the pieces of up to `n` slices, each with at least one.
///
/// Minishards have a weight: an equal share of the length of their shard file, or of 1 if it is empty or not known. A
/// slice ends with the minishard that reaches its share of the total.
fn pieces_of_slices(generation: &Generation, n: usize) -> Vec<Vec<Piece>> {
    let weights: Vec<_> =
        generation.shard_numbers().map(|number| (number, u128::from(generation.shard_len(number).max(1)))).collect();
    let total: u128 = weights.iter().map(|(_, weight)| weight).sum();
    let shares = Shares { n: n as u128, total, minishards: generation.spec().minishards().into() };
    let (mut slices, mut slice, mut before) = (Vec::new(), Vec::new(), 0);
    for (number, weight) in weights {
        for (piece, ends_part) in shares.pieces(number, before, weight) {
            slice.push(piece);
            if ends_part {
                slices.push(std::mem::take(&mut slice));
            }
        }
        before += weight;
    }
    slices.extend((!slice.is_empty()).then_some(slice));
    slices
}

/// How the weight of all shards is divided.
struct Shares {
    /// The number of slices.
    n: u128,
    /// The weight of all shards.
    total: u128,
    /// The minishards of each shard.
    minishards: u128,
}

impl Shares {
    /// Returns the pieces of a shard of this weight after shards of the weight `before`, each with whether it is the
    /// last one of its slice.
    fn pieces(&self, shard: ShardNumber, before: u128, weight: u128) -> Vec<(Piece, bool)> {
        let ranges = self.ranges(before, weight);
        if let [(_, ends_part)] = ranges.as_slice() {
            return vec![(Piece::whole(shard), *ends_part)];
        }
        let divided = DividedShard::new(ranges.len());
        let piece = |(at, (range, ends_part))| (Piece::of(shard, &divided, at, range), ends_part);
        ranges.into_iter().enumerate().map(piece).collect()
    }

    /// Returns the ranges of minishards of such a shard.
    fn ranges(&self, before: u128, weight: u128) -> Vec<(Range<MinishardNumber>, bool)> {
        let Shares { n, total, minishards } = *self;
        let number = |minishard: u128| minishard_number(u64::try_from(minishard).unwrap_or(u64::MAX));
        let (mut ranges, mut start) = (Vec::new(), 0);
        // the slices that end within this shard
        for slice in before * n / total + 1..=(before + weight) * n / total {
            let reached = (total * slice / n).saturating_sub(before).min(weight);
            let end = (reached * minishards).div_ceil(weight);
            if end > start {
                ranges.push((number(start)..number(end), true));
                start = end;
            }
        }
        if start < minishards {
            ranges.push((number(start)..number(minishards), false));
        }
        ranges
    }
}
