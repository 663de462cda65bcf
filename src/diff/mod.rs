//! Differences between two databases: keys that were added, removed or changed.
//!
//! If both specifications place every key in the same minishard, the databases are walked together, minishard by
//! minishard. Otherwise each is walked once, with lookups in the other.

// module      what it has
//
// change      what is found: one difference, with the values before and after; equal shards, damage
// stored      the pairs of a minishard where they are stored, whether two of them are equal, and whether a database still
//             has one
// pieces       the minishards of both databases, in order, in pieces
// compare     compares the minishards of a piece, also by lookups in the other database

mod change;
mod compare;
mod pieces;
mod stored;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::diff::change::{BadPlace, Item, Side};
use crate::diff::compare::{Comparison, LookedUp};
use crate::diff::pieces::{Piece, Pieces};
use crate::error::{ErrorLocation, Result};
use crate::format::spec::ShardingSpec;
use crate::ids::{MinishardNumber, ShardNumber};
use crate::read::snapshot::Snapshot;
use crate::threads;
use crate::threads::in_order::in_order;
use crate::threads::progress::{Phase, Progress};

pub use change::{Change, ChangeKind};

/// The number of items in a batch.
const BATCH: usize = 256;

/// The upper bound on the batches that wait for the caller, per thread.
const BATCHES_PER_THREAD: usize = 8;

/// The upper bound on damaged places that are remembered, so that each is reported once.
const MOST_REMEMBERED: usize = 1 << 16;

/// The comparison of two databases: which keys were added, removed or changed from the old one to the new one.
///
/// A key is in a database if [`Snapshot::get`] finds it: of a key that is stored twice, the pair that `get` returns
/// counts, and a key that is stored in the wrong minishard does not count. A pair is changed if its value or its
/// [preamble](Snapshot::get_preamble) is another one. In a foreign data set, all bytes before a value that no index names
/// are its preamble. Zero bytes at the beginning of a preamble are ignored where they may be padding: in foreign data sets,
/// with a value alignment, and before an empty value.
///
/// # What is read
///
/// - A shard that is the same file in both databases (a hard link) is equal. It is not opened.
/// - Neither is a shard that has the same record, with the same digest, in both manifests under the same specification
///   and layout.
/// - All other values are read, unless their lengths are enough to tell them apart. Checks prove nothing: values that
///   end with their own CRC-32, and gzip members, may all have the same check.
///
/// Values that are not read are not verified: run [`Snapshot::verify`] for that.
///
/// # Order
///
/// If the specifications have the same hash, preshift, minishard bits and shard bits, changes are in storage order: by
/// shard, minishard and ascending key. Otherwise the added and the changed keys come first, in this order of the new
/// database, and then the removed keys, in this order of the old one. The number of threads does not matter.
///
/// # Cost
///
/// Time: with equal bits, one pass over the indexes of both databases. Otherwise, one pass over the indexes of each, and
/// a lookup in the other for each key.
///
/// Memory, per thread: the indexes of one minishard of each database, and two values. In addition, 16 bytes per key of
/// the foreign shards that are being compared, to find preambles; with different bits, 16 bytes per key of a foreign old
/// database.
///
/// ```
/// # let directory = std::env::temp_dir().join(format!("sharddb-diff-doc-{}", std::process::id()));
/// # let (before, after) = (directory.join("before"), directory.join("after"));
/// # std::fs::create_dir_all(&directory).unwrap();
/// # for (store, pairs) in [(&before, [(7, "seven"), (8, "eight")]), (&after, [(7, "SEVEN"), (9, "nine")])] {
/// #     let mut loader = sharddb::BulkLoader::create(store)?;
/// #     pairs.iter().try_for_each(|(key, value)| loader.insert(*key, value))?;
/// #     loader.finish()?;
/// # }
/// use std::ops::ControlFlow;
/// use sharddb::diff::{ChangeKind, Diff};
///
/// let old = sharddb::ShardDb::open(&before)?.snapshot();
/// let new = sharddb::ShardDb::open(&after)?.snapshot();
/// let mut changed = Vec::new();
/// let outcome = Diff::between(&old, &new).run(|change| match change {
///     Ok(change) => {
///         if change.kind() == ChangeKind::Changed {
///             changed.push(change.key());
///         }
///         ControlFlow::Continue(())
///     }
///     Err(error) => ControlFlow::Break(error),
/// });
/// let ControlFlow::Continue(totals) = outcome else { panic!("damage") };
/// assert_eq!(changed, [7]);
/// assert_eq!((totals.added, totals.removed, totals.changed), (1, 1, 1));
/// # std::fs::remove_dir_all(&directory).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Diff {
    old: Snapshot,
    new: Snapshot,
    options: DiffOptions,
}

/// Options of a comparison; see [`Diff::between_with`].
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// use sharddb::ShardDb;
/// use sharddb::diff::{Diff, DiffOptions};
///
/// let (old, new) = (ShardDb::open("before")?.snapshot(), ShardDb::open("after")?.snapshot());
/// println!("{:?}", Diff::between_with(&old, &new, DiffOptions::new().threads(2)).count()?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct DiffOptions {
    threads: usize,
    progress: Progress,
}

impl DiffOptions {
    /// Creates the default options.
    pub fn new() -> DiffOptions {
        DiffOptions::default()
    }

    /// Sets the number of threads that compare. Default: 0, which is one per core that the process may use when the work
    /// starts. If the process cannot start them all, it works with fewer.
    pub fn threads(&mut self, threads: usize) -> &mut DiffOptions {
        self.threads = threads;
        self
    }

    /// Sets the progress that the comparison reports, and that ends it with an error of kind `Cancelled`. Default: none.
    pub fn progress(&mut self, progress: &Progress) -> &mut DiffOptions {
        self.progress = progress.clone();
        self
    }
}

/// The result of a comparison; see [`Diff::run`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiffTotals {
    /// The number of keys that only the new database has.
    pub added: u64,
    /// The number of keys that only the old database has.
    pub removed: u64,
    /// The number of keys with another value or preamble.
    pub changed: u64,
    /// The number of keys with the same value and preamble. Includes the keys of equal shards, except those of foreign
    /// data sets, whose number is not known without reading.
    pub unchanged: u64,
    /// The number of shards that are equal and were not opened.
    pub equal_shards: u64,
    /// The number of errors. The keys that they concern are in none of the other numbers.
    pub errors: u64,
}

impl DiffTotals {
    /// Returns whether the databases are proved to be equal: no change, and no error.
    pub fn is_equal(&self) -> bool {
        !self.differ() && self.errors == 0
    }

    /// Returns whether there is a change.
    pub fn differ(&self) -> bool {
        self.added > 0 || self.removed > 0 || self.changed > 0
    }
}

impl Diff {
    /// Creates a comparison of two databases. Reads nothing.
    pub fn between(old: &Snapshot, new: &Snapshot) -> Diff {
        Diff::between_with(old, new, &DiffOptions::new())
    }

    /// Like [`between`](Diff::between), with options.
    pub fn between_with(old: &Snapshot, new: &Snapshot, options: &DiffOptions) -> Diff {
        Diff { old: old.clone(), new: new.clone(), options: options.clone() }
    }

    /// Calls `f` with every change, in the [order](Diff#order) of the comparison, until `f` breaks.
    ///
    /// Damage is an `Err` with its place, and the comparison continues after it. It is never counted as equal: a bad
    /// value is one `Err`, with its key; a bad minishard or shard is one `Err`, and none of its keys is a change.
    pub fn run<B>(&self, mut f: impl FnMut(Result<Change>) -> ControlFlow<B>) -> ControlFlow<B, DiffTotals> {
        let counts = self.old.key_count().zip(self.new.key_count());
        let progress = &self.options.progress;
        progress.begin(Phase::Compare, counts.map_or(0, |(old, new)| old.saturating_add(new)));
        let mut run = Run { diff: self, totals: DiffTotals::default(), reported: BTreeSet::new() };
        if have_equal_places(self.old.spec(), self.new.spec()) {
            run.walk(&Comparison::Merge, &mut f)?;
        } else {
            run.check_old_shards(&mut f)?;
            for other in [Side::Old, Side::New] {
                run.walk(&Comparison::LookUp(run.looked_up(other)), &mut f)?;
            }
        }
        if let Err(cancelled) = progress.check() {
            run.totals.errors += 1;
            f(Err(cancelled))?;
        }
        ControlFlow::Continue(run.totals)
    }

    /// Counts the changes.
    ///
    /// # Errors
    ///
    /// The first error of [`run`](Diff::run).
    pub fn count(&self) -> Result<DiffTotals> {
        let outcome = self.run(|change| match change {
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        });
        match outcome {
            ControlFlow::Continue(totals) => Ok(totals),
            ControlFlow::Break(error) => Err(error),
        }
    }
}

/// Whether two specifications place every key in the same shard and minishard. Their encodings may differ.
fn have_equal_places(old: &ShardingSpec, new: &ShardingSpec) -> bool {
    let places =
        |spec: &ShardingSpec| (spec.hash_function(), spec.preshift_bits(), spec.minishard_bits(), spec.shard_bits());
    places(old) == places(new)
}

/// A comparison under way: the totals so far.
struct Run<'a> {
    diff: &'a Diff,
    totals: DiffTotals,
    /// The damaged places that lookups have reported.
    reported: BTreeSet<ReportedPlace>,
}

/// A damaged shard or minishard of one database.
type ReportedPlace = (Side, ShardNumber, Option<MinishardNumber>);

impl<'a> Run<'a> {
    /// Walks through the databases, or through one of them, and passes what is found to `f`.
    fn walk<B>(
        &mut self,
        comparison: &Comparison<'_>,
        f: &mut impl FnMut(Result<Change>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let Diff { old, new, options: DiffOptions { threads, progress } } = self.diff;
        let mut pieces = Pieces::new(&old.generation, &new.generation, comparison.looked_up());
        let next = || if progress.is_cancelled() { None } else { pieces.next() };
        let unchanged = AtomicU64::new(0);
        let compare = |piece: Piece, emit: &mut dyn FnMut(Vec<Item>, usize) -> ControlFlow<()>| {
            let mut batch = Vec::new();
            let compared = comparison.compare(piece, &mut |item| {
                batch.push(item);
                if batch.len() < BATCH { ControlFlow::Continue(()) } else { emit(std::mem::take(&mut batch), BATCH) }
            });
            _ = emit(batch, BATCH);
            progress.add(compared.keys);
            unchanged.fetch_add(compared.unchanged, Ordering::Relaxed);
        };
        let threads = threads::count(*threads);
        let room = threads.get().saturating_mul(BATCHES_PER_THREAD * BATCH);
        let outcome =
            in_order(threads, room, next, compare, |batch| batch.into_iter().try_for_each(|item| self.take(item, f)));
        self.totals.unchanged += unchanged.into_inner();
        match outcome {
            Ok(outcome) => outcome,
            Err(panic) => self.take(Item::BadPair(panic), f),
        }
    }

    /// Opens the shards of the old database and verifies their shard indexes, so that a bad one is reported once, and not
    /// by every lookup. Those of the new database are verified by the walk through it.
    fn check_old_shards<B>(&mut self, f: &mut impl FnMut(Result<Change>) -> ControlFlow<B>) -> ControlFlow<B> {
        let old = self.looked_up(Side::Old);
        for number in self.diff.old.generation.shard_numbers() {
            let verified = match old.shard(number) {
                Ok(shard) => shard.map_or(Ok(()), |shard| shard.reader().verify_shard_index_in_place()),
                Err(error) => Err(error.at_shard(number)),
            };
            if let Err(error) = verified {
                self.take(Item::BadPlace(BadPlace { side: Side::Old, error }), f)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns a database for lookups, without the shards that were reported as a whole.
    fn looked_up(&self, side: Side) -> LookedUp<'a> {
        let snapshot = match side {
            Side::Old => &self.diff.old,
            Side::New => &self.diff.new,
        };
        let whole = self.reported.iter().filter(|(of, _, minishard)| *of == side && minishard.is_none());
        let bad_shards = whole.map(|(_, shard, _)| *shard).collect();
        LookedUp::new(side, &snapshot.generation, bad_shards)
    }

    fn take<B>(&mut self, item: Item, f: &mut impl FnMut(Result<Change>) -> ControlFlow<B>) -> ControlFlow<B> {
        let totals = &mut self.totals;
        match item {
            Item::Change(change) => {
                match change.kind() {
                    ChangeKind::Added => totals.added += 1,
                    ChangeKind::Removed => totals.removed += 1,
                    ChangeKind::Changed => totals.changed += 1,
                }
                f(Ok(change))
            }
            Item::EqualShard { keys } => {
                totals.equal_shards += 1;
                totals.unchanged += keys;
                self.diff.options.progress.add(2 * keys);
                ControlFlow::Continue(())
            }
            Item::BadPair(error) => {
                totals.errors += 1;
                f(Err(error))
            }
            Item::BadPlace(BadPlace { side, error }) => {
                if self.is_new(side, error.location()) {
                    self.take(Item::BadPair(error), f)
                } else {
                    ControlFlow::Continue(())
                }
            }
        }
    }

    /// Whether the damage of a shard or minishard was not reported yet. Every key that is looked up there meets it.
    fn is_new(&mut self, side: Side, at: ErrorLocation) -> bool {
        let Some(shard) = at.shard else { return true };
        let place = (side, shard, at.minishard);
        if self.reported.len() < MOST_REMEMBERED {
            self.reported.insert(place)
        } else {
            !self.reported.contains(&place)
        }
    }
}
