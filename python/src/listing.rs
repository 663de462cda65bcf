//! All keys of a database, or those of a range.

use std::ops::Bound as End;

use pyo3::exceptions::{PyMemoryError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyRange, PySlice};
use sharddb::internal::shard_number;
use sharddb::read::RangeOptions;
use sharddb::spec::ShardNumber;
use sharddb::{Progress, Snapshot};

use crate::progress::Bar;
use crate::reader::Reader;
use crate::task::Failure;
use crate::{buffer, task};

#[pymethods]
impl Reader {
    /// Returns the keys as a `uint64` array.
    ///
    /// Without arguments: all keys in storage order. With `sorted`: all keys, ascending. With `range`, a `range(start,
    /// stop)` or `slice(start, stop)`: the keys from `start` up to, but without, `stop`, always ascending; `None` is the
    /// end of the key space, and `stop` may be 2**64. With `shard`: those of the shard with this number, in storage order.
    ///
    /// Cost: reads all indexes and no values. Ascending keys are sorted first, unless the generation has a key file or,
    /// with the identity hash, the range is narrow.
    ///
    /// Raises `TypeError` for another range, `ValueError` for a step other than 1, `OverflowError` for an end outside of
    /// the key space, `Corrupt` or `Io` for the first index that cannot be read, and `MemoryError`.
    #[pyo3(signature = (range = None, sorted = false, *, shard = None))]
    fn keys<'py>(
        &self,
        py: Python<'py>,
        range: Option<&Bound<'py, PyAny>>,
        sorted: bool,
        shard: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let order = match (shard, range) {
            (None, Some(range)) => Order::Ascending(key_range(range)?),
            (None, None) if sorted => Order::Ascending(WHOLE),
            (None, None) => Order::Storage,
            (Some(shard), None) if !sorted => Order::Shard(shard_number(shard)),
            (Some(_), _) => return Err(PyValueError::new_err("expected shard without range and sorted, found both")),
        };
        let snapshot = self.snapshot(py)?;
        let keys = task::run(py, Bar::none(), |progress| collect(&snapshot, order, progress))?;
        buffer::array(py, keys)
    }
}

/// Upper bound on the keys for which memory is reserved at the beginning: 1 GiB, of which only used pages count.
const MOST_RESERVED: usize = 1 << 27;

/// Keys per check whether this is cancelled.
const KEYS_PER_CHECK: usize = 1 << 16;

pub(crate) type KeyRange = (End<u64>, End<u64>);

pub(crate) const WHOLE: KeyRange = (End::Unbounded, End::Unbounded);

/// Which keys, in which order.
enum Order {
    Storage,
    Shard(ShardNumber),
    Ascending(KeyRange),
}

fn collect(snapshot: &Snapshot, order: Order, progress: &Progress) -> Result<Vec<u64>, Failure> {
    match order {
        Order::Storage => all_of(snapshot.keys(), snapshot.key_count(), progress),
        Order::Shard(number) => match snapshot.shard(number)? {
            Some(shard) => all_of(shard.keys(), None, progress),
            None => Ok(Vec::new()),
        },
        Order::Ascending(range) => {
            let keys = snapshot.key_range_with(range, RangeOptions::new().progress(progress));
            let count = keys.remaining();
            all_of(keys, Some(count), progress)
        }
    }
}

/// Collects keys; `count` is a hint. Errors: the first one of `keys`; `MemoryError`.
fn all_of(
    keys: impl Iterator<Item = sharddb::Result<u64>>,
    count: Option<u64>,
    progress: &Progress,
) -> Result<Vec<u64>, Failure> {
    let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    let mut collected = Vec::new();
    reserve(&mut collected, count.min(MOST_RESERVED))?;
    for key in keys {
        if collected.len() % KEYS_PER_CHECK == 0 && progress.is_cancelled() {
            break; // the caller raises an exception instead of the result
        }
        if collected.len() == collected.capacity() {
            reserve(&mut collected, 1)?;
        }
        collected.push(key?);
    }
    Ok(collected)
}

/// Reserves memory for `more` keys. Errors: `MemoryError`.
fn reserve(keys: &mut Vec<u64>, more: usize) -> PyResult<()> {
    keys.try_reserve(more).map_err(|_| PyMemoryError::new_err("the keys do not fit into memory: read a range of them"))
}

/// Parses a `range` or `slice` of keys.
pub(crate) fn key_range(range: &Bound<'_, PyAny>) -> PyResult<KeyRange> {
    if !range.is_instance_of::<PyRange>() && !range.is_instance_of::<PySlice>() {
        let class = range.get_type().name()?;
        return Err(PyTypeError::new_err(format!("expected a range or a slice of keys, found {class}")));
    }
    let step = range.getattr("step")?;
    if !step.is_none() && !step.eq(1)? {
        return Err(PyValueError::new_err(format!("expected a range of keys with step 1, found {step}")));
    }
    let start = end(&range.getattr("start")?)?.map_or(End::Unbounded, |key| match u64::try_from(key) {
        Ok(key) => End::Included(key),
        Err(_) => End::Excluded(u64::MAX),
    });
    let stop = end(&range.getattr("stop")?)?.map_or(End::Unbounded, |key| match u64::try_from(key) {
        Ok(key) => End::Excluded(key),
        Err(_) => End::Unbounded,
    });
    Ok((start, stop))
}

/// Returns an end of a range, from 0 to 2^64.
fn end(key: &Bound<'_, PyAny>) -> PyResult<Option<u128>> {
    const LAST: u128 = 1 << 64;
    if key.is_none() {
        return Ok(None);
    }
    let found = key.extract::<u128>().ok().filter(|key| *key <= LAST);
    found.map(Some).ok_or_else(|| PyOverflowError::new_err(format!("expected an end from 0 to 2**64, found {key}")))
}
