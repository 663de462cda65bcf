//! After any single damage to the files of a generation, every verifying read returns the stored value or an error, no
//! read panics or allocates without bound, and verification finds the damage.
//!
//! Damage is each bit of each file flipped, each block zeroed, each file truncated to each length, and each two files
//! swapped. The stores are small and contain every kind of bytes that a native generation can have; all storages read
//! them. The tests that take longest flip one bit of each byte; their ignored forms flip all bits.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;

use crate::common::{Storage, TempDir, directory_bytes};
use crate::peak::peak_of;
use sharddb::spec::{Encoding, HashFunction, ValueAlignment};
use sharddb::{BuildOptions, OpenOptions, Result, ShardDb, ShardingSpec, Snapshot, VerifyLevel, VerifyReads};

/// Upper bound on memory for files of some kilobytes: a decoder's window, a block or two, the text of an error.
const MOST_MEMORY: usize = 1 << 20;

/// The cap of decoded values and indexes: damaged trailers may state large lengths, which are not worth decoding.
const CAP: u64 = 256 << 10;

/// The preamble and the value of each key.
type Pairs = BTreeMap<u64, (Vec<u8>, Vec<u8>)>;

/// A store of one generation whose files may be changed, and its content.
struct Store {
    name: String,
    root: TempDir,
    generation: PathBuf,
    files: BTreeMap<String, Vec<u8>>,
    pairs: Pairs,
    /// Upper bound on the zeros before a preamble.
    padding: usize,
    /// Keys to look up: some present, some absent.
    asked: Vec<u64>,
}

/// The properties of a store.
#[derive(Clone, Copy)]
struct Features {
    index: Encoding,
    data: Encoding,
    preambles: bool,
    alignment: ValueAlignment,
    minishard_bits: u8,
    shard_bits: u8,
    keys: u64,
    ordered: bool,
}

/// Two shards of two minishards, and ten keys.
const SMALL: Features = Features {
    index: Encoding::Raw,
    data: Encoding::Raw,
    preambles: false,
    alignment: ValueAlignment::One,
    minishard_bits: 1,
    shard_bits: 1,
    keys: 10,
    ordered: false,
};

impl Store {
    fn new(features: Features) -> Store {
        let Features { index, data, preambles, alignment, minishard_bits, shard_bits, keys, ordered } = features;
        let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, minishard_bits, shard_bits).unwrap();
        let spec = spec.with_minishard_index_encoding(index).with_data_encoding(data);
        let root = TempDir::new();
        let mut options = BuildOptions::new();
        options.threads(1).memory(16 << 20).spec(spec).value_alignment(alignment).ordered(ordered);
        let mut loader = options.create(root.path()).unwrap();
        let mut pairs = Pairs::new();
        for key in 0..keys {
            let tag = u8::try_from(key).unwrap();
            // no length twice except 0: empty neighbours are a separate case
            let preamble = if preambles { vec![!tag; usize::from(tag % 4)] } else { vec![] };
            let value: Vec<u8> = (0..tag.saturating_sub(3) % 16).map(|at| tag ^ at).collect();
            loader.insert_with_preamble(key * 7, &preamble, &value).unwrap();
            pairs.insert(key * 7, (preamble, value));
        }
        loader.finish().unwrap();
        let generation = ShardDb::open(root.path()).unwrap().snapshot().directory().to_path_buf();
        let files = directory_bytes(&generation);
        for (name, bytes) in &files {
            fs::remove_file(generation.join(name)).unwrap(); // the file is read-only
            fs::write(generation.join(name), bytes).unwrap();
        }
        let step = usize::try_from(keys / 10).unwrap();
        let asked = pairs.keys().copied().step_by(step).chain([1, 6, 50, u64::MAX]).collect();
        let name = format!("{index:?} index, {data:?} data, preambles {preambles}, alignment {}", alignment.get());
        let padding = usize::try_from(alignment.get()).unwrap();
        Store { name, root, generation, files, pairs, padding, asked }
    }

    /// Every combination of encodings, each with a different layout.
    fn all() -> [Store; 4] {
        use Encoding::Gzip;
        [
            Store::new(SMALL),
            Store::new(Features { index: Gzip, preambles: true, alignment: ValueAlignment::Eight, ..SMALL }),
            Store::new(Features { data: Gzip, preambles: true, ..SMALL }),
            Store::new(Features { index: Gzip, data: Gzip, alignment: ValueAlignment::Sixteen, ..SMALL }),
        ]
    }

    fn file(&self, name: &str) -> File {
        File::options().write(true).open(self.generation.join(name)).unwrap()
    }

    /// Replaces the content of a file in place.
    fn put(&self, name: &str, bytes: &[u8]) {
        let mut file = self.file(name);
        file.write_all(bytes).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
    }

    /// Replaces a file while `check` runs.
    fn with(&self, name: &str, changed: &[u8], check: impl FnOnce()) {
        if *changed != self.files[name][..] {
            self.put(name, changed);
            check();
            self.put(name, &self.files[name]);
        }
    }

    fn open(&self, storage: Storage, verify: VerifyReads) -> Result<ShardDb> {
        let mut options = OpenOptions::new();
        options.verify_reads(verify).max_value_bytes(CAP).max_index_bytes(CAP);
        storage.open(&options, self.root.path())
    }

    /// Asserts the properties that a damaged store must keep.
    #[track_caller]
    fn check_damaged(&self, damage: &dyn Fn() -> String) {
        for storage in Storage::ALL {
            let place = || format!("{}: {}, {storage:?}", self.name, damage());
            let ((), peak) = peak_of(|| {
                for verify in [VerifyReads::Once, VerifyReads::Always] {
                    if let Ok(db) = self.open(storage, verify) {
                        self.check_answers(&db, &place);
                    }
                }
                let found = self.open(storage, VerifyReads::Never).map_or(true, |db| {
                    read_all(&db, &self.asked);
                    is_found(&db.snapshot())
                });
                assert!(found, "{}: not found by verification", place());
            });
            assert!(peak <= MOST_MEMORY, "{}: {peak} bytes held at once", place());
        }
        self.check_errors(damage);
    }

    /// Asserts that lookups by positioned reads fail like those in mapped files: with the same kinds, at the same places.
    #[track_caller]
    fn check_errors(&self, damage: &dyn Fn() -> String) {
        let answers = |storage| {
            let snapshot = self.open(storage, VerifyReads::Always).ok()?.snapshot();
            let get = |key: &u64| match snapshot.get(*key) {
                Ok(value) => Ok(value.map(|value| value.to_vec())),
                Err(error) => Err((error.kind(), error.location(), error.key())),
            };
            Some(self.asked.iter().map(get).collect::<Vec<_>>())
        };
        assert_eq!(answers(Storage::Positioned), answers(Storage::Mapped), "{}: {}", self.name, damage());
    }

    /// Asserts that every answer is right or an error.
    #[track_caller]
    fn check_answers(&self, db: &ShardDb, place: &dyn Fn() -> String) {
        let snapshot = db.snapshot();
        self.check_lookups(db, &snapshot, place);
        self.check_batches(&snapshot, place);
        self.check_walks(&snapshot, place);
    }

    #[track_caller]
    fn check_lookups(&self, db: &ShardDb, snapshot: &Snapshot, place: &dyn Fn() -> String) {
        let mut buffer = Vec::new();
        for key in &self.asked {
            let pair = self.pairs.get(key);
            let value = pair.map(|(_, value)| &value[..]);
            let right = |found: Option<&[u8]>, by: &str| {
                assert_eq!(found, value, "{}: key {key} by {by}", place());
            };
            if let Ok(found) = snapshot.get(*key) {
                right(found.as_deref(), "get");
            }
            if let Ok(found) = db.get(*key) {
                right(found.as_deref(), "an owned get");
            }
            if let Ok(found) = snapshot.get_into(*key, &mut buffer) {
                right(found.then_some(&buffer[..]), "get_into");
            }
            if let Ok(found) = snapshot.contains(*key) {
                assert_eq!(found, pair.is_some(), "{}: contains {key}", place());
            }
            if let Ok(found) = snapshot.locate(*key) {
                assert_eq!(found.is_some(), pair.is_some(), "{}: locate {key}", place());
            }
            let preamble = pair.map(|(preamble, _)| &preamble[..]);
            if let Ok(found) = snapshot.get_preamble(*key, preamble.map_or(0, <[u8]>::len) as u64) {
                assert_eq!(found.as_deref(), preamble, "{}: the preamble of {key}", place());
            }
        }
    }

    #[track_caller]
    fn check_batches(&self, snapshot: &Snapshot, place: &dyn Fn() -> String) {
        for (key, found) in self.asked.iter().zip(snapshot.get_many(&self.asked)) {
            if let Ok(found) = found {
                let value = self.pairs.get(key).map(|(_, value)| &value[..]);
                assert_eq!(found.as_deref(), value, "{}: key {key} in a batch", place());
            }
        }
        for (key, found) in self.asked.iter().zip(snapshot.contains_many(&self.asked)) {
            if let Ok(found) = found {
                assert_eq!(found, self.pairs.contains_key(key), "{}: key {key} in a batch", place());
            }
        }
    }

    #[track_caller]
    fn check_walks(&self, snapshot: &Snapshot, place: &dyn Fn() -> String) {
        let (mut met, mut errors) = (0, 0);
        for entry in snapshot.iter().take(2 * self.pairs.len() + 10) {
            let Ok(entry) = entry else {
                errors += 1;
                continue;
            };
            met += 1;
            let Some((preamble, value)) = self.pairs.get(&entry.key()) else {
                panic!("{}: iteration gives key {}, which is not there", place(), entry.key());
            };
            if let Ok(found) = entry.value() {
                assert_eq!(found, *value, "{}: key {} by iteration", place(), entry.key());
            }
            if let Ok(found) = entry.preamble() {
                assert!(found.ends_with(preamble), "{}: the preamble of {} by iteration", place(), entry.key());
                assert!(
                    found.len() <= preamble.len() + self.padding,
                    "{}: the preamble of {} is long",
                    place(),
                    entry.key()
                );
            }
        }
        let all = self.pairs.len();
        assert!(met == all || met < all && errors > 0, "{}: iteration gives {met} pairs of {all}", place());
        if let Ok(count) = snapshot.count() {
            assert_eq!(count, all as u64, "{}: count", place());
        }
        let (mut met, mut errors) = (0, 0);
        for entry in snapshot.range(..) {
            match entry {
                Ok(entry) => {
                    met += 1;
                    if let Ok(found) = entry.value() {
                        assert_eq!(found, self.pairs[&entry.key()].1, "{}: key {} by range", place(), entry.key());
                    }
                }
                Err(_) => errors += 1,
            }
        }
        assert!(met == all || met < all && errors > 0, "{}: range gives {met} pairs of {all}", place());
    }
}

/// Reads everything and ignores the results.
fn read_all(db: &ShardDb, keys: &[u64]) {
    let snapshot = db.snapshot();
    for key in keys {
        let _ = (snapshot.get(*key), db.get(*key), snapshot.locate(*key), snapshot.get_preamble(*key, 3));
    }
    let _ = (snapshot.get_many(keys), snapshot.count());
    for entry in snapshot.iter().take(1000).flatten() {
        let _ = (entry.value(), entry.preamble(), entry.encoded_value());
    }
    snapshot.range(..).take(1000).flatten().for_each(|entry| drop(entry.value()));
}

/// Whether verification finds more than notes.
fn is_found(snapshot: &Snapshot) -> bool {
    snapshot.verify(VerifyLevel::Data).map_or(true, |report| report.errors() + report.warnings() > 0)
}

#[test]
fn whole_stores_answer_everything() {
    for store in Store::all() {
        for storage in Storage::ALL {
            let db = store.open(storage, VerifyReads::Once).unwrap();
            store.check_answers(&db, &|| store.name.clone());
            assert!(store.asked.iter().all(|key| db.get(*key).is_ok()), "{}", store.name);
            assert!(db.snapshot().iter().all(|entry| entry.unwrap().value().is_ok()), "{}", store.name);
            assert!(!is_found(&db.snapshot()), "{}", store.name);
        }
    }
}

/// What a test flips.
#[derive(Clone, Copy)]
enum Flips {
    /// One bit of each byte; another one in the next byte.
    OneOfEachByte,
    Every,
}

impl Flips {
    fn bits(self, at: usize) -> std::ops::Range<usize> {
        match self {
            Flips::OneOfEachByte => at % 8..at % 8 + 1,
            Flips::Every => 0..8,
        }
    }
}

/// Flips bits of every file. There is one test per store, so that they run in parallel.
fn flip_bits(store: &Store, flips: Flips) {
    for (name, sound) in &store.files {
        let mut file = store.file(name);
        let mut put = |at: usize, byte: u8| {
            file.seek(SeekFrom::Start(at as u64)).unwrap();
            file.write_all(&[byte]).unwrap();
        };
        for (at, byte) in sound.iter().enumerate() {
            for bit in flips.bits(at) {
                put(at, byte ^ 1 << bit);
                store.check_damaged(&|| format!("{name}, byte {at}, bit {bit}"));
            }
            put(at, *byte);
        }
    }
    store.check_answers(&store.open(Storage::Positioned, VerifyReads::Once).unwrap(), &|| {
        format!("{}: whole again", store.name)
    });
}

#[test]
fn every_byte_of_raw_shards() {
    flip_bits(&Store::all()[0], Flips::OneOfEachByte);
}

#[test]
fn every_byte_of_shards_with_gzip_indexes_and_preambles() {
    flip_bits(&Store::all()[1], Flips::OneOfEachByte);
}

#[test]
fn every_byte_of_shards_with_gzip_values_and_preambles() {
    flip_bits(&Store::all()[2], Flips::OneOfEachByte);
}

#[test]
fn every_byte_of_gzip_shards() {
    flip_bits(&Store::all()[3], Flips::OneOfEachByte);
}

#[test]
#[ignore = "takes a minute"]
fn every_bit_of_all_shards() {
    Store::all().iter().for_each(|store| flip_bits(store, Flips::Every));
}

#[test]
fn every_length_of_every_file() {
    for store in Store::all() {
        for (name, sound) in &store.files {
            for len in 0..sound.len() {
                store.with(name, &sound[..len], || store.check_damaged(&|| format!("{name} cut to {len} bytes")));
            }
            let longer = [&sound[..], &[0]].concat();
            store.with(name, &longer, || store.check_damaged(&|| format!("{name} longer by a byte")));
        }
    }
}

#[test]
fn every_block_of_zeros() {
    for store in Store::all() {
        for (name, sound) in &store.files {
            for (block, at) in [8, 16, 64, 512, 4096].map(|block| (block, (0..sound.len()).step_by(block))) {
                for start in at {
                    let mut blank = sound.clone();
                    blank[start..(start + block).min(sound.len())].fill(0);
                    let damage = || format!("{name}, {block} zeros at {start}");
                    store.with(name, &blank, || store.check_damaged(&damage));
                }
            }
        }
    }
}

/// Values aligned to pages, and each page zeroed.
#[test]
fn every_page_of_zeros() {
    for index in [Encoding::Raw, Encoding::Gzip] {
        let store = Store::new(Features { index, preambles: true, alignment: ValueAlignment::Page, ..SMALL });
        let mut pages = 0;
        for (name, sound) in &store.files {
            for start in (0..sound.len()).step_by(4096) {
                let mut blank = sound.clone();
                blank[start..(start + 4096).min(sound.len())].fill(0);
                store.with(name, &blank, || {
                    pages += 1;
                    store.check_damaged(&|| format!("{name}, page at {start}"));
                });
            }
        }
        assert!(pages >= 10, "{pages} pages that are not zero anyway");
    }
}

#[test]
fn every_two_files_swapped() {
    for store in Store::all() {
        for (one, bytes_of_one) in &store.files {
            for (other, bytes_of_other) in &store.files {
                if one < other {
                    store.with(one, bytes_of_other, || {
                        store.with(other, bytes_of_one, || store.check_damaged(&|| format!("{one} and {other}")));
                    });
                }
            }
        }
    }
}

#[test]
fn every_file_missing() {
    for store in Store::all() {
        for (name, sound) in store.files.iter().filter(|(name, _)| *name != "lease") {
            fs::remove_file(store.generation.join(name)).unwrap();
            store.check_damaged(&|| format!("without {name}"));
            fs::write(store.generation.join(name), sound).unwrap();
        }
    }
}

/// A minishard of more rows than are scanned in place: one bit of every byte is flipped.
#[test]
fn every_byte_of_a_large_minishard() {
    for index in [Encoding::Raw, Encoding::Gzip] {
        let store = Store::new(Features { index, minishard_bits: 0, shard_bits: 0, keys: 70, ..SMALL });
        let sound = &store.files["0.shard"];
        for at in 0..sound.len() {
            let mut changed = sound.clone();
            changed[at] ^= 1 << (at % 8);
            store.with("0.shard", &changed, || store.check_damaged(&|| format!("byte {at} of 0.shard")));
        }
    }
}

/// Up to eight rows are searched at once if 384 bytes from the start of the index are readable, as in the first
/// minishards here.
#[test]
fn every_byte_of_a_minishard_that_is_searched_at_once() {
    let alignment = ValueAlignment::SixtyFour;
    let store = Store::new(Features { minishard_bits: 2, shard_bits: 0, keys: 18, alignment, ..SMALL });
    let sound = &store.files["0.shard"];
    let (shard_index, behind) = sound.split_at(4 * 16);
    for entry in shard_index[..2 * 16].chunks(16) {
        let [start, end] = [0, 8].map(|at| u64::from_le_bytes(entry[at..at + 8].try_into().unwrap()));
        assert!((1..=8 * 24).contains(&(end - start)) && start + 384 <= behind.len() as u64);
    }
    for at in 0..sound.len() {
        let mut changed = sound.clone();
        changed[at] ^= 1 << (at % 8);
        store.with("0.shard", &changed, || store.check_damaged(&|| format!("byte {at} of 0.shard")));
    }
}

/// A store with a minishard table: the shard index is read only if the table does not help. The index has 512 entries, of
/// which at most 40 are not empty, so the short form flips one byte of each four.
#[test]
fn each_fourth_byte_of_a_shard_with_a_minishard_table() {
    bytes_of_a_shard_with_a_minishard_table(4);
}

#[test]
#[ignore = "takes half a minute"]
fn every_byte_of_a_shard_with_a_minishard_table() {
    bytes_of_a_shard_with_a_minishard_table(1);
}

fn bytes_of_a_shard_with_a_minishard_table(step: usize) {
    let store = Store::new(Features { minishard_bits: 9, shard_bits: 0, keys: 40, ..SMALL });
    assert!(store.files.contains_key("minishards"));
    let sound = &store.files["0.shard"];
    // another byte of each word
    for at in (0..sound.len()).step_by(step).map(|at| (at + at / 8 % step).min(sound.len() - 1)) {
        let mut changed = sound.clone();
        changed[at] ^= 1 << (at % 8);
        store.with("0.shard", &changed, || store.check_damaged(&|| format!("byte {at} of 0.shard")));
    }
}

/// No answer depends on the minishard table: with any damage to it, every key is found and verification reports it.
#[test]
fn every_byte_and_length_of_the_minishard_table() {
    every_byte_and_length_of("minishards", &with_a_minishard_table(), Flips::OneOfEachByte);
}

#[test]
#[ignore = "takes half a minute"]
fn every_bit_and_length_of_the_minishard_table() {
    every_byte_and_length_of("minishards", &with_a_minishard_table(), Flips::Every);
}

fn with_a_minishard_table() -> Store {
    Store::new(Features { minishard_bits: 9, keys: 40, ..SMALL })
}

/// Nor does one depend on the key file.
#[test]
fn every_bit_and_length_of_the_key_file() {
    every_byte_and_length_of("keys", &Store::new(Features { keys: 40, ordered: true, ..SMALL }), Flips::Every);
}

fn every_byte_and_length_of(name: &str, store: &Store, flips: Flips) {
    let sound = &store.files[name];
    let check = |damage: &dyn Fn() -> String| {
        store.check_damaged(damage);
        let db = store.open(Storage::Mapped, VerifyReads::Never).unwrap();
        for (key, (_, value)) in &store.pairs {
            assert_eq!(db.snapshot().get(*key).unwrap().unwrap(), value, "{key}, {}", damage());
        }
        assert!(db.snapshot().key_range(..).map(Result::unwrap).eq(store.pairs.keys().copied()), "{}", damage());
    };
    for at in 0..sound.len() {
        for bit in flips.bits(at) {
            let mut changed = sound.clone();
            changed[at] ^= 1 << bit;
            store.with(name, &changed, || check(&|| format!("{name}, byte {at}, bit {bit}")));
        }
    }
    for len in (0..sound.len()).step_by(7) {
        store.with(name, &sound[..len], || check(&|| format!("{name} cut to {len} bytes")));
    }
    fs::remove_file(store.generation.join(name)).unwrap();
    check(&|| format!("without {name}"));
}

/// A foreign shard has neither manifest nor checks, but truncated values are still missed: no answer is a wrong value
/// or a false absence.
#[test]
fn every_length_of_a_shard_without_a_manifest() {
    for store in Store::all() {
        let snapshot = ShardDb::open(store.root.path()).unwrap().snapshot();
        let mut options = OpenOptions::new();
        options.spec(*snapshot.spec());
        for (name, sound) in store.files.iter().filter(|(name, _)| name.ends_with(".shard")) {
            for len in 0..sound.len() {
                store.with(name, &sound[..len], || {
                    for storage in Storage::ALL {
                        let db = storage.open(&options, &store.generation).unwrap();
                        let place = || format!("{}: {name} cut to {len} bytes, {storage:?}", store.name);
                        store.check_lookups(&db, &db.snapshot(), &place);
                        store.check_batches(&db.snapshot(), &place);
                    }
                });
            }
        }
    }
}
