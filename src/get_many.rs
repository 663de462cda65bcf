//! Batches: many keys at once, staged so that their cache misses overlap.
//!
//! A group of keys goes through the read path a step at a time: all shard index entries are asked for, then all
//! minishards, then all values, and each step finds its bytes on the way already.

use std::ops::ControlFlow;

use crate::error::Result;
use crate::generation::Found;
use crate::shard::{Shard, Value, ValueLocation};
use crate::snapshot::Snapshot;
use crate::spec::MinishardNumber;

/// Keys under way at once: about as many as a core has outstanding misses.
const GROUP: usize = 16;

/// Cache lines of a value asked for ahead; the processor's own prefetcher takes over behind them.
const VALUE_LINES: usize = 4;

type Lookup<T> = Result<Option<T>>;

impl Snapshot {
    /// The values of many keys, in their order; a key may be repeated.
    ///
    /// Each has its own result: one bad key does not hide the others. Cost: for mapped data several times less a key
    /// than [`get`](Snapshot::get).
    pub fn get_many(&self, keys: &[u64]) -> Vec<Result<Option<Value<'_>>>> {
        let mut values = Vec::with_capacity(keys.len());
        let ControlFlow::Continue(()) = self.get_many_with(keys, |_, value| {
            values.push(value);
            ControlFlow::<std::convert::Infallible>::Continue(())
        });
        values
    }

    /// Hands the value of each key to `f` with its position in `keys`, in order, until `f` breaks.
    ///
    /// ```no_run
    /// use std::ops::ControlFlow;
    /// # fn main() -> sharddb::Result<()> {
    /// let snapshot = sharddb::ShardDb::open_pread("store")?.snapshot();
    /// let mut total = 0;
    /// let first_error = snapshot.get_many_with(&[1, 2, 3], |_, value| match value {
    ///     Ok(value) => {
    ///         total += value.map_or(0, |value| value.len());
    ///         ControlFlow::Continue(())
    ///     }
    ///     Err(error) => ControlFlow::Break(error),
    /// });
    /// # Ok(()) }
    /// ```
    pub fn get_many_with<'a, B>(
        &'a self,
        keys: &[u64],
        mut f: impl FnMut(usize, Result<Option<Value<'a>>>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.find_many(keys, VALUE_LINES, |at, found| {
            f(at, found.and_then(|found| found.map(|found| found.value()).transpose()))
        })
    }

    /// Whether each of many keys is there, in their order.
    pub fn contains_many(&self, keys: &[u64]) -> Vec<Result<bool>> {
        self.collect_many(keys, |found| Ok(found?.is_some()))
    }

    /// Where the value of each of many keys is stored, in their order.
    pub fn locate_many(&self, keys: &[u64]) -> Vec<Result<Option<ValueLocation>>> {
        self.collect_many(keys, |found| found?.map(|found| found.value_location()).transpose())
    }

    /// The bytes before the value of each of many keys: pairs of a key and how many; see
    /// [`get_prefix`](Snapshot::get_prefix).
    pub fn get_prefix_many(&self, requests: &[(u64, u64)]) -> Vec<Result<Option<Value<'_>>>> {
        let keys: Vec<u64> = requests.iter().map(|(key, _)| *key).collect();
        let mut lengths = requests.iter().map(|(_, n)| *n);
        self.collect_many(&keys, |found| {
            let n = lengths.next().unwrap_or(0);
            found?.map(|found| found.reader().prefix(&found.stored, n)).transpose()
        })
    }

    fn collect_many<'a, T>(
        &'a self,
        keys: &[u64],
        mut f: impl FnMut(Lookup<Found<'a>>) -> Result<T>,
    ) -> Vec<Result<T>> {
        let mut results = Vec::with_capacity(keys.len());
        let ControlFlow::Continue(()) = self.find_many(keys, 0, |_, found| {
            results.push(f(found));
            ControlFlow::<std::convert::Infallible>::Continue(())
        });
        results
    }

    /// The rows of many keys, group by group.
    fn find_many<'a, B>(
        &'a self,
        keys: &[u64],
        value_lines: usize,
        mut f: impl FnMut(usize, Lookup<Found<'a>>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut minishards = Vec::with_capacity(GROUP);
        let mut rows = Vec::with_capacity(GROUP);
        for (group_number, group) in keys.chunks(GROUP).enumerate() {
            minishards.extend(group.iter().map(|key| self.stage_entry(*key)));
            minishards.iter().for_each(stage_minishard);
            rows.extend(minishards.drain(..).zip(group).map(|(it, key)| stage_row(it, *key, value_lines)));
            for (at, (row, key)) in rows.drain(..).zip(group).enumerate() {
                f(group_number * GROUP + at, row.map_err(|error| error.at_key(*key)))?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Asks for the shard index entry of a key.
    #[inline]
    fn stage_entry(&self, key: u64) -> Lookup<(&Shard, MinishardNumber)> {
        let location = self.generation.spec().locate(key);
        let Some(shard) = self.generation.shard(location.shard)? else { return Ok(None) };
        shard.reader().prefetch_entry(location.minishard);
        Ok(Some((shard, location.minishard)))
    }
}

/// Asks for the minishard, whose entry has come.
#[inline]
fn stage_minishard(minishard: &Lookup<(&Shard, MinishardNumber)>) {
    if let Ok(Some((shard, number))) = minishard {
        shard.reader().prefetch_minishard(*number);
    }
}

/// Finds the key in its minishard, which has come, and asks for the value.
#[inline]
fn stage_row<'a>(minishard: Lookup<(&'a Shard, MinishardNumber)>, key: u64, value_lines: usize) -> Lookup<Found<'a>> {
    let Some((shard, number)) = minishard? else { return Ok(None) };
    let Some(stored) = shard.reader().find_in(number, key)? else { return Ok(None) };
    shard.reader().prefetch_value(stored.row, value_lines);
    Ok(Some(Found { shard, stored }))
}
