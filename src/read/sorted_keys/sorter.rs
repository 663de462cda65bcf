//! Sorts keys in bounded memory.
//!
//! ```text
//! add      keys are collected in one vector; when it is full, it is sorted and spilled as a run
//! finish   nothing was spilled: the sorted vector         otherwise: a merge of the runs
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use crate::bytes::{BlockReader, Cursor, Sink};
use crate::error::{Error, ErrorKind, Result};
use crate::format::locks::lock;
use crate::read::sorted_keys::temp_file::TempFile;
use crate::threads;

const KEY_LEN: usize = size_of::<u64>();

/// Minimum number of keys in memory, whatever the budget.
const FEWEST_KEYS: usize = 512;

/// Shorter slices are sorted on one thread.
const SHORT: usize = 1 << 16;

/// Block size for writing runs.
const WRITE_BLOCK: usize = 1 << 20;

/// Bounds of the block size for reading a run.
const MIN_READ: usize = 4 << 10;
const MAX_READ: usize = 1 << 20;

/// The memory, the threads and the directory of a sort.
#[derive(Clone, Copy)]
pub(crate) struct SortBudget<'a> {
    /// In bytes. Each key takes 8.
    pub(crate) memory: u64,
    pub(crate) threads: usize,
    /// The directory for runs; `None` is the one for temporary files.
    pub(crate) temp_dir: Option<&'a Path>,
}

/// Collects keys from several threads and sorts them.
pub(crate) struct KeySorter<'a> {
    budget: SortBudget<'a>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    keys: Vec<u64>,
    runs: Option<Runs>,
}

/// Sorted runs in one temporary file, one after another.
struct Runs {
    file: TempFile,
    to: Cursor,
    ends: Vec<u64>,
}

/// The result of a sort.
pub(crate) enum SortedKeys {
    InMemory(Vec<u64>),
    Spilled(RunMerge),
}

impl<'a> KeySorter<'a> {
    pub(crate) fn new(budget: SortBudget<'a>) -> KeySorter<'a> {
        KeySorter { budget, state: Mutex::default() }
    }

    /// Adds keys in any order.
    ///
    /// Errors: `Io` if a run cannot be written.
    pub(crate) fn add(&self, mut keys: &[u64]) -> Result<()> {
        let mut state = lock(&self.state);
        while !keys.is_empty() {
            let room = self.make_room(&mut state, keys.len())?;
            let (now, later) = keys.split_at(room.min(keys.len()));
            state.keys.extend_from_slice(now);
            keys = later;
        }
        Ok(())
    }

    /// Returns for how many keys, of `wanted`, there is room in the vector: at least one. Lets the vector grow within
    /// the budget, and spills it if it is full.
    fn make_room(&self, state: &mut State, wanted: usize) -> Result<usize> {
        let most = usize::try_from(self.budget.memory).unwrap_or(usize::MAX) / KEY_LEN;
        let most = most.max(FEWEST_KEYS);
        let (len, capacity) = (state.keys.len(), state.keys.capacity());
        if len == capacity && capacity < most {
            // From a quarter of the budget it grows to all of it: then old and new vector together never use more, since
            // pages that no key was written to take no memory.
            let target = if capacity >= most / 4 { most } else { 2 * capacity };
            let target = target.max(len.saturating_add(wanted)).clamp(FEWEST_KEYS, most);
            // without memory for more, those that there are make a run
            if state.keys.try_reserve_exact(target - len).is_err() && len == 0 {
                state
                    .keys
                    .try_reserve_exact(FEWEST_KEYS)
                    .map_err(|_| Error::new(ErrorKind::TooLarge, "cannot allocate memory for sorting keys"))?;
            }
        }
        if state.keys.len() == state.keys.capacity().min(most) {
            self.spill(state)?;
        }
        Ok(state.keys.capacity().min(most) - state.keys.len())
    }

    /// Writes the collected keys as a run.
    fn spill(&self, state: &mut State) -> Result<()> {
        sort(&mut state.keys, self.budget.threads);
        let runs = match &mut state.runs {
            Some(runs) => runs,
            none => {
                let file = TempFile::create(self.budget.temp_dir)?;
                let to = Cursor::new(Sink::file(file.file.clone(), &file.path), 0, WRITE_BLOCK);
                none.insert(Runs { file, to, ends: Vec::new() })
            }
        };
        for key in &state.keys {
            runs.to.write(&key.to_le_bytes())?;
        }
        runs.ends.push(runs.to.position());
        state.keys.clear();
        Ok(())
    }

    /// Sorts the keys.
    ///
    /// Errors: `Io` if a run cannot be written or read.
    pub(crate) fn finish(self) -> Result<SortedKeys> {
        let mut state = std::mem::take(&mut *lock(&self.state));
        if state.runs.is_some() && !state.keys.is_empty() {
            self.spill(&mut state)?;
        }
        match state.runs {
            None => {
                sort(&mut state.keys, self.budget.threads);
                Ok(SortedKeys::InMemory(state.keys))
            }
            Some(runs) => {
                drop(state.keys);
                RunMerge::new(runs, self.budget.memory).map(SortedKeys::Spilled)
            }
        }
    }
}

impl SortedKeys {
    /// Calls `f` with each key, in ascending order, until it fails.
    pub(crate) fn try_for_each(self, mut f: impl FnMut(u64) -> Result<()>) -> Result<()> {
        match self {
            SortedKeys::InMemory(keys) => keys.into_iter().try_for_each(f),
            SortedKeys::Spilled(mut merge) => {
                while let Some(key) = merge.next()? {
                    f(key)?;
                }
                Ok(())
            }
        }
    }
}

/// Merges sorted runs.
pub(crate) struct RunMerge {
    runs: Vec<BlockReader>,
    /// The next key of each run that is not at its end, with the number of the run.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
}

impl RunMerge {
    fn new(mut runs: Runs, memory: u64) -> Result<RunMerge> {
        runs.to.finish()?;
        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
        let block = (memory / runs.ends.len().max(1)).clamp(MIN_READ, MAX_READ);
        let starts = [0].into_iter().chain(runs.ends.iter().copied());
        let TempFile { file, path } = &runs.file;
        let readers =
            starts.zip(&runs.ends).map(|(start, end)| BlockReader::new(file.clone(), path, start, *end, block));
        let mut merge = RunMerge { runs: readers.collect(), heads: BinaryHeap::new() };
        for run in 0..merge.runs.len() {
            merge.advance(run)?;
        }
        Ok(merge)
    }

    pub(crate) fn next(&mut self) -> Result<Option<u64>> {
        let Some(Reverse((key, run))) = self.heads.pop() else { return Ok(None) };
        self.advance(run)?;
        Ok(Some(key))
    }

    fn advance(&mut self, run: usize) -> Result<()> {
        let Some(reader) = self.runs.get_mut(run) else { return Ok(()) };
        if let Some(key) = reader.fill_at_least(KEY_LEN)?.first_chunk() {
            self.heads.push(Reverse((u64::from_le_bytes(*key), run)));
            reader.consume(KEY_LEN);
        }
        Ok(())
    }
}

/// Sorts a slice in place on up to `threads` threads; 0 as in [`threads::count`].
fn sort(keys: &mut [u64], threads: usize) {
    if threads == 1 || keys.len() <= SHORT {
        return keys.sort_unstable();
    }
    let threads = threads::count(threads).get();
    let (low, _, high) = keys.select_nth_unstable(keys.len() / 2);
    let (half, low) = (threads / 2, Mutex::new(Some(low)));
    let sort_low = || {
        let low = lock(&low).take();
        sort(low.unwrap_or_default(), half);
    };
    thread::scope(|scope| {
        let spawned = thread::Builder::new().spawn_scoped(scope, sort_low);
        sort(high, threads - half);
        if spawned.is_err() {
            sort_low(); // on this thread, after the other side
        }
    });
}
