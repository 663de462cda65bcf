//! Builds with a merge function against a `BTreeMap` that does the same.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use crate::common::TempDir;
use crate::format::hash::HashFunction;
use crate::format::spec::{Encoding, ShardingSpec};
use crate::write::{BuildOptions, Values};
use crate::{ErrorKind, OnDuplicate, ShardDb, VerifyLevel};

/// Writes the key, and the length and the bytes of each value, so that order and completeness are visible.
fn list(key: u64, values: &mut Values<'_>, to: &mut dyn Write) -> io::Result<()> {
    to.write_all(&key.to_le_bytes())?;
    while let Some(len) = values.next_len()? {
        to.write_all(&len.to_le_bytes())?;
        // one way of reading or the other
        if len % 2 == 0 {
            to.write_all(values.next()?.unwrap_or_default())?;
        } else {
            assert!(values.copy_next(to)?);
        }
    }
    assert!(values.next()?.is_none() && !values.copy_next(to)?);
    Ok(())
}

fn listed(key: u64, values: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = key.to_le_bytes().to_vec();
    for value in values {
        bytes.extend((value.len() as u64).to_le_bytes());
        bytes.extend(value);
    }
    bytes
}

fn options(memory: u64, threads: usize, spec: Option<ShardingSpec>) -> BuildOptions {
    let mut options = BuildOptions::new();
    options.memory(memory).threads(threads).durable(false).on_duplicate(OnDuplicate::merge(list));
    if let Some(spec) = spec {
        options.spec(spec);
    }
    options
}

/// The value of the `n`-th pair: mostly short, sometimes large for a small memory.
fn value(n: u64) -> Vec<u8> {
    let len = match n % 97 {
        0 => 30_000,
        1 => 0,
        more => more,
    };
    (0..len).map(|at| u8::try_from((n + at) % 251).unwrap()).collect()
}

fn check(store: &Path, expected: &BTreeMap<u64, Vec<Vec<u8>>>) {
    let snapshot = ShardDb::open(store).unwrap().snapshot();
    assert_eq!(snapshot.key_count(), Some(expected.len() as u64));
    for (key, values) in expected {
        assert!(snapshot.get(*key).unwrap().unwrap() == listed(*key, values)[..], "key {key}");
    }
    assert!(snapshot.verify(VerifyLevel::Data).unwrap().is_clean());
}

#[test]
fn values_arrive_once_and_in_the_order_of_insertion() {
    let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 2, 3).unwrap();
    let gzip = spec.with_data_encoding(Encoding::Gzip).with_minishard_index_encoding(Encoding::Gzip);
    let mut expected: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
    let keys = (0..4000_u64).map(|n| (n, n * 7 % 311 * (n % 5)));
    keys.clone().for_each(|(n, key)| expected.entry(key).or_default().push(value(n)));
    let mut files = Vec::new();
    for (memory, threads) in [(1 << 14, 1), (1 << 14, 3), (1 << 18, 2), (64 << 20, 2)] {
        for spec in [None, Some(spec), Some(gzip)] {
            let directory = TempDir::new();
            let mut loader = options(memory, threads, spec).create(directory.path().join("store")).unwrap();
            keys.clone().for_each(|(n, key)| loader.insert(key, value(n)).unwrap());
            let published = loader.finish().unwrap();
            assert_eq!(published.content.dropped, 0);
            check(&directory.path().join("store"), &expected);
            files.push((published.content.spec, published.content.file_bytes));
        }
    }
    files.sort_by_key(|(spec, _)| spec.to_string());
    files.dedup();
    assert_eq!(files.len(), 3, "memory and threads change nothing");
}

/// The values of one key, and what is made of them, exceed the memory many times.
#[test]
fn the_values_of_a_key_need_not_fit_into_memory() {
    for encoding in [Encoding::Raw, Encoding::Gzip] {
        let directory = TempDir::new();
        let mut options = options(1 << 16, 2, None);
        options.data_encoding(encoding);
        let mut loader = options.create(directory.path().join("store")).unwrap();
        let mut expected: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
        for n in 0..6000 {
            let key = if n % 10 == 0 { n } else { 5 };
            let value = vec![u8::try_from(n % 200).unwrap(); 1000];
            loader.insert(key, &value).unwrap();
            expected.entry(key).or_default().push(value);
        }
        loader.finish().unwrap();
        check(&directory.path().join("store"), &expected);
    }
}

#[test]
fn values_that_are_not_read_are_skipped() {
    let directory = TempDir::new();
    let first = OnDuplicate::merge(|_, values, to| {
        values.copy_next(to)?;
        Ok(())
    });
    for memory in [1 << 14, 64 << 20] {
        let store = directory.path().join(memory.to_string());
        let mut loader = options(memory, 2, None).on_duplicate(first.clone()).create(&store).unwrap();
        (0..5000_u64).for_each(|n| loader.insert(n % 700, value(n)).unwrap());
        loader.finish().unwrap();
        let snapshot = ShardDb::open(&store).unwrap().snapshot();
        (0..700).for_each(|key| assert!(snapshot.get(key).unwrap().unwrap() == value(key)[..], "key {key}"));
    }
}

#[test]
fn the_only_pair_of_a_key_keeps_its_preamble_and_several_may_have_none() {
    for memory in [1 << 14, 64 << 20] {
        for encoding in [Encoding::Raw, Encoding::Gzip] {
            let directory = TempDir::new();
            let store = directory.path().join("store");
            let mut options = options(memory, 2, None);
            options.data_encoding(encoding);
            let mut loader = options.create(&store).unwrap();
            for n in 0..500_u64 {
                loader.insert_with_preamble(n, format!("preamble {n}").as_bytes(), &value(n)).unwrap();
            }
            (500..1500).for_each(|n| loader.insert(500 + n % 100, value(n)).unwrap());
            loader.finish().unwrap();
            let snapshot = ShardDb::open(&store).unwrap().snapshot();
            for n in 0..500 {
                let preamble = format!("preamble {n}");
                assert_eq!(snapshot.get_preamble(n, preamble.len() as u64).unwrap().unwrap(), preamble.as_bytes());
                assert!(snapshot.get(n).unwrap().unwrap() == listed(n, &[value(n)])[..]);
            }
            for (first, second) in [(&b"a"[..], &b""[..]), (b"", b"b"), (b"a", b"b")] {
                let mut loader = options.create(&store).unwrap();
                loader.insert_with_preamble(7, first, b"one").unwrap();
                loader.insert_with_preamble(7, second, b"two").unwrap();
                let error = loader.finish().unwrap_err();
                assert_eq!((error.kind(), error.key()), (ErrorKind::InvalidInput, Some(7)));
            }
        }
    }
}

#[test]
fn an_error_or_a_panic_of_the_function_ends_the_build() {
    let directory = TempDir::new();
    let failing = OnDuplicate::merge(|key, _, _| match key {
        77 => Err(io::Error::other("of the test")),
        _ => Ok(()),
    });
    let panicking = OnDuplicate::merge(|key, _, _| {
        assert!(key != 77, "of the test");
        Ok(())
    });
    for (function, kind) in [(failing, ErrorKind::Io), (panicking, ErrorKind::Internal)] {
        for memory in [1 << 14, 64 << 20] {
            let store = directory.path().join("store");
            let mut loader = options(memory, 2, None).on_duplicate(function.clone()).create(&store).unwrap();
            (0..500_u64).for_each(|n| loader.insert(n, value(n)).unwrap());
            let error = loader.finish().unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains("of the test"), "{error}");
            assert!(!store.exists(), "nothing was published, and the new store is removed");
        }
    }
}
