//! The rounds of requests of lookups of many keys and of walks. Each minishard and each value has its own error.
//!
//! ```text
//! plan_minishards   blocks that state places  blocks of the minishard table or of shard indexes, if they are not in memory
//! each_minishard    minishards                with their values, where these take less than requests for the wanted ones
//! values            the other values
//! ```
//!
//! The requests of a round are planned together, and are in flight within the bounds of an operation. A walk takes
//! its minishards in storage order by [`read_minishards`](RemoteGeneration::read_minishards), whose memory is bounded
//! twice: by [`next_minishards`](RemoteGeneration::next_minishards) for the bytes of its requests, and by
//! [`DECODED_BYTES`] for the minishards that it returns.

use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;
use std::sync::Arc;

use sharddb_format::internal::ids::Location;
use sharddb_format::{Error, Result};

use crate::block::{Block, BlockName, BlockRead};
use crate::generation::RemoteGeneration;
use crate::lookup::Found;
use crate::minishard::Minishard;
use crate::objects::Unread;
use crate::operation::Exchange;
use crate::place::{Place, PlaceStep};
use crate::request::RemoteValue;

/// Upper bound on the minishards in memory that a round returns, unless a single one is longer.
const DECODED_BYTES: u64 = 128 << 20;

/// The bytes of memory that a byte of a gzip index is expected to take. More is correct and slower: the last minishards of
/// a round are deferred then.
const GZIP_RATIO: u64 = 4;

/// A minishard in a round of requests: `T` is its read, and then its block.
pub(crate) enum Step<T> {
    /// It has no keys.
    Empty,
    /// It has keys. An error may be one of the place: see [`minishard_of`](RemoteGeneration::minishard_of).
    At(Place, Result<T>),
    /// Its place is not known.
    Failed(Error),
}

/// Minishards to read, in storage order.
pub(crate) type MinishardPlan = Peekable<btree_map::IntoIter<Location, Step<BlockRead>>>;

/// A minishard of a round.
pub(crate) enum InRound {
    Read(Block),
    /// It is read when its turn comes.
    Deferred(BlockRead),
}

impl RemoteGeneration {
    /// Takes the next minishards, whose reads have at most `most` bytes together; at least one.
    pub(crate) fn next_minishards(&self, plan: &mut MinishardPlan, most: u64) -> Vec<(Location, Step<BlockRead>)> {
        let ratio = if self.has_raw_indexes() { 1 } else { GZIP_RATIO };
        let len = |step: &Step<BlockRead>| match step {
            Step::At(place, Ok(read)) => read.span.len().saturating_add(place.index.len().saturating_mul(ratio - 1)),
            Step::At(_, Err(_)) | Step::Empty | Step::Failed(_) => 0,
        };
        let mut left = most;
        let mut run = Vec::new();
        while let Some(item) = plan.next_if(|(_, step)| run.is_empty() || len(step) <= left) {
            left = left.saturating_sub(len(&item.1));
            run.push(item);
        }
        run
    }

    /// Finds the places of minishards, given the number of values that are wanted of each. Where the minishard table is
    /// damaged, reads the shard indexes in another round.
    pub(crate) async fn plan_minishards(
        &self,
        exchange: &Exchange,
        wanted: impl IntoIterator<Item = (Location, u64)>,
    ) -> MinishardPlan {
        let mut steps = BTreeMap::new();
        let mut known: Vec<(Location, u64, Result<PlaceStep>)> =
            wanted.into_iter().map(|(location, values)| (location, values, self.known_place(location))).collect();
        while !known.is_empty() {
            let mut needs: BTreeMap<BlockName, (BlockRead, Vec<(Location, u64)>)> = BTreeMap::new();
            for (location, values, known) in known.drain(..) {
                let step = match known {
                    Ok(PlaceStep::Place(Some(place))) => {
                        Step::At(place, self.read_of_minishard(location, &place, values))
                    }
                    Ok(PlaceStep::Place(None)) => Step::Empty,
                    Ok(PlaceStep::Read(read)) => {
                        let needed = read.span.needed;
                        let (first, locations) = needs.entry(read.block).or_insert_with(|| (read, Vec::new()));
                        first.span.needed = first.span.needed.min(needed); // a shorter object fails by minishard
                        locations.push((location, values));
                        continue;
                    }
                    Err(error) => Step::Failed(error),
                };
                steps.insert(location, step);
            }
            let (reads, mut waiting): (Vec<BlockRead>, Vec<Vec<(Location, u64)>>) = needs.into_values().unzip();
            let ended = |at: usize, block| {
                let (Some(read), Some(waiting)) = (reads.get(at), waiting.get_mut(at)) else { return };
                known.extend(waiting.drain(..).map(|(at, values)| (at, values, self.place_in(at, read, &block))));
            };
            self.acquire(exchange, &reads, ended).await;
        }
        steps.into_iter().peekable()
    }

    /// Reads minishards, given the number of values that are wanted of each. Calls `f` with each in the order of arrival; `None`
    /// if it has no keys.
    pub(crate) async fn each_minishard(
        &self,
        exchange: &Exchange,
        wanted: impl IntoIterator<Item = (Location, u64)>,
        mut f: impl FnMut(Location, Result<Option<Arc<Minishard>>>),
    ) {
        let (mut places, mut reads, mut doubtful) = (Vec::new(), Vec::new(), Vec::new());
        for (location, step) in self.plan_minishards(exchange, wanted).await {
            match step {
                Step::At(place, Ok(read)) => {
                    places.push((location, place));
                    reads.push(read);
                }
                Step::At(place, Err(error)) => doubtful.push((location, Step::At(place, Err(error)))),
                Step::Empty => f(location, Ok(None)),
                Step::Failed(error) => f(location, Err(self.at(location, error))),
            }
        }
        let ended = |at: usize, block: Result<Block>| {
            let Some((location, place)) = places.get(at) else { return };
            match block.and_then(Block::minishard) {
                Ok(minishard) => f(*location, Ok(Some(minishard))),
                Err(error) => doubtful.push((*location, Step::At(*place, Err(error)))),
            }
        };
        self.acquire(exchange, &reads, ended).await;
        for (location, step) in doubtful {
            f(location, self.minishard_of(exchange, location, step).await);
        }
    }

    /// Reads minishards, in their order. [`minishard_of`](Self::minishard_of) returns each of them.
    pub(crate) async fn read_minishards(
        &self,
        exchange: &Exchange,
        steps: Vec<(Location, Step<BlockRead>)>,
    ) -> Vec<(Location, Step<InRound>)> {
        let reads = steps.iter().filter_map(|(_, step)| match step {
            Step::At(_, Ok(read)) => Some(read.clone()),
            Step::At(_, Err(_)) | Step::Empty | Step::Failed(_) => None,
        });
        let reads: Vec<BlockRead> = reads.collect();
        let mut blocks: Vec<Option<Result<InRound>>> = reads.iter().map(|_| None).collect();
        let mut held: u64 = 0;
        let ended = |at: usize, block: Result<Block>| {
            let (Some(slot), Some(read)) = (blocks.get_mut(at), reads.get(at)) else { return };
            let with = held.saturating_add(block.as_ref().map_or(0, Block::size));
            *slot = Some(if held > 0 && with > DECODED_BYTES && block.is_ok() {
                Ok(InRound::Deferred(read.clone()))
            } else {
                held = with;
                block.map(InRound::Read)
            });
        };
        self.acquire(exchange, &reads, ended).await;
        let mut blocks = blocks.into_iter();
        let mut next = || blocks.next().flatten().unwrap_or_else(|| Err(lost()));
        let read = steps.into_iter().map(|(location, step)| match step {
            Step::At(place, read) => (location, Step::At(place, read.and_then(|_| next()))),
            Step::Empty => (location, Step::Empty),
            Step::Failed(error) => (location, Step::Failed(error)),
        });
        read.collect()
    }

    /// Returns a minishard that was read; `None` if it has no keys. Reads it if it was deferred.
    pub(crate) async fn minishard_of(
        &self,
        exchange: &Exchange,
        location: Location,
        step: Step<InRound>,
    ) -> Result<Option<Arc<Minishard>>> {
        let minishard = match step {
            Step::At(place, in_round) => {
                let block = match in_round {
                    Ok(InRound::Read(block)) => Ok(block),
                    Ok(InRound::Deferred(read)) => self.acquire_one(exchange, read).await,
                    Err(error) => Err(error),
                };
                self.minishard_in(exchange, location, &place, block).await.map(Some)
            }
            Step::Empty => Ok(None),
            Step::Failed(error) => Err(error),
        };
        minishard.map_err(|error| self.at(location, error))
    }

    /// Reads the values of found keys, in their order. The error of a request names no key, because it reads many values.
    pub(crate) async fn values(&self, exchange: &Exchange, found: &[Found]) -> Vec<Result<RemoteValue>> {
        let mut values: Vec<Option<Result<RemoteValue>>> = Vec::with_capacity(found.len());
        let (mut separate, mut spans) = (Vec::new(), Vec::new());
        for (at, found) in found.iter().enumerate() {
            values.push(match &found.in_memory {
                Some(encoded) => Some(self.verified(found, encoded.clone())),
                None => match self.value_span(found) {
                    Ok(span) => {
                        separate.push((at, found));
                        spans.push(span);
                        None
                    }
                    Err(error) => Some(Err(self.at_found(found, error))),
                },
            });
        }
        let answered = |member: usize, answer: Result<RemoteValue, Unread>| {
            let (Some((at, found)), Some(span)) = (separate.get(member), spans.get(member)) else { return };
            let value = match answer {
                Ok(encoded) => self.verified(found, encoded).map(RemoteValue::without_neighbours),
                Err(unread) => Err(self.explain(span, &unread)),
            };
            if let Some(slot) = values.get_mut(*at) {
                *slot = Some(value);
            }
        };
        self.objects.read_planned(exchange, self.request_cost(), &spans, answered).await;
        values.into_iter().map(|value| value.unwrap_or_else(|| Err(lost()))).collect()
    }
}

/// A block or a value that has no result.
pub(super) fn lost() -> Error {
    Error::internal("expected a result for everything that was requested")
}
