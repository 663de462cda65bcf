//! Whenever a writer is killed, `current` names a complete generation, the old or the new one, and the next build works
//! and removes the remains.
//!
//! A killed process loses nothing that it passed to the kernel. The order of syncs, which matters for a power failure,
//! is tested in `crash`.

#![cfg(unix)]

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::children::{Ended, Running, announce, child, child_directory, run};
use crate::common::generations::{self as generation, id, names, publish, stated_label};
use crate::common::{Storage, TempDir, xorshift};
use crate::fs::disk::END_BEFORE;
use crate::{OnDuplicate, OpenOptions, Published, Store, VerifyReads};

const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;

/// Output of a child, with the number of each generation that it published.
const PUBLISHED: &str = "published ";

/// Length of a large pair: one too large for a batch with the minimum memory, so it is written to disk at once.
const BEYOND_A_BATCH: usize = 5 << 20;

/// Length of a value that fits into a batch of the same build.
const WITHIN_A_BATCH: usize = 900_000;

/// The directory of a test: a store with a generation of label 1, and a directory for spills next to it.
struct Scene {
    directory: TempDir,
}

impl Scene {
    fn new() -> Scene {
        let scene = Scene { directory: TempDir::new() };
        std::fs::create_dir(spills(scene.directory.path())).unwrap();
        assert_eq!(publish(&scene.store(), 1).generation, id(1));
        scene
    }

    fn store(&self) -> PathBuf {
        store(self.directory.path())
    }

    /// Returns the label of the current generation. Checks that every kind of storage reads all of it.
    fn check_current(&self) -> u64 {
        for storage in Storage::ALL {
            let db = storage.open(OpenOptions::new().verify_reads(VerifyReads::Always), &self.store()).unwrap();
            let label = stated_label(db.snapshot().directory());
            generation::check(&db.snapshot(), label);
        }
        stated_label(&self.store().join("current"))
    }

    /// Checks that every directory with the name of a generation is complete, not only the current one.
    fn check_all(&self) {
        for stored in Store::open(self.store()).unwrap().generations().unwrap() {
            assert!(stored.is_complete, "{}", stored.id);
            let directory = self.store().join(stored.id.to_string());
            let db = OpenOptions::new().verify_reads(VerifyReads::Always).open(&directory).unwrap();
            generation::check(&db.snapshot(), stated_label(&directory));
        }
    }

    /// Checks that the next build gets a new number and leaves only generations in the store.
    fn check_next_build(&self, label: u64) {
        let last = self.last_number();
        let published = build(self.directory.path(), label, label.is_multiple_of(2));
        assert!(published.generation.get() > last, "numbers never repeat");
        assert_eq!(self.check_current(), label);
        let strangers =
            |name: &String| !["current", "history", "lock"].contains(&name.as_str()) && !name.starts_with("gen-");
        assert_eq!(names(&self.store()).into_iter().find(strangers), None);
        for spill in names(&spills(self.directory.path())) {
            let left = names(&spills(self.directory.path()).join(spill));
            assert_eq!(left, [""; 0], "a spill directory that is left by a killed child must be empty");
        }
    }

    fn last_number(&self) -> u64 {
        Store::open(self.store()).unwrap().generations().unwrap().iter().map(|stored| stored.id.get()).max().unwrap()
    }
}

fn store(directory: &Path) -> PathBuf {
    directory.join("store")
}

fn spills(directory: &Path) -> PathBuf {
    directory.join("spills")
}

/// Builds the generation of a label, from memory or from several runs on disk.
fn build(directory: &Path, label: u64, spilling: bool) -> Published {
    let mut options = generation::options(label);
    options.temp_dir(spills(directory)).on_duplicate(OnDuplicate::KeepLast);
    let mut loader = options.create(store(directory)).unwrap();
    if spilling {
        // all replaced below: large pairs, and more bytes of other pairs than fit into memory
        (0..3).for_each(|key| loader.insert(key, vec![0xee; BEYOND_A_BATCH]).unwrap());
        (0..20).for_each(|round| loader.insert(round % 3, vec![0xee; WITHIN_A_BATCH]).unwrap());
    }
    generation::insert_all(&mut loader, label);
    loader.finish().unwrap()
}

#[test]
fn killed_before_any_change_of_a_build_from_memory() {
    for label in [2, 4] {
        kill_before_every_change("tests::kill::child_builds_from_memory", label);
    }
}

#[test]
fn killed_before_any_change_of_a_build_that_spilled() {
    kill_before_every_change("tests::kill::child_builds_from_spills", 5);
}

/// Kills a child before its n-th change of the file system, for each n.
fn kill_before_every_change(test: &str, label: u64) {
    let mut current_before = BTreeSet::new();
    let died = (0..).take_while(|nth| {
        let scene = Scene::new();
        let ended = run_to(&scene, test, label, *nth);
        let status = ended.status;
        assert!(status.success() || status.signal() == Some(SIGABRT), "change {nth}: {ended}");
        let current = Store::open(scene.store()).unwrap().current().unwrap().unwrap().get();
        current_before.insert(current);
        assert_eq!(scene.check_current(), if current == 1 { 1 } else { label }, "change {nth}");
        scene.check_all();
        scene.check_next_build(3);
        !status.success()
    });
    assert!(died.count() > 20, "a build, a rollback, a collection");
    assert_eq!(current_before, BTreeSet::from([1, 2]), "the one before the build and the one of the build");
}

fn run_to(scene: &Scene, test: &str, label: u64, nth: usize) -> Ended {
    let mut child = child(test, scene.directory.path());
    child.env(END_BEFORE, nth.to_string()).env("SHARDDB_TEST_LABEL", label.to_string());
    run(child)
}

#[test]
#[ignore = "the process that killed_before_any_change_of_a_build_from_memory kills"]
fn child_builds_from_memory() {
    child_builds(false);
}

#[test]
#[ignore = "the process that killed_before_any_change_of_a_build_that_spilled kills"]
fn child_builds_from_spills() {
    child_builds(true);
}

/// Builds, rolls back, rolls forward and collects.
fn child_builds(spilling: bool) {
    let Some(directory) = child_directory() else { return };
    let label = std::env::var("SHARDDB_TEST_LABEL").unwrap().parse().unwrap();
    let published = build(&directory, label, spilling).generation;
    let writer = Store::open(store(&directory)).unwrap().writer().unwrap();
    assert_eq!(writer.rollback(None).unwrap(), id(1));
    writer.rollback(Some(published)).unwrap();
    assert_eq!(generation::collect(&writer), [1]);
}

/// All children work on one store, so each one finds what the previous one left.
#[test]
fn killed_at_any_moment() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = now.as_secs() << 32 | u64::from(now.subsec_nanos());
    println!("seed {seed}");
    let mut random = xorshift(seed);
    let scene = Scene::new();
    for round in 0..40 {
        let first_label = 1000 * round + random() % 100;
        let delay = Duration::from_micros(random() % 400_000);
        println!("round {round}: labels from {first_label}, {delay:?}");
        let acknowledged = kill_after(&scene, first_label, delay);
        let label = scene.check_current();
        scene.check_all();
        assert!(scene.last_number() >= acknowledged, "what was published was lost");
        println!("round {round}: {acknowledged} acknowledged, label {label} is current");
        if round % 4 == 3 {
            scene.check_next_build(first_label + 999);
        }
    }
    scene.check_next_build(2);
}

/// Kills a child that builds in an endless loop; returns the last number that it reported as published.
fn kill_after(scene: &Scene, first_label: u64, delay: Duration) -> u64 {
    let mut child = child("tests::kill::child_builds_on_and_on", scene.directory.path());
    child.env("SHARDDB_TEST_LABEL", first_label.to_string());
    let child = Running::start_and_wait(child);
    std::thread::sleep(delay); // so that each round is killed at another moment
    let ended = child.kill();
    assert_eq!(ended.status.signal(), Some(SIGKILL), "it ends no other way: {ended}");
    let published = |line: &String| line.strip_prefix(PUBLISHED)?.strip_suffix('.')?.parse().ok();
    ended.printed.iter().filter_map(published).max().unwrap_or(0)
}

#[test]
#[ignore = "the process that killed_at_any_moment kills"]
fn child_builds_on_and_on() {
    let Some(directory) = child_directory() else { return };
    let first: u64 = std::env::var("SHARDDB_TEST_LABEL").unwrap().parse().unwrap();
    announce();
    for label in first.. {
        let published = build(&directory, label, label.is_multiple_of(3)).generation;
        println!("{PUBLISHED}{}.", published.get());
        let writer = Store::open(store(&directory)).unwrap().writer().unwrap();
        if label.is_multiple_of(2) {
            writer.rollback(None).unwrap(); // no gc here: it would remove the published generation
        } else {
            writer.gc(1).unwrap();
        }
    }
}
