//! Batch lookups, staged so that cache misses overlap, on one thread or several.
//!
//! `positioned` looks up keys in files that are read by positioned reads. Of other keys, a group goes through the fast path
//! one step at a time. Each step prefetches the bytes of the next step for all keys of the group: first the entries of the
//! minishard map, then the minishards, then the values.

use std::ops::ControlFlow;

use crate::bytes::{Bytes, StorageKind};
use crate::error::Result;
use crate::format::spec::Encoding;
use crate::ids::MinishardNumber;
use crate::prefetch;
use crate::read::batch::positioned::{Batch, Place};
use crate::read::shard::{FastMinishard, Probe, ShardReader, Value, ValueLocation, prefetch_index};
use crate::read::snapshot::Snapshot;
use crate::threads::{self, for_each};

/// Keys per group: more than a core has outstanding cache misses, so that the steps of a group are long beside a latency.
const GROUP: usize = 32;

/// Cache lines prefetched per value. The hardware prefetcher loads the lines after them.
const VALUE_LINES: usize = 4;

/// Keys per block: enough to make the cost of the lock negligible, few enough that threads end at about the same time.
const KEYS_PER_BLOCK: usize = 1024;

impl Snapshot {
    /// Returns the values of many keys, in the order of `keys`. Keys may repeat.
    ///
    /// Each key has its own result, so an error hides no other result. Cost: for mapped data, several times less per
    /// key than [`get`](Snapshot::get). Positioned reads are made in the order of the data, neighbours together and, where
    /// they are slow, several at a time: see [`OpenOptions::io_depth`](crate::OpenOptions::io_depth).
    pub fn get_many(&self, keys: &[u64]) -> Vec<Result<Option<Value<'_>>>> {
        let mut values = Vec::with_capacity(keys.len());
        let ControlFlow::Continue(()) = self.get_each(keys, |_, value| {
            values.push(value);
            ControlFlow::<std::convert::Infallible>::Continue(())
        });
        values
    }

    /// Calls `f` with each position in `keys` and the value of that key, in order, until `f` breaks.
    ///
    /// By positioned reads, 1,024 keys are looked up before the first call of `f`. Memory: their values, as far as those take
    /// 32 MiB, and 128 KiB for each read in flight. Values beyond that, and those of more than 128 KiB, are read alone when
    /// it is their turn.
    ///
    /// ```no_run
    /// use std::ops::ControlFlow;
    /// # fn main() -> sharddb::Result<()> {
    /// let snapshot = sharddb::ShardDb::open("store")?.snapshot();
    /// let mut total = 0;
    /// let first_error = snapshot.get_each(&[1, 2, 3], |_, value| match value {
    ///     Ok(value) => {
    ///         total += value.map_or(0, |value| value.len());
    ///         ControlFlow::Continue(())
    ///     }
    ///     Err(error) => ControlFlow::Break(error),
    /// });
    /// # Ok(()) }
    /// ```
    pub fn get_each<'a, B>(
        &'a self,
        keys: &[u64],
        mut f: impl FnMut(usize, Result<Option<Value<'a>>>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let io_depth = self.generation.options().io_depth;
        keys.chunks(KEYS_PER_BLOCK).enumerate().try_for_each(|(number, keys)| {
            self.get_block(keys, io_depth, |at, value| f(number * KEYS_PER_BLOCK + at, value))
        })
    }

    /// Like [`get_each`](Self::get_each) for at most `KEYS_PER_BLOCK` keys, with up to `io_depth` reads at a time.
    fn get_block<'a, B>(
        &'a self,
        keys: &[u64],
        io_depth: usize,
        mut f: impl FnMut(usize, Result<Option<Value<'a>>>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if let Some(mut batch) = self.batch(keys) {
            let mut values = keys.iter().zip(batch.stored(io_depth)).enumerate();
            return values.try_for_each(|(at, (key, stored))| f(at, self.value_of(*key, stored)));
        }
        for (group_number, group) in keys.chunks(GROUP).enumerate() {
            let mut values = [Probe::Undecided; GROUP];
            self.stage(group, &mut values);
            for (at, (key, value)) in group.iter().zip(&values).enumerate() {
                let value = match *value {
                    Probe::Found(value) => Ok(Some(Value::borrowed_from(value))),
                    Probe::Absent => Ok(None),
                    Probe::Undecided => self.lookup(*key),
                };
                f(group_number * GROUP + at, value)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Calls `f` with each position in `keys` and the value of that key, on up to `threads` threads, until `f` breaks.
    /// 0 threads are one per core that the process may use.
    ///
    /// Positions arrive in no particular order, each exactly once. If `f` breaks, the other threads stop before their next
    /// position, and the first break is returned. If `f` panics, so does this call, after all threads have ended.
    ///
    /// The calling thread is one of the threads. Each call starts the others, which pays off for many keys, or for
    /// values that are decoded or read. A thread takes 1024 keys at a time, so a batch of at most 1024 keys uses one
    /// thread. If the process cannot start more threads, fewer are used. Nothing is allocated per key for mapped or loaded
    /// values. Each thread has its part of the reads in flight of [`OpenOptions::io_depth`](crate::OpenOptions::io_depth).
    ///
    /// ```no_run
    /// use std::ops::ControlFlow;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// # fn main() -> sharddb::Result<()> {
    /// let snapshot = sharddb::ShardDb::open("store")?.snapshot();
    /// let total = AtomicUsize::new(0);
    /// let first_error = snapshot.get_each_parallel(&[1, 2, 3], 0, |_, value| match value {
    ///     Ok(value) => {
    ///         total.fetch_add(value.map_or(0, |value| value.len()), Ordering::Relaxed);
    ///         ControlFlow::Continue(())
    ///     }
    ///     Err(error) => ControlFlow::Break(error),
    /// });
    /// # Ok(()) }
    /// ```
    pub fn get_each_parallel<'a, B: Send>(
        &'a self,
        keys: &[u64],
        threads: usize,
        f: impl Fn(usize, Result<Option<Value<'a>>>) -> ControlFlow<B> + Sync,
    ) -> ControlFlow<B> {
        let (threads, blocks) = (threads::count(threads), keys.chunks(KEYS_PER_BLOCK).enumerate());
        let io_depth = self.generation.options().io_depth / threads;
        for_each(threads, blocks, |(number, keys), stop| {
            self.get_block(keys, io_depth, |at, value| stop.or(|| f(number * KEYS_PER_BLOCK + at, value)))
        })
    }

    /// Returns whether each key exists, in the order of `keys`. Each key has its own result.
    pub fn contains_many(&self, keys: &[u64]) -> Vec<Result<bool>> {
        if let Some(results) = self.find_all(keys, ShardReader::contains, |key| self.contains(key)) {
            return results;
        }
        let mut results = Vec::with_capacity(keys.len());
        for group in keys.chunks(GROUP) {
            let mut minishards = [Probe::Undecided; GROUP];
            self.stage_minishards(group, &mut minishards);
            results.extend(group.iter().zip(minishards).map(|(key, minishard)| {
                match minishard.and_then(|minishard| minishard.key(*key)) {
                    Probe::Found(()) => Ok(true),
                    Probe::Absent => Ok(false),
                    Probe::Undecided => self.contains(*key),
                }
            }));
        }
        results
    }

    /// Returns where the value of each key is stored, in the order of `keys`. Each key has its own result.
    pub fn locate_many(&self, keys: &[u64]) -> Vec<Result<Option<ValueLocation>>> {
        let locate = |shard: &ShardReader, minishard, key| match shard.find(minishard, key)? {
            Some(found) => shard.value_location(minishard, found.row).map(Some),
            None => Ok(None),
        };
        if let Some(results) = self.find_all(keys, locate, |key| self.locate(key)) {
            return results;
        }
        keys.chunks(GROUP)
            .flat_map(|group| {
                self.stage_minishards(group, &mut [Probe::Undecided; GROUP]);
                group.iter().map(|key| self.locate(*key))
            })
            .collect()
    }

    /// Finds the values of a group of keys on the fast path, and prefetches them.
    #[inline(always)]
    fn stage<'a>(&'a self, group: &[u64], values: &mut [Probe<&'a [u8]>; GROUP]) {
        let mut minishards = [Probe::Undecided; GROUP];
        self.stage_minishards(group, &mut minishards);
        for ((key, minishard), staged) in group.iter().zip(&minishards).zip(values) {
            *staged = minishard.and_then(|minishard| minishard.value(*key));
            if let Probe::Found(value) = staged {
                prefetch::lines(value, VALUE_LINES);
            }
        }
    }

    /// Finds the minishards of a group of keys on the fast path, and prefetches their indexes.
    #[inline(always)]
    fn stage_minishards<'a>(&'a self, group: &[u64], minishards: &mut [Probe<FastMinishard<'a>>; GROUP]) {
        let mut routes = [None; GROUP];
        for (key, staged) in group.iter().zip(&mut routes) {
            *staged =
                self.generation.shard_of_key(*key).ok().flatten().map(|(shard, minishard)| (shard.reader(), minishard));
            if let Some((shard, minishard)) = staged {
                shard.prefetch_known(*minishard);
            }
        }
        for (route, staged) in routes.iter().zip(minishards) {
            let Some((shard, minishard)) = route else { continue };
            *staged = shard.fast_minishard(*minishard, prefetch_index);
        }
    }

    /// Divides keys into tasks, if their shards are read by positioned reads.
    fn batch(&self, keys: &[u64]) -> Option<Batch<'_>> {
        match self.generation.options().storage {
            StorageKind::Positioned => Batch::new(self, keys),
            StorageKind::Mapped { .. } | StorageKind::Heap => None,
        }
    }

    /// Calls `find` with the place of each key, if shards are read by positioned reads, and `alone` with the keys for which
    /// that fails.
    fn find_all<'a, T: Send>(
        &'a self,
        keys: &[u64],
        find: impl Fn(&'a ShardReader, MinishardNumber, u64) -> Result<T> + Sync,
        alone: impl Fn(u64) -> Result<T>,
    ) -> Option<Vec<Result<T>>> {
        let mut results = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_PER_BLOCK) {
            let batch = self.batch(keys)?;
            let find = |place: &Place<'a>| find(place.shard, place.minishard, place.key).ok();
            let found = batch.found(self.generation.options().io_depth, find);
            results.extend(keys.iter().zip(found).map(|(key, found)| found.map_or_else(|| alone(*key), Ok)));
        }
        Some(results)
    }

    /// Returns a value from its stored bytes, or looks it up alone.
    fn value_of<'a>(&'a self, key: u64, stored: Option<Option<Bytes<'a>>>) -> Result<Option<Value<'a>>> {
        match (stored, self.generation.spec().data_encoding()) {
            (None, _) => self.lookup(key),
            (Some(None), _) => Ok(None),
            (Some(Some(bytes)), Encoding::Raw) => Ok(Some(Value::from_bytes(bytes))),
            (Some(Some(bytes)), Encoding::Gzip) => match self.generation.shard_of_key(key)? {
                Some((shard, minishard)) => shard.reader().decoded(minishard, key, bytes).map(Some),
                None => Ok(None),
            },
        }
    }

    /// Looks a key up on the general path.
    #[cold]
    fn lookup(&self, key: u64) -> Result<Option<Value<'_>>> {
        match self.generation.shard_of_key(key)? {
            Some((shard, minishard)) => shard.reader().lookup(minishard, key),
            None => Ok(None),
        }
    }
}
