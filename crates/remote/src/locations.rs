//! The minishards that a walk visits, in storage order and in batches.

use sharddb_format::internal::candidates::Candidates;
use sharddb_format::internal::ids::{Location, ShardNumber};
use sharddb_format::internal::key_bounds::KeyBounds;
use sharddb_format::internal::spec::ShardingSpec;

use crate::generation::RemoteGeneration;

/// Maximum number of minishards per batch.
const BATCH_MINISHARDS: usize = 4096;

/// Maximum number of shards per batch, each of which may take a request for its shard index.
const BATCH_SHARDS: usize = 32;

/// The minishards that are not visited yet.
pub(crate) struct Locations {
    /// Packed locations, in which the minishard is in the low bits; each interval from its first to its last. The last
    /// interval is the next one.
    intervals: Vec<(u64, u64)>,
}

impl Locations {
    /// Returns the minishards that can hold the keys of a range.
    pub(crate) fn of_range(spec: ShardingSpec, bounds: KeyBounds) -> Locations {
        let mut intervals = Candidates::new(spec, bounds).intervals().to_vec();
        intervals.reverse();
        Locations { intervals }
    }

    /// Returns the number of minishards that are left, at most `u64::MAX`.
    pub(crate) fn count(&self) -> u64 {
        let lens = self.intervals.iter().map(|(first, last)| (last - first).saturating_add(1));
        lens.fold(0, u64::saturating_add)
    }

    /// Returns the next minishards, of shards that the generation may have; none at the end.
    pub(crate) fn next_batch(&mut self, generation: &RemoteGeneration) -> Vec<Location> {
        let (mut batch, mut shards) = (Vec::new(), 0);
        while let Some((first, last)) = self.intervals.pop() {
            let location = generation.spec.location_of_hash(first);
            let is_other_shard = batch.last().is_none_or(|before: &Location| before.shard != location.shard);
            if is_other_shard && generation.lacks_shard(location.shard) {
                let next = generation.next_shard(location.shard);
                self.push(next.and_then(|next| first_of(&generation.spec, next)), last);
                continue;
            }
            if batch.len() == BATCH_MINISHARDS || is_other_shard && shards == BATCH_SHARDS {
                self.intervals.push((first, last));
                break;
            }
            shards += usize::from(is_other_shard);
            batch.push(location);
            self.push(first.checked_add(1), last);
        }
        batch
    }

    /// Makes the rest of an interval the next one.
    fn push(&mut self, first: Option<u64>, last: u64) {
        if let Some(first) = first.filter(|first| *first <= last) {
            self.intervals.push((first, last));
        }
    }
}

/// Returns the packed location of the first minishard of a shard.
fn first_of(spec: &ShardingSpec, shard: ShardNumber) -> Option<u64> {
    shard.get().checked_mul(spec.minishards())
}
