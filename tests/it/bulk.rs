//! The bulk loader stores every pair, and writes the same bytes for any order of insertion, threads and memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::common::{TempDir, directory_bytes, shuffled, xorshift};
use sharddb::spec::{Encoding, HashFunction, ValueAlignment};
use sharddb::{BuildOptions, ErrorKind, OnDuplicate, Published, ShardDb, ShardingSpec, Store};

/// The smallest memory. Batches are a few MiB, so some tens of MiB spill.
const LITTLE: u64 = 16 << 20;

type Pair = (u64, Vec<u8>, Vec<u8>);

fn options() -> BuildOptions {
    BuildOptions::new()
}

fn build(store: &Path, options: &BuildOptions, pairs: &[Pair]) -> sharddb::Result<Published> {
    let mut loader = options.create(store)?;
    for (key, preamble, value) in pairs {
        loader.insert_with_preamble(*key, preamble, value)?;
    }
    loader.finish()
}

/// Pairs of all sizes, at least `bytes` in all, with random and extreme keys.
fn pairs(seed: u64, bytes: usize, mean: usize) -> Vec<Pair> {
    let mut random = xorshift(seed);
    let mut pairs = BTreeMap::from([(0, vec![]), (u64::MAX, vec![7; 3])]);
    let mut total = 0;
    while total < bytes {
        let len = (random() as usize) % (2 * mean + 1);
        let value = (0..len).map(|_| (random() >> 60) as u8).collect();
        pairs.insert(random(), value);
        total += len + 8;
    }
    pairs.into_iter().map(|(key, value)| (key, vec![], value)).collect()
}

fn check(store: &Path, pairs: &[Pair]) {
    let db = ShardDb::load(store).unwrap();
    let snapshot = db.snapshot();
    assert_eq!(snapshot.key_count(), Some(pairs.len() as u64));
    assert_eq!(snapshot.count().unwrap(), pairs.len() as u64);
    for (key, preamble, value) in pairs {
        assert_eq!(snapshot.get(*key).unwrap().unwrap(), value, "key {key}");
        assert_eq!(snapshot.get_preamble(*key, preamble.len() as u64).unwrap().unwrap(), preamble, "key {key}");
    }
    let keys: BTreeSet<u64> = pairs.iter().map(|pair| pair.0).collect();
    for absent in keys.iter().map(|key| key ^ 0x5555).filter(|key| !keys.contains(key)).take(1000) {
        assert!(snapshot.get(absent).unwrap().is_none(), "key {absent}");
    }
}

fn spec(minishard_bits: u8, shard_bits: u8) -> ShardingSpec {
    ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, minishard_bits, shard_bits).unwrap()
}

#[test]
fn same_bytes_from_any_order_threads_and_memory() {
    let spilled = pairs(1, 20 << 20, 400);
    let few = pairs(2, 1 << 20, 100);
    let encodings = [(Encoding::Raw, Encoding::Raw), (Encoding::Raw, Encoding::Gzip), (Encoding::Gzip, Encoding::Gzip)];
    for (data, index) in encodings {
        let spec = spec(9, 2).with_data_encoding(data).with_minishard_index_encoding(index);
        // deflating is slow without optimisation, and few values are enough to test it
        let pairs = if data == Encoding::Gzip { &few } else { &spilled };
        let mut reference = None;
        for (memory, threads, seed) in [(1 << 30, 1, 0), (LITTLE, 1, 1), (LITTLE, 3, 2), (32 << 20, 2, 3)] {
            let directory = TempDir::new();
            let pairs = if seed == 0 { pairs.clone() } else { shuffled(pairs.clone(), seed) };
            let published =
                build(directory.path(), options().spec(spec).memory(memory).threads(threads), &pairs).unwrap();
            assert_eq!((published.content.keys, published.content.spec), (pairs.len() as u64, spec));
            let bytes = directory_bytes(&directory.path().join(published.generation.to_string()));
            match &reference {
                None => {
                    check(directory.path(), &pairs);
                    reference = Some(bytes);
                }
                Some(reference) => {
                    assert!(bytes == *reference, "{data:?} {index:?}, {memory} bytes, {threads} threads")
                }
            }
        }
    }
}

#[test]
fn plans_without_a_specification_the_same_however_the_pairs_came() {
    let pairs = pairs(3, 20 << 20, 400);
    let mut reference = None;
    for (memory, threads, seed) in [(1 << 30, 2, 0), (LITTLE, 1, 1), (LITTLE, 2, 2)] {
        let directory = TempDir::new();
        let pairs = if seed == 0 { pairs.clone() } else { shuffled(pairs.clone(), seed) };
        let published = build(directory.path(), options().memory(memory).threads(threads), &pairs).unwrap();
        let bytes = directory_bytes(&directory.path().join(published.generation.to_string()));
        match &reference {
            None => {
                check(directory.path(), &pairs);
                reference = Some(bytes);
            }
            Some(reference) => assert!(bytes == *reference, "{memory} bytes, {threads} threads"),
        }
    }
}

/// Runs are spilled in the order of a guessed plan. Here the final plan selects many more bits than the first guess or
/// has another hash, and a pair too large for a batch is spilled in no order.
#[test]
fn a_wrong_guess_of_the_plan_shows_in_no_byte() {
    let of_keys = |keys: BTreeSet<u64>| -> Vec<Pair> {
        keys.into_iter().map(|key| (key, vec![], vec![key as u8; (key % 60) as usize])).collect()
    };
    let dense = of_keys((0..400_000).collect()); // shuffled on insertion, so the first keys do not look dense
    let mut random = xorshift(7);
    let dense_first = of_keys((0..200_000).chain((0..200_000).map(|_| random())).collect());
    let mut with_large = dense.clone();
    with_large.extend([(1 << 40, vec![1], vec![7; 3 << 20]), (1 << 41, vec![], vec![8; 3 << 20])]);
    for pairs in [dense, dense_first, with_large] {
        let generations = [(1 << 30, 0), (LITTLE, 0), (LITTLE, 1)].map(|(memory, seed)| {
            let directory = TempDir::new();
            let pairs = if seed == 0 { pairs.clone() } else { shuffled(pairs.clone(), seed) };
            let published = build(directory.path(), options().memory(memory).threads(2), &pairs).unwrap();
            assert_eq!(published.content.keys, pairs.len() as u64);
            directory_bytes(&directory.path().join(published.generation.to_string()))
        });
        assert!(generations[0] == generations[1], "in ascending order");
        assert!(generations[0] == generations[2], "in no order");
    }
}

#[test]
fn preambles_and_alignment_come_back() {
    for alignment in [1, 4, 8, 16, 64, 4096] {
        for index in [Encoding::Raw, Encoding::Gzip] {
            let directory = TempDir::new();
            let mut pairs = pairs(4, 300_000, 300);
            for (at, pair) in pairs.iter_mut().enumerate() {
                pair.1 = vec![at as u8 | 1; at % 50]; // not a zero, which would be padding
            }
            let alignment = ValueAlignment::new(alignment).unwrap();
            let spec = spec(5, 1).with_minishard_index_encoding(index);
            build(directory.path(), options().spec(spec).value_alignment(alignment), &pairs).unwrap();
            check(directory.path(), &pairs);
            let db =
                sharddb::OpenOptions::new().verify_reads(sharddb::VerifyReads::Always).load(directory.path()).unwrap();
            for (key, preamble, value) in &pairs {
                let snapshot = db.snapshot();
                let found = snapshot.get(*key).unwrap().unwrap();
                assert_eq!(found, value);
                assert_eq!(snapshot.locate(*key).unwrap().unwrap().range.start % alignment.get(), 0);
                assert_eq!(found.as_ptr().addr() as u64 % alignment.get(), 0, "heap storage keeps the alignment");
                assert_eq!(snapshot.get_preamble(*key, preamble.len() as u64).unwrap().unwrap(), preamble);
            }
        }
    }
}

/// All keys in one minishard that is too large for memory, so that it is written region by region.
#[test]
fn one_minishard_with_everything() {
    for index in [Encoding::Raw, Encoding::Gzip] {
        let pairs: Vec<Pair> = (0..200_000).map(|key| (key * 3, vec![], vec![key as u8; (key % 5) as usize])).collect();
        let spec = spec(0, 0).with_minishard_index_encoding(index);
        let directories = [TempDir::new(), TempDir::new()];
        let generations = [LITTLE, 1 << 30].into_iter().zip(&directories).map(|(memory, directory)| {
            let options = options().spec(spec).memory(memory).clone();
            let published = build(directory.path(), &options, &shuffled(pairs.clone(), 5)).unwrap();
            directory_bytes(&directory.path().join(published.generation.to_string()))
        });
        let generations: Vec<_> = generations.collect();
        assert!(generations[0] == generations[1], "{index:?}");
        check(directories[0].path(), &pairs);
    }
}

/// A value larger than any batch is streamed to disk. Insertion from a reader writes the same bytes as from a slice.
#[test]
fn values_larger_than_the_batch() {
    let big: Vec<u8> = (0..20_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (data, reader) in [(Encoding::Raw, false), (Encoding::Raw, true), (Encoding::Gzip, true)] {
        let big = if data == Encoding::Gzip { &big[..9_000_000] } else { &big };
        let directory = TempDir::new();
        let spec = spec(1, 0).with_data_encoding(data);
        let mut loader = options().spec(spec).memory(LITTLE).create(directory.path()).unwrap();
        loader.insert(1, b"one").unwrap();
        if reader {
            loader.insert_reader(2, 2, big.len() as u64, &mut [b"pp", big].concat().as_slice()).unwrap()
        } else {
            loader.insert_with_preamble(2, b"pp", big).unwrap()
        }
        loader.insert_reader(3, 0, 5, &mut &b"three"[..]).unwrap();
        loader.finish().unwrap();
        let db = ShardDb::load(directory.path()).unwrap();
        assert_eq!(db.get(1).unwrap().unwrap(), b"one");
        assert!(db.get(2).unwrap().unwrap() == *big);
        assert_eq!(db.snapshot().get_preamble(2, 2).unwrap().unwrap(), b"pp");
        assert_eq!(db.get(3).unwrap().unwrap(), b"three");
    }
}

/// Duplicates within a batch and across runs, with a given and with a planned specification.
#[test]
fn duplicates_are_an_error_or_resolved_by_insertion_order() {
    for (given, bytes) in [(true, 100), (true, 12 << 20), (false, 100), (false, 12 << 20)] {
        let value = |round: u8| vec![round; bytes / 40];
        let pairs: Vec<Pair> = (0..4)
            .flat_map(|round| (0..40).map(move |key| (key, round)))
            .map(|(key, round)| (key, vec![], value(round)))
            .collect();
        let mut options = options();
        options.memory(LITTLE).threads(2);
        if given {
            options.spec(spec(2, 1));
        }
        let directory = TempDir::new();
        let error = build(directory.path(), &options, &pairs).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DuplicateKey);
        assert!(error.key().is_some_and(|key| key < 40), "the error names the key");
        assert_eq!(directory_bytes(directory.path()).len(), 0, "nothing was published");
        for (policy, survivor) in [(OnDuplicate::KeepFirst, 0), (OnDuplicate::KeepLast, 3)] {
            let published = build(directory.path(), options.clone().on_duplicate(policy.clone()), &pairs).unwrap();
            assert_eq!((published.content.keys, published.content.dropped), (40, 120));
            let db = ShardDb::load(directory.path()).unwrap();
            for key in 0..40 {
                assert!(db.get(key).unwrap().unwrap() == value(survivor), "{policy:?} key {key}");
            }
        }
    }
}

/// A pair too large for a batch keeps its position in the order of insertion, with any memory.
#[test]
fn large_duplicates_are_resolved_by_insertion_order() {
    const KEYS: u64 = 3;
    let value =
        |key: u64, round: usize, large: bool| vec![(10 * round) as u8 + key as u8; if large { 3 << 20 } else { 50 }];
    for large_rounds in [[false, true, false], [true, false, true]] {
        let insertions = || (0..3).flat_map(|round| (0..KEYS).map(move |key| (key, round)));
        for (policy, survivor) in [(OnDuplicate::KeepFirst, 0), (OnDuplicate::KeepLast, 2)] {
            for given in [true, false] {
                let mut files = Vec::new();
                for memory in [LITTLE, 1 << 30] {
                    let directory = TempDir::new();
                    let mut options = options();
                    options.memory(memory).threads(2).on_duplicate(policy.clone());
                    if given {
                        options.spec(spec(1, 1));
                    }
                    let mut loader = options.create(directory.path()).unwrap();
                    for (key, round) in insertions() {
                        loader.insert(key, value(key, round, large_rounds[round])).unwrap();
                        // enough between the rounds to spill batches
                        let fill = |n: u64| 1000 + n + 10 * (key + KEYS * round as u64);
                        (0..2).for_each(|n| loader.insert(fill(n), vec![1; 900_000]).unwrap());
                    }
                    let published = loader.finish().unwrap();
                    assert_eq!(published.content.dropped, 2 * KEYS);
                    let db = ShardDb::load(directory.path()).unwrap();
                    for key in 0..KEYS {
                        let found = db.get(key).unwrap().unwrap();
                        assert!(
                            found == value(key, survivor, large_rounds[survivor]),
                            "{policy:?} {large_rounds:?} {memory}"
                        );
                    }
                    files.push(directory_bytes(&directory.path().join(published.generation.to_string())));
                }
                assert!(files[0] == files[1], "{policy:?} {large_rounds:?}: the bytes depend on the memory");
            }
        }
    }
}

/// A caller that catches a panic of its reader cannot publish half of a pair.
#[test]
fn a_reader_that_panics_spoils_the_build() {
    struct Panics;
    impl std::io::Read for Panics {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            into[0] = 7;
            std::panic::resume_unwind(Box::new("the reader gave up"))
        }
    }
    for len in [32, 20_000_000] {
        let directory = TempDir::new();
        let mut loader = options().spec(spec(1, 0)).memory(LITTLE).create(directory.path()).unwrap();
        loader.insert(1, b"one").unwrap();
        let panicked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| loader.insert_reader(7, 0, len, &mut Panics)));
        assert!(panicked.is_err());
        assert_eq!(loader.insert(8, b"eight").map_err(|error| error.kind()), Ok(()));
        assert_eq!(loader.finish().unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(Store::create(directory.path()).unwrap().current().unwrap(), None);
    }
}

/// Values that readers refuse by default are not written, and nothing of them is read.
#[test]
fn a_gzip_value_beyond_the_cap_of_readers_is_refused() {
    let directory = TempDir::new();
    let spec = spec(1, 0).with_data_encoding(Encoding::Gzip);
    let mut loader = options().spec(spec).memory(LITTLE).create(directory.path()).unwrap();
    let error = loader.insert_reader(7, 0, (1 << 30) + 1, &mut std::io::empty()).unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::TooLarge, Some(7)));
    assert!(error.to_string().contains("raw data encoding"), "{error}");
}

/// A specification of 32 minishard bits makes a file of 64 GiB for any data, which is refused unless allowed.
#[test]
fn shard_indexes_that_outweigh_the_data_are_refused_unless_allowed() {
    let pairs: Vec<Pair> = (0..40).map(|key| (key, vec![], vec![1; 100])).collect(); // in both of two shards
    for (minishard_bits, shard_bits, refused) in [(22, 0, false), (23, 0, true), (22, 1, true), (32, 0, true)] {
        let spec = spec(minishard_bits, shard_bits);
        let directory = TempDir::new();
        let built = build(directory.path(), options().spec(spec), &pairs);
        if refused {
            let error = built.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
            assert!(error.to_string().contains("fewer minishard bits"), "{error}");
            let published = build(directory.path(), options().spec(spec).allow_sparse(true), &pairs).unwrap();
            assert!(published.content.file_bytes > 16 << minishard_bits);
        } else {
            assert_eq!(built.unwrap().content.keys, 40)
        }
    }
}

#[test]
fn a_reader_that_ends_early_spoils_the_build() {
    for len in [5, 20_000_000] {
        let directory = TempDir::new();
        let mut loader = options().spec(spec(1, 0)).memory(LITTLE).create(directory.path()).unwrap();
        loader.insert(1, b"one").unwrap();
        let error = loader.insert_reader(4, 0, len, &mut &b"four"[..]).unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::Io, Some(4)));
        assert_eq!(loader.finish().unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(Store::create(directory.path()).unwrap().current().unwrap(), None);
    }
}

#[test]
fn nothing_becomes_an_empty_generation() {
    let directory = TempDir::new();
    let published = build(directory.path(), &options(), &[]).unwrap();
    assert_eq!((published.content.keys, published.content.shards), (0, 0));
    let snapshot = ShardDb::load(directory.path()).unwrap().snapshot();
    assert!(snapshot.get(0).unwrap().is_none());
    assert_eq!((snapshot.iter().count(), snapshot.key_count()), (0, Some(0)));
}

#[test]
fn a_dropped_loader_leaves_nothing_and_the_next_one_works() {
    let directory = TempDir::new();
    let mut loader = options().memory(LITTLE).create(directory.path()).unwrap();
    for (key, preamble, value) in pairs(6, 20 << 20, 1000) {
        loader.insert_with_preamble(key, &preamble, &value).unwrap();
    }
    let error = options().create(directory.path()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Locked, "a second writer fails at once");
    drop(loader);
    let left: Vec<_> = directory_bytes(directory.path()).into_keys().collect();
    assert_eq!(left, [""; 0]);
    build(directory.path(), &options(), &[(1, vec![], vec![1])]).unwrap();
}

#[test]
fn info_keeps_foreign_members_and_a_cancelled_build_publishes_nothing() {
    let directory = TempDir::new();
    let info = r#"{"@type": "neuroglancer_skeletons", "transform": [1.0, 0], "sharding": {"old": 1}}"#;
    let published = build(directory.path(), options().info(info), &[(1, vec![], vec![1])]).unwrap();
    let path = directory.path().join(published.generation.to_string()).join("info");
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains("\"transform\": [1.0, 0]") && !text.contains("old"), "{text}");
    assert!(options().info("[]").create(directory.path()).is_err());

    let progress = sharddb::Progress::new();
    progress.cancel();
    let mut loader = options().progress(&progress).create(directory.path()).unwrap();
    loader.insert(1, b"x").unwrap();
    assert_eq!(loader.finish().unwrap_err().kind(), ErrorKind::Cancelled);
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.current().unwrap(), Some(published.generation));
}

/// With any pairs and options, lookups and iteration return what was inserted.
#[test]
fn agrees_with_a_map() {
    fn agrees(pairs: Vec<(u64, Vec<u8>)>, bits: (u8, u8), flags: (bool, bool, bool, bool)) -> bool {
        let (checks, gzip_data, gzip_index, identity) = flags;
        let hash = if identity { HashFunction::Identity } else { HashFunction::MurmurHash3X86_128 };
        let encoding = |gzip| if gzip { Encoding::Gzip } else { Encoding::Raw };
        let spec = ShardingSpec::new(hash, bits.0 % 66 % 65, bits.1 % 5, bits.0 % 4).unwrap();
        let spec = spec.with_data_encoding(encoding(gzip_data)).with_minishard_index_encoding(encoding(gzip_index));
        let map: BTreeMap<u64, Vec<u8>> = pairs.into_iter().collect();
        let directory = TempDir::new();
        let mut loader = options().checks(checks).spec(spec).create(directory.path()).unwrap();
        map.iter().for_each(|(key, value)| loader.insert(*key, value).unwrap());
        loader.finish().unwrap();
        let db = sharddb::OpenOptions::new().verify_reads(sharddb::VerifyReads::Always).open(directory.path()).unwrap();
        let snapshot = db.snapshot();
        let iterated: BTreeMap<u64, Vec<u8>> =
            snapshot.iter().map(|entry| entry.unwrap()).map(|it| (it.key(), it.value().unwrap().to_vec())).collect();
        let ranged: Vec<u64> = snapshot.range(..).map(|entry| entry.unwrap().key()).collect();
        iterated == map
            && ranged == map.keys().copied().collect::<Vec<_>>()
            && map.iter().all(|(key, value)| snapshot.get(*key).unwrap().unwrap() == *value)
            && map.keys().all(|key| map.contains_key(&!key) || snapshot.get(!key).unwrap().is_none())
    }
    let property = agrees as fn(Vec<(u64, Vec<u8>)>, (u8, u8), (bool, bool, bool, bool)) -> bool;
    quickcheck::QuickCheck::new().tests(150).quickcheck(property);
}
