//! When reads verify bytes against their checks, and which verified bytes are remembered.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::common::{Storage, TempDir};
use sharddb::spec::HashFunction;
use sharddb::{BuildOptions, ErrorKind, OpenOptions, ShardDb, ShardingSpec, Snapshot, VerifyReads};

const MODES: [VerifyReads; 3] = [VerifyReads::Never, VerifyReads::Once, VerifyReads::Always];

/// A store whose shard file may be changed, and its content.
struct Store {
    root: TempDir,
    shard: PathBuf,
    sound: Vec<u8>,
    pairs: BTreeMap<u64, Vec<u8>>,
}

impl Store {
    /// One shard of `2^minishard_bits` minishards; `len_of` returns the length of the value of a key.
    fn new(minishard_bits: u8, keys: u64, checks: bool, len_of: impl Fn(u64) -> usize) -> Store {
        let root = TempDir::new();
        let spec = ShardingSpec::new(HashFunction::Identity, 0, minishard_bits, 0).unwrap();
        let mut loader = BuildOptions::new().spec(spec).checks(checks).threads(1).create(root.path()).unwrap();
        let pairs: BTreeMap<u64, Vec<u8>> = (0..keys).map(|key| (key, bytes(key, len_of(key)))).collect();
        pairs.iter().for_each(|(key, value)| loader.insert(*key, value).unwrap());
        let generation = loader.finish().unwrap().generation.to_string();
        let shard = root.path().join(generation).join("0.shard");
        let sound = fs::read(&shard).unwrap();
        writable(&shard, &sound);
        Store { root, shard, sound, pairs }
    }

    /// With minishards below and above 4 KiB, and values below and above 512 bytes in both.
    fn of_all_sizes() -> Store {
        Store::new(2, 32, true, |key| match key % 4 {
            0 => 5,
            1 => [0, 40, 400, 600][usize::try_from(key / 4 % 4).unwrap()],
            2 => [100, 511, 512, 513, 3000][usize::try_from(key / 4 % 5).unwrap()],
            _ => 2000,
        })
    }

    fn open(&self, storage: Storage, verify: VerifyReads) -> ShardDb {
        storage.open(OpenOptions::new().verify_reads(verify), self.root.path()).unwrap()
    }

    fn with_byte_flipped(&self, at: usize, check: impl FnOnce()) {
        let mut changed = self.sound.clone();
        changed[at] ^= 1 << (at % 8);
        fs::write(&self.shard, changed).unwrap();
        check();
        fs::write(&self.shard, &self.sound).unwrap();
    }

    fn value_at(&self, key: u64) -> usize {
        let location = self.open(Storage::Positioned, VerifyReads::Never).snapshot().locate(key).unwrap().unwrap();
        usize::try_from(location.range.start).unwrap()
    }
}

/// Bytes that depend on the key and on their position.
fn bytes(key: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ (at >> 8)).to_le_bytes()[0] ^ key.to_le_bytes()[0]).collect()
}

fn writable(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// All values by each read method; `None` for an error.
fn answers(snapshot: &Snapshot, keys: &[u64]) -> Vec<Vec<Option<Option<Vec<u8>>>>> {
    let owned =
        |value: sharddb::Result<Option<sharddb::Value<'_>>>| value.ok().map(|value| value.map(|value| value.to_vec()));
    vec![
        keys.iter().map(|key| owned(snapshot.get(*key))).collect(),
        snapshot.get_many(keys).into_iter().map(owned).collect(),
        keys.iter().map(|key| owned(snapshot.get(*key))).collect(),
    ]
}

#[test]
fn each_damage_is_an_error_or_harmless_and_so_is_it_the_second_time() {
    let store = Store::of_all_sizes();
    let keys: Vec<u64> = (0..40).collect();
    for at in (0..store.sound.len()).step_by(13) {
        store.with_byte_flipped(at, || {
            for storage in Storage::ALL {
                for verify in [VerifyReads::Once, VerifyReads::Always] {
                    let snapshot = store.open(storage, verify).snapshot();
                    for answers in answers(&snapshot, &keys) {
                        for (key, answer) in keys.iter().zip(answers) {
                            let Some(answer) = answer else { continue };
                            assert!(
                                answer.as_ref() == store.pairs.get(key),
                                "byte {at}, {storage:?}, {verify:?}: key {key}"
                            );
                        }
                    }
                    for (key, there) in keys.iter().zip(snapshot.contains_many(&keys)) {
                        let Ok(there) = there else { continue };
                        assert_eq!(
                            there,
                            store.pairs.contains_key(key),
                            "byte {at}, {storage:?}, {verify:?}: key {key}"
                        );
                    }
                }
            }
        });
    }
}

#[test]
fn a_damaged_value_spoils_no_other() {
    let store = Store::of_all_sizes();
    let keys: Vec<u64> = store.pairs.keys().copied().collect();
    for damaged in keys.iter().copied().filter(|key| !store.pairs[key].is_empty()) {
        store.with_byte_flipped(store.value_at(damaged), || {
            for (storage, verify) in Storage::ALL.into_iter().flat_map(|storage| MODES.map(|verify| (storage, verify)))
            {
                for answers in answers(&store.open(storage, verify).snapshot(), &keys) {
                    for (key, answer) in keys.iter().zip(answers) {
                        match (*key == damaged, verify) {
                            (false, _) => {
                                assert!(answer.unwrap().as_ref() == store.pairs.get(key), "{key}, not {damaged}")
                            }
                            (true, VerifyReads::Never) => assert!(answer.unwrap().as_ref() != store.pairs.get(key)),
                            (true, _) => assert_eq!(answer, None, "{damaged}: {storage:?}, {verify:?}"),
                        }
                    }
                }
            }
        });
    }
}

#[test]
fn what_was_compared_is_counted_and_compared_once() {
    let store = Store::new(9, 600, true, |key| usize::try_from(key % 50).unwrap());
    for storage in [Storage::Mapped, Storage::Loaded] {
        let snapshot = store.open(storage, VerifyReads::Once).snapshot();
        let count = || snapshot.stats().verified_minishards;
        if storage == Storage::Loaded {
            (0..600).for_each(|key| assert!(snapshot.get(key).unwrap().is_some()));
            assert_eq!(count(), 0, "the file as a whole was compared when it was read");
            continue;
        }
        assert_eq!(count(), 0);
        for (key, expected) in [(0, 1), (0, 1), (512, 1), (1, 2), (513, 2), (100_000, 3)] {
            snapshot.get(key).unwrap();
            assert_eq!(count(), expected, "after key {key}");
        }
        snapshot.get_many(&(0..600).collect::<Vec<_>>());
        assert_eq!(count(), 512);
    }
    for verify in [VerifyReads::Never, VerifyReads::Always] {
        let snapshot = store.open(Storage::Mapped, verify).snapshot();
        (0..600).for_each(|key| assert!(snapshot.get(key).unwrap().is_some()));
        assert_eq!(snapshot.stats().verified_minishards, 0);
    }
}

/// A walk that finds no damage spares the next one the verification; a walk that finds damage does not.
#[test]
fn walks_compare_until_all_is_known_to_be_whole() {
    let store = Store::of_all_sizes();
    let errors = |snapshot: &Snapshot| {
        let mut errors = 0;
        let ControlFlow::Continue(()) = snapshot.scan(|pair| {
            errors += u64::from(pair.is_err());
            ControlFlow::<std::convert::Infallible>::Continue(())
        });
        errors
    };
    for storage in Storage::ALL {
        let snapshot = store.open(storage, VerifyReads::Once).snapshot();
        assert_eq!((errors(&snapshot), errors(&snapshot)), (0, 0));
    }
    for damaged in [0, 5, 6, 3] {
        store.with_byte_flipped(store.value_at(damaged), || {
            for storage in Storage::ALL {
                let snapshot = store.open(storage, VerifyReads::Once).snapshot();
                for _ in 0..3 {
                    assert_eq!(errors(&snapshot), 1, "{storage:?}, key {damaged}");
                    assert!(snapshot.get(damaged).is_err());
                }
                let bad = snapshot.iter().filter(|entry| entry.as_ref().unwrap().value().is_err()).count();
                assert_eq!(bad, 1, "{storage:?}, key {damaged}");
            }
        });
    }
}

/// Without checks a single value cannot be verified, but a loaded file is verified against the manifest.
#[test]
fn a_loaded_file_without_checks_is_compared_as_a_whole() {
    let store = Store::new(1, 20, false, |_| 30);
    store.with_byte_flipped(store.value_at(7), || {
        for verify in [VerifyReads::Once, VerifyReads::Always] {
            let error = store.open(Storage::Loaded, verify).get(3).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains("CRC-32") && error.to_string().contains("0.shard"), "{error}");
        }
        assert!(store.open(Storage::Loaded, VerifyReads::Never).get(7).unwrap().is_some());
        assert!(store.open(Storage::Mapped, VerifyReads::Once).get(7).unwrap().is_some());
    });
    assert!(store.open(Storage::Loaded, VerifyReads::Once).get(7).unwrap().is_some());
}

/// Long enough for huge pages, if there are any.
#[test]
fn a_long_file_is_loaded_and_warmed() {
    let store = Store::new(4, 40, true, |_| 100_000);
    for storage in Storage::ALL {
        let snapshot = store.open(storage, VerifyReads::Once).snapshot();
        let warming = snapshot.warm().unwrap();
        for (key, value) in &store.pairs {
            assert!(snapshot.get(*key).unwrap().unwrap() == *value, "{storage:?}: {key}");
        }
        warming.wait();
        drop(snapshot.warm().unwrap());
        assert!(snapshot.get(3).unwrap().is_some());
    }
    store.with_byte_flipped(store.value_at(7), || {
        let snapshot = store.open(Storage::Loaded, VerifyReads::Once).snapshot();
        assert!(snapshot.get(7).is_err() && snapshot.get(8).is_ok());
    });
}
