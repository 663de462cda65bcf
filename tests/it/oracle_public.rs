//! Everything that TensorStore and CloudVolume wrote is read: every key, every absent key, the listing, by every method
//! and from every storage.

use sharddb_format::internal::ids::shard_number;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::common::{Answer, Storage, TempDir, data, expected, json_lines, name, number, sets, sharding, spec, text};
use sharddb::shard::{Entry, Shard};
use sharddb::spec::{HashFunction, ShardNumber};
use sharddb::{ErrorKind, OpenOptions, ShardDb, ShardingSpec, Snapshot, VerifyReads};

/// A data set and its expected content.
struct Set {
    directory: PathBuf,
    pairs: BTreeMap<u64, Vec<u8>>,
    absent: Vec<u64>,
}

/// The public sets. Their values are compared with their SHA-256 once.
static SETS: LazyLock<Vec<Set>> = LazyLock::new(|| sets("public").into_iter().map(Set::read).collect());

impl Set {
    fn read(directory: PathBuf) -> Set {
        let snapshot = ShardDb::load(&directory).unwrap().snapshot();
        let (mut pairs, mut absent) = (BTreeMap::new(), Vec::new());
        for (key, answer) in expected(&directory) {
            let value = snapshot.get(key).unwrap();
            assert_eq!(Answer::of(Ok(value.as_deref())), answer, "{}: key {key}", name(&directory));
            match value {
                Some(value) => drop(pairs.insert(key, value.to_vec())),
                None => absent.push(key),
            }
        }
        Set { directory, pairs, absent }
    }

    fn name(&self) -> &str {
        name(&self.directory)
    }

    /// The numbers of the shards that have a file.
    fn shards(&self) -> Vec<ShardNumber> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.directory).unwrap() {
            let file_name = entry.unwrap().file_name();
            if let Some(stem) = file_name.to_str().unwrap().strip_suffix(".shard") {
                numbers.push(shard_number(u64::from_str_radix(stem, 16).unwrap()));
            }
        }
        numbers.sort();
        numbers
    }

    /// Keys in an order that differs from every storage order; present ones occur twice.
    fn shuffled_keys(&self) -> Vec<u64> {
        let keys: Vec<u64> = self.pairs.keys().chain(&self.absent).chain(self.pairs.keys()).copied().collect();
        let stride = (keys.len() / 3..).find(|stride| gcd(*stride, keys.len()) == 1).unwrap();
        (0..keys.len()).map(|at| keys[at * stride % keys.len()]).collect()
    }
}

/// The sets that take little time.
fn small_sets() -> impl Iterator<Item = &'static Set> {
    SETS.iter().filter(|set| set.pairs.len() < 1000)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Opens sets with the given storage and options, and calls every read method.
fn every_question<'a>(sets: impl Iterator<Item = &'a Set>, storage: Storage, options: &OpenOptions) {
    for set in sets {
        let db = storage.open(options, &set.directory).unwrap();
        lookups_agree(&db, set);
        batches_agree(&db.snapshot(), set);
        listings_agree(&db.snapshot(), set);
    }
}

#[test]
fn mapped() {
    every_question(SETS.iter(), Storage::Mapped, &OpenOptions::new());
}

#[test]
fn positioned() {
    every_question(SETS.iter(), Storage::Positioned, &OpenOptions::new());
}

#[test]
fn loaded() {
    every_question(SETS.iter(), Storage::Loaded, &OpenOptions::new());
}

#[test]
fn mapped_one_shard_and_positioned_the_others() {
    every_question(small_sets(), Storage::Mapped, OpenOptions::new().max_maps(1));
}

#[test]
fn mapped_without_a_map_to_be_had() {
    every_question(small_sets(), Storage::Mapped, OpenOptions::new().max_maps(0));
}

/// Without a cache every lookup decodes its index again, so this test uses small sets only.
#[test]
fn without_a_cache() {
    for set in SETS.iter().filter(|set| set.pairs.len() < 100) {
        for storage in Storage::ALL {
            every_question([set].into_iter(), storage, OpenOptions::new().cache_bytes(0));
        }
    }
}

/// Foreign sets have no checks, so nothing is verified and no read fails.
#[test]
fn verified_and_populated() {
    every_question(small_sets(), Storage::Mapped, OpenOptions::new().verify_reads(VerifyReads::Always).populate(true));
}

fn lookups_agree(db: &ShardDb, set: &Set) {
    let (snapshot, mut reader) = (db.snapshot(), db.reader());
    let info = fs::read_to_string(set.directory.join("info")).unwrap();
    assert_eq!(ShardingSpec::from_info(&info).unwrap(), *snapshot.spec(), "{}", set.name());
    let mut buffer = b"left over".to_vec();
    for (key, value) in &set.pairs {
        let place = format!("{}: key {key}", set.name());
        assert_eq!(snapshot.get(*key).unwrap().unwrap(), value, "{place}");
        assert_eq!(db.get(*key).unwrap().unwrap(), value, "{place}");
        assert_eq!(reader.get(*key).unwrap().unwrap(), value, "{place}");
        assert!(snapshot.get_into(*key, &mut buffer).unwrap(), "{place}");
        assert_eq!(&buffer, value, "{place}");
        assert!(snapshot.contains(*key).unwrap() && db.contains(*key).unwrap(), "{place}");
        let location = snapshot.locate(*key).unwrap().unwrap();
        let file = snapshot.spec().shard_file_name(snapshot.spec().route(*key).shard);
        assert_eq!(location.path, set.directory.join(file), "{place}");
    }
    for key in &set.absent {
        let place = format!("{}: key {key}", set.name());
        assert!(snapshot.get(*key).unwrap().is_none(), "{place}");
        assert!(db.get(*key).unwrap().is_none(), "{place}");
        assert!(reader.get(*key).unwrap().is_none(), "{place}");
        assert!(!snapshot.get_into(*key, &mut buffer).unwrap() && buffer.is_empty(), "{place}");
        assert!(!snapshot.contains(*key).unwrap() && !db.contains(*key).unwrap(), "{place}");
        assert!(snapshot.locate(*key).unwrap().is_none(), "{place}");
        assert!(snapshot.get_preamble(*key, 1).unwrap().is_none(), "{place}");
    }
}

fn batches_agree(snapshot: &Snapshot, set: &Set) {
    let keys = set.shuffled_keys();
    let values = snapshot.get_many(&keys);
    let contained = snapshot.contains_many(&keys);
    let locations = snapshot.locate_many(&keys);
    assert_eq!([values.len(), contained.len(), locations.len()], [keys.len(); 3]);
    for (at, key) in keys.iter().enumerate() {
        let place = format!("{}: key {key}", set.name());
        let expected = set.pairs.get(key);
        assert_eq!(values[at].as_ref().unwrap().as_deref(), expected.map(Vec::as_slice), "{place}");
        assert_eq!(*contained[at].as_ref().unwrap(), expected.is_some(), "{place}");
        assert_eq!(*locations[at].as_ref().unwrap(), snapshot.locate(*key).unwrap(), "{place}");
    }

    let mut next = 0;
    let stopped = snapshot.get_each(&keys, |at, value| {
        assert_eq!(at, next, "in order, each once");
        next += 1;
        assert_eq!(value.unwrap().as_deref(), set.pairs.get(&keys[at]).map(Vec::as_slice));
        if next == keys.len() / 2 { ControlFlow::Break(at) } else { ControlFlow::Continue(()) }
    });
    match keys.len() / 2 {
        0 => assert_eq!(stopped, ControlFlow::Continue(())),
        half => assert_eq!(stopped, ControlFlow::Break(half - 1)),
    }
}

fn listings_agree(snapshot: &Snapshot, set: &Set) {
    let keys: Vec<u64> = set.pairs.keys().copied().collect();
    assert_eq!(sorted(snapshot.keys().map(Result::unwrap)), keys, "{}", set.name());
    assert_eq!(snapshot.count().unwrap(), keys.len() as u64, "{}", set.name());
    assert_eq!(sorted(snapshot.iter().map(|entry| entry_agrees(&entry.unwrap(), snapshot, set))), keys);

    let pairs: Vec<_> = snapshot.range(..).map(Result::unwrap).collect();
    assert_eq!(pairs.iter().map(|pair| pair.key()).collect::<Vec<_>>(), keys, "{}: ascending", set.name());
    pairs.iter().for_each(|pair| assert_eq!(pair.value().unwrap(), set.pairs[&pair.key()]));
    let (low, high) = (keys.len() / 4, keys.len() * 3 / 4);
    if low < high {
        let part = snapshot.range(keys[low]..keys[high]).map(|pair| pair.unwrap().key());
        assert_eq!(part.collect::<Vec<_>>(), keys[low..high], "{}", set.name());
    }

    let shards: Vec<_> = snapshot.shards().map(|shard| shard.unwrap().number()).collect();
    assert_eq!(shards, set.shards(), "{}", set.name());
}

/// Asserts that all methods of an entry agree with the set; returns its key.
fn entry_agrees(entry: &Entry, snapshot: &Snapshot, set: &Set) -> u64 {
    let key = entry.key();
    let place = format!("{}: key {key}", set.name());
    assert_eq!(entry.value().unwrap(), set.pairs[&key], "{place}");
    assert_eq!(entry.location(), snapshot.spec().route(key), "{place}");
    let encoded = entry.encoded_value().unwrap();
    assert_eq!(entry.stored_len(), encoded.len() as u64, "{place}");
    let location = entry.value_location().unwrap();
    assert_eq!(Some(&location), snapshot.locate(key).unwrap().as_ref(), "{place}");
    assert_eq!(location.stored_len(), entry.stored_len(), "{place}");
    key
}

fn sorted(keys: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut keys: Vec<u64> = keys.collect();
    keys.sort_unstable();
    keys
}

/// `locate` returns where the stored bytes are.
#[test]
fn located_bytes_are_the_value() {
    for set in small_sets() {
        let snapshot = ShardDb::open(&set.directory).unwrap().snapshot();
        for entry in snapshot.iter() {
            let entry = entry.unwrap();
            let location = entry.value_location().unwrap();
            let file = fs::read(&location.path).unwrap();
            let start = usize::try_from(location.range.start).unwrap();
            let stored = &file[start..][..usize::try_from(location.stored_len()).unwrap()];
            assert_eq!(entry.encoded_value().unwrap(), stored, "{}: key {}", set.name(), entry.key());
        }
    }
}

/// CloudVolume calls this disassembling a shard.
#[test]
fn shards_from_bytes_in_hand() {
    for set in SETS.iter() {
        let spec = spec(&set.directory);
        let mut found = BTreeSet::new();
        for number in set.shards() {
            let file = set.directory.join(spec.shard_file_name(number));
            let shard = Shard::from_bytes(spec, number, fs::read(file).unwrap());
            let place = format!("{} {number:?}", set.name());
            for entry in shard.iter() {
                let entry = entry.unwrap();
                assert_eq!(entry.value().unwrap(), set.pairs[&entry.key()], "{place}: key {}", entry.key());
                assert!(found.insert(entry.key()), "{place}: key {} again", entry.key());
            }
            assert_eq!(shard.keys().count(), shard.iter().count(), "{place}");
            for key in set.pairs.keys().chain(&set.absent) {
                let expected = set.pairs.get(key).filter(|_| spec.route(*key).shard == number);
                assert_eq!(shard.get(*key).unwrap().as_deref(), expected.map(Vec::as_slice), "{place}: key {key}");
                assert_eq!(shard.contains(*key).unwrap(), expected.is_some(), "{place}: key {key}");
                assert_eq!(shard.locate(*key).unwrap().is_some(), expected.is_some(), "{place}: key {key}");
            }
        }
        assert!(found.iter().eq(set.pairs.keys()), "{}", set.name());
    }
}

/// A directory of shards without `info` is opened with a given specification.
#[test]
fn given_specification() {
    for set in small_sets() {
        let scratch = TempDir::copy_of(&set.directory);
        fs::remove_file(scratch.path().join("info")).unwrap();
        for storage in Storage::ALL {
            let error = storage.open(&OpenOptions::new(), scratch.path()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            let mut options = OpenOptions::new();
            let snapshot = storage.open(options.spec(spec(&set.directory)), scratch.path()).unwrap().snapshot();
            for entry in snapshot.iter() {
                let entry = entry.unwrap();
                assert_eq!(entry.value().unwrap(), set.pairs[&entry.key()]);
            }
            assert_eq!(snapshot.count().unwrap(), set.pairs.len() as u64, "{}", set.name());
        }
    }
}

/// Multi-resolution mesh fragments are stored before their manifest, and no index names them.
#[test]
fn preambles_of_multi_resolution_meshes() {
    let directory = data("public/cv_offset_gaps_multires");
    let fragments = json_lines(&directory.join("fragments.jsonl"));
    assert!(!fragments.is_empty());
    for storage in Storage::ALL {
        let snapshot = storage.open(&OpenOptions::new(), &directory).unwrap().snapshot();
        let preambles: BTreeMap<u64, Vec<u8>> = snapshot
            .iter()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.key(), entry.preamble().unwrap().to_vec()))
            .collect();
        assert_eq!(preambles.len(), fragments.len());
        for line in &fragments {
            let (key, len) = (number(&line["key"]), line["preceding_len"].as_u64().unwrap());
            let expected = Answer::Value(text(&line["preceding_sha256"]).to_string());
            let preamble = snapshot.get_preamble(key, len).unwrap().unwrap();
            assert_eq!(Answer::of_value(&preamble), expected, "key {key}");
            assert_eq!(Answer::of_value(&preambles[&key]), expected, "key {key}");
            assert_eq!(snapshot.get_preamble(key, 0).unwrap().unwrap(), b"", "key {key}");
            let too_much = snapshot.locate(key).unwrap().unwrap().range.start;
            let error = snapshot.get_preamble(key, too_much).unwrap_err();
            assert_eq!((error.kind(), error.key()), (ErrorKind::InvalidInput, Some(key)));
        }
        let absent = (0..).find(|key| !preambles.contains_key(key)).unwrap();
        let mut requests: Vec<(u64, u64)> =
            preambles.iter().map(|(key, preamble)| (*key, preamble.len() as u64)).collect();
        requests.insert(1, (absent, 3));
        for (key, len) in requests {
            let expected = preambles.get(&key).map_or(Answer::Absent, |preamble| Answer::of_value(preamble));
            assert_eq!(Answer::of(snapshot.get_preamble(key, len)), expected, "key {key}");
        }
        let counts: u64 = snapshot.shards().map(|shard| shard.unwrap().count().unwrap()).sum();
        assert_eq!(counts, snapshot.count().unwrap());
    }
}

/// Image, segmentation, skeletons, meshes and annotations as Neuroglancer opens them; nested ones by JSON pointer.
#[test]
fn neuroglancer_data_set() {
    // directory, pointer, number of keys according to the maker of the data set
    let members = [
        ("image", Some("/scales/0"), 64),
        ("image", None, 64),
        ("seg", Some("/scales/0"), 64),
        ("seg", None, 64),
        ("seg/skeletons", None, 1000),
        ("seg/skeletons", Some(""), 1000),
        ("seg/mesh", None, 8),
        ("ann", Some("/by_id"), 64),
        ("ann", Some("/relationships/0"), 4),
        ("ann", Some("/spatial/0"), 1),
        ("ann", Some("/spatial/1"), 4),
    ];
    for (directory, pointer, keys) in members {
        for storage in Storage::ALL {
            let mut options = OpenOptions::new();
            if let Some(pointer) = pointer {
                options.sharding_at(pointer);
            }
            let path = data("neuroglancer").join(directory);
            let snapshot = storage.open(&options, &path).unwrap().snapshot();
            assert_eq!(snapshot.count().unwrap(), keys, "{directory} {pointer:?}");
            for entry in snapshot.iter() {
                let entry = entry.unwrap();
                assert!(!entry.value().unwrap().is_empty(), "{directory} {pointer:?}: key {}", entry.key());
                assert_eq!(snapshot.get(entry.key()).unwrap().unwrap(), entry.value().unwrap());
            }
        }
    }
}

#[test]
fn several_specifications_are_listed_and_none_is_guessed() {
    for storage in Storage::ALL {
        let error = storage.open(&OpenOptions::new(), &data("neuroglancer/ann")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        for pointer in ["/by_id", "/relationships/0", "/spatial/0", "/spatial/1"] {
            assert!(error.to_string().contains(pointer), "{error}");
        }
        let mut options = OpenOptions::new();
        let error = storage.open(options.sharding_at("/spatial/2"), &data("neuroglancer/ann")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("/spatial/2"), "{error}");
    }
}

#[test]
fn hash_vectors() {
    let vectors = json_lines(&data("hash_vectors.jsonl"));
    assert_eq!(vectors.len(), 2024);
    for vector in vectors {
        let hash = match text(&vector["hash"]) {
            "identity" => HashFunction::Identity,
            other => {
                assert_eq!(other, HashFunction::MurmurHash3X86_128.as_str());
                HashFunction::MurmurHash3X86_128
            }
        };
        let bits = |member: &str| vector.get(member).map_or(0, |bits| u8::try_from(number(bits)).unwrap());
        let (minishard_bits, shard_bits) = (bits("minishard_bits"), bits("shard_bits"));
        let spec = ShardingSpec::new(hash, bits("preshift_bits"), minishard_bits, shard_bits).unwrap();
        let key = number(&vector["key"]);
        if let Some(hashed) = vector.get("hashed") {
            assert_eq!(spec.hash(key), number(hashed), "{vector}");
        } else {
            let location = spec.route(key);
            assert_eq!(spec.shard_file_name(location.shard), text(&vector["file"]), "{vector}");
            assert_eq!(location.minishard.get(), number(&vector["minishard"]), "{vector}");
        }
    }
}

/// The obsolete form of a shard: the shard index in one file, the rest in another.
#[test]
fn obsolete_pairs_of_index_and_data() {
    for set in small_sets() {
        let scratch = TempDir::copy_of(&set.directory);
        let spec = spec(&set.directory);
        for number in set.shards() {
            split(&scratch.path().join(spec.shard_file_name(number)), spec.shard_index_len());
        }
        for storage in Storage::ALL {
            let db = storage.open(&OpenOptions::new(), scratch.path()).unwrap();
            let snapshot = db.snapshot();
            assert_eq!(sorted(snapshot.keys().map(Result::unwrap)), sorted(set.pairs.keys().copied()));
            for (key, value) in &set.pairs {
                assert_eq!(snapshot.get(*key).unwrap().unwrap(), value, "{}: key {key}", set.name());
                let location = snapshot.locate(*key).unwrap().unwrap();
                assert_eq!(location.path.extension().unwrap(), "data");
            }
            batches_agree(&snapshot, set);
        }
    }
}

#[test]
fn a_shard_file_wins_over_an_obsolete_pair() {
    let set = SETS.iter().find(|set| set.name() == "ts_dense_identity").unwrap();
    let scratch = TempDir::copy_of(&set.directory);
    for number in set.shards() {
        let file = spec(&set.directory).shard_file_name(number);
        for extension in ["index", "data"] {
            fs::write(scratch.path().join(&file).with_extension(extension), "not this").unwrap();
        }
    }
    for storage in Storage::ALL {
        let snapshot = storage.open(&OpenOptions::new(), scratch.path()).unwrap().snapshot();
        assert_eq!(snapshot.count().unwrap(), set.pairs.len() as u64);
        set.pairs.iter().for_each(|(key, value)| assert_eq!(snapshot.get(*key).unwrap().unwrap(), value));
    }
}

#[test]
fn half_of_an_obsolete_pair_is_an_error() {
    let set = SETS.iter().find(|set| set.name() == "ts_single_key_zero").unwrap();
    let scratch = TempDir::copy_of(&set.directory);
    let file = scratch.path().join(spec(&set.directory).shard_file_name(set.shards()[0]));
    split(&file, spec(&set.directory).shard_index_len());
    fs::remove_file(file.with_extension("data")).unwrap();
    for storage in Storage::ALL {
        let snapshot = storage.open(&OpenOptions::new(), scratch.path()).unwrap().snapshot();
        let error = snapshot.get(0).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&*file.with_extension("data"))));
    }
}

/// Splits `<stem>.shard` into `<stem>.index` and `<stem>.data`.
fn split(shard: &Path, shard_index_len: u64) {
    let bytes = fs::read(shard).unwrap();
    let (index, data) = bytes.split_at(usize::try_from(shard_index_len).unwrap());
    fs::write(shard.with_extension("index"), index).unwrap();
    fs::write(shard.with_extension("data"), data).unwrap();
    fs::remove_file(shard).unwrap();
}

/// Guards the fixture: the sets cover both hashes, both encodings of either kind, and the extremes of the bits.
#[test]
fn the_sets_are_as_various_as_they_should_be() {
    assert_eq!(SETS.len(), 80);
    let specs: Vec<_> = SETS.iter().map(|set| sharding(&set.directory)).collect();
    for hash in ["identity", "murmurhash3_x86_128"] {
        for index in ["raw", "gzip"] {
            for data in ["raw", "gzip"] {
                let is = |spec: &serde_json::Value| {
                    [&spec["hash"], &spec["minishard_index_encoding"], &spec["data_encoding"]] == [hash, index, data]
                };
                assert!(specs.iter().any(is), "{hash} {index} {data}");
            }
        }
    }
    assert!(specs.iter().any(|spec| spec["preshift_bits"] == 64));
    assert!(specs.iter().any(|spec| spec["shard_bits"] == 64));
}
