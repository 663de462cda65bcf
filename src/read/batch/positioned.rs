//! Batches of lookups by positioned reads: in the order of the places, and several at a time where reads are slow.
//!
//! ```text
//! keys     -> places   sorted by shard and minishard
//!          -> tasks    keys whose minishards are neighbours, which one read returns; other keys alone
//!          -> results  in the order of the keys
//! ```
//!
//! The calling thread does the tasks. Once the reads of two in a row were slow, as those of a disk are, other threads help. A task
//! leaves out what it cannot do: the caller looks that key up alone, which also reports errors.

use std::ops::{ControlFlow as Flow, Range};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use crate::byte_range::ByteRange;
use crate::bytes::Bytes;
use crate::format::locks::{into_inner, lock};
use crate::format::minishard_index::Row;
use crate::ids::MinishardNumber;
use crate::read::shard::{MOST_AT_ONCE, Probe, ShardReader, ShortMinishard};
use crate::read::snapshot::Snapshot;

/// Two minishards are read together across at most this many bytes, which take less time than another system call.
const NEAR: u64 = 4 << 10;

/// Longer values are looked up alone: their bytes take about as long as the wait for them.
const LONG_VALUE: u64 = 128 << 10;

/// Once the results of a batch take this many bytes, the other keys are looked up alone.
const MOST_HELD: usize = 32 << 20;

/// A read that takes longer has waited for a disk or a network: from memory it takes a few microseconds.
const SLOW: Duration = Duration::from_micros(40);

/// The threads that a slow task starts.
const STARTED_AT_ONCE: usize = 3;

/// The stack of a thread in bytes.
const STACK: usize = 256 << 10;

/// A key of the batch: its position, and its place.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    at: usize,
    pub(super) key: u64,
    pub(super) shard: &'a ShardReader,
    pub(super) minishard: MinishardNumber,
    /// Set by `tasks` if one read returns the minishard.
    short: Option<ShortMinishard>,
}

/// The keys of a batch whose shards could be opened, in the order of their places.
pub(super) struct Batch<'a> {
    places: Vec<Place<'a>>,
    /// The number of all keys.
    keys: usize,
}

/// Places whose minishards are within one range, or a place that is read alone.
struct Task {
    places: Range<usize>,
    together: Option<ByteRange>,
}

impl<'a> Batch<'a> {
    /// `None` if no key is in a shard that is read by positioned reads.
    pub(super) fn new(snapshot: &'a Snapshot, keys: &[u64]) -> Option<Batch<'a>> {
        let place = |(at, key): (usize, &u64)| {
            let (shard, minishard) = snapshot.generation.shard_of_key(*key).ok()??;
            shard.reader().prefetch_known(minishard);
            Some(Place { at, key: *key, shard: shard.reader(), minishard, short: None })
        };
        let mut places: Vec<_> = keys.iter().enumerate().filter_map(place).collect();
        if places.iter().all(|place| place.shard.is_mapped_or_loaded()) {
            return None;
        }
        places.sort_unstable_by_key(|place| (place.shard.number, place.minishard));
        Some(Batch { places, keys: keys.len() })
    }

    /// Returns the stored bytes of the values, by the positions of their keys: `None` for what is to be looked up alone.
    pub(super) fn stored(&mut self, threads: usize) -> Vec<Option<Option<Bytes<'a>>>> {
        if self.places.iter().any(|place| place.shard.can_fill_map(place.minishard)) {
            self.found(threads, |place| place.shard.short(place.minishard)); // reads blocks of places, several at a time
        }
        let (tasks, held) = (self.tasks(), AtomicUsize::new(0));
        self.run(&tasks, threads, |task, emit| {
            let mut emit = |at, stored: Option<Bytes<'a>>| {
                let len = stored.as_ref().map_or(0, |stored| stored.len());
                emit(at, stored);
                if held.fetch_add(len, Ordering::Relaxed) < MOST_HELD { Flow::Continue(()) } else { Flow::Break(()) }
            };
            let places = self.places.get(task.places.clone()).unwrap_or_default();
            match (task.together, held.load(Ordering::Relaxed) < MOST_HELD) {
                (_, false) => Duration::ZERO,
                (Some(range), true) => read_together(places, range, &mut emit),
                (None, true) => time_of(|| places.iter().for_each(|place| read_alone(place, &mut emit))),
            }
        })
    }

    /// Returns what `find` finds, by the positions of the keys: `None` for what is to be looked up alone.
    pub(super) fn found<T: Send>(
        &self,
        threads: usize,
        find: impl Fn(&Place<'a>) -> Option<T> + Sync,
    ) -> Vec<Option<T>> {
        let tasks: Vec<_> = (0..self.places.len()).map(|at| Task { places: at..at + 1, together: None }).collect();
        self.run(&tasks, threads, |task, emit| {
            let places = self.places.get(task.places.clone()).unwrap_or_default();
            time_of(|| places.iter().for_each(|place| find(place).into_iter().for_each(|found| emit(place.at, found))))
        })
    }

    /// Divides the places: neighbours that one read returns are one task.
    fn tasks(&mut self) -> Vec<Task> {
        let mut tasks: Vec<Task> = Vec::with_capacity(self.places.len());
        let mut last_shard = None;
        for (at, place) in self.places.iter_mut().enumerate() {
            place.short = place.shard.short(place.minishard);
            let span = place.short.map(ShortMinishard::span);
            let same_shard = last_shard.replace(place.shard.number) == Some(place.shard.number);
            match tasks.last_mut().filter(|_| same_shard) {
                Some(Task { places, together: Some(range) })
                    if span.is_some_and(|span| {
                        (range.start..=range.end + NEAR).contains(&span.start) && span.end <= range.start + MOST_AT_ONCE
                    }) =>
                {
                    places.end = at + 1;
                    range.end = span.map_or(range.end, |span| span.end.max(range.end));
                }
                _ => tasks.push(Task { places: at..at + 1, together: span }),
            }
        }
        tasks
    }

    /// Does all tasks, and returns their results by the positions of the keys. `work` returns how long it has waited for reads.
    fn run<T: Send>(
        &self,
        tasks: &[Task],
        threads: usize,
        work: impl Fn(&Task, &mut dyn FnMut(usize, T)) -> Duration + Sync,
    ) -> Vec<Option<T>> {
        let mut results = Vec::new();
        results.resize_with(self.keys, || None);
        let results = Mutex::new(results);
        let work = |task: &Task| {
            work(task, &mut |at, result| {
                if let Some(slot) = lock(&results).get_mut(at) {
                    *slot = Some(result);
                }
            })
        };
        let crew = Crew { tasks, next: AtomicUsize::new(0), threads, started: AtomicUsize::new(1), work };
        thread::scope(|scope| crew.run(scope));
        into_inner(results)
    }
}

/// The threads that do the tasks of a batch.
struct Crew<'t, W> {
    tasks: &'t [Task],
    /// The number of the next task.
    next: AtomicUsize,
    /// Upper bound on `started`.
    threads: usize,
    started: AtomicUsize,
    work: W,
}

impl<W: Fn(&Task) -> Duration + Sync> Crew<'_, W> {
    /// Does tasks until there are none left, and starts threads if their reads are slow.
    fn run<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let mut slow = 0;
        while let Some(task) = self.tasks.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            slow = if (self.work)(task) > SLOW { slow + 1 } else { 0 };
            if slow > 1 {
                (0..STARTED_AT_ONCE).for_each(|_| self.start(scope));
            }
        }
    }

    /// Starts a thread, unless there are enough or the process can have no more.
    fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let are_left = self.next.load(Ordering::Relaxed) < self.tasks.len();
        let more = |started| (started < self.threads && are_left).then_some(started + 1);
        if self.started.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
            let _ = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || self.run(scope));
        }
    }
}

/// Reads the values of neighbouring minishards at once, and passes them to `emit` until that breaks. Returns the time of the
/// read.
fn read_together<'a>(
    places: &[Place<'a>],
    range: ByteRange,
    emit: &mut impl FnMut(usize, Option<Bytes<'a>>) -> Flow<()>,
) -> Duration {
    let (begin, mut waited) = (Instant::now(), Duration::ZERO);
    let Some(Place { shard, .. }) = places.first() else { return waited };
    let _ = shard.read_span(range, |read| {
        waited = begin.elapsed();
        let done = places.iter().try_for_each(|place| {
            let Some(short) = place.short else { return Flow::Continue(()) };
            match shard.value_from(place.minishard, place.key, short, read, |value| shard.copy_of(value)) {
                Probe::Found(Ok(copy)) => emit(place.at, Some(copy)),
                Probe::Absent => emit(place.at, None),
                Probe::Found(Err(_)) | Probe::Undecided => Flow::Continue(()),
            }
        });
        Probe::Found(done)
    });
    waited
}

/// Looks up a key whose minishard is long, gzip or foreign, unless its value is long.
fn read_alone<'a>(place: &Place<'a>, emit: &mut impl FnMut(usize, Option<Bytes<'a>>) -> Flow<()>) {
    let len = |row: Row| row.value.end.wrapping_sub(row.value.start);
    let stored = match place.shard.find(place.minishard, place.key) {
        Ok(Some(found)) if len(found.row) <= LONG_VALUE => place.shard.verified_bytes(&found).map(Some),
        Ok(None) => Ok(None),
        Ok(Some(_)) | Err(_) => return,
    };
    if let Ok(stored) = stored {
        let _ = emit(place.at, stored); // it is the last one of its task
    }
}

fn time_of(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::common::TempDir;
    use crate::error::{ErrorKind, Result};
    use crate::format::layout::ValueAlignment;
    use crate::format::spec::Encoding;
    use crate::fs::disk::Watch;
    use crate::plan::Profile;
    use crate::write::BuildOptions;
    use crate::{OpenOptions, ShardDb, Value};

    const KEYS: u64 = 3000;

    fn value(key: u64) -> Vec<u8> {
        let len = usize::try_from(key * 7919 % 300).unwrap();
        key.to_le_bytes().into_iter().cycle().take(len).collect()
    }

    /// Even keys up to `2 * KEYS`.
    fn store(options: impl FnOnce(&mut BuildOptions)) -> TempDir {
        let store = TempDir::new();
        let mut build = BuildOptions::new();
        build.durable(false);
        options(&mut build);
        let mut loader = build.create(store.path()).unwrap();
        (0..KEYS).for_each(|key| loader.insert(2 * key, value(2 * key)).unwrap());
        loader.finish().unwrap();
        store
    }

    /// Present and absent keys in no order, some of them twice.
    fn asked() -> Vec<u64> {
        (0..2 * KEYS).map(|at| at * 7919 % (2 * KEYS + 100)).chain([4, 4, 5, u64::MAX, 4]).collect()
    }

    fn open(store: &TempDir, io_depth: usize) -> Snapshot {
        OpenOptions::new().io_depth(io_depth).open(store.path()).unwrap().snapshot()
    }

    fn expected(key: u64) -> Option<Vec<u8>> {
        (key.is_multiple_of(2) && key < 2 * KEYS).then(|| value(key))
    }

    fn assert_values(keys: &[u64], values: Vec<Result<Option<Value<'_>>>>) {
        assert_eq!(keys.len(), values.len());
        for (key, found) in keys.iter().zip(values) {
            assert_eq!(found.unwrap().map(Vec::from), expected(*key), "{key}");
        }
    }

    /// Short and long minishards, raw and gzip, aligned, on one thread and on several.
    #[test]
    fn batches_return_what_lookups_return() {
        let stores = [
            store(|_| {}),
            store(|build| _ = build.profile(Profile::Remote)),
            store(|build| _ = build.data_encoding(Encoding::Gzip)),
            store(|build| _ = build.profile(Profile::Remote).data_encoding(Encoding::Gzip)),
            store(|build| _ = build.value_alignment(ValueAlignment::SixtyFour)),
        ];
        let keys = asked();
        for (store, io_depth) in stores.iter().flat_map(|store| [0, 1, 32].map(|io_depth| (store, io_depth))) {
            let watch = Watch::on(store.path());
            watch.delay_reads(Duration::from_micros(if io_depth == 32 { 30 } else { 0 }));
            let snapshot = open(store, io_depth);
            assert_values(&keys, snapshot.get_many(&keys));
            assert_values(&[], snapshot.get_many(&[]));
            for (key, found) in keys.iter().zip(snapshot.contains_many(&keys)) {
                assert_eq!(found.unwrap(), expected(*key).is_some());
            }
            for (key, found) in keys.iter().zip(snapshot.locate_many(&keys)) {
                assert_eq!(found.unwrap(), snapshot.locate(*key).unwrap());
            }
            snapshot.read_ahead(&keys);
        }
    }

    #[test]
    fn slow_reads_overlap() {
        let store = TempDir::new();
        let mut loader = BuildOptions::new().durable(false).create(store.path()).unwrap();
        (0..20_000u64).for_each(|key| loader.insert(key, [7; 600]).unwrap());
        loader.finish().unwrap();
        let keys: Vec<u64> = (0..1000).map(|at| at * 17).collect(); // far from each other
        let watch = Watch::on(store.path());
        for io_depth in [1, 4, 32] {
            let snapshot = open(&store, io_depth);
            watch.delay_reads(Duration::from_micros(200));
            assert!(snapshot.get_many(&keys).into_iter().all(|found| found.unwrap().unwrap() == [7; 600]));
            let in_flight = watch.delay_reads(Duration::ZERO);
            assert!((1 + io_depth / 2..=io_depth).contains(&in_flight), "{in_flight} of {io_depth}");
        }
    }

    /// A read may be slow for another reason, so one of several batches is enough.
    #[test]
    fn a_batch_in_memory_starts_no_thread() {
        let store = store(|_| {});
        let (snapshot, keys) = (open(&store, 32), asked());
        let batch = Batch::new(&snapshot, &keys).unwrap();
        let threads = |_| {
            let threads = Mutex::new(HashSet::new());
            batch.found(32, |place| {
                lock(&threads).insert(thread::current().id());
                place.shard.find(place.minishard, place.key).ok()
            });
            into_inner(threads).len()
        };
        assert!((0..50).map(threads).any(|threads| threads == 1));
    }

    /// Reads that fail once are made again, one by one.
    #[test]
    fn a_read_that_fails_costs_no_value() {
        for io_depth in [1, 32] {
            let store = store(|_| {});
            let (watch, snapshot, keys) = (Watch::on(store.path()), open(&store, io_depth), asked());
            assert_values(&keys, snapshot.get_many(&keys));
            watch.delay_reads(Duration::from_micros(if io_depth == 32 { 30 } else { 0 }));
            for nth in 0..50 {
                watch.fail_read(5, nth);
                assert_values(&keys, snapshot.get_many(&keys));
                assert_eq!(watch.heal(), 1, "{nth}");
            }
        }
    }

    /// Damage is an error of its key alone, as in a single lookup.
    #[test]
    fn damage_is_an_error_of_its_key() {
        let store = store(|_| {});
        let keys = asked();
        let place = open(&store, 1).locate(42).unwrap().unwrap();
        let mut bytes = std::fs::read(&place.path).unwrap();
        bytes[usize::try_from(place.range.start).unwrap()] ^= 1;
        std::fs::remove_file(&place.path).unwrap(); // it is read-only
        std::fs::write(&place.path, bytes).unwrap();
        for (key, found) in keys.iter().zip(open(&store, 32).get_many(&keys)) {
            match found {
                Ok(found) => assert_eq!((found.map(Vec::from), *key == 42), (expected(*key), false)),
                Err(error) => assert_eq!((error.kind(), error.key()), (ErrorKind::Corrupt, Some(42))),
            }
        }
    }

    /// Values beyond the room of a batch are looked up when it is their turn.
    #[test]
    fn a_batch_holds_a_bounded_part_of_its_values() {
        let store = TempDir::new();
        let mut loader = BuildOptions::new().durable(false).create(store.path()).unwrap();
        let long = vec![7; 128 << 10];
        let value =
            |key: u64| if key == 0 { vec![7; 1 << 20] } else { long[usize::try_from(key % 2).unwrap()..].to_vec() };
        (0..300).for_each(|key| loader.insert(key, value(key)).unwrap());
        loader.finish().unwrap();
        let snapshot = ShardDb::open(store.path()).unwrap().snapshot();
        let keys: Vec<u64> = (0..300).collect();
        let mut batch = Batch::new(&snapshot, &keys).unwrap();
        let held: usize = batch.stored(1).into_iter().flatten().flatten().map(|stored| stored.len()).sum();
        assert!((MOST_HELD..MOST_HELD + 2 * long.len()).contains(&held), "{held}");
        for (key, found) in keys.iter().zip(snapshot.get_many(&keys)) {
            assert_eq!(found.unwrap().unwrap(), value(*key));
        }
    }
}
