//! The reads of a lookup in a database that is read by positioned reads: system calls of its thread, as Linux counts them.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::common::{Storage, TempDir, expected, sets};
use sharddb::plan::Profile;
use sharddb::spec::{Encoding, ValueAlignment};
use sharddb::{BuildOptions, OpenOptions, Snapshot};

/// The read calls of this thread so far, with those that read this number.
fn calls() -> u64 {
    let counters = fs::read_to_string("/proc/thread-self/io").unwrap();
    counters.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap().parse().unwrap()
}

/// Returns the read calls that `lookup` makes, and its result.
fn calls_of<T>(lookup: impl FnOnce() -> T) -> (u64, T) {
    let (first, second) = (calls(), calls());
    let result = lookup();
    (calls() - second - (second - first), result)
}

/// The keys are no sequence, as hashes are not.
fn key(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn value(number: u64, len: usize) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(len).collect()
}

fn build(store: &Path, keys: u64, len: usize, options: impl FnOnce(&mut BuildOptions)) {
    let mut build = BuildOptions::new();
    build.durable(false);
    options(&mut build);
    let mut loader = build.create(store).unwrap();
    (0..keys).for_each(|number| loader.insert_with_preamble(key(number), b"preamble", &value(number, len)).unwrap());
    loader.finish().unwrap();
}

fn open(store: &Path, cache_bytes: u64) -> Snapshot {
    Storage::Positioned.open(OpenOptions::new().cache_bytes(cache_bytes), store).unwrap().snapshot()
}

/// Looks up enough keys that every block of minishards is in the minishard map.
fn fill_map(snapshot: &Snapshot, keys: u64) {
    (0..keys.min(50_000)).for_each(|number| _ = snapshot.contains(key(number)).unwrap());
}

/// About 1,000 numbers, spread over `0..keys`.
fn some(keys: u64) -> impl Iterator<Item = u64> {
    (0..1000).map(move |at| (at * 7919 + at % 7) % keys)
}

/// The shards that lookups have used, with the indexes and the places of indexes that they have read and cached.
#[derive(Default)]
struct Read {
    shards: HashSet<u64>,
    minishards: HashSet<(u64, u64)>,
    blocks: HashSet<(u64, u64)>,
}

impl Read {
    /// Returns the calls of a get of a key that is there: one for the value, and one for the index with its checks unless it
    /// is cached. The first lookup in a block of 256 minishards reads their places, twice if the minishard map has no room
    /// for some of them, and the first one in a shard may verify the shard index.
    fn expect(&mut self, snapshot: &Snapshot, key: u64) -> std::ops::RangeInclusive<u64> {
        let place = snapshot.spec().route(key);
        let (shard, minishard) = (place.shard.get(), place.minishard.get());
        let index = u64::from(self.minishards.insert((shard, minishard)));
        let places = u64::from(self.blocks.insert((shard, minishard >> 8)));
        let calls = 1 + index + places;
        calls..=calls + places + u64::from(self.shards.insert(shard))
    }
}

/// Looks keys up that are there and keys that are not, in every way. Returns the most and the sum of the read calls of a
/// lookup, and the number of lookups.
fn look_up(snapshot: &Snapshot, keys: u64, len: usize) -> (u64, u64, u64) {
    let (mut most, mut sum, mut lookups) = (0, 0, 0);
    let mut count = |calls: u64| (most, sum, lookups) = (most.max(calls), sum + calls, lookups + 1);
    let mut buffer = Vec::new();
    for number in some(keys).flat_map(|number| [number, keys + number]) {
        let expected = (number < keys).then(|| value(number, len));
        let (calls, found) = calls_of(|| snapshot.get(key(number)).unwrap());
        assert_eq!(found.map(Vec::from), expected);
        count(calls);
        let (calls, found) = calls_of(|| snapshot.get_into(key(number), &mut buffer).unwrap());
        assert_eq!(found.then_some(&buffer), expected.as_ref());
        count(calls);
        let (calls, found) = calls_of(|| snapshot.contains(key(number)).unwrap());
        assert_eq!(found, expected.is_some());
        count(calls);
        let (calls, found) = calls_of(|| snapshot.locate(key(number)).unwrap());
        assert_eq!(found.is_some(), expected.is_some());
        count(calls);
    }
    (most, sum, lookups)
}

/// Warm: the blocks of the minishard map are filled, or their places are cached.
#[test]
fn short_minishards_take_one_call_and_no_cache() {
    for keys in [1_000, 100_000, 1_000_000] {
        for len in [8, 100] {
            let store = TempDir::new();
            build(store.path(), keys, len, |build| _ = build.profile(Profile::Local));
            let snapshot = open(store.path(), 0);
            fill_map(&snapshot, keys);
            let (most, sum, lookups) = look_up(&snapshot, keys, len);
            assert_eq!(most, 1, "{keys} x {len}");
            assert!(sum > lookups * 9 / 10, "{keys} x {len}: {sum} calls of {lookups} lookups");
            assert_eq!(snapshot.stats().cache.misses, 0, "{keys} x {len}: nothing looks for an index there");
        }
    }
}

/// What the guide says of a reader that warms a new generation before it serves it.
#[test]
fn lookups_of_a_warmed_snapshot_take_one_call_from_the_first_on() {
    let store = TempDir::new();
    build(store.path(), 100_000, 100, |build| _ = build.profile(Profile::Local));
    let snapshot = open(store.path(), 0);
    snapshot.warm().unwrap().wait();
    let (most, ..) = look_up(&snapshot, 100_000, 100);
    assert_eq!(most, 1);
}

#[test]
fn long_minishards_take_one_call_for_the_value_and_one_for_an_index_that_is_not_cached() {
    use Encoding::{Gzip, Raw};
    let remote = |build: &mut BuildOptions| _ = build.profile(Profile::Remote);
    let gzip_values = |build: &mut BuildOptions| _ = build.profile(Profile::Remote).data_encoding(Gzip);
    let raw_index = |build: &mut BuildOptions| _ = build.profile(Profile::Remote).minishard_index_encoding(Raw);
    let aligned = |build: &mut BuildOptions| {
        build.profile(Profile::Remote).value_alignment(ValueAlignment::SixtyFour);
    };
    let all: [&dyn Fn(&mut BuildOptions); 4] = [&remote, &gzip_values, &raw_index, &aligned];
    for (keys, len) in [(1_000, 8), (10_000, 1000), (100_000, 100), (1_000_000, 8)] {
        for options in all.into_iter().take(if keys > 10_000 { 1 } else { 4 }) {
            let store = TempDir::new();
            build(store.path(), keys, len, options);
            let snapshot = open(store.path(), 64 << 20);
            let mut read = Read::default();
            for number in some(keys) {
                let (calls, found) = calls_of(|| snapshot.get(key(number)).unwrap().unwrap());
                assert_eq!(found, value(number, len));
                let expected = read.expect(&snapshot, key(number));
                assert!(expected.contains(&calls), "{keys} x {len}: {calls} calls, expected {expected:?}");
            }
            let (most, ..) = look_up(&snapshot, keys, len);
            assert!(most <= 3, "absent keys of other minishards");
            let (most, ..) = look_up(&snapshot, keys, len);
            assert_eq!(most, 1, "{keys} x {len}");
        }
    }
}

/// Values of 1,000 bytes: minishards on both sides of the longest that one read returns.
#[test]
fn minishards_of_any_length_take_at_most_two_calls() {
    for keys in [1_000, 100_000] {
        let store = TempDir::new();
        build(store.path(), keys, 1000, |build| _ = build.profile(Profile::Local));
        let snapshot = open(store.path(), 64 << 20);
        fill_map(&snapshot, keys);
        let uncached = open(store.path(), 0);
        fill_map(&uncached, keys);
        look_up(&snapshot, keys, 1000);
        assert_eq!(look_up(&snapshot, keys, 1000).0, 1, "the indexes of long minishards are cached");
        assert_eq!(look_up(&uncached, keys, 1000).0, 2);
    }
}

/// Sets of TensorStore and CloudVolume.
#[test]
fn foreign_sets_take_two_calls_and_one_with_a_cached_index() {
    let mut lookups = 0;
    for set in sets("public") {
        let snapshot = open(&set, 64 << 20);
        let keys: Vec<u64> = expected(&set)
            .into_iter()
            .map(|(key, _)| key)
            .filter(|key| snapshot.get(*key).unwrap().is_some())
            .collect();
        let (fresh, mut read) = (open(&set, 64 << 20), Read::default());
        for key in keys.iter().take(200) {
            let (calls, _) = calls_of(|| fresh.get(*key).unwrap());
            assert!(calls <= *read.expect(&fresh, *key).end(), "{}: key {key}", set.display());
            let (calls, _) = calls_of(|| fresh.get(*key).unwrap());
            assert!(calls <= 1, "{}: key {key}", set.display());
            lookups += 1;
        }
    }
    assert!(lookups > 1000, "{lookups}");
}
