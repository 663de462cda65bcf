//! Reads and encodes all pairs of a snapshot on all cores, and hands the bytes over in storage order.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::thread;

use sharddb::Snapshot;
use sharddb::internal::in_order;
use sharddb::read::Slice;
use sharddb::shard::Entry;

use crate::failure::Result;

/// The size of a block in bytes, unless one pair is larger.
const BLOCK: usize = 256 << 10;

/// Upper bound on the bytes that wait to be written, in addition to one block per thread.
const WAITING: usize = 64 << 20;

/// The bytes of shard files per slice.
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
    let slices = match snapshot.stats().file_bytes {
        Some(bytes) => usize::try_from(bytes / BYTES_PER_PART).unwrap_or(usize::MAX),
        None => threads.get().saturating_mul(PARTS_PER_THREAD),
    };
    let slices = snapshot.split(slices);
    let threads = NonZero::new(slices.len()).map_or(threads, |slices| threads.min(slices));
    let mut slices = slices.iter();
    let work = |slice: &Slice, emit: &mut dyn FnMut(Result<Event>, usize) -> ControlFlow<()>| run(slice, encode, emit);
    let outcome = in_order(
        threads,
        WAITING,
        || slices.next(),
        work,
        |event| event.and_then(&mut *take).map_or_else(ControlFlow::Break, ControlFlow::Continue),
    );
    outcome?.break_value().map_or(Ok(()), Err)
}

/// Encodes one slice. `emit` gets the events, with the bytes that each takes.
fn run(slice: &Slice, encode: Encode<'_>, emit: &mut dyn FnMut(Result<Event>, usize) -> ControlFlow<()>) {
    let mut block = Vec::new();
    let whole = slice.scan_entries(|entry| match encode(entry, &mut block) {
        Ok(None) if block.len() < BLOCK => ControlFlow::Continue(()),
        Ok(None) => emit_block(&mut block, emit),
        Ok(Some(error)) => {
            emit_block(&mut block, emit)?;
            emit(Ok(Event::Error(error)), 0)
        }
        Err(failure) => {
            emit(Err(failure), 0)?;
            ControlFlow::Break(())
        }
    });
    if whole.is_continue() {
        _ = emit_block(&mut block, emit);
    }
}

fn emit_block(block: &mut Vec<u8>, emit: &mut dyn FnMut(Result<Event>, usize) -> ControlFlow<()>) -> ControlFlow<()> {
    if block.is_empty() {
        return ControlFlow::Continue(());
    }
    let block = std::mem::take(block);
    let bytes = block.len();
    emit(Ok(Event::Block(block)), bytes)
}

#[cfg(test)]
mod tests {
    //! On any number of threads the events are those of one, in the same order.

    use sharddb::{BuildOptions, ShardDb, ShardingSpec, spec::HashFunction};

    use super::*;
    use crate::failure::Failure;

    const KEYS: u64 = 50_000;

    /// A database of about 6 MB in two shards.
    fn database() -> (tempfile::TempDir, Snapshot) {
        let dir = tempfile::tempdir().unwrap();
        let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 10, 1).unwrap();
        let mut loader = BuildOptions::new().spec(spec).memory(16 << 20).create(dir.path()).unwrap();
        (0..KEYS).for_each(|key| loader.insert(key, [7; 100]).unwrap());
        loader.finish().unwrap();
        let snapshot = ShardDb::open(dir.path()).unwrap().snapshot();
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

    /// The first failure in storage order, although later slices fail too.
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
}
