//! Reads and encodes all pairs of a snapshot on all cores, and hands the bytes over in storage order.
//!
//! Threads take the parts of the snapshot in order. The calling thread takes the events of the first part, then those of
//! the next one, while other threads work on later parts, as far as the memory for their events lasts.

use std::collections::VecDeque;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use sharddb::Snapshot;
use sharddb::read::Part;
use sharddb::shard::Entry;

use crate::failure::{Failure, Result};

/// The size of a block in bytes, unless one pair is larger.
const BLOCK: usize = 256 << 10;

/// Upper bound on the bytes of later parts that wait, in addition to one pair per thread.
const WAITING: usize = 64 << 20;

/// The bytes of shard files per part.
const BYTES_PER_PART: u64 = 1 << 20;

/// Parts per thread if the length of the shard files is not known.
const PARTS_PER_THREAD: usize = 64;

/// What a thread has done.
pub(crate) enum Event {
    /// Encoded pairs, in order.
    Block(Vec<u8>),
    /// A bad entry, minishard or shard.
    Error(sharddb::Error),
}

/// Encodes an entry into a block, or returns its error; a `Failure` ends the run.
pub(crate) type Encode<'a> =
    &'a (dyn Fn(sharddb::Result<Entry<'_>>, &mut Vec<u8>) -> Result<Option<sharddb::Error>> + Sync);

/// One thread per processor that this process may use.
pub(crate) fn all_cores() -> NonZero<usize> {
    thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

/// Calls `encode` with all entries, on up to `threads` threads, and `take` with the events in storage order, on this
/// one.
///
/// Errors: the first failure in storage order, of `encode` or of `take`.
pub(crate) fn encode_all(
    snapshot: &Snapshot,
    threads: NonZero<usize>,
    encode: Encode<'_>,
    take: &mut dyn FnMut(Event) -> Result<()>,
) -> Result<()> {
    let parts = match snapshot.stats().file_bytes {
        Some(bytes) => usize::try_from(bytes / BYTES_PER_PART).unwrap_or(usize::MAX),
        None => threads.get().saturating_mul(PARTS_PER_THREAD),
    };
    let parts = snapshot.split(NonZero::new(parts).unwrap_or(NonZero::<usize>::MIN));
    let threads = threads.get().min(parts.len());
    let flow = Flow::new(&parts);
    thread::scope(|scope| {
        let _end = End(&flow);
        let work = || flow.work(encode);
        let started = (0..threads).map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok()).count();
        match started {
            0 => parts.iter().try_for_each(|part| run(part, encode, &mut |_, event| take(event))),
            _ => flow.take_all(take),
        }
    })
}

/// Encodes one part. `emit` gets the events, with the bytes that each takes.
fn run(part: &Part, encode: Encode<'_>, emit: &mut dyn FnMut(usize, Event) -> Result<()>) -> Result<()> {
    let mut block = Vec::new();
    let outcome = part.scan_entries(|entry| {
        let add = || {
            if let Some(error) = encode(entry, &mut block)? {
                emit_block(&mut block, emit)?;
                emit(0, Event::Error(error))?;
            }
            if block.len() >= BLOCK { emit_block(&mut block, emit) } else { Ok(()) }
        };
        match add() {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => ControlFlow::Break(failure),
        }
    });
    match outcome {
        ControlFlow::Continue(()) => emit_block(&mut block, emit),
        ControlFlow::Break(failure) => Err(failure),
    }
}

fn emit_block(block: &mut Vec<u8>, emit: &mut dyn FnMut(usize, Event) -> Result<()>) -> Result<()> {
    if block.is_empty() {
        return Ok(());
    }
    let block = std::mem::take(block);
    emit(block.len(), Event::Block(block))
}

/// The parts, and their events on the way to the calling thread.
struct Flow<'a> {
    parts: &'a [Part],
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The next part that a thread takes.
    next: usize,
    /// The part whose events the calling thread takes.
    front: usize,
    /// The events of the parts from `front` on.
    lanes: VecDeque<Lane>,
    /// The bytes of all events.
    waiting: usize,
    stop: bool,
}

#[derive(Default)]
struct Lane {
    events: VecDeque<(usize, Event)>,
    /// Set when the part is over.
    end: Option<Result<()>>,
}

impl<'a> Flow<'a> {
    fn new(parts: &'a [Part]) -> Flow<'a> {
        let state = State { next: 0, front: 0, lanes: VecDeque::new(), waiting: 0, stop: false };
        Flow { parts, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'b>(&self, state: MutexGuard<'b, State>) -> MutexGuard<'b, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Encodes parts until there are none left.
    fn work(&self, encode: Encode<'_>) {
        let _end = EndOnPanic(self);
        while let Some((number, part)) = self.next_part() {
            let outcome = run(part, encode, &mut |bytes, event| self.emit(number, bytes, event));
            let mut state = self.state();
            if let Some(lane) = state.lane(number) {
                lane.end = Some(outcome);
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    fn next_part(&self) -> Option<(usize, &'a Part)> {
        let mut state = self.state();
        let number = state.next;
        let part = self.parts.get(number).filter(|_| !state.stop)?;
        state.next += 1;
        state.lanes.push_back(Lane::default());
        Some((number, part))
    }

    /// Adds an event of a part. Waits for memory, unless it is the part that the calling thread takes now.
    fn emit(&self, number: usize, bytes: usize, event: Event) -> Result<()> {
        let mut state = self.state();
        while !state.stop && state.front != number && state.waiting.saturating_add(bytes) > WAITING {
            state = self.wait(state);
        }
        if state.stop {
            return Err(Failure::Cancelled); // nobody sees it: the calling thread has ended with another failure
        }
        state.waiting += bytes;
        if let Some(lane) = state.lane(number) {
            lane.events.push_back((bytes, event));
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Takes the events of all parts in order.
    fn take_all(&self, take: &mut dyn FnMut(Event) -> Result<()>) -> Result<()> {
        while self.state().front < self.parts.len() {
            if let Some(event) = self.next_event()? {
                take(event)?;
            }
        }
        Ok(())
    }

    /// Returns the next event; `None` at the end of a part.
    fn next_event(&self) -> Result<Option<Event>> {
        let mut state = self.state();
        loop {
            if let Some(front) = state.lanes.front_mut() {
                if let Some((bytes, event)) = front.events.pop_front() {
                    state.waiting -= bytes;
                    drop(state);
                    self.changed.notify_all();
                    return Ok(Some(event));
                }
                if let Some(end) = front.end.take() {
                    state.lanes.pop_front();
                    state.front += 1;
                    drop(state);
                    self.changed.notify_all();
                    return end.map(|()| None);
                }
            }
            if state.stop {
                return Err(Failure::Internal("a thread of the export panicked".to_string()));
            }
            state = self.wait(state);
        }
    }

    fn stop(&self) {
        self.state().stop = true;
        self.changed.notify_all();
    }
}

impl State {
    fn lane(&mut self, number: usize) -> Option<&mut Lane> {
        self.lanes.get_mut(number.checked_sub(self.front)?)
    }
}

/// Ends the threads when the calling thread has ended, also by a failure.
struct End<'a, 'b>(&'a Flow<'b>);

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Ends the calling thread, which would wait for events, if this one panics.
struct EndOnPanic<'a, 'b>(&'a Flow<'b>);

impl Drop for EndOnPanic<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    //! On any number of threads the events are those of one, in the same order.

    use std::panic::{AssertUnwindSafe, catch_unwind};

    use sharddb::{BulkLoader, ShardDb, ShardingSpec, spec::HashFunction};

    use super::*;
    use crate::testing::must_return;

    const KEYS: u64 = 50_000;

    /// A database of about 6 MB in two shards.
    fn database() -> (tempfile::TempDir, Snapshot) {
        let dir = tempfile::tempdir().unwrap();
        let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 10, 1).unwrap();
        let mut loader = BulkLoader::options().spec(spec).memory(16 << 20).create(dir.path()).unwrap();
        (0..KEYS).for_each(|key| loader.insert(key, [7; 100]).unwrap());
        loader.finish().unwrap();
        let snapshot = ShardDb::open_pread(dir.path()).unwrap().snapshot();
        (dir, snapshot)
    }

    fn threads(threads: usize) -> NonZero<usize> {
        NonZero::new(threads).unwrap()
    }

    fn encode_key(entry: sharddb::Result<Entry<'_>>, block: &mut Vec<u8>) -> Result<Option<sharddb::Error>> {
        match entry {
            Ok(entry) => block.extend_from_slice(&entry.key().to_le_bytes()),
            Err(error) => return Ok(Some(error)),
        }
        Ok(None)
    }

    #[test]
    fn events_are_in_storage_order() {
        let (_dir, snapshot) = database();
        let expected: Vec<u8> = snapshot.keys().flat_map(|key| key.unwrap().to_le_bytes()).collect();
        for number in [1, 2, 7] {
            let mut found = Vec::new();
            let mut take = |event| match event {
                Event::Block(block) => {
                    found.extend(block);
                    Ok(())
                }
                Event::Error(error) => Err(error.into()),
            };
            encode_all(&snapshot, threads(number), &encode_key, &mut take).unwrap();
            assert!(found == expected, "{number} threads");
        }
    }

    /// The first failure in storage order, although later parts fail too.
    #[test]
    fn a_failure_ends_the_run() {
        let (_dir, snapshot) = database();
        let keys: Vec<_> = snapshot.keys().map(Result::unwrap).collect();
        let fail = |entry: sharddb::Result<Entry<'_>>, block: &mut Vec<u8>| {
            let key = entry?.key();
            block.extend_from_slice(&key.to_le_bytes());
            if key % 1000 == 7 { Err(Failure::usage(format!("key {key}"))) } else { Ok(None) }
        };
        let first = keys.iter().find(|key| **key % 1000 == 7).unwrap();
        for number in [1, 2, 7] {
            let failure = encode_all(&snapshot, threads(number), &fail, &mut |_| Ok(())).unwrap_err();
            assert_eq!(failure.to_string(), Failure::usage(format!("key {first}")).to_string());
            let closed = encode_all(&snapshot, threads(number), &encode_key, &mut |_| Err(Failure::BrokenPipe));
            assert!(matches!(closed, Err(Failure::BrokenPipe)));
        }
    }

    #[test]
    fn a_panic_does_not_hang() {
        let (_dir, snapshot) = database();
        must_return(move || {
            for number in [1, 2, 7] {
                let run = || encode_all(&snapshot, threads(number), &|_, _| panic!("planted"), &mut |_| Ok(()));
                assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
            }
        });
    }

    /// Events larger than the memory for later parts: only the first part goes on.
    #[test]
    fn large_events_wait_for_their_turn() {
        let (_dir, snapshot) = database();
        let bytes = must_return(move || {
            let large = |entry: sharddb::Result<Entry<'_>>, block: &mut Vec<u8>| {
                if entry?.key() % 2500 == 0 {
                    block.resize(block.len() + (WAITING / 3), 1);
                }
                Ok(None)
            };
            let mut bytes = 0;
            let mut take = |event| {
                bytes += if let Event::Block(block) = event { block.len() } else { 0 };
                Ok(())
            };
            encode_all(&snapshot, threads(4), &large, &mut take).unwrap();
            bytes
        });
        assert_eq!(bytes, 20 * (WAITING / 3));
    }
}
