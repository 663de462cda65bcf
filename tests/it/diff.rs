//! The differences that a comparison finds are those of two maps, in the documented order; damage is an error and never
//! counted as equal; what is known to be equal is not read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use quickcheck::{Gen, QuickCheck};
use sharddb::diff::{Change, ChangeKind, Diff, DiffOptions, DiffTotals};
use sharddb::spec::{Encoding, HashFunction, ValueAlignment};
use sharddb::{BuildOptions, ErrorKind, OpenOptions, Progress, Result, ShardDb, ShardingSpec, Snapshot, VerifyReads};

use crate::common::naive::NaiveSpec;
use crate::common::{Answer, Storage, TempDir, data, expected, json, name, sets, xorshift};
use crate::synthesis::Synthesis;

/// The preamble and the value of each key.
type Pairs = BTreeMap<u64, (Vec<u8>, Vec<u8>)>;

/// A change: kind, key, and the preamble and value before and after it.
type Found = (ChangeKind, u64, Option<(Vec<u8>, Vec<u8>)>, Option<(Vec<u8>, Vec<u8>)>);

// ---- helpers ----

fn pair(
    preamble: Result<Option<sharddb::Value<'_>>>,
    value: Result<Option<sharddb::Value<'_>>>,
) -> Option<(Vec<u8>, Vec<u8>)> {
    Some((preamble.unwrap()?.to_vec(), value.unwrap()?.to_vec()))
}

fn found(change: &Change) -> Found {
    let old = pair(change.old_preamble(), change.old_value());
    let new = pair(change.new_preamble(), change.new_value());
    (change.kind(), change.key(), old, new)
}

/// The changes and the errors of a comparison.
fn run(diff: &Diff) -> (Vec<Found>, Vec<sharddb::Error>, DiffTotals) {
    let (mut changes, mut errors) = (Vec::new(), Vec::new());
    let outcome = diff.run(|change| {
        match change {
            Ok(change) => changes.push(found(&change)),
            Err(error) => errors.push(error),
        }
        ControlFlow::<()>::Continue(())
    });
    let ControlFlow::Continue(totals) = outcome else { unreachable!() };
    let count = |kind| changes.iter().filter(|change| change.0 == kind).count() as u64;
    assert_eq!(totals.added, count(ChangeKind::Added));
    assert_eq!(totals.removed, count(ChangeKind::Removed));
    assert_eq!(totals.changed, count(ChangeKind::Changed));
    assert_eq!(totals.errors, errors.len() as u64);
    assert_eq!(totals.is_equal(), changes.is_empty() && errors.is_empty());
    (changes, errors, totals)
}

/// The changes between two maps, in the order that is documented for these specifications.
fn model(old: &Pairs, new: &Pairs, old_spec: &ShardingSpec, new_spec: &ShardingSpec) -> Vec<Found> {
    let in_order = |spec: &ShardingSpec, keys: BTreeSet<u64>| {
        let spec = NaiveSpec::of(&serde_json::from_str(&spec.to_json()).unwrap());
        let mut keys: Vec<u64> = keys.into_iter().collect();
        keys.sort_by_key(|key| (spec.place(*key), *key));
        keys
    };
    let places =
        |spec: &ShardingSpec| (spec.hash_function(), spec.preshift_bits(), spec.minishard_bits(), spec.shard_bits());
    let changed: BTreeSet<u64> =
        old.keys().chain(new.keys()).copied().filter(|key| old.get(key) != new.get(key)).collect();
    let keys = if places(old_spec) == places(new_spec) {
        in_order(new_spec, changed)
    } else {
        let (left, removed) = changed.into_iter().partition(|key| new.contains_key(key));
        [in_order(new_spec, left), in_order(old_spec, removed)].concat()
    };
    let change = |key: u64| {
        let (old, new) = (old.get(&key).cloned(), new.get(&key).cloned());
        let kind = match (&old, &new) {
            (None, _) => ChangeKind::Added,
            (_, None) => ChangeKind::Removed,
            _ => ChangeKind::Changed,
        };
        (kind, key, old, new)
    };
    keys.into_iter().map(change).collect()
}

fn build(store: &Path, options: &mut BuildOptions, pairs: &Pairs) -> Snapshot {
    let mut loader = options.threads(1).memory(16 << 20).create(store).unwrap();
    for (key, (preamble, value)) in pairs {
        loader.insert_with_preamble(*key, preamble, value).unwrap();
    }
    loader.finish().unwrap();
    ShardDb::open(store).unwrap().snapshot()
}

fn options(spec: ShardingSpec) -> BuildOptions {
    let mut options = BuildOptions::new();
    options.spec(spec);
    options
}

fn spec(minishard_bits: u8, shard_bits: u8) -> ShardingSpec {
    ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, minishard_bits, shard_bits).unwrap()
}

/// Keys 0 to `n` with values of some length.
fn pairs(n: u64) -> Pairs {
    (0..n).map(|key| (key, (Vec::new(), format!("value of {key:05}").into_bytes()))).collect()
}

/// Makes a file of a store writable, and replaces it by a copy, so that its hard links do not change with it.
fn rewrite(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// The offset of a text in a file.
fn offset_of(path: &Path, text: &[u8]) -> usize {
    let bytes = fs::read(path).unwrap();
    bytes.windows(text.len()).position(|window| window == text).unwrap()
}

/// The shard of a snapshot that contains a text.
fn shard_with(snapshot: &Snapshot, text: &[u8]) -> PathBuf {
    let shards = fs::read_dir(snapshot.directory()).unwrap().map(|entry| entry.unwrap().path());
    let mut shards = shards.filter(|path| path.extension().is_some_and(|extension| extension == "shard"));
    shards.find(|path| fs::read(path).unwrap().windows(text.len()).any(|window| window == text)).unwrap()
}

// ---- the model ----

/// One of the specifications and layouts that pairs are built with.
fn variant(random: &mut impl FnMut() -> u64, has_preambles: bool) -> BuildOptions {
    let mut one_of = |n: u64| random() % n;
    let hash = if one_of(2) == 0 { HashFunction::Identity } else { HashFunction::MurmurHash3X86_128 };
    let encoding = |n| if n == 0 { Encoding::Gzip } else { Encoding::Raw };
    let [preshift, minishard_bits, shard_bits] = [[0, 0, 2], [0, 1, 3], [0, 1, 2]].map(|bits| bits[one_of(3) as usize]);
    let spec = ShardingSpec::new(hash, preshift, minishard_bits, shard_bits).unwrap();
    let spec = spec.with_data_encoding(encoding(one_of(3))).with_minishard_index_encoding(encoding(one_of(3)));
    let mut options = options(spec);
    options.checks(one_of(4) != 0);
    if !has_preambles && one_of(3) == 0 {
        options.value_alignment(ValueAlignment::Sixteen);
    }
    options
}

fn is_model(old: Vec<(u8, Vec<u8>)>, edits: Vec<(u8, Option<Vec<u8>>)>, has_preambles: bool, seed: u64) {
    let mut random = xorshift(seed);
    // keys of all magnitudes, and preambles that do not begin with padding
    let key = |small: u8| if small < 250 { u64::from(small) } else { u64::MAX - u64::from(small) };
    let preamble = |value: &[u8]| if has_preambles { vec![b'p'; value.len() % 3] } else { Vec::new() };
    let pair = |value: Vec<u8>| (preamble(&value), value);
    let old: Pairs = old.into_iter().map(|(small, value)| (key(small), pair(value))).collect();
    let mut new = old.clone();
    for (small, edit) in edits {
        match edit {
            Some(value) => drop(new.insert(key(small), pair(value))),
            None => drop(new.remove(&key(small))),
        }
    }
    if has_preambles {
        // a change of the preamble alone
        new.values_mut().take(2).for_each(|(preamble, _)| preamble.push(b'q'));
    }
    let scratch = TempDir::new();
    let mut variants = [variant(&mut random, has_preambles), variant(&mut random, has_preambles)];
    if random().is_multiple_of(2) {
        variants[1] = variants[0].clone();
    }
    let old_path = scratch.path().join("old");
    let new_path = scratch.path().join("new");
    let (old_spec, new_spec) =
        (*build(&old_path, &mut variants[0], &old).spec(), *build(&new_path, &mut variants[1], &new).spec());
    let expected = model(&old, &new, &old_spec, &new_spec);
    let same = old.iter().filter(|(key, pair)| new.get(key) == Some(pair)).count() as u64;
    for storage in Storage::ALL {
        let open = |path| storage.open(&OpenOptions::new(), path).unwrap().snapshot();
        let (old, new) = (open(&old_path), open(&new_path));
        for n in [1, 3] {
            let progress = Progress::new();
            let diff = Diff::between_with(&old, &new, DiffOptions::new().threads(n).progress(&progress));
            let (changes, errors, totals) = run(&diff);
            assert_eq!(errors.first().map(ToString::to_string), None);
            assert_eq!(changes, expected);
            assert_eq!(totals.unchanged, same);
            let keys = old.key_count().unwrap() + new.key_count().unwrap();
            assert_eq!((progress.done(), progress.total()), (keys, keys));
        }
    }
}

#[test]
fn changes_are_those_of_two_maps() {
    let property = |old, edits, seed| is_model(old, edits, false, seed);
    QuickCheck::new()
        .rng(Gen::new(60))
        .tests(60)
        .quickcheck(property as fn(Vec<(u8, Vec<u8>)>, Vec<(u8, Option<Vec<u8>>)>, u64));
}

#[test]
fn a_changed_preamble_is_a_change() {
    let property = |old, edits, seed| {
        let not_empty = |value: Vec<u8>| [value, vec![1]].concat(); // of an empty value, a preamble may be padding
        let old: Vec<(u8, Vec<u8>)> = old;
        let edits: Vec<(u8, Option<Vec<u8>>)> = edits;
        let old = old.into_iter().map(|(key, value)| (key, not_empty(value))).collect();
        let edits = edits.into_iter().map(|(key, value)| (key, value.map(not_empty))).collect();
        is_model(old, edits, true, seed);
    };
    QuickCheck::new()
        .rng(Gen::new(40))
        .tests(40)
        .quickcheck(property as fn(Vec<(u8, Vec<u8>)>, Vec<(u8, Option<Vec<u8>>)>, u64));
}

/// More changes than the threads may be ahead, in one minishard and in many.
#[test]
fn the_order_does_not_depend_on_the_number_of_threads() {
    let scratch = TempDir::new();
    let (old, new) = (pairs(20_000), (10_000..30_000).map(|key| (key, (vec![], vec![1]))).collect::<Pairs>());
    for (number, (minishard_bits, shard_bits)) in [(0, 0), (11, 0), (6, 3)].into_iter().enumerate() {
        let spec = spec(minishard_bits, shard_bits);
        let expected = model(&old, &new, &spec, &spec);
        let old = build(&scratch.path().join(format!("old-{number}")), &mut options(spec), &old);
        let new = build(&scratch.path().join(format!("new-{number}")), &mut options(spec), &new);
        for n in [1, 2, 8] {
            assert!(run(&Diff::between_with(&old, &new, DiffOptions::new().threads(n))).0 == expected, "{n} threads");
        }
    }
}

#[test]
fn a_break_ends_the_comparison() {
    let scratch = TempDir::new();
    let old = build(&scratch.path().join("old"), &mut options(spec(8, 2)), &pairs(20_000));
    let new = build(&scratch.path().join("new"), &mut options(spec(8, 2)), &Pairs::new());
    for n in [1, 2, 8] {
        for wanted in [1, 300, 19_999] {
            let mut met = 0;
            let outcome = Diff::between_with(&old, &new, DiffOptions::new().threads(n)).run(|_| {
                met += 1;
                if met == wanted { ControlFlow::Break(met) } else { ControlFlow::Continue(()) }
            });
            assert_eq!(outcome, ControlFlow::Break(wanted));
        }
    }
}

#[test]
fn a_set_flag_cancels() {
    let scratch = TempDir::new();
    let old = build(&scratch.path().join("old"), &mut options(spec(1, 1)), &pairs(100));
    let progress = Progress::new();
    progress.cancel();
    let error = Diff::between_with(&old, &old, DiffOptions::new().progress(&progress)).count().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

#[test]
fn databases_without_files_and_without_keys_are_compared() {
    let memory =
        |keys: &[u64]| ShardDb::from_pairs(keys.iter().map(|key| (*key, key.to_le_bytes()))).unwrap().snapshot();
    let (none, some) = (memory(&[]), memory(&[0, 7, u64::MAX]));
    assert!(Diff::between(&none, &none).count().unwrap().is_equal());
    assert!(Diff::between(&some, &some).count().unwrap().is_equal());
    assert_eq!(Diff::between(&none, &some).count().unwrap().added, 3);
    assert_eq!(Diff::between(&some, &none).count().unwrap().removed, 3);
    let scratch = TempDir::new();
    let empty = build(&scratch.path().join("empty"), &mut options(spec(2, 2)), &Pairs::new());
    assert_eq!(Diff::between(&empty, &some).count().unwrap().added, 3);
    assert_eq!(Diff::between(&some, &empty).count().unwrap().removed, 3);
}

// ---- what is not read ----

/// Two stores of the same pairs, of which one differs, and the shard of each with the value of key 5.
struct Twins {
    _scratch: TempDir,
    old: PathBuf,
    new: PathBuf,
    old_shard: PathBuf,
    new_shard: PathBuf,
}

const VALUE: &[u8] = b"value of 00005";

/// `edits` are made to the pairs of the new one.
fn twins(edits: impl FnOnce(&mut Pairs)) -> Twins {
    let scratch = TempDir::new();
    let (old, new) = (scratch.path().join("old"), scratch.path().join("new"));
    let mut pairs = pairs(200);
    let old_shard = shard_with(&build(&old, &mut options(spec(2, 2)), &pairs), VALUE);
    edits(&mut pairs);
    let new_snapshot = build(&new, &mut options(spec(2, 2)), &pairs);
    let new_shard = new_snapshot.directory().join(old_shard.file_name().unwrap());
    Twins { _scratch: scratch, old, new, old_shard, new_shard }
}

impl Twins {
    fn diff(&self) -> Diff {
        let open = |path| ShardDb::open(path).unwrap().snapshot();
        Diff::between(&open(&self.old), &open(&self.new))
    }
}

fn damage(path: &Path, text: &[u8]) {
    let at = offset_of(path, text);
    rewrite(path, |bytes| bytes[at] ^= 1);
}

/// The damage is in the same file of both: nothing is read.
#[cfg(unix)]
#[test]
fn a_hard_link_is_equal_without_reading() {
    let twins = twins(|_| {});
    damage(&twins.old_shard, VALUE);
    fs::remove_file(&twins.new_shard).unwrap();
    fs::hard_link(&twins.old_shard, &twins.new_shard).unwrap();
    let (changes, errors, totals) = run(&twins.diff());
    assert_eq!((changes.len(), errors.len(), totals.equal_shards, totals.unchanged), (0, 0, 4, 200));
    // foreign data sets have no manifest, and their files are compared in the same way
    for directory in [twins.old_shard.parent().unwrap(), twins.new_shard.parent().unwrap()] {
        fs::remove_file(directory.join("manifest.json")).unwrap();
        rewrite(&directory.join("info"), |info| {
            *info = format!("{{\"sharding\": {}}}", spec(2, 2).to_json()).into_bytes();
        });
    }
    let open = |shard: &Path| ShardDb::open(shard.parent().unwrap()).unwrap().snapshot();
    let (changes, errors, totals) = run(&Diff::between(&open(&twins.old_shard), &open(&twins.new_shard)));
    assert_eq!((changes.len(), errors.len()), (0, 0));
    assert_eq!(totals.equal_shards, 1);
}

/// Two files with one record: the digests are equal, so the files are not read.
#[test]
fn a_shard_with_the_same_digest_is_equal_without_reading() {
    let twins = twins(|_| {});
    damage(&twins.new_shard, VALUE);
    let (changes, errors, totals) = run(&twins.diff());
    assert_eq!((changes.len(), errors.len(), totals.equal_shards, totals.unchanged), (0, 0, 4, 200));
}

/// A shard is equal without reading only if its file is there, with its length.
#[test]
fn a_shard_that_is_missing_or_cut_off_is_never_equal() {
    type Lose = fn(&Path);
    let cases: [Lose; 4] = [
        |shard| fs::remove_file(shard).unwrap(),
        |shard| rewrite(shard, |bytes| bytes.truncate(bytes.len() - 1)),
        |shard| rewrite(shard, Vec::clear),
        |shard| {
            fs::remove_file(shard).unwrap();
            fs::create_dir(shard).unwrap();
        },
    ];
    for (number, lose) in cases.into_iter().enumerate() {
        for is_old in [true, false] {
            let twins = twins(|_| {});
            lose(if is_old { &twins.old_shard } else { &twins.new_shard });
            let open = |path| OpenOptions::new().check_shards(false).open(path).unwrap().snapshot();
            let (changes, errors, totals) = run(&Diff::between(&open(&twins.old), &open(&twins.new)));
            assert_eq!((changes.len(), errors.len(), totals.equal_shards), (0, 1, 3), "case {number}");
            assert!(!totals.is_equal() && totals.unchanged < 200, "case {number}");
        }
    }
}

/// A value in a shard that has to be compared is read, also if length and check are equal.
#[test]
fn a_value_with_the_same_length_and_check_is_read() {
    let twins = twins(change_others);
    damage(&twins.old_shard, VALUE);
    let (changes, errors, totals) = run(&twins.diff());
    assert_eq!((changes.len(), errors.len(), totals.unchanged), (199, 1, 0));
    assert_eq!((errors[0].kind(), errors[0].key()), (ErrorKind::Corrupt, Some(5)));
    assert_eq!(errors[0].path(), Some(twins.old_shard.canonicalize().unwrap().as_path()));
}

/// Changes all pairs but that of `VALUE`.
fn change_others(pairs: &mut Pairs) {
    pairs.iter_mut().filter(|(key, _)| **key != 5).for_each(|(_, (_, value))| value.push(b'!'));
}

// ---- damage ----

/// Each bit of each shard is flipped in turn. A key may be left out where there is an error, but what is reported is
/// right.
#[test]
fn damage_is_an_error_or_has_no_effect() {
    use Encoding::{Gzip, Raw};
    for (index, values, preambles) in [(Raw, Raw, false), (Raw, Raw, true), (Gzip, Gzip, false), (Raw, Gzip, true)] {
        let scratch = TempDir::new();
        let preamble = |key: u64| if preambles { vec![b'p'; key as usize % 3] } else { Vec::new() };
        let value = |key: u64| vec![key.to_le_bytes()[0] | 0x80; key as usize % 7];
        let old: Pairs = (0..24).map(|key| (key, (preamble(key), value(key)))).collect();
        let mut new = old.clone();
        new.remove(&3);
        new.insert(30, (preamble(30), value(30)));
        new.insert(4, (preamble(4), value(11)));
        new.insert(6, (preamble(7), value(6)));
        let spec = spec(1, 1).with_minishard_index_encoding(index).with_data_encoding(values);
        let other = ShardingSpec::new(HashFunction::Identity, 0, 0, 1).unwrap();
        let (old_path, new_path) = (scratch.path().join("old"), scratch.path().join("new"));
        let damaged = build(&old_path, &mut options(spec), &old);
        for (number, new_spec) in [spec, other].into_iter().enumerate() {
            let new_path = new_path.with_extension(number.to_string());
            let other = build(&new_path, &mut options(new_spec), &new);
            let key_of = |found: &Found| (found.0, found.1);
            let expected: BTreeSet<_> =
                model(&old, &new, &spec, &new_spec).iter().map(key_of).map(|(kind, key)| (kind as u8, key)).collect();
            for name in ["0.shard", "1.shard"] {
                let path = damaged.directory().join(name);
                let whole = fs::read(&path).unwrap();
                rewrite(&path, |_| {});
                for at in 0..whole.len() {
                    let mut bytes = whole.clone();
                    bytes[at] ^= 1 << (at % 8);
                    fs::write(&path, bytes).unwrap();
                    let reopened = ShardDb::open(&old_path).unwrap().snapshot();
                    for ((old, new), is_reversed) in [((&reopened, &other), false), ((&other, &reopened), true)] {
                        {
                            let (mut found, mut errors) = (BTreeSet::new(), 0);
                            let _ = Diff::between_with(old, new, DiffOptions::new().threads(1)).run(|change| {
                                match change {
                                    Ok(change) => {
                                        let kind = match (change.kind(), is_reversed) {
                                            (ChangeKind::Added, true) => ChangeKind::Removed,
                                            (ChangeKind::Removed, true) => ChangeKind::Added,
                                            (kind, _) => kind,
                                        };
                                        found.insert((kind as u8, change.key()));
                                    }
                                    Err(_) => errors += 1,
                                }
                                ControlFlow::<()>::Continue(())
                            });
                            let place = format!("{index:?} {values:?} {preambles} {name} byte {at}");
                            assert!(found.is_subset(&expected), "{place}: {found:?}");
                            assert!(errors > 0 || found == expected, "{place}: {found:?} of {expected:?}");
                        }
                    }
                }
                fs::write(&path, whole).unwrap();
            }
        }
    }
}

/// A damaged minishard is one error, however many keys are looked up in it.
#[test]
fn a_damaged_place_is_reported_once() {
    let scratch = TempDir::new();
    let old_path = scratch.path().join("old");
    let old = build(&old_path, &mut options(spec(0, 1)), &pairs(200));
    let changed: Pairs = (0..201).map(|key| (key, (vec![], b"another value".to_vec()))).collect();
    for other in [spec(0, 1), spec(2, 2)] {
        let new =
            build(&scratch.path().join(format!("new-{}", other.shard_bits())), &mut options(other), &Pairs::new());
        let full = build(&scratch.path().join(format!("full-{}", other.shard_bits())), &mut options(other), &changed);
        let path = old.directory().join("0.shard");
        let whole = fs::read(&path).unwrap();
        for at in [0, 20] {
            rewrite(&path, |bytes| bytes[at] ^= 1); // the shard index, the minishard index
            let reopened = ShardDb::open(&old_path).unwrap().snapshot();
            for (old, new) in [(&reopened, &new), (&reopened, &full), (&full, &reopened)] {
                let (_, errors, _) = run(&Diff::between(old, new));
                assert_eq!(errors.len(), 1, "{errors:?}");
                assert_eq!(errors[0].location().shard.map(|shard| shard.get()), Some(0));
            }
            rewrite(&path, |bytes| bytes.clone_from(&whole));
        }
        let missing = OpenOptions::new().check_shards(false).clone();
        fs::rename(&path, path.with_extension("away")).unwrap();
        let reopened = missing.open(&old_path).unwrap().snapshot();
        let (_, errors, _) = run(&Diff::between(&reopened, &full));
        assert_eq!(errors.iter().map(sharddb::Error::kind).collect::<Vec<_>>(), [ErrorKind::Corrupt]);
        fs::rename(path.with_extension("away"), &path).unwrap();
    }
}

/// Sets that break rules of the format end in changes and errors, in every combination with a sound set.
#[test]
fn corrupt_sets_end() {
    for broken in sets("corrupt") {
        let Ok(broken) = OpenOptions::new().check_shards(false).max_value_bytes(1 << 20).open(&broken) else {
            continue;
        };
        let broken = broken.snapshot();
        let sound = ShardDb::open(data("public/ts_03_id_p0_m9_s0_ig_dg")).unwrap().snapshot();
        for (old, new) in [(&broken, &sound), (&sound, &broken), (&broken, &broken)] {
            let _ =
                Diff::between_with(old, new, DiffOptions::new().threads(2)).run(|_| ControlFlow::<()>::Continue(()));
        }
    }
}

// ---- foreign data sets ----

/// The same data, written by TensorStore and CloudVolume, and by ShardDb with other specifications and encodings.
#[test]
fn sets_of_other_writers_with_the_same_data_are_equal() {
    let scratch = TempDir::new();
    let mut compared = 0;
    for (number, theirs) in sets("public").into_iter().enumerate().filter(|(_, set)| name(set).starts_with("ts_")) {
        let twin = theirs.with_file_name(name(&theirs).replacen("ts_", "cv_", 1));
        let one = ShardDb::open(&theirs).unwrap().snapshot();
        let answers: Vec<_> = expected(&theirs).into_iter().filter(|(_, answer)| *answer != Answer::Absent).collect();
        if twin.is_dir() {
            assert_eq!(
                answers,
                expected(&twin).into_iter().filter(|(_, answer)| *answer != Answer::Absent).collect::<Vec<_>>()
            );
            let other = ShardDb::open(&twin).unwrap().snapshot();
            let (changes, errors, totals) = run(&Diff::between(&one, &other));
            assert_eq!((changes.len(), errors.len()), (0, 0), "{}", name(&theirs));
            assert_eq!(totals.unchanged, answers.len() as u64);
            compared += 1;
        }
        for (encoding, spec) in [(Encoding::Raw, spec(1, 0)), (Encoding::Gzip, *one.spec())] {
            if spec.shard_bits() > 12 || spec.minishard_bits() > 12 {
                continue;
            }
            let stored = one.iter().map(sharddb::Result::unwrap);
            let pairs: Pairs =
                stored.map(|entry| (entry.key(), (Vec::new(), entry.value().unwrap().to_vec()))).collect();
            let spec = spec.with_data_encoding(encoding);
            let ours =
                build(&scratch.path().join(format!("{number}-{encoding:?}")), options(spec).allow_sparse(true), &pairs);
            for (old, new) in [(&one, &ours), (&ours, &one)] {
                let (changes, errors, totals) = run(&Diff::between(old, new));
                assert_eq!((changes.len(), errors.len()), (0, 0), "{} as {spec}", name(&theirs));
                assert_eq!(totals.unchanged, answers.len() as u64);
            }
        }
    }
    assert!(compared > 20);
}

/// The differences between neighbouring sets of the test data are those of their lists of expected values.
#[test]
fn differences_of_foreign_sets_are_those_of_their_values() {
    let sets: Vec<_> = sets("public").into_iter().filter(|set| set.join("info").exists()).collect();
    for (old, new) in sets.iter().zip(sets.iter().skip(1)) {
        let values = |set: &Path| -> BTreeMap<u64, Answer> {
            expected(set).into_iter().filter(|(_, answer)| *answer != Answer::Absent).collect()
        };
        let (old_values, new_values) = (values(old), values(new));
        let open = |set: &Path| ShardDb::open(set).unwrap().snapshot();
        let (changes, errors, _) = run(&Diff::between(&open(old), &open(new)));
        assert!(errors.is_empty(), "{}: {errors:?}", name(old));
        for (_, key, before, after) in &changes {
            let answer = |pair: &Option<(Vec<u8>, Vec<u8>)>| pair.as_ref().map(|(_, value)| Answer::of_value(value));
            assert_eq!(answer(before).as_ref(), old_values.get(key), "key {key} of {}", name(old));
            assert_eq!(answer(after).as_ref(), new_values.get(key), "key {key} of {}", name(new));
        }
        let changed: BTreeSet<u64> = changes
            .iter()
            .filter(|(_, _, before, after)| before.as_ref().map(|pair| &pair.1) != after.as_ref().map(|pair| &pair.1))
            .map(|change| change.1)
            .collect();
        let keys = old_values.keys().chain(new_values.keys()).copied();
        assert_eq!(
            changed,
            keys.filter(|key| old_values.get(key) != new_values.get(key)).collect(),
            "{}, {}",
            name(old),
            name(new)
        );
    }
}

/// Duplicate and misplaced keys, unordered indexes, shared values and gaps of any bytes: lookups decide what a key's
/// value is.
#[test]
fn unusual_sets_are_compared_by_what_lookups_find() {
    fn property(old: Vec<(u8, Vec<u8>)>, new: Vec<(u8, Vec<u8>)>, seeds: (u64, u64), same: bool) {
        let wide = |pairs: Vec<(u8, Vec<u8>)>| {
            pairs.into_iter().map(|(key, value)| (u64::from(key % 32), value)).collect::<Vec<_>>()
        };
        let (old, new) = (wide(old), wide(new));
        let new = if same { old.clone() } else { new };
        let (old, new) = (Synthesis::new(&old, seeds.0), Synthesis::new(&new, seeds.1));
        let scratches = [&old, &new].map(|set| {
            let scratch = TempDir::new();
            fs::write(scratch.path().join("info"), serde_json::json!({ "sharding": set.sharding }).to_string())
                .unwrap();
            set.files.iter().for_each(|(name, bytes)| fs::write(scratch.path().join(name), bytes).unwrap());
            scratch
        });
        let [before, after] = scratches.each_ref().map(|scratch| ShardDb::open(scratch.path()).unwrap().snapshot());
        let (changes, errors, _) = run(&Diff::between(&before, &after));
        assert!(errors.is_empty(), "{errors:?}");
        let keys: BTreeSet<u64> = changes.iter().map(|change| change.1).collect();
        assert_eq!(keys.len(), changes.len(), "each key once");
        for (_, key, before, after) in changes {
            assert_eq!(before.as_ref().map(|pair| &pair.1), old.pairs.get(&key));
            assert_eq!(after.as_ref().map(|pair| &pair.1), new.pairs.get(&key));
            assert_ne!(before, after);
        }
        let differ = |key: &u64| old.pairs.get(key) != new.pairs.get(key);
        assert!(old.pairs.keys().chain(new.pairs.keys()).filter(|key| differ(key)).all(|key| keys.contains(key)));
    }
    QuickCheck::new()
        .rng(Gen::new(30))
        .tests(150)
        .quickcheck(property as fn(Vec<(u8, Vec<u8>)>, Vec<(u8, Vec<u8>)>, (u64, u64), bool));
}

// ---- padding ----

/// Zero bytes that may be padding are no change: with a value alignment, and between empty values.
#[test]
fn padding_is_no_preamble() {
    let scratch = TempDir::new();
    let pairs: Pairs = (0..40)
        .map(|key: u64| (key, (vec![b'p'; usize::from(key.is_multiple_of(5))], vec![b'v'; key as usize % 3])))
        .collect();
    let mut snapshots = Vec::new();
    for (number, alignment) in
        [ValueAlignment::One, ValueAlignment::Sixteen, ValueAlignment::SixtyFour].into_iter().enumerate()
    {
        for (number, minishard_bits) in [(2 * number, 0), (2 * number + 1, 2)] {
            let path = scratch.path().join(number.to_string());
            snapshots.push(build(&path, options(spec(minishard_bits, 1)).value_alignment(alignment), &pairs));
        }
    }
    for old in &snapshots {
        for new in &snapshots {
            let (changes, errors, _) = run(&Diff::between(old, new));
            assert_eq!((changes, errors.len()), (vec![], 0));
        }
    }
}

/// Reads that verify nothing compare what is stored.
#[test]
fn reads_that_verify_nothing_compare_bytes() {
    let twins = twins(change_others);
    damage(&twins.new_shard, VALUE);
    let open = |path: &Path| OpenOptions::new().verify_reads(VerifyReads::Never).open(path).unwrap().snapshot();
    let (changes, errors, _) = run(&Diff::between(&open(&twins.old), &open(&twins.new)));
    assert_eq!((changes.len(), errors.len()), (200, 0));
    let info = json(&twins.new_shard.with_file_name("info"));
    assert_eq!(info["sharddb"]["checks"], true);
}

/// The CRC-32 of a gzip member whose content is stored depends on its length alone, because it ends with that of its
/// content.
#[test]
fn gzip_values_with_the_same_check_are_compared() {
    let scratch = TempDir::new();
    let mut random = xorshift(7);
    let mut noise = || -> Vec<u8> { (0..500).map(|_| random().to_le_bytes()[3]).collect() };
    let [old, new] = [1, 2].map(|number| {
        let pairs: Pairs = (0..20).map(|key| (key, (Vec::new(), noise()))).collect();
        let mut options = options(spec(1, 1).with_data_encoding(Encoding::Gzip));
        build(&scratch.path().join(number.to_string()), &mut options, &pairs)
    });
    let record = |snapshot: &Snapshot| json(&snapshot.directory().join("manifest.json"))["shards"].clone();
    assert_eq!(record(&old), record(&new), "the checksums of the files do not differ either");
    let (changes, errors, totals) = run(&Diff::between(&old, &new));
    assert_eq!((changes.len(), errors.len(), totals.unchanged), (20, 0, 0));
}

/// A store holds a pair if lookups return it, with its preamble.
#[test]
fn a_store_holds_what_was_put_into_it() {
    let scratch = TempDir::new();
    let mut pairs = Pairs::from([(0, (vec![], vec![])), (7, (b"pre".to_vec(), b"fix".to_vec()))]);
    pairs.insert(u64::MAX, (vec![], b"last".to_vec()));
    let snapshot =
        build(&scratch.path().join("store"), options(spec(1, 1)).value_alignment(ValueAlignment::Page), &pairs);
    for (key, (preamble, value)) in &pairs {
        assert!(snapshot.holds(*key, Some((preamble, value))).unwrap());
        assert!(!snapshot.holds(*key, Some((b"x", value))).unwrap());
        assert!(!snapshot.holds(*key, Some((preamble, b"x"))).unwrap());
        assert!(!snapshot.holds(*key, None).unwrap());
    }
    assert!(snapshot.holds(1, None).unwrap());
    assert!(!snapshot.holds(1, Some((b"", b""))).unwrap());
    let shard = shard_with(&snapshot, b"prefix");
    damage(&shard, b"fix");
    let snapshot = ShardDb::open(shard.parent().unwrap()).unwrap().snapshot();
    assert_eq!(snapshot.holds(7, Some((b"pre", b"fix"))).unwrap_err().kind(), ErrorKind::Corrupt);
}
