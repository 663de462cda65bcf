//! Readers in threads and processes get right answers, each from one published generation, while generations are
//! published, broken, rolled back and collected. At the end nothing of the old generations is left.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[allow(dead_code, reason = "most of it is for tests/it")]
mod common;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use common::children::{Running, announce, child, child_directory, run};
use common::generations::{self as generation, END, directory_of, has, id, label_of, publish, stated_label};
use common::{Storage, TempDir};
use sharddb::{Error, ErrorKind, OpenOptions, OwnedValue, Reader, ShardDb, Snapshot, Store};

/// Number of values that a reader keeps, from several generations.
const KEPT: usize = 500;

/// The pause between two rounds of a reader. There are more readers than cores, and the publisher needs one.
const PAUSE: Duration = Duration::from_millis(3);

#[test]
fn a_hundred_generations_under_readers() {
    Scene::new().publish_under_readers(100);
}

#[test]
#[ignore = "minutes"]
fn a_thousand_generations_under_readers() {
    Scene::new().publish_under_readers(1000);
}

/// How a generation is broken: three in a hundred are a damaged copy of another one.
fn damage_of(number: u64) -> Option<fn(&Path)> {
    const DAMAGES: [fn(&Path); 3] = [truncate_a_shard, edit_the_manifest, remove_a_shard];
    (number % 33 == 17).then(|| DAMAGES[(number / 33 % 3) as usize])
}

fn truncate_a_shard(generation: &Path) {
    let shard = generation::a_shard_of(generation);
    let bytes = std::fs::read(&shard).unwrap();
    std::fs::write(shard, &bytes[..bytes.len() / 2]).unwrap();
}

fn edit_the_manifest(generation: &Path) {
    let path = generation.join("manifest.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, text.replacen("\"keys\": ", "\"keys\": 1", 1)).unwrap();
}

fn remove_a_shard(generation: &Path) {
    std::fs::remove_file(generation::a_shard_of(generation)).unwrap();
}

/// Asserts that the error names a broken generation, which is the only error that a reader may return.
#[track_caller]
fn assert_names_a_broken_one(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io), "{error}");
    let path = error.path().unwrap_or_else(|| panic!("names nothing: {error}"));
    let mut names = path.components().filter_map(|name| name.as_os_str().to_str());
    let number = names.find_map(|name| name.parse::<sharddb::GenerationId>().ok()).map(|id| id.get());
    assert!(number.is_some_and(|number| damage_of(number).is_some()), "{error}");
}

/// A store, and one open database per storage.
struct Scene {
    directory: TempDir,
    databases: Vec<ShardDb>,
    board: Board,
}

/// The state that the publisher shares with the readers.
struct Board {
    /// The labels that `current` has pointed to, in order. Each is added before `current` changes.
    labels: RwLock<Vec<u64>>,
    /// Every database serves the label at this index of `labels` or a later one.
    followed: AtomicUsize,
    done: AtomicBool,
}

impl Board {
    fn announce(&self, label: u64) {
        self.labels.write().unwrap_or_else(PoisonError::into_inner).push(label);
    }

    fn all_followed(&self) {
        let last = self.labels.read().unwrap().len() - 1;
        self.followed.store(last, Ordering::Release);
    }

    fn followed(&self) -> usize {
        self.followed.load(Ordering::Acquire)
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Asserts that a read which began when all served index `since` is of that generation or a later one.
    #[track_caller]
    fn check_label(&self, label: u64, since: usize) {
        let labels = self.labels.read().unwrap_or_else(PoisonError::into_inner);
        assert!(labels[since..].contains(&label), "label {label}, but {:?} since the request", &labels[since..]);
    }

    #[track_caller]
    fn check_found(&self, key: u64, found: Option<&[u8]>, since: usize) -> Option<u64> {
        assert!(found.is_some() || key >= generation::CORE, "key {key} is in all generations");
        let label = label_of(key, found?);
        self.check_label(label, since);
        Some(label)
    }
}

impl Scene {
    fn new() -> Scene {
        let directory = TempDir::new();
        assert_eq!(publish(directory.path(), 1).generation, id(1));
        let open = |storage: Storage| storage.open(&OpenOptions::new(), directory.path()).unwrap();
        let board = Board { labels: RwLock::new(vec![1]), followed: AtomicUsize::new(0), done: AtomicBool::new(false) };
        Scene { databases: Storage::ALL.map(open).into(), directory, board }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn publish_under_readers(self, generations: u64) {
        let processes = [
            Running::start_and_wait(child("child_maps_and_follows", self.path())),
            Running::start_and_wait(child("child_reads_and_follows", self.path())),
        ];
        thread::scope(|scope| {
            let _done = OnDrop(|| self.board.done.store(true, Ordering::Release)); // also if this thread panics
            let readers = Readers::start(&self, scope);
            for number in 2..=generations {
                self.publish_or_break(number);
                readers.wait_for_all();
                self.collect_or_refuse(number);
            }
        });
        processes.into_iter().for_each(|process| process.finish().assert_passed());
        self.check_end(generations);
    }

    fn publish_or_break(&self, number: u64) {
        match damage_of(number) {
            Some(damage) => self.break_next(number, damage),
            None => self.publish_next(number),
        }
    }

    /// Rolls back one generation in seven.
    fn publish_next(&self, number: u64) {
        let before = self.databases[0].snapshot().generation().unwrap().get();
        self.board.announce(number);
        assert_eq!(publish(self.path(), number).generation, id(number));
        self.refresh_all(number);
        if number % 7 == 3 {
            self.board.announce(before);
            generation::roll_to(&self.store(), before);
            self.refresh_all(before);
        }
    }

    /// Refreshes all databases. Another thread may have been faster.
    fn refresh_all(&self, number: u64) {
        for db in &self.databases {
            let moved = db.refresh().unwrap();
            assert!(moved.is_none_or(|moved| moved == id(number)));
            assert_eq!(db.snapshot().generation(), Some(id(number)));
        }
        self.board.all_followed();
    }

    fn break_next(&self, number: u64, damage: fn(&Path)) {
        let served = self.databases[0].snapshot();
        let directory = generation::copy_by_hand(self.path(), served.generation().unwrap().get(), number);
        damage(&directory);
        generation::point_current_to(self.path(), &id(number).to_string());
        for db in &self.databases {
            let error = db.refresh().unwrap_err();
            assert_names_a_broken_one(&error);
            assert!(error.path().unwrap().starts_with(&directory), "{error}");
            assert_eq!(db.snapshot().generation(), served.generation());
        }
    }

    fn store(&self) -> Store {
        Store::open(self.path()).unwrap()
    }

    /// While the current generation is broken, nothing is removed.
    fn collect_or_refuse(&self, number: u64) {
        if damage_of(number).is_none() {
            return self.collect();
        }
        let before = generation::names(self.path());
        assert_names_a_broken_one(&self.store().writer().unwrap().gc(1).unwrap_err());
        assert_eq!(generation::names(self.path()), before);
    }

    fn collect(&self) {
        generation::collect(&self.store().writer().unwrap());
    }

    /// After the readers have ended, one refresh leaves only the current generation.
    fn check_end(&self, last: u64) {
        for db in &self.databases {
            assert_eq!(db.refresh().unwrap(), None);
            assert_eq!(db.open_generations(), 1);
            generation::check(&db.snapshot(), last);
        }
        self.check_maps(&directory_of(self.path(), last));
        self.collect();
        assert_eq!(generation::names(self.path()), ["current", &id(last).to_string(), "history", "lock"]);
    }

    /// One map per shard, one lease per database and one file per positioned shard, all of the one generation.
    #[cfg(target_os = "linux")]
    fn check_maps(&self, generation: &Path) {
        let shards = self.databases[0].snapshot().stats().shards;
        let maps = generation::maps_below(self.path());
        assert_eq!(maps.len(), shards, "{maps:?}");
        assert!(maps.iter().all(|path| Path::new(path).starts_with(generation)), "{maps:?}");
        let files = open_files_below(self.path());
        assert_eq!(files.len(), self.databases.len() + shards, "{files:?}");
        assert!(files.iter().all(|path| path.starts_with(generation)), "{files:?}");
    }

    #[cfg(not(target_os = "linux"))]
    fn check_maps(&self, _: &Path) {}
}

/// The files below a directory that this process has open.
#[cfg(target_os = "linux")]
fn open_files_below(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    targets.filter(|target| target.starts_with(directory)).collect()
}

/// The threads that read, with the number of rounds of each.
struct Readers<'scope> {
    threads: Vec<(&'scope AtomicU64, ScopedJoinHandle<'scope, ()>)>,
}

/// One round of a reader, between two checks of the end flag.
type Round<'a> = Box<dyn FnMut(&Board) + Send + 'a>;

impl<'scope> Readers<'scope> {
    fn start<'env>(scene: &'env Scene, scope: &'scope Scope<'scope, 'env>) -> Readers<'scope>
    where
        'env: 'scope,
    {
        let rounds = scene.databases.iter().flat_map(|db| -> [Round<'env>; 2] {
            let (mut snapshots, mut lookups) = (Snapshots::new(db), Lookups::new(db));
            [Box::new(move |board| snapshots.round(board)), Box::new(move |board| lookups.round(board))]
        });
        let others: [Round<'env>; 2] =
            [Box::new(|_| refresh_at_any_time(&scene.databases)), Box::new(|_| open_in_a_process(scene.path()))];
        let threads = rounds.chain(others).map(|mut round| {
            let count: &AtomicU64 = Box::leak(Box::default());
            let thread = scope.spawn(move || {
                while !scene.board.is_done() {
                    round(&scene.board);
                    count.fetch_add(1, Ordering::Release);
                    thread::sleep(PAUSE);
                }
            });
            (count, thread)
        });
        Readers { threads: threads.collect() }
    }

    /// Waits until each reader has begun and ended a round, so each reader reads each generation.
    fn wait_for_all(&self) {
        let begun: Vec<u64> = self.threads.iter().map(|(count, _)| count.load(Ordering::Acquire)).collect();
        for ((count, thread), begun) in self.threads.iter().zip(begun) {
            while count.load(Ordering::Acquire) < begun + 2 {
                assert!(!thread.is_finished(), "a reader found something wrong");
                thread::sleep(Duration::from_micros(200));
            }
        }
    }
}

/// Pins a generation and reads everything in it, while others are published and collected.
struct Snapshots<'a> {
    db: &'a ShardDb,
    last: Option<Snapshot>,
}

impl<'a> Snapshots<'a> {
    fn new(db: &'a ShardDb) -> Snapshots<'a> {
        Snapshots { db, last: None }
    }

    /// The snapshot of the previous round still serves its own generation.
    fn round(&mut self, board: &Board) {
        let since = board.followed();
        let snapshot = self.db.snapshot();
        let label = snapshot.generation().unwrap().get();
        board.check_label(label, since);
        generation::check_keys(&snapshot, label);
        let last = self.last.replace(snapshot).unwrap_or_else(|| self.db.snapshot());
        let label = last.generation().unwrap().get();
        generation::check_batch(&last, label);
        generation::check_iteration(&last, label);
    }
}

/// Single lookups through a reader and through the database. Values are kept long after their generation is retired.
struct Lookups<'a> {
    db: &'a ShardDb,
    reader: Reader,
    kept: VecDeque<(u64, u64, OwnedValue)>,
}

impl<'a> Lookups<'a> {
    fn new(db: &'a ShardDb) -> Lookups<'a> {
        Lookups { db, reader: db.reader(), kept: VecDeque::new() }
    }

    fn round(&mut self, board: &Board) {
        for key in (0..END + 10).step_by(3) {
            let since = board.followed();
            board.check_found(key, self.reader.get(key).unwrap().as_deref(), since);
            let since = board.followed();
            let found = self.db.get(key).unwrap();
            let label = board.check_found(key, found.as_deref(), since);
            self.kept.extend(label.zip(found).map(|(label, value)| (key, label, value)));
        }
        while self.kept.len() > KEPT {
            let (key, label, value) = self.kept.pop_front().unwrap();
            assert_eq!(label_of(key, &value), label, "a kept value changed");
        }
    }
}

/// Refreshes at the same time as the publisher.
fn refresh_at_any_time(databases: &[ShardDb]) {
    for db in databases {
        _ = db.refresh().inspect_err(assert_names_a_broken_one);
    }
}

fn open_in_a_process(store: &Path) {
    run(child("child_opens_and_ends", store)).assert_passed();
}

#[test]
#[ignore = "a process of the tests above"]
fn child_opens_and_ends() {
    let Some(store) = child_directory() else { return };
    for storage in Storage::ALL {
        match storage.open(&OpenOptions::new(), &store) {
            Ok(db) => check_or_is_broken(&db.snapshot()),
            Err(error) => assert_names_a_broken_one(&error),
        }
    }
}

/// A generation that opens may turn out to be broken, but no value is of another generation.
fn check_or_is_broken(snapshot: &Snapshot) {
    let label = stated_label(snapshot.directory());
    for key in 0..END + 10 {
        match snapshot.get(key) {
            Ok(found) => {
                assert_eq!(found.map(|value| label_of(key, &value)), has(label, key).then_some(label), "key {key}");
            }
            Err(error) => assert_names_a_broken_one(&error),
        }
    }
}

#[test]
#[ignore = "a process of the tests above"]
fn child_maps_and_follows() {
    child_follows(Storage::Mapped);
}

#[test]
#[ignore = "a process of the tests above"]
fn child_reads_and_follows() {
    child_follows(Storage::Positioned);
}

/// A child that refreshes on its own until the parent closes its input, and then once more.
fn child_follows(storage: Storage) {
    let Some(store) = child_directory() else { return };
    let db = storage.open(&OpenOptions::new(), &store).unwrap();
    announce();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            std::io::stdin().lines().for_each(drop);
            done.store(true, Ordering::Release);
        });
        let mut old = db.snapshot();
        while !done.load(Ordering::Acquire) {
            _ = db.refresh().inspect_err(assert_names_a_broken_one);
            let new = db.snapshot();
            for snapshot in [&old, &new] {
                generation::check_keys(snapshot, snapshot.generation().unwrap().get());
            }
            old = new;
            thread::sleep(PAUSE);
        }
    });
    db.refresh().unwrap();
    db.refresh().unwrap();
    assert_eq!(db.open_generations(), 1);
    generation::check(&db.snapshot(), Store::open(&store).unwrap().current().unwrap().unwrap().get());
}

/// Runs a closure when it goes out of scope, also in a panic.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
