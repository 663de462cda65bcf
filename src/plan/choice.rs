//! From keys and profile to a specification.
//!
//! Bits are chosen with integers, so that no machine's last digit of a logarithm decides; only the bound on the
//! skew is a float.

use super::evidence::{Cell, Evidence};
use super::profile::Profile;
use crate::format::hash::HashFunction;
use crate::format::spec::{Encoding, ShardingSpec};

/// Index and checks of a key, about, where the size of a shard is chosen.
const INDEX_LEN: u64 = 32;

/// A shard may be this much larger than the mean for the sake of identity.
const MOST_SKEW: f64 = 1.25;

const MAX_MINISHARD_BITS: u8 = 32;

/// A specification and why it is this one.
pub(super) struct Choice {
    pub(super) spec: ShardingSpec,
    pub(super) reason: &'static str,
}

/// Numbers of bits halve and double, so a target is a range from half of a bound up to it.
struct Target {
    /// A minishard has fewer keys on average, and at least half as many.
    keys_below: u64,
    /// A shard has fewer bytes on average, and at least half as many.
    bytes_below: u64,
    /// Which of the two gives way where single values are so large that both cannot be had.
    prefers_small_shards: bool,
    index_encoding: Encoding,
}

/// 4 to 8 keys, 181 to 362 MiB (256 MiB give or take half a doubling).
const LOCAL: Target =
    Target { keys_below: 8, bytes_below: 362 << 20, prefers_small_shards: false, index_encoding: Encoding::Raw };

/// 500 to 1000 keys, 35 to 71 MB (50 MB give or take half a doubling).
const REMOTE: Target =
    Target { keys_below: 1000, bytes_below: 71_000_000, prefers_small_shards: true, index_encoding: Encoding::Gzip };

pub(super) fn choose(evidence: &Evidence<'_>, profile: Profile) -> Choice {
    let target = match profile {
        Profile::Local => LOCAL,
        Profile::Remote => REMOTE,
        Profile::CloudVolume => return cloud_volume(evidence.keys),
    };
    let (spec, reason) = match dense(evidence, &target) {
        Ok(spec) => (spec, "identity: the keys are dense, so neighbours share a minishard and all are filled alike"),
        Err(reason) => (hashed(evidence, &target), reason),
    };
    Choice { spec: spec.with_minishard_index_encoding(target.index_encoding), reason }
}

fn hashed(evidence: &Evidence<'_>, target: &Target) -> ShardingSpec {
    let bits = bits_for(evidence.keys.into(), target.keys_below);
    let most = if target.prefers_small_shards { evidence.keys.checked_ilog2().unwrap_or(0) } else { bits };
    let shard_bits = bits_for(stored_bytes(evidence), target.bytes_below).min(most);
    sharding(HashFunction::MurmurHash3X86_128, 0, bits.saturating_sub(shard_bits), shard_bits)
}

/// Identity with a preshift, so that a minishard holds a run of neighbours and the file has all keys in
/// ascending order: scans and batches of near keys read on where they are, near keys share an index that a web
/// client has cached, deltas of ids compress to nothing, and no minishard is fuller than a run is long.
///
/// For keys that fill half of the numbers (or multiples of a power of two) between the smallest and the largest,
/// and only where the shards come out even. The bits end where the span of the keys does: with a preshift
/// chosen for any other reason dense small keys would all fall into the first few shards.
///
/// `Err` says why the keys are better hashed.
fn dense(evidence: &Evidence<'_>, target: &Target) -> Result<ShardingSpec, &'static str> {
    const NOT_DENSE: &str = "murmur: the keys are not dense";
    let bounds = evidence.stats.bounds().ok_or("murmur: nothing is known about the keys")?;
    if evidence.keys < target.keys_below {
        return Err("murmur: one minishard holds all keys");
    }
    let step_bits = bounds.varying().trailing_zeros();
    let steps = bounds.span().checked_shr(step_bits).ok_or(NOT_DENSE)?;
    let span = u128::from(steps) + 1;
    if u128::from(evidence.keys) * 2 < span {
        return Err(NOT_DENSE);
    }
    let width = u64::BITS - steps.leading_zeros();
    let in_a_run = |bits: &u32| u128::from(evidence.keys) << bits < u128::from(target.keys_below) * span;
    let run_bits = (0..width).take_while(in_a_run).last().ok_or(NOT_DENSE)?;
    let bits = width - run_bits;
    // the bits count for the whole width, the keys only fill the span
    let bytes = stored_bytes(evidence).saturating_mul(1 << width) / span;
    let shard_bits = bits_for(bytes, target.bytes_below).min(bits);
    let preshift_bits = u8::try_from(step_bits + run_bits).map_err(|_| NOT_DENSE)?;
    // the last shard ends where the keys do; if that leaves it too small, half as large ones may come out even
    (shard_bits..=bits.min(shard_bits + 1))
        .map(|shard_bits| sharding(HashFunction::Identity, preshift_bits, bits - shard_bits, shard_bits))
        .find(|spec| evidence.occupancy(spec, Cell::Shard).skew() <= MOST_SKEW)
        .ok_or("murmur: the keys are dense, but identity would fill shards unevenly")
}

/// cloud-volume's rule for hashed keys, with its defaults: a minishard index of 32,768 bytes (24 a key) and a
/// shard index of 8,192 (16 a minishard); the shards are halved in number when that leaves them at most a tenth
/// too full.
fn cloud_volume(keys: u64) -> Choice {
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
    Choice {
        spec: spec.with_minishard_index_encoding(Encoding::Gzip),
        reason: "murmur: cloud-volume's rule for hashed keys",
    }
}

/// The fewest bits that bring `amount` below `bound` when halved by each.
fn bits_for(amount: u128, bound: u64) -> u32 {
    (0..u64::BITS).find(|bits| amount < u128::from(bound) << bits).unwrap_or(u64::BITS)
}

fn stored_bytes(evidence: &Evidence<'_>) -> u128 {
    let stats = evidence.stats;
    let of_pairs = u128::from(stats.value_bytes()) + u128::from(stats.prefix_bytes());
    let keys = u128::from(evidence.keys);
    of_pairs * keys / u128::from(stats.pairs().max(1)) + keys * u128::from(INDEX_LEN)
}

#[expect(clippy::expect_used, reason = "the bits are brought into the format's range first")]
fn sharding(hash: HashFunction, preshift_bits: u8, minishard_bits: u32, shard_bits: u32) -> ShardingSpec {
    let at_most = |bits: u32, most: u8| u8::try_from(bits).unwrap_or(most).min(most);
    let minishard_bits = at_most(minishard_bits, MAX_MINISHARD_BITS);
    let shard_bits = at_most(shard_bits, 64 - minishard_bits);
    ShardingSpec::new(hash, preshift_bits.min(64), minishard_bits, shard_bits).expect("bits within the format's range")
}
