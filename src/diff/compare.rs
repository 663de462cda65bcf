//! Compares the minishards of a unit, row by row.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use crate::byte_range::ByteRange;
use crate::diff::change::Change;
use crate::diff::item::{BadPlace, Item, Side};
use crate::diff::looked_up::LookedUp;
use crate::diff::minishard::Minishard;
use crate::diff::stored::{Pair, Stored, are_equal};
use crate::diff::units::{MinishardPair, Shards, Step, Unit, Walked};
use crate::ids::MinishardNumber;
use crate::read::shard::Shard;

/// A consumer of items, which may break off.
type Emit<'a> = dyn FnMut(Item) -> ControlFlow<()> + 'a;

/// How the minishards of a unit are compared.
pub(super) enum Comparison<'a> {
    /// Both databases have a key in the same minishard.
    Merge,
    /// The new database is walked, and its keys are looked up in the old one.
    LookUpOld { old: LookedUp<'a> },
    /// The old database is walked, and its keys are looked up in the new one, to find those that were removed.
    LookUpNew { new: LookedUp<'a> },
}

/// The totals of a unit.
#[derive(Default)]
pub(super) struct Compared {
    /// The number of rows that were walked through.
    pub(super) keys: u64,
    /// The number of keys whose pairs are equal.
    pub(super) unchanged: u64,
}

impl Comparison<'_> {
    pub(super) fn walked(&self) -> Walked {
        match self {
            Comparison::Merge { .. } => Walked::Both,
            Comparison::LookUpOld { .. } => Walked::Only(Side::New),
            Comparison::LookUpNew { .. } => Walked::Only(Side::Old),
        }
    }

    /// Compares the minishards of a unit and passes what it finds to `emit`, until that breaks.
    pub(super) fn compare(&self, unit: Unit, emit: &mut Emit<'_>) -> Compared {
        let mut compared = Compared::default();
        let Unit { shards, steps } = unit;
        for step in steps {
            let flow = match step {
                Step::Pass(item) => emit(item),
                Step::Minishards(pair) => self.compare_minishards(&shards, pair, &mut compared, emit),
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
                    Comparison::LookUpOld { old } => pairs(new).try_for_each(|new| found.look_up_old(old, &new)),
                    Comparison::LookUpNew { new } => pairs(old).try_for_each(|old| found.look_up_new(new, &old)),
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
    Minishard::read(shard, number, index).map(Some).map_err(BadPlace::of(side))
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

    fn look_up_old(&mut self, old: &LookedUp<'_>, new: &Pair<'_>) -> ControlFlow<()> {
        match old.find(new.key()) {
            Ok(Some(old)) => self.both(&old.pair(), new),
            Ok(None) => self.one(new, Change::added),
            Err(damage) => damage.into_iter().map(Item::BadPlace).try_for_each(&mut *self.emit),
        }
    }

    fn look_up_new(&mut self, new: &LookedUp<'_>, old: &Pair<'_>) -> ControlFlow<()> {
        match new.find(old.key()) {
            Ok(Some(_)) => ControlFlow::Continue(()), // compared by `look_up_old`
            Ok(None) => self.one(old, Change::removed),
            Err(damage) => damage.into_iter().map(Item::BadPlace).try_for_each(&mut *self.emit),
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
