//! The rounds of requests of lookups of many keys and of walks. Each minishard and each value has its own error.
//!
//! ```text
//! plan_minishards   blocks that state places  blocks of the minishard table or of shard indexes, if they are not in memory
//! read_minishards   minishards                with the values of short ones
//! values            the other values
//! ```
//!
//! The requests of a round are planned together. Its memory is bounded twice: by [`next_run`] for the bytes of its requests,
//! and by [`DECODED_BYTES`] for the minishards that it returns.

use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;
use std::sync::Arc;

use sharddb_format::internal::ids::Location;
use sharddb_format::{Error, Result};

use crate::acquire::Acquired;
use crate::block::{Block, BlockName, BlockRead};
use crate::generation::RemoteGeneration;
use crate::lookup::Found;
use crate::minishard::Minishard;
use crate::objects::Unread;
use crate::operation::Exchange;
use crate::place::{Place, PlaceStep};
use crate::request::RemoteValue;

/// Maximum number of bytes of a run of requests of a batch, unless a single one is longer.
pub(crate) const RUN_BYTES: u64 = 32 << 20;

/// Upper bound on the minishards in memory that a round returns, unless a single one is longer.
const DECODED_BYTES: u64 = 128 << 20;

/// The bytes of memory that a byte of a gzip index is expected to take. More is correct and slower: the last minishards of
/// a round are deferred then.
const GZIP_RATIO: u64 = 4;

/// What is read of each minishard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Index and checks.
    Indexes,
    /// Also the values of short minishards, with the same request.
    Minishards,
}

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
        next_run(plan, most, |(_, step)| match step {
            Step::At(_, Ok(read)) => read.span.len().saturating_mul(ratio),
            Step::At(_, Err(_)) | Step::Empty | Step::Failed(_) => 0,
        })
    }

    /// Finds the places of minishards. Where the minishard table is damaged, reads the shard indexes in another round.
    pub(crate) async fn plan_minishards(
        &self,
        exchange: &Exchange,
        locations: impl IntoIterator<Item = Location>,
        reads: Reads,
    ) -> MinishardPlan {
        let mut steps = BTreeMap::new();
        let mut known: Vec<(Location, Result<PlaceStep>)> =
            locations.into_iter().map(|location| (location, self.known_place(location))).collect();
        while !known.is_empty() {
            let mut needs: BTreeMap<BlockName, (BlockRead, Vec<Location>)> = BTreeMap::new();
            for (location, known) in known.drain(..) {
                let step = match known {
                    Ok(PlaceStep::Place(Some(place))) => Step::At(place, self.read_of(location, &place, reads)),
                    Ok(PlaceStep::Place(None)) => Step::Empty,
                    Ok(PlaceStep::Read(read)) => {
                        let needed = read.span.needed;
                        let (first, locations) = needs.entry(read.block).or_insert_with(|| (read, Vec::new()));
                        first.span.needed = first.span.needed.min(needed); // a shorter object fails by minishard
                        locations.push(location);
                        continue;
                    }
                    Err(error) => Step::Failed(error),
                };
                steps.insert(location, step);
            }
            let mut needs = needs.into_values().peekable();
            while needs.peek().is_some() {
                let run = next_run(&mut needs, RUN_BYTES, |(read, _)| read.span.len());
                let (reads, locations): (Vec<BlockRead>, Vec<Vec<Location>>) = run.into_iter().unzip();
                let blocks = self.acquire(exchange, &reads).await;
                for ((read, locations), block) in reads.iter().zip(locations).zip(&blocks) {
                    known.extend(locations.into_iter().map(|at| (at, self.place_in(at, read, block))));
                }
            }
        }
        steps.into_iter().peekable()
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
        let mut acquired = self.acquire_within(exchange, &reads, DECODED_BYTES).await.into_iter();
        let mut block_of = |read: Result<BlockRead>| {
            let read = read?;
            Ok(match acquired.next().unwrap_or_else(|| Err(lost()))? {
                Acquired::Block(block) => InRound::Read(block),
                Acquired::Deferred => InRound::Deferred(read),
            })
        };
        let read = steps.into_iter().map(|(location, step)| match step {
            Step::At(place, read) => (location, Step::At(place, block_of(read))),
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
        self.objects.read_planned(exchange, &spans, answered).await;
        values.into_iter().map(|value| value.unwrap_or_else(|| Err(lost()))).collect()
    }

    fn read_of(&self, location: Location, place: &Place, reads: Reads) -> Result<BlockRead> {
        match reads {
            Reads::Indexes => self.read_of_index(location, place),
            Reads::Minishards => self.read_of_minishard(location, place),
        }
    }
}

/// Takes the next items, as long as they have at most `most` bytes together; at least one.
pub(crate) fn next_run<T>(items: &mut Peekable<impl Iterator<Item = T>>, most: u64, len: impl Fn(&T) -> u64) -> Vec<T> {
    let mut left = most;
    let mut run = Vec::new();
    while let Some(item) = items.next_if(|item| run.is_empty() || len(item) <= left) {
        left = left.saturating_sub(len(&item));
        run.push(item);
    }
    run
}

/// A block or a value that has no result.
pub(super) fn lost() -> Error {
    Error::internal("expected a result for everything that was requested")
}
