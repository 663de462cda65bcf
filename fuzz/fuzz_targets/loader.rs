//! Arbitrary pairs, specification and options: what is built is what was inserted, and verification has nothing to say.

#![no_main]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use sharddb::{
    BulkLoader, Encoding, ErrorKind, HashFunction, OnDuplicate, OpenOptions, ShardDb, ShardingSpec, ValueAlignment,
    VerifyLevel,
};
use sharddb_fuzz::scratch;

#[derive(Arbitrary, Debug)]
struct Build {
    murmur: bool,
    gzip_index: bool,
    gzip_data: bool,
    preshift_bits: u8,
    minishard_bits: u8,
    shard_bits: u8,
    planned: bool,
    checks: bool,
    alignment: u8,
    on_duplicate: u8,
    pairs: Vec<Pair>,
    absent: Vec<u64>,
}

#[derive(Arbitrary, Debug)]
struct Pair {
    key: u64,
    /// Keys below 256 meet each other.
    small: bool,
    prefix: Vec<u8>,
    value: Vec<u8>,
    streamed: bool,
}

impl Pair {
    fn key(&self) -> u64 {
        if self.small { self.key % 256 } else { self.key }
    }
}

impl Build {
    fn spec(&self) -> ShardingSpec {
        let encoding = |gzip| if gzip { Encoding::Gzip } else { Encoding::Raw };
        let hash = if self.murmur { HashFunction::MurmurHash3X86_128 } else { HashFunction::Identity };
        let spec =
            ShardingSpec::new(hash, self.preshift_bits % 65, self.minishard_bits % 10, self.shard_bits % 4).unwrap();
        spec.with_minishard_index_encoding(encoding(self.gzip_index)).with_data_encoding(encoding(self.gzip_data))
    }

    fn on_duplicate(&self) -> OnDuplicate {
        [OnDuplicate::Error, OnDuplicate::KeepFirst, OnDuplicate::KeepLast][usize::from(self.on_duplicate % 3)]
    }

    /// What should be there; `None` if a key comes twice and must not.
    fn expected(&self) -> Option<BTreeMap<u64, &Pair>> {
        let mut expected = BTreeMap::new();
        for pair in &self.pairs {
            match (expected.entry(pair.key()), self.on_duplicate()) {
                (Entry::Vacant(place), _) => drop(place.insert(pair)),
                (Entry::Occupied(_), OnDuplicate::Error) => return None,
                (Entry::Occupied(_), OnDuplicate::KeepFirst) => {}
                (Entry::Occupied(mut place), OnDuplicate::KeepLast) => drop(place.insert(pair)),
            }
        }
        Some(expected)
    }
}

fuzz_target!(|build: Build| {
    let store = scratch::directory("built");
    let mut options = BulkLoader::options();
    options.threads(1).memory(16 << 20).checks(build.checks).on_duplicate(build.on_duplicate());
    options.value_alignment(ValueAlignment::new([1, 8, 16, 64, 4096][usize::from(build.alignment % 5)]).unwrap());
    if !build.planned {
        options.spec(build.spec());
    }
    let mut loader = options.create(&store).unwrap();
    let mut inserted = Ok(());
    for pair in &build.pairs {
        let (key, prefix, value) = (pair.key(), &pair.prefix, &pair.value);
        inserted = inserted.and_then(|()| match pair.streamed {
            true => {
                let bytes = [&prefix[..], value].concat();
                loader.insert_reader(key, prefix.len() as u64, value.len() as u64, &mut &bytes[..])
            }
            false => loader.insert_with_prefix(key, prefix, value),
        });
    }
    let published = inserted.and_then(|()| loader.finish());
    let Some(expected) = build.expected() else {
        assert_eq!(published.unwrap_err().kind(), ErrorKind::DuplicateKey);
        return;
    };
    assert_eq!(published.unwrap().keys, expected.len() as u64);
    let snapshot = OpenOptions::new().verify_on_read(build.checks).open_pread(&store).unwrap().snapshot();
    for (key, pair) in &expected {
        assert_eq!(snapshot.get(*key).unwrap().unwrap(), pair.value, "key {key}");
        let prefix = snapshot.get_prefix(*key, pair.prefix.len() as u64).unwrap().unwrap();
        assert_eq!(prefix, pair.prefix, "the prefix of {key}");
    }
    for key in build.absent.iter().filter(|key| !expected.contains_key(key)) {
        assert!(snapshot.get(*key).unwrap().is_none(), "key {key} was not inserted");
    }
    let mut listed: Vec<u64> = snapshot.keys().map(|key| key.unwrap()).collect();
    listed.sort_unstable();
    assert!(listed.iter().eq(expected.keys()));
    let report = ShardDb::load(&store).unwrap().snapshot().verify(VerifyLevel::Data).unwrap();
    assert!(report.findings().is_empty(), "{:?}", report.findings());
    fs::remove_dir_all(store).unwrap();
});
