//! Compares the minishards of a piece, row by row, or by lookups in the other database.

use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Mutex;

use crate::byte_range::ByteRange;
use crate::bytes::StorageKind;
use crate::diff::change::{BadPlace, Change, Item, Side};
use crate::diff::pieces::{MinishardPair, Piece, Shards, Work};
use crate::diff::stored::{Minishard, Pair, Stored, are_equal};
use crate::error::Result;
use crate::format::locks::lock;
use crate::ids::{MinishardNumber, ShardNumber};
use crate::read::generation::Generation;
use crate::read::shard::Shard;

/// The number of shards that stay open for further lookups, if they are read by positioned reads. Only few of the files
/// of a process keep their descriptors, and the shards that are walked through need some too.
const MOST_OPEN: usize = 64;

/// A consumer of items, which may break off.
type Emit<'a> = dyn FnMut(Item) -> ControlFlow<()> + 'a;

/// How the minishards of a piece are compared.
pub(super) enum Comparison<'a> {
    /// Both databases have a key in the same minishard.
    Merge,
    /// One database is walked, and its keys are looked up in the other one: in the old one to find the added and the changed
    /// keys, and in the new one to find those that were removed.
    LookUp(LookedUp<'a>),
}

/// The totals of a piece.
#[derive(Default)]
pub(super) struct Compared {
    /// The number of rows that were walked through.
    pub(super) keys: u64,
    /// The number of keys whose pairs are equal.
    pub(super) unchanged: u64,
}

impl Comparison<'_> {
    /// Returns the database that is not walked, because keys are looked up in it.
    pub(super) fn looked_up(&self) -> Option<Side> {
        match self {
            Comparison::Merge => None,
            Comparison::LookUp(other) => Some(other.side),
        }
    }

    /// Compares the minishards of a piece and passes what it finds to `emit`, until that breaks.
    pub(super) fn compare(&self, piece: Piece, emit: &mut Emit<'_>) -> Compared {
        let mut compared = Compared::default();
        let Piece { shards, work } = piece;
        for step in work {
            let flow = match step {
                Work::Pass(item) => emit(item),
                Work::Minishards(pair) => self.compare_minishards(&shards, pair, &mut compared, emit),
            };
            if flow.is_break() {
                break;
            }
        }
        compared
    }

    /// Compares two minishards. If one of them is damaged, none of their keys is compared.
    fn compare_minishards(
        &self,
        shards: &Shards,
        pair: MinishardPair,
        compared: &mut Compared,
        emit: &mut Emit<'_>,
    ) -> ControlFlow<()> {
        let (old, new) = (
            read(Side::Old, shards.old.as_ref(), pair.number, pair.old),
            read(Side::New, shards.new.as_ref(), pair.number, pair.new),
        );
        match (old, new) {
            (Ok(old), Ok(new)) => {
                let (old, new) = (old.as_ref(), new.as_ref());
                compared.keys += old.map_or(0, Minishard::len) + new.map_or(0, Minishard::len);
                let mut found = Found { compared, emit };
                match self {
                    Comparison::Merge => found.merge(old, new),
                    // the minishard of the database that is not walked is none
                    Comparison::LookUp(other) => pairs(old.or(new)).try_for_each(|pair| found.look_up(other, &pair)),
                }
            }
            (old, new) => old.err().into_iter().chain(new.err()).map(Item::BadPlace).try_for_each(emit),
        }
    }
}

/// Reads a minishard; `None` without keys.
fn read(
    side: Side,
    shard: Option<&Shard>,
    number: MinishardNumber,
    index: Option<ByteRange>,
) -> Result<Option<Minishard<'_>>, BadPlace> {
    let (Some(shard), Some(index)) = (shard, index) else { return Ok(None) };
    let minishard = Minishard::read(shard, number, index);
    minishard.map(Some).map_err(|error| BadPlace { side, error: shard.reader().at(number, error) })
}

/// Iterates over the pairs of a minishard; none without a minishard.
fn pairs<'a>(minishard: Option<&'a Minishard<'a>>) -> impl Iterator<Item = Pair<'a>> {
    minishard.into_iter().flat_map(Minishard::pairs)
}

/// Where the results of comparisons go.
struct Found<'a, 'b> {
    compared: &'a mut Compared,
    emit: &'a mut Emit<'b>,
}

impl Found<'_, '_> {
    /// Compares the rows of two minishards with the same keys' places.
    fn merge(&mut self, old: Option<&Minishard<'_>>, new: Option<&Minishard<'_>>) -> ControlFlow<()> {
        let (mut old, mut new) = (pairs(old).peekable(), pairs(new).peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return ControlFlow::Continue(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.key().cmp(&new.key()),
            };
            let old = if order.is_le() { old.next() } else { None };
            let new = if order.is_ge() { new.next() } else { None };
            match (old, new) {
                (Some(old), Some(new)) => self.both(&old, &new)?,
                (Some(old), None) => self.one(&old, Change::removed)?,
                (None, Some(new)) => self.one(&new, Change::added)?,
                (None, None) => return ControlFlow::Continue(()),
            }
        }
    }

    /// Compares a pair with that of its key in the other database.
    fn look_up(&mut self, other: &LookedUp<'_>, pair: &Pair<'_>) -> ControlFlow<()> {
        match (other.find(pair.key()), other.side) {
            (Ok(Some(old)), Side::Old) => self.both(&old.pair(), pair),
            (Ok(Some(_)), Side::New) => ControlFlow::Continue(()), // compared by the lookup in the old one
            (Ok(None), Side::Old) => self.one(pair, Change::added),
            (Ok(None), Side::New) => self.one(pair, Change::removed),
            (Err(damage), _) => damage.into_iter().map(Item::BadPlace).try_for_each(&mut *self.emit),
        }
    }

    fn both(&mut self, old: &Pair<'_>, new: &Pair<'_>) -> ControlFlow<()> {
        match are_equal(old, new) {
            Ok(true) => {
                self.compared.unchanged += 1;
                ControlFlow::Continue(())
            }
            Ok(false) => (self.emit)(Item::Change(Change::changed(Stored::from(old), Stored::from(new)))),
            Err(error) => (self.emit)(Item::BadPair(error)),
        }
    }

    /// Passes on a pair that only one database has.
    fn one(&mut self, pair: &Pair<'_>, change: fn(Stored) -> Change) -> ControlFlow<()> {
        match pair.range() {
            Ok(_) => (self.emit)(Item::Change(change(Stored::from(pair)))),
            Err(error) => (self.emit)(Item::BadPair(error)),
        }
    }
}

/// A database in which keys are looked up.
pub(super) struct LookedUp<'a> {
    side: Side,
    generation: &'a Generation,
    /// The shards that cannot be read, and are reported already.
    bad_shards: BTreeSet<ShardNumber>,
    /// The shards that were used last, the newest first. Empty if lookups share the shards of the generation.
    recent: Mutex<VecDeque<Shard>>,
}

impl<'a> LookedUp<'a> {
    pub(super) fn new(side: Side, generation: &'a Generation, bad_shards: BTreeSet<ShardNumber>) -> LookedUp<'a> {
        LookedUp { side, generation, bad_shards, recent: Mutex::default() }
    }

    /// Finds a key.
    ///
    /// Errors: the damage that hides whether the key is there; `None` if it is reported already.
    pub(super) fn find(&self, key: u64) -> Result<Option<Stored>, Option<BadPlace>> {
        let location = self.generation.spec().route(key);
        if self.bad_shards.contains(&location.shard) {
            return Err(None);
        }
        let find = || {
            let Some(shard) = self.shard(location.shard).map_err(|error| error.at_key(key))? else { return Ok(None) };
            let found = shard.reader().find(location.minishard, key)?;
            Ok(found.map(|found| Stored::new(shard, found)))
        };
        find().map_err(|error| Some(BadPlace { side: self.side, error }))
    }

    /// Returns an open shard; `None` if the generation does not have it.
    pub(super) fn shard(&self, number: ShardNumber) -> Result<Option<Shard>> {
        if !self.opens_apart() {
            return Ok(self.generation.shard(number)?.cloned());
        }
        if let Some(shard) = self.take_recent(number) {
            return Ok(Some(shard));
        }
        let opened = self.generation.open_shard_apart(number).map_err(|error| error.at_shard(number))?;
        if let Some(shard) = &opened {
            let mut recent = lock(&self.recent);
            recent.truncate(MOST_OPEN - 1);
            recent.push_front(shard.clone());
        }
        Ok(opened)
    }

    /// Returns a shard that was used recently, and notes its use.
    fn take_recent(&self, number: ShardNumber) -> Option<Shard> {
        let mut recent = lock(&self.recent);
        let at = recent.iter().position(|shard| shard.number() == number)?;
        let shard = recent.remove(at)?;
        recent.push_front(shard.clone());
        Some(shard)
    }

    /// Whether shards are opened separately from those of lookups in the generation, which stay open. Not for foreign
    /// shards: once opened again, they would read all their indexes again to find preambles.
    fn opens_apart(&self) -> bool {
        matches!(self.generation.options().storage, StorageKind::Positioned) && self.generation.layout().is_some()
    }
}
