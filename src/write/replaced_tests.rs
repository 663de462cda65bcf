//! What a publication says of the generation that it replaces: whether anything changed, how many keys there were, and that
//! none are left.

use std::fs;
use std::path::Path;

use crate::common::TempDir;
use crate::error::ErrorKind;
use crate::format::hash::HashFunction;
use crate::format::manifest;
use crate::format::spec::ShardingSpec;
use crate::write::UpdateOptions;
use crate::{BuildOptions, OpenOptions, Published, ShardDb, Store, Updater};

/// Two values of equal length and CRC-32, after any key.
const COLLISION: [&str; 2] = ["plumless", "buckeroo"];

/// Builds eight shards with the keys 0 to 99.
fn build(store: &Path) -> Published {
    let spec = ShardingSpec::new(HashFunction::Identity, 0, 1, 3).unwrap();
    let mut loader = BuildOptions::new().spec(spec).durable(false).create(store).unwrap();
    loader
        .extend((0..100).map(|key| (key, if key == 42 { COLLISION[0].to_string() } else { format!("value {key}") })))
        .unwrap();
    loader.finish().unwrap()
}

fn updater(store: &Path) -> Updater {
    UpdateOptions::new().durable(false).open(store).unwrap()
}

/// The names in a store.
fn names(store: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(store).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_update_without_effect_publishes_nothing() {
    let directory = TempDir::new();
    let store = directory.path().join("store");
    let first = build(&store);
    assert!(first.is_new && first.keys_before.is_none());
    let before = names(&store);
    type Change = fn(&mut Updater) -> crate::Result<()>;
    let changes: [(&str, Change); 5] = [
        ("none", |_| Ok(())),
        ("an equal value", |updater| updater.put(42, COLLISION[0])),
        ("equal values", |updater| (0..42).try_for_each(|key| updater.put(key, format!("value {key}")))),
        ("absent keys", |updater| (100..120).try_for_each(|key| updater.delete(key))),
        ("there and back", |updater| updater.delete(7).and_then(|()| updater.put(7, "value 7"))),
    ];
    for (what, change) in changes {
        let mut updater = updater(&store);
        change(&mut updater).unwrap();
        let (published, _) = updater.finish().unwrap();
        assert!(!published.is_new, "{what}");
        assert_eq!(
            (published.generation, published.content.keys, published.keys_before),
            (first.generation, 100, Some(100)),
            "{what}"
        );
        assert_eq!(names(&store), before, "{what}");
    }
}

#[test]
fn equal_checksums_are_not_equal_values() {
    let directory = TempDir::new();
    let store = directory.path().join("store");
    build(&store);
    let [old, new] = COLLISION;
    assert_eq!(crc32fast::hash(old.as_bytes()), crc32fast::hash(new.as_bytes()));
    let mut updater = updater(&store);
    updater.put(42, new).unwrap();
    let (published, report) = updater.finish().unwrap();
    assert!(published.is_new);
    assert_eq!((published.generation.get(), report.replaced, published.keys_before), (2, 1, Some(100)));
    assert_eq!(ShardDb::open(&store).unwrap().get(42).unwrap().unwrap(), new.as_bytes());
}

/// The pair is what the store had before the damage, so the new generation is what its manifest states.
#[test]
fn a_pair_mends_the_damaged_one_that_it_replaces() {
    let directory = TempDir::new();
    let store = directory.path().join("store");
    build(&store);
    let shard = ShardDb::open(&store).unwrap().snapshot().locate(42).unwrap().unwrap().path;
    let mut bytes = fs::read(&shard).unwrap();
    let at = bytes.windows(8).position(|window| window == COLLISION[0].as_bytes()).unwrap();
    bytes[at] ^= 1;
    fs::remove_file(&shard).unwrap(); // it is read-only
    fs::write(&shard, bytes).unwrap();
    assert_eq!(ShardDb::open(&store).unwrap().get(42).unwrap_err().kind(), ErrorKind::Corrupt);
    let mut updater = updater(&store);
    updater.put(42, COLLISION[0]).unwrap();
    assert!(updater.finish().unwrap().0.is_new);
    assert_eq!(ShardDb::open(&store).unwrap().get(42).unwrap().unwrap(), COLLISION[0].as_bytes());
}

/// The result of an update of another database is not what the store has.
#[test]
fn an_update_of_another_base_is_published() {
    let directory = TempDir::new();
    let [base, store] = ["base", "store"].map(|name| directory.path().join(name));
    build(&base);
    build(&store);
    let base = OpenOptions::new().open(&base).unwrap().snapshot();
    let updater = UpdateOptions::new().durable(false).create(&store, &base).unwrap();
    let (published, _) = updater.finish().unwrap();
    assert!(published.is_new && published.generation.get() == 2);
}

#[test]
fn an_empty_generation_replaces_no_keys_unless_allowed() {
    let directory = TempDir::new();
    let store = directory.path().join("store");
    let options = || BuildOptions::new().durable(false).clone();
    let empty = options().create(&store).unwrap().finish().unwrap();
    assert_eq!((empty.content.keys, empty.keys_before), (0, None), "there was nothing to lose");
    assert_eq!(options().create(&store).unwrap().finish().unwrap().keys_before, Some(0));
    build(&store);
    let before = names(&store);

    let error = options().create(&store).unwrap().finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Empty);
    assert!(error.to_string().contains("gen-0000000003 has 100 keys: nothing was published"), "{error}");
    assert_eq!(options().merge(&store, &[]).unwrap().publish().unwrap_err().kind(), ErrorKind::Empty);
    let mut emptied = updater(&store);
    (0..100).try_for_each(|key| emptied.delete(key)).unwrap();
    assert_eq!(emptied.finish().unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(names(&store), before);

    let mut emptied = UpdateOptions::new().durable(false).allow_empty(true).open(&store).unwrap();
    (0..100).try_for_each(|key| emptied.delete(key)).unwrap();
    let (published, _) = emptied.finish().unwrap();
    assert_eq!((published.content.keys, published.keys_before), (0, Some(100)));
    build(&store);
    let emptied = options().allow_empty(true).create(&store).unwrap().finish().unwrap();
    assert_eq!((emptied.content.keys, emptied.keys_before), (0, Some(100)));
}

/// What cannot be read may have keys.
#[test]
fn an_empty_generation_does_not_replace_a_damaged_one() {
    let directory = TempDir::new();
    let store = directory.path().join("store");
    let id = build(&store).generation;
    let path = Store::open(&store).unwrap().generation_path(id).join(manifest::FILE_NAME);
    fs::remove_file(&path).unwrap(); // it is read-only
    fs::write(&path, b"{}").unwrap();
    let error = BuildOptions::new().durable(false).create(&store).unwrap().finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Empty, "{error}");
    assert!(error.to_string().contains("cannot be read and may have some"), "{error}");
    let mut loader = BuildOptions::new().durable(false).create(&store).unwrap();
    loader.insert(1, "one").unwrap();
    assert_eq!(loader.finish().unwrap().keys_before, None);
}
