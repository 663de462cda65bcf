//! Lookups of many keys with requests that are planned together.
//!
//! Memory: keys are processed in windows of [`WINDOW`] minishards or [`WINDOW_KEYS`] keys in storage order, and a minishard
//! as soon as it arrives. So a batch takes its values, the cache, the requests in flight, and some hundred bytes for each key
//! of a window, whatever its indexes decode to.

use std::collections::BTreeMap;
use std::sync::Arc;

use sharddb_format::Result;
use sharddb_format::internal::ids::Location;

use crate::generation::RemoteGeneration;
use crate::lookup::Found;
use crate::minishard::Minishard;
use crate::operation::Exchange;
use crate::request::RemoteValue;
use crate::rounds::lost;

/// Maximum number of minishards of a window.
const WINDOW: usize = 1 << 14;

/// A window ends with the minishard at which it has this many keys.
const WINDOW_KEYS: usize = 1 << 18;

/// The keys of a minishard, with their positions in the input.
type Keys = BTreeMap<u64, Vec<usize>>;

/// A found key whose value did not come with its index, with its positions in the input.
type SeparateValue = (Found, Vec<usize>);

/// A batch in progress.
struct Batch<'a> {
    generation: &'a RemoteGeneration,
    exchange: &'a Exchange,
    results: Vec<Option<Result<Option<RemoteValue>>>>,
}

impl RemoteGeneration {
    /// Returns the values of keys, in their order. Each has its own error.
    pub(crate) async fn get_many(&self, exchange: &Exchange, keys: &[u64]) -> Vec<Result<Option<RemoteValue>>> {
        let mut batch = Batch { generation: self, exchange, results: keys.iter().map(|_| None).collect() };
        let mut wanted: BTreeMap<Location, Keys> = BTreeMap::new();
        for (at, key) in keys.iter().enumerate() {
            let location = self.spec.route(*key);
            if self.lacks_shard(location.shard) {
                batch.set(&[at], Ok(None))
            } else {
                wanted.entry(location).or_default().entry(*key).or_default().push(at)
            }
        }
        let mut wanted = wanted.into_iter().peekable();
        while wanted.peek().is_some() {
            let mut keys = 0;
            let window = std::iter::from_fn(|| {
                let next = wanted.next_if(|_| keys < WINDOW_KEYS)?;
                keys += next.1.len();
                Some(next)
            });
            batch.look_up(window.take(WINDOW)).await;
        }
        batch.results.into_iter().map(|result| result.unwrap_or_else(|| Err(lost()))).collect()
    }
}

impl Batch<'_> {
    /// Looks up the keys of a window.
    async fn look_up(&mut self, window: impl Iterator<Item = (Location, Keys)>) {
        let (mut open, mut separate) = (BTreeMap::new(), Vec::new());
        for (location, keys) in window {
            match self.generation.cached_minishard(self.exchange, location) {
                Some(minishard) => self.find(location, &Ok(Some(minishard)), keys, &mut separate),
                None => drop(open.insert(location, keys)),
            }
        }
        let (generation, exchange) = (self.generation, self.exchange);
        let values: Vec<(Location, u64)> = open.iter().map(|(at, keys)| (*at, keys.len() as u64)).collect();
        let read = |location, minishard| {
            self.find(location, &minishard, open.remove(&location).unwrap_or_default(), &mut separate);
        };
        generation.each_minishard(exchange, values, read).await;
        self.read_values(separate).await;
    }

    /// Finds keys in their minishard, and answers those whose values came with it.
    fn find(
        &mut self,
        location: Location,
        minishard: &Result<Option<Arc<Minishard>>>,
        keys: Keys,
        separate: &mut Vec<SeparateValue>,
    ) {
        for (key, positions) in keys {
            let found = match minishard {
                Ok(Some(minishard)) => self.generation.find_in(location, minishard, key),
                Ok(None) => Ok(None),
                Err(error) => Err(error.clone().at_key(key)),
            };
            match found {
                Ok(Some(found)) => match &found.in_memory {
                    Some(encoded) => self.end_value(&positions, self.generation.verified(&found, encoded.clone())),
                    None => separate.push((found, positions)),
                },
                Ok(None) => self.set(&positions, Ok(None)),
                Err(error) => self.set(&positions, Err(error)),
            }
        }
    }

    /// Reads values that did not come with their indexes.
    async fn read_values(&mut self, separate: Vec<SeparateValue>) {
        let (found, positions): (Vec<Found>, Vec<Vec<usize>>) = separate.into_iter().unzip();
        let values = self.generation.values(self.exchange, &found).await;
        for ((found, value), positions) in found.iter().zip(values).zip(positions) {
            self.end_value(&positions, value.map_err(|error| self.generation.at_found(found, error)));
        }
    }

    fn end_value(&mut self, positions: &[usize], value: Result<RemoteValue>) {
        self.set(positions, value.map(Some));
    }

    /// Sets the result of each of these positions.
    fn set(&mut self, positions: &[usize], result: Result<Option<RemoteValue>>) {
        for at in positions {
            if let Some(slot) = self.results.get_mut(*at) {
                *slot = Some(result.clone());
            }
        }
    }
}
