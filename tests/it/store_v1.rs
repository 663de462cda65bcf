//! Every later version reads the store that version 0.1.0 wrote, and writes the same bytes for the same pairs.
//!
//! This is the promise of major version 1 of the format. When a test here fails, the change under test is wrong, not
//! the data: a different layout needs a new format version, and a new directory next to `tests/data/store-v1`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::verify_both::VerifyBoth;
use crate::common::{Storage, TempDir, data, directory_bytes, shuffled};
use sharddb::spec::{Encoding, HashFunction, ValueAlignment};
use sharddb::{BuildOptions, GenerationId, OpenOptions, ShardingSpec, Store, VerifyLevel, VerifyReads};

/// Returns the store that the first version with digests wrote of the same pairs.
fn with_digests() -> PathBuf {
    data("store-v1-digests/store")
}

struct Pair {
    key: u64,
    preamble: Vec<u8>,
    value: Vec<u8>,
}

/// The pairs of both generations.
fn pairs() -> Vec<Pair> {
    let bytes = fs::read(data("store-v1/pairs.bin2")).unwrap();
    let mut rest = &bytes[..];
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        let [key, preamble_len, value_len] =
            [(); 3].map(|()| u64::from_le_bytes(take(&mut rest, 8).try_into().unwrap()));
        pairs.push(Pair { key, preamble: take(&mut rest, preamble_len), value: take(&mut rest, value_len) });
    }
    pairs
}

fn take(rest: &mut &[u8], len: u64) -> Vec<u8> {
    rest.split_off(..usize::try_from(len).unwrap()).unwrap().to_vec()
}

/// The options of each generation.
fn builds() -> [BuildOptions; 2] {
    let raw = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 2, 3).unwrap();
    let gzip = ShardingSpec::new(HashFunction::Identity, 2, 1, 5)
        .unwrap()
        .with_minishard_index_encoding(Encoding::Gzip)
        .with_data_encoding(Encoding::Gzip);
    [raw, gzip].map(|spec| {
        let mut options = BuildOptions::new();
        options.spec(spec).checks(true).value_alignment(ValueAlignment::Eight);
        if spec == gzip {
            options.info(fs::read_to_string(data("store-v1/info")).unwrap());
        }
        options
    })
}

fn build(store: &Path, options: &BuildOptions, pairs: &[Pair]) -> GenerationId {
    let mut loader = options.create(store).unwrap();
    for Pair { key, preamble, value } in pairs {
        loader.insert_with_preamble(*key, preamble, value).unwrap();
    }
    loader.finish().unwrap().generation
}

fn generation(number: u64) -> GenerationId {
    GenerationId::new(number).unwrap()
}

/// The files of a generation. From the manifest, the version of its writer and the checksum, which depends on it, are
/// removed.
fn files(store: &Path, id: GenerationId) -> BTreeMap<String, Vec<u8>> {
    let mut files = directory_bytes(&store.join(id.to_string()));
    let manifest = String::from_utf8(files.remove("manifest.json").unwrap()).unwrap();
    let lasting: Vec<&str> =
        manifest.lines().filter(|line| !line.starts_with("\"writer\": ") && !line.starts_with("\"crc32\": ")).collect();
    assert_eq!(lasting.len() + 2, manifest.lines().count());
    files.insert("manifest.json".to_string(), lasting.join("\n").into_bytes());
    files
}

/// Removes the member "digests", which version 0.1.0 did not write, from the manifest.
fn without_digests(mut files: BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    let manifest = String::from_utf8(files.remove("manifest.json").unwrap()).unwrap();
    let (before, rest) = manifest.split_once("\"digests\": [\n").unwrap();
    let (digests, after) = rest.split_once("\n],\n").unwrap();
    assert_eq!(
        digests.lines().count(),
        files.len() - 1,
        "one for each file but the lease and the manifest itself, and info"
    );
    files.insert("manifest.json".to_string(), [before, after].concat().into_bytes());
    files
}

#[test]
fn opens_with_every_storage_and_every_pair_is_right() {
    let pairs = pairs();
    let present: BTreeMap<u64, &Pair> = pairs.iter().map(|pair| (pair.key, pair)).collect();
    assert_eq!((present.len(), pairs.len()), (185, 185));
    for directory in ["store", "store/gen-0000000001", "store/gen-0000000002"] {
        for storage in Storage::ALL {
            let place = data("store-v1").join(directory);
            let database = storage.open(OpenOptions::new().verify_reads(VerifyReads::Always), &place).unwrap();
            let snapshot = database.snapshot();
            assert_eq!((snapshot.key_count(), snapshot.count().unwrap()), (Some(185), 185));
            let report = snapshot.verify_both(VerifyLevel::Data).unwrap();
            assert!(report.is_clean(), "{directory} {storage:?}: {:?}", report.findings());
            for Pair { key, preamble, value } in &pairs {
                assert_eq!(snapshot.get(*key).unwrap().unwrap(), value, "{directory} {storage:?}: key {key}");
                let before = snapshot.get_preamble(*key, preamble.len() as u64).unwrap().unwrap();
                assert_eq!(before, preamble, "{directory} {storage:?}: key {key}");
                let absent = key ^ 1 << 40;
                assert!(present.contains_key(&absent) || snapshot.get(absent).unwrap().is_none());
            }
            for entry in snapshot.iter() {
                let entry = entry.unwrap();
                assert_eq!(entry.value().unwrap(), present[&entry.key()].value);
            }
        }
    }
}

#[test]
fn the_same_pairs_give_the_same_bytes() {
    let store = TempDir::new();
    for (number, options) in (1..).zip(builds()) {
        let id = build(store.path(), &options, &shuffled(pairs(), number));
        assert_eq!(id, generation(number));
        let (written, expected) = (without_digests(files(store.path(), id)), files(&data("store-v1/store"), id));
        assert_eq!(written.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (name, bytes) in &expected {
            assert!(written[name] == *bytes, "{id}/{name} differs from what version 0.1.0 wrote");
        }
    }
}

/// The options of each generation of the store with digests.
fn builds_with_digests() -> [BuildOptions; 2] {
    let [mut first, second] = builds();
    first.spec(ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 9, 1).unwrap()).ordered(true);
    [first, second]
}

/// Every file, with the digests in the manifest, which `scripts/check_digests.py` computes, too.
#[test]
fn the_same_pairs_give_the_same_bytes_and_digests() {
    let store = TempDir::new();
    for (number, options) in (1..).zip(builds_with_digests()) {
        let id = build(store.path(), &options, &shuffled(pairs(), number));
        let (written, expected) = (files(store.path(), id), files(&with_digests(), id));
        assert_eq!(written.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (name, bytes) in &expected {
            assert!(written[name] == *bytes, "{id}/{name} differs from what the first version with digests wrote");
        }
        let first = OpenOptions::new().load(with_digests().join(id.to_string())).unwrap().snapshot();
        assert!(first.verify_both(VerifyLevel::Data).unwrap().is_clean());
        for Pair { key, preamble, value } in &pairs() {
            assert_eq!(first.get(*key).unwrap().unwrap(), value);
            assert_eq!(first.get_preamble(*key, preamble.len() as u64).unwrap().unwrap(), preamble);
        }
        for entry in first.iter() {
            let entry = entry.unwrap();
            let pair = pairs().into_iter().find(|pair| pair.key == entry.key()).unwrap();
            assert_eq!(
                entry.preamble().unwrap(),
                pair.preamble,
                "the whole preamble is known, though values are aligned"
            );
        }
    }
}

/// Writing continues after version 0.1.0: the next generation number, and a rollback.
#[test]
fn the_next_generation_goes_on_top() {
    let scratch = TempDir::new();
    let old = data("store-v1/store");
    let copy = scratch.path().join("store");
    for directory in ["gen-0000000001", "gen-0000000002"] {
        fs::create_dir_all(copy.join(directory)).unwrap();
        for (name, bytes) in directory_bytes(&old.join(directory)) {
            fs::write(copy.join(directory).join(name), bytes).unwrap();
        }
    }
    assert_eq!(Store::open(&old).unwrap().current().unwrap(), Some(generation(2)));
    Store::create(&copy).unwrap().writer().unwrap().rollback(Some(generation(2))).unwrap();

    let [raw, _] = builds();
    assert_eq!(build(&copy, &raw, &pairs()), generation(3));
    assert!(without_digests(files(&copy, generation(3))) == files(&old, generation(1)));
    let store = Store::open(&copy).unwrap();
    assert_eq!(store.writer().unwrap().rollback(None).unwrap(), generation(2));
}

/// The files that version 0.1.0 wrote next to shards of many minishards are verified against the manifest, and
/// otherwise ignored.
#[test]
fn opens_a_store_with_minishard_pages() {
    let bytes = fs::read(data("store-v1-pages/pairs.bin")).unwrap();
    let mut rest = &bytes[..];
    let mut pairs = BTreeMap::new();
    while !rest.is_empty() {
        let [key, len] = [(); 2].map(|()| u64::from_le_bytes(take(&mut rest, 8).try_into().unwrap()));
        pairs.insert(key, take(&mut rest, len));
    }
    assert_eq!(pairs.len(), 1500);
    for storage in Storage::ALL {
        for verify in [VerifyReads::Never, VerifyReads::Once, VerifyReads::Always] {
            let options = OpenOptions::new().verify_reads(verify).clone();
            let snapshot = storage.open(&options, &data("store-v1-pages/store")).unwrap().snapshot();
            assert!(pairs.iter().all(|(key, value)| snapshot.get(*key).unwrap().unwrap() == *value));
            assert!(snapshot.get(7).unwrap().is_none());
            assert_eq!(snapshot.count().unwrap(), 1500);
            assert!(snapshot.verify_both(VerifyLevel::Data).unwrap().is_clean());
        }
    }
    let scratch = TempDir::new();
    let published = Store::create(scratch.path()).unwrap().writer().unwrap();
    let id = published.adopt(data("store-v1-pages/store/gen-0000000001")).unwrap();
    let copied = directory_bytes(&scratch.path().join(id.to_string()));
    assert_eq!(copied, directory_bytes(&data("store-v1-pages/store/gen-0000000001")), "every file, as it was");
}
