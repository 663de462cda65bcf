//! Iteration over keys and pairs, in storage order.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sharddb::Snapshot;
use sharddb::read::Keys;

use crate::errors::OrRaise;
use crate::reader::Reader;

/// Keys that are read at a time, without the GIL.
const KEYS_PER_READ: usize = 1024;

/// The keys of a snapshot, read in blocks.
struct KeyBlocks {
    keys: Keys,
    block: std::vec::IntoIter<sharddb::Result<u64>>,
}

impl KeyBlocks {
    fn new(snapshot: &Snapshot) -> KeyBlocks {
        KeyBlocks { keys: snapshot.keys(), block: Vec::new().into_iter() }
    }

    fn next(&mut self, py: Python<'_>) -> PyResult<Option<u64>> {
        if self.block.len() == 0 {
            let keys = &mut self.keys;
            self.block = py.detach(|| keys.take(KEYS_PER_READ).collect::<Vec<_>>()).into_iter();
        }
        self.block.next().transpose().or_raise(py)
    }
}

/// An iterator over keys; see `Reader.__iter__`.
#[pyclass(module = "sharddb")]
struct KeyIterator(KeyBlocks);

#[pymethods]
impl KeyIterator {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.0.next(py)
    }
}

/// An iterator over pairs; see `Reader.items`.
#[pyclass(module = "sharddb")]
struct ItemIterator {
    keys: KeyBlocks,
    snapshot: Snapshot,
}

#[pymethods]
impl ItemIterator {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(u64, Bound<'py, PyBytes>)>> {
        while let Some(key) = self.keys.next(py)? {
            if let Some(value) = self.snapshot.get(key).or_raise(py)? {
                return Ok(Some((key, PyBytes::new(py, &value))));
            }
        }
        Ok(None)
    }
}

#[pymethods]
impl Reader {
    /// Iterates over the keys of the current generation in storage order, as integers. `keys` returns an array.
    ///
    /// A key that cannot be read raises; the iteration then continues with the next one that can.
    fn __iter__(&self, py: Python<'_>) -> PyResult<KeyIterator> {
        Ok(KeyIterator(KeyBlocks::new(&self.snapshot(py)?)))
    }

    /// Iterates over the pairs of the current generation in storage order, as tuples of `int` and `bytes`.
    ///
    /// A pair that cannot be read raises; the iteration then continues with the next one that can.
    fn items(&self, py: Python<'_>) -> PyResult<ItemIterator> {
        let snapshot = self.snapshot(py)?;
        Ok(ItemIterator { keys: KeyBlocks::new(&snapshot), snapshot })
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<KeyIterator>()?;
    module.add_class::<ItemIterator>()
}
