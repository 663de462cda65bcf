//! Salvage keeps exactly the pairs that can be proved and names the others: for any changed byte of a store with
//! checks, the new store has only stored values, and every missing one is reported.

use sharddb_format::internal::ids::shard_number;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;

use crate::common::{self, TempDir, data, directory_bytes, expected, sets};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use sharddb::salvage::SalvageReport;
use sharddb::spec::{Encoding, HashFunction, Layout, ValueAlignment};
use sharddb::verify::FindingKind;
use sharddb::write::ShardWriter;
use sharddb::{BuildOptions, ErrorKind, OpenOptions, Salvage, ShardDb, ShardingSpec, Snapshot, VerifyLevel};

/// A loss: its kind, minishard and key.
type Loss = (FindingKind, Option<u64>, Option<u64>);

/// The result of a salvage.
struct Salvaged {
    report: SalvageReport,
    losses: Vec<Loss>,
    snapshot: Snapshot,
    _store: TempDir,
}

fn salvage(directory: &Path) -> Salvaged {
    salvage_with(directory, &OpenOptions::new())
}

fn salvage_with(directory: &Path, options: &OpenOptions) -> Salvaged {
    let salvage = Salvage::open_with(directory, options).unwrap();
    let (store, mut losses) = (TempDir::new(), Vec::new());
    let mut loader = salvage.build_options().threads(1).memory(16 << 20).create(store.path().join("out")).unwrap();
    let report = salvage
        .write(&mut loader, |lost| {
            losses.push((lost.kind(), lost.location().minishard.map(|it| it.get()), lost.key()));
        })
        .unwrap();
    loader.finish().unwrap();
    assert_eq!(report.losses, losses.len() as u64);
    let snapshot = ShardDb::load(store.path().join("out")).unwrap().snapshot();
    assert_eq!(snapshot.key_count(), Some(report.kept));
    Salvaged { report, losses, snapshot, _store: store }
}

/// All pairs with their preambles.
fn pairs(snapshot: &Snapshot) -> BTreeMap<u64, (Vec<u8>, Vec<u8>)> {
    let pair = |entry: sharddb::shard::Entry| {
        (entry.key(), (entry.preamble().unwrap().to_vec(), entry.value().unwrap().to_vec()))
    };
    snapshot.iter().map(|entry| pair(entry.unwrap())).collect()
}

fn spec(minishard_bits: u8, shard_bits: u8, index: Encoding, data: Encoding) -> ShardingSpec {
    let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, minishard_bits, shard_bits).unwrap();
    spec.with_minishard_index_encoding(index).with_data_encoding(data)
}

/// A native generation of twenty keys outside a store, with checks, preambles and a foreign member in `info`.
fn ours(index: Encoding, data: Encoding) -> TempDir {
    let store = TempDir::new();
    let mut options = BuildOptions::new();
    options.threads(1).spec(spec(2, 1, index, data)).info(r#"{"@type": "somebody's"}"#);
    let mut loader = options.create(store.path()).unwrap();
    for key in 0..20u8 {
        let preamble = vec![!key; usize::from(key % 3)];
        loader.insert_with_preamble(key.into(), &preamble, &vec![key; usize::from(key)]).unwrap();
    }
    loader.finish().unwrap();
    TempDir::copy_of(ShardDb::open(store.path()).unwrap().snapshot().directory())
}

fn encodings() -> impl Iterator<Item = (Encoding, Encoding)> {
    [Encoding::Raw, Encoding::Gzip].into_iter().flat_map(|index| [(index, Encoding::Raw), (index, Encoding::Gzip)])
}

#[test]
fn of_a_whole_generation_nothing_is_lost_and_the_bytes_are_the_same() {
    for (index, data) in encodings() {
        let whole = ours(index, data);
        let salvaged = salvage(whole.path());
        assert_eq!((salvaged.report.kept, &salvaged.losses[..], salvaged.report.missing), (20, &[][..], Some(0)));
        assert_eq!(directory_bytes(salvaged.snapshot.directory()), directory_bytes(whole.path()), "{index:?} {data:?}");
    }
}

#[test]
fn whichever_fourth_byte_is_changed_what_is_kept_is_right_and_what_is_not_is_reported() {
    bytes_are_changed(4);
}

#[test]
#[ignore = "takes half a minute"]
fn whatever_byte_is_changed_what_is_kept_is_right_and_what_is_not_is_reported() {
    bytes_are_changed(1);
}

fn bytes_are_changed(step: usize) {
    for (index, data) in encodings() {
        let damaged = ours(index, data);
        let sound = pairs(&ShardDb::open(damaged.path()).unwrap().snapshot());
        let path = damaged.path().join("0.shard");
        let bytes = fs::read(&path).unwrap();
        let (mut kept, mut rounds) = (0, 0);
        // another byte of each word
        for at in (0..bytes.len()).step_by(step).map(|at| (at + at / 8 % step).min(bytes.len() - 1)) {
            rounds += 1;
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            fs::write(&path, changed).unwrap();
            let salvaged = salvage(damaged.path());
            let found = pairs(&salvaged.snapshot);
            let place = format!("{index:?} index, {data:?} data, byte {at}: {:?}", salvaged.losses);
            assert!(found.iter().all(|pair| sound.get(pair.0) == Some(pair.1)), "{place}");
            assert_eq!(salvaged.report.missing, Some((sound.len() - found.len()) as u64), "{place}");
            assert!(found.len() == sound.len() || !salvaged.losses.is_empty(), "{place}");
            kept += found.len();
        }
        // a changed byte costs at most one minishard, of eight with 20 keys
        assert!(kept > rounds * sound.len() * 3 / 4, "{kept} of {}", rounds * sound.len());
    }
}

#[test]
fn a_changed_value_or_preamble_costs_that_pair_alone() {
    let damaged = ours(Encoding::Raw, Encoding::Raw);
    let location = ShardDb::open(damaged.path()).unwrap().snapshot().locate(17).unwrap().unwrap();
    let sound = fs::read(&location.path).unwrap();
    let offset = usize::try_from(location.range.start).unwrap();
    for (at, rule) in [(offset + 3, FindingKind::ValueCheck), (offset - 1, FindingKind::PreambleCheck)] {
        let mut changed = sound.clone();
        changed[at] ^= 1;
        fs::write(&location.path, changed).unwrap();
        let salvaged = salvage(damaged.path());
        let minishard = salvaged.snapshot.spec().route(17).minishard.get();
        assert_eq!(salvaged.losses, [(rule, Some(minishard), Some(17))]);
        assert_eq!((salvaged.report.kept, salvaged.report.missing), (19, Some(1)));
    }
}

/// The pairs are proved by their own checks, preambles included.
#[test]
fn a_changed_check_of_an_index_costs_no_pair_of_its_minishard() {
    for (index, data) in encodings() {
        let damaged = ours(index, data);
        let all = pairs(&ShardDb::open(damaged.path()).unwrap().snapshot());
        let path = damaged.path().join("0.shard");
        let mut bytes = fs::read(&path).unwrap();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        // the last minishard with keys of four: with gzip indexes, the next one has a preamble that begins at its end
        let ends = (0..4).map(|minishard| (word(16 * minishard), word(16 * minishard + 8)));
        let end = ends.filter(|(start, end)| start < end).map(|(_, end)| end).max().unwrap();
        bytes[64 + usize::try_from(end).unwrap()] ^= 1; // the check follows the index
        fs::write(&path, bytes).unwrap();
        let salvaged = salvage(damaged.path());
        assert_eq!((salvaged.report.kept, &salvaged.losses[..]), (20, &[][..]), "{index:?} index, {data:?} data");
        assert_eq!(pairs(&salvaged.snapshot), all, "{index:?} index, {data:?} data");
    }
}

/// The shard index only locates the minishards: with checks they are found without it.
#[test]
fn without_a_shard_index_minishards_are_found_by_their_checks() {
    for (index, data) in encodings() {
        let damaged = ours(index, data);
        let all = pairs(&ShardDb::open(damaged.path()).unwrap().snapshot());
        let path = damaged.path().join("0.shard");
        let sound = fs::read(&path).unwrap();
        let zeros = [vec![0; 64], sound[64..].to_vec()].concat(); // four minishards
        let nonsense = [vec![0xa5; 64], sound[64..].to_vec()].concat();
        let moved = [&sound[16..64], &sound[..16], &sound[64..]].concat();
        for changed in [zeros, nonsense, moved] {
            fs::write(&path, changed).unwrap();
            let salvaged = salvage(damaged.path());
            assert!(salvaged.losses.is_empty(), "{index:?} {data:?}: {:?}", salvaged.losses);
            assert_eq!(pairs(&salvaged.snapshot), all, "{index:?} {data:?}");
        }
    }
}

/// Either `manifest.json` or `info` is enough, and of a damaged one its legible text is used.
#[test]
fn one_of_manifest_and_info_is_enough() {
    let sound = ours(Encoding::Gzip, Encoding::Raw);
    let all = pairs(&ShardDb::open(sound.path()).unwrap().snapshot());
    for name in ["info", "manifest.json"] {
        for damage in [&b""[..], b"{", b"\xff", b"{\"sharding\": 7}"] {
            let damaged = TempDir::copy_of(sound.path());
            fs::write(damaged.path().join(name), damage).unwrap();
            assert!(ShardDb::open(damaged.path()).is_err(), "{name}");
            let salvaged = salvage(damaged.path());
            assert_eq!(pairs(&salvaged.snapshot), all, "{name}");
            let info_lost = [(FindingKind::InfoMismatch, None, None)];
            assert_eq!(salvaged.losses, if name == "info" { &info_lost[..] } else { &[] }, "{name}");
            assert_eq!(salvaged.report.missing, if name == "info" { Some(0) } else { None });
        }
    }
    let damaged = TempDir::copy_of(sound.path());
    for name in ["info", "manifest.json"] {
        fs::write(damaged.path().join(name), b"").unwrap();
    }
    assert_eq!(Salvage::open(damaged.path()).unwrap_err().kind(), ErrorKind::InvalidSpec);
}

#[test]
fn a_missing_shard_is_a_loss_and_so_is_one_that_cannot_be_read() {
    let damaged = ours(Encoding::Raw, Encoding::Raw);
    fs::remove_file(damaged.path().join("0.shard")).unwrap();
    let salvaged = salvage(damaged.path());
    assert_eq!(salvaged.losses, [(FindingKind::MissingShard, None, None)]);
    assert_eq!(salvaged.report.missing, Some(20 - salvaged.report.kept));
    fs::create_dir(damaged.path().join("0.shard")).unwrap();
    assert_eq!(salvage(damaged.path()).losses, [(FindingKind::UnreadableShard, None, None)]);
}

#[test]
fn alignment_and_foreign_members_are_carried_over() {
    let store = TempDir::new();
    let mut options = BuildOptions::new();
    options.threads(1).spec(spec(0, 0, Encoding::Raw, Encoding::Raw)).value_alignment(ValueAlignment::SixtyFour);
    let mut loader = options.info(r#"{"@type": "somebody's"}"#).create(store.path()).unwrap();
    loader.insert(7, b"seven").unwrap();
    loader.finish().unwrap();
    let salvaged = salvage(store.path());
    assert_eq!(salvaged.snapshot.layout().unwrap().value_alignment, ValueAlignment::SixtyFour);
    let info = fs::read_to_string(salvaged.snapshot.directory().join("info")).unwrap();
    assert!(info.contains(r#""@type": "somebody's""#), "{info}");
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A minishard index at the start of the data, for ids with values of one byte each from `value` on.
fn one_byte_values(ids: &[u64], value: u64) -> Vec<u8> {
    let mut columns = [vec![], vec![], vec![1; ids.len()]];
    let mut last = 0;
    for id in ids {
        columns[0].push(id.wrapping_sub(last));
        columns[1].push(if last == 0 && columns[1].is_empty() { value } else { 0 });
        last = *id;
    }
    words(&columns.concat())
}

/// A foreign data set: identity hash, no shard bits, `minishard_bits` minishard bits.
fn foreign(minishard_bits: u8, encodings: &str, shard: &[u8]) -> TempDir {
    let directory = TempDir::new();
    let info = format!(
        r#"{{"sharding": {{"@type": "neuroglancer_uint64_sharded_v1", "hash": "identity", "preshift_bits": 0,
            "minishard_bits": {minishard_bits}, "shard_bits": 0{encodings}}}}}"#
    );
    fs::write(directory.path().join("info"), info).unwrap();
    fs::write(directory.path().join("0.shard"), shard).unwrap();
    directory
}

/// As neuroglancer-scripts writes it: minishards 1 and 3 of four have keys, but their entries are in slots 0 and 1.
#[test]
fn entries_in_the_wrong_slots_are_put_right() {
    let (one, three) = (one_byte_values(&[1, 5], 48), one_byte_values(&[3], 74));
    let behind = [one, b"xy".to_vec(), three, b"z".to_vec()].concat();
    let shard = |entries: &[u64]| [words(entries), behind.clone()].concat();
    let directory = foreign(2, "", &shard(&[0, 48, 50, 74, 0, 0, 0, 0]));
    assert!(ShardDb::open(directory.path()).unwrap().get(5).unwrap().is_none());
    let salvaged = salvage(directory.path());
    assert_eq!((salvaged.report.kept, salvaged.report.wrong_slot, &salvaged.losses[..]), (3, 3, &[][..]));
    for (key, value) in [(1, b"x"), (5, b"y"), (3, b"z")] {
        assert_eq!(salvaged.snapshot.get(key).unwrap().unwrap(), value);
    }
    assert!(salvaged.report.to_string().contains("neuroglancer-scripts"), "{}", salvaged.report);

    // slots other than the first ones: not the known deviation, so the pairs are not proved
    let directory = foreign(2, "", &shard(&[0, 0, 0, 48, 50, 74, 0, 0]));
    let salvaged = salvage(directory.path());
    let misplaced = |key| (FindingKind::MisplacedKey, Some(2), Some(key));
    assert_eq!((salvaged.losses, salvaged.report.kept), (vec![misplaced(3)], 2));
}

#[test]
fn zlib_in_place_of_gzip_is_understood() {
    let zlib = |bytes: &[u8]| {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let value = zlib(b"hello hello hello");
    let index = zlib(&words(&[7, 0, value.len() as u64]));
    let end = (value.len() + index.len()) as u64;
    let sound = [words(&[value.len() as u64, end]), value, index].concat();
    let gzip = r#", "data_encoding": "gzip", "minishard_index_encoding": "gzip""#;
    let directory = foreign(0, gzip, &sound);
    assert!(ShardDb::open(directory.path()).unwrap().get(7).is_err());
    let salvaged = salvage(directory.path());
    assert_eq!(salvaged.snapshot.get(7).unwrap().unwrap(), b"hello hello hello");
    assert_eq!((salvaged.report.kept, salvaged.report.zlib, salvaged.losses), (1, 1, vec![]));
    // the Adler-32 is verified
    let mut changed = sound;
    changed[16 + 5] ^= 1;
    let salvaged = salvage(foreign(0, gzip, &changed).path());
    assert_eq!(salvaged.losses, [(FindingKind::BadValue, Some(0), Some(7))]);
}

/// One case per reason to lose a pair without a check; the other pairs of its minishard are kept.
#[test]
fn without_checks_place_and_bounds_decide() {
    let row = |ids: [u64; 2], starts: [u64; 2], sizes: [u64; 2]| {
        let rows = words(&[ids[0], ids[1].wrapping_sub(ids[0]), starts[0], starts[1], sizes[0], sizes[1]]);
        [words(&[0, 48, 0, 0]), rows, b"xy".to_vec()].concat()
    };
    let cases = [
        (row([0, 2], [48, 0], [1, 1]), None),
        (row([0, 3], [48, 0], [1, 1]), Some((FindingKind::MisplacedKey, 3))),
        (row([0, 0], [48, 0], [1, 1]), Some((FindingKind::DuplicateId, 0))),
        (row([0, 2], [48, 0], [1, 2]), Some((FindingKind::BadValueRange, 2))),
        (row([0, 2], [48, u64::MAX], [1, 1 << 63]), Some((FindingKind::BadValueRange, 2))),
        (row([0, 2], [48, 0u64.wrapping_sub(2)], [1, 1]), Some((FindingKind::IndexOverlap, 2))),
    ];
    for (shard, lost) in cases {
        let salvaged = salvage(foreign(1, "", &shard).path());
        let lost: Vec<Loss> = lost.iter().map(|(rule, key)| (*rule, Some(0), Some(*key))).collect();
        assert_eq!(salvaged.losses, lost);
        assert_eq!(salvaged.snapshot.get(0).unwrap().unwrap(), b"x");
    }
    let directory = foreign(1, "", &row([0, 2], [48, 0], [1, 1]));
    let salvaged = salvage_with(directory.path(), OpenOptions::new().max_value_bytes(0));
    assert_eq!(salvaged.losses.iter().map(|loss| loss.0).collect::<BTreeSet<_>>(), [FindingKind::OverCap].into());
}

/// Foreign data is salvaged completely, preambles included, and verifies.
#[test]
fn of_what_others_wrote_nothing_is_lost() {
    for directory in sets("public").iter().step_by(5) {
        let salvaged = salvage(directory);
        assert!(salvaged.losses.is_empty(), "{directory:?}: {:?}", salvaged.losses);
        let keys = expected(directory).iter().filter(|(_, answer)| *answer != common::Answer::Absent).count();
        assert_eq!(salvaged.report.kept, keys as u64, "{directory:?}");
        assert_eq!(pairs(&salvaged.snapshot), pairs(&ShardDb::load(directory).unwrap().snapshot()), "{directory:?}");
        let report = salvaged.snapshot.verify(VerifyLevel::Data).unwrap();
        assert!(report.findings().is_empty(), "{directory:?}: {report}");
    }
    let meshes = data("neuroglancer/seg/mesh");
    let salvaged = salvage(&meshes);
    assert!(salvaged.losses.is_empty() && salvaged.report.kept > 0);
    assert_eq!(pairs(&salvaged.snapshot), pairs(&ShardDb::load(meshes).unwrap().snapshot()));
}

/// Of broken data sets, exactly the keys are kept whose bytes are intact or that lookups still read.
#[test]
fn of_broken_sets_what_is_kept_is_what_lookups_find() {
    let mut options = OpenOptions::new();
    options.max_value_bytes(2 << 20).max_index_bytes(2 << 20);
    for directory in sets("corrupt") {
        let (Ok(db), Ok(_)) = (options.open(&directory), Salvage::open_with(&directory, &options)) else {
            continue;
        };
        let (salvaged, snapshot) = (salvage_with(&directory, &options), db.snapshot());
        let found = pairs(&salvaged.snapshot);
        for (key, (_, value)) in &found {
            let theirs = snapshot.get(*key);
            // lookups are stricter about zlib
            let same = theirs.as_ref().is_ok_and(|theirs| theirs.as_deref() == Some(value));
            assert!(same || salvaged.report.zlib > 0 || salvaged.report.wrong_file > 0, "{directory:?}: key {key}");
        }
        for (key, answer) in expected(&directory) {
            let readable = matches!(snapshot.get(key), Ok(Some(value)) if common::Answer::of_value(&value) == answer);
            let told = salvaged.losses.iter().any(|loss| loss.2 == Some(key));
            assert!(!readable || found.contains_key(&key) || told, "{directory:?}: key {key} is neither kept nor told");
        }
    }
}

/// A copy of a data set in which two files have each other's names.
fn with_swapped_files(directory: &Path) -> TempDir {
    let swapped = TempDir::new();
    for (from, to) in [("info", "info"), ("0.shard", "1.shard"), ("1.shard", "0.shard")] {
        fs::copy(directory.join(from), swapped.path().join(to)).unwrap();
    }
    swapped
}

/// The keys of each file hash to the shard of the other, so that verification names one cause per file.
#[test]
fn files_that_have_each_others_names_lose_nothing() {
    let sets = sets("corrupt");
    let directory = sets.iter().find(|set| set.ends_with("file_swapped")).unwrap();
    let report = ShardDb::open(directory).unwrap().snapshot().verify(VerifyLevel::Data).unwrap();
    let found: Vec<_> = report.findings().iter().map(sharddb::verify::Finding::kind).collect();
    assert_eq!(found, [FindingKind::MisplacedShard, FindingKind::MisplacedShard]);
    assert!(report.findings()[0].message().contains("belong to 1.shard"), "{}", report.findings()[0]);

    let whole = with_swapped_files(directory);
    let expected = pairs(&ShardDb::load(whole.path()).unwrap().snapshot());
    let salvaged = salvage(directory);
    assert_eq!((salvaged.losses, salvaged.report.wrong_file), (vec![], expected.len() as u64));
    assert_eq!(pairs(&salvaged.snapshot), expected);
}

/// One changed bit may move all keys of a minishard to another shard, because ids are stored as differences.
#[test]
fn one_minishard_alone_proves_no_wrong_name() {
    for (minishard_bits, keys, kept) in [(0, 1, 0), (0, 100, 0), (1, 1, 0), (1, 100, 100)] {
        let spec = ShardingSpec::new(HashFunction::Identity, 0, minishard_bits, 1).unwrap();
        let directory = TempDir::new();
        let path = directory.path().join("1.shard");
        let mut writer = ShardWriter::create(&path, spec, shard_number(1), Layout::default()).unwrap();
        let mut ids: Vec<u64> = (0..keys).map(|id| (id << 1 | 1) << minishard_bits | id & 1).collect();
        ids.retain(|id| spec.route(*id).shard == shard_number(1));
        ids.sort_by_key(|id| (spec.route(*id), *id));
        ids.iter().for_each(|id| writer.insert(*id, b"value").unwrap());
        writer.finish().unwrap();
        fs::rename(path, directory.path().join("0.shard")).unwrap();
        fs::write(directory.path().join("info"), format!("{{\"sharding\": {}}}", spec.to_json())).unwrap();
        let kept_keys = salvage(directory.path()).report.kept;
        assert_eq!(kept_keys, if kept > 0 { ids.len() as u64 } else { 0 }, "{minishard_bits} bits, {keys} keys");
    }
}

/// Zeros in place of a file, as a power failure leaves them, name no key that could be reported.
#[test]
fn a_shard_of_zeros_is_a_loss() {
    let store = TempDir::new();
    let mut loader = BuildOptions::new().spec(spec(2, 2, Encoding::Gzip, Encoding::Gzip)).create(store.path()).unwrap();
    loader.extend((0..500u64).map(|key| (key, key.to_string()))).unwrap();
    let generation = loader.finish().unwrap().generation;
    let directory = store.path().join(generation.to_string());
    let keys_of_3 = ShardDb::open(store.path()).unwrap().snapshot().shard(shard_number(3)).unwrap().unwrap();
    let (len, keys) = (keys_of_3.file_bytes(), keys_of_3.count().unwrap());
    drop(keys_of_3);
    for zeros in [len, 64, len + 1000] {
        let path = directory.join("3.shard");
        fs::remove_file(&path).unwrap();
        fs::write(&path, vec![0; usize::try_from(zeros).unwrap()]).unwrap();
        let salvaged = salvage(&directory);
        assert_eq!((salvaged.report.kept, salvaged.report.missing), (500 - keys, Some(keys)), "{zeros} zeros");
        assert_eq!(salvaged.losses, [(FindingKind::WrongCount, None, None)], "{zeros} zeros");
    }
}
