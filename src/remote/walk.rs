//! A walk over the minishards of a generation, in storage order and in bounded memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::ids::Location;
use crate::read::sorted_keys::bounds::KeyBounds;
use crate::remote::generation::RemoteGeneration;
use crate::remote::locations::Locations;
use crate::remote::lookup::Found;
use crate::remote::minishard::Minishard;
use crate::remote::operation::Exchange;
use crate::remote::part::PartRead;
use crate::remote::rounds::{MinishardPlan, Reads, Step, next_minishards};

/// Upper bound on the bytes that a batch reads, unless a single part is longer.
const BATCH_BYTES: u64 = 8 << 20;

/// Without a manifest or a listing, each shard that may exist takes a request.
const MOST_FOREIGN_SHARDS: u64 = 1 << 20;

/// A minishard with its location.
pub(crate) type Visited = (Location, Arc<Minishard>);

/// The position of a walk.
pub(crate) struct Walk {
    generation: Arc<RemoteGeneration>,
    reads: Reads,
    locations: Locations,
    /// Minishards whose place is known, which come before `locations`.
    plan: MinishardPlan,
}

impl Walk {
    /// Starts a walk over the minishards that can hold the keys of a range.
    ///
    /// Errors: `TooLarge` if it would make a request for each of more than 2^20 shards that may exist.
    pub(crate) fn new(generation: Arc<RemoteGeneration>, bounds: KeyBounds, reads: Reads) -> Result<Walk> {
        let locations = Locations::of_range(generation.spec, bounds);
        let shards = locations.count().div_ceil(generation.spec.minishards());
        if generation.manifest.is_none() && shards > MOST_FOREIGN_SHARDS {
            let message = format!(
                "expected at most {MOST_FOREIGN_SHARDS} shards to look for, found {shards}: a data set without a manifest \
                 does not state which it has; copy it to a disk"
            );
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        Ok(Walk { generation, reads, locations, plan: BTreeMap::new().into_iter().peekable() })
    }

    pub(crate) fn generation(&self) -> &Arc<RemoteGeneration> {
        &self.generation
    }

    /// Returns the next minishards that have keys; `None` at the end.
    pub(crate) async fn next_minishards(&mut self, exchange: &Exchange) -> Result<Option<Vec<Visited>>> {
        while self.plan.peek().is_none() {
            let batch = self.locations.next_batch(&self.generation);
            if batch.is_empty() {
                return Ok(None);
            }
            self.plan = self.generation.plan_minishards(exchange, batch, self.reads).await;
        }
        let batch = next_minishards(&mut self.plan, BATCH_BYTES);
        self.generation.visit(exchange, batch).await.map(Some)
    }
}

impl RemoteGeneration {
    /// Reads minishards, and returns those that have keys. The first error ends it.
    pub(crate) async fn visit(
        &self,
        exchange: &Exchange,
        steps: Vec<(Location, Step<PartRead>)>,
    ) -> Result<Vec<Visited>> {
        let mut visited = Vec::with_capacity(steps.len());
        for (location, step) in self.read_minishards(exchange, steps).await {
            let minishard = self.minishard_of(exchange, location, step).await?;
            visited.extend(minishard.map(|minishard| (location, minishard)));
        }
        Ok(visited)
    }
}

/// The rows of minishards that are not taken yet.
pub(crate) struct Rows {
    visited: VecDeque<Visited>,
    /// The number of the next row in the first minishard.
    next: usize,
}

impl Rows {
    pub(crate) fn new(visited: Vec<Visited>) -> Rows {
        Rows { visited: visited.into(), next: 0 }
    }

    /// Takes the next row.
    ///
    /// Errors: `Corrupt` if its value is not within the shard.
    pub(crate) fn next(&mut self, generation: &RemoteGeneration) -> Result<Option<Found>> {
        while let Some((location, minishard)) = self.visited.front() {
            if let Some(row) = minishard.row(self.next).map_err(|error| generation.at(*location, error))? {
                self.next += 1;
                return generation.found(*location, minishard.clone(), row).map(Some);
            }
            self.visited.pop_front();
            self.next = 0;
        }
        Ok(None)
    }
}
