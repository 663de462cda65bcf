//! Whatever a directory contains, opening and reading it returns a right answer or a clear error, in bounded memory,
//! without blocking and without following a name out of the directory.
//!
//! The allocator counts memory: the peak of one thread beyond what it held before.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[allow(dead_code, reason = "most of it is for tests/it")]
mod common;
#[path = "common/peak.rs"]
mod peak;

use sharddb_format::internal::ids::shard_number;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;

use common::children::{Running, child, child_directory, in_own_process, limited_child, run};
use common::{Storage, TempDir, mkfifo};
use peak::{PeakAlloc, peak_of};
use sharddb::spec::{Encoding, HashFunction, ValueAlignment};
use sharddb::verify::{FindingKind, VerifyOptions};
use sharddb::{BuildOptions, Error, ErrorKind, OpenOptions, ShardDb, ShardingSpec, Snapshot, Store, VerifyLevel};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The memory of a few small buffers.
const SMALL: usize = 2 << 20;

const MIB: usize = 1 << 20;

/// A sharding with one shard of one minishard, unless `members` say otherwise.
fn sharding(members: &str) -> String {
    let bits = r#""@type": "neuroglancer_uint64_sharded_v1", "hash": "identity", "preshift_bits": 0"#;
    let default = r#""minishard_bits": 0, "shard_bits": 0"#;
    format!("{{{bits}, {}}}", if members.is_empty() { default } else { members })
}

/// A directory with an `info` of this sharding.
fn data_set(members: &str) -> TempDir {
    let directory = TempDir::new();
    fs::write(directory.path().join("info"), format!("{{\"sharding\": {}}}", sharding(members))).unwrap();
    directory
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A shard of the one key 7. Its index states a value of `len` bytes, `gap` bytes after the index.
fn shard_of_one(gap: u64, len: u64) -> Vec<u8> {
    words(&[0, 24, 7, 24 + gap, len])
}

fn snapshot(directory: &Path, storage: Storage) -> Snapshot {
    storage.open(&OpenOptions::new(), directory).unwrap().snapshot()
}

/// The error of a closure; asserts that its peak memory is at most `most`.
#[track_caller]
fn error_within<T>(most: usize, f: impl FnOnce() -> Result<T, Error>) -> Error {
    let (result, peak) = peak_of(f);
    assert!(peak <= most, "expected at most {most} bytes held at once, found {peak}");
    result.err().expect("an error")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

// ---- bombs ----

#[test]
fn a_value_bomb_ends_at_the_cap() {
    let directory = data_set(r#""minishard_bits": 0, "shard_bits": 0, "data_encoding": "gzip""#);
    let bomb = gzip(&vec![0; 64 * MIB]);
    let shard = [shard_of_one(0, bomb.len() as u64), bomb.clone()].concat();
    fs::write(directory.path().join("0.shard"), shard).unwrap();
    let cap = MIB;
    for storage in Storage::ALL {
        let db = storage.open(OpenOptions::new().max_value_bytes(cap as u64), directory.path()).unwrap();
        let snapshot = db.snapshot();
        let most = cap + 2 * bomb.len() + SMALL;
        let mut buffer = Vec::new();
        let errors = [
            error_within(most, || snapshot.get(7).map(drop)),
            error_within(most, || db.get(7).map(drop)),
            error_within(most, || snapshot.get_into(7, &mut buffer).map(drop)),
            error_within(most, || snapshot.get_many(&[7]).remove(0).map(drop)),
            error_within(most, || snapshot.iter().next().unwrap().unwrap().value().map(drop)),
            error_within(most, || snapshot.range(..).next().unwrap().unwrap().value().map(drop)),
        ];
        for error in errors {
            assert_eq!((error.kind(), error.key()), (ErrorKind::TooLarge, Some(7)), "{storage:?}: {error}");
        }
        let (report, peak) = peak_of(|| snapshot.verify(VerifyLevel::Data).unwrap());
        assert!(peak <= most, "{storage:?}: {peak} bytes");
        assert_eq!(report.findings()[0].kind(), FindingKind::OverCap, "{storage:?}");
        assert!(snapshot.contains(7).unwrap(), "what does not need the value is not kept from it");
    }
}

#[test]
fn an_index_bomb_ends_at_the_cap() {
    let directory = data_set(r#""minishard_bits": 0, "shard_bits": 0, "minishard_index_encoding": "gzip""#);
    let bomb = gzip(&vec![0; 24 << 20]);
    fs::write(directory.path().join("0.shard"), [words(&[0, bomb.len() as u64]), bomb.clone()].concat()).unwrap();
    let cap = MIB;
    for storage in Storage::ALL {
        let db = storage.open(OpenOptions::new().max_index_bytes(cap as u64), directory.path()).unwrap();
        let snapshot = db.snapshot();
        let most = cap + 2 * bomb.len() + SMALL;
        let errors = [
            error_within(most, || snapshot.get(7).map(drop)),
            error_within(most, || snapshot.contains(7)),
            error_within(most, || snapshot.count()),
            error_within(most, || snapshot.iter().next().unwrap()),
            error_within(most, || snapshot.keys().next().unwrap()),
            error_within(most, || snapshot.range(..).next().unwrap()),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::TooLarge, "{storage:?}: {error}");
        }
        assert_eq!(snapshot.iter().count(), 1, "the iteration continues after it, and ends");
        let (report, peak) = peak_of(|| snapshot.verify(VerifyLevel::Data).unwrap());
        assert!(peak <= most, "{storage:?}: {peak} bytes");
        assert_eq!(report.findings()[0].kind(), FindingKind::OverCap, "{storage:?}");
    }
}

/// Sparse regions of a file are free, so its length does not bound what may be read from it.
#[test]
fn a_raw_value_of_a_terabyte_is_not_read() {
    const TERABYTE: u64 = 1 << 40;
    let directory = data_set("");
    let path = directory.path().join("0.shard");
    for (gap, len) in [(0, TERABYTE), (TERABYTE, 5)] {
        fs::write(&path, shard_of_one(gap, len)).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(40 + gap + len).unwrap();
        let snapshot = snapshot(directory.path(), Storage::Positioned);
        let entry = snapshot.iter().next().unwrap().unwrap();
        let errors = match gap {
            0 => vec![
                error_within(SMALL, || snapshot.get(7).map(drop)),
                error_within(SMALL, || entry.value().map(drop)),
                error_within(SMALL, || entry.encoded_value().map(drop)),
            ],
            _ => vec![
                error_within(SMALL, || snapshot.get_preamble(7, TERABYTE).map(drop)),
                error_within(SMALL, || entry.preamble().map(drop)),
            ],
        };
        for error in errors {
            assert_eq!((error.kind(), error.key()), (ErrorKind::TooLarge, Some(7)), "{error}");
            assert!(error.to_string().contains("raise the cap"), "{error}");
        }
        let (report, peak) = peak_of(|| snapshot.verify(VerifyLevel::Data).unwrap());
        assert!(peak <= SMALL, "{peak} bytes");
        let over_cap = report.findings().iter().any(|finding| finding.kind() == FindingKind::OverCap);
        assert_eq!(over_cap, gap == 0, "{:?}", report.findings());
    }
}

/// A value within the caller's cap is read.
#[test]
fn a_value_up_to_the_cap_is_read() {
    let directory = data_set("");
    let shard = [shard_of_one(0, 100), vec![1; 100]].concat();
    fs::write(directory.path().join("0.shard"), shard).unwrap();
    let open = |cap| OpenOptions::new().max_value_bytes(cap).open(directory.path()).unwrap().snapshot();
    assert_eq!(open(100).get(7).unwrap().unwrap(), vec![1; 100]);
    assert_eq!(open(99).get(7).unwrap_err().kind(), ErrorKind::TooLarge);
}

// ---- info and manifest ----

/// A shard of the keys below 200,000, whose values are those of the last minishard first, as CloudVolume may store them, and
/// then the indexes.
fn shard_in_another_order() -> Vec<u8> {
    const MINISHARDS: u8 = 64;
    let (mut values, mut indexes, mut entries) = (Vec::new(), Vec::new(), vec![[0, 0]; MINISHARDS.into()]);
    for minishard in (0..MINISHARDS).rev() {
        let keys: Vec<u64> = (minishard.into()..200_000).step_by(MINISHARDS.into()).collect();
        let deltas = keys.iter().enumerate().map(|(at, key)| if at == 0 { *key } else { MINISHARDS.into() });
        let offsets = keys.iter().enumerate().map(|(at, _)| if at == 0 { values.len() as u64 } else { 0 });
        let rows: Vec<u64> = deltas.chain(offsets).chain(keys.iter().map(|_| 8)).collect();
        values.extend(words(&keys));
        indexes.push((minishard, words(&rows)));
    }
    let mut end = values.len() as u64;
    for (minishard, index) in &indexes {
        entries[usize::from(*minishard)] = [end, end + index.len() as u64];
        end += index.len() as u64;
    }
    [words(&entries.concat()), values, indexes.into_iter().flat_map(|(_, index)| index).collect()].concat()
}

/// 200,000 byte ranges would take 6.4 MB.
#[test]
fn verify_keeps_no_byte_ranges_that_follow_each_other() {
    let foreign = data_set(r#""minishard_bits": 6, "shard_bits": 0"#);
    fs::write(foreign.path().join("0.shard"), shard_in_another_order()).unwrap();
    let mut snapshots = Storage::ALL.map(|storage| ("foreign", snapshot(foreign.path(), storage))).to_vec();
    let stores = [Encoding::Raw, Encoding::Gzip].map(|encoding| {
        let store = TempDir::new();
        let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 6, 0).unwrap();
        let mut options = BuildOptions::new();
        options.spec(spec.with_minishard_index_encoding(encoding)).value_alignment(ValueAlignment::Four);
        let mut loader = options.create(store.path()).unwrap();
        for (key, (preamble, value)) in (0..200_000).zip((0..4).cycle().zip((0..9).cycle())) {
            loader.insert_with_preamble(key, &[7; 9][..preamble], &[7; 9][..value]).unwrap();
        }
        loader.finish().unwrap();
        store
    });
    let native =
        stores.iter().flat_map(|store| Storage::ALL.map(|storage| ("native", snapshot(store.path(), storage))));
    snapshots.extend(native);
    for (kind, snapshot) in snapshots {
        let verify = || snapshot.verify_with(VerifyLevel::Data, VerifyOptions::new().threads(1)).unwrap();
        let (report, peak) = peak_of(verify);
        assert!(report.findings().is_empty() && report.keys == 200_000, "{kind}: {:?}", report.findings());
        assert!(peak <= SMALL, "{kind}: {peak} bytes");
    }
}

/// The value of key 0 is 100 bytes; key 1 has an empty value in its middle, and key 3 ten bytes from there on.
#[test]
fn an_overlap_is_found_behind_an_empty_value() {
    let foreign = data_set(r#""minishard_bits": 1, "shard_bits": 0"#);
    let (first, second) = (words(&[0, 0, 100]), words(&[1, 2, 50, 0, 0, 10]));
    let shard = [words(&[100, 124, 124, 172]), vec![7; 100], first, second].concat();
    fs::write(foreign.path().join("0.shard"), shard).unwrap();
    for storage in Storage::ALL {
        let report = snapshot(foreign.path(), storage).verify(VerifyLevel::Data).unwrap();
        let found: Vec<_> = report.findings().iter().map(|found| (found.kind(), found.error().key())).collect();
        assert_eq!(found, [(FindingKind::Overlap, Some(3))], "{storage:?}: {:?}", report.findings());
    }
}

#[test]
fn an_info_or_a_manifest_of_a_gigabyte_is_not_read() {
    let store = TempDir::new();
    let generation = build(store.path(), 1);
    for name in ["info", "manifest.json"] {
        let bare = TempDir::copy_of(&generation);
        File::options().write(true).open(bare.path().join(name)).unwrap().set_len(1 << 30).unwrap();
        for storage in Storage::ALL {
            let error = error_within(SMALL, || storage.open(&OpenOptions::new(), bare.path()));
            assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
            assert_eq!(error.path(), Some(&*bare.path().join(name)));
        }
    }
}

/// The largest `info` that is accepted, full of unknown members.
#[test]
fn an_info_takes_a_few_times_its_length() {
    let directory = TempDir::new();
    let mut text = format!("{{\"sharding\": {}", sharding(""));
    while text.len() < 16 * MIB - 32 {
        text.push_str(",\"a\":{}");
    }
    fs::write(directory.path().join("info"), text + "}").unwrap();
    let (db, peak) = peak_of(|| ShardDb::open(directory.path()).map(drop));
    assert!(db.is_ok() && peak <= 12 * 16 * MIB, "{peak} bytes held at once");
}

#[test]
fn info_and_manifest_in_each_others_place_are_no_data_set_of_others() {
    let store = TempDir::new();
    let bare = TempDir::copy_of(&build(store.path(), 1));
    let [info, manifest, aside] = ["info", "manifest.json", "aside"].map(|name| bare.path().join(name));
    fs::rename(&info, &aside).unwrap();
    fs::rename(&manifest, &info).unwrap();
    let error = ShardDb::open(bare.path()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&*info)), "a lone manifest");
    fs::rename(&aside, &manifest).unwrap();
    let error = ShardDb::open(bare.path()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&*info)));
}

// ---- numbers ----

#[test]
fn four_billion_minishards_in_sixteen_bytes() {
    let directory = data_set(r#""minishard_bits": 32, "shard_bits": 32"#);
    fs::write(directory.path().join("00000000.shard"), words(&[0, 24])).unwrap();
    for storage in Storage::ALL {
        let snapshot = snapshot(directory.path(), storage);
        let errors = [
            error_within(SMALL, || snapshot.get(0).map(drop)),
            error_within(SMALL, || snapshot.get(1 << 31).map(drop)),
            error_within(SMALL, || snapshot.count()),
            error_within(SMALL, || snapshot.range(..).next().unwrap()),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{storage:?}: {error}");
        }
        assert!(snapshot.get(1 << 32).unwrap().is_none(), "there is no second shard");
        let (found, peak) = peak_of(|| snapshot.iter().map(|entry| entry.unwrap_err().kind()).collect::<Vec<_>>());
        assert!(peak <= SMALL && (1..=2).contains(&found.len()), "{peak} bytes, {found:?}");
        for level in [VerifyLevel::Structure, VerifyLevel::Index, VerifyLevel::Data] {
            let (report, peak) = peak_of(|| snapshot.verify(level).unwrap());
            assert!(!report.is_clean() && peak <= SMALL, "{peak} bytes, {report}");
        }
    }
}

// ---- names ----

/// Only shard names of the format are opened; the only text that becomes a path is the member "key".
#[test]
fn names_that_lead_elsewhere_are_ignored_or_refused() {
    let directory = data_set(r#""minishard_bits": 0, "shard_bits": 8"#);
    for name in ["..shard", "...shard", "%2e%2e%2f00.shard", "0.shard", "000.shard", "0A.shard", "+1.shard", ".shard"] {
        fs::write(directory.path().join(name), shard_of_one(0, 0)).unwrap();
    }
    for storage in Storage::ALL {
        let snapshot = snapshot(directory.path(), storage);
        assert_eq!(snapshot.stats().shards, 0);
        assert!(snapshot.get(7).unwrap().is_none());
    }
    let elsewhere = data_set("");
    fs::write(elsewhere.path().join("0.shard"), shard_of_one(0, 0)).unwrap();
    let absolute = elsewhere.path().to_str().unwrap().to_string();
    let beside = format!("../{}", elsewhere.path().file_name().unwrap().to_str().unwrap());
    for key in [absolute, beside, "..".into(), "a/../../b".into(), ".".into(), String::new()] {
        let scale = format!("{{\"key\": \"{key}\", \"sharding\": {}}}", sharding(""));
        fs::write(directory.path().join("info"), format!("{{\"scales\": [{scale}]}}")).unwrap();
        for pointer in [None, Some("/scales/0")] {
            let mut options = OpenOptions::new();
            pointer.map(|pointer| options.sharding_at(pointer));
            let error = options.open(directory.path()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{key}");
        }
    }
}

/// Symbolic links are followed wherever they lead: git-annex and scratch disks rely on it. A process that opens an
/// untrusted directory reads what its links name, with its own rights.
#[test]
fn links_to_files_and_directories_are_followed() {
    let elsewhere = data_set("");
    fs::write(elsewhere.path().join("0.shard"), [&shard_of_one(0, 3)[..], b"abc"].concat()).unwrap();
    let directory = data_set("");
    symlink(elsewhere.path().join("0.shard"), directory.path().join("0.shard")).unwrap();
    let around = TempDir::new();
    symlink(elsewhere.path(), around.path().join("linked")).unwrap();
    for storage in Storage::ALL {
        assert_eq!(snapshot(directory.path(), storage).get(7).unwrap().unwrap(), b"abc");
        assert_eq!(snapshot(&around.path().join("linked"), storage).get(7).unwrap().unwrap(), b"abc");
    }
}

// ---- names that are not regular files ----

/// Creates something that is not a regular file at a path.
type Make = fn(&Path);

/// Kinds of directory entries that are not regular files.
const NO_FILES: [(&str, Make); 6] = [
    ("a directory", |path| fs::create_dir(path).unwrap()),
    ("a FIFO", mkfifo),
    ("a socket", |path| drop(UnixListener::bind(path).unwrap())),
    ("a dangling link", |path| symlink("nowhere", path).unwrap()),
    ("a link to itself", |path| symlink(path.file_name().unwrap(), path).unwrap()),
    ("a device", |path| symlink("/dev/zero", path).unwrap()),
];

/// A link that leads nowhere is a missing file.
fn kind_of(what: &str) -> ErrorKind {
    if what == "a dangling link" { ErrorKind::Corrupt } else { ErrorKind::Io }
}

#[test]
fn what_is_no_file_is_an_error_at_once() {
    for (what, make) in NO_FILES {
        let directory = in_short_place(|path| fs::write(path.join("info"), info()).unwrap());
        make(&directory.path().join("0.shard"));
        for storage in Storage::ALL {
            let snapshot = snapshot(directory.path(), storage);
            let errors = [
                error_within(SMALL, || snapshot.get(7).map(drop)),
                error_within(SMALL, || snapshot.contains(7)),
                error_within(SMALL, || snapshot.iter().next().unwrap()),
            ];
            for error in errors {
                assert_eq!(error.kind(), kind_of(what), "{what}, {storage:?}: {error}");
                assert_eq!(error.path(), Some(&*directory.path().join("0.shard")));
            }
            assert_eq!(snapshot.iter().count(), 1);
            assert!(!snapshot.verify(VerifyLevel::Data).unwrap().is_clean(), "{what}");
        }
    }
}

#[test]
fn an_info_that_is_no_file_is_an_error_at_once() {
    for (what, make) in NO_FILES {
        let directory = in_short_place(|_| {});
        make(&directory.path().join("info"));
        for storage in Storage::ALL {
            let error = error_within(SMALL, || storage.open(&OpenOptions::new(), directory.path()));
            assert_eq!(error.kind(), kind_of(what), "{what}: {error}");
        }
    }
}

/// In a native generation, each missing file is an error.
#[test]
fn files_of_a_generation_that_are_no_files_are_errors_at_once() {
    let store = TempDir::new();
    let generation = build(store.path(), 1);
    for (what, make) in NO_FILES {
        for name in ["info", "manifest.json", "0.shard"] {
            let bare = in_short_place(|path| copy(&generation, path));
            fs::remove_file(bare.path().join(name)).unwrap();
            make(&bare.path().join(name));
            let error = error_within(SMALL, || {
                let db = ShardDb::open(bare.path())?;
                db.get(1).map(drop)
            });
            assert_eq!(error.kind(), kind_of(what), "{what} as {name}: {error}");
        }
    }
}

/// Lookups return the same answers without the minishard table.
#[test]
fn a_minishard_table_that_is_no_file_changes_no_answer() {
    let store = TempDir::new();
    let spec = ShardingSpec::new(HashFunction::Identity, 0, 9, 0).unwrap();
    let mut loader = BuildOptions::new().spec(spec).create(store.path()).unwrap();
    (0..600).for_each(|key| loader.insert(key, key.to_le_bytes()).unwrap());
    let generation = store.path().join(loader.finish().unwrap().generation.to_string());
    for (what, make) in NO_FILES {
        let bare = in_short_place(|path| copy(&generation, path));
        fs::remove_file(bare.path().join("minishards")).unwrap();
        make(&bare.path().join("minishards"));
        let (snapshot, peak) = peak_of(|| Storage::Mapped.open(&OpenOptions::new(), bare.path()).unwrap().snapshot());
        assert!(peak <= SMALL, "{what}: {peak}");
        (0..600).for_each(|key| assert_eq!(snapshot.get(key).unwrap().unwrap(), key.to_le_bytes(), "{what}"));
        let report = snapshot.verify(VerifyLevel::Structure).unwrap();
        assert_eq!(report.findings()[0].kind(), FindingKind::AuxiliaryFile, "{what}");
    }
}

/// The path of a socket is limited to about a hundred bytes.
fn in_short_place(fill: impl FnOnce(&Path)) -> TempDir {
    let place = TempDir::new_in(&std::env::temp_dir());
    fill(place.path());
    place
}

fn info() -> String {
    format!("{{\"sharding\": {}}}", sharding(""))
}

fn copy(from: &Path, to: &Path) {
    for (name, bytes) in common::directory_bytes(from) {
        fs::write(to.join(name), bytes).unwrap();
    }
}

// ---- files that change ----

/// A shard whose value is on a page of its own, which the test cuts off.
fn shrinking() -> TempDir {
    let directory = data_set("");
    let shard = [shard_of_one(1 << 16, 3), vec![0; 1 << 16], b"abc".to_vec()].concat();
    fs::write(directory.path().join("0.shard"), shard).unwrap();
    directory
}

fn shrink(directory: &Path) {
    File::options().write(true).open(directory.join("0.shard")).unwrap().set_len(4096).unwrap();
}

#[test]
fn a_file_that_shrinks_is_an_error_where_it_is_read_and_nothing_where_it_is_loaded() {
    let directory = shrinking();
    let [read, loaded] = [Storage::Positioned, Storage::Loaded].map(|storage| snapshot(directory.path(), storage));
    assert_eq!(read.get(7).unwrap().unwrap(), b"abc");
    shrink(directory.path());
    let error = read.get(7).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(&*directory.path().join("0.shard"))));
    assert_eq!(loaded.get(7).unwrap().unwrap(), b"abc");
    for storage in Storage::ALL {
        let error = snapshot(directory.path(), storage).get(7).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "opened afterwards");
    }
}

/// The case that the promise of `open` excludes.
#[test]
fn a_file_that_shrinks_beneath_a_map_is_a_sigbus() {
    let directory = shrinking();
    let ended = run(child("child_maps_what_shrinks", directory.path()));
    assert_eq!(ended.status.signal(), Some(7), "{ended}");
}

#[test]
#[ignore = "the process of a_file_that_shrinks_beneath_a_map_is_a_sigbus"]
fn child_maps_what_shrinks() {
    let Some(directory) = child_directory() else { return };
    let snapshot = snapshot(&directory, Storage::Mapped);
    assert_eq!(snapshot.get(7).unwrap().unwrap(), b"abc");
    shrink(&directory);
    let value = snapshot.get(7).unwrap().unwrap();
    assert_eq!(value.to_vec(), b"abc", "never reached: the page is gone");
}

// ---- limits of the process ----

/// A store with a generation of `shards` shards of one key each.
fn build(store: &Path, shards: u64) -> std::path::PathBuf {
    let bits = u8::try_from(shards.next_power_of_two().ilog2()).unwrap();
    let spec = ShardingSpec::new(HashFunction::Identity, 0, 0, bits).unwrap();
    let mut loader = BuildOptions::new().spec(spec).create(store).unwrap();
    (0..shards.max(2)).for_each(|key| loader.insert(key, key.to_le_bytes()).unwrap());
    store.join(loader.finish().unwrap().generation.to_string())
}

/// A process keeps a quarter of its descriptors for files that are read by positioned reads; the others are opened again
/// by name.
#[test]
fn files_that_are_opened_again_tell_that_their_generation_was_deleted() {
    let store = TempDir::new();
    build(store.path(), 300);
    run(limited_child("ulimit -n 200", "child_reads_a_deleted_generation", store.path())).assert_passed();
}

#[test]
#[ignore = "the process of files_that_are_opened_again_tell_that_their_generation_was_deleted"]
fn child_reads_a_deleted_generation() {
    let Some(store) = child_directory() else { return };
    let snapshot = snapshot(&store, Storage::Positioned);
    let get = |key: u64| snapshot.get(key).map(|value| value.unwrap().to_vec());
    (0..300u64).for_each(|key| assert_eq!(get(key).unwrap(), key.to_le_bytes()));
    fs::remove_dir_all(snapshot.directory()).unwrap();
    let mut gone = 0;
    for key in 0..300u64 {
        match get(key) {
            Ok(value) => assert_eq!(value, key.to_le_bytes()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::GenerationGone, "{error}");
                gone += 1;
            }
        }
    }
    assert_eq!(gone, 250);
}

/// The files of 4,096 shards are read with a limit of 1,024 descriptors, which stays as it is.
#[test]
fn more_shards_than_descriptors_are_read() {
    let store = TempDir::new();
    build(store.path(), 4096);
    run(limited_child("ulimit -n 1024", "child_has_fewer_descriptors_than_shards", store.path())).assert_passed();
}

#[test]
#[ignore = "the process of more_shards_than_descriptors_are_read"]
fn child_has_fewer_descriptors_than_shards() {
    let Some(store) = child_directory() else { return };
    let snapshot = snapshot(&store, Storage::Positioned);
    for round in 0..2u64 {
        for key in 0..4097u64 {
            let expected = (key < 4096).then(|| key.to_le_bytes().to_vec());
            assert_eq!(snapshot.get(key).unwrap().map(|value| value.to_vec()), expected, "round {round}");
        }
    }
    let open = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!((256..320).contains(&open), "{open} descriptors");
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().nth(3), Some("1024"), "{files}");
}

/// With fewer descriptors than shards, every lookup is right, in every storage.
#[test]
fn few_descriptors_are_enough() {
    let store = TempDir::new();
    build(store.path(), 128);
    run(limited_child("ulimit -n 40", "child_has_few_descriptors", store.path())).assert_passed();
}

/// Descriptors that are kept for later reads are closed for a store that is opened, and for the rest of the program.
#[test]
fn many_stores_leave_descriptors_to_the_program() {
    let stores = TempDir::new();
    for store in 0..44 {
        build(&stores.path().join(store.to_string()), 4);
    }
    run(limited_child("ulimit -n 64", "child_opens_many_stores", stores.path())).assert_passed();
}

#[test]
#[ignore = "the process of many_stores_leave_descriptors_to_the_program"]
fn child_opens_many_stores() {
    let Some(stores) = child_directory() else { return };
    let mut opened = Vec::new();
    for store in 0..44 {
        let snapshot = snapshot(&stores.join(store.to_string()), Storage::Positioned);
        for key in 0..4u64 {
            assert_eq!(snapshot.get(key).unwrap().unwrap(), key.to_le_bytes(), "store {store}");
        }
        opened.push(snapshot);
    }
    File::open("/dev/null").unwrap();
    for snapshot in &opened {
        assert_eq!(snapshot.get(3).unwrap().unwrap(), 3u64.to_le_bytes());
    }
}

#[test]
#[ignore = "the process of few_descriptors_are_enough"]
fn child_has_few_descriptors() {
    let Some(store) = child_directory() else { return };
    let mapped = snapshot(&store, Storage::Mapped);
    let loaded = snapshot(&store, Storage::Loaded);
    for key in 0..128u64 {
        assert_eq!(mapped.get(key).unwrap().unwrap(), key.to_le_bytes(), "a map keeps no descriptor");
        assert_eq!(loaded.get(key).unwrap().unwrap(), key.to_le_bytes());
    }
    let read = snapshot(&store, Storage::Positioned);
    for key in 0..128u64 {
        assert_eq!(read.get(key).unwrap().unwrap(), key.to_le_bytes(), "other files are opened for each read");
    }
    let files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).take(41).collect();
    assert!(files.len() < 40, "expected the limit to be active, opened {} files more", files.len());
}

/// A file that may not be read is an error, never an empty shard.
#[test]
fn a_file_without_permission_is_an_error() {
    let directory = data_set("");
    let shard = directory.path().join("0.shard");
    fs::write(&shard, [&shard_of_one(0, 3)[..], b"abc"].concat()).unwrap();
    fs::set_permissions(&shard, fs::Permissions::from_mode(0o000)).unwrap();
    let mut child = child("child_may_not_read", directory.path());
    if File::open(&shard).is_ok() {
        child.uid(65534).gid(65534); // root may read everything, so the child becomes nobody
    }
    match Running::start(child) {
        Ok(running) => running.finish().assert_passed(),
        Err(error) => println!("skipped: nobody else may run this test here: {error}"),
    }
}

#[test]
#[ignore = "the process of a_file_without_permission_is_an_error"]
fn child_may_not_read() {
    let Some(directory) = child_directory() else { return };
    for storage in Storage::ALL {
        let snapshot = snapshot(&directory, storage);
        let error = snapshot.get(7).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(&*directory.join("0.shard"))));
        assert_eq!(snapshot.iter().filter(Result::is_err).count(), 1);
    }
}

/// More shards than a process may have maps: lookups map up to the limit and read the other shards by position.
#[test]
fn seventy_thousand_shards_within_the_limit_of_maps() {
    in_own_process("seventy_thousand_shards_within_the_limit_of_maps", || {
        const SHARDS: u64 = 70_000;
        let directory = data_set(r#""minishard_bits": 0, "shard_bits": 17"#);
        let spec = ShardingSpec::new(HashFunction::Identity, 0, 0, 17).unwrap();
        for key in 0..SHARDS {
            let shard = [&words(&[0, 24, key, 24, 8])[..], &key.to_le_bytes()].concat();
            fs::write(directory.path().join(format!("{key:05x}.shard")), shard).unwrap();
        }
        let (snapshot, peak) = peak_of(|| snapshot(directory.path(), Storage::Mapped));
        assert!(peak <= 200 * 70_000, "{peak} bytes for the table of the shards");
        assert_eq!((*snapshot.spec(), snapshot.stats().shards), (spec, 70_000));
        for key in 0..SHARDS {
            assert_eq!(snapshot.get(key).unwrap().unwrap(), key.to_le_bytes());
        }
        assert!(snapshot.get(SHARDS).unwrap().is_none());
        let maps = snapshot.stats().process_maps;
        assert!((50_000..=60_001).contains(&maps), "{maps}");
        let first = snapshot.shard(shard_number(SHARDS - 1)).unwrap().unwrap();
        assert_eq!(first.get(SHARDS - 1).unwrap().unwrap(), (SHARDS - 1).to_le_bytes(), "a pass still finds its way");
        assert_eq!(snapshot.count().unwrap(), SHARDS);
    });
}

/// The directory is not taken for a store, so nothing is published among foreign files.
#[test]
fn a_store_whose_lock_is_no_file_is_none() {
    for (what, make) in NO_FILES {
        let directory = in_short_place(|_| {});
        make(&directory.path().join("lock"));
        let error = Store::open(directory.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{what}: {error}");
    }
}
