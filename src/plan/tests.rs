//! A plan meets the targets of its profile, and uses identity exactly for dense keys that fill shards evenly.

use std::collections::HashMap;

use super::key_stats::counts_of;
use super::skew::KeyFacts;
use super::*;
use crate::ShardingSpec;
use crate::spec::{Encoding, HashFunction};

const KEYS: u64 = 600_000;

fn murmur(number: u64) -> u64 {
    HashFunction::MurmurHash3X86_128.hash(number)
}

/// Statistics of keys with values of equal length.
fn stats(keys: impl IntoIterator<Item = u64>, value_len: u64) -> KeyStats {
    let mut stats = KeyStats::new();
    keys.into_iter().for_each(|key| stats.insert(key, 0, value_len));
    stats
}

/// About `tenths` in ten of `count` numbers from `first`, at random.
fn thinned(first: u64, count: u64, tenths: u64) -> impl Iterator<Item = u64> {
    (first..first + count).filter(move |key| murmur(!*key) % 10 < tenths)
}

/// Hash, and preshift, minishard and shard bits.
fn bits(spec: ShardingSpec) -> (&'static str, u8, u8, u8) {
    let hash = match spec.hash_function() {
        HashFunction::Identity => "identity",
        HashFunction::MurmurHash3X86_128 => "murmur",
    };
    (hash, spec.preshift_bits(), spec.minishard_bits(), spec.shard_bits())
}

fn bits_for_counts(keys: u64, value_bytes: u64, profile: Profile) -> (&'static str, u8, u8, u8) {
    bits(Plan::for_counts(keys, value_bytes, profile).spec())
}

/// Planned builds promise their bytes, and so these specifications.
#[test]
fn specifications_are_pinned() {
    type Pinned = (&'static str, u8, u8, u8);
    let dense = stats(0..KEYS, 1000);
    let far = stats(thinned((1 << 40) - 1000, KEYS, 7), 100_000);
    let multiples = stats((0..KEYS).map(|number| number * 1024), 5000);
    let large = stats(thinned(1 << 50, 200_000, 8), 1 << 20);
    let sparse = stats((0..KEYS).map(|number| number * 3), 1000);
    let scattered = stats((0..KEYS).map(murmur), 1000);
    let pinned: [(&str, KeyStats, Pinned, Pinned); 6] = [
        ("dense", dense, ("identity", 2, 15, 3), ("identity", 9, 7, 4)),
        ("dense, far from 0", far, ("identity", 3, 9, 8), ("identity", 10, 0, 10)),
        ("multiples", multiples, ("identity", 12, 14, 4), ("identity", 19, 4, 7)),
        ("large values", large, ("identity", 3, 5, 10), ("identity", 10, 0, 8)),
        ("sparse", sparse, ("murmur", 0, 16, 1), ("murmur", 0, 6, 4)),
        ("scattered", scattered, ("murmur", 0, 16, 1), ("murmur", 0, 6, 4)),
    ];
    for (name, stats, local, remote) in pinned {
        let found = [Profile::Local, Profile::Remote].map(|profile| bits(Plan::new(&stats, profile).spec()));
        assert_eq!(found, [local, remote], "{name}");
    }
}

/// Published results of cloud-volume's function.
#[test]
fn cloudvolume_plans_like_cloud_volume() {
    let golden =
        [(1_000_000_000, 11, 9), (10_000_000, 4, 9), (1_000_000, 1, 9), (10_000, 0, 3), (1_000, 0, 0), (0, 0, 0)];
    for (keys, shard_bits, minishard_bits) in golden {
        let found = bits_for_counts(keys, keys * 100, Profile::CloudVolume);
        assert_eq!(found, ("murmur", 0, minishard_bits, shard_bits), "{keys} keys");
    }
}

/// By hand from the formula: 512 minishards of 1365 1/3 keys are 699,050 2/3; 55 % of two shards are 768,955.7.
#[test]
fn cloudvolume_accepts_shards_a_tenth_too_full() {
    for (keys, shard_bits, minishard_bits) in [
        (1_365, 0, 0),
        (1_366, 0, 1),
        (699_050, 0, 9),
        (699_051, 0, 9),
        (768_955, 0, 9),
        (768_956, 1, 9),
        (u64::MAX, 45, 9),
    ] {
        let found = bits_for_counts(keys, 0, Profile::CloudVolume);
        assert_eq!(found, ("murmur", 0, minishard_bits, shard_bits), "{keys} keys");
    }
}

#[test]
fn targets_are_met_for_every_number_of_keys() {
    let numbers = (3..40).flat_map(|log2| [(1_u64 << log2) - 1, 1 << log2, 3 << (log2 - 1)]);
    for (keys, length) in numbers.flat_map(|keys| [(keys, 0), (keys, 100), (keys, 50_000)]) {
        let minishards = |plan: &Plan| f64::from(plan.spec().minishard_bits() + plan.spec().shard_bits()).exp2();
        let shards = |plan: &Plan| f64::from(plan.spec().shard_bits()).exp2();
        let bytes = (keys * (length + 32)) as f64;

        let local = Plan::for_counts(keys, keys * length, Profile::Local);
        let mean = keys as f64 / minishards(&local);
        assert!((4.0..8.0).contains(&mean) || keys < 8, "{keys} keys: {mean} per minishard");
        let shard = bytes / shards(&local) / f64::from(1 << 20);
        assert!(shard < 363.0 && (shard > 180.0 || shards(&local) == 1.0), "{keys} keys: {shard} MiB per shard");

        let remote = Plan::for_counts(keys, keys * length, Profile::Remote);
        assert!(keys as f64 / minishards(&remote) < 1000.0, "{keys} keys");
        let shard = bytes / shards(&remote) / 1e6;
        assert!(shard < 71.1 && (shard > 35.0 || shards(&remote) == 1.0), "{keys} keys: {shard} MB per shard");
    }
}

#[test]
fn for_huge_values_local_makes_larger_shards_and_remote_smaller_minishards() {
    assert_eq!(bits_for_counts(1000, 1000 << 30, Profile::Local), ("murmur", 0, 0, 7));
    assert_eq!(bits_for_counts(1000, 1000 << 30, Profile::Remote), ("murmur", 0, 0, 9));
    let most = bits_for_counts(u64::MAX, u64::MAX, Profile::Local);
    assert_eq!(most, ("murmur", 0, 20, 41), "2^61 minishards of under 8 keys");
}

#[test]
fn no_pairs_give_one_minishard() {
    for profile in Profile::ALL {
        for plan in [Plan::new(&KeyStats::new(), profile), Plan::for_counts(0, 0, profile)] {
            assert_eq!((bits(plan.spec()), plan.keys()), (("murmur", 0, 0, 0), 0));
        }
    }
}

/// Counts the shards that keys of 1,000 bytes and the index fill, by the hash of each key.
#[test]
fn shards_are_as_small_as_asked_for() {
    for profile in Profile::ALL {
        for keys in [(0..200_000).collect::<Vec<u64>>(), (0..200_000).map(murmur).collect()] {
            let stats = stats(keys.iter().copied(), 1000);
            let usual = Plan::new(&stats, profile);
            assert_eq!(Plan::with_max_shard_bytes(&stats, profile, u64::MAX), usual);
            for most in [100_000_000, 10_000_000, 1_000_000] {
                let spec = Plan::with_max_shard_bytes(&stats, profile, most).spec();
                let shards: std::collections::BTreeSet<_> = keys.iter().map(|key| spec.route(*key).shard).collect();
                let mean = 200_000 * 1032 / shards.len() as u64;
                assert!(mean <= most, "{profile:?}: {mean} bytes, {spec}");
                assert!(shards.len() as u64 * most < 5 * 200_000 * 1032 || spec == usual.spec(), "{profile:?}: {spec}");
                let total = |spec: ShardingSpec| spec.minishard_bits() + spec.shard_bits();
                assert!(total(spec) >= total(usual.spec()), "minishards do not grow");
            }
            let least = Plan::with_max_shard_bytes(&stats, profile, 0).spec();
            assert_eq!(least.minishard_bits(), 0);
        }
    }
}

#[test]
fn encodings_are_those_of_the_profile() {
    for (profile, index) in Profile::ALL.into_iter().zip([Encoding::Raw, Encoding::Gzip, Encoding::Gzip]) {
        for plan in [Plan::new(&stats(0..100_000, 100), profile), Plan::for_counts(1000, 100_000, profile)] {
            let spec = plan.spec();
            assert_eq!((spec.data_encoding(), spec.minishard_index_encoding()), (Encoding::Raw, index));
        }
    }
}

#[test]
fn reasons_are_the_numbers_that_decided() {
    let reason = |stats: &KeyStats| Plan::new(stats, Profile::Local).reason();
    assert_eq!(reason(&KeyStats::new()), PlanReason::UnknownKeys);
    assert_eq!(reason(&stats([u64::MAX], 100)), PlanReason::FewKeys { limit: 8 });
    assert_eq!(
        reason(&stats((0..=KEYS).map(|number| number * 3), 100)),
        PlanReason::Sparse { density: 600_001.0 / 1_800_001.0 }
    );
    assert_eq!(reason(&stats(0..1 << 20, 1 << 10)), PlanReason::Dense { skew: 1.0 });
    assert_eq!(Plan::new(&stats(0..KEYS, 100), Profile::CloudVolume).reason(), PlanReason::ProfileRule);
    let filled_in_front = (0..20_000).chain((20_000..40_000).step_by(20));
    let PlanReason::Uneven { skew } = reason(&stats(filled_in_front, 1 << 20)) else { panic!("identity") };
    assert!((1.5..2.0).contains(&skew), "{skew}");
}

/// Identity without a look at the keys would put multiples of 1024 into one minishard in a thousand.
#[test]
fn multiples_are_dense() {
    let plan = Plan::new(&stats((0..KEYS).map(|number| number * 1024), 100), Profile::Local);
    assert_eq!((bits(plan.spec()).0, plan.spec().preshift_bits()), ("identity", 12), "four keys");
}

#[test]
fn repeated_keys_count_once() {
    let once = Plan::new(&stats((0..KEYS).map(murmur), 100), Profile::Local);
    let thrice = Plan::new(&stats((0..3 * KEYS).map(|number| murmur(number % KEYS)), 100), Profile::Local);
    assert_eq!(once.keys(), KEYS);
    assert!((thrice.keys() as f64 / KEYS as f64 - 1.0).abs() < 0.05);
    assert!((thrice.stored_bytes() as f64 / once.stored_bytes() as f64 - 1.0).abs() < 0.05);
    assert_eq!(thrice.spec(), once.spec());
}

/// Compares the skew with the counted one if the bits `from..to` select the shard.
fn assert_skew(slack: f64, keys: impl Iterator<Item = u64>, fields: &[(u32, u32)]) {
    let keys: Vec<u64> = keys.collect();
    let stats = stats(keys.iter().copied(), 0);
    for (from, to) in fields {
        let mut shards = HashMap::new();
        keys.iter().for_each(|key| *shards.entry(key & bit_counts::mask(&(*from..*to))).or_default() += 1);
        let largest: u64 = shards.values().copied().max().unwrap();
        let counted = largest as f64 * shards.len() as f64 / keys.len() as f64;
        let skew = KeyFacts::new(counts_of(&stats)).skew(&(*from..*to));
        assert!((skew / counted - 1.0).abs() <= slack, "{from}..{to}: estimated {skew}, counted {counted}");
    }
}

#[test]
fn skew_is_exact_if_the_sample_holds_all_keys() {
    assert_skew(0.0, thinned(1 << 40, 30_000, 5), &[(10, 15), (5, 15), (2, 15), (15, 15)]);
}

#[test]
fn skew_is_exact_if_the_bits_are_counted() {
    assert_skew(1e-9, thinned(0, 1_000_000, 7), &[(10, 20), (13, 20), (19, 20)]);
    assert_skew(1e-9, thinned(1 << 40, 1 << 16, 7), &[(4, 16), (12, 16)]);
}

#[test]
fn skew_is_exact_for_consecutive_keys() {
    assert_skew(0.0, 1 << 40..(1 << 40) + 1_000_000, &[(4, 20), (15, 20)]);
}

#[test]
fn skew_of_large_shards_is_estimated_from_sampled_keys() {
    assert_skew(0.1, thinned(1 << 40, 1 << 20, 7), &[(15, 20), (17, 20)]);
}

#[test]
fn skew_of_small_shards_is_estimated_from_sampled_blocks() {
    assert_skew(0.1, thinned(1 << 40, 1 << 20, 7), &[(7, 20), (9, 20)]);
}

#[test]
fn skew_of_other_shards_is_estimated_from_clumps() {
    assert_skew(0.25, thinned(1 << 40, 1 << 22, 7), &[(11, 22)]);
}

#[test]
fn extreme_keys_are_planned_for() {
    let spread: Vec<u64> = (0..50_000).map(|i| if i % 2 == 0 { murmur(i) } else { i.wrapping_neg() }).collect();
    let sets = [spread, vec![0], vec![u64::MAX; 3], vec![0, u64::MAX], (0..40_000).map(|i| i << 48).collect()];
    for keys in sets {
        for value_len in [0, 1 << 20, u64::MAX] {
            let stats = stats(keys.iter().copied(), value_len);
            for profile in Profile::ALL {
                let spec = Plan::new(&stats, profile).spec();
                assert!(u32::from(spec.minishard_bits()) <= keys.len().ilog2() + 1 || value_len > 0);
            }
        }
    }
}
