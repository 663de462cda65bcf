//! After a crash of the machine during a build, an update, a merge, an adoption, a rollback or a gc, the store opens to a complete
//! generation, the old or the new one; acknowledged generations survive; the next writer works. The same holds if the
//! disk fails or is full.
//!
//! A crash is simulated after every operation on the file system, with every kind of loss of unsynced data ([`Loss`]).
//! A generation is complete if `verify` at level data finds nothing and each value is that of the generation.

#![cfg(unix)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{TempDir, with_own_crc32};
use crate::error::{Error, ErrorKind, Result};
use crate::format::hash::HashFunction;
use crate::format::spec::ShardingSpec;
use crate::fs::disk::{self, Disk, Fault, Loss, Tree, Watch};
use crate::store::{GenerationId, Store};
use crate::write::UpdateOptions;
use crate::{BuildOptions, OnDuplicate, OpenOptions, VerifyLevel, VerifyReads};

/// Length of a value that is too large for a batch and so goes to the file of large pairs.
const BEYOND_A_BATCH: usize = 4 << 20;

const KEYS: u64 = 60;

/// An update of the label `n` has the label `n + UPDATED`.
const UPDATED: u64 = 50;

/// Memory for only some of the pairs, so that the others are spilled as several runs.
const TOO_LITTLE: u64 = 8 << 10;

/// A directory for a store, for spills, and for generations that were built elsewhere.
struct Scene(TempDir);

impl Scene {
    fn empty() -> Scene {
        Scene(TempDir::in_memory())
    }

    /// Creates a store with two generations, of the labels 1 and 2.
    fn with_two_generations() -> Scene {
        let scene = Scene::empty();
        (1..=2).for_each(|label| assert_eq!(scene.build(label).unwrap().get(), label));
        scene
    }

    /// Creates a store with two generations, and what else the acts take.
    fn with_others() -> Scene {
        let scene = Scene::with_two_generations();
        scene.make_others();
        scene.make_other_volumes();
        scene
    }

    /// Creates a directory for spills and two generations that were built elsewhere, all without syncs.
    fn make_others(&self) {
        disk::create_dir(&self.path("spills")).unwrap();
        let built = Scene::empty();
        for (name, label) in [("to copy", 11), ("to move", 12)] {
            let id = built.build(label).unwrap();
            copy_unsynced(&built.path("store").join(id.to_string()), &self.path(name));
        }
    }

    /// Creates two volumes that were built elsewhere, without syncs.
    fn make_other_volumes(&self) {
        let built = Scene::empty();
        for (name, label) in [("volume to copy", 13), ("volume to move", 14)] {
            let id = built.build_volume(label).unwrap();
            copy_unsynced(&built.path("store").join(id.to_string()), &self.path(name));
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn store(&self) -> Store {
        Store::open(self.path("store")).unwrap()
    }

    fn last_number(&self) -> u64 {
        let Ok(store) = Store::open(self.path("store")) else { return 0 };
        store.generations().unwrap().pop().map_or(0, |last| last.id.get())
    }

    fn build(&self, label: u64) -> Result<GenerationId> {
        self.build_by(label, false)
    }

    /// Builds a generation whose shards are in two nested directories.
    fn build_volume(&self, label: u64) -> Result<GenerationId> {
        let mut options = BuildOptions::new();
        options.spec(spec()).threads(1).sharding_at("/scales/0");
        options.info(r#"{"scales": [{"key": "scales/s0"}, {"key": "s1"}]}"#);
        let mut loader = options.create(self.path("store"))?;
        for key in 0..KEYS {
            loader.insert(key, value(label, key))?;
        }
        Ok(loader.finish()?.generation)
    }

    fn build_by(&self, label: u64, spilling: bool) -> Result<GenerationId> {
        let mut options = BuildOptions::new();
        options.spec(spec()).threads(1).on_duplicate(OnDuplicate::KeepLast);
        if spilling {
            options.memory(TOO_LITTLE).temp_dir(self.path("spills"));
        }
        let mut loader = options.create(self.path("store"))?;
        if spilling {
            loader.insert(0, vec![0xee; BEYOND_A_BATCH])?; // replaced below
        }
        for key in 0..KEYS {
            loader.insert(key, value(label, key))?;
        }
        Ok(loader.finish()?.generation)
    }
}

/// Copies a generation without its lease, and without syncs.
fn copy_unsynced(from: &Path, to: &Path) {
    disk::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let path = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_unsynced(&entry.path(), &path);
        } else if entry.file_name() != "lease" {
            let file = disk::create_new(&path).unwrap();
            disk::write_all_at(&file, &path, 0, &fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

/// Four shards with enough minishards for a minishard table.
fn spec() -> ShardingSpec {
    ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 9, 2).unwrap()
}

/// A label of [`UPDATED`] or more is that of an update of another label, which changed the shard of key 0 alone. The values of
/// a key have one length, and their shards equal checksums.
fn value(label: u64, key: u64) -> Vec<u8> {
    let is_updated = spec().route(key).shard == spec().route(0).shard;
    let label = if label >= UPDATED && !is_updated { label - UPDATED } else { label };
    with_own_crc32(format!("{label:02}/{key}.").repeat(20).as_bytes())
}

/// Returns the label of a generation. Panics unless the generation is complete.
#[track_caller]
fn label_of(path: &Path) -> u64 {
    let db = OpenOptions::new().verify_reads(VerifyReads::Always).open(path).unwrap();
    let snapshot = db.snapshot();
    let report = snapshot.verify(VerifyLevel::Data).unwrap();
    assert!(report.is_clean() && report.warnings() == 0, "{report}: {:?}", report.findings());
    assert_eq!((report.keys, snapshot.key_count()), (KEYS, Some(KEYS)), "a manifest is there and all its keys");
    let first = snapshot.get(0).unwrap().unwrap().to_vec();
    let label = (1..100).find(|label| value(*label, 0) == first).unwrap();
    (0..KEYS).for_each(|key| assert_eq!(snapshot.get(key).unwrap().unwrap(), value(label, key)));
    label
}

/// A change of a store; returns the label that is current afterwards.
type Act = fn(&Scene) -> Result<u64>;

fn builds_from_memory(scene: &Scene) -> Result<u64> {
    scene.build(3).map(|_| 3)
}

fn builds_from_spills(scene: &Scene) -> Result<u64> {
    scene.build_by(4, true).map(|_| 4)
}

/// Changes one shard of the current generation; the other shards are links.
fn updates(scene: &Scene) -> Result<u64> {
    update(scene, UpdateOptions::new().threads(1))
}

/// The same, with changes that are spilled and later replaced.
fn updates_from_spills(scene: &Scene) -> Result<u64> {
    update(scene, UpdateOptions::new().threads(1).memory(TOO_LITTLE).temp_dir(scene.path("spills")))
}

fn update(scene: &Scene, options: &UpdateOptions) -> Result<u64> {
    let label = label_of(&scene.path("store")) % UPDATED + UPDATED;
    let mut updater = options.open(scene.path("store"))?;
    updater.put(0, vec![0xee; BEYOND_A_BATCH])?; // replaced below
    for key in (0..KEYS).filter(|key| spec().route(*key).shard == spec().route(0).shard) {
        updater.delete(key)?;
        updater.put(key, value(label, key))?;
    }
    let (_, report) = updater.finish()?;
    assert_eq!((report.written_shards, report.linked_shards), (1, 3));
    Ok(label)
}

/// Writes the current generation again.
fn merges(scene: &Scene) -> Result<u64> {
    let label = label_of(&scene.path("store"));
    let input = OpenOptions::new().open(scene.path("store"))?.snapshot();
    let mut options = BuildOptions::new();
    options.spec(spec()).threads(1).merge(scene.path("store"), &[input])?.publish()?;
    Ok(label)
}

fn adopts_a_copy(scene: &Scene) -> Result<u64> {
    scene.store().writer()?.adopt(scene.path("to copy")).map(|_| 11)
}

fn adopts_by_moving(scene: &Scene) -> Result<u64> {
    scene.store().writer()?.adopt_by_moving(scene.path("to move")).map(|_| 12)
}

/// Rolls back to the first of two generations.
fn rolls_back(scene: &Scene) -> Result<u64> {
    scene.store().writer()?.rollback(GenerationId::new(1).ok()).map(|_| 1)
}

fn rolls_forward(scene: &Scene) -> Result<u64> {
    scene.store().writer()?.rollback(GenerationId::new(2).ok()).map(|_| 2)
}

fn rolls_back_by_one(scene: &Scene) -> Result<u64> {
    scene.store().writer()?.rollback(None)?;
    Ok(label_of(&scene.path("store")))
}

fn collects(scene: &Scene) -> Result<u64> {
    let report = scene.store().writer()?.gc(0)?;
    if let Some(failed) = report.failed.into_iter().next() {
        return Err(std::sync::Arc::try_unwrap(failed.error).unwrap());
    }
    Ok(label_of(&scene.path("store")))
}

/// The changes of a store, in the order in which they are tested.
const ACTS: [(&str, Act); 12] = [
    ("a build from memory", builds_from_memory),
    ("an update", updates),
    ("a merge", merges),
    ("an update from spills", updates_from_spills),
    ("a rollback", rolls_back),
    ("a rollback forward", rolls_forward),
    ("a build from spills", builds_from_spills),
    ("an adoption by copying", adopts_a_copy),
    ("a gc", collects),
    ("an adoption by moving", adopts_by_moving),
    ("a rollback by one", rolls_back_by_one),
    ("a gc of what was the newest", collects),
];

fn builds_a_volume(scene: &Scene) -> Result<u64> {
    scene.build_volume(5).map(|_| 5)
}

fn adopts_a_copy_of_a_volume(scene: &Scene) -> Result<u64> {
    scene.store().writer()?.adopt(scene.path("volume to copy")).map(|_| 13)
}

fn adopts_a_volume_by_moving(scene: &Scene) -> Result<u64> {
    scene.store().writer()?.adopt_by_moving(scene.path("volume to move")).map(|_| 14)
}

/// The changes of a store by which volumes come and go.
const ACTS_OF_VOLUMES: [(&str, Act); 4] = [
    ("a build of a volume", builds_a_volume),
    ("an adoption of a volume by copying", adopts_a_copy_of_a_volume),
    ("an adoption of a volume by moving", adopts_a_volume_by_moving),
    ("a gc of volumes", collects),
];

/// A crash while a volume is published, adopted or deleted, whose shards are in a directory of their own.
#[test]
fn any_crash_around_a_volume_leaves_the_old_generation_or_the_new() {
    let scene = Scene::with_two_generations();
    let mut crashes = Crashes::of(&scene);
    scene.make_other_volumes();
    crashes.try_all("what others wrote", Some(2), 2);
    let mut before = 2;
    for (name, act) in ACTS_OF_VOLUMES {
        let after = act(&scene).unwrap();
        crashes.try_all(name, Some(before), after);
        crashes.last = crashes.last.max(scene.last_number());
        before = after;
    }
    assert!(crashes.tried.len() > 150, "{} different states", crashes.tried.len());
    println!("{} crashes, {} different states", crashes.count, crashes.tried.len());
}

#[test]
fn any_crash_leaves_the_old_generation_or_the_new() {
    let scene = Scene::with_two_generations();
    let mut crashes = Crashes::of(&scene);
    scene.make_others();
    crashes.try_all("what others wrote", Some(2), 2);
    let mut before = 2;
    for (name, act) in ACTS {
        let after = act(&scene).unwrap();
        crashes.try_all(name, Some(before), after);
        crashes.last = crashes.last.max(scene.last_number());
        before = after;
    }
    assert!(crashes.tried.len() > 300, "{} different states", crashes.tried.len());
    println!("{} crashes, {} different states", crashes.count, crashes.tried.len());
}

/// The build creates the store. Before it publishes, there is no store, or a store without a generation.
#[test]
fn any_crash_of_the_first_build_leaves_nothing_or_the_new_generation() {
    let scene = Scene::empty();
    let mut crashes = Crashes::of(&scene);
    builds_from_memory(&scene).unwrap();
    crashes.try_all("the first build", None, 3);
}

/// A killed writer leaves its last changes in the page cache. Then the next writer cleans up, and the power fails.
#[test]
fn a_crash_after_a_killed_gc_was_cleared_up() {
    let scene = Scene::with_two_generations();
    let mut crashes = Crashes::of(&scene);
    let killed = scene.path("store/tmp-gc-gen-0000000001");
    disk::rename(&scene.path("store/gen-0000000001"), &killed).unwrap();
    drop(scene.store().writer().unwrap());
    assert!(!killed.exists());
    crashes.try_all("clearing up", Some(2), 2);
}

/// A killed writer has renamed `current` and not synced it. The next writer finds that its work is done, and says so.
#[test]
fn what_a_killed_writer_left_unsynced_is_synced_by_the_next() {
    let scene = Scene::with_two_generations();
    let mut crashes = Crashes::of(&scene);
    disk::symlink(Path::new("gen-0000000001"), &scene.path("store/tmp-current")).unwrap();
    disk::rename(&scene.path("store/tmp-current"), &scene.path("store/current")).unwrap();
    drop(scene.store().writer().unwrap());
    crashes.try_all("taking the lock", Some(2), 1);
}

/// What is acknowledged survives, also if it rests on files that were never synced: a store that was copied or restored, or
/// built without syncs.
#[test]
fn an_acknowledged_change_survives_on_a_disk_that_was_never_synced() {
    for (name, act) in ACTS.into_iter().chain(ACTS_OF_VOLUMES) {
        let scene = Scene::with_others();
        let mut disk = Disk::unsynced(&Tree::read(scene.0.path()));
        let watch = Watch::on(scene.0.path());
        let after = act(&scene).unwrap();
        watch.take_steps().iter().for_each(|step| disk.apply(step));
        for loss in Loss::all() {
            println!("{name}: {loss:?}"); // shown if it fails
            let found = Scene::empty();
            disk.after(loss).write_to(found.0.path());
            assert_eq!(label_of(&found.path("store")), after);
        }
    }
}

/// The simulated crashes of one scene.
struct Crashes {
    watch: Watch,
    disk: Disk,
    tried: BTreeSet<(Option<u64>, u64, Tree)>,
    count: usize,
    /// The last number of a generation that was acknowledged.
    last: u64,
}

impl Crashes {
    fn of(scene: &Scene) -> Crashes {
        let watch = Watch::on(scene.0.path());
        Crashes { watch, disk: Disk::of(&Tree::read(scene.0.path())), tried: BTreeSet::new(), count: 0, last: 0 }
    }

    /// Simulates a crash after each step since the last call, which changed the current label from `before` to `after`.
    fn try_all(&mut self, act: &str, before: Option<u64>, after: u64) {
        let steps = self.watch.take_steps();
        self.crash(act, "before it", before, before.unwrap_or(after));
        for (at, step) in steps.iter().enumerate() {
            self.disk.apply(step);
            let place = format!("after step {} of {}, {step:.120?}", at + 1, steps.len());
            self.crash(act, &place, before, after);
        }
        self.crash(act, "acknowledged", Some(after), after);
    }

    fn crash(&mut self, act: &str, place: &str, before: Option<u64>, after: u64) {
        for loss in Loss::all() {
            self.count += 1;
            let tree = self.disk.after(loss);
            if self.tried.insert((before, after, tree.clone())) {
                println!("{act}: crash {place}, {loss:?}"); // shown if it fails
                let found = Scene::empty();
                tree.write_to(found.0.path());
                check_current(&found, before, after);
                check_collections(&found);
                check_next_writer(&found, self.last);
            }
        }
    }
}

/// Checks that `current` names the old or the new generation, and that every generation is complete.
fn check_current(found: &Scene, before: Option<u64>, after: u64) {
    let store = found.path("store");
    if before.is_none() && !Store::is_at(&store).unwrap() {
        return;
    }
    let label = label_of(&store);
    assert!(before == Some(label) || after == label, "{label} is current");
    for generation in found.store().generations().unwrap() {
        assert!(generation.is_complete, "{}", generation.id);
        label_of(&store.join(generation.id.to_string()));
    }
}

/// The directories that a user moves into the store, with their labels.
const TO_MOVE: [(&str, u64); 2] = [("to move", 12), ("volume to move", 14)];

/// Returns the labels of the directories of [`TO_MOVE`] that are in their old place, current, or held by the store.
fn directories_to_move(scene: &Scene) -> Vec<u64> {
    let held = scene.store().moved_in().unwrap();
    let mut in_store: Vec<u64> = held.iter().map(|moved| label_of(&scene.store().generation_path(moved.id))).collect();
    in_store.push(label_of(&scene.path("store")));
    let is_there =
        |(name, label): &(&str, u64)| scene.path(name).join("manifest.json").exists() || in_store.contains(label);
    TO_MOVE.into_iter().filter(is_there).map(|(_, label)| label).collect()
}

/// Checks that a collection, a rollback and another collection leave the current generation, and each directory that a user
/// began to move and that has not become current.
fn check_collections(scene: &Scene) {
    let Ok(store) = Store::open(scene.path("store")) else { return };
    let Some(current) = store.current().unwrap() else { return };
    let (label, held) = (label_of(&scene.path("store")), store.moved_in().unwrap());
    let not_published = || {
        let mut labels = directories_to_move(scene);
        labels.retain(|moved| *moved != label);
        labels
    };
    let expected = not_published();
    for moved in &held {
        assert!(TO_MOVE.iter().any(|(name, _)| moved.from.ends_with(name)), "{moved}");
        assert_eq!(store.writer().unwrap().discard(moved.id).unwrap_err().kind(), ErrorKind::InvalidInput, "{moved}");
    }
    store.writer().unwrap().gc(5).unwrap();
    assert_eq!((store.current().unwrap(), label_of(&scene.path("store"))), (Some(current), label));
    _ = store.writer().unwrap().rollback(None);
    store.writer().unwrap().gc(0).unwrap();
    assert_eq!(not_published(), expected);
    let left = fs::read_dir(store.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.starts_with("moved-")).count(), held.len());
}

/// Checks that the next build works, and that no temporary files remain after it.
fn check_next_writer(found: &Scene, acknowledged: u64) {
    let store = Store::create(found.path("store")).unwrap();
    let last = acknowledged.max(found.last_number());
    let id = found.build(20).unwrap();
    assert!(id.get() > last, "numbers never repeat");
    assert_eq!((store.current().unwrap(), label_of(store.path())), (Some(id), 20));
    let names = fs::read_dir(store.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with("tmp-")).count(), 0);
}

/// A fault in one operation either has no effect, or causes an error and changes nothing.
#[test]
fn one_fault_anywhere_is_reported_and_changes_nothing() {
    fail_everywhere(Fault::Once, |scene, reported, _| {
        if let Some(error) = reported {
            assert_eq!(label_of(&scene.path("store")), 2, "{error}");
            let listed = scene.store().generations().unwrap();
            assert!(listed.iter().all(|stored| stored.id.get() <= 2), "{listed:?} after {error}");
        }
    });
}

/// A fault in one operation of the first build either has no effect, or leaves nothing that the next build refuses.
#[test]
fn one_fault_in_the_first_build_leaves_no_store_in_the_way() {
    for fault in [Fault::Once, Fault::Full] {
        let failed = (0..).take_while(|nth| {
            let scene = Scene::empty();
            let watch = Watch::on(scene.0.path());
            watch.fail(fault, *nth);
            println!("{fault:?} at operation {nth}"); // shown if it fails
            let result = builds_from_memory(&scene);
            let faults = watch.heal();
            let left = fs::read_dir(scene.0.path()).unwrap().count();
            if let (Err(error), Fault::Full) = (&result, fault) {
                let numbered = || fs::read(scene.path("store/lock")).is_ok_and(|lock| !lock.is_empty());
                assert!(left == 0 || numbered(), "{left} names are left after {error}");
            }
            check_next_writer(&scene, 0);
            result.is_err() || faults > 0
        });
        assert!(failed.count() > 10);
    }
}

/// A full disk causes an error that names a file on it, not the source of a copy, and changes nothing.
#[test]
fn a_full_disk_changes_nothing() {
    fail_everywhere(Fault::Full, |scene, reported, _| {
        if let Some(error) = reported {
            assert_eq!(label_of(&scene.path("store")), 2, "{error}");
            let is_source =
                |path: &Path| ["to copy", "volume to copy"].iter().any(|name| path.starts_with(scene.path(name)));
            assert!(error.path().is_some_and(|path| !is_source(path)), "{error}");
        }
    });
}

/// A disk that fails permanently causes an error. The current generation is the old or the new one, and complete.
#[test]
fn a_disk_that_breaks_leaves_the_old_generation_or_the_new() {
    fail_everywhere(Fault::Broken, |scene, reported, after| {
        let label = label_of(&scene.path("store"));
        assert!(label == after || label == 2 && reported.is_some(), "{label} is current");
    });
}

/// Runs each act on a store with two generations, with a fault at each of its operations. Then checks `holds`, all
/// generations and the next writer.
fn fail_everywhere(fault: Fault, holds: impl Fn(&Scene, Option<&Error>, u64)) {
    for (name, act) in ACTS.into_iter().chain(ACTS_OF_VOLUMES.into_iter().take(3)) {
        let after = act(&Scene::with_others()).unwrap();
        let failed = (0..).take_while(|nth| {
            let scene = Scene::with_others();
            let watch = Watch::on(scene.0.path());
            watch.fail(fault, *nth);
            println!("{name}: {fault:?} at operation {nth}"); // shown if it fails
            let result = act(&scene);
            let faults = watch.heal();
            check_error(&scene, &result, after, faults);
            holds(&scene, result.as_ref().err(), after);
            check_all_complete(&scene);
            assert_eq!(directories_to_move(&scene), TO_MOVE.map(|(_, label)| label));
            check_collections(&scene);
            check_next_writer(&scene, 2);
            faults > 0
        });
        // a gc takes no space
        assert!(
            failed.count() > 0 || fault == Fault::Full && name.starts_with("a gc"),
            "{name}: {fault:?} never comes"
        );
    }
}

/// Checks that an error is caused by the fault and names a path, and that without an error the act is complete.
fn check_error(scene: &Scene, result: &Result<u64>, after: u64, faults: usize) {
    match result {
        Ok(_) => assert_eq!(label_of(&scene.path("store")), after),
        Err(error) => {
            assert!(faults > 0, "{error}");
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            assert!(error.path().is_some_and(|path| path.starts_with(scene.0.path())), "{error}");
        }
    }
}

fn check_all_complete(scene: &Scene) {
    for generation in scene.store().generations().unwrap() {
        label_of(&scene.path("store").join(generation.id.to_string()));
    }
}
