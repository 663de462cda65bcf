//! The minishards that can hold the keys of a range.

use std::ops::Range;

use crate::hash::HashFunction;
use crate::ids::{Location, MinishardNumber, ShardNumber};
use crate::key_bounds::KeyBounds;
use crate::spec::ShardingSpec;

/// The minishards that can hold the keys of a range: all of them, unless the hash is the identity and the range is so
/// narrow that its hashes are fewer than the minishards. Then they are one or two intervals in storage order.
#[derive(Debug)]
pub struct Candidates {
    spec: ShardingSpec,
    /// Packed locations; each interval from its first to its last, both included.
    intervals: Vec<(u64, u64)>,
}

impl Candidates {
    pub fn new(spec: ShardingSpec, bounds: KeyBounds) -> Candidates {
        let most = match spec.shard_bits() + spec.minishard_bits() {
            64 => u64::MAX,
            bits => (1 << bits) - 1,
        };
        let intervals = match spec.hash_function() {
            HashFunction::MurmurHash3X86_128 => vec![(0, most)],
            // consecutive keys have equal or consecutive hashes, of which the low bits are the location
            HashFunction::Identity => {
                let (first, last) = (spec.hash(bounds.first()), spec.hash(bounds.last()));
                match (first & most, last & most) {
                    _ if last - first >= most => vec![(0, most)],
                    (first, last) if first <= last => vec![(first, last)],
                    (first, last) => vec![(0, last), (first, most)],
                }
            }
        };
        Candidates { spec, intervals }
    }

    /// Returns the intervals of packed locations in storage order, each from its first to its last.
    pub fn intervals(&self) -> &[(u64, u64)] {
        &self.intervals
    }

    /// Returns the number of minishards, at most `u64::MAX`.
    pub fn count(&self) -> u64 {
        let lens = self.intervals.iter().map(|(first, last)| (last - first).saturating_add(1));
        lens.fold(0, u64::saturating_add)
    }

    /// Iterates over all minishards in storage order.
    pub fn locations(&self) -> impl Iterator<Item = Location> + '_ {
        self.intervals.iter().flat_map(|(first, last)| *first..=*last).map(|packed| self.spec.location_of_hash(packed))
    }

    /// Returns the minishards of a shard, as up to two ranges. Some may be empty.
    pub fn of_shard(&self, shard: ShardNumber) -> impl Iterator<Item = Range<MinishardNumber>> + '_ {
        self.intervals.iter().map(move |(first, last)| {
            let (first, last) = (self.spec.location_of_hash(*first), self.spec.location_of_hash(*last));
            let start = if first.shard == shard { first.minishard.0 } else { 0 };
            let end = if last.shard == shard { last.minishard.0 + 1 } else { self.spec.minishards() };
            let end = if (first.shard..=last.shard).contains(&shard) { end } else { start };
            MinishardNumber(start)..MinishardNumber(end)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every key of every range is in a candidate, and narrow ranges have no others.
    #[test]
    fn candidates_are_the_locations_of_the_keys() {
        let specs = [(0, 0, 0), (0, 2, 1), (1, 2, 1), (3, 1, 2), (2, 0, 3), (0, 3, 0), (64, 2, 2), (63, 1, 1)];
        for (preshift, minishard_bits, shard_bits) in specs {
            let spec = ShardingSpec::new(HashFunction::Identity, preshift, minishard_bits, shard_bits).unwrap();
            for base in [0, u64::MAX - 99] {
                for first in 0..40 {
                    for last in first..100 {
                        check(spec, KeyBounds::new(&(base + first..=base + last)).unwrap());
                    }
                }
            }
            check_all(spec, KeyBounds::ALL);
        }
        let murmur = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 2, 3).unwrap();
        check_all(murmur, KeyBounds::new(&(7..8)).unwrap());
    }

    fn check(spec: ShardingSpec, bounds: KeyBounds) {
        let expected: BTreeSet<Location> = (bounds.first()..=bounds.last()).map(|key| spec.route(key)).collect();
        assert_eq!(by_shard(spec, bounds), expected, "{spec} {bounds:?}");
    }

    fn check_all(spec: ShardingSpec, bounds: KeyBounds) {
        let hashes = match (spec.hash_function(), spec.preshift_bits()) {
            (HashFunction::Identity, 64) => 1,
            (HashFunction::Identity, 63) => 2,
            _ => u64::MAX,
        };
        let all = ((1u64 << spec.shard_bits()) * spec.minishards()).min(hashes);
        assert_eq!(by_shard(spec, bounds).len() as u64, all, "{spec} {bounds:?}");
    }

    fn by_shard(spec: ShardingSpec, bounds: KeyBounds) -> BTreeSet<Location> {
        let candidates = Candidates::new(spec, bounds);
        let listed: Vec<Location> = candidates.locations().collect();
        assert!(listed.is_sorted_by(|one, next| one < next));
        assert_eq!(listed.len() as u64, candidates.count());
        let mut by_shard = BTreeSet::new();
        for shard in (0..=spec.max_shard().0).map(ShardNumber) {
            for range in candidates.of_shard(shard) {
                by_shard.extend(
                    (range.start.0..range.end.0).map(|number| Location { shard, minishard: MinishardNumber(number) }),
                );
            }
        }
        assert_eq!(by_shard, listed.into_iter().collect());
        by_shard
    }

    #[test]
    fn all_64_bits() {
        let spec = ShardingSpec::new(HashFunction::Identity, 0, 32, 32).unwrap();
        assert_eq!(Candidates::new(spec, KeyBounds::ALL).count(), u64::MAX, "saturated");
        let narrow = Candidates::new(spec, KeyBounds::new(&(u64::MAX - 3..)).unwrap());
        assert_eq!(narrow.count(), 4);
    }
}
