//! Iteration over the pairs of a range in ascending order of keys.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::ops::RangeBounds;

use crate::error::{Error, ErrorKind, Result};
use crate::ids::Location;
use crate::remote::generation::RemoteGeneration;
use crate::remote::key_range::KeyRangeState;
use crate::remote::lookup::Found;
use crate::remote::operation::{Exchange, Operation};
use crate::remote::request::RemoteValue;
use crate::remote::rounds::Reads;
use crate::remote::scan::{Position, take_batch};
use crate::remote::snapshot::RemoteSnapshot;

/// Keys that are looked up together. As many minishards may be in memory.
const LOOKUP_KEYS: usize = 256;

/// An iterator over the pairs of a range in ascending order of keys, in batches; see [`RemoteSnapshot::range`].
///
/// ```
/// use sharddb::remote::{Operation, RemoteSnapshot, RemoteValue};
///
/// type Pairs = Vec<(u64, RemoteValue)>;
///
/// fn print(snapshot: &RemoteSnapshot, run: impl Fn(Operation<'_, Option<Pairs>>) -> Option<Pairs>) {
///     let mut range = snapshot.range(1000..2000);
///     while let Some(batch) = run(range.next_batch()) {
///         for (key, value) in batch {
///             println!("{key}: {} bytes", value.len());
///         }
///     }
/// }
/// ```
pub struct RemoteRange(Position<RangeState>);

struct RangeState {
    keys: KeyRangeState,
    /// Keys that were found, whose values were not read.
    found: VecDeque<Found>,
}

impl RemoteSnapshot {
    /// Iterates over the pairs of a range in ascending order of keys, in batches.
    ///
    /// Cost: that of [`key_range`](RemoteSnapshot::key_range), and lookups that are planned for 256 keys together.
    pub fn range(&self, range: impl RangeBounds<u64>) -> RemoteRange {
        let keys = KeyRangeState::new(self.generation.clone(), &range);
        RemoteRange(Position::At(RangeState { keys, found: VecDeque::new() }))
    }
}

impl RemoteRange {
    /// Returns the next pairs, at least one; `None` at the end. A batch ends with the value that reaches 8 MiB of stored
    /// values. An error ends the iteration.
    ///
    /// # Errors
    ///
    /// Those of [`RemoteKeyRange::next_batch`](crate::remote::RemoteKeyRange::next_batch); `Corrupt` and `TooLarge` for a
    /// value.
    pub fn next_batch(&mut self) -> Operation<'_, Option<Vec<(u64, RemoteValue)>>> {
        Operation::new(|exchange| async move {
            let mut state = self.0.take()?;
            let pairs = state.next_pairs(&exchange).await?;
            self.0 = Position::At(state);
            Ok(pairs)
        })
    }
}

impl RangeState {
    async fn next_pairs(&mut self, exchange: &Exchange) -> Result<Option<Vec<(u64, RemoteValue)>>> {
        let generation = self.keys.generation().clone();
        while self.found.is_empty() {
            let Some(keys) = self.keys.next_keys(exchange, LOOKUP_KEYS).await? else { return Ok(None) };
            self.found = generation.find_many(exchange, &keys).await?;
        }
        let found = take_batch(|| Ok(self.found.pop_front()))?;
        generation.pairs(exchange, &found).await.map(Some)
    }
}

impl RemoteGeneration {
    /// Finds keys, in their order. The first error ends it.
    async fn find_many(&self, exchange: &Exchange, keys: &[u64]) -> Result<VecDeque<Found>> {
        let locations = keys.iter().map(|key| self.spec.route(*key));
        let locations: BTreeSet<Location> = locations.filter(|location| !self.lacks_shard(location.shard)).collect();
        let plan = self.plan_minishards(exchange, locations, Reads::Minishards).await;
        let minishards: HashMap<_, _> = self.visit(exchange, plan.collect()).await?.into_iter().collect();
        let found = keys.iter().map(|key| {
            let location = self.spec.route(*key);
            let minishard = minishards.get(&location).cloned();
            let found = minishard.map(|minishard| self.find_in(location, minishard, *key)).transpose()?.flatten();
            // each key is from an index or from the key file of this generation
            found.ok_or_else(|| self.at(location, not_stored()).at_key(*key))
        });
        found.collect()
    }
}

fn not_stored() -> Error {
    Error::new(
        ErrorKind::Corrupt,
        "expected the key of the key file in its minishard, found none; run `sharddb verify`",
    )
}

impl fmt::Debug for RemoteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteRange").finish_non_exhaustive()
    }
}
