//! A generation of a volume, whose "sharding" is nested in `info`, behaves like any other: it is read, verified,
//! published, adopted, salvaged and removed, and all other members of its `info` survive.
//!
//! The pairs and the `info` are those of a volume that TensorStore wrote (tests/data/neuroglancer/image).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::archives::copy_all;
use crate::common::generations::{self as generation, id};
use crate::common::{Storage, TempDir, data, directory_bytes, json, xorshift};
use serde_json::{Value as Json, json as object};
use sharddb::spec::HashFunction;
use sharddb::verify::FindingKind;
use sharddb::write::UpdateOptions;
use sharddb::{
    BuildOptions, ErrorKind, OpenOptions, Profile, Salvage, ShardDb, ShardingSpec, Store, Updater, VerifyLevel,
};

type Pairs = BTreeMap<u64, Vec<u8>>;

const POINTER: &str = "/scales/1";

/// The chunks of the foreign volume.
fn chunks() -> Pairs {
    let db = ShardDb::open(data("neuroglancer/image")).unwrap();
    let pairs: Pairs = db
        .snapshot()
        .iter()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.key(), entry.value().unwrap().to_vec()))
        .collect();
    assert_eq!(pairs.len(), 64);
    pairs
}

/// The `info` of the foreign volume between two other scales, one of them sharded, and with members that must survive.
fn info() -> String {
    let scale = json(&data("neuroglancer/image/info"))["scales"][0].to_string();
    let sharding = spec_of_source().to_json();
    format!(
        "{{ \"type\":\"image\",\n\t\"n\": 1.50, \"scales\" : [{{\"key\": \"raw\"}},{scale}, \
         {{\"key\": \"s2\", \"sharding\": {sharding}}}], \"z\": [1e400] }}\n"
    )
}

fn spec_of_source() -> ShardingSpec {
    let scale = json(&data("neuroglancer/image/info"))["scales"][0]["sharding"].take();
    ShardingSpec::from_json(&scale.to_string()).unwrap()
}

/// Four shards with enough minishards for a minishard table.
fn wide_spec() -> ShardingSpec {
    ShardingSpec::new(HashFunction::Identity, 0, 9, 2).unwrap()
}

fn options() -> BuildOptions {
    let mut options = BuildOptions::new();
    options.info(info()).sharding_at(POINTER).memory(16 << 20).threads(1);
    options
}

fn build(store: &Path, options: &BuildOptions) -> PathBuf {
    let mut loader = options.create(store).unwrap();
    loader.extend(chunks()).unwrap();
    let published = loader.finish().unwrap();
    assert_eq!(published.content.keys, 64);
    store.join(published.generation.to_string())
}

/// Builds a store; returns it with the path of its only generation.
fn built() -> (TempDir, PathBuf) {
    let scratch = TempDir::new();
    let generation = build(&scratch.path().join("store"), &options());
    (scratch, generation)
}

fn pairs_in(path: &Path) -> Pairs {
    let db = ShardDb::open(path).unwrap();
    db.snapshot()
        .iter()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.key(), entry.value().unwrap().to_vec()))
        .collect()
}

#[track_caller]
fn check(path: &Path) {
    let chunks = chunks();
    for storage in Storage::ALL {
        for pointer in [None, Some(POINTER)] {
            let mut options = OpenOptions::new();
            pointer.map(|pointer| options.sharding_at(pointer));
            let snapshot = storage.open(&options, path).unwrap().snapshot();
            assert_eq!((snapshot.key_count(), snapshot.sharding_at()), (Some(64), POINTER));
            assert_eq!(snapshot.shards_directory(), snapshot.directory().join("s0"));
            for key in 0..100 {
                assert_eq!(snapshot.get(key).unwrap().map(|value| value.to_vec()), chunks.get(&key).cloned(), "{key}");
            }
            for level in [VerifyLevel::Structure, VerifyLevel::Index, VerifyLevel::Data] {
                let report = snapshot.verify(level).unwrap();
                assert!(report.findings().is_empty(), "{report}: {:?}", report.findings());
            }
        }
    }
}

/// The scale without its native member, as other programs wrote it.
fn foreign_scales(generation: &Path) -> Json {
    let mut info = fs::read_to_string(generation.join("info")).unwrap();
    info = info.replace("1e400", "0"); // beyond what this parser accepts
    let mut scales = serde_json::from_str::<Json>(&info).unwrap()["scales"].take();
    scales[1].as_object_mut().unwrap().remove("sharddb").unwrap();
    scales
}

#[test]
fn a_volume_has_its_shards_and_the_info_in_place() {
    let (scratch, generation) = built();
    check(&scratch.path().join("store"));
    check(&generation);
    let expected: Json = serde_json::from_str(&info().replace("1e400", "0")).unwrap();
    assert_eq!(foreign_scales(&generation), expected["scales"]);
    let text = fs::read_to_string(generation.join("info")).unwrap();
    assert!(text.starts_with("{ \"type\":\"image\",\n\t\"n\": 1.50, \"scales\" : [{\"key\": \"raw\"},{"), "{text}");
    assert!(text.ends_with("], \"z\": [1e400] }\n"), "{text}");

    let names: Vec<String> = directory_names(&generation);
    assert_eq!(names, ["info", "lease", "manifest.json", "s0"]);
    for path in [generation.clone(), generation.join("s0")] {
        for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap()) {
            let metadata = entry.metadata().unwrap();
            assert!(metadata.is_dir() || metadata.permissions().readonly(), "{entry:?}");
        }
    }
    // the same shards as at the top level
    let plain = scratch.path().join("plain");
    let mut options = BuildOptions::new();
    let plain = build(&plain, options.spec(spec_of_source()));
    let shards = directory_bytes(&generation.join("s0"));
    assert_eq!(shards.len(), 8);
    assert!(shards.iter().all(|(name, bytes)| fs::read(plain.join(name)).unwrap() == *bytes));
}

fn directory_names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_minishard_table_is_at_the_top_and_used() {
    let scratch = TempDir::new();
    let mut options = options();
    let generation = build(&scratch.path().join("store"), options.spec(wide_spec()));
    assert_eq!(directory_names(&generation), ["info", "lease", "manifest.json", "minishards", "s0"]);
    check(&scratch.path().join("store"));
    fs::remove_file(generation.join("minishards")).unwrap();
    let report = ShardDb::open(&generation).unwrap().snapshot().verify(VerifyLevel::Structure).unwrap();
    let kinds: Vec<_> = report.findings().iter().map(|finding| finding.kind()).collect();
    assert_eq!(kinds, [FindingKind::AuxiliaryFile]);
}

#[test]
fn another_pointer_is_an_error_that_names_both() {
    let (scratch, _) = built();
    for pointer in ["/scales/0", "/scales/2", "/scales/01", "", "scales/1", "/x"] {
        let error = OpenOptions::new().sharding_at(pointer).open(scratch.path().join("store")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{pointer}: {error}");
        assert!(error.message().contains(&format!("/scales/1, found \"{pointer}\"")), "{error}");
    }
}

/// Readers that do not know the manifest, such as earlier versions, find the scale by its pointer.
#[test]
fn without_its_manifest_it_is_a_foreign_volume_with_checks() {
    let (scratch, generation) = built();
    let copy = scratch.path().join("copy");
    copy_all(&generation, &copy);
    fs::remove_file(copy.join("manifest.json")).unwrap();
    let error = ShardDb::open(&copy).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "two scales are sharded");
    let db = OpenOptions::new().sharding_at(POINTER).open(&copy).unwrap();
    let found: Pairs = db
        .snapshot()
        .iter()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.key(), entry.value().unwrap().to_vec()))
        .collect();
    assert_eq!(found, chunks());
    assert!(db.snapshot().layout().unwrap().checks);
    let report = db.snapshot().verify(VerifyLevel::Data).unwrap();
    assert!(report.findings().iter().any(|finding| finding.kind() == FindingKind::NoManifest));
    // in a store, a generation without its manifest does not open
    fs::remove_file(generation.join("manifest.json")).unwrap();
    let error = OpenOptions::new().sharding_at(POINTER).open(scratch.path().join("store")).unwrap_err();
    assert!(error.path().unwrap().ends_with("manifest.json"), "{error}");
}

#[test]
fn the_specification_is_the_given_one_or_that_of_the_scale_or_planned() {
    let spec_of = |change: &dyn Fn(&mut BuildOptions)| {
        let scratch = TempDir::new();
        let mut options = options();
        change(&mut options);
        let generation = build(scratch.path(), &options);
        let db = ShardDb::open(&generation).unwrap();
        assert_eq!(pairs_in(&generation), chunks());
        *db.snapshot().spec()
    };
    assert_eq!(spec_of(&|_| {}), spec_of_source());
    assert_eq!(spec_of(&|options| _ = options.spec(wide_spec())), wide_spec());
    let planned = |profile| {
        let scratch = TempDir::new();
        let mut loader = BuildOptions::new().profile(profile).create(scratch.path()).unwrap();
        loader.extend(chunks()).unwrap();
        loader.finish().unwrap().content.spec
    };
    assert_eq!(spec_of(&|options| _ = options.profile(Profile::Remote)), planned(Profile::Remote));
    let unsharded = info().replace(&spec_of_source().to_json(), "null");
    assert_ne!(unsharded, info());
    let null = |options: &mut BuildOptions| _ = options.info(r#"{"scales":[0,{"key":"s0","sharding":null}]}"#);
    assert_eq!(spec_of(&null), planned(Profile::Local));
}

/// The build fails before it creates anything.
#[test]
fn a_place_that_a_generation_cannot_have_is_refused() {
    let scratch = TempDir::new();
    let store = scratch.path().join("store");
    let with_key = |key: &str| format!("{{\"scales\": [{{\"key\": {}}}]}}", Json::from(key));
    let cases = [
        (with_key("../x"), ErrorKind::InvalidSpec),
        (with_key("/etc"), ErrorKind::InvalidSpec),
        (with_key("a/../../b"), ErrorKind::InvalidSpec),
        (with_key(""), ErrorKind::InvalidSpec),
        (with_key("info"), ErrorKind::InvalidSpec),
        (with_key("MANIFEST.json"), ErrorKind::InvalidSpec),
        (with_key("minishards/x"), ErrorKind::InvalidSpec),
        (with_key("spill"), ErrorKind::InvalidSpec),
        (with_key("a\0"), ErrorKind::InvalidSpec),
        (with_key(&"x".repeat(300)), ErrorKind::InvalidSpec),
        ("{\"scales\": [{}]}".to_string(), ErrorKind::InvalidSpec),
        ("{\"scales\": [{\"key\": \"a\", \"sharding\": 7}]}".to_string(), ErrorKind::InvalidSpec),
        ("{\"scales\": []}".to_string(), ErrorKind::InvalidInput),
        ("{\"scales\": [{\"key\": \"a\"}], \"sharding\": {}}".to_string(), ErrorKind::InvalidInput),
        ("[".to_string(), ErrorKind::InvalidSpec),
    ];
    for (info, kind) in cases {
        let error = BuildOptions::new().info(&info).sharding_at("/scales/0").create(&store).unwrap_err();
        assert_eq!(error.kind(), kind, "{info}: {error}");
    }
    let error = BuildOptions::new().sharding_at("/scales/0").create(&store).unwrap_err();
    assert!(error.message().contains("--info"), "{error}");
    let error = BuildOptions::new().info(info()).create(&store).unwrap_err();
    assert!(error.message().contains("--sharding-at"), "{error}");
    assert!(!store.exists());
}

#[test]
fn a_key_of_several_names_and_an_empty_volume_work() {
    let scratch = TempDir::new();
    let store = scratch.path().join("store");
    let info = info().replace("\"key\":\"s0\"", "\"key\":\"a/mip \u{e9}/s0\"");
    let mut options = options();
    let generation = build(&store, options.info(&info));
    assert_eq!(directory_names(&generation), ["a", "info", "lease", "manifest.json"]);
    assert_eq!(pairs_in(&store), chunks());
    let mut options = BuildOptions::new();
    options.info(&info).sharding_at(POINTER).allow_empty(true);
    let built = options.create(&store).unwrap().finish().unwrap();
    assert_eq!((built.content.keys, built.content.shards), (0, 0));
    let empty = store.join(built.generation.to_string());
    assert!(empty.join("a/mip \u{e9}/s0").is_dir());
    assert_eq!(pairs_in(&store), Pairs::new());
    // copies to object stores lose empty directories
    let copy = scratch.path().join("copy");
    copy_all(&empty, &copy);
    fs::remove_dir_all(copy.join("a")).unwrap();
    let report = ShardDb::open(&copy).unwrap().snapshot().verify(VerifyLevel::Data).unwrap();
    assert!(report.findings().is_empty(), "{:?}", report.findings());
    let writer = Store::open(&store).unwrap().writer().unwrap();
    writer.adopt(&copy).unwrap();
    writer.adopt_by_moving(&copy).unwrap();
    assert_eq!(pairs_in(&store), Pairs::new());
    let report = writer.gc(2).unwrap();
    assert_eq!((report.removed.len(), report.failed.len()), (2, 0), "{report:?}");
    writer.rollback(Some(id(3))).unwrap();
    assert_eq!(writer.gc(0).unwrap().removed, [id(4)]);
}

/// Each kind of damage is a finding with its file, at every level.
#[test]
fn verify_finds_foreign_misplaced_and_missing_files() {
    type Damage = fn(&Path);
    let cases: [(Damage, FindingKind, &str); 9] = [
        (|path| fs::write(path.join("s0/info"), "").unwrap(), FindingKind::UnknownFile, "s0/info"),
        (|path| fs::write(path.join("s0/notes"), "").unwrap(), FindingKind::UnknownFile, "s0/notes"),
        (|path| fs::write(path.join("s0/8.shard"), "").unwrap(), FindingKind::MisnamedShard, "s0/8.shard"),
        (
            |path| fs::rename(path.join("s0/3.shard"), path.join("3.shard")).unwrap(),
            FindingKind::UnknownFile,
            "3.shard",
        ),
        (|path| fs::create_dir(path.join("s1")).unwrap(), FindingKind::UnknownFile, "s1"),
        (|path| fs::remove_file(path.join("s0/3.shard")).unwrap(), FindingKind::MissingShard, "s0/3.shard"),
        (|path| fs::remove_dir_all(path.join("s0")).unwrap(), FindingKind::MissingShard, "s0/3.shard"),
        (|path| edit(&path.join("s0/3.shard"), |bytes| bytes.truncate(100)), FindingKind::WrongLength, "s0/3.shard"),
        (|path| edit(&path.join("info"), |bytes| bytes.push(b' ')), FindingKind::InfoMismatch, "info"),
    ];
    for (damage, kind, name) in cases {
        let (_scratch, generation) = built();
        let db = OpenOptions::new().check_shards(false).open(&generation).unwrap();
        damage(&generation);
        for level in [VerifyLevel::Structure, VerifyLevel::Data] {
            let report = db.snapshot().verify(level).unwrap();
            let found = report.findings().iter().any(|finding| {
                finding.kind() == kind && finding.path().is_some_and(|path| path == generation.join(name))
            });
            assert!(found, "{kind:?} {name}: {:?}", report.findings());
        }
    }
    // a shard with the name of another is found by its keys
    let (_scratch, generation) = built();
    let [one, other] = ["s0/3.shard", "s0/4.shard"].map(|name| generation.join(name));
    let (first, second) = (fs::read(&one).unwrap(), fs::read(&other).unwrap());
    replace(&one, &second);
    replace(&other, &first);
    let db = OpenOptions::new().check_shards(false).open(&generation).unwrap();
    let report = db.snapshot().verify(VerifyLevel::Data).unwrap();
    assert!(report.findings().iter().any(|finding| finding.kind() == FindingKind::FileCrc), "{:?}", report.findings());
    assert!(!report.is_clean());
}

/// Replaces a read-only file.
fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    replace(path, &bytes);
}

#[test]
fn a_salvaged_volume_is_a_volume() {
    let (scratch, generation) = built();
    let lost: Vec<u64> = {
        let db = ShardDb::open(&generation).unwrap();
        let snapshot = db.snapshot();
        chunks().keys().copied().filter(|key| snapshot.spec().route(*key).shard.get() == 3).collect()
    };
    assert_eq!(lost.len(), 8);
    fs::remove_file(generation.join("s0/3.shard")).unwrap();
    let expected: Pairs = chunks().into_iter().filter(|(key, _)| !lost.contains(key)).collect();
    type Damage = fn(&Path);
    let damages: [Damage; 3] = [
        |_| {},
        |path| edit(&path.join("info"), |bytes| bytes.truncate(10)),
        |path| fs::remove_file(path.join("manifest.json")).unwrap(),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let [damaged, whole] = ["damaged", "whole"].map(|name| scratch.path().join(format!("{name}{number}")));
        copy_all(&generation, &damaged);
        damage(&damaged);
        let mut options = OpenOptions::new();
        if number == 2 {
            options.sharding_at(POINTER);
        }
        let salvage = Salvage::open_with(&damaged, &options).unwrap();
        assert_eq!(salvage.keeps_info(), number != 1);
        let mut loader = salvage.build_options().create(&whole).unwrap();
        let report = salvage.write(&mut loader, |_| {}).unwrap();
        assert_eq!(report.kept, 56);
        loader.finish().unwrap();
        assert_eq!(pairs_in(&whole), expected);
        if number != 1 {
            assert_eq!(foreign_scales(&whole.join("current")), foreign_scales(&generation));
        }
    }
}

/// A generation of another place to adopt, and the store.
fn elsewhere() -> (TempDir, PathBuf, Store) {
    let (scratch, generation) = built();
    let other = scratch.path().join("elsewhere");
    copy_all(&generation, &other);
    let store = Store::create(scratch.path().join("new")).unwrap();
    (scratch, other, store)
}

#[test]
fn volumes_are_adopted_by_copy_and_by_move() {
    let (_scratch, other, store) = elsewhere();
    let writer = store.writer().unwrap();
    writer.adopt(&other).unwrap();
    check(store.path());
    let copied = store.generation_path(id(1));
    assert!(directory_bytes(&copied.join("s0")) == directory_bytes(&other.join("s0")));
    assert_eq!(fs::read(copied.join("manifest.json")).unwrap(), fs::read(other.join("manifest.json")).unwrap());
    let candidate = writer.adopt_unpublished(&other).unwrap();
    check(candidate.path());
    drop(candidate);
    writer.adopt_by_moving(&other).unwrap();
    assert!(!other.exists());
    check(store.path());
    for name in ["s0/0.shard", "info", "manifest.json"] {
        assert!(store.generation_path(id(2)).join(name).metadata().unwrap().permissions().readonly(), "{name}");
    }
    assert_eq!(store.totals(id(2)).unwrap().shards, 8);
    assert_eq!(directory_names(store.path()), ["current", "gen-0000000001", "gen-0000000002", "history", "lock"]);
}

/// Returns the text of a manifest with a matching crc32.
fn resealed(text: &str) -> String {
    let (head, _) = text.rsplit_once("\"crc32\"").unwrap();
    format!("{head}\"crc32\": {}\n}}\n", crc32fast::hash(head.as_bytes()))
}

fn edit_manifest(generation: &Path, from: &str, to: &str) {
    edit(&generation.join("manifest.json"), |bytes| {
        let text = String::from_utf8(std::mem::take(bytes)).unwrap();
        assert!(text.contains(from), "{text}");
        *bytes = resealed(&text.replacen(from, to, 1)).into_bytes();
    });
}

/// The manifest of a directory from elsewhere is not trusted: what it states about the place must be safe, and equal to
/// what `info` states.
#[test]
fn hostile_places_are_refused_and_nothing_outside_is_touched() {
    type Damage = fn(&Path);
    let cases: [(Damage, ErrorKind, &str); 9] = [
        (|path| edit_manifest(path, "\"s0\"", "\"../x\""), ErrorKind::Corrupt, "../x"),
        (|path| edit_manifest(path, "\"s0\"", "\"/tmp\""), ErrorKind::Corrupt, "/tmp"),
        (|path| edit_manifest(path, "\"s0\"", "\"s0/..\""), ErrorKind::Corrupt, "s0/.."),
        (|path| edit_manifest(path, "\"s0\"", "\"raw\""), ErrorKind::Corrupt, "raw"),
        (|path| edit_manifest(path, "/scales/1", "/scales/0"), ErrorKind::InvalidInput, "/scales/0"),
        (|path| edit_manifest(path, "/scales/1", "/scales/2"), ErrorKind::Corrupt, "s2"),
        (|path| edit_manifest(path, "version\": 2", "version\": 3"), ErrorKind::Unsupported, "version 2, found 3"),
        (|path| edit_manifest(path, "version\": 2", "version\": 1"), ErrorKind::InvalidSpec, "sharding"),
        (|path| fs::write(path.join("s0/9.shard"), "").unwrap(), ErrorKind::Corrupt, "another"),
    ];
    for (damage, kind, named) in cases {
        let (scratch, other, store) = elsewhere();
        let outside = scratch.path().join("x");
        fs::create_dir(&outside).unwrap();
        damage(&other);
        let writer = store.writer().unwrap();
        for result in [writer.adopt(&other), writer.adopt_by_moving(&other)] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), kind, "{named}: {error}");
            assert!(error.to_string().contains(named), "{named}: {error}");
        }
        drop(writer);
        assert_eq!(directory_names(&outside), [""; 0]);
        assert!(other.join("s0/3.shard").exists());
        if named != "another" {
            let error = ShardDb::open(&other).unwrap_err();
            assert!(error.path().unwrap().starts_with(&other), "{error}");
        }
    }
}

#[cfg(unix)]
#[test]
fn links_and_foreign_files_are_not_moved() {
    use std::os::unix::fs::symlink;
    type Damage = fn(&Path, &Path);
    let cases: [(Damage, &str); 4] = [
        (
            |path, outside| {
                fs::rename(path.join("s0"), outside.join("s0")).unwrap();
                symlink(outside.join("s0"), path.join("s0")).unwrap();
            },
            "s0",
        ),
        (
            |path, outside| {
                fs::rename(path.join("s0/3.shard"), outside.join("3")).unwrap();
                symlink(outside.join("3"), path.join("s0/3.shard")).unwrap();
            },
            "3.shard",
        ),
        (|path, _| fs::write(path.join("s0/notes"), "mine").unwrap(), "notes"),
        (|path, _| fs::create_dir(path.join("s0/sub")).unwrap(), "sub"),
    ];
    for (damage, named) in cases {
        let (scratch, other, store) = elsewhere();
        let outside = scratch.path().join("outside");
        fs::create_dir(&outside).unwrap();
        damage(&other, &outside);
        let writer = store.writer().unwrap();
        let error = writer.adopt_by_moving(&other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.path().unwrap().ends_with(named), "{error}");
        // a copy has the bytes of what links lead to, and no foreign files
        writer.adopt(&other).unwrap();
        check(store.path());
        assert!(store.generation_path(id(1)).join("s0").symlink_metadata().unwrap().is_dir());
    }
}

#[test]
fn gc_and_discard_remove_volumes_and_refuse_foreign_files() {
    let (scratch, generation) = built();
    let store = Store::open(scratch.path().join("store")).unwrap();
    for _ in 0..2 {
        build(store.path(), &options());
    }
    let second = store.generation_path(id(2));
    for (place, name) in [("s0", "notes"), ("s0", "sub/"), ("", "s1/"), ("s0", "info")] {
        let path = second.join(place).join(name.trim_end_matches('/'));
        if name.ends_with('/') {
            fs::create_dir(&path).unwrap()
        } else {
            fs::write(&path, "mine").unwrap()
        }
        let writer = store.writer().unwrap();
        let error = writer.discard(id(2)).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidInput, Some(&*path)), "{error}");
        if name.ends_with('/') { fs::remove_dir(&path).unwrap() } else { fs::remove_file(&path).unwrap() }
    }
    let writer = store.writer().unwrap();
    writer.rollback(Some(id(1))).unwrap();
    check(store.path());
    writer.discard(id(2)).unwrap();
    let report = writer.gc(0).unwrap();
    assert_eq!((report.removed, report.failed), (vec![id(3)], vec![]));
    assert_eq!(directory_names(store.path()), ["current", "gen-0000000001", "history", "lock"]);
    drop(writer);
    // no going back to a generation that lost a shard
    build(store.path(), &options());
    fs::remove_file(generation.join("s0/3.shard")).unwrap();
    let writer = store.writer().unwrap();
    let error = writer.rollback(Some(id(1))).unwrap_err();
    assert!(error.path().unwrap().ends_with("s0/3.shard"), "{error}");
    assert_eq!(writer.gc(2).unwrap().removed, [], "its other pairs can be salvaged");
    assert_eq!(writer.gc(1).unwrap().removed, [id(1)]);
}

/// The next writer removes what a dead one left, and nothing else.
#[test]
fn temporary_directories_of_dead_writers_are_cleared() {
    let (_scratch, generation) = built();
    let store = Store::open(generation.parent().unwrap()).unwrap();
    let clear = |name: &str, make: &dyn Fn(&Path)| {
        let path = store.path().join(name);
        fs::create_dir(&path).unwrap();
        make(&path);
        drop(store.writer().unwrap());
        let is_left = path.exists();
        let _ = fs::remove_dir_all(&path);
        is_left
    };
    let file = |path: &Path, name: &str| {
        let path = path.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    };
    let (pending, doomed) = ("tmp-gen-1-a", "tmp-gc-gen-0000000007");
    assert!(!clear(pending, &|path| file(path, "s0/3.shard")));
    assert!(!clear(pending, &|path| fs::create_dir(path.join("s0")).unwrap()));
    assert!(!clear(pending, &|path| {
        file(path, "a/b/3.shard");
        file(path, "minishards");
        file(path, "spill/1.run")
    }));
    assert!(!clear(pending, &|path| copy_all(&generation, path)));
    assert!(!clear(doomed, &|path| copy_all(&generation, path)));
    assert!(!clear(doomed, &|path| {
        copy_all(&generation, path);
        fs::remove_dir_all(path.join("s0")).unwrap();
    }));
    for name in ["s0/notes", "s0/info", "a/b/notes", "a/3.shard/3.shard/x", "info/3.shard", "s0/spill/1.run"] {
        assert!(clear(pending, &|path| file(path, name)), "{name}");
    }
    assert!(
        clear(pending, &|path| {
            file(path, "a/3.shard");
            file(path, "b/3.shard")
        }),
        "two directories"
    );
    assert!(
        clear(pending, &|path| {
            file(path, "a/3.shard");
            file(path, "a/b/3.shard")
        }),
        "both"
    );
    assert!(clear(pending, &|path| file(path, &["x"; 20].join("/"))), "too deep");
    assert!(clear(doomed, &|path| file(path, "s0/3.shard")), "no manifest names it");
    assert!(clear(doomed, &|path| {
        copy_all(&generation, path);
        file(path, "s0/notes");
    }));
}

/// Readers follow a store from a generation without a pointer to one with it, and back.
#[test]
fn a_refresh_follows_from_and_to_a_volume() {
    let scratch = TempDir::new();
    let store = scratch.path().join("store");
    generation::publish(&store, 1);
    let db = ShardDb::open(&store).unwrap();
    assert_eq!(db.snapshot().sharding_at(), "");
    build(&store, &options());
    assert_eq!(db.refresh().unwrap(), Some(id(2)));
    assert_eq!(db.get(5).unwrap().unwrap().to_vec(), chunks()[&5]);
    generation::publish(&store, 1);
    assert_eq!(db.refresh().unwrap(), Some(id(3)));
    generation::check(&db.snapshot(), 1);
}

#[test]
fn the_members_of_the_manifest_are_additive() {
    let (scratch, generation) = built();
    let manifest = json(&generation.join("manifest.json"));
    assert_eq!(manifest["format_version"], 2, "earlier versions refuse it");
    assert_eq!(manifest["nested"], object!({"sharding_at": POINTER, "shards_in": "s0"}));
    let plain = build(&scratch.path().join("plain"), &BuildOptions::new());
    let manifest = json(&plain.join("manifest.json"));
    assert_eq!((&manifest["format_version"], manifest.get("nested")), (&Json::from(1), None));
}

/// Damage of any byte is noticed: the generation does not open, or `verify` has an error.
#[test]
fn a_changed_byte_of_any_file_is_found() {
    let (scratch, generation) = built();
    let files = ["info", "manifest.json", "s0/0.shard", "s0/7.shard"];
    let mut random = xorshift(7);
    for name in files {
        let bytes = fs::read(generation.join(name)).unwrap();
        for at in (0..25).map(|_| random() as usize % bytes.len()).chain([0, bytes.len() - 1]) {
            let copy = scratch.path().join("copy");
            copy_all(&generation, &copy);
            edit(&copy.join(name), |bytes| bytes[at] ^= 1 << (at % 8));
            let opened = OpenOptions::new().open(&copy);
            let is_missed = opened.is_ok_and(|db| db.snapshot().verify(VerifyLevel::Data).unwrap().is_clean());
            assert!(!is_missed, "{name}, byte {at}");
            let writer = Store::create(scratch.path().join("new")).unwrap().writer().unwrap();
            assert!(writer.adopt(&copy).is_err(), "{name}, byte {at}");
            drop(writer);
            fs::remove_dir_all(&copy).unwrap();
        }
    }
}

/// An update keeps the place of the shards, shares those without a change, and has the bytes of a full build.
#[test]
fn an_updated_volume_is_a_volume() {
    let (scratch, generation) = built();
    let store = scratch.path().join("store");
    let mut expected = chunks();
    let changed = *expected.keys().next().unwrap();
    let mut updater = Updater::open(&store).unwrap();
    updater.put(changed, b"new").unwrap();
    expected.insert(changed, b"new".to_vec());
    let (published, report) = updater.finish().unwrap();
    assert_eq!((report.written_shards, report.linked_shards + report.copied_shards), (1, 7));
    assert_eq!(pairs_in(&store), expected);
    let updated = store.join(published.generation.to_string());
    let mut loader = options().create(scratch.path().join("full")).unwrap();
    loader.extend(expected.clone()).unwrap();
    loader.finish().unwrap();
    let full = scratch.path().join("full/current");
    for name in ["info", "manifest.json"] {
        assert_eq!(fs::read(updated.join(name)).unwrap(), fs::read(full.join(name)).unwrap(), "{name}");
    }
    assert!(directory_bytes(&updated.join("s0")) == directory_bytes(&full.join("s0")));
    let report = ShardDb::open(&store).unwrap().snapshot().verify(VerifyLevel::Data).unwrap();
    assert!(report.findings().is_empty(), "{:?}", report.findings());
    let writer = Store::open(&store).unwrap().writer().unwrap();
    assert_eq!(writer.gc(0).unwrap().removed, [id(1)]);
    assert!(!generation.exists());
    assert_eq!(pairs_in(&store), expected, "linked shards outlive the base");
    drop(writer);

    // one chunk of a foreign volume
    let foreign = ShardDb::open(data("neuroglancer/image")).unwrap().snapshot();
    let new = scratch.path().join("new");
    let mut updater = UpdateOptions::new().create(&new, &foreign).unwrap();
    updater.put(changed, b"new").unwrap();
    updater.finish().unwrap();
    assert_eq!(pairs_in(&new), expected);
    let mut info = json(&new.join("current/info"));
    info["scales"][0].as_object_mut().unwrap().remove("sharddb").unwrap();
    assert_eq!(info, json(&data("neuroglancer/image/info")));
}
