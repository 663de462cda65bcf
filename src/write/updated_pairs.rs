//! The pairs of a base generation with changes applied, in storage order.
//!
//! Both sources are in storage order, so this is a merge of two streams. A shard of a native base is read only if it has a
//! change, unless all shards are rewritten. The pairs of a foreign base were sorted before, and are all read.

use std::iter::Peekable;
use std::sync::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::format::locks::{into_inner, lock};
use crate::format::spec::ShardingSpec;
use crate::ids::ShardNumber;
use crate::read::generation::Generation;
use crate::write::bands::Span;
use crate::write::shard_file::{PairBytes, PairHeader, PieceSink};
use crate::write::stored_pairs::StoredPairs;
use crate::write::{Pairs, SortedPairs};

/// The bit of the source that marks changes. The sources of other pairs are smaller.
const CHANGES: u32 = 1 << 31;

/// The pairs before an update.
#[derive(Clone, Copy)]
pub(crate) enum Base<'a> {
    /// The shards of a native generation. Without `rewrites_all`, only those with a change are read.
    Shards { generation: &'a Generation, rewrites_all: bool },
    /// Sorted pairs.
    Sorted(&'a dyn Pairs),
}

/// A base and changes to it.
pub(crate) struct UpdatedPairs<'a> {
    spec: ShardingSpec,
    base: Base<'a>,
    /// Pairs and marks of deleted keys, each key once.
    changes: &'a dyn Pairs,
    /// Whether the deletion of an absent key is an error.
    strict: bool,
    outcome: Mutex<Outcome>,
}

/// The effect of changes.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Keys that the base does not have.
    pub(crate) added: u64,
    /// Keys that the base has, with a new pair.
    pub(crate) replaced: u64,
    pub(crate) deleted: u64,
    /// Deleted keys that the base does not have.
    pub(crate) absent: u64,
    /// The shards of a native base that were read, in no order. Those that still have keys are written again.
    pub(crate) shards: Vec<ShardNumber>,
    /// The stored bytes of all values of these shards in the base.
    pub(crate) value_bytes: u64,
}

impl<'a> UpdatedPairs<'a> {
    pub(crate) fn new(spec: ShardingSpec, base: Base<'a>, changes: &'a dyn Pairs, strict: bool) -> UpdatedPairs<'a> {
        UpdatedPairs { spec, base, changes, strict, outcome: Mutex::default() }
    }

    /// Returns the effect of all changes, once all pairs were read.
    pub(crate) fn into_outcome(self) -> Outcome {
        into_inner(self.outcome)
    }
}

impl Pairs for UpdatedPairs<'_> {
    fn max_span_bits(&self) -> u8 {
        match self.base {
            Base::Shards { .. } => self.changes.max_span_bits(),
            Base::Sorted(base) => self.changes.max_span_bits().min(base.max_span_bits()),
        }
    }

    fn span(&self, span: Span) -> Result<Box<dyn SortedPairs + '_>> {
        let base = match self.base {
            Base::Shards { generation, rewrites_all } => {
                BaseSpan::Shards(Box::new(ShardsSpan::new(generation, span, rewrites_all)))
            }
            Base::Sorted(base) => BaseSpan::Sorted(base.span(span)?),
        };
        Ok(Box::new(UpdatedSpan {
            pairs: self,
            base,
            base_next: None,
            changes: self.changes.span(span)?,
            change: None,
            changes_ended: false,
            outcome: Outcome::default(),
        }))
    }
}

/// A pair with its place.
type Placed = (u64, PairHeader);

/// The pairs of a base in one span.
enum BaseSpan<'a> {
    Shards(Box<ShardsSpan<'a>>),
    Sorted(Box<dyn SortedPairs + 'a>),
}

/// Those shards of a native base that are rewritten, one after another.
struct ShardsSpan<'a> {
    pairs: StoredPairs<'a>,
    /// The shard that is being read.
    current: Option<ShardNumber>,
    /// The shards that are rewritten whether they have a change or not, and were not entered yet.
    to_rewrite: Peekable<std::vec::IntoIter<ShardNumber>>,
    /// All shards that were entered.
    entered: Vec<ShardNumber>,
}

impl<'a> ShardsSpan<'a> {
    fn new(generation: &'a Generation, span: Span, rewrites_all: bool) -> ShardsSpan<'a> {
        let shard_bits = generation.spec().shard_bits();
        let all = generation.shard_numbers().filter(|number| rewrites_all && span.has_shard(*number, shard_bits));
        let to_rewrite = all.collect::<Vec<_>>().into_iter().peekable();
        ShardsSpan { pairs: StoredPairs::new(generation), current: None, to_rewrite, entered: Vec::new() }
    }

    /// Enters the next shard: that of the next change, or one to be rewritten before it. Returns false if there is
    /// none.
    fn enter_next(&mut self, of_change: Option<ShardNumber>) -> Result<bool> {
        let next = match (self.to_rewrite.peek().copied(), of_change) {
            (Some(shard), Some(of_change)) => shard.min(of_change),
            (Some(shard), None) | (None, Some(shard)) => shard,
            (None, None) => return Ok(false),
        };
        self.to_rewrite.next_if_eq(&next);
        self.pairs.enter(next)?;
        self.current = Some(next);
        self.entered.push(next);
        Ok(true)
    }
}

impl BaseSpan<'_> {
    /// Returns the next pair before or in the shard of the next change.
    fn next(&mut self) -> Result<Option<Placed>> {
        match self {
            BaseSpan::Shards(shards) => shards.pairs.next(),
            BaseSpan::Sorted(pairs) => pairs.next(),
        }
    }

    /// Whether a change in this shard may be before the next pair.
    fn has_reached(&self, shard: ShardNumber) -> bool {
        match self {
            BaseSpan::Shards(shards) => shards.current == Some(shard),
            BaseSpan::Sorted(_) => true,
        }
    }

    fn enter_next(&mut self, of_change: Option<ShardNumber>) -> Result<bool> {
        match self {
            BaseSpan::Shards(shards) => shards.enter_next(of_change),
            BaseSpan::Sorted(_) => Ok(false),
        }
    }
}

/// The updated pairs of one span.
struct UpdatedSpan<'a> {
    pairs: &'a UpdatedPairs<'a>,
    base: BaseSpan<'a>,
    /// The next pair of the base, if it was read.
    base_next: Option<Placed>,
    changes: Box<dyn SortedPairs + 'a>,
    /// The next change, if it was read.
    change: Option<Placed>,
    changes_ended: bool,
    outcome: Outcome,
}

impl UpdatedSpan<'_> {
    /// Reads the next pair of the base and the next change, unless they were read already.
    ///
    /// A change is read only when it is needed, so that changes run ahead by no more than their next pair.
    fn fill(&mut self) -> Result<()> {
        if self.change.is_none() && !self.changes_ended {
            self.change = self.changes.next()?;
            self.changes_ended = self.change.is_none();
        }
        if self.base_next.is_none() {
            self.base_next = self.base.next()?;
        }
        Ok(())
    }

    /// Returns the shard of the next change.
    fn shard_of_change(&self) -> Option<ShardNumber> {
        self.change.map(|(place, _)| self.pairs.spec.location_of_hash(place).shard)
    }

    /// Takes the next change; returns its pair, or `None` if it deletes the key. `in_base` is whether the base has the
    /// key.
    fn take_change(&mut self, in_base: bool) -> Result<Option<Placed>> {
        let Some((place, header)) = self.change.take() else { return Ok(None) };
        let count = match (header.is_deleted, in_base) {
            (true, false) if self.pairs.strict => {
                let message = "expected a key of the base to delete, found that it is absent: nothing was published";
                return Err(Error::new(ErrorKind::NotFound, message).at_key(header.key));
            }
            (true, true) => &mut self.outcome.deleted,
            (true, false) => &mut self.outcome.absent,
            (false, true) => &mut self.outcome.replaced,
            (false, false) => &mut self.outcome.added,
        };
        *count += 1;
        Ok((!header.is_deleted).then_some((place, PairHeader { source: header.source | CHANGES, ..header })))
    }
}

impl SortedPairs for UpdatedSpan<'_> {
    fn next(&mut self) -> Result<Option<Placed>> {
        loop {
            self.fill()?;
            let order = |(place, header): &Placed| (*place, header.key);
            let of_change = self.shard_of_change();
            let changed = match (&self.base_next, of_change.is_some_and(|shard| self.base.has_reached(shard))) {
                (None, false) => {
                    if self.base.enter_next(of_change)? {
                        continue;
                    } else {
                        return Ok(None);
                    }
                }
                (Some(_), false) => return Ok(self.base_next.take()),
                (None, true) => self.take_change(false)?,
                (Some(base), true) => match self.change.as_ref().map(order).cmp(&Some(order(base))) {
                    std::cmp::Ordering::Greater => return Ok(self.base_next.take()),
                    std::cmp::Ordering::Less => self.take_change(false)?,
                    std::cmp::Ordering::Equal => {
                        self.base_next = None;
                        self.take_change(true)?
                    }
                },
            };
            if changed.is_some() {
                return Ok(changed);
            }
        }
    }

    fn dropped(&self) -> u64 {
        self.changes.dropped()
    }
}

impl PairBytes for UpdatedSpan<'_> {
    fn pieces(&mut self, pair: &PairHeader, to: &mut PieceSink<'_>) -> Result<()> {
        match pair.source & CHANGES {
            0 => match &mut self.base {
                BaseSpan::Shards(shards) => shards.pairs.pieces(pair, to),
                BaseSpan::Sorted(pairs) => pairs.pieces(pair, to),
            },
            _ => self.changes.pieces(&PairHeader { source: pair.source ^ CHANGES, ..*pair }, to),
        }
    }
}

impl Drop for UpdatedSpan<'_> {
    /// Adds the effect of the changes of this span to that of all.
    fn drop(&mut self) {
        let mut all = lock(&self.pairs.outcome);
        all.added += self.outcome.added;
        all.replaced += self.outcome.replaced;
        all.deleted += self.outcome.deleted;
        all.absent += self.outcome.absent;
        if let BaseSpan::Shards(shards) = &mut self.base {
            all.shards.append(&mut shards.entered);
            all.value_bytes += shards.pairs.value_bytes();
        }
    }
}
