//! A store has one complete current generation at any time, its numbers never repeat, and no leased generation is
//! removed.

use std::fs;

use super::testing::*;
use super::*;
use crate::common::TempDir;
use crate::common::children::{Running, child, child_directory, wait_for_parent};
use crate::common::generations::names;
#[cfg(unix)]
use crate::common::mkfifo;
use crate::error::ErrorKind;
use crate::format::manifest::Manifest;
use crate::threads::progress::Progress;

#[test]
fn publishes_whole_read_only_generations_under_rising_numbers() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 3);
    assert_eq!(store.current().unwrap(), Some(id(3)));
    assert_eq!(numbers(&store), [1, 2, 3]);
    for number in 1..=3 {
        assert_eq!(version_of(&directory.path().join(id(number).to_string())), number);
    }
    assert_eq!(version_of(&directory.path().join("current")), 3);
    assert_eq!(directory.names(), ["current", "gen-0000000001", "gen-0000000002", "gen-0000000003", "history", "lock"]);
}

#[test]
fn publishing_the_same_twice_gives_the_same_bytes() {
    let directory = TempDir::new();
    let store = Store::create(directory.path()).unwrap();
    let writer = store.writer().unwrap();
    let [first, second] = [(), ()].map(|()| Sample::new(7).publish(&writer).to_string());
    for name in names(&directory.path().join(&first)) {
        let read = |id: &str| fs::read(directory.path().join(id).join(&name)).unwrap();
        assert_eq!(read(&first), read(&second), "{name}");
    }
}

#[test]
fn spills_are_gone_when_published_and_all_is_when_dropped() {
    let (directory, temp_root) = (TempDir::new(), TempDir::new());
    let writer = store_of(directory.path(), 1).writer().unwrap();
    let sample = Sample::new(2);
    for temp_root in [None, Some(temp_root.path())] {
        let pending = writer.begin(temp_root).unwrap();
        sample.write_shards(pending.path());
        fs::write(pending.spill_dir().join("00000001.run"), "x").unwrap();
        let spill_dir = pending.spill_dir().to_path_buf();
        let id = publish(pending, &sample.info, &sample.manifest).unwrap();
        assert_eq!(version_of(&directory.path().join(id.to_string())), 2);
        assert!(!spill_dir.exists());
    }
    let before = directory.names();
    for temp_root in [None, Some(temp_root.path())] {
        let pending = writer.begin(temp_root).unwrap();
        fs::write(pending.spill_dir().join("00000001.run"), "x").unwrap();
        fs::write(pending.path().join("03.shard"), "x").unwrap();
        drop(pending);
    }
    assert_eq!(directory.names(), before);
    assert_eq!(temp_root.names(), [""; 0]);
}

/// A generation that does not match its manifest is not published, and leaves no files.
#[test]
fn refuses_to_publish_what_the_manifest_does_not_say() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 1);
    let writer = store.writer().unwrap();
    let before = directory.names();
    let sample = Sample::new(2);
    type Break = fn(&Path);
    let cases: [(&str, Break); 4] = [
        ("1c.shard", |path| fs::remove_file(path.join("1c.shard")).unwrap()),
        ("1c.shard", |path| fs::write(path.join("1c.shard"), "short").unwrap()),
        ("1d.shard", |path| fs::write(path.join("1d.shard"), "").unwrap()),
        ("notes", |path| fs::write(path.join("notes"), "").unwrap()),
    ];
    for (named, damage) in cases {
        let pending = sample.begin(&writer);
        damage(pending.path());
        let error = publish(pending, &sample.info, &sample.manifest).unwrap_err();
        assert!(error.path().unwrap().ends_with(named), "{error}");
    }
    let error = publish(sample.begin(&writer), b"{}", &sample.manifest).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!((directory.names(), store.current().unwrap()), (before, Some(id(1))));
}

#[test]
fn numbers_never_repeat() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 3);
    let lock = directory.path().join("lock");
    let next = |version| Sample::new(version).publish(&store.writer().unwrap()).get();

    store.writer().unwrap().rollback(Some(id(1))).unwrap();
    assert_eq!(store.writer().unwrap().gc(0).unwrap().removed, [id(2), id(3)]);
    assert_eq!(next(4), 4, "the lock remembers");

    fs::write(&lock, "\0".repeat(15)).unwrap();
    assert_eq!(next(5), 5, "the directories are enough");

    fs::create_dir(directory.path().join("gen-0000000008")).unwrap();
    assert_eq!(next(6), 9, "an incomplete generation has a number too");

    fs::remove_file(&lock).unwrap();
    fs::remove_dir_all(directory.path().join("gen-0000000009")).unwrap();
    assert_eq!(next(7), 10, "so does a dangling current");

    fs::write(&lock, "gen-0000000041\n").unwrap();
    assert_eq!(next(8), 42);
}

#[test]
fn a_second_writer_is_locked_out_at_once() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 1);
    let locked = || store.writer().map(drop).map_err(|error| error.kind());

    let writer = store.writer().unwrap();
    assert_eq!(locked(), Err(ErrorKind::Locked));
    let pending = writer.begin(None).unwrap();
    drop(writer);
    assert_eq!(locked(), Err(ErrorKind::Locked), "an unpublished generation holds the lock");
    assert!(pending.path().exists(), "who is locked out clears nothing");
    drop(pending);
    assert_eq!(locked(), Ok(()));

    let child = Running::start_and_wait(child("store::tests::child_holds_the_lock", directory.path()));
    let error = store.writer().unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Locked, Some(&*directory.path().join("lock"))));
    child.finish().assert_passed();
    assert_eq!(locked(), Ok(()));
}

#[test]
#[ignore = "the other process of a_second_writer_is_locked_out_at_once"]
fn child_holds_the_lock() {
    let Some(directory) = child_directory() else { return };
    let _writer = Store::open(directory).unwrap().writer().unwrap();
    wait_for_parent();
}

#[test]
fn the_next_writer_clears_what_a_dead_one_left() {
    let (directory, temp_root) = (TempDir::new(), TempDir::new());
    let store = store_of(directory.path(), 1);
    let before = directory.names();
    let writer = store.writer().unwrap();
    for temp_root in [None, Some(temp_root.path())] {
        let pending = writer.begin(temp_root).unwrap();
        fs::write(pending.spill_dir().join("00000001.run"), "x").unwrap();
        leave_as_if_killed(pending);
    }
    drop(writer);
    assert_eq!((directory.names().len(), temp_root.names().len()), (before.len() + 2, 1));
    let _writer = store.writer().unwrap();
    assert_eq!(directory.names(), before);
    assert_eq!(temp_root.names(), [""; 0]);
}

/// Releases the lock, as the end of a process does, without removing files.
fn leave_as_if_killed(pending: PendingGeneration) {
    let aside = pending.path().with_file_name("aside");
    let path = pending.path().to_path_buf();
    fs::rename(&path, &aside).unwrap();
    drop(pending);
    fs::rename(&aside, &path).unwrap();
}

#[test]
fn rolls_back_to_the_newest_complete_one_or_to_any() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 4);
    let writer = store.writer().unwrap();
    fs::remove_file(directory.path().join("gen-0000000003/manifest.json")).unwrap();
    assert_eq!(writer.rollback(None).unwrap(), id(2), "3 is not complete");
    assert_eq!(store.current().unwrap(), Some(id(2)));
    assert_eq!(writer.rollback(Some(id(4))).unwrap(), id(4), "forward too");
    assert_eq!(writer.rollback(Some(id(1))).unwrap(), id(1));
    assert_eq!([(); 2].map(|()| writer.rollback(None).unwrap()), [4, 2].map(id), "as they became current");

    let refused = |to, kind| {
        let error = writer.rollback(to).unwrap_err();
        assert_eq!((error.kind(), store.current().unwrap()), (kind, Some(id(2))));
        error.to_string()
    };
    assert!(refused(None, ErrorKind::InvalidInput).contains("before gen-0000000002"));
    assert!(refused(Some(id(3)), ErrorKind::InvalidInput).contains("gen-0000000003"));
    assert!(refused(Some(id(9)), ErrorKind::NotFound).contains("gen-0000000009"));
    assert_eq!(Sample::new(5).publish(&writer), id(5));
}

/// Damage that shows without reading the data: a manifest, `info`, the length of a shard, a shard that is gone.
#[test]
fn a_damaged_generation_is_not_rolled_back_to_nor_kept_in_place_of_an_intact_one() {
    type Spoil = fn(&Path);
    let spoils: [Spoil; 5] = [
        |generation| fs::write(generation.join("manifest.json"), "{}").unwrap(),
        |generation| fs::write(generation.join("info"), "{}").unwrap(),
        |generation| fs::remove_file(generation.join("info")).unwrap(),
        |generation| fs::write(generation.join("03.shard"), "short").unwrap(),
        |generation| fs::remove_file(generation.join("1c.shard")).unwrap(),
    ];
    for (case, spoil) in spoils.into_iter().enumerate() {
        let directory = TempDir::new();
        let store = store_of(directory.path(), 4);
        let writer = store.writer().unwrap();
        let spoil_number = |number: u64| {
            let generation = directory.path().join(id(number).to_string());
            for name in names(&generation) {
                // published files are read-only
                let bytes = fs::read(generation.join(&name)).unwrap();
                fs::remove_file(generation.join(&name)).unwrap();
                fs::write(generation.join(&name), bytes).unwrap();
            }
            spoil(&generation);
        };
        spoil_number(3);
        assert_eq!(store.removable(4).unwrap(), [], "case {case}: 1, 2 and 4 are intact, and 3 may be salvaged");
        assert_eq!(store.removable(3).unwrap(), [id(3)], "case {case}");
        assert_eq!(writer.gc(2).unwrap().removed, [1, 3].map(id), "case {case}: 2 and 4 are intact");
        assert_eq!(Sample::new(5).publish(&writer), id(5));

        spoil_number(5);
        let error = writer.gc(1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "case {case}: {error}");
        assert_eq!(numbers(&store), [2, 4, 5], "nothing is removed while the current one is damaged");
        assert_eq!(writer.rollback(None).unwrap(), id(4));
        assert!(writer.rollback(Some(id(5))).is_err(), "case {case}");
        assert_eq!(store.current().unwrap(), Some(id(4)));
    }
}

#[test]
fn of_damaged_generations_gc_keeps_the_newest_of_the_history() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 3);
    let writer = store.writer().unwrap();
    writer.rollback(Some(id(2))).unwrap();
    Sample::new(4).publish(&writer);
    for number in [2, 3] {
        fs::remove_file(store.generation_path(id(number)).join("1c.shard")).unwrap();
    }
    assert_eq!(store.removable(4).unwrap(), []);
    assert_eq!(store.removable(3).unwrap(), [id(3)], "the history is 1, 3, 2, 4");
    assert_eq!(store.removable(2).unwrap(), [2, 3].map(id));
}

#[test]
fn rollback_repairs_a_current_that_is_corrupt_or_missing() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 2);
    let writer = store.writer().unwrap();
    let current = directory.path().join("current");
    fs::remove_file(&current).unwrap();
    assert_eq!((store.current().unwrap(), store.current_or_newest().unwrap()), (None, Some(id(2))));
    assert_eq!(writer.rollback(None).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(writer.gc(1).unwrap_err().kind(), ErrorKind::Corrupt, "it is unknown which generation is in use");
    fs::write(&current, "gen-1").unwrap();
    for error in [writer.begin(None).unwrap_err(), writer.rollback(None).unwrap_err(), writer.gc(1).unwrap_err()] {
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&*current)));
    }
    fs::write(&current, "gen-0000000007").unwrap();
    assert_eq!(writer.gc(1).unwrap_err().kind(), ErrorKind::Corrupt, "nor is it known if current dangles");
    assert_eq!(writer.rollback(Some(id(2))).unwrap(), id(2));
    assert_eq!(version_of(&current), 2);
    assert_eq!(numbers(&store), [1, 2]);
}

#[test]
fn gc_keeps_the_newest_and_the_current() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 5);
    let writer = store.writer().unwrap();
    assert_eq!(writer.gc(5).unwrap(), GcReport::default());
    assert_eq!(writer.gc(4).unwrap().removed, [id(1)]);
    writer.rollback(Some(id(2))).unwrap();
    assert_eq!(writer.gc(2).unwrap().removed, [id(3), id(4)], "the newest entries are 5 and 2");
    assert_eq!(writer.gc(0).unwrap().removed, [id(5)]);
    assert_eq!(directory.names(), ["current", "gen-0000000002", "history", "lock"]);
    assert_eq!(version_of(&directory.path().join("current")), 2);
}

#[test]
fn gc_removes_incomplete_generations_that_are_past() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 2);
    let writer = store.writer().unwrap();
    fs::remove_file(directory.path().join("gen-0000000001/manifest.json")).unwrap();
    fs::create_dir(directory.path().join("gen-0000000007")).unwrap();
    assert_eq!(writer.gc(2).unwrap().removed, [id(1)]);
    assert_eq!(numbers(&store), [2, 7]);
}

#[test]
fn gc_of_an_empty_store_does_nothing() {
    let directory = TempDir::new();
    let writer = Store::create(directory.path()).unwrap().writer().unwrap();
    assert_eq!(writer.gc(0).unwrap(), GcReport::default());
}

#[test]
fn gc_skips_what_is_leased_here_or_elsewhere() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 1);
    let here = LeasedGeneration::acquire_current(store.path()).unwrap();
    assert!(matches!(here.lease, Lease::Held(_)));
    Sample::new(2).publish(&store.writer().unwrap());
    let elsewhere = Running::start_and_wait(child("store::tests::child_holds_a_lease", directory.path()));
    let writer = store.writer().unwrap();
    Sample::new(3).publish(&writer);

    let report = writer.gc(1).unwrap();
    assert_eq!((report.removed, report.in_use), (vec![], vec![id(1), id(2)]));
    assert_eq!(version_of(&here.path), 1);
    drop(here);
    assert_eq!(writer.gc(1).unwrap().removed, [id(1)]);
    elsewhere.finish().assert_passed();
    assert_eq!(writer.gc(1).unwrap().removed, [id(2)]);
    assert_eq!(numbers(&store), [3]);
}

#[test]
#[ignore = "the other process of gc_skips_what_is_leased_here_or_elsewhere"]
fn child_holds_a_lease() {
    let Some(directory) = child_directory() else { return };
    let _leased = LeasedGeneration::acquire_current(&directory).unwrap();
    wait_for_parent();
}

/// A generation without the file `lease` can be read, but not leased.
#[test]
fn a_lease_is_not_needed_to_read() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 1);
    fs::remove_file(directory.path().join("current/lease")).unwrap();
    let leased = LeasedGeneration::acquire_current(store.path()).unwrap();
    let Lease::Unavailable { why, .. } = &leased.lease else { panic!("leased without a file") };
    assert!(why.contains("lease"), "{why}");
    let writer = store.writer().unwrap();
    Sample::new(2).publish(&writer);
    assert_eq!(writer.gc(1).unwrap().removed, [id(1)]);
    assert!(!leased.lease.is_of(&leased.path).unwrap());
}

#[test]
fn only_a_generation_that_is_there_is_leased() {
    let directory = TempDir::new();
    let store = Store::create(directory.path()).unwrap();
    let kind = || LeasedGeneration::acquire_current(store.path()).map(|leased| leased.id).map_err(|error| error.kind());
    assert_eq!(kind(), Err(ErrorKind::NotFound), "nothing was published");
    Sample::new(1).publish(&store.writer().unwrap());
    assert_eq!(kind(), Ok(id(1)));
    fs::rename(directory.path().join("gen-0000000001"), directory.path().join("gen-0000000002")).unwrap();
    assert_eq!(kind(), Err(ErrorKind::GenerationGone), "current dangles");
}

/// A lease of a file that was removed or replaced after it was opened is not a lease of the generation.
#[test]
fn a_lease_is_of_the_file_that_is_there() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 1);
    let leased = LeasedGeneration::acquire_current(store.path()).unwrap();
    let file = leased.path.join("lease");
    assert!(leased.lease.is_of(&leased.path).unwrap());
    fs::remove_file(&file).unwrap();
    assert!(!leased.lease.is_of(&leased.path).unwrap());
    fs::write(&file, "").unwrap();
    assert!(!leased.lease.is_of(&leased.path).unwrap());
}

#[test]
fn opens_stores_only() {
    let directory = TempDir::new();
    let path = directory.path();
    assert_eq!(Store::open(path).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(Store::open(path.join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    Sample::new(1).write_all(path);
    assert_eq!(Store::open(path).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(Store::create(path).unwrap_err().kind(), ErrorKind::InvalidInput, "a bare generation");
    let made = Store::create(path.join("new/store")).unwrap();
    assert!(!Store::is_at(made.path()).unwrap(), "nothing is current");
    assert_eq!(made.path(), Store::open(path.join("new/store")).unwrap().path());
    store_of(made.path(), 1);
    assert!(Store::is_at(made.path()).unwrap());
    Store::create(made.path()).unwrap();
    assert_eq!(Store::open(made.path()).unwrap().current().unwrap(), Some(id(1)));
}

#[test]
fn lists_what_is_complete_and_current() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 2);
    fs::create_dir(directory.path().join("gen-0000000003")).unwrap();
    fs::create_dir(directory.path().join("gen-4")).unwrap();
    store.writer().unwrap().rollback(None).unwrap();
    let list = store.generations().unwrap();
    let list: Vec<_> = list.iter().map(|it| (it.id.get(), it.is_complete, it.is_current)).collect();
    assert_eq!(list, [(1, true, true), (2, true, false), (3, false, false)]);
}

#[test]
fn adopts_a_copy_or_the_directory_itself() {
    let (directory, elsewhere) = (TempDir::new(), TempDir::new());
    let store = store_of(directory.path(), 1);
    let writer = store.writer().unwrap();
    let built = elsewhere.path().join("built");
    fs::create_dir(&built).unwrap();
    Sample::new(2).write_all(&built);
    assert_eq!(writer.adopt(&built).unwrap(), id(2));
    assert_eq!(version_of(&directory.path().join("current")), 2);
    assert_eq!(elsewhere.names(), ["built"], "the source stays");
    assert!(!built.join("lease").exists(), "as it was");
    assert_eq!(writer.adopt_by_moving(&built).unwrap(), id(3));
    assert_eq!(version_of(&directory.path().join("current")), 2);
    assert_eq!(elsewhere.names(), [""; 0]);
}

/// A published generation of another store is adopted only by copying, since moving it would take it from its readers.
#[test]
fn moves_nothing_out_of_a_store() {
    let (directory, other) = (TempDir::new(), TempDir::new());
    let store = store_of(directory.path(), 1);
    store_of(other.path(), 5);
    let writer = store.writer().unwrap();
    for path in [other.path().join("current"), other.path().join("gen-0000000002"), directory.path().join("current")] {
        assert_eq!(writer.adopt_by_moving(&path).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(writer.adopt(other.path().join("current")).unwrap(), id(2));
    assert_eq!(version_of(&directory.path().join("current")), 5);
    assert_eq!(version_of(&other.path().join("current")), 5);
    let error = writer.adopt(other.path()).unwrap_err();
    assert!(error.to_string().contains("manifest.json"), "{error}");
}

#[cfg(target_os = "linux")] // /dev/shm is a second file system
#[test]
fn moves_to_another_file_system_by_copying() {
    let (directory, built) = (TempDir::new(), TempDir::new_in(Path::new("/dev/shm")));
    let writer = Store::create(directory.path()).unwrap().writer().unwrap();
    Sample::new(2).write_all(built.path());
    writer.adopt_by_moving(built.path()).unwrap();
    assert_eq!(version_of(&directory.path().join("current")), 2);
    assert_eq!(version_of(built.path()), 2, "the source stays");
    assert_eq!(
        directory.names(),
        ["current", "gen-0000000002", "history", "lock"],
        "the number of the first attempt is lost"
    );
}

/// The text of a manifest is kept byte by byte, since a later minor version may have added members.
#[test]
fn adopts_members_that_it_does_not_know() {
    let (directory, built) = (TempDir::new(), TempDir::new());
    let writer = Store::create(directory.path()).unwrap().writer().unwrap();
    let sample = Sample::new(1);
    sample.write_all(built.path());
    let text = sample.manifest.to_json();
    let (head, _) = text.rsplit_once("\"crc32\"").unwrap();
    let head = format!("{head}\"later\": [true],\n");
    let text = format!("{head}\"crc32\": {}\n}}\n", crc32fast::hash(head.as_bytes()));
    fs::write(built.path().join("manifest.json"), &text).unwrap();
    writer.adopt(built.path()).unwrap();
    assert_eq!(fs::read_to_string(directory.path().join("current/manifest.json")).unwrap(), text);
}

/// One case for each way in which a generation does not match its manifest: none is published, no files are left.
#[test]
fn adopts_nothing_that_is_damaged() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 1);
    let writer = store.writer().unwrap();
    let before = directory.names();
    type Break = fn(&Path);
    let cases: [(&str, ErrorKind, Break); 10] = [
        ("manifest.json", ErrorKind::InvalidInput, |path| fs::remove_file(path.join("manifest.json")).unwrap()),
        ("manifest.json", ErrorKind::Corrupt, |path| flip(&path.join("manifest.json"))),
        ("info", ErrorKind::Io, |path| fs::remove_file(path.join("info")).unwrap()),
        ("info", ErrorKind::Corrupt, |path| flip(&path.join("info"))),
        ("info", ErrorKind::Corrupt, |path| {
            let info = fs::read_to_string(path.join("info")).unwrap().replace("\"shard_bits\": 5", "\"shard_bits\": 6");
            let info_crc32 = crc32fast::hash(info.as_bytes());
            fs::write(path.join("info"), info).unwrap();
            let manifest = Manifest { info_crc32, ..Sample::new(2).manifest };
            fs::write(path.join("manifest.json"), manifest.to_json()).unwrap();
        }),
        ("info", ErrorKind::InvalidSpec, |path| {
            fs::write(path.join("info"), "{}").unwrap();
            let manifest = Manifest { info_crc32: crc32fast::hash(b"{}"), ..Sample::new(2).manifest };
            fs::write(path.join("manifest.json"), manifest.to_json()).unwrap();
        }),
        ("03.shard", ErrorKind::Corrupt, |path| fs::remove_file(path.join("03.shard")).unwrap()),
        ("3.shard", ErrorKind::Corrupt, |path| fs::write(path.join("3.shard"), "").unwrap()),
        ("1c.shard", ErrorKind::Corrupt, |path| flip(&path.join("1c.shard"))),
        ("1c.shard", ErrorKind::Corrupt, |path| {
            fs::File::options().write(true).open(path.join("1c.shard")).unwrap().set_len(3).unwrap();
        }),
    ];
    for (named, kind, damage) in cases {
        let built = TempDir::new();
        Sample::new(2).write_all(built.path());
        damage(built.path());
        for error in [writer.adopt(built.path()).unwrap_err(), writer.adopt_by_moving(built.path()).unwrap_err()] {
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(error.path(), Some(&*built.path().join(named)), "{error}");
        }
    }
    assert_eq!((directory.names(), store.current().unwrap()), (before, Some(id(1))));
}

#[test]
fn a_cancelled_adoption_leaves_nothing() {
    let (directory, built) = (TempDir::new(), TempDir::new());
    let store = store_of(directory.path(), 1);
    Sample::new(2).write_all(built.path());
    let before = (directory.names(), built.names());
    let progress = Progress::new();
    let writer = store.writer_with(WriterOptions::new().progress(&progress)).unwrap();
    progress.cancel();
    for error in [writer.adopt(built.path()).unwrap_err(), writer.adopt_by_moving(built.path()).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Cancelled);
    }
    assert_eq!((directory.names(), built.names()), before);
    drop(writer);
    assert_eq!(store.writer().unwrap().adopt(built.path()).unwrap(), id(2));
}

#[test]
fn a_cancelled_garbage_collection_removes_nothing() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 3);
    let before = directory.names();
    let progress = Progress::new();
    let writer = store.writer_with(WriterOptions::new().progress(&progress)).unwrap();
    progress.cancel();
    assert_eq!(writer.gc(1).unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(directory.names(), before);
    drop(writer);
    assert_eq!(store.writer().unwrap().gc(1).unwrap().removed, [id(1), id(2)]);
}

#[test]
fn an_adoption_counts_the_bytes_of_the_files_that_it_reads() {
    let (directory, built) = (TempDir::new(), TempDir::new());
    let store = store_of(directory.path(), 1);
    Sample::new(2).write_all(built.path());
    let files = built.names().into_iter().filter(|name| name.ends_with(".shard"));
    let expected: u64 = files.map(|name| built.path().join(name).metadata().unwrap().len()).sum();
    let progress = Progress::new();
    store.writer_with(WriterOptions::new().progress(&progress)).unwrap().adopt(built.path()).unwrap();
    assert_eq!((expected > 0, progress.done(), progress.total()), (true, expected, expected));
}

/// A copy replaces a link by a regular file; a moved link would leave its target outside of the store.
#[cfg(unix)]
#[test]
fn moves_no_links_and_copies_what_they_name() {
    for name in ["03.shard", "info", "manifest.json", "lease"] {
        let (directory, built, elsewhere) = (TempDir::new(), TempDir::new(), TempDir::new());
        let writer = Store::create(directory.path()).unwrap().writer().unwrap();
        Sample::new(1).write_all(built.path());
        let (link, target) = (built.path().join(name), elsewhere.path().join("target"));
        if name != "lease" {
            fs::rename(&link, &target).unwrap();
        }
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let error = writer.adopt_by_moving(built.path()).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidInput, Some(&*link)));
        assert_eq!(writer.adopt(built.path()).unwrap(), id(1));
        assert_eq!(version_of(&directory.path().join("current")), 1);
        assert!(!directory.path().join("current").join(name).is_symlink());
    }
}

/// A manifest or info beyond its maximum length is not read.
#[test]
fn adopts_no_manifest_or_info_of_a_gigabyte() {
    for (name, named) in [("manifest.json", "268435456"), ("info", "16777216")] {
        let (directory, built) = (TempDir::new(), TempDir::new());
        let writer = Store::create(directory.path()).unwrap().writer().unwrap();
        Sample::new(1).write_all(built.path());
        fs::File::options().write(true).open(built.path().join(name)).unwrap().set_len(1 << 30).unwrap();
        let error = writer.adopt(built.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert!(error.to_string().contains(named), "{error}");
    }
}

/// A directory or FIFO in place of a shard is an error at once: opening a FIFO would block until it has a writer.
#[cfg(unix)]
#[test]
fn adopts_no_directory_or_fifo_as_a_shard() {
    let directory = TempDir::new();
    let writer = Store::create(directory.path()).unwrap().writer().unwrap();
    for make in [mkfifo, |path: &Path| fs::create_dir(path).unwrap()] {
        let built = TempDir::new();
        Sample::new(1).write_all(built.path());
        fs::remove_file(built.path().join("03.shard")).unwrap();
        make(&built.path().join("03.shard"));
        assert_eq!(writer.adopt(built.path()).unwrap_err().kind(), ErrorKind::Io);
    }
}

/// A store that was created for a writer that published nothing is removed with it; existing directories stay.
#[test]
fn a_new_store_is_removed_if_nothing_is_published() {
    let directory = TempDir::new();
    let (new, there) = (directory.path().join("on/the/way"), directory.path().join("there"));
    fs::create_dir(&there).unwrap();
    let empty = |path: &Path| path.is_dir() && names(path).is_empty();
    for (path, kept) in [(&new, false), (&there, true)] {
        let store = Store::create(path).unwrap();
        assert_eq!(Store::open(path).unwrap().current().unwrap(), None);
        let again = Store::create(path).unwrap();
        drop(again.writer().unwrap());
        assert_eq!(names(path), ["lock"], "another made it");
        let writer = store.writer().unwrap();
        let pending = writer.begin(None).unwrap();
        drop(writer);
        assert!(path.join("lock").exists(), "an unpublished generation exists");
        drop(pending);
        assert_eq!((path.exists(), empty(path)), (kept, kept));
        drop(store.writer().unwrap()); // creates it again
        assert_eq!((path.exists(), empty(path)), (kept, kept));
        Sample::new(1).publish(&store.writer().unwrap());
        assert_eq!(version_of(&path.join("current")), 1);
        drop(store.writer().unwrap());
        assert_eq!(names(path), ["current", "gen-0000000001", "history", "lock"]);
    }
    assert!(directory.path().join("on/the").exists(), "others may have begun to use it");
}

/// A new store with a foreign file in it, or a file of a writer that has published since, stays.
#[test]
fn a_new_store_with_anything_in_it_stays() {
    for name in ["notes", "tmp-gen-1-a", "gen-0000000001"] {
        let directory = TempDir::new();
        let path = directory.path().join("new");
        let writer = Store::create(&path).unwrap().writer().unwrap();
        fs::create_dir(path.join(name)).unwrap();
        drop(writer);
        assert_eq!(names(&path), if name < "lock" { [name, "lock"] } else { ["lock", name] });
    }
}

/// Concurrent writers create and lock a store, publish nothing and remove it: each has the store to itself or gets an
/// error.
#[test]
fn new_stores_are_made_and_removed_at_once() {
    let directory = TempDir::new();
    let path = directory.path().join("new");
    let owners = std::sync::atomic::AtomicUsize::new(0);
    let locked = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    match Store::create(&path).and_then(|store| store.writer()) {
                        Ok(writer) => {
                            assert_eq!(owners.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0, "two writers");
                            assert!(path.join("lock").is_file());
                            owners.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                            locked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                            drop(writer);
                        }
                        // the directory was removed between two steps, or another writer holds the lock
                        Err(error) => assert!(matches!(error.kind(), ErrorKind::Locked | ErrorKind::Io), "{error}"),
                    }
                }
            });
        }
    });
    assert!(locked.into_inner() > 0);
    // if one writer created the store and another locked it, the lock file stays
    assert!(!path.exists() || names(&path).iter().all(|name| name == "lock"));
    assert_eq!(Sample::new(1).publish(&Store::create(&path).unwrap().writer().unwrap()), id(1));
}

#[test]
fn the_last_number_is_found_out_before_loading() {
    type Take = fn(&Path);
    let cases: [(&str, Take); 3] = [
        ("a directory of that name", |store| fs::create_dir(store.join("gen-9999999999")).unwrap()),
        ("the file `lock`", |store| fs::write(store.join("lock"), "gen-9999999999\n").unwrap()),
        ("`current`", |store| {
            fs::remove_file(store.join("current")).unwrap();
            fs::write(store.join("current"), "gen-9999999999").unwrap();
        }),
    ];
    for (named, take) in cases {
        let (directory, built) = (TempDir::new(), TempDir::new());
        let store = store_of(directory.path(), 1);
        Sample::new(2).write_all(built.path());
        take(directory.path());
        let writer = store.writer().unwrap();
        let errors = [writer.begin(None).map(drop), writer.adopt(built.path()).map(drop)];
        for error in errors.into_iter().chain([writer.adopt_by_moving(built.path()).map(drop)]) {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&format!("taken by {named}")), "{error}");
        }
        assert!(!built.path().join("lease").exists(), "nothing has changed");
    }
}

/// One case for each reason why a generation cannot be removed; the others are removed.
#[test]
fn gc_goes_on_after_a_generation_that_it_cannot_remove() {
    type Spoil = fn(&Path);
    let cases: [(&str, Spoil); 6] = [
        ("gen-0000000002/lease", |store| {
            fs::remove_file(store.join("gen-0000000002/lease")).unwrap();
            fs::create_dir(store.join("gen-0000000002/lease")).unwrap();
        }),
        ("gen-0000000002/notes", |store| fs::write(store.join("gen-0000000002/notes"), "mine").unwrap()),
        ("gen-0000000002/.hidden", |store| fs::create_dir(store.join("gen-0000000002/.hidden")).unwrap()),
        ("gen-0000000002", |store| {
            fs::remove_dir_all(store.join("gen-0000000002")).unwrap();
            fs::write(store.join("gen-0000000002"), "mine").unwrap();
        }),
        ("gen-0000000002", |store| {
            fs::remove_dir_all(store.join("gen-0000000002")).unwrap();
            mkfifo(&store.join("gen-0000000002"));
        }),
        ("tmp-gc-gen-0000000002", |store| fs::write(store.join("tmp-gc-gen-0000000002"), "mine").unwrap()),
    ];
    for (named, spoil) in cases {
        let directory = TempDir::new();
        let store = store_of(directory.path(), 4);
        spoil(directory.path());
        let left = directory.path().join(named);
        for _ in 0..2 {
            let report = store.writer().unwrap().gc(1).unwrap();
            let [failed] = &report.failed[..] else { panic!("{named}: {report:?}") };
            assert_eq!((failed.id, failed.error.path()), (id(2), Some(&*left)), "{}", failed.error);
            assert_eq!(report.in_use, []);
            assert!(left.exists());
        }
        assert_eq!(numbers(&store), [2, 4], "{named}");
    }
}

/// Two directories that share a hard-linked lease, as `cp -al` makes them, are both published by moving: each
/// generation gets a lease of its own.
#[cfg(unix)]
#[test]
fn a_moved_generation_has_a_lease_of_its_own() {
    use std::os::unix::fs::MetadataExt;
    let (directory, built) = (TempDir::new(), TempDir::new());
    let writer = Store::create(directory.path()).unwrap().writer().unwrap();
    let staged = ["a", "b"].map(|name| built.path().join(name));
    for path in &staged {
        fs::create_dir(path).unwrap();
        Sample::new(1).write_all(path);
    }
    fs::write(staged[0].join("lease"), "").unwrap();
    fs::hard_link(staged[0].join("lease"), staged[1].join("lease")).unwrap();
    let inode = staged[0].join("lease").metadata().unwrap().ino();
    let inodes = staged.map(|path| {
        let id = writer.adopt_by_moving(path).unwrap();
        directory.path().join(id.to_string()).join("lease").metadata().unwrap().ino()
    });
    assert!(inodes[0] != inodes[1] && inodes[0] != inode, "{inode} {inodes:?}");
}

/// A directory with a foreign entry is refused before anything in it changes, including modes.
#[test]
fn moves_nothing_that_no_generation_has() {
    for name in ["lease", "notes", "spill"] {
        let (directory, built) = (TempDir::new(), TempDir::new());
        let writer = store_of(directory.path(), 1).writer().unwrap();
        Sample::new(2).write_all(built.path());
        fs::create_dir(built.path().join(name)).unwrap();
        let before = built.names();
        let error = writer.adopt_by_moving(built.path()).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidInput, Some(&*built.path().join(name))));
        assert_eq!(built.names(), before);
        assert!(!built.path().join("info").metadata().unwrap().permissions().readonly());
        assert_eq!(writer.adopt(built.path()).unwrap(), id(2));
    }
}

/// `cp -rL` replaces the link `current` by a directory.
#[test]
fn rollback_replaces_a_copy_of_a_generation_and_nothing_else() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 2);
    let current = directory.path().join("current");
    let copy = |version| {
        fs::remove_file(&current).unwrap();
        fs::create_dir(&current).unwrap();
        Sample::new(version).write_all(&current);
        fs::write(current.join("lease"), "").unwrap();
    };
    copy(2);
    assert_eq!(Store::open(directory.path()).unwrap().writer().unwrap().rollback(Some(id(1))).unwrap(), id(1));
    assert_eq!(version_of(&current), 1);
    assert_eq!(directory.names(), ["current", "gen-0000000001", "gen-0000000002", "history", "lock"]);
    type Spoil = fn(&Path);
    let cases: [Spoil; 3] = [
        |current| fs::write(current.join("notes"), "mine").unwrap(),
        |current| fs::remove_file(current.join("manifest.json")).unwrap(),
        |current| Sample::new(3).write_all(current),
    ];
    for spoil in cases {
        copy(2);
        spoil(&current);
        let before = names(&current);
        let error = store.writer().unwrap().rollback(Some(id(1))).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidInput, Some(&*current)));
        assert_eq!(names(&current), before);
        fs::remove_dir_all(&current).unwrap();
        store.writer().unwrap().rollback(Some(id(1))).unwrap();
    }
}

/// A copy in the place of `current` may be the only intact one: it is renamed if any byte differs, also of equal lengths.
#[test]
fn rollback_keeps_a_copy_that_differs() {
    for (in_copy, name) in [(true, "03.shard"), (false, "03.shard"), (false, "info")] {
        let directory = TempDir::new();
        let store = store_of(directory.path(), 2);
        let current = directory.path().join("current");
        fs::write(directory.path().join("current.1"), "of the user").unwrap();
        fs::remove_file(&current).unwrap();
        fs::create_dir(&current).unwrap();
        Sample::new(2).write_all(&current);
        let changed = if in_copy { current.clone() } else { store.generation_path(id(2)) }.join(name);
        let mut bytes = fs::read(&changed).unwrap();
        bytes[2] ^= 1;
        fs::remove_file(&changed).unwrap();
        fs::write(&changed, bytes).unwrap();
        let before = ["03.shard", "info"].map(|name| fs::read(current.join(name)).unwrap());
        assert_eq!(store.writer().unwrap().rollback(Some(id(1))).unwrap(), id(1));
        let aside = directory.path().join("current.2");
        assert_eq!(["03.shard", "info"].map(|name| fs::read(aside.join(name)).unwrap()), before);
        assert_eq!(version_of(&current), 1);
        fs::remove_file(&current).unwrap();
        assert!(Store::open(directory.path()).is_ok(), "a store without `current` may have the name");
    }
}

/// A generation of links into the copy in the place of `current` does not have its bytes.
#[cfg(unix)]
#[test]
fn rollback_keeps_a_copy_that_a_generation_links_to() {
    for links_all in [false, true] {
        let directory = TempDir::new();
        let store = store_of(directory.path(), 2);
        let (current, generation) = (directory.path().join("current"), store.generation_path(id(2)));
        fs::remove_file(&current).unwrap();
        fs::create_dir(&current).unwrap();
        Sample::new(2).write_all(&current);
        let (link, target) = if links_all {
            (generation.clone(), "current")
        } else {
            (generation.join("03.shard"), "../current/03.shard")
        };
        if links_all {
            fs::remove_dir_all(&link).unwrap()
        } else {
            fs::remove_file(&link).unwrap()
        }
        std::os::unix::fs::symlink(target, link).unwrap();
        store.writer().unwrap().rollback(Some(id(1))).unwrap();
        for (name, bytes) in &Sample::new(2).shards {
            assert_eq!(fs::read(directory.path().join("current.1").join(name)).unwrap(), *bytes);
        }
    }
}

/// A directory that was moved in and has not become current stays, whatever the history says: without `current`, without a
/// history, after more publications than it has lines, and in a new store.
#[test]
fn a_directory_that_was_moved_in_stays() {
    type Change = fn(&Path);
    let changes: [Change; 5] = [
        |_| {},
        |store| fs::remove_file(store.join("current")).unwrap(),
        |store| fs::remove_file(store.join("history")).unwrap(),
        |store| {
            let lines: String = (1001..2000).chain([1]).map(|number| format!("{}\n", id(number))).collect();
            fs::write(store.join("history"), lines).unwrap();
        },
        |store| fs::write(store.join("history"), "gen-0000000001\ngen-0000000002\n").unwrap(),
    ];
    for change in changes {
        for generations in [0, 1] {
            let (directory, built) = (TempDir::new(), TempDir::new());
            let store = store_of(&directory.path().join("store"), generations);
            let moved = id(generations + 1);
            fs::create_dir_all(store.generation_path(moved)).unwrap();
            fs::write(store.path().join("lock"), format!("{moved}\n")).unwrap();
            Sample::new(12).write_all(&store.generation_path(moved));
            fs::write(store.path().join(format!("moved-{moved}")), format!("{moved} <- {}\n", built.path().display()))
                .unwrap();
            if generations == 0 {
                fs::write(store.path().join("history"), format!("{moved}\n")).unwrap();
            } else {
                change(store.path());
            }
            let error = store.writer().unwrap().discard(moved).unwrap_err();
            assert!(error.to_string().contains(built.path().to_str().unwrap()), "{error}");
            Sample::new(20).publish(&store.writer().unwrap());
            store.writer().unwrap().gc(0).unwrap();
            assert_eq!(fs::read(store.generation_path(moved).join("info")).unwrap(), Sample::new(12).info);
            assert_eq!(store.moved_in().unwrap().len(), 1);
            store.writer().unwrap().rollback(Some(moved)).unwrap();
            assert_eq!(store.moved_in().unwrap(), []);
        }
    }
}

/// A forked child may drop its copy of an unpublished generation: the files stay, and the parent publishes them.
#[cfg(unix)]
#[test]
#[expect(unsafe_code, reason = "std has no fork")]
fn a_forked_child_removes_nothing() {
    let (directory, temp_root) = (TempDir::new(), TempDir::new());
    let writer = store_of(directory.path(), 1).writer().unwrap();
    for root in [None, Some(temp_root.path())] {
        let sample = Sample::new(2);
        let mut pending = Some(writer.begin(root).unwrap());
        sample.write_shards(pending.as_ref().unwrap().path());
        let spill = pending.as_ref().unwrap().spill_dir().join("00000001.run");
        fs::write(&spill, "x").unwrap();
        // SAFETY: the child drops a value and ends by _exit; the parent waits for it.
        let (pid, mut status) = (unsafe { libc::fork() }, 0);
        if pid == 0 {
            let refused = publish(pending.take().unwrap(), &sample.info, &sample.manifest).is_err();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        // SAFETY: as above.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!((status, spill.exists()), (0, true));
        let id = publish(pending.take().unwrap(), &sample.info, &sample.manifest).unwrap();
        assert_eq!(version_of(&directory.path().join(id.to_string())), 2);
    }
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[2] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn discards_one_generation_that_is_not_current_and_not_read() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 3);
    let writer = store.writer().unwrap();
    writer.rollback(None).unwrap();
    writer.discard(id(3)).unwrap();
    assert_eq!(numbers(&store), [1, 2]);
    let leased = LeasedGeneration::acquire_current(store.path()).unwrap();
    writer.rollback(None).unwrap();
    let refused = |number| writer.discard(id(number)).unwrap_err();
    assert_eq!(refused(2).kind(), ErrorKind::Locked, "it is read");
    assert!(refused(1).message().contains("roll back first"), "it is current");
    assert_eq!(refused(3).kind(), ErrorKind::NotFound);
    assert_eq!(writer.rollback(Some(id(3))).unwrap_err().kind(), ErrorKind::NotFound);
    drop(leased);
    fs::write(directory.path().join("gen-0000000002/notes"), "mine").unwrap();
    assert_eq!(refused(2).kind(), ErrorKind::InvalidInput);
    fs::remove_file(directory.path().join("gen-0000000002/notes")).unwrap();
    writer.discard(id(2)).unwrap();
    assert_eq!(Sample::new(4).publish(&writer), id(4), "numbers never repeat");
    assert_eq!(store.history().unwrap(), [1, 4].map(id));
}

/// The totals are those of the manifest, and `removable` names what `gc` then removes.
#[test]
fn totals_and_removable_generations_are_known_before() {
    let directory = TempDir::new();
    let store = store_of(directory.path(), 3);
    let (totals, manifest) = (store.totals(id(2)).unwrap(), Sample::new(2).manifest);
    assert_eq!((totals.keys, totals.value_bytes), (manifest.keys, manifest.value_bytes));
    assert_eq!(totals.shards, manifest.shards.len() as u64);
    assert_eq!(store.totals(id(9)).unwrap_err().kind(), ErrorKind::NotFound);
    fs::create_dir(directory.path().join("gen-0000000009")).unwrap();
    assert_eq!(store.totals(id(9)).unwrap_err().kind(), ErrorKind::NotFound, "it is not complete");
    for keep in [2, 0] {
        let removable = store.removable(keep).unwrap();
        assert_eq!(store.writer().unwrap().gc(keep).unwrap().removed, removable);
    }
    assert_eq!(store.removable(0).unwrap(), []);
}
