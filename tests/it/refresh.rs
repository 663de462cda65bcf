//! An open database follows `current` completely or not at all: it serves one intact generation before, while and after
//! others are published, rolled back, broken, deleted or collected.

use std::fs;
use std::path::Path;

use crate::common::children::{child, child_directory, in_own_process, run};
use crate::common::generations::{self as generation, directory_of, id, label_of, publish, roll_to, store_of};
use crate::common::{Storage, TempDir};
use sharddb::read::LeaseState;
use sharddb::{BuildOptions, Error, ErrorKind, OpenOptions, ShardDb, Snapshot, Store};

fn open_all(path: &Path) -> Vec<ShardDb> {
    Storage::ALL.iter().map(|storage| storage.open(&OpenOptions::new(), path).unwrap()).collect()
}

fn mapped(path: &Path) -> ShardDb {
    Storage::Mapped.open(&OpenOptions::new(), path).unwrap()
}

/// Asserts that a database serves the generation of this label, with all its pairs.
#[track_caller]
fn serves(db: &ShardDb, label: u64) {
    assert_eq!(db.snapshot().generation(), Some(id(label)));
    generation::check(&db.snapshot(), label);
    let mut reader = db.reader();
    for key in 0..generation::END + 10 {
        let expected = generation::has(label, key).then_some(label);
        assert_eq!(db.get(key).unwrap().map(|value| label_of(key, &value)), expected);
        assert_eq!(reader.get(key).unwrap().map(|value| label_of(key, &value)), expected);
        assert_eq!(db.contains(key).unwrap(), expected.is_some());
        assert_eq!(reader.contains(key).unwrap(), expected.is_some());
    }
}

#[test]
fn forwards_through_every_specification() {
    let store = TempDir::new();
    publish(store.path(), 1);
    let databases = open_all(store.path());
    for label in 2..=1 + generation::SPECS {
        let published = publish(store.path(), label);
        for db in &databases {
            serves(db, label - 1);
            assert_eq!(db.refresh().unwrap(), Some(published.generation));
            serves(db, label);
            assert_eq!(db.refresh().unwrap(), None, "it is there already");
        }
    }
}

#[test]
fn over_several_at_once_and_backwards() {
    let store = TempDir::new();
    let writable = store_of(store.path(), 1);
    let databases = open_all(store.path());
    for label in 2..=4 {
        publish(store.path(), label);
    }
    for to in [4, 2, 3, 1, 4] {
        roll_to(&writable, to);
        for db in &databases {
            assert_eq!(db.refresh().unwrap(), Some(id(to)));
            serves(db, to);
        }
    }
}

/// Two changes of `current` between two refreshes that cancel out are no change.
#[test]
fn to_where_it_was() {
    let store = TempDir::new();
    let writable = store_of(store.path(), 2);
    let db = mapped(store.path());
    roll_to(&writable, 1);
    roll_to(&writable, 2);
    assert_eq!(db.refresh().unwrap(), None);
    assert_eq!(db.open_generations(), 1);
}

#[test]
fn a_clone_sees_what_the_other_refreshed() {
    let store = TempDir::new();
    publish(store.path(), 1);
    let db = mapped(store.path());
    let clone = db.clone();
    publish(store.path(), 2);
    assert_eq!(db.refresh().unwrap(), Some(id(2)));
    assert_eq!(clone.refresh().unwrap(), None);
    serves(&clone, 2);
}

#[test]
fn a_reader_follows_and_a_snapshot_stays() {
    let store = TempDir::new();
    publish(store.path(), 1);
    let db = mapped(store.path());
    let (mut reader, snapshot) = (db.reader(), db.snapshot());
    assert_eq!(label_of(0, &reader.get(0).unwrap().unwrap()), 1);
    publish(store.path(), 2);
    assert_eq!(label_of(0, &reader.get(0).unwrap().unwrap()), 1, "not before a refresh");
    db.refresh().unwrap();
    assert_eq!(db.open_generations(), 2);
    assert_eq!(label_of(0, &reader.get(0).unwrap().unwrap()), 2);
    assert_eq!(reader.snapshot().generation(), Some(id(2)));
    generation::check(&snapshot, 1);
    drop(db);
    generation::check(&snapshot, 1);
    assert_eq!(label_of(0, &reader.get(0).unwrap().unwrap()), 2, "a reader outlives the database");
}

/// An idle reader holds its last generation until it reads again.
#[test]
fn an_old_generation_is_closed_when_its_last_reader_has_gone_on() {
    let store = TempDir::new();
    publish(store.path(), 1);
    let db = mapped(store.path());
    let (mut reader, snapshot) = (db.reader(), db.snapshot());
    reader.get(0).unwrap();
    publish(store.path(), 2);
    db.refresh().unwrap();
    drop(snapshot);
    db.refresh().unwrap();
    assert_eq!(db.open_generations(), 2);
    reader.get(0).unwrap();
    assert_eq!(db.open_generations(), 2, "a reader closes nothing");
    db.refresh().unwrap();
    assert_eq!(db.open_generations(), 1);
}

/// What a foreign tool may do to a generation. Each function gets the directory of an intact one.
type Breakage = (&'static str, ErrorKind, fn(&Path));

const BREAKAGES: [Breakage; 12] = [
    ("truncated shard", ErrorKind::Corrupt, |path| resize_a_shard(path, |len| len - 1)),
    ("empty shard", ErrorKind::Corrupt, |path| resize_a_shard(path, |_| 0)),
    ("longer shard", ErrorKind::Corrupt, |path| resize_a_shard(path, |len| len + 1)),
    ("missing shard", ErrorKind::Corrupt, |path| fs::remove_file(generation::a_shard_of(path)).unwrap()),
    ("directory for a shard", ErrorKind::Io, |path| {
        let shard = generation::a_shard_of(path);
        fs::remove_file(&shard).unwrap();
        fs::create_dir(shard).unwrap();
    }),
    ("missing manifest", ErrorKind::Corrupt, |path| fs::remove_file(path.join("manifest.json")).unwrap()),
    ("edited manifest", ErrorKind::Corrupt, |path| edit(&path.join("manifest.json"), "\"keys\": ", "\"keys\": 1")),
    ("manifest of another", ErrorKind::Corrupt, |path| {
        let other = path.with_file_name(id(1).to_string()).join("manifest.json");
        fs::write(path.join("manifest.json"), fs::read(other).unwrap()).unwrap();
    }),
    ("edited info", ErrorKind::Corrupt, |path| edit(&path.join("info"), "\"label\": ", "\"label\":  ")),
    ("missing info", ErrorKind::Corrupt, |path| fs::remove_file(path.join("info")).unwrap()),
    ("info that is no JSON", ErrorKind::InvalidSpec, |path| fs::write(path.join("info"), "{").unwrap()),
    ("empty directory", ErrorKind::Corrupt, |path| {
        fs::remove_dir_all(path).unwrap();
        fs::create_dir(path).unwrap();
    }),
];

fn resize_a_shard(generation: &Path, len: fn(u64) -> u64) {
    let file = fs::File::options().write(true).open(generation::a_shard_of(generation)).unwrap();
    file.set_len(len(file.metadata().unwrap().len())).unwrap();
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from));
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[cfg(unix)]
#[test]
fn a_broken_generation_is_refused_and_the_next_one_followed() {
    let store = TempDir::new();
    store_of(store.path(), 2);
    let databases = open_all(store.path());
    let mut number = 2;
    for (what, kind, damage) in BREAKAGES {
        let (good, broken) = (number, number + 1);
        let directory = generation::copy_by_hand(store.path(), good, broken);
        damage(&directory);
        generation::point_current_to(store.path(), &id(broken).to_string());
        for db in &databases {
            for attempt in ["first", "second"] {
                let error = db.refresh().unwrap_err();
                assert_eq!(error.kind(), kind, "{what}, {attempt}: {error}");
                assert!(error.path().is_some_and(|path| path.starts_with(&directory)), "{what}: {error}");
                assert_eq!(db.open_generations(), 1, "{what}: nothing of it stays open");
            }
            serves(db, good);
        }
        number = broken + 1;
        assert_eq!(publish(store.path(), number).generation, id(number), "numbers go on after what was put there");
        for db in &databases {
            assert_eq!(db.refresh().unwrap(), Some(id(number)), "{what}");
            serves(db, number);
        }
    }
}

#[cfg(unix)]
#[test]
fn a_current_that_leads_nowhere_is_refused() {
    let store = TempDir::new();
    store_of(store.path(), 1);
    let databases = open_all(store.path());
    let outside = TempDir::new();
    fs::write(outside.path().join("info"), "{}").unwrap();
    let cases = [
        ("gen-0000000007", ErrorKind::GenerationGone, directory_of(store.path(), 7)),
        ("gen-7", ErrorKind::Corrupt, store.path().join("current")),
        ("elsewhere", ErrorKind::Corrupt, store.path().join("current")),
        (outside.path().to_str().unwrap(), ErrorKind::Corrupt, store.path().join("current")),
    ];
    for (target, kind, path) in cases {
        generation::point_current_to(store.path(), target);
        for db in &databases {
            let error = db.refresh().unwrap_err();
            assert_eq!((error.kind(), error.path()), (kind, Some(&*path)), "{target}: {error}");
            serves(db, 1);
        }
    }
    fs::remove_file(store.path().join("current")).unwrap();
    for db in &databases {
        let error = db.refresh().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("current"), "{error}");
        serves(db, 1);
    }
    roll_to(&Store::open(store.path()).unwrap(), 1);
    databases.iter().for_each(|db| assert_eq!(db.refresh().unwrap(), None));
}

fn like(snapshot: &Snapshot) -> Result<(), Error> {
    BuildOptions::new().like(snapshot).map(drop)
}

/// The specification decides which keys share a shard; this one has 32 shards. In its own process, because all threads share
/// the descriptors that positioned reads keep.
#[test]
fn a_deleted_generation_is_gone_where_it_was_not_touched() {
    in_own_process("refresh::a_deleted_generation_is_gone_where_it_was_not_touched", || {
        let label = 5;
        for storage in Storage::ALL {
            let store = TempDir::new();
            let number = publish(store.path(), label).generation.get();
            let db = storage.open(&OpenOptions::new(), store.path()).unwrap();
            assert!(db.snapshot().info().unwrap().unwrap().contains("sharding"));
            let touched = |key: u64| generation::spec(label).route(key).shard == generation::spec(label).route(0).shard;
            assert_eq!(label_of(0, &db.get(0).unwrap().unwrap()), label);
            fs::remove_dir_all(directory_of(store.path(), number)).unwrap();
            // a copy of what is mapped or loaded would else be without the info
            for error in [db.snapshot().info().unwrap_err(), like(&db.snapshot()).unwrap_err()] {
                assert_eq!(error.kind(), ErrorKind::GenerationGone, "{storage:?}: {error}");
            }
            let mut gone = 0;
            for key in generation::keys(label) {
                match db.get(key) {
                    Ok(found) => assert_eq!(label_of(key, &found.expect("never absent")), label),
                    Err(error) => {
                        assert!(!touched(key) && storage != Storage::Loaded, "{storage:?}: {error}");
                        assert_eq!((error.kind(), error.key()), (ErrorKind::GenerationGone, Some(key)));
                        gone += 1;
                    }
                }
            }
            assert_eq!(gone > 0, storage != Storage::Loaded, "{storage:?}");
            assert_eq!(db.refresh().unwrap(), None, "current still names it");
            let next = publish(store.path(), label + 1).generation;
            assert!(next.get() > number);
            assert_eq!(db.refresh().unwrap(), Some(next));
            generation::check(&db.snapshot(), label + 1);
        }
    });
}

#[test]
fn a_bare_directory_never_changes() {
    let (store, bare) = (TempDir::new(), TempDir::new());
    store_of(store.path(), 2);
    for name in generation::names(&directory_of(store.path(), 1)) {
        if name != "lease" {
            let bytes = fs::read(directory_of(store.path(), 1).join(&name)).unwrap();
            fs::write(bare.path().join(name), bytes).unwrap();
        }
    }
    for db in open_all(bare.path()) {
        assert_eq!(db.refresh().unwrap(), None);
        assert_eq!((db.snapshot().generation(), db.snapshot().stats().lease), (None, LeaseState::None));
        generation::check(&db.snapshot(), 1);
    }
}

#[test]
fn a_generation_opened_by_its_directory_is_held_and_stays() {
    let store = TempDir::new();
    let writable = store_of(store.path(), 2);
    let databases = open_all(&directory_of(store.path(), 1));
    let writer = writable.writer().unwrap();
    for db in &databases {
        assert_eq!(db.refresh().unwrap(), None);
        assert_eq!((db.snapshot().generation(), db.snapshot().stats().lease), (Some(id(1)), LeaseState::Held));
        generation::check(&db.snapshot(), 1);
        assert_eq!(writer.gc(1).unwrap().in_use, [id(1)]);
    }
    drop(databases);
    assert_eq!(generation::collect(&writer), [1]);
}

/// Shards are opened on first use: by then the link points to other files of the same lengths.
#[cfg(unix)]
#[test]
fn opened_through_a_link_it_stays_with_what_the_link_named() {
    let store = TempDir::new();
    let (first, second) = (5, 5 + generation::SPECS);
    publish(store.path(), first);
    let link = store.path().join("link");
    for path in ["current", "link"].map(|name| store.path().join(name)) {
        roll_to(&Store::open(store.path()).unwrap(), 1);
        _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(id(1).to_string(), &link).unwrap();
        let databases = open_all(&path);
        publish(store.path(), second);
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("current", &link).unwrap();
        databases.iter().for_each(|db| generation::check(&db.snapshot(), first));
    }
}

/// In its own process, because all threads share the working directory.
#[test]
fn a_change_of_the_working_directory_changes_nothing() {
    let store = TempDir::new();
    publish(store.path(), 5);
    let mut child = child("refresh::child_changes_its_directory", store.path());
    child.current_dir(store.path());
    run(child).assert_passed();
    assert_eq!(Store::open(store.path()).unwrap().current().unwrap(), Some(id(2)), "it did run");
}

#[test]
#[ignore = "the process of a_change_of_the_working_directory_changes_nothing"]
fn child_changes_its_directory() {
    let Some(store) = child_directory() else { return };
    let databases = open_all(Path::new("."));
    std::env::set_current_dir(std::env::temp_dir()).unwrap();
    databases.iter().for_each(|db| generation::check(&db.snapshot(), 5));
    publish(&store, 6);
    for db in &databases {
        assert_eq!(db.refresh().unwrap(), Some(id(2)));
        generation::check(&db.snapshot(), 6);
        assert_eq!(db.path(), Path::new("."));
    }
}

/// Values hold their bytes, not their generation, so the generation can be collected.
#[test]
fn kept_values_outlive_their_generation() {
    for storage in Storage::ALL {
        for label in 1..=generation::SPECS {
            let store = TempDir::new();
            publish(store.path(), label);
            let db = storage.open(&OpenOptions::new(), store.path()).unwrap();
            let keys = generation::keys(label);
            let values: Vec<_> = keys.map(|key| (key, db.get(key).unwrap().unwrap())).collect();
            publish(store.path(), 10);
            db.refresh().unwrap();
            assert_eq!(db.open_generations(), 1);
            let writer = Store::open(store.path()).unwrap().writer().unwrap();
            assert_eq!(generation::collect(&writer), [1]);
            assert!(values.iter().all(|(key, value)| label_of(*key, value) == label));
            drop(db);
            assert!(values.iter().all(|(key, value)| label_of(*key, value) == label));
        }
    }
}

/// Unmapping takes long, so a map whose last holder is a reader is unmapped by the next refresh.
#[cfg(target_os = "linux")]
#[test]
fn a_reader_unmaps_nothing() {
    let store = TempDir::new();
    publish(store.path(), 5);
    let db = mapped(store.path());
    let (snapshot, value) = (db.snapshot(), db.get(0).unwrap().unwrap());
    generation::check_keys(&snapshot, 5);
    let of_generation = |number| generation::maps_below(&directory_of(store.path(), number)).len();
    let shards = snapshot.stats().shards;
    assert_eq!((of_generation(1), of_generation(2)), (shards, 0));
    publish(store.path(), 3);
    db.refresh().unwrap();
    assert_eq!((of_generation(1), of_generation(2)), (shards, 1), "opened and touched ahead of the first reader");
    drop(snapshot);
    assert_eq!(of_generation(1), shards);
    db.refresh().unwrap();
    assert_eq!(of_generation(1), 1, "the one shard with the value");
    assert_eq!(label_of(0, &value), 5);
    drop(value);
    assert_eq!(of_generation(1), 1);
    db.refresh().unwrap();
    assert_eq!(of_generation(1), 0);
    drop(db);
    assert_eq!(of_generation(2), 0);
}

#[test]
fn gc_skips_what_is_read_and_collects_it_after() {
    for storage in Storage::ALL {
        let store = TempDir::new();
        publish(store.path(), 1);
        let db = storage.open(&OpenOptions::new(), store.path()).unwrap();
        let snapshot = db.snapshot();
        assert_eq!(snapshot.stats().lease, LeaseState::Held);
        publish(store.path(), 2);
        let writer = Store::open(store.path()).unwrap().writer().unwrap();
        let in_use = |writer: &sharddb::StoreWriter| writer.gc(1).unwrap().in_use;
        assert_eq!(in_use(&writer), [id(1)], "served");
        db.refresh().unwrap();
        assert_eq!(in_use(&writer), [id(1)], "read");
        generation::check(&snapshot, 1);
        drop(snapshot);
        assert_eq!(in_use(&writer), [id(1)], "not closed yet");
        db.refresh().unwrap();
        assert_eq!(generation::collect(&writer), [1], "{storage:?}");
        serves(&db, 2);
    }
}

/// A snapshot that outlives its database holds the lease until it is dropped.
#[test]
fn the_lease_ends_with_the_last_reader() {
    let store = TempDir::new();
    publish(store.path(), 1);
    let snapshot = mapped(store.path()).snapshot();
    let shards = snapshot.shards();
    publish(store.path(), 2);
    let writer = Store::open(store.path()).unwrap().writer().unwrap();
    drop(snapshot);
    assert_eq!(writer.gc(1).unwrap().in_use, [id(1)]);
    for shard in shards {
        for entry in shard.unwrap().iter() {
            let entry = entry.unwrap();
            assert_eq!(label_of(entry.key(), &entry.value().unwrap()), 1);
        }
    }
    assert_eq!(generation::collect(&writer), [1]);
}

#[test]
fn a_second_writer_is_told_who_is_first() {
    let store = TempDir::new();
    let writable = store_of(store.path(), 1);
    let loader = generation::options(2).create(store.path()).unwrap();
    let errors = [generation::options(2).create(store.path()).err().unwrap(), writable.writer().err().unwrap()];
    for error in errors {
        assert_eq!((error.kind(), error.path()), (ErrorKind::Locked, Some(&*store.path().join("lock"))));
        assert!(error.message().contains("another"), "{error}");
    }
    serves(&mapped(store.path()), 1);
    drop(loader);
    writable.writer().unwrap();
}

#[test]
fn current_may_be_a_text_file() {
    let store = TempDir::new();
    store_of(store.path(), 3);
    let write_current = |text: &str| {
        _ = fs::remove_file(store.path().join("current"));
        fs::write(store.path().join("current"), text).unwrap();
    };
    write_current("gen-0000000001\n");
    for db in open_all(store.path()) {
        write_current("gen-0000000001\n");
        db.refresh().unwrap();
        serves(&db, 1);
        write_current("gen-0000000003\r\n");
        assert_eq!(db.refresh().unwrap(), Some(id(3)));
        serves(&db, 3);
        for (text, kind) in [("gen-000", ErrorKind::Corrupt), ("", ErrorKind::Corrupt)] {
            write_current(text);
            assert_eq!(db.refresh().unwrap_err().kind(), kind, "{text:?}");
            serves(&db, 3);
        }
        write_current("gen-0000000002");
        let published = publish(store.path(), 4);
        assert_eq!(db.refresh().unwrap(), Some(published.generation), "a publish replaces it");
        generation::check(&db.snapshot(), 4);
    }
}

/// Positioned reads decode every index, so they use the cache.
#[test]
fn the_cache_can_be_resized_while_open_and_tells_what_it_did() {
    let store = TempDir::new();
    publish(store.path(), 2);
    let db = OpenOptions::new().cache_bytes(1 << 20).open(store.path()).unwrap();
    let cache = || db.snapshot().stats().cache;
    assert_eq!((cache().hits, cache().misses, cache().bytes, cache().capacity), (0, 0, 0, 1 << 20));
    db.get(0).unwrap();
    assert_eq!((cache().hits, cache().misses), (0, 1));
    db.get(0).unwrap();
    assert_eq!((cache().hits, cache().misses), (1, 1));
    generation::check_keys(&db.snapshot(), 2);
    let full = cache();
    assert!(full.bytes > 0 && full.bytes <= 1 << 20);

    db.set_cache_bytes(full.bytes - 1);
    assert!(cache().bytes < full.bytes, "it shrinks at once");
    db.set_cache_bytes(0);
    assert_eq!((cache().bytes, cache().capacity), (0, 0));
    generation::check_keys(&db.snapshot(), 2);
    assert_eq!((cache().bytes, cache().hits), (0, full.hits), "nothing is kept");

    let old = db.snapshot();
    let before = cache();
    publish(store.path(), 3);
    db.refresh().unwrap();
    assert_eq!(cache(), before, "all generations have one cache");
    db.set_cache_bytes(1 << 20);
    for _ in 0..2 {
        generation::check_keys(&db.snapshot(), 3);
        generation::check_keys(&old, 2);
    }
    assert!(cache().bytes > 0 && cache().hits > before.hits);
    assert_eq!(old.stats().cache, cache());
}

/// Two databases on one store in one process have separate leases and generations.
#[test]
fn databases_are_apart() {
    let store = TempDir::new();
    publish(store.path(), 1);
    let (first, second) = (mapped(store.path()), mapped(store.path()));
    publish(store.path(), 2);
    first.refresh().unwrap();
    serves(&first, 2);
    serves(&second, 1);
    let writer = Store::open(store.path()).unwrap().writer().unwrap();
    assert_eq!(writer.gc(1).unwrap().in_use, [id(1)]);
    drop(second);
    assert_eq!(generation::collect(&writer), [1]);
}

/// Of several concurrent refreshes one swaps, the others find it done, and each returns with the new generation served.
#[test]
fn refreshes_at_once_swap_once() {
    let store = TempDir::new();
    publish(store.path(), 1);
    let db = mapped(store.path());
    for label in 2..=6 {
        publish(store.path(), label);
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| db.refresh().unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(results.iter().flatten().collect::<Vec<_>>(), [&id(label)]);
        assert_eq!(db.open_generations(), 1);
        serves(&db, label);
    }
}

/// The usual way to ship a store: copy it next to the old one, then change a link. The generation numbers are the same.
#[cfg(unix)]
#[test]
fn a_link_that_is_turned_to_another_store_is_followed() {
    let place = TempDir::new();
    let stores = [1, 1 + generation::SPECS, 2].map(|label| (label, place.path().join(label.to_string())));
    stores.iter().for_each(|(label, store)| assert_eq!(publish(store, *label).generation, id(1)));
    for lease in [true, false] {
        if !lease {
            stores.iter().for_each(|(_, store)| fs::remove_file(directory_of(store, 1).join("lease")).unwrap());
        }
        let link = place.path().join("link");
        let turn_to = |label: u64| {
            _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(label.to_string(), &link).unwrap();
        };
        turn_to(1);
        let databases = open_all(&link);
        for label in [1 + generation::SPECS, 2, 1] {
            turn_to(label);
            for db in &databases {
                assert_eq!(db.refresh().unwrap(), Some(id(1)), "lease: {lease}, label {label}");
                generation::check(&db.snapshot(), label);
                assert_eq!(db.refresh().unwrap(), None);
            }
        }
    }
}

/// A generation replaced under its name, for example by a copy from elsewhere, is a new generation.
#[test]
fn a_directory_that_is_replaced_is_followed() {
    let store = TempDir::new();
    publish(store.path(), 1);
    let db = Storage::Loaded.open(&OpenOptions::new(), store.path()).unwrap();
    let other = TempDir::new();
    publish(other.path(), 2);
    fs::rename(directory_of(store.path(), 1), store.path().join("gen-0000000009")).unwrap();
    assert_eq!(db.refresh().unwrap(), None, "nothing is in its place");
    assert_eq!(label_of(0, &db.get(0).unwrap().unwrap()), 1);
    fs::rename(directory_of(other.path(), 1), directory_of(store.path(), 1)).unwrap();
    assert_eq!(db.refresh().unwrap(), Some(id(1)));
    generation::check(&db.snapshot(), 2);
}
