//! Generations in which every value states its key and its generation, so that any answer can be checked.
//!
//! A generation is made from a number, its label, which determines the keys, the values, the specification and the
//! encodings. The lengths of values depend on the key only, so generations of equal specifications have files of equal
//! lengths and differ only in their bytes.

use std::fs;
use std::path::{Path, PathBuf};

use sharddb::spec::{Encoding, HashFunction};
use sharddb::{BuildOptions, BulkLoader, GenerationId, Published, ShardingSpec, Snapshot, Store, StoreWriter};

use super::{with_own_crc32, xorshift};

/// Every generation has all keys below this one.
pub(crate) const CORE: u64 = 40;

/// No generation has keys from this one on.
pub(crate) const END: u64 = 160;

/// Labels that differ by a multiple of this have the same specification.
pub(crate) const SPECS: u64 = 6;

/// Whether the generation of a label has a key.
pub(crate) fn has(label: u64, key: u64) -> bool {
    key < CORE || key < END && !(key + label).is_multiple_of(3)
}

pub(crate) fn keys(label: u64) -> impl Iterator<Item = u64> {
    (0..END).filter(move |key| has(label, *key))
}

/// The value of a key: the label, the key, up to 99 bytes derived from both, and the CRC-32 of all. So every CRC-32 over it
/// is the same for all labels.
pub(crate) fn value(label: u64, key: u64) -> Vec<u8> {
    let filler = xorshift(label ^ key << 32)().to_le_bytes().repeat(13);
    let len = (xorshift(key)() % 100) as usize;
    with_own_crc32(&[&label.to_le_bytes()[..], &key.to_le_bytes(), &filler[..len]].concat())
}

/// The label that a value states; panics if any byte of the value is wrong.
#[track_caller]
pub(crate) fn label_of(key: u64, found: &[u8]) -> u64 {
    let label = found.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
    assert!(found == value(label, key) && has(label, key), "key {key}: a value of no generation: {found:?}");
    label
}

/// The specification of a label. Hash, bits and encodings vary between labels.
pub(crate) fn spec(label: u64) -> ShardingSpec {
    use Encoding::{Gzip, Raw};
    use HashFunction::{Identity, MurmurHash3X86_128 as Murmur};
    let (hash, preshift, minishard_bits, shard_bits, data, index) = match label % SPECS {
        0 => (Murmur, 0, 3, 2, Raw, Raw),
        1 => (Murmur, 0, 2, 3, Gzip, Raw),
        2 => (Identity, 1, 1, 1, Raw, Gzip),
        3 => (Murmur, 0, 0, 0, Raw, Raw),
        4 => (Murmur, 2, 4, 4, Gzip, Gzip),
        _ => (Identity, 0, 2, 5, Raw, Raw),
    };
    let spec = ShardingSpec::new(hash, preshift, minishard_bits, shard_bits).unwrap();
    spec.with_data_encoding(data).with_minishard_index_encoding(index)
}

/// Options with the smallest memory, so that few pairs are enough to spill.
pub(crate) fn options(label: u64) -> BuildOptions {
    let mut options = BuildOptions::new();
    options.spec(spec(label)).info(format!("{{\"label\": {label}}}")).memory(16 << 20).threads(1);
    options
}

pub(crate) fn insert_all(loader: &mut BulkLoader, label: u64) {
    for key in super::shuffled(keys(label).collect(), label) {
        loader.insert(key, value(label, key)).unwrap();
    }
}

/// Builds and publishes the generation of a label.
pub(crate) fn publish(store: &Path, label: u64) -> Published {
    let mut loader = options(label).create(store).unwrap();
    insert_all(&mut loader, label);
    loader.finish().unwrap()
}

/// A store with the generations 1 to `n`, each labelled with its number; the last is current.
pub(crate) fn store_of(path: &Path, n: u64) -> Store {
    for label in 1..=n {
        assert_eq!(publish(path, label).generation, id(label));
    }
    Store::open(path).unwrap()
}

/// The label that the generation's `info` states.
pub(crate) fn stated_label(generation: &Path) -> u64 {
    super::json(&generation.join("info"))["label"].as_u64().unwrap()
}

/// Asserts that every read method returns the pairs of this label, and no others.
#[track_caller]
pub(crate) fn check(snapshot: &Snapshot, label: u64) {
    assert_eq!(*snapshot.spec(), spec(label));
    assert_eq!(stated_label(snapshot.directory()), label);
    check_keys(snapshot, label);
    check_batch(snapshot, label);
    check_iteration(snapshot, label);
    assert_eq!(snapshot.key_count(), Some(keys(label).count() as u64));
}

#[track_caller]
pub(crate) fn check_keys(snapshot: &Snapshot, label: u64) {
    for key in 0..END + 10 {
        let found = snapshot.get(key).unwrap();
        assert_eq!(found.map(|value| label_of(key, &value)), has(label, key).then_some(label), "key {key}");
    }
}

#[track_caller]
pub(crate) fn check_batch(snapshot: &Snapshot, label: u64) {
    let all: Vec<u64> = (0..END + 10).rev().collect();
    for (key, found) in all.iter().zip(snapshot.get_many(&all)) {
        let found = found.unwrap().map(|value| label_of(*key, &value));
        assert_eq!(found, has(label, *key).then_some(label), "key {key}");
    }
}

#[track_caller]
pub(crate) fn check_iteration(snapshot: &Snapshot, label: u64) {
    let mut found = Vec::new();
    for entry in snapshot.iter() {
        let entry = entry.unwrap();
        assert_eq!(label_of(entry.key(), &entry.value().unwrap()), label);
        found.push(entry.key());
    }
    found.sort_unstable();
    assert!(found.into_iter().eq(keys(label)), "each key once, no other");
}

pub(crate) fn id(number: u64) -> GenerationId {
    GenerationId::new(number).unwrap()
}

pub(crate) fn directory_of(store: &Path, number: u64) -> PathBuf {
    store.join(id(number).to_string())
}

/// Makes an existing generation current, with a writer of its own.
pub(crate) fn roll_to(store: &Store, number: u64) {
    store.writer().unwrap().rollback(Some(id(number))).unwrap();
}

/// Removes all generations except the current and the newest one; returns the removed numbers.
pub(crate) fn collect(writer: &StoreWriter) -> Vec<u64> {
    writer.gc(1).unwrap().removed.into_iter().map(GenerationId::get).collect()
}

/// The names in a directory, ascending.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A copy of a generation as a foreign tool would put it into a store: writable, and without taking the lock.
pub(crate) fn copy_by_hand(store: &Path, from: u64, to: u64) -> PathBuf {
    let (from, to) = (directory_of(store, from), directory_of(store, to));
    fs::create_dir(&to).unwrap();
    for name in names(&from) {
        fs::write(to.join(&name), fs::read(from.join(&name)).unwrap()).unwrap();
    }
    to
}

/// A generation that has the files of another one, as hard links, except for its lease.
pub(crate) fn link_by_hand(store: &Path, from: u64, to: u64) -> PathBuf {
    let (from, to) = (directory_of(store, from), directory_of(store, to));
    fs::create_dir(&to).unwrap();
    for name in names(&from) {
        if name == "lease" {
            fs::write(to.join(&name), b"").unwrap()
        } else {
            fs::hard_link(from.join(&name), to.join(&name)).unwrap()
        }
    }
    to
}

/// Changes `current` without a writer, atomically.
#[cfg(unix)]
pub(crate) fn point_current_to(store: &Path, name: &str) {
    let link = store.join("by-hand");
    std::os::unix::fs::symlink(name, &link).unwrap();
    fs::rename(link, store.join("current")).unwrap();
}

/// The first shard file of a generation.
pub(crate) fn a_shard_of(generation: &Path) -> PathBuf {
    let name = names(generation).into_iter().find(|name| name.ends_with(".shard")).unwrap();
    generation.join(name)
}

/// The files below a directory that this process has mapped, one entry per map.
#[cfg(target_os = "linux")]
pub(crate) fn maps_below(directory: &Path) -> Vec<String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let directory = format!("{}/", directory.to_str().unwrap()); // so that "7-1" does not match "7-10"
    let paths = maps.lines().filter_map(|line| line.find(&directory).map(|at| line[at..].to_string()));
    paths.collect()
}
