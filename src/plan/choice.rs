//! The choice of a sharding specification, given how the data set will be read.
//!
//! Numbers of bits are computed with integers, so no rounding of a logarithm decides; only the skew is a float.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use super::key_stats::{KeyStats, counts_of};
use super::skew::KeyFacts;
use crate::error::{Error, Result};
use crate::format::hash::HashFunction;
use crate::format::spec::{Encoding, ShardingSpec};

/// Bytes of index and checksums per key, approximately, for the size of a shard.
const INDEX_LEN: u64 = 32;

/// Identity is chosen only if the largest shard is at most this multiple of the mean.
const MAX_SKEW: f64 = 1.25;

const MAX_MINISHARD_BITS: u8 = 32;

/// How a data set will be read, which decides the sizes of its minishards and shards.
///
/// ```
/// use sharddb::Profile;
///
/// let profile: Profile = "remote".parse()?;
/// assert_eq!((profile, profile.as_str()), (Profile::Remote, "remote"));
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Profile {
    /// From memory or disk of the same machine: 4 to 8 keys per minishard, raw minishard indexes, shards of about 256 MiB.
    #[default]
    Local,
    /// Over HTTP by web clients: 500 to 1000 keys per minishard, gzip minishard indexes, shards of about 50 MB.
    Remote,
    /// The bits that cloud-volume computes for hashed keys: up to about 1400 keys per minishard and 512 minishards per
    /// shard, gzip minishard indexes.
    CloudVolume,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Profile; 3] = [Profile::Local, Profile::Remote, Profile::CloudVolume];

    /// Returns the name: `local`, `remote` or `cloudvolume`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
            Self::CloudVolume => "cloudvolume",
        }
    }
}

impl FromStr for Profile {
    type Err = Error;

    /// Parses the name of a profile, as [`as_str`](Profile::as_str) returns it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for any other text.
    fn from_str(name: &str) -> Result<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.as_str() == name).ok_or_else(|| {
            Error::invalid_input(format!("expected a profile local, remote or cloudvolume, found \"{name}\""))
        })
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The sharding specification chosen for a set of pairs, and why.
///
/// ```
/// use sharddb::Profile;
/// use sharddb::plan::{KeyStats, Plan, PlanReason};
///
/// let mut stats = KeyStats::new();
/// (0..100_000).for_each(|number: u64| stats.insert(number.wrapping_mul(0x9e3779b97f4a7c15), 0, 100));
///
/// let plan = Plan::new(&stats, Profile::Local);
/// assert_eq!((plan.spec().minishard_bits(), plan.spec().shard_bits()), (14, 0));
/// assert_eq!((plan.keys(), plan.stored_bytes()), (100_000, 100_000 * (100 + 32)));
/// assert!(matches!(plan.reason(), PlanReason::Sparse { density, .. } if density < 0.001));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    spec: ShardingSpec,
    profile: Profile,
    keys: u64,
    stored_bytes: u64,
    reason: PlanReason,
}

/// Why a [`Plan`] uses the identity hash or murmur.
///
/// ```
/// use sharddb::Profile;
/// use sharddb::plan::{Plan, PlanReason};
///
/// assert_eq!(Plan::for_counts(1000, 1 << 20, Profile::Local).reason(), PlanReason::UnknownKeys);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum PlanReason {
    /// Identity: the keys are dense and fill the shards evenly.
    #[non_exhaustive]
    Dense {
        /// The number of keys in the largest shard divided by the mean.
        skew: f64,
    },
    /// Murmur: the keys are dense, but identity would fill the shards unevenly.
    #[non_exhaustive]
    Uneven {
        /// The number of keys in the largest shard divided by the mean, in the most even specification considered.
        skew: f64,
    },
    /// Murmur: the keys are not dense.
    #[non_exhaustive]
    Sparse {
        /// The fraction of the numbers between the smallest and the largest key that are keys. If all keys agree in
        /// their lowest bits, only numbers that do so too are counted.
        density: f64,
    },
    /// Murmur: one minishard holds all keys.
    #[non_exhaustive]
    FewKeys {
        /// The profile's limit on the mean number of keys per minishard.
        limit: u64,
    },
    /// Murmur: only the numbers of keys and bytes are known.
    UnknownKeys,
    /// Murmur: the profile has a rule of its own and ignores the distribution of the keys.
    ProfileRule,
}

impl Plan {
    /// Chooses a specification for pairs.
    ///
    /// It uses murmur without preshift, or the identity hash with a preshift where that is better:
    /// [`Local`](Profile::Local) and [`Remote`](Profile::Remote) choose identity if the keys are at least half of the
    /// numbers between the smallest and the largest key (or of the multiples of a power of two) and the largest shard
    /// holds at most 1.25 times the mean. A minishard then holds neighbouring keys, the shards have all keys in
    /// ascending order, and all minishards are about equally full. Where values are too large to meet both targets of a
    /// profile, `Local` makes larger shards and `Remote` smaller minishards. Without pairs there is one minishard.
    ///
    /// Values are raw; for gzip use [`ShardingSpec::with_data_encoding`]. The encoding of minishard indexes is the
    /// profile's.
    ///
    /// Cost: sorts a sample of the keys. Independent of the number of pairs, about a millisecond.
    pub fn new(stats: &KeyStats, profile: Profile) -> Plan {
        Plan::with_max_shard_bytes(stats, profile, u64::MAX)
    }

    /// Chooses a specification like [`new`](Plan::new), with a mean of at most `most` bytes per shard.
    ///
    /// Smaller shards make updates cheaper, since an update rewrites every shard with a change. With the identity hash
    /// the largest shard may hold 1.25 times the mean. A shard holds at least one minishard of the profile's size.
    ///
    /// ```
    /// use sharddb::Profile;
    /// use sharddb::plan::{KeyStats, Plan};
    ///
    /// let mut stats = KeyStats::new();
    /// (0..100_000).for_each(|number: u64| stats.insert(number.wrapping_mul(0x9e3779b97f4a7c15), 0, 100));
    /// let plan = Plan::with_max_shard_bytes(&stats, Profile::Local, 1 << 20);
    /// assert_eq!((plan.spec().minishard_bits(), plan.spec().shard_bits()), (10, 4)); // 16 shards of 825,000 bytes
    /// ```
    pub fn with_max_shard_bytes(stats: &KeyStats, profile: Profile, most: u64) -> Plan {
        let stats = counts_of(stats);
        let keys = KeyFacts::new(stats);
        let pair_bytes = u128::from(stats.value_bytes()) + u128::from(stats.preamble_bytes());
        let key_bytes = pair_bytes * u128::from(keys.distinct) / u128::from(stats.pairs().max(1));
        Plan::choose(Totals::new(keys.distinct, key_bytes), Some(&keys), profile, most)
    }

    /// Chooses a specification for pairs of which only the number of distinct keys and the bytes of all values are known.
    ///
    /// It uses murmur without preshift, and encodings like [`new`](Plan::new).
    ///
    /// Cost: O(1).
    pub fn for_counts(keys: u64, value_bytes: u64, profile: Profile) -> Plan {
        Plan::choose(Totals::new(keys, value_bytes.into()), None, profile, u64::MAX)
    }

    /// The specification.
    pub fn spec(&self) -> ShardingSpec {
        self.spec
    }

    /// The profile that the specification was chosen for.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Why the specification uses identity or murmur.
    pub fn reason(&self) -> PlanReason {
        self.reason
    }

    /// The number of distinct keys: exact if no keys are repeated or up to 24,576 are distinct, an estimate within about
    /// 5 % otherwise.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// The expected bytes of all shards, which decide the number of shards: values, preambles, and 32 bytes per key for
    /// index and checksums.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    fn choose(totals: Totals, keys: Option<&KeyFacts<'_>>, profile: Profile, max_shard_bytes: u64) -> Plan {
        let below = max_shard_bytes.saturating_add(1);
        let (spec, reason) = match profile {
            Profile::Local => LOCAL.with_shards_below(below).choose(totals, keys),
            Profile::Remote => REMOTE.with_shards_below(below).choose(totals, keys),
            Profile::CloudVolume => {
                (with_shards_below(below, cloud_volume(totals.keys), totals), PlanReason::ProfileRule)
            }
        };
        let stored_bytes = u64::try_from(totals.stored_bytes).unwrap_or(u64::MAX);
        Plan { spec, profile, keys: totals.keys, stored_bytes, reason }
    }
}

/// Sums over the distinct keys.
#[derive(Clone, Copy)]
struct Totals {
    keys: u64,
    stored_bytes: u128,
}

impl Totals {
    fn new(keys: u64, value_bytes: u128) -> Totals {
        Totals { keys, stored_bytes: value_bytes + u128::from(keys) * u128::from(INDEX_LEN) }
    }
}

/// The sizes that a profile aims at. One bit more halves a size, so a target is a range from half of a bound up to it.
struct Target {
    /// Upper bound on the mean number of keys per minishard.
    keys_below: u64,
    /// Upper bound on the mean number of bytes per shard.
    bytes_below: u64,
    /// Meets the bound on shards, not minishards, where values are too large for both.
    prefers_small_shards: bool,
    index_encoding: Encoding,
}

/// 4 to 8 keys per minishard; 181 to 362 MiB per shard, around 256 MiB.
const LOCAL: Target =
    Target { keys_below: 8, bytes_below: 362 << 20, prefers_small_shards: false, index_encoding: Encoding::Raw };

/// 500 to 1000 keys per minishard; 35 to 71 MB per shard, around 50 MB.
const REMOTE: Target =
    Target { keys_below: 1000, bytes_below: 71_000_000, prefers_small_shards: true, index_encoding: Encoding::Gzip };

impl Target {
    /// Returns a target whose shards are smaller, if they are not below this bound already.
    fn with_shards_below(&self, bytes: u64) -> Target {
        Target { bytes_below: self.bytes_below.min(bytes), ..*self }
    }

    fn choose(&self, totals: Totals, keys: Option<&KeyFacts<'_>>) -> (ShardingSpec, PlanReason) {
        let (spec, reason) = match self.identity(totals, keys) {
            Ok((spec, skew)) => (spec, PlanReason::Dense { skew }),
            Err(reason) => (self.murmur(totals), reason),
        };
        (spec.with_minishard_index_encoding(self.index_encoding), reason)
    }

    fn murmur(&self, totals: Totals) -> ShardingSpec {
        let bits = bits_for(totals.keys.into(), self.keys_below);
        let most = if self.prefers_small_shards { totals.keys.checked_ilog2().unwrap_or(0) } else { bits };
        let shard_bits = bits_for(totals.stored_bytes, self.bytes_below).min(most);
        sharding(HashFunction::MurmurHash3X86_128, 0, bits.saturating_sub(shard_bits), shard_bits)
    }

    /// Identity with a preshift, and its skew, for dense keys that fill shards evenly.
    ///
    /// A minishard holds a run of neighbouring keys and the shards have all keys in ascending order. Scans and batches of
    /// neighbouring keys read sequentially, a web client finds neighbouring keys in an index that it has cached, deltas
    /// of keys compress well, and all minishards are equally full.
    ///
    /// The selected bits end with the span of the keys. Otherwise dense small keys would all be in the first few shards.
    ///
    /// # Errors
    ///
    /// The reason to use murmur.
    fn identity(&self, totals: Totals, keys: Option<&KeyFacts<'_>>) -> Result<(ShardingSpec, f64), PlanReason> {
        let keys = keys.ok_or(PlanReason::UnknownKeys)?;
        let steps = keys.steps.ok_or(PlanReason::UnknownKeys)?;
        if totals.keys < self.keys_below {
            return Err(PlanReason::FewKeys { limit: self.keys_below });
        }
        let span = u128::from(steps.last - steps.first) + 1;
        let sparse = PlanReason::Sparse { density: totals.keys as f64 / span as f64 };
        if u128::from(totals.keys) * 2 < span {
            return Err(sparse);
        }
        let width = u64::BITS - (steps.last - steps.first).leading_zeros();
        let in_a_run = |bits: &u32| u128::from(totals.keys) << bits < u128::from(self.keys_below) * span;
        let run_bits = (0..width).take_while(in_a_run).last().ok_or(sparse)?;
        let preshift_bits = u8::try_from(steps.bits + run_bits).map_err(|_| sparse)?;
        let bits = width - run_bits;
        // the bits count for the whole width, the keys fill only the span
        let bytes = totals.stored_bytes.saturating_mul(1 << width) / span;
        let shard_bits = bits_for(bytes, self.bytes_below).min(bits);
        // the last shard ends with the keys; if that makes it too small, shards of half the size may be even
        let mut least = f64::INFINITY;
        for shard_bits in shard_bits..=bits.min(shard_bits + 1) {
            let spec = sharding(HashFunction::Identity, preshift_bits, bits - shard_bits, shard_bits);
            let skew = keys.skew(&shard_field(&spec));
            if skew <= MAX_SKEW {
                return Ok((spec, skew));
            }
            least = least.min(skew);
        }
        Err(PlanReason::Uneven { skew: least })
    }
}

/// The bits of a key that select its shard under identity.
fn shard_field(spec: &ShardingSpec) -> Range<u32> {
    let from = u32::from(spec.preshift_bits()) + u32::from(spec.minishard_bits());
    from.min(u64::BITS)..(from + u32::from(spec.shard_bits())).min(u64::BITS)
}

/// cloud-volume's rule for hashed keys with its default options: minishard indexes of 32,768 bytes at 24 bytes per key,
/// shard indexes of 8,192 bytes at 16 bytes per minishard. Half as many shards if that makes them at most a tenth too
/// full.
fn cloud_volume(keys: u64) -> ShardingSpec {
    const MINISHARD_INDEX_LEN_LOG2: u32 = 15;
    const MINISHARD_BITS: u32 = 9;
    let doublings = |bytes: u128, unit_log2: u32| match (bytes >> unit_log2, bytes & ((1 << unit_log2) - 1)) {
        (0, _) => 0,
        (whole, 0) => whole.ilog2() + u32::from(!whole.is_power_of_two()),
        (whole, _) => whole.ilog2() + 1,
    };
    let index_bytes = u128::from(keys) * 24;
    let minishard_bits = doublings(index_bytes, MINISHARD_INDEX_LEN_LOG2).min(MINISHARD_BITS);
    let shard_bits = doublings(index_bytes, MINISHARD_INDEX_LEN_LOG2 + MINISHARD_BITS);
    let capacity = 1_u128 << (MINISHARD_INDEX_LEN_LOG2 + MINISHARD_BITS + shard_bits);
    let half_is_enough = index_bytes * 100 <= capacity * 55;
    let shard_bits = shard_bits.saturating_sub(u32::from(half_is_enough));
    let spec = sharding(HashFunction::MurmurHash3X86_128, 0, minishard_bits, shard_bits);
    spec.with_minishard_index_encoding(Encoding::Gzip)
}

/// Takes bits from the minishards for the shards, until the mean of a shard is below a bound.
fn with_shards_below(bytes: u64, spec: ShardingSpec, totals: Totals) -> ShardingSpec {
    let (minishard_bits, shard_bits) = (u32::from(spec.minishard_bits()), u32::from(spec.shard_bits()));
    let bits = minishard_bits + shard_bits;
    let shard_bits = bits_for(totals.stored_bytes, bytes).clamp(shard_bits, bits);
    let moved = sharding(spec.hash_function(), spec.preshift_bits(), bits - shard_bits, shard_bits);
    moved.with_minishard_index_encoding(spec.minishard_index_encoding())
}

/// The smallest number of bits for which `amount`, halved by each, is below `bound`.
fn bits_for(amount: u128, bound: u64) -> u32 {
    (0..u64::BITS).find(|bits| amount < u128::from(bound) << bits).unwrap_or(u64::BITS)
}

#[expect(clippy::expect_used, reason = "the bits are clamped to the format's range first")]
fn sharding(hash: HashFunction, preshift_bits: u8, minishard_bits: u32, shard_bits: u32) -> ShardingSpec {
    let at_most = |bits: u32, most: u8| u8::try_from(bits).unwrap_or(most).min(most);
    let minishard_bits = at_most(minishard_bits, MAX_MINISHARD_BITS);
    let shard_bits = at_most(shard_bits, 64 - minishard_bits);
    ShardingSpec::new(hash, preshift_bits.min(64), minishard_bits, shard_bits).expect("bits within the format's range")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn names_parse_to_their_profiles() {
        for profile in Profile::ALL {
            assert_eq!(profile.as_str().parse::<Profile>().unwrap(), profile);
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_with_the_choices() {
        let error = "Local".parse::<Profile>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("local, remote or cloudvolume") && error.message().contains("\"Local\""));
    }
}
