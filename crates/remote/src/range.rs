//! Iteration over the pairs of a range in ascending order of keys.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use sharddb_format::internal::ids::Location;
use sharddb_format::{Error, ErrorKind, Result};

use crate::generation::RemoteGeneration;
use crate::key_range::KeyRangeState;
use crate::lookup::Found;
use crate::minishard::Minishard;
use crate::operation::{Exchange, Operation};
use crate::request::RemoteValue;
use crate::scan::{PairBatch, Position};
use crate::snapshot::RemoteSnapshot;

/// Keys that are looked up together.
const LOOKUP_KEYS: usize = 256;

/// An iterator over the pairs of a range in ascending order of keys, in batches; see [`RemoteSnapshot::range`].
///
/// ```
/// use sharddb_remote::{Operation, RemoteSnapshot, RemoteValue};
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
    /// Those of [`RemoteKeyRange::next_batch`](crate::RemoteKeyRange::next_batch); `Corrupt` and `TooLarge` for a
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
        let mut batch = PairBatch::default();
        while !batch.is_full()
            && let Some(found) = self.found.pop_front()
        {
            batch.push(found);
        }
        generation.pairs(exchange, batch).await
    }
}

impl RemoteGeneration {
    /// Finds keys, in their order. The first error ends it.
    ///
    /// Memory: the values that came with their indexes.
    async fn find_many(&self, exchange: &Exchange, keys: &[u64]) -> Result<VecDeque<Found>> {
        let mut wanted: BTreeMap<Location, Vec<u64>> = BTreeMap::new();
        for key in keys {
            let location = self.spec.route(*key);
            if !self.lacks_shard(location.shard) {
                wanted.entry(location).or_default().push(*key);
            }
        }
        let mut all_found = HashMap::new();
        let mut failed = None;
        let values = wanted.iter().map(|(location, keys)| (*location, keys.len() as u64));
        let read = |location, minishard: Result<Option<Arc<Minishard>>>| {
            let find = |minishard: Arc<Minishard>| {
                for key in wanted.get(&location).into_iter().flatten() {
                    let found = self.find_in(location, &minishard, *key)?;
                    all_found.extend(found.map(|found| (*key, found)));
                }
                Ok(())
            };
            if let Err(error) = minishard.and_then(|minishard| minishard.map_or(Ok(()), find)) {
                failed.get_or_insert(error);
            }
        };
        self.each_minishard(exchange, values, read).await;
        if let Some(error) = failed {
            return Err(error);
        }
        let found = keys.iter().map(|key| {
            // each key is from an index or from the key file of this generation
            all_found.remove(key).ok_or_else(|| self.at(self.spec.route(*key), not_stored()).at_key(*key))
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
