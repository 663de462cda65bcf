//! The plan of a partitioned build: a specification, and contiguous ranges of its shards.

use crate::ids::{ShardNumber, shard_number};
use crate::plan::key_stats::counts_of;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use super::members::{Kind, Members, VERSION};
use crate::error::{Error, Result};
use crate::format::digest::Digest;
use crate::format::hash::HashFunction;
use crate::format::spec::{Encoding, ShardingSpec};
use crate::plan::{KeyStats, Plan, Profile};

/// The maximum number of parts.
const MAX_PARTS: u64 = 1 << 16;

/// A plan for pairs is cut so that the largest part has at most this multiple of the mean, if more shards allow that.
const MAX_SKEW: f64 = 1.25;

/// Number of bits that a plan for pairs may add to the least number of shard bits, for equal parts.
const MORE_BITS: u8 = 4;

const KIND: Kind = Kind {
    noun: "a plan of a partitioned build",
    tag: "sharddb_part_plan",
    names: &["sharding", "last_shards"],
    most: 4 << 20,
};

/// The plan of a partitioned build: a specification, and a contiguous range of shards for each part.
///
/// All processes of a build need the same plan. `Display` and `FromStr` use its JSON text, one line.
///
/// ```
/// use sharddb::cluster::PartPlan;
/// use sharddb::{Profile, ShardingSpec};
///
/// let plan = PartPlan::for_counts(10_000_000, 1_000_000_000, Profile::Local, 4)?;
/// assert_eq!(plan.parts(), 4);
/// assert!(plan.shards(3)?.contains(&plan.spec().max_shard()));
/// assert_eq!(plan.to_string().parse::<PartPlan>()?, plan);
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PartPlan {
    spec: ShardingSpec,
    // INVARIANT: at least one, strictly ascending, the last is that of `spec`
    last_shards: Arc<[u64]>,
}

impl PartPlan {
    /// Divides the shards of a specification into ranges of equal length.
    ///
    /// If there are fewer shards than parts, minishard bits become shard bits, so that minishards keep their keys. When
    /// none is left, minishards are divided.
    ///
    /// # Errors
    ///
    /// `InvalidInput` unless there are 1 to 65,536 parts; `InvalidSpec` if the specification cannot have that number of
    /// shards.
    pub fn even(spec: ShardingSpec, parts: u64) -> Result<PartPlan> {
        check_parts(parts)?;
        let spec = with_shards_for(spec, parts)?;
        PartPlan::new(spec, even_ends(&spec, parts))
    }

    /// Divides the shards of a specification into ranges of about equal bytes, given statistics of all pairs or of a
    /// sample of them.
    ///
    /// With the identity hash, the ranges follow the sample of the keys; with murmur, they have about equal numbers of
    /// shards. Makes shards of minishard bits like [`even`](PartPlan::even), and up to four more if these make the
    /// largest part at most 1.25 times the mean.
    ///
    /// # Errors
    ///
    /// Those of [`even`](PartPlan::even).
    pub fn by_sample(spec: ShardingSpec, sample: &KeyStats, parts: u64) -> Result<PartPlan> {
        PartPlan::balanced(spec, parts, &counts_of(sample).key_sample())
    }

    /// Plans for pairs: chooses a specification like [`Plan::new`], and divides its shards like
    /// [`by_sample`](PartPlan::by_sample).
    ///
    /// # Errors
    ///
    /// Those of [`even`](PartPlan::even).
    pub fn from_stats(stats: &KeyStats, profile: Profile, parts: u64) -> Result<PartPlan> {
        PartPlan::by_sample(Plan::new(stats, profile).spec(), stats, parts)
    }

    /// Plans for a number of distinct keys and the bytes of all values, like [`Plan::for_counts`]: murmur hash, parts
    /// of about equal numbers of shards.
    ///
    /// # Errors
    ///
    /// Those of [`even`](PartPlan::even).
    pub fn for_counts(keys: u64, value_bytes: u64, profile: Profile, parts: u64) -> Result<PartPlan> {
        PartPlan::balanced(Plan::for_counts(keys, value_bytes, profile).spec(), parts, &[])
    }

    /// Returns the plan with another encoding of the values.
    pub fn with_data_encoding(mut self, encoding: Encoding) -> PartPlan {
        self.spec = self.spec.with_data_encoding(encoding);
        self
    }

    /// Returns the specification.
    pub fn spec(&self) -> &ShardingSpec {
        &self.spec
    }

    /// Returns the number of parts.
    pub fn parts(&self) -> u64 {
        self.last_shards.len() as u64
    }

    /// Returns the part that has a key. O(log n) for n parts.
    #[inline]
    pub fn part_of(&self, key: u64) -> u64 {
        let shard = self.spec.route(key).shard.get();
        self.last_shards.partition_point(|last| *last < shard) as u64
    }

    /// Returns the shards of a part.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is no such part.
    pub fn shards(&self, part: u64) -> Result<RangeInclusive<ShardNumber>> {
        let last = |part: u64| self.last_shards.get(usize::try_from(part).ok()?).copied();
        let Some(end) = last(part) else {
            let message = format!("expected a part from 0 to {}, found {part}", self.parts() - 1);
            return Err(Error::invalid_input(message));
        };
        let start = part.checked_sub(1).and_then(last).map_or(0, |before| before + 1); // ends ascend
        Ok(shard_number(start)..=shard_number(end))
    }

    /// Returns the digest of the text, by which spills and parts state their plan.
    pub(super) fn digest(&self) -> Digest {
        Digest::of(self.to_string().as_bytes())
    }

    fn balanced(spec: ShardingSpec, parts: u64, sample: &[u64]) -> Result<PartPlan> {
        check_parts(parts)?;
        let spec = with_shards_for(spec, parts)?;
        let candidates = (0..=MORE_BITS).map_while(|more| with_more_shard_bits(spec, more).ok());
        let mut best: Option<(f64, ShardingSpec, Vec<u64>)> = None;
        for spec in candidates {
            let Cut { ends, skew } = match spec.hash_function() {
                HashFunction::Identity if !sample.is_empty() => Cut::by_sample(&spec, parts, sample),
                _ => Cut::even(&spec, parts),
            };
            if best.as_ref().is_none_or(|(least, ..)| skew < *least) {
                best = Some((skew, spec, ends));
            }
            if skew <= MAX_SKEW {
                break;
            }
        }
        let (_, spec, ends) = best.ok_or_else(|| Error::internal("no division of the shards was found"))?;
        PartPlan::new(spec, ends)
    }

    fn new(spec: ShardingSpec, last_shards: Vec<u64>) -> Result<PartPlan> {
        check_parts(last_shards.len() as u64)?;
        let ascend = last_shards.is_sorted_by(|one, next| one < next);
        if !ascend || last_shards.last() != Some(&spec.max_shard().get()) {
            let message =
                format!("expected ascending last shards that end with {}, found others", spec.max_shard().get());
            return Err(Error::invalid_input(message));
        }
        Ok(PartPlan { spec, last_shards: last_shards.into() })
    }
}

impl fmt::Display for PartPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = self.spec.to_json();
        let last: Vec<String> = self.last_shards.iter().map(u64::to_string).collect();
        write!(f, "{{\"{}\":{VERSION},\"sharding\":{spec},\"last_shards\":[{}]}}", KIND.tag, last.join(","))
    }
}

impl fmt::Debug for PartPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartPlan").field("spec", &self.spec).field("parts", &self.parts()).finish_non_exhaustive()
    }
}

impl FromStr for PartPlan {
    type Err = Error;

    /// Parses the JSON text of a plan.
    ///
    /// # Errors
    ///
    /// `InvalidInput` or `InvalidSpec` if it is anything else; `TooLarge` above 4 MiB; `Unsupported` for a later
    /// version.
    fn from_str(text: &str) -> Result<PartPlan> {
        let members = Members::parse(text, &KIND)?;
        PartPlan::new(ShardingSpec::from_json(members.raw("sharding")?.get())?, members.required("last_shards")?)
            .map_err(|error| members.malformed("last_shards", error.message()))
    }
}

fn check_parts(parts: u64) -> Result<()> {
    match parts {
        1..=MAX_PARTS => Ok(()),
        _ => Err(Error::invalid_input(format!("expected 1 to {MAX_PARTS} parts, found {parts}"))),
    }
}

/// Returns a specification with at least one shard per part.
fn with_shards_for(spec: ShardingSpec, parts: u64) -> Result<ShardingSpec> {
    let least = parts.next_power_of_two().ilog2();
    let more = least.saturating_sub(u32::from(spec.shard_bits()));
    with_more_shard_bits(spec, u8::try_from(more).unwrap_or(u8::MAX))
}

/// Returns a specification with more shard bits: first those of the minishards, then, with the identity hash, those of
/// the preshift, so that the same keys stay neighbours, and then further bits of the hash.
fn with_more_shard_bits(spec: ShardingSpec, more: u8) -> Result<ShardingSpec> {
    let of_minishards = more.min(spec.minishard_bits());
    let of_preshift = match spec.hash_function() {
        HashFunction::Identity => (more - of_minishards).min(spec.preshift_bits()),
        HashFunction::MurmurHash3X86_128 => 0,
    };
    let spec_with_more = ShardingSpec::new(
        spec.hash_function(),
        spec.preshift_bits() - of_preshift,
        spec.minishard_bits() - of_minishards,
        spec.shard_bits().saturating_add(more),
    );
    Ok(spec_with_more?
        .with_minishard_index_encoding(spec.minishard_index_encoding())
        .with_data_encoding(spec.data_encoding()))
}

/// A division of shards into parts.
struct Cut {
    /// The last shard of each part.
    ends: Vec<u64>,
    /// The size of the largest part divided by the mean.
    skew: f64,
}

impl Cut {
    fn even(spec: &ShardingSpec, parts: u64) -> Cut {
        let ends = even_ends(spec, parts);
        let mean = (spec.max_shard().get() as f64 + 1.0) / parts as f64;
        Cut { skew: largest_step(ends.iter().copied()) as f64 / mean, ends }
    }

    /// Divides the shards of a specification, of which there is at least one per part, by a sample of the keys.
    fn by_sample(spec: &ShardingSpec, parts: u64, sample: &[u64]) -> Cut {
        let mut shards: Vec<u64> = sample.iter().map(|key| spec.route(*key).shard.get()).collect();
        shards.sort_unstable();
        let max = spec.max_shard().get();
        let mut ends: Vec<u64> = Vec::new();
        for part in 0..parts {
            // every part has a shard: one after the previous part, and enough for the parts after this one
            let first = ends.last().map_or(0, |last| last + 1);
            let last = max - (parts - 1 - part);
            let end = if part + 1 == parts { max } else { quantile_end(&shards, part + 1, parts) };
            ends.push(end.clamp(first, last));
        }
        let mean = shards.len() as f64 / parts as f64;
        let through = ends.iter().map(|end| shards.partition_point(|shard| shard <= end) as u64);
        Cut { skew: largest_step(through) as f64 / mean, ends }
    }
}

/// Returns the largest difference between successive numbers, beginning with 0.
fn largest_step(ascending: impl Iterator<Item = u64>) -> u64 {
    let mut before = 0;
    ascending.map(|next| next - std::mem::replace(&mut before, next)).max().unwrap_or_default()
}

fn even_ends(spec: &ShardingSpec, parts: u64) -> Vec<u64> {
    let shards = u128::from(spec.max_shard().get()) + 1;
    let end = |part: u64| u64::try_from(u128::from(part) * shards / u128::from(parts) - 1).unwrap_or(u64::MAX);
    (1..=parts).map(end).collect()
}

/// Returns the shard whose end is closest to the quantile `part / parts` of sorted shard numbers.
fn quantile_end(shards: &[u64], part: u64, parts: u64) -> u64 {
    let rank = u128::from(part) * shards.len() as u128 / u128::from(parts);
    let rank = usize::try_from(rank).unwrap_or(usize::MAX).min(shards.len().saturating_sub(1));
    let shard = shards.get(rank).copied().unwrap_or_default();
    let before = shards.partition_point(|other| *other < shard);
    let through = shards.partition_point(|other| *other <= shard);
    if rank - before < through - rank { shard.saturating_sub(1) } else { shard }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn spec(hash: HashFunction, preshift: u8, minishard: u8, shard: u8) -> ShardingSpec {
        ShardingSpec::new(hash, preshift, minishard, shard).unwrap()
    }

    const MURMUR: HashFunction = HashFunction::MurmurHash3X86_128;

    /// Returns the number of keys of each part.
    fn counts(plan: &PartPlan, keys: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut counts = vec![0; usize::try_from(plan.parts()).unwrap()];
        for key in keys {
            let part = plan.part_of(key);
            assert!(plan.shards(part).unwrap().contains(&plan.spec().route(key).shard), "key {key}");
            counts[usize::try_from(part).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn every_shard_is_in_exactly_one_part() {
        for (shard_bits, parts) in [(0, 1), (3, 1), (3, 3), (3, 8), (4, 7), (64, 5), (64, 1), (16, 65_536)] {
            let plan = PartPlan::even(spec(MURMUR, 0, 0, shard_bits), parts).unwrap();
            assert_eq!(plan.spec().shard_bits(), shard_bits);
            let mut next = Some(0);
            for part in 0..parts {
                let shards = plan.shards(part).unwrap();
                assert_eq!(Some(shards.start().get()), next, "part {part}");
                assert!(shards.start() <= shards.end());
                next = shards.end().get().checked_add(1);
            }
            assert_eq!(next, plan.spec().max_shard().get().checked_add(1));
            assert_eq!(plan.shards(parts).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn minishard_bits_become_shard_bits_and_then_other_bits() {
        let cases = [
            (spec(MURMUR, 0, 10, 0), 8, spec(MURMUR, 0, 7, 3)),
            (spec(MURMUR, 0, 2, 0), 16, spec(MURMUR, 0, 0, 4)),
            (spec(MURMUR, 5, 0, 0), 3, spec(MURMUR, 5, 0, 2)),
            (spec(HashFunction::Identity, 3, 2, 1), 9, spec(HashFunction::Identity, 2, 0, 4)),
            (spec(HashFunction::Identity, 0, 0, 0), 2, spec(HashFunction::Identity, 0, 0, 1)),
            (spec(MURMUR, 0, 10, 5), 32, spec(MURMUR, 0, 10, 5)),
        ];
        for (given, parts, expected) in cases {
            let given = given.with_data_encoding(Encoding::Gzip).with_minishard_index_encoding(Encoding::Gzip);
            let expected = expected.with_data_encoding(Encoding::Gzip).with_minishard_index_encoding(Encoding::Gzip);
            assert_eq!(*PartPlan::even(given, parts).unwrap().spec(), expected, "{parts} parts");
        }
    }

    #[test]
    fn parts_of_murmur_are_about_equal_for_every_number_of_parts() {
        for parts in [1, 2, 3, 5, 7, 48, 100, 1000] {
            let plan = PartPlan::for_counts(1 << 24, 1 << 34, Profile::Local, parts).unwrap();
            let counts = counts(&plan, 0..1_000_000);
            let mean = 1_000_000.0 / parts as f64;
            let largest = counts.into_iter().max().unwrap() as f64;
            assert!(largest < 1.25 * mean + 6.0 * mean.sqrt(), "{parts} parts: {largest} of {mean}");
        }
    }

    /// Dense keys that begin and end anywhere, and keys most of which are in a small range.
    #[test]
    fn parts_of_identity_are_about_equal_for_skewed_keys() {
        let dense: Vec<u64> = (70_000..250_000).collect();
        let skewed: Vec<u64> = (0..150_000).chain((1 << 20..1 << 22).step_by(100)).collect();
        for (keys, spec) in
            [(&dense, spec(HashFunction::Identity, 3, 12, 3)), (&skewed, spec(HashFunction::Identity, 0, 12, 10))]
        {
            let mut stats = KeyStats::new();
            keys.iter().for_each(|key| stats.insert(*key, 0, 100));
            for parts in [1, 2, 3, 7, 16, 61] {
                let plan = PartPlan::by_sample(spec, &stats, parts).unwrap();
                let counts = counts(&plan, keys.iter().copied());
                let mean = keys.len() as f64 / parts as f64;
                let largest = counts.iter().max().copied().unwrap() as f64;
                assert!(largest < 1.5 * mean, "{parts} parts: {counts:?}");
            }
        }
        let mut stats = KeyStats::new();
        dense.iter().for_each(|key| stats.insert(*key, 0, 100));
        let plan = PartPlan::from_stats(&stats, Profile::Local, 12).unwrap();
        assert_eq!(plan.spec().hash_function(), HashFunction::Identity);
        assert!(counts(&plan, dense.iter().copied()).into_iter().max().unwrap() < 18_750);
    }

    /// All keys in one shard that cannot be divided: parts are not equal, and each has a shard nevertheless.
    #[test]
    fn one_key_many_times_does_not_end_the_division() {
        let mut stats = KeyStats::new();
        (0..1000).for_each(|_| stats.insert(7, 0, 100));
        for spec in [spec(HashFunction::Identity, 0, 0, 3), spec(MURMUR, 0, 3, 0)] {
            let plan = PartPlan::by_sample(spec, &stats, 8).unwrap();
            assert_eq!(plan.parts(), 8);
        }
        assert_eq!(PartPlan::from_stats(&KeyStats::new(), Profile::Remote, 3).unwrap().parts(), 3);
    }

    #[test]
    fn parses_what_it_displays() {
        for parts in [1, 5, 4096] {
            let plan = PartPlan::even(spec(MURMUR, 2, 9, 1), parts).unwrap().with_data_encoding(Encoding::Gzip);
            let read: PartPlan = plan.to_string().parse().unwrap();
            assert_eq!((&read, read.digest()), (&plan, plan.digest()));
            assert!(!plan.to_string().contains('\n'));
        }
    }

    #[test]
    fn refuses_other_numbers_of_parts_and_other_texts() {
        for parts in [0, MAX_PARTS + 1, u64::MAX] {
            let error = PartPlan::even(spec(MURMUR, 0, 9, 1), parts).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(PartPlan::even(spec(MURMUR, 0, 0, 64), 2).unwrap().parts(), 2, "enough shards");
        let text = PartPlan::even(spec(MURMUR, 0, 2, 2), 2).unwrap().to_string();
        let cases = [
            ("[1,3]", "[1,4]", ErrorKind::InvalidInput),
            ("[1,3]", "[3,1]", ErrorKind::InvalidInput),
            ("[1,3]", "[3,3]", ErrorKind::InvalidInput),
            ("[1,3]", "[]", ErrorKind::InvalidInput),
            ("[1,3]", "[1.5,3]", ErrorKind::InvalidInput),
            ("[1,3]", "[-1,3]", ErrorKind::InvalidInput),
            ("last_shards", "first_shards", ErrorKind::InvalidInput),
            ("\"last_shards\":[1,3]", "\"last_shards\":[1,3],\"more\":1", ErrorKind::InvalidInput),
            ("\"last_shards\":[1,3]", "\"last_shards\":[1,3],\"last_shards\":[1,3]", ErrorKind::InvalidInput),
            ("sharddb_part_plan\":1", "sharddb_part_plan\":2", ErrorKind::Unsupported),
            ("sharddb_part_plan", "sharddb_spill", ErrorKind::InvalidInput),
            ("identity", "md5", ErrorKind::InvalidSpec),
        ];
        for (from, to, kind) in cases {
            let text = text.replace("murmurhash3_x86_128", "identity").replacen(from, to, 1);
            let error = text.parse::<PartPlan>().unwrap_err();
            assert_eq!(error.kind(), kind, "{text}: {error}");
        }
        for text in ["", "{", "null", "[]", "7", "\u{feff}{}"] {
            assert_eq!(text.parse::<PartPlan>().unwrap_err().kind(), ErrorKind::InvalidInput, "{text:?}");
        }
        let long = " ".repeat(KIND.most) + &text;
        assert_eq!(long.parse::<PartPlan>().unwrap_err().kind(), ErrorKind::TooLarge);
    }
}
