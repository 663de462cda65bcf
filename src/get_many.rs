//! Batches: many keys at once, staged so that their cache misses overlap.
//!
//! A group of keys goes through the read path a step at a time: all shard index entries are asked for, then all
//! minishards, then all values, and each step finds its bytes on the way already.

use std::ops::ControlFlow;

use crate::error::Result;
use crate::prefetch;
use crate::shard::{InMemory, MinishardInPlace, ShardReader, Value, ValueLocation, in_place};
use crate::snapshot::Snapshot;
use crate::spec::MinishardNumber;

/// Keys under way at once: about as many as a core has outstanding misses.
const GROUP: usize = 16;

/// Cache lines of a value asked for ahead; the processor's own prefetcher takes over behind them.
const VALUE_LINES: usize = 4;

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
        let verify = self.generation.options().read.verify_on_read;
        for (group_number, group) in keys.chunks(GROUP).enumerate() {
            let values = self.stage(group, VALUE_LINES);
            for (at, (key, value)) in group.iter().zip(values).enumerate() {
                let value = match value {
                    Some(value) if !verify => Ok(value.map(Value::borrowed_from)),
                    _ => self.generation.get_staged(*key),
                };
                f(group_number * GROUP + at, value)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether each of many keys is there, in their order.
    pub fn contains_many(&self, keys: &[u64]) -> Vec<Result<bool>> {
        let verify = self.generation.options().read.verify_on_read;
        let mut results = Vec::with_capacity(keys.len());
        for group in keys.chunks(GROUP) {
            let values = self.stage(group, 0);
            results.extend(group.iter().zip(values).map(|(key, value)| match value {
                Some(value) if !verify => Ok(value.is_some()),
                _ => self.contains(*key),
            }));
        }
        results
    }

    /// Where the value of each of many keys is stored, in their order.
    pub fn locate_many(&self, keys: &[u64]) -> Vec<Result<Option<ValueLocation>>> {
        keys.chunks(GROUP)
            .flat_map(|group| {
                self.stage(group, 0);
                group.iter().map(|key| self.locate(*key))
            })
            .collect()
    }

    /// The values of a group of keys, on their way into the cache, not verified; `None` for what does not simply lie in
    /// memory.
    #[inline]
    fn stage<'a>(&'a self, group: &[u64], value_lines: usize) -> [InMemory<&'a [u8]>; GROUP] {
        let mut shards = [None; GROUP];
        for (key, staged) in group.iter().zip(&mut shards) {
            *staged = self.stage_entry(*key);
        }
        let mut minishards = [None; GROUP];
        for (shard, staged) in shards.iter().zip(&mut minishards) {
            *staged = shard.as_ref().and_then(stage_minishard);
        }
        let mut values = [None; GROUP];
        for ((key, minishard), staged) in group.iter().zip(&minishards).zip(&mut values) {
            *staged = minishard.as_ref().and_then(|minishard| stage_value(minishard, *key, value_lines));
        }
        values
    }

    /// Asks for the shard index entry of a key.
    #[inline]
    fn stage_entry(&self, key: u64) -> Option<(&ShardReader, MinishardNumber)> {
        let location = self.generation.spec().locate(key);
        let shard = self.generation.shard(location.shard).ok()??.reader();
        shard.in_place()?.prefetch_entry(location.minishard);
        Some((shard, location.minishard))
    }
}

/// Asks for the index of the minishard, whose entry has come.
#[inline]
fn stage_minishard<'a>((shard, number): &(&'a ShardReader, MinishardNumber)) -> InMemory<MinishardInPlace<'a>> {
    let minishard = shard.in_place()?.minishard(*number)?;
    minishard.iter().for_each(MinishardInPlace::prefetch_index);
    Some(minishard)
}

/// Finds the key in its minishard, which has come, and asks for the value.
#[inline]
fn stage_value<'a>(minishard: &Option<MinishardInPlace<'a>>, key: u64, lines: usize) -> InMemory<&'a [u8]> {
    let value = in_place::value(*minishard, key)?;
    value.iter().for_each(|value| prefetch::lines(value, lines));
    Some(value)
}
