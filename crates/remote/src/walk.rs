//! A walk over the minishards of a generation, in storage order and in bounded memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::vec;

use sharddb_format::internal::ids::Location;
use sharddb_format::internal::key_bounds::KeyBounds;
use sharddb_format::{Error, ErrorKind, Result};

use crate::generation::RemoteGeneration;
use crate::locations::Locations;
use crate::lookup::Found;
use crate::minishard::Minishard;
use crate::operation::Exchange;
use crate::rounds::{InRound, MinishardPlan, Step};

/// Upper bound on the bytes that a batch reads, unless a single block is longer.
const BATCH_BYTES: u64 = 8 << 20;

/// Without a manifest or a listing, each shard that may exist takes a request.
const MOST_FOREIGN_SHARDS: u64 = 1 << 20;

/// A minishard with its location.
pub(crate) type Visited = (Location, Arc<Minishard>);

/// The position of a walk.
pub(crate) struct Walk {
    generation: Arc<RemoteGeneration>,
    /// How many values of each minishard are wanted.
    values: u64,
    locations: Locations,
    /// Minishards whose place is known, which come before `locations`.
    plan: MinishardPlan,
    /// Minishards of the last round, which come before `plan`.
    round: vec::IntoIter<(Location, Step<InRound>)>,
}

impl Walk {
    /// Starts a walk over the minishards that can hold the keys of a range, of each of which `values` are wanted.
    ///
    /// Errors: `TooLarge` if it would make a request for each of more than 2^20 shards that may exist.
    pub(crate) fn new(generation: Arc<RemoteGeneration>, bounds: KeyBounds, values: u64) -> Result<Walk> {
        let locations = Locations::of_range(generation.spec, bounds);
        let shards = locations.count().div_ceil(generation.spec.minishards());
        if generation.manifest.is_none() && shards > MOST_FOREIGN_SHARDS {
            let message = format!(
                "expected at most {MOST_FOREIGN_SHARDS} shards to look for, found {shards}: a data set without a manifest \
                 does not state which it has; copy it to a disk"
            );
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        let plan = BTreeMap::new().into_iter().peekable();
        Ok(Walk { generation, values, locations, plan, round: Vec::new().into_iter() })
    }

    pub(crate) fn generation(&self) -> &Arc<RemoteGeneration> {
        &self.generation
    }

    /// Whether the next minishard takes another round of requests. A batch of results ends there, so that it holds the
    /// responses of one round.
    pub(crate) fn is_round_done(&self) -> bool {
        self.round.as_slice().is_empty()
    }

    /// Returns the next minishard that has keys; `None` at the end.
    pub(crate) async fn next_minishard(&mut self, exchange: &Exchange) -> Result<Option<Visited>> {
        loop {
            for (location, step) in self.round.by_ref() {
                let minishard = self.generation.minishard_of(exchange, location, step).await?;
                if let Some(minishard) = minishard {
                    return Ok(Some((location, minishard)));
                }
            }
            while self.plan.peek().is_none() {
                let batch = self.locations.next_batch(&self.generation);
                if batch.is_empty() {
                    return Ok(None);
                }
                let wanted = batch.into_iter().map(|location| (location, self.values));
                self.plan = self.generation.plan_minishards(exchange, wanted).await;
            }
            let round = self.generation.next_minishards(&mut self.plan, BATCH_BYTES);
            self.round = self.generation.read_minishards(exchange, round).await.into_iter();
        }
    }
}

/// The rows of a minishard that are not taken yet.
pub(crate) struct Rows {
    location: Location,
    minishard: Arc<Minishard>,
    /// The number of the next row.
    next: usize,
}

impl Rows {
    pub(crate) fn new((location, minishard): Visited) -> Rows {
        Rows { location, minishard, next: 0 }
    }

    /// Takes the next row; `None` after the last one.
    ///
    /// Errors: `Corrupt` if its value is not within the shard.
    pub(crate) fn next(&mut self, generation: &RemoteGeneration) -> Result<Option<Found>> {
        let row = self.minishard.row(self.next).map_err(|error| generation.at(self.location, error))?;
        let Some(row) = row else { return Ok(None) };
        self.next += 1;
        generation.found(self.location, &self.minishard, row).map(Some)
    }
}
