//! Updates against a `BTreeMap` that does the same, and against a full build of the merged pairs, file by file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{TempDir, sets};
use crate::format::hash::HashFunction;
use crate::format::layout::ValueAlignment;
use crate::format::spec::{Encoding, ShardingSpec};
use crate::write::{BuildOptions, UpdateOptions, UpdateReport, Updater};
use crate::{BulkLoader, ErrorKind, OpenOptions, ShardDb, VerifyLevel};

/// Preamble and value of each key.
type Pairs = BTreeMap<u64, (Vec<u8>, Vec<u8>)>;

/// A pair to put, or `None` for a key to delete.
type Change = (u64, Option<(Vec<u8>, Vec<u8>)>);

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn bits(&mut self, end: u8) -> u8 {
        u8::try_from(self.below(u64::from(end))).unwrap()
    }

    /// Draws one of some items.
    fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[usize::try_from(self.below(items.len() as u64)).unwrap()]
    }

    fn bytes(&mut self, longest: u64) -> Vec<u8> {
        let len = self.below(longest + 1);
        (0..len).map(|_| u8::try_from(self.next() & 7).unwrap() | 1).collect() // no zeros, which look like padding before a preamble
    }
}

/// Options of one round: its specification, layout and resources.
#[derive(Clone, Debug)]
struct Round {
    spec: ShardingSpec,
    alignment: u64,
    checks: bool,
    preambles: bool,
    ordered: bool,
    memory: u64,
    threads: usize,
    longest: u64,
}

impl Round {
    fn draw(random: &mut Random) -> Round {
        let of = |choice| if choice == 0 { Encoding::Raw } else { Encoding::Gzip };
        let hash = if random.below(3) == 0 { HashFunction::Identity } else { HashFunction::MurmurHash3X86_128 };
        let spec = ShardingSpec::new(hash, random.bits(3), random.bits(5), random.bits(6)).unwrap();
        let spec = spec.with_data_encoding(of(random.below(3))).with_minishard_index_encoding(of(random.below(3)));
        let preambles = random.below(3) == 0;
        Round {
            spec,
            // with preambles, padding looks like a preamble: see `Updater`
            alignment: if preambles { 1 } else { random.one_of(&[1, 8, 64]) },
            checks: random.below(4) != 0,
            preambles,
            ordered: random.below(2) == 0,
            memory: random.one_of(&[1 << 14, 1 << 18, 16 << 20]),
            threads: random.one_of(&[1, 2, 3]),
            longest: random.one_of(&[3, 60, 4000]),
        }
    }

    fn build_options(&self) -> BuildOptions {
        let mut options = BuildOptions::new();
        options.spec(self.spec).allow_sparse(true).checks(self.checks).ordered(self.ordered);
        options.value_alignment(ValueAlignment::new(self.alignment).unwrap());
        options.info(r#"{"foreign": [1, 2]}"#).memory(self.memory).threads(self.threads).durable(false);
        options
    }

    fn update_options(&self) -> UpdateOptions {
        let mut options = UpdateOptions::new();
        options.memory(self.memory).threads(self.threads).durable(false);
        options
    }

    fn pair(&self, random: &mut Random) -> (Vec<u8>, Vec<u8>) {
        let preamble = if self.preambles && random.below(2) == 0 { random.bytes(20) } else { Vec::new() };
        // an empty value after an empty value has a byte before it, which looks like a preamble of one zero
        let value = random.bytes(self.longest);
        (preamble, if self.preambles && value.is_empty() { vec![7] } else { value })
    }

    fn pairs(&self, random: &mut Random, keys: u64) -> Pairs {
        (0..random.below(keys)).map(|_| (random.below(2 * keys), self.pair(random))).collect()
    }

    fn changes(&self, random: &mut Random, keys: u64) -> Vec<Change> {
        let count = random.below(keys);
        (0..count).map(|_| (random.below(2 * keys), (random.below(3) != 0).then(|| self.pair(random)))).collect()
    }
}

fn build(options: &BuildOptions, store: &Path, pairs: &Pairs) -> PathBuf {
    let mut loader = options.create(store).unwrap();
    for (key, (preamble, value)) in pairs {
        loader.insert_with_preamble(*key, preamble, value).unwrap();
    }
    store.join(loader.finish().unwrap().generation.to_string())
}

fn update(mut updater: Updater, changes: &[Change]) -> crate::Result<(PathBuf, UpdateReport)> {
    for (key, pair) in changes {
        match pair {
            Some((preamble, value)) => updater.put_with_preamble(*key, preamble, value)?,
            None => updater.delete(*key)?,
        }
    }
    let (published, report) = updater.finish()?;
    Ok((PathBuf::from(published.generation.to_string()), report))
}

/// Applies changes to a map; returns what an update reports of it.
fn apply(pairs: &mut Pairs, changes: &[Change]) -> UpdateReport {
    let last: BTreeMap<u64, &Option<_>> = changes.iter().map(|(key, pair)| (*key, pair)).collect();
    let mut report = UpdateReport { overridden: (changes.len() - last.len()) as u64, ..UpdateReport::default() };
    for (key, pair) in last {
        let before = match pair {
            Some(pair) => pairs.insert(key, pair.clone()),
            None => pairs.remove(&key),
        };
        match (pair, before) {
            (Some(_), None) => report.added += 1,
            (Some(_), Some(_)) => report.replaced += 1,
            (None, Some(_)) => report.deleted += 1,
            (None, None) => report.absent += 1,
        }
    }
    report
}

/// The files of a generation, without its lease.
fn files_of(generation: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(generation).unwrap().map(|entry| entry.unwrap());
    let files = files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()));
    files.filter(|(name, _)| name != "lease").collect()
}

#[track_caller]
fn assert_same_files(found: &Path, expected: &Path, what: &str) {
    let (found, expected) = (files_of(found), files_of(expected));
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{what}");
    for (name, bytes) in &expected {
        assert!(found[name] == *bytes, "{what}: {name} differs");
    }
}

fn check_pairs(store: &Path, pairs: &Pairs) {
    let snapshot = ShardDb::open(store).unwrap().snapshot();
    assert_eq!(snapshot.key_count(), Some(pairs.len() as u64));
    for (key, (preamble, value)) in pairs {
        assert_eq!(snapshot.get(*key).unwrap().unwrap(), value[..]);
        assert_eq!(snapshot.get_preamble(*key, preamble.len() as u64).unwrap().unwrap(), preamble[..]);
    }
    let report = snapshot.verify(VerifyLevel::Data).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings());
}

/// Sequences of updates have the bytes of full builds, whatever the specification, layout, memory and threads.
#[test]
fn an_update_has_the_bytes_of_a_full_build() {
    let mut random = Random(18);
    for round in 0..60 {
        let directory = TempDir::new();
        let (store, whole) = (directory.path().join("store"), directory.path().join("whole"));
        let settings = Round::draw(&mut random);
        let keys = random.one_of(&[5, 100, 1500]);
        let mut pairs = settings.pairs(&mut random, keys);
        build(&settings.build_options(), &store, &pairs);
        let mut has_preambles = pairs.values().any(|(preamble, _)| !preamble.is_empty());
        for step in 0..3 {
            let what = format!("round {round}, step {step}: {settings:?}");
            let changes = settings.changes(&mut random, keys);
            let expected = apply(&mut pairs, &changes);
            let (generation, report) = update(settings.update_options().open(&store).unwrap(), &changes).unwrap();
            assert_eq!(
                (report.added, report.replaced, report.deleted, report.absent, report.overridden),
                (expected.added, expected.replaced, expected.deleted, expected.absent, expected.overridden),
                "{what}"
            );
            check_pairs(&store, &pairs);
            let now_has_preambles = pairs.values().any(|(preamble, _)| !preamble.is_empty());
            if has_preambles && !now_has_preambles {
                break; // the layout keeps its preambles, which no full build without a preamble has
            }
            has_preambles |= now_has_preambles;
            let expected = build(&settings.build_options(), &whole, &pairs);
            assert_same_files(&store.join(generation), &expected, &what);
        }
    }
}

/// A store of 64 shards, in each of which are keys.
fn store_of_64_shards(directory: &Path) -> (PathBuf, Pairs) {
    let spec = ShardingSpec::new(HashFunction::Identity, 0, 2, 6).unwrap();
    let pairs: Pairs = (0..2000).map(|key| (key, (Vec::new(), format!("value {key}").into_bytes()))).collect();
    let store = directory.join("store");
    build(BuildOptions::new().spec(spec).durable(false), &store, &pairs);
    (store, pairs)
}

#[cfg(unix)]
fn inodes_of(generation: &Path) -> BTreeMap<String, u64> {
    use std::os::unix::fs::MetadataExt;
    let files = fs::read_dir(generation).unwrap().map(|entry| entry.unwrap());
    let files = files.map(|file| (file.file_name().into_string().unwrap(), file.metadata().unwrap().ino()));
    files.filter(|(name, _)| name.ends_with(".shard") || name == "lease").collect()
}

#[test]
#[cfg(unix)]
fn shards_without_a_change_keep_their_file() {
    let directory = TempDir::new();
    let (store, mut pairs) = store_of_64_shards(directory.path());
    let before = inodes_of(&store.join("gen-0000000001"));
    assert_eq!(before.len(), 65);
    let changes: Vec<Change> = (0..10).map(|number| (number * 256, Some((Vec::new(), vec![1, 2])))).collect();
    apply(&mut pairs, &changes);
    let (_, report) = update(Updater::open(&store).unwrap(), &changes).unwrap();
    assert_eq!((report.written_shards, report.linked_shards, report.copied_shards), (1, 63, 0));
    let after = inodes_of(&store.join("gen-0000000002"));
    let changed: Vec<&String> =
        before.iter().filter(|(name, inode)| after[*name] != **inode).map(|(name, _)| name).collect();
    assert_eq!(changed, ["00.shard", "lease"]);
    // linked files survive the removal of the older generation
    let writer = crate::Store::open(&store).unwrap().writer().unwrap();
    assert_eq!(writer.gc(0).unwrap().removed.len(), 1);
    drop(writer);
    check_pairs(&store, &pairs);
}

/// The shards of a base outside of the store are an input: those that can be written to are copied, and stay as they are. In
/// the store they are linked, and made read-only.
#[test]
#[cfg(unix)]
fn a_base_keeps_its_modes() {
    use std::os::unix::fs::PermissionsExt;
    let directory = TempDir::new();
    let (store, mut pairs) = store_of_64_shards(directory.path());
    let given = directory.path().join("given");
    fs::create_dir(&given).unwrap();
    for entry in fs::read_dir(store.join("current")).unwrap().map(|entry| entry.unwrap().path()) {
        let copy = given.join(entry.file_name().unwrap());
        fs::copy(&entry, &copy).unwrap();
        for path in [entry, copy] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o640)).unwrap();
        }
    }
    let modes = |directory: &Path| -> Vec<u32> {
        let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
        files.map(|file| file.permissions().mode() & 0o777).collect()
    };
    let changes: Vec<Change> = vec![(0, Some((Vec::new(), vec![1, 2])))];
    let new = directory.path().join("new");
    let base = OpenOptions::new().open(&given).unwrap().snapshot();
    let updater = UpdateOptions::new().create(&new, &base).unwrap();
    let (_, report) = update(updater, &changes).unwrap();
    assert_eq!((report.written_shards, report.linked_shards, report.copied_shards), (1, 0, 63));
    assert!(modes(&given).iter().all(|mode| *mode == 0o640));
    let (_, report) = update(Updater::open(&store).unwrap(), &changes).unwrap();
    assert_eq!((report.written_shards, report.linked_shards, report.copied_shards), (1, 63, 0));
    assert!(modes(&store.join("current")).iter().all(|mode| mode & 0o222 == 0));
    // a directory in the store that is none of its generations
    let inside = store.join("mine");
    fs::rename(&given, &inside).unwrap();
    let base = OpenOptions::new().open(&inside).unwrap().snapshot();
    let updater = UpdateOptions::new().create(&store, &base).unwrap();
    assert_eq!(update(updater, &changes).unwrap().1.copied_shards, 63);
    assert!(modes(&inside).iter().all(|mode| *mode == 0o640));
    apply(&mut pairs, &changes);
    check_pairs(&new, &pairs);
    check_pairs(&store, &pairs);
}

#[test]
fn a_shard_without_keys_has_no_file() {
    let directory = TempDir::new();
    let (store, mut pairs) = store_of_64_shards(directory.path());
    let in_shard_5: Vec<Change> = pairs.keys().filter(|key| *key / 4 % 64 == 5).map(|key| (*key, None)).collect();
    apply(&mut pairs, &in_shard_5);
    let (generation, report) = update(Updater::open(&store).unwrap(), &in_shard_5).unwrap();
    assert_eq!((report.deleted, report.written_shards, report.linked_shards), (in_shard_5.len() as u64, 0, 63));
    assert!(!store.join(generation).join("05.shard").exists());
    check_pairs(&store, &pairs);
}

#[test]
fn an_absent_key_to_delete_is_counted_or_an_error() {
    let directory = TempDir::new();
    let (store, pairs) = store_of_64_shards(directory.path());
    let changes = [(5000, None), (7, None), (7, Some((Vec::new(), b"again".to_vec())))];
    let strict = UpdateOptions::new().strict(true).open(&store).unwrap();
    let error = update(strict, &changes).unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::NotFound, Some(5000)));
    check_pairs(&store, &pairs);
    let (_, report) = update(Updater::open(&store).unwrap(), &changes).unwrap();
    assert_eq!((report.absent, report.replaced, report.overridden), (1, 1, 1));
}

#[test]
fn an_update_without_changes_links_everything() {
    let directory = TempDir::new();
    let (store, pairs) = store_of_64_shards(directory.path());
    let (generation, report) = update(Updater::open(&store).unwrap(), &[]).unwrap();
    assert_eq!((report.written_shards, report.linked_shards), (0, 64));
    assert_same_files(&store.join(generation), &store.join("gen-0000000001"), "no change");
    check_pairs(&store, &pairs);
}

#[test]
fn the_updater_holds_the_lock_and_leaves_nothing_when_dropped() {
    let directory = TempDir::new();
    let (store, _) = store_of_64_shards(directory.path());
    let names = |store: &Path| fs::read_dir(store).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    let before = names(&store);
    let mut updater = Updater::open(&store).unwrap();
    updater.put(1, b"one").unwrap();
    assert_eq!(Updater::open(&store).unwrap_err().kind(), ErrorKind::Locked);
    assert_eq!(BulkLoader::create(&store).unwrap_err().kind(), ErrorKind::Locked);
    drop(updater);
    assert_eq!(names(&store), before);
}

#[test]
fn an_update_needs_a_store_with_a_generation() {
    let directory = TempDir::new();
    let error = Updater::open(directory.path().join("none")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let empty = directory.path().join("empty");
    let store = crate::Store::create(&empty).unwrap();
    let writer = store.writer().unwrap();
    assert!(Updater::open(&empty).is_err());
    drop(writer);
}

/// A damaged value of a shard that is rewritten is an error with its key; of another shard it is not read.
#[test]
fn damage_of_a_copied_value_is_an_error_with_its_key() {
    let directory = TempDir::new();
    let (store, _) = store_of_64_shards(directory.path());
    let shard = store.join("gen-0000000001").join("01.shard");
    let mut bytes = fs::read(&shard).unwrap();
    let text = b"value 772"; // key 772 is in shard 1
    let at = bytes.windows(text.len()).position(|window| window == text).unwrap();
    bytes[at] ^= 1;
    fs::remove_file(&shard).unwrap();
    fs::write(&shard, bytes).unwrap();
    let change = |key: u64| [(key, Some((Vec::new(), b"new".to_vec())))];
    let error = update(Updater::open(&store).unwrap(), &change(4)).unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::Corrupt, Some(772)), "{error}");
    let (_, report) = update(Updater::open(&store).unwrap(), &change(8)).unwrap();
    assert_eq!((report.written_shards, report.linked_shards), (1, 63));
    // the key itself can be replaced, which repairs the shard
    update(Updater::open(&store).unwrap(), &change(772)).unwrap();
    assert!(ShardDb::open(&store).unwrap().snapshot().verify(VerifyLevel::Data).unwrap().is_clean());
}

#[test]
fn a_base_that_lost_a_shard_fails_before_publishing() {
    let directory = TempDir::new();
    let (store, _) = store_of_64_shards(directory.path());
    let updater = Updater::open(&store).unwrap();
    fs::remove_file(store.join("gen-0000000001").join("3f.shard")).unwrap();
    let error = update(updater, &[(0, Some((Vec::new(), b"new".to_vec())))]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert_eq!(crate::Store::open(&store).unwrap().current().unwrap().unwrap().get(), 1);
}

/// Foreign data sets, written by TensorStore and CloudVolume, become native generations with the changes.
#[test]
fn a_foreign_base_is_rewritten_into_a_native_generation() {
    let mut updated = 0;
    for set in sets("public") {
        let directory = TempDir::new();
        let base = ShardDb::open(&set).unwrap().snapshot();
        let stored = base.iter().map(Result::unwrap);
        let mut pairs: Pairs =
            stored.map(|entry| (entry.key(), (Vec::new(), entry.value().unwrap().to_vec()))).collect();
        let Some(first) = pairs.keys().next().copied() else { continue };
        let changes = [(first, None), (u64::MAX - 5, Some((Vec::new(), b"new".to_vec()))), (u64::MAX - 6, None)];
        let expected = apply(&mut pairs, &changes);
        let store = directory.path().join("store");
        let updater = UpdateOptions::new().create(&store, &base).unwrap();
        let (_, report) = update(updater, &changes).unwrap();
        assert_eq!((report.added, report.deleted, report.absent), (expected.added, expected.deleted, expected.absent));
        assert_eq!(report.linked_shards, 0);
        check_pairs(&store, &pairs);
        updated += 1;
    }
    assert!(updated > 50, "{updated} sets");
}

/// A native base of another store: its shards are linked, and the result is that of an update in place.
#[test]
fn a_native_base_of_another_store_is_updated() {
    let directory = TempDir::new();
    let (store, mut pairs) = store_of_64_shards(directory.path());
    let base = OpenOptions::new().open(&store).unwrap().snapshot();
    let changes = [(77, Some((Vec::new(), b"new".to_vec())))];
    apply(&mut pairs, &changes);
    let other = directory.path().join("other");
    let (_, report) = update(UpdateOptions::new().create(&other, &base).unwrap(), &changes).unwrap();
    assert_eq!((report.written_shards, report.linked_shards + report.copied_shards), (1, 63));
    check_pairs(&other, &pairs);
}

/// A base on another file system, or whose shards are symbolic links: they are copied, and their checksums compared.
#[test]
#[cfg(unix)]
fn shards_that_cannot_be_linked_are_copied_and_verified() {
    let directory = TempDir::new();
    let (store, mut pairs) = store_of_64_shards(directory.path());
    let changes = [(77, Some((Vec::new(), b"new".to_vec())))];
    apply(&mut pairs, &changes);
    let linked = directory.path().join("linked");
    fs::create_dir(&linked).unwrap();
    for file in fs::read_dir(store.join("gen-0000000001")).unwrap().map(|entry| entry.unwrap()) {
        match file.file_name().to_str().unwrap() {
            name if name.ends_with(".shard") => std::os::unix::fs::symlink(file.path(), linked.join(name)).unwrap(),
            "lease" => {}
            name => drop(fs::copy(file.path(), linked.join(name)).unwrap()),
        }
    }
    let base = OpenOptions::new().open(&linked).unwrap().snapshot();
    let other = directory.path().join("other");
    let (_, report) = update(UpdateOptions::new().create(&other, &base).unwrap(), &changes).unwrap();
    assert_eq!((report.written_shards, report.linked_shards, report.copied_shards), (1, 0, 63));
    check_pairs(&other, &pairs);
    if Path::new("/dev/shm").is_dir() {
        let memory = TempDir::new_in(Path::new("/dev/shm"));
        let base = OpenOptions::new().open(&store).unwrap().snapshot();
        let other = memory.path().join("other");
        let (_, report) = update(UpdateOptions::new().create(&other, &base).unwrap(), &changes).unwrap();
        assert_eq!((report.written_shards, report.linked_shards + report.copied_shards), (1, 63));
        check_pairs(&other, &pairs);
    }
    // a shard that is copied is read, so its damage is noticed
    let shard = store.join("gen-0000000001").join("3f.shard");
    let mut bytes = fs::read(&shard).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::remove_file(&shard).unwrap();
    fs::write(&shard, bytes).unwrap();
    let error = update(UpdateOptions::new().create(&other, &base).unwrap(), &changes).unwrap_err();
    assert_eq!(
        (error.kind(), error.location().shard.map(|shard| shard.get())),
        (ErrorKind::Corrupt, Some(0x3f)),
        "{error}"
    );
}

/// All keys of several shards in a row are deleted, while a pair of the shard before them is not copied yet.
#[test]
fn a_pair_is_copied_after_the_shards_behind_it_were_emptied() {
    for checks in [true, false] {
        let directory = TempDir::new();
        let (store, mut pairs) = store_of_64_shards(directory.path());
        let spec = ShardingSpec::new(HashFunction::Identity, 0, 2, 6).unwrap();
        build(BuildOptions::new().spec(spec).checks(checks).durable(false), &store, &pairs);
        let in_shard = |key: u64| key / 4 % 64;
        let mut changes: Vec<Change> = vec![(0, Some((Vec::new(), b"new".to_vec())))];
        changes.extend(pairs.keys().filter(|key| (1..20).contains(&in_shard(**key))).map(|key| (*key, None)));
        changes.push((20 * 4, None));
        apply(&mut pairs, &changes);
        let (_, report) = update(Updater::open(&store).unwrap(), &changes).unwrap();
        assert_eq!((report.written_shards, report.linked_shards), (2, 43));
        check_pairs(&store, &pairs);
    }
}

/// With preambles and an alignment, padding must not become a preamble that grows with every update.
#[test]
fn pairs_without_a_preamble_keep_having_none() {
    for alignment in [1, 16, 4096] {
        let directory = TempDir::new();
        let store = directory.path().join("store");
        let spec = ShardingSpec::new(HashFunction::Identity, 0, 0, 0).unwrap();
        let mut options = BuildOptions::new();
        options.spec(spec).value_alignment(ValueAlignment::new(alignment).unwrap()).durable(false);
        let mut pairs: Pairs = (0_u64..).zip(0..20).map(|(key, len)| (key, (Vec::new(), vec![7; len % 3]))).collect();
        pairs.insert(20, (b"p".to_vec(), b"x".to_vec()));
        build(&options, &store, &pairs);
        for round in 1..5 {
            let changes = [(3, Some((Vec::new(), vec![9; 700 * round])))];
            apply(&mut pairs, &changes);
            update(Updater::open(&store).unwrap(), &changes).unwrap();
            let snapshot = ShardDb::open(&store).unwrap().snapshot();
            for entry in snapshot.iter().map(|entry| entry.unwrap()) {
                assert_eq!(entry.preamble().unwrap().is_empty(), entry.key() != 20, "alignment {alignment}, {entry:?}");
            }
            check_pairs(&store, &pairs);
        }
    }
}
